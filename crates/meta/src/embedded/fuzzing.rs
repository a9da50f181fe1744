//! What the fuzz targets call: a log record and a whole log as arbitrary bytes.
//!
//! Why:        checksums would stop a fuzzer at the door, so they are made right before the bytes are decoded.
//! Invariants: a decoder gives a value or nothing; what replay makes of a log is what its writes say, one by one.
//! Not here:   the targets themselves and their seeds (fuzz/).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use margay_env::sim::{SimClock, SimDisk, SimRandom};
use margay_env::{Disk, Env, File, OpenMode, Timestamp};
use margay_segment::SegmentId;

use super::layers::Lower;
use super::log_header::{FILE_HEADER_BYTES, LogId, decode_file_header, encode_file_header, seal_file_header};
use super::overlay::{Found, Overlay};
use super::record::{self, ALIGN_BYTES, HEADER_BYTES};
use super::replay::Replay;
use super::tree::{Folded, Tree};
use crate::{Cursor, RowVersion, Write};

const SEGMENT: LogId = LogId { segment: 7, nonce: 0 };
/// Where the record is said to stand.
const OFFSET: u64 = 64;
/// Rows of the tree below the log: one for each of these keys, 8 bytes long.
const TREE_KEYS: std::ops::Range<u8> = b'a'..b'j';
/// The newest commit of that tree.
const FOLDED: Folded = Folded { seq: Cursor(4), first_log: 1 };

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Makes the checksums of the record right that begins `bytes`; nothing when it is not whole.
fn seal(bytes: &mut [u8], log: LogId, offset: u64) -> Option<()> {
    let body_end = HEADER_BYTES.checked_add(number(bytes, 4)?)?;
    let payload = bytes.get(body_end..body_end.checked_add(number(bytes, 8)?)?)?;
    let payload_crc = crc32c::crc32c(payload);
    bytes.get_mut(12..16)?.copy_from_slice(&payload_crc.to_le_bytes());
    let crc = crc32c::crc32c_append(record::seed(log, offset), bytes.get(4..body_end)?);
    bytes.get_mut(..4)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

/// A record: decoded as it is, and once more with right checksums; then it must encode to what was decoded.
pub fn log_record(bytes: &[u8]) {
    let _ = record::decode(bytes, SEGMENT, OFFSET);
    let mut sealed = bytes.to_vec();
    let _ = seal(&mut sealed, SEGMENT, OFFSET);
    let Some(record) = record::decode(&sealed, SEGMENT, OFFSET) else { return };
    assert!(record.len.is_multiple_of(ALIGN_BYTES) && record.len < sealed.len() + ALIGN_BYTES);
    assert!(record.writes.is_empty() || record::needed(&sealed) == Some(record.len));
    let payload = (record.payload_offset - OFFSET) as usize;
    let payload = &sealed[payload..payload + record.payload_len as usize];
    let mut again = Vec::new();
    if record.is_end {
        return;
    }
    record::encode(&mut again, SEGMENT, OFFSET, record.seq, &record.writes, payload);
    record::claim(&mut again, SEGMENT, OFFSET, record.durable);
    assert_eq!(record::decode(&again, SEGMENT, OFFSET).as_ref(), Some(&record));
    assert_eq!(record::decode(&again, SEGMENT, OFFSET + 8), None, "a record of another place does not decode");
}

/// What a log file is called in its records and where they begin, if its header is right.
fn begin_of(file: &[u8], id: u64) -> Option<(LogId, usize)> {
    let mut header = [0; FILE_HEADER_BYTES as usize];
    let len = header.len().min(file.len());
    header[..len].copy_from_slice(&file[..len]);
    let header = decode_file_header(&header, id).ok()??;
    Some((header.log, header.len as usize))
}

/// Makes the checksums of a log file right: its header's, and those of its records as far as they follow each other.
fn seal_file(file: &mut [u8], id: u64) {
    if let Some(header) = file.get_mut(16..24) {
        header.copy_from_slice(&id.to_le_bytes());
    }
    seal_file_header(file);
    let Some((log, mut at)) = begin_of(file, id) else { return };
    while let Some(rest) = file.get_mut(at..)
        && let Some(len) = record::needed(rest)
        && seal(rest, log, at as u64).is_some()
    {
        at += len;
    }
}

fn sim_env() -> Env {
    Env {
        disk: Arc::new(SimDisk::new(1)),
        clock: Arc::new(SimClock::new(Timestamp(0))),
        random: Arc::new(SimRandom::new(1)),
    }
}

/// A tree with a few rows, so that deletions have something to mask.
static LOWER: LazyLock<Arc<Lower>> = LazyLock::new(|| {
    let tree = Tree::open(&sim_env(), Path::new("/tree"), 1 << 20, false).expect("a new tree opens");
    let mut rows = Overlay::default();
    for key in TREE_KEYS {
        rows.put(&[key], &u64::from(key).to_le_bytes(), RowVersion::from_bits(1), Cursor(1));
    }
    tree.fold(&rows, FOLDED, &|_| {}).expect("a small fold succeeds");
    Arc::new(Lower {
        sealed: Vec::new(),
        tree: Arc::new(tree.snapshot().expect("a new tree has a snapshot")),
        epoch: 0,
    })
});

fn file_of(disk: &SimDisk, bytes: &[u8], id: u64) -> Arc<dyn File> {
    let path = format!("/{id}");
    let file = disk.open(Path::new(&path), OpenMode::CreateNew).expect("the disk is empty");
    file.write_all_at(bytes, 0).expect("the disk has room");
    file
}

/// A log of two files over a small tree: the first two bytes say how long the first file is. Replayed with right
/// checksums; what comes out must be what the tree's rows become by the records' writes, one by one.
pub fn log_replay(bytes: &[u8]) {
    let Some((split, rest)) = bytes.split_first_chunk::<2>() else { return };
    let mut rest = rest.to_vec();
    let (first, second) = rest.split_at_mut(usize::from(u16::from_le_bytes(*split)).min(bytes.len() - 2));
    let (disk, lower) = (SimDisk::new(1), &*LOWER);
    let mut replay =
        Replay { overlay: Overlay::default(), last: FOLDED.seq, before: 0, ended: Vec::new(), unused: Vec::new() };
    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> =
        TREE_KEYS.map(|key| (vec![key], u64::from(key).to_le_bytes().to_vec())).collect();
    for (file, id) in [(first, 1), (second, 2)] {
        seal_file(file, id);
        let before = replay.last;
        if replay.file(SegmentId(id), file_of(&disk, file, id).as_ref(), None, FOLDED, lower).is_err() {
            return;
        }
        apply(&mut rows, file, id, before, replay.last);
    }
    assert!(replay.last >= FOLDED.seq && replay.ended.len() + replay.unused.len() == 2);
    let touched: Vec<Vec<u8>> = replay.overlay.live_rows().map(|(key, _)| key.to_vec()).collect();
    for key in touched.iter().map(Vec::as_slice).chain(rows.keys().map(Vec::as_slice)) {
        let seen = match replay.overlay.find(key) {
            Found::Live(live) => Some(live.value.to_vec()),
            Found::Dead => None,
            Found::Unknown => lower.tree.get(key).expect("memory is read").map(|row| row.value().to_vec()),
        };
        assert_eq!(seen.as_ref(), rows.get(key), "row {key:?}");
    }
    for key in TREE_KEYS {
        let masked = matches!(replay.overlay.find(&[key]), Found::Dead);
        assert!(!masked || !rows.contains_key([key].as_slice()), "row {key} is masked and lives");
    }
}

/// Applies the records of a file in the plainest way: those after `before`, up to `last`.
fn apply(rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, file: &[u8], id: u64, before: Cursor, last: Cursor) {
    let Some((log, mut at)) = begin_of(file, id) else { return };
    let mut seen = before;
    while seen < last {
        let record = record::decode(file.get(at..).unwrap_or_default(), log, at as u64);
        let record = record.expect("replay has read this record too");
        at += record.len;
        if record.seq <= before {
            continue;
        }
        seen = record.seq;
        for write in record.writes {
            let word = |rows: &BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8]| {
                rows.get(key).map_or([0; 8], |value| value.as_slice().try_into().expect("replay has refused this"))
            };
            match write {
                Write::Put { key, value } => drop(rows.insert(key, value)),
                Write::Delete { key } => drop(rows.remove(&key)),
                Write::Set { .. } => unreachable!("a record says put"),
                Write::Add { key, delta } => {
                    let sum = i64::from_le_bytes(word(rows, &key)) + delta;
                    rows.insert(key, sum.to_le_bytes().to_vec());
                }
                Write::Max { key, at_least } => {
                    let max = u64::from_le_bytes(word(rows, &key)).max(at_least);
                    rows.insert(key, max.to_le_bytes().to_vec());
                }
            }
        }
    }
}

