//! Every record comes back as it was written, and no bytes make a decoder panic.

use std::collections::BTreeMap;

use margay_env::Timestamp;
use margay_segment::{Extent, Kind, Run, SegmentId, StoreNumber};
use proptest::prelude::*;

use super::back::{decode_location, encode_location};
use super::data::{Data, decode_extent_row, extent_row};
use super::entry::ENTRY_BYTES_MAX;
use super::multipart::{decode_part_checksums, decode_part_sizes, encode_part_checksums, encode_part_sizes};
use super::*;
use crate::ino::Ino;
use crate::kinds::{Document, Documents, Setting};
use crate::numbered::Numbered;
use crate::values::{ETag, Headers, PART_NUMBER_MAX, Versioning};

prop_compose! {
    fn extents()(segment in 1u64.., offset: u64, skip: u32, len: u32, tail: u32, crc: u32) -> Extent {
        let run_len = u64::from(skip) + u64::from(len) + u64::from(tail);
        let run = Run { segment: SegmentId(segment), offset, len: run_len, crc };
        Extent { run, skip: skip.into(), len: len.into() }
    }
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..=128).prop_map(Data::Inline),
        prop::collection::vec(extents(), 0..=4).prop_map(Data::Extents),
        Just(Data::Rows),
    ]
}

fn headers() -> impl Strategy<Value = Headers> {
    let name = prop_oneof![Just("content-type".to_owned()), Just("expires".to_owned()), "x-amz-meta-[a-z]{0,60}"];
    prop::collection::btree_map(name, "[ -~]{0,150}|\\PC{0,10}", 0..6)
}

prop_compose! {
    fn files()(
        ino: u64, size: u64, modified: i64, digest: [u8; 16], parts: u16, changed: i64,
        rights: (u32, u32, u32), xattrs: bool, data in data(), headers in headers(),
    ) -> FileEntry {
        let etag = ETag { digest, parts };
        let mut file = FileEntry::new(Ino(ino), size, etag, Timestamp(modified), data, headers);
        (file.mode, file.uid, file.gid) = rights;
        (file.changed, file.xattrs) = (Timestamp(changed), xattrs);
        file.part_rows &= size % 2 == 0;
        file.device = if size % 2 == 0 { rights.1 } else { 0 };
        file.accessed = (size % 3 == 0).then_some(Timestamp(modified));
        file.documents = Document::ALL.iter().copied().filter(|kind| u64::from(kind.number()) < size % 9).collect();
        file.links = if size % 5 == 0 { rights.2 } else { 1 };
        if size % 7 == 0 {
            file.version = Version { sequence: size >> 1, is_null: xattrs };
        }
        file
    }
}

