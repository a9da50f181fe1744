//! Rows read and written by hand, from docs/format/keys.md: what POSIX makes, without POSIX, and what is damaged.

use std::sync::Arc;

use margay_meta::{Batch, CommitError, Engine, Precondition, RowVersion, Write, is_plain};
use margay_volume::Volume;

pub const SYMLINK: u64 = 0o120_000;
pub const SOCKET: u64 = 0o140_000;
pub const BLOCK: u64 = 0o060_000;
pub const CHAR: u64 = 0o020_000;
pub const FIFO: u64 = 0o010_000;
const FLAG_RARE: u8 = 4;
/// The documents of a file that was completed from parts.
const UPLOAD: u8 = 32;
pub const FLAG_XATTRS: u8 = 8;

pub fn key(table: u8, ino: u64, rest: &[u8]) -> Vec<u8> {
    [&[table], &ino.to_be_bytes()[..], rest].concat()
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn take_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The value of a file's row.
#[derive(Clone, Debug)]
pub struct RawFile {
    pub flags: u8,
    pub ino: u64,
    pub size: u64,
    modified: u64,
    etag: Vec<u8>,
    parts: u64,
    changed: u64,
    pub mode: u64,
    pub uid: u64,
    pub gid: u64,
    /// Data, headers, rare fields.
    pub rest: Vec<u8>,
}

impl RawFile {
    pub fn read(value: &[u8]) -> RawFile {
        assert_eq!(value[..2], [1, 1]);
        let rest = &mut &value[3..];
        let (ino, size, modified) = (take_varint(rest), take_varint(rest), take_varint(rest));
        let etag = rest[..16].to_vec();
        *rest = &rest[16..];
        let (parts, changed, mode) = (take_varint(rest), take_varint(rest), take_varint(rest));
        let (uid, gid) = (take_varint(rest), take_varint(rest));
        let (flags, rest) = (value[2], rest.to_vec());
        RawFile { flags, ino, size, modified, etag, parts, changed, mode, uid, gid, rest }
    }

    pub fn value(&self) -> Vec<u8> {
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| varint(*number)).collect::<Vec<u8>>();
        let front = numbers(&[self.ino, self.size, self.modified]);
        let back = numbers(&[self.parts, self.changed, self.mode, self.uid, self.gid]);
        [&[1, 1, self.flags], &front[..], &self.etag, &back, &self.rest].concat()
    }

    /// Names, of a file with no rare fields but that and the document of its upload.
    pub fn links(&self) -> u8 {
        match (self.flags & FLAG_RARE, self.rest.as_slice()) {
            (0, _) | (_, [.., 8, UPLOAD]) => 1,
            (_, [.., 12, links, UPLOAD] | [.., 4, links]) => *links,
            (_, rest) => panic!("{rest:?}"),
        }
    }

    pub fn set_links(&mut self, links: u8) {
        let (uploaded, old) = match (self.flags & FLAG_RARE, self.rest.as_slice()) {
            (0, _) => (false, 0),
            (_, [.., 8, UPLOAD]) => (true, 2),
            (_, [.., 12, _, UPLOAD]) => (true, 3),
            _ => (false, 2),
        };
        self.rest.truncate(self.rest.len() - old);
        self.flags |= FLAG_RARE;
        match uploaded {
            true => self.rest.extend_from_slice(&[12, links, UPLOAD]),
            false => self.rest.extend_from_slice(&[4, links]),
        }
    }

    pub fn set_device(&mut self, device: u64) {
        self.flags |= FLAG_RARE;
        self.rest.push(1);
        self.rest.extend(varint(device));
    }

    /// The rows that say that this file is in the row `at`.
    fn back_rows(&self, at: &[u8]) -> Vec<Write> {
        let mut rest = &self.rest[1..];
        match self.rest[0] {
            0 => Vec::new(),
            1 => {
                let mut writes = std::collections::BTreeMap::new();
                for _ in 0..take_varint(&mut rest) {
                    let (place, more) = rest.split_at(16);
                    rest = more;
                    let len = take_varint(&mut rest);
                    let (crc, more) = rest.split_at(4);
                    rest = more;
                    take_varint(&mut rest);
                    take_varint(&mut rest);
                    let back = [b"r", place, &self.ino.to_be_bytes()].concat();
                    if place[..8] != [0; 8] {
                        writes.insert(back, [&[1], &varint(len)[..], crc, at].concat());
                    }
                }
                writes.into_iter().map(|(key, value)| put(key, value)).collect()
            }
            2 => vec![put(key(b'X', self.ino, b""), [&[1], at].concat())],
            tag => panic!("{tag}"),
        }
    }

    /// Zeros before what the extents hold.
    pub fn add_hole(&mut self, len: u64) {
        assert_eq!(self.rest[0], 1, "extents in the entry");
        let hole = [&[0; 16][..], &varint(len), &[0; 4], &varint(0), &varint(len)].concat();
        self.rest[1] += 1;
        self.rest.splice(2..2, hole);
        self.size += len;
    }
}