fn sample() -> Vec<Vec<Write>> {
    let put = |key: &[u8], value: &[u8]| Write::Put { key: key.to_vec(), value: value.to_vec() };
    let delete = |key: u8| Write::Delete { key: vec![key] };
    vec![
        vec![put(b"a", b"one"), delete(b'b'), put(b"k/long name", &[9; 40])],
        vec![Write::Add { key: b"c".to_vec(), delta: -5 }, Write::Max { key: b"d".to_vec(), at_least: 1 << 40 }],
        vec![delete(b'c'), delete(b'a'), delete(b'd')],
        vec![put(b"b", b""), Write::Add { key: b"n".to_vec(), delta: 1 }],
    ]
}

/// Real encodings to begin with: target, name, bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut one = Vec::new();
    record::encode(&mut one, SEGMENT, OFFSET, Cursor(5), &sample()[0], b"payload");
    let mut log = Vec::new();
    for (id, batches) in sample().chunks(2).enumerate() {
        let (id, mut seq) = (id as u64 + 1, FOLDED.seq.0 + 2 * id as u64);
        let begin = log.len();
        let name = LogId { segment: id, nonce: id };
        log.extend_from_slice(&encode_file_header(name, Cursor(seq + 1), FOLDED.seq, 0));
        for writes in batches {
            seq += 1;
            let at = (log.len() - begin) as u64;
            record::encode(&mut log, name, at, Cursor(seq), writes, if seq == 6 { b"bytes" } else { b"" });
        }
        if id == 1 {
            log.splice(..0, (log.len() as u16).to_le_bytes());
        }
    }
    vec![("log_record", "real", one), ("log_replay", "real", log)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineError;

    #[test]
    fn a_record_that_writes_a_key_twice_is_refused() {
        let key = || b"c".to_vec();
        let writes = [Write::Add { key: key(), delta: 1 }, Write::Max { key: key(), at_least: 9 }];
        let name = LogId { segment: 1, nonce: 1 };
        let mut log = encode_file_header(name, Cursor(5), FOLDED.seq, 0).to_vec();
        record::encode(&mut log, name, FILE_HEADER_BYTES, Cursor(5), &writes, b"");
        let mut replay =
            Replay { overlay: Overlay::default(), last: FOLDED.seq, before: 0, ended: Vec::new(), unused: Vec::new() };
        let file = file_of(&SimDisk::new(1), &log, 1);
        let outcome = replay.file(SegmentId(1), file.as_ref(), None, FOLDED, &LOWER);
        assert!(matches!(outcome, Err(EngineError::Corrupt(_))), "{outcome:?}");
    }

    #[test]
    fn the_seeds_are_understood() {
        for (target, _, bytes) in seeds() {
            match target {
                "log_record" => {
                    assert!(record::decode(&bytes, SEGMENT, OFFSET).is_some());
                    log_record(&bytes);
                }
                _ => log_replay(&bytes),
            }
        }
    }
}
