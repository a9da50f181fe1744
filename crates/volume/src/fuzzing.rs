//! Entry points of the fuzz targets: keys and values of rows as arbitrary bytes.
//!
//! Invariants: Z1 a decoder gives a value or an error; encoding a decoded key gives the same key, and encoding a
//!                decoded value gives bytes that decode to the same value.
//! Not here:   the targets themselves and their seeds (fuzz/).

use bytes::Bytes;
use margay_env::Timestamp;
use margay_rows::Ino;
use margay_rows::event::{Event, EventKind};
use margay_rows::key::{self, Live};
use margay_rows::kinds::{Document, Documents, Setting};
use margay_rows::record::back::{decode_location, encode_location};
use margay_rows::record::data::{Data, decode_extent_row, extent_row};
use margay_rows::record::entry::encode_link;
use margay_rows::record::event;
use margay_rows::record::multipart::{
    decode_part_checksums, decode_part_sizes, encode_part_checksums, encode_part_sizes,
};
use margay_rows::record::{
    BackRow, Bucket, CopiesRecord, Damaged, DeleteMarker, DirectoryEntry, DirectoryRecord, Entry, FileEntry, FileLock,
    FileLocksRecord, Fingerprints, KeyFile, KnownIdentitiesRecord, Line, MountLeaseRecord, Orphan, PartRecord, Pool,
    Role, Summary, UploadRecord, Version, VersionRow,
};
use margay_segment::{Extent, Run, SegmentId, StoreNumber};

use crate::api::{ETag, Error, Headers, Versioning};
use crate::cache::{Quota, inos};
use crate::driver::counters;
use crate::encryption::Envelope;
use crate::upkeep::backup;
use crate::upkeep::dump::{self, DumpSink, PiecePlace};

/// A key of any table.
pub fn row_key(bytes: &[u8]) {
    let made = [
        key::parse_bucket(bytes).map(key::bucket).ok(),
        key::parse_entry(bytes).map(|(directory, name)| key::entry(directory, name.as_bytes())).ok(),
        key::parse_extent(bytes).map(|(ino, offset)| key::extent(ino, offset)).ok(),
        key::parse_upload(bytes).map(|(root, name, id)| key::upload(root, &name, id)).ok(),
        key::parse_part(bytes).map(|(upload, number)| key::part(upload, number)).ok(),
        key::parse_back(bytes).map(|(segment, offset, owner)| key::back(segment, offset, owner)).ok(),
        key::parse_live(bytes).map(|(segment, side)| key::live(segment, side)).ok(),
        key::parse_event(bytes).map(|(target, number)| key::event(&target, number)).ok(),
        key::parse_setting(bytes).map(|(root, setting, piece)| key::setting_piece(root, setting, piece)).ok(),
        key::parse_document(bytes).map(|(ino, document)| key::document(ino, document)).ok(),
        key::parse_mount_lease(bytes).map(|(root, number)| key::mount_lease(root, number)).ok(),
        key::parse_version(bytes).map(|(root, name, sequence)| key::version(root, &name, sequence)).ok(),
    ];
    for made in made.into_iter().flatten() {
        // The parsers leave the table to whoever scanned it.
        assert_eq!(made[1..], *bytes.get(1..).unwrap_or_default());
    }
    if let Some(next) = key::successor(bytes) {
        assert!(*next > *bytes && !next.starts_with(bytes) && *key::after(bytes.to_vec()) < *next);
    }
}

/// The rows of a backup: a whole file, and one block of rows with the right checksums around it.
pub fn backup_rows(bytes: &[u8]) {
    read_backup(bytes);
    if !bytes.is_empty() {
        read_backup(&sealed_backup(bytes, 1));
    }
}

fn read_backup(file: &[u8]) {
    let mut shown = 0;
    let read = backup::read_rows(&mut &*file, |key, value| {
        assert!(key.len() + value.len() <= file.len(), "what is shown was there");
        shown += 1;
        Ok(())
    });
    if let Ok(rows) = read {
        assert_eq!(rows, shown);
    }
}