/// The part of a back row's key that is the same for all owners of a segment's runs.
pub fn backs_of_segment(segment: u64) -> Vec<u8> {
    key(b'r', segment, b"")
}

/// Removes all back rows of a segment, as an operation would that loses them.
pub fn lose_backs(engine: &Arc<dyn Engine>, segment: u64) {
    let (start, end) = (backs_of_segment(segment), backs_of_segment(segment + 1));
    let mut writes = Vec::new();
    let scanned = engine.scan(&start, &end, &mut |row| {
        writes.push(Write::Delete { key: row.key.to_vec() });
        std::ops::ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert!(!writes.is_empty());
    write(engine, writes);
}

pub fn link_value(ino: u64) -> Vec<u8> {
    [&[1, 3][..], &varint(ino)].concat()
}

/// Reads rows and keeps what it read, so that a batch can assert all of it.
struct Reading<'a> {
    engine: &'a dyn Engine,
    rows: Vec<(Vec<u8>, Option<RowVersion>)>,
}

impl Reading<'_> {
    fn get(&mut self, key: Vec<u8>) -> Option<Vec<u8>> {
        let row = self.engine.get(&key).unwrap().value;
        self.rows.push((key, row.as_ref().map(|row| row.version)));
        row.map(|row| row.value.to_vec())
    }

    /// Directory and name of a key, if its directories exist.
    fn place<'k>(&mut self, bucket: &str, path: &'k str) -> Option<(u64, &'k str)> {
        let row = self.get([b"b", bucket.as_bytes()].concat())?;
        let mut directory = take_varint(&mut &row[1..]);
        let (directories, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        for step in directories.split_inclusive('/') {
            let row = self.get(key(b'e', directory, step.as_bytes()))?;
            directory = take_varint(&mut &row[3..]);
        }
        Some((directory, name))
    }

    /// All that was read held at the moment of the last read.
    fn still(&self) -> bool {
        let version = |key: &[u8]| self.engine.get(key).unwrap().value.map(|row| row.version);
        self.rows.iter().all(|(key, read)| version(key) == *read)
    }

    fn preconditions(&self) -> Vec<Precondition> {
        let one = |(key, version): &(Vec<u8>, Option<RowVersion>)| match version {
            Some(version) => Precondition::Version { key: key.clone(), version: *version },
            None => Precondition::Absent { key: key.clone() },
        };
        self.rows.iter().map(one).collect()
    }
}

fn reading(engine: &Arc<dyn Engine>) -> Reading<'_> {
    Reading { engine: &**engine, rows: Vec::new() }
}

/// Number of the root of a bucket or of a directory below it (`a/b/`).
pub fn directory(engine: &Arc<dyn Engine>, bucket: &str, path: &str) -> u64 {
    reading(engine).place(bucket, path).unwrap().0
}