proptest! {
    #[test]
    fn files_round_trip_and_stay_small(file in files()) {
        let mut fitted = file.clone();
        let overflow = fitted.fit_headers();
        let value = fitted.encode().value;
        prop_assert!(value.len() <= ENTRY_BYTES_MAX);
        prop_assert_eq!(fitted.header_rows, !overflow.is_empty());
        let summary = Summary::File { size: file.size, modified: file.modified, etag: file.etag };
        prop_assert_eq!(Summary::decode(&value), Ok(summary));
        let line = Line::File { ino: file.ino, size: file.size, mode: file.mode };
        prop_assert_eq!(Line::decode(&value), Ok(line));
        prop_assert_eq!(Entry::decode(&value), Ok(Entry::File(fitted.clone())));
        fitted.headers.extend(overflow);
        prop_assert_eq!(fitted.headers, file.headers);
    }

    #[test]
    fn the_first_extent_is_where_the_encoder_says(file in files()) {
        let encoded = file.encode();
        if let (Some(at), Data::Extents(extents)) = (encoded.first_extent, &file.data) {
            let segment = extents[0].run.segment.0.to_be_bytes();
            prop_assert_eq!(&encoded.value[at..at + 8], segment.as_slice());
            let offset = extents[0].run.offset.to_be_bytes();
            prop_assert_eq!(&encoded.value[at + 8..at + 16], offset.as_slice());
        }
    }

    #[test]
    fn extents_round_trip(extent in extents()) {
        prop_assert_eq!(decode_extent_row(&extent_row(&extent)), Ok(extent));
    }

    #[test]
    fn back_rows_round_trip(extent in extents(), row in prop::collection::vec(any::<u8>(), 1..60), in_rows: bool) {
        let run = extent.run;
        let row = (!in_rows).then_some(row);
        let decoded = BackRow::decode(&BackRow::encode(&run, row.as_deref())).unwrap();
        prop_assert_eq!(decoded.run(run.segment, run.offset), run);
        prop_assert_eq!(&decoded.row, &row);
        if let Some(row) = row {
            let value = encode_location(&row);
            prop_assert_eq!(decode_location(&value), Ok(row.as_slice()));
        }
    }

    #[test]
    fn parts_round_trip(
        ino: u64, size: u64, modified: i64, digest: [u8; 16],
        extents in prop::collection::vec(extents(), 0..40), headers in headers(),
    ) {
        let (modified, data) = (Timestamp(modified), Data::Extents(extents));
        let part = PartRecord { ino: Ino(ino), size, modified, digest, data, headers };
        prop_assert_eq!(PartRecord::decode(&part.encode().0), Ok(part));
    }

    #[test]
    fn part_sizes_round_trip(sizes in prop::collection::vec(1u64..4, 0..200)) {
        prop_assert_eq!(decode_part_sizes(&encode_part_sizes(&sizes), sizes.len() as u16), Ok(sizes));
    }

    #[test]
    fn part_checksums_round_trip(parts in prop::collection::vec(headers(), 0..9)) {
        prop_assert_eq!(decode_part_checksums(&encode_part_checksums(parts.iter())), Ok(parts));
    }

    #[test]
    fn the_rest_round_trips(ino: u64, time: i64, name: String, headers in headers(), explicit: bool, rights: (u32, u32, u32)) {
        let created = Timestamp(time);
        let settings = Setting::ALL.iter().copied().filter(|setting| ino & 1 << setting.number() != 0).collect();
        let (owner, versioning) = (name.clone(), Versioning::Suspended);
        let bucket = Bucket { root: Ino(ino), created, versioning, object_lock: explicit, settings, owner };
        prop_assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
        let documents = Documents::from([(Document::Acl, name.clone().into())]);
        let record = DirectoryRecord { parent: Ino(ino), sort_name: name };
        prop_assert_eq!(DirectoryRecord::decode(&record.encode()), Ok(record));
        let upload = UploadRecord { ino: Ino(ino), initiated: created, headers, documents };
        prop_assert_eq!(UploadRecord::decode(&upload.encode()), Ok(upload));
        let (mode, uid, gid) = rights;
        let changed = (time % 2 == 0).then_some(created);
        let entry = DirectoryEntry { explicit, mode, uid, gid, changed, xattrs: !explicit, ..DirectoryEntry::implicit(Ino(ino)) };
        prop_assert_eq!(Entry::decode(&entry.encode()), Ok(Entry::Directory(entry)));
        let marker = DeleteMarker { is_null: explicit, modified: created };
        prop_assert_eq!(VersionRow::decode(&marker.encode()), Ok(VersionRow::Marker(marker)));
        for orphan in [Orphan::Parts, Orphan::File] {
            prop_assert_eq!(Orphan::decode(&orphan.encode()), Ok(orphan));
        }
    }

    #[test]
    fn fingerprints_round_trip(salt: [u8; 16], of_secrets in prop::collection::vec(any::<[u8; 16]>(), 0..5)) {
        let fingerprints = Fingerprints { salt, of_secrets };
        prop_assert_eq!(Fingerprints::decode(&fingerprints.encode()), Ok(fingerprints));
    }

    #[test]
    fn copies_round_trip(
        copies in 1..=8u8,
        less in 0..8u8,
        detached in prop::collection::btree_set(any::<u16>(), 0..5),
        racked in prop::collection::btree_map(any::<u16>(), "[a-z0-9-]{1,9}", 0..5),
        (recovered, rebalances) in any::<(u64, bool)>(),
        roles in prop::collection::btree_map(any::<u16>(), any::<bool>(), 0..5),
    ) {
        let detached = detached.into_iter().map(StoreNumber).collect();
        let write = copies.saturating_sub(less).max(1);
        let first = CopiesRecord { copies, write, detached, ..CopiesRecord::default() };
        // What older programs read.
        prop_assert_eq!(first.encode()[0], 1);
        prop_assert_eq!(CopiesRecord::decode(&first.encode()), Ok(first.clone()));
        let rack_of = racked.iter().map(|(store, rack)| (StoreNumber(*store), rack.clone())).collect();
        let suspended = racked.into_keys().map(StoreNumber).collect();
        let record = CopiesRecord { racks: write, rack_of, suspended, recovered, rebalances, ..first.clone() };
        // What programs before roles read.
        prop_assert!(record.encode()[0] <= 2);
        prop_assert_eq!(CopiesRecord::decode(&record.encode()), Ok(record.clone()));
        let role_of: BTreeMap<StoreNumber, Role> = roles
            .into_iter()
            .map(|(store, is_endpoint)| (StoreNumber(store), if is_endpoint { Role::Endpoint } else { Role::Gateway }))
            .collect();
        let pool = |name: &String| Pool {
            name: name.clone(),
            bucket: "bucket".to_owned(),
            prefix: String::new(),
            endpoint: "http://h".to_owned(),
            region: "r".to_owned(),
            folder: name.clone(),
            is_virtual: rebalances,
            copies,
        };
        let pools: BTreeMap<StoreNumber, Pool> =
            record.rack_of.iter().map(|(store, rack)| (*store, pool(rack))).collect();
        prop_assert_eq!(record.count(pools.keys().copied()), pools.len());
        let with_pools = CopiesRecord { pools: pools.clone(), ..record.clone() };
        prop_assert_eq!(with_pools.count(pools.keys().copied()), pools.len() * usize::from(copies));
        for record in [first, record, with_pools] {
            let record = CopiesRecord { role_of: role_of.clone(), ..record };
            prop_assert_eq!(CopiesRecord::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn decoders_are_total(mut bytes in prop::collection::vec(any::<u8>(), 0..200), parts: u16) {
        for layout in 0..4 {
            if let Some(first) = bytes.first_mut() {
                *first = layout;
            }
            for kind in 0..5 {
                if let Some(second) = bytes.get_mut(1) {
                    *second = kind;
                }
                let _ = UpstreamObject::decode(&bytes);
        let _ = UpstreamDirty::decode(&bytes);
        let _ = UpstreamKept::decode(&bytes);
        let _ = UpstreamUpload::decode(&bytes);
        let _ = Entry::decode(&bytes);
                let _ = Summary::decode(&bytes);
                let _ = Line::decode(&bytes);
                let _ = VersionRow::decode(&bytes);
            }
            let _ = Bucket::decode(&bytes);
            let _ = DirectoryRecord::decode(&bytes);
            let _ = UploadRecord::decode(&bytes);
            let _ = PartRecord::decode(&bytes);
            let _ = Orphan::decode(&bytes);
            let _ = Fingerprints::decode(&bytes);
            let _ = CopiesRecord::decode(&bytes);
            let _ = BackRow::decode(&bytes);
            let _ = decode_location(&bytes);
            let _ = decode_extent_row(&bytes);
            let _ = decode_part_sizes(&bytes, parts);
            let _ = decode_part_checksums(&bytes);
        }
    }
}

fn is_refused<T>(encode: impl FnOnce() -> T) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(encode)).is_err()
}

#[test]
fn what_no_decoder_takes_is_not_written() {
    let run = Run { segment: SegmentId(1), offset: 0, len: 4, crc: 0 };
    assert!(is_refused(|| extent_row(&Extent { run, skip: 2, len: 3 })));
    assert!(is_refused(|| extent_row(&Extent { run, skip: u64::MAX, len: 2 })));
    assert!(is_refused(|| BackRow::encode(&run, Some(b""))) && is_refused(|| encode_location(b"")));
    assert!(is_refused(|| encode_part_sizes(&vec![1; usize::from(PART_NUMBER_MAX) + 1])));
    for stores in [vec![], vec![2, 2], vec![2, 1]] {
        let stores = stores.into_iter().map(StoreNumber).collect();
        let record = SegmentRecord { state: SegmentState::Open, kind: Kind::Pack, writer: 0, stores };
        assert!(is_refused(|| record.encode()));
    }
    let (data, etag, time) = (Data::Inline(Vec::new()), ETag::default(), Timestamp(0));
    let mut file = FileEntry::new(Ino(1), 0, etag, time, data, Headers::new());
    file.part_rows = true;
    assert!(is_refused(|| file.encode()));
}

#[test]
fn an_inline_part_is_neither_written_nor_read() {
    let (data, headers) = (Data::Extents(Vec::new()), Headers::new());
    let mut part = PartRecord { ino: Ino(1), size: 0, modified: Timestamp(0), digest: [0; 16], data, headers };
    let mut value = part.encode().0;
    let tag = value.len() - 3;
    assert_eq!(value[tag..], [1, 0, 0]);
    value[tag] = 0;
    assert!(PartRecord::decode(&value).is_err());
    part.data = Data::Inline(Vec::new());
    assert!(is_refused(|| part.encode()));
}