/// A dump: a whole stream, and pieces behind right rows with the right checksums around them.
pub fn dump(bytes: &[u8]) {
    read_dumped(bytes);
    read_dumped(&sealed_dump(bytes));
}

/// Counts what a dump holds.
#[derive(Default)]
struct Counting {
    rows: u64,
    bytes: u64,
    last: Option<(SegmentId, u64)>,
}

impl DumpSink for Counting {
    fn row(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        self.rows += 1;
        Ok(())
    }

    fn rows_end(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn file(&mut self, name: &str, _bytes: &[u8]) -> Result<(), Error> {
        assert!(!name.contains(['/', '.', '\0']), "a name leads nowhere else");
        Ok(())
    }

    fn piece(&mut self, place: &PiecePlace, bytes: &[u8]) -> Result<(), Error> {
        let begin = (place.segment, place.offset);
        assert!(self.last.is_none_or(|last| last <= begin), "pieces do not overlap");
        self.last = Some((place.segment, place.offset + bytes.len() as u64));
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn read_dumped(mut stream: &[u8]) {
    let mut counting = Counting::default();
    let Ok(header) = dump::read_dump_header(&mut stream) else { return };
    if dump::read_dump(&mut stream, &header, &mut counting).is_ok() && header.with_data {
        assert_eq!(counting.bytes, header.bytes);
        assert!(counting.last.is_none_or(|(segment, _)| segment <= header.largest));
    }
}

/// A stream whose pieces are cut from these bytes: kind, length, two numbers of one byte each, kind of segment, content.
fn sealed_dump(mut bytes: &[u8]) -> Vec<u8> {
    let header = dump::DumpHeader { with_data: true, largest: SegmentId(200), bytes: 40 };
    let mut stream = [&dump::encode_dump_header(&header)[..], &sealed_backup(SAMPLE_BLOCK, 1)].concat();
    let mut crc = 0;
    while let [kind, len, one, two, of, rest @ ..] = bytes {
        let content;
        (content, bytes) = rest.split_at(rest.len().min((*len).into()));
        let mut piece = [0; 32];
        piece[..4].copy_from_slice(&u32::from(*kind).to_le_bytes());
        piece[4..8].copy_from_slice(&(content.len() as u32).to_le_bytes());
        (piece[8], piece[16], piece[24]) = (*one, *two, *of);
        crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &piece[..28]), content);
        piece[28..].copy_from_slice(&crc.to_le_bytes());
        stream.extend_from_slice(&piece);
        stream.extend_from_slice(content);
    }
    stream
}

/// What [`sealed_dump`] makes a right stream of.
fn sample_pieces() -> Vec<u8> {
    let file = [&[2, 7, 4, 0, 0][..], b"keyssec"].concat();
    let log = [&[1, 20, 7, 0, 0][..], &[9; 20]].concat();
    let more = [&[1, 20, 7, 64, 0][..], &[8; 20]].concat();
    [&file[..], &log, &more, &[0, 0, 3, 40, 0]].concat()
}

/// One row: a key of four bytes, a value of two.
const SAMPLE_BLOCK: &[u8] = b"\x04\0\0\0\x02\0\0\0beta42";

/// A file of one block.
fn sealed_backup(block: &[u8], rows: u64) -> Vec<u8> {
    let crc = crc32c::crc32c(block).to_le_bytes();
    let header = [b"mgyrows\n".as_slice(), &1_u32.to_le_bytes(), &[0; 4]].concat();
    let len = (block.len() as u32).to_le_bytes();
    [&header, len.as_slice(), &crc, block, &[0; 4], &crc, &rows.to_le_bytes()].concat()
}

/// Decodes; what it gives must survive its own encoding.
fn round<T: PartialEq + std::fmt::Debug>(
    value: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, Damaged>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    if let Ok(decoded) = decode(value) {
        let again = encode(&decoded);
        assert_eq!(decode(&again), Ok(decoded));
    }
}

/// A value: the first byte says of which table.
pub fn row_value(bytes: &[u8]) {
    let Some((table, value)) = bytes.split_first() else { return };
    match table {
        0 => {
            round(value, Entry::decode, |entry| match entry {
                Entry::File(file) => file.encode().value,
                Entry::Directory(directory) => directory.encode(),
                Entry::Link(ino) => encode_link(*ino),
            });
            // A listing must show what a look at the whole entry shows.
            if let Ok(entry) = Entry::decode(value) {
                let (summary, line) = match entry {
                    Entry::File(FileEntry { ino, size, modified, etag, mode, .. }) => {
                        (Summary::File { size, modified, etag }, Line::File { ino, size, mode })
                    }
                    Entry::Directory(directory) => (Summary::Directory(directory), Line::Directory(directory)),
                    Entry::Link(ino) => (Summary::Link(ino), Line::Link(ino)),
                };
                assert_eq!(Summary::decode(value), Ok(summary));
                assert_eq!(Line::decode(value), Ok(line));
            }
        }
        1 => round(value, Bucket::decode, Bucket::encode),
        2 => round(value, DirectoryRecord::decode, DirectoryRecord::encode),
        3 => round(value, UploadRecord::decode, UploadRecord::encode),
        4 => round(value, PartRecord::decode, |part| part.encode().0),
        5 => round(value, Orphan::decode, |orphan| orphan.encode()),
        6 => round(value, decode_extent_row, extent_row),
        9 => round(value, decode_part_checksums, |parts| encode_part_checksums(parts.iter())),
        10 => round(value, Quota::decode, |quota| quota.encode()),
        11 => round(value, VersionRow::decode, |row| match row {
            VersionRow::File(file) => file.encode().value,
            VersionRow::Marker(marker) => marker.encode(),
        }),
        7 => {
            let Some((parts, value)) = value.split_first_chunk::<2>() else { return };
            let parts = u16::from_le_bytes(*parts);
            round(value, |value| decode_part_sizes(value, parts), |sizes| encode_part_sizes(sizes));
        }
        12 => round(value, event::decode, |(event, rule)| event::encode(event, rule)),
        13 => {
            if let Ok(envelope) = Envelope::decode(value) {
                assert_eq!(envelope.encode(), value);
            }
        }
        14 => round(value, Fingerprints::decode, Fingerprints::encode),
        17 => round(value, CopiesRecord::decode, CopiesRecord::encode),
        18 => round(value, MountLeaseRecord::decode, MountLeaseRecord::encode),
        19 => round(value, KnownIdentitiesRecord::decode, |known| known.encode()),
        20 => round(value, FileLocksRecord::decode, FileLocksRecord::encode),
        16 => round(value, BackRow::decode, |back| BackRow::encode(&back.run(SegmentId(9), 64), back.row.as_deref())),
        15 => {
            if let Ok(row) = decode_location(value) {
                assert_eq!(encode_location(row), value);
            }
        }
        _ => {
            let _ = counters::decode_counter(value);
            let _ = inos::decode(value);
        }
    }
}

fn sample_file(data: Data) -> FileEntry {
    let headers = [("content-type", "text/plain"), ("x-amz-meta-a", "ü")];
    let headers: Headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FileEntry::new(Ino(300), 5, ETag { digest: [7; 16], parts: 2 }, Timestamp(1_700_000_000_000_000_000), data, headers)
}

fn sample_mount_lease(since: Timestamp) -> MountLeaseRecord {
    MountLeaseRecord { holder: Ino(9), directory: Ino(300), shared: false, since, place: "cats/2026/".to_owned() }
}

fn sample_file_locks() -> FileLocksRecord {
    let one =
        FileLock { lease: Ino(9), owner: 1 << 60, handle: 3, process: 7, first: 0, last: u64::MAX, exclusive: false };
    FileLocksRecord { locks: vec![one, FileLock { owner: 5, first: 3, last: 3, ..one }] }
}

fn sample_event(at: Timestamp) -> Event {
    Event {
        kind: EventKind::Copy,
        at,
        bucket: "cats".to_owned(),
        key: "a/b".to_owned(),
        size: 7,
        etag: ETag { digest: [3; 16], parts: 2 },
        version: "null".to_owned(),
    }
}

/// Real encodings to begin with: target, name, bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let documents = Documents::from([(Document::Tags, Bytes::from_static(b"a=b")), (Document::Upload, Bytes::new())]);
    let run = Run { segment: SegmentId(9), offset: 64, len: 70_000, crc: 0xdead_beef };
    let extent = Extent { run, skip: 10, len: 60_000 };
    let file = sample_file(Data::Extents(vec![extent, extent]));
    let rare = FileEntry {
        device: 259,
        accessed: Some(Timestamp(-1)),
        links: 3,
        xattrs: true,
        documents: documents.keys().copied().collect(),
        ..file.clone()
    };
    let version = FileEntry { version: Version { sequence: 77, is_null: true }, ..file.clone() };
    let marker = DeleteMarker { is_null: false, modified: file.modified };
    let FileEntry { headers, modified, .. } = file.clone();
    let part = PartRecord {
        ino: Ino(4),
        size: 60_000,
        modified,
        digest: [1; 16],
        data: Data::Extents(vec![extent]),
        headers: headers.clone(),
    };
    let settings = [Setting::Policy, Setting::Cors].into_iter().collect();
    let (created, owner, versioning) = (modified, "me".to_owned(), Versioning::Enabled);
    let bucket = Bucket { root: Ino(2), created, versioning, object_lock: true, settings, owner };
    let touched = DirectoryEntry { changed: Some(modified), ..DirectoryEntry::implicit(Ino(6)) };
    let upload = UploadRecord { ino: Ino(5), initiated: modified, headers, documents };
    let directory = DirectoryRecord { parent: Ino(1), sort_name: "d/".to_owned() };
    let value = |table: u8, value: &[u8]| [&[table], value].concat();
    let sizes = [&3u16.to_le_bytes()[..], &encode_part_sizes(&[8, 8, 3])].concat();
    let values = vec![
        ("row_value", "file_extents", value(0, &file.encode().value)),
        ("row_value", "file_inline", value(0, &sample_file(Data::Inline(b"small".to_vec())).encode().value)),
        ("row_value", "file_rows", value(0, &sample_file(Data::Rows).encode().value)),
        ("row_value", "file_rare", value(0, &rare.encode().value)),
        ("row_value", "link", value(0, &encode_link(Ino(300)))),
        ("row_value", "directory", value(0, &touched.encode())),
        ("row_value", "bucket", value(1, &bucket.encode())),
        ("row_value", "directory_record", value(2, &directory.encode())),
        ("row_value", "upload", value(3, &upload.encode())),
        ("row_value", "part", value(4, &part.encode().0)),
        ("row_value", "orphan", value(5, &Orphan::File.encode())),
        ("row_value", "extent", value(6, &extent_row(&extent))),
        ("row_value", "part_sizes", value(7, &sizes)),
        ("row_value", "part_checksums", value(9, &encode_part_checksums([&file.headers, &Headers::new()].into_iter()))),
        ("row_value", "quota", value(10, &Quota { objects: Some(5), bytes: Some(4096) }.encode())),
        ("row_value", "version", value(11, &version.encode().value)),
        ("row_value", "delete_marker", value(11, &marker.encode())),
        ("row_value", "event", value(12, &event::encode(&sample_event(modified), "rule"))),
        ("row_value", "envelope", value(13, &[&[1, 2][..], &[7; 12 + 48]].concat())),
        (
            "row_value",
            "fingerprints",
            value(14, &Fingerprints { salt: [2; 16], of_secrets: vec![[3; 16]; 2] }.encode()),
        ),
        ("row_value", "copies", value(17, &sample_copies(0).encode())),
        ("row_value", "copies_with_racks", value(17, &sample_copies(1).encode())),
        ("row_value", "copies_with_roles", value(17, &sample_copies(2).encode())),
        ("row_value", "back", value(16, &BackRow::encode(&run, Some(&key::entry(Ino(3), b"name"))))),
        ("row_value", "location", value(15, &encode_location(&key::inode(Ino(3))))),
        ("row_value", "counter", value(8, &5u64.to_be_bytes())),
        ("backup_rows", "one_block", SAMPLE_BLOCK.to_vec()),
        ("backup_rows", "whole_file", sealed_backup(SAMPLE_BLOCK, 1)),
        ("dump", "pieces", sample_pieces()),
        ("dump", "whole_stream", sealed_dump(&sample_pieces())),
    ];
    key_seeds().into_iter().chain(values).collect()
}