/// The key of an entry.
pub fn entry_key(engine: &Arc<dyn Engine>, bucket: &str, path: &str) -> Vec<u8> {
    let (directory, name) = reading(engine).place(bucket, path).unwrap();
    key(b'e', directory, name.as_bytes())
}

/// The row with the attributes of the file at a key, and its value.
pub fn file(engine: &Arc<dyn Engine>, bucket: &str, path: &str) -> (Vec<u8>, RawFile) {
    let mut row_key = entry_key(engine, bucket, path);
    let mut value = reading(engine).get(row_key.clone()).unwrap();
    if value[1] == 3 {
        row_key = key(b'n', take_varint(&mut &value[2..]), b"");
        value = reading(engine).get(row_key.clone()).unwrap();
    }
    (row_key, RawFile::read(&value))
}

pub fn write(engine: &Arc<dyn Engine>, writes: Vec<Write>) {
    engine.commit(Batch { writes, ..Batch::default() }).unwrap();
}

/// Sets the row if it is a counter.
pub fn put(key: Vec<u8>, value: Vec<u8>) -> Write {
    match is_plain(&key) {
        true => Write::Put { key, value },
        false => Write::Set { key, value: value.try_into().expect("a counter has eight bytes") },
    }
}

/// Changes the row with the attributes of a file, whatever they were.
pub fn change(engine: &Arc<dyn Engine>, bucket: &str, path: &str, change: impl FnOnce(&mut RawFile)) {
    let (row_key, mut raw) = file(engine, bucket, path);
    change(&mut raw);
    write(engine, vec![put(row_key, raw.value())]);
}

/// One more name of a file, as POSIX makes it.
pub fn link(volume: &Volume, bucket: &str, from: &str, to: &str) -> String {
    loop {
        let mut reading = reading(volume.engine());
        match draft_link(&mut reading, bucket, from, to) {
            Ok(writes) => {
                let preconditions = reading.preconditions();
                match volume.engine().commit(Batch { preconditions, writes, ..Batch::default() }) {
                    Ok(_) => return "linked".to_owned(),
                    Err(CommitError::Conflict { .. }) => {}
                    Err(error) => panic!("{from:?} {to:?}: {error:?}"),
                }
            }
            Err(refused) if reading.still() => return refused.to_owned(),
            Err(_) => {}
        }
    }
}

fn draft_link(reading: &mut Reading<'_>, bucket: &str, from: &str, to: &str) -> Result<Vec<Write>, &'static str> {
    let (parent, name) = reading.place(bucket, from).ok_or("not found")?;
    let old_entry = key(b'e', parent, name.as_bytes());
    let value = reading.get(old_entry.clone()).ok_or("not found")?;
    let linked = value[1] == 3;
    let raw =
        if linked { reading.get(key(b'n', take_varint(&mut &value[2..]), b"")).ok_or("moved") } else { Ok(value) };
    let mut raw = RawFile::read(&raw?);
    let (directory, name) = reading.place(bucket, to).ok_or("no directory")?;
    let new_entry = key(b'e', directory, name.as_bytes());
    if reading.get(new_entry.clone()).is_some() {
        return Err("exists");
    }
    raw.set_links(raw.links() + 1);
    let root = reading.place(bucket, "").ok_or("no bucket")?.0;
    let mut writes = vec![
        put(key(b'n', raw.ino, b""), raw.value()),
        put(new_entry, link_value(raw.ino)),
        Write::Add { key: key(b'c', root, b"o"), delta: 1 },
    ];
    if raw.size > 0 {
        writes.push(Write::Add { key: key(b'c', root, b"b"), delta: raw.size as i64 });
    }
    if !linked {
        writes.push(put(old_entry, link_value(raw.ino)));
        writes.extend(raw.back_rows(&key(b'n', raw.ino, b"")));
    }
    Ok(writes)
}