fn sample_copies(layout_above_first: u8) -> CopiesRecord {
    let copies = CopiesRecord { copies: 3, write: 2, detached: vec![StoreNumber(4)], ..CopiesRecord::default() };
    if layout_above_first == 0 {
        return copies;
    }
    let rack_of = [(StoreNumber(0), "a".to_owned()), (StoreNumber(2), "b-1".to_owned())].into();
    let mut copies = CopiesRecord { racks: 2, suspended: vec![StoreNumber(1)], rack_of, ..copies };
    if layout_above_first > 1 {
        let text = str::to_owned;
        let pool = Pool {
            name: text("cold"),
            bucket: text("bucket"),
            prefix: text("a/b"),
            endpoint: text("https://s3.example"),
            region: text("eu"),
            folder: text("0123"),
            is_virtual: true,
            copies: 2,
        };
        copies.pools = [(StoreNumber(5), pool)].into();
        copies.role_of = [(StoreNumber(1), Role::Endpoint), (StoreNumber(9), Role::Gateway)].into();
    }
    copies
}

fn key_seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    vec![
        ("row_key", "bucket", key::bucket("cats")),
        ("row_key", "entry", key::entry(Ino(3), b"name/")),
        ("row_key", "extent", key::extent(Ino(3), 1 << 20)),
        ("row_key", "upload", key::upload(Ino(3), "a\0b", "id")),
        ("row_key", "part", key::part(Ino(3), 10_000)),
        ("row_key", "back", key::back(SegmentId(9), 64, Ino(3))),
        ("row_key", "setting", key::setting_piece(Ino(3), Setting::Cors, 1)),
        ("row_key", "document", key::document(Ino(3), Document::Tags)),
        ("row_key", "mount_lease", key::mount_lease(Ino(3), Ino(700))),
        ("row_value", "mount_lease", [&[18], &*sample_mount_lease(Timestamp(5)).encode()].concat()),
        ("row_value", "file_locks", [&[20], &*sample_file_locks().encode()].concat()),
        ("row_key", "event", key::event("orders", key::event_number(515, 77))),
        ("row_key", "fingerprint", key::fingerprint(KeyFile::Root)),
        ("row_key", "live", key::live(SegmentId(9), Live::Lost)),
        ("row_key", "version", key::version(Ino(3), "a\0b", 77)),
        ("row_key", "null_version", key::null_version(Ino(3), "a/b")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        for (target, _, bytes) in seeds() {
            match target {
                "row_key" => row_key(&bytes),
                "backup_rows" => backup_rows(&bytes),
                "dump" => dump(&bytes),
                _ => row_value(&bytes),
            }
        }
    }

    #[test]
    fn the_seed_of_a_dump_is_read_to_its_end() {
        let stream = sealed_dump(&sample_pieces());
        let mut from = stream.as_slice();
        let header = dump::read_dump_header(&mut from).unwrap();
        let mut counting = Counting::default();
        dump::read_dump(&mut from, &header, &mut counting).unwrap();
        assert_eq!((counting.rows, counting.bytes), (1, 40));
    }
}
