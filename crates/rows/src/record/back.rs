//! Back rows: from a run to the row that refers to it; and location rows: from a file with extent rows to its own row.
//!
//! Why:        reclaim reads from a segment which rows refer to its runs; a segment without back rows is dead.
//! Layout:     back row: 1, run length varint, crc 4 BE, then the key of the referring row to the end; nothing: extent
//!             rows location: 1, then the key of the row that holds the file
//! Invariants: B1 a back row changes in the same batch as the referring row, or as that row's key.

use margay_segment::{Run, SegmentId};

use super::wire::{Damaged, Reader, Writer};

const LAYOUT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackRow {
    pub run_len: u64,
    pub run_crc: u32,
    /// The key of the entry, inode record, version or part that refers to the run; `None` if extent rows of the owner
    /// do.
    pub row: Option<Vec<u8>>,
}

impl BackRow {
    /// The value of a back row.
    pub fn encode(run: &Run, row: Option<&[u8]>) -> Vec<u8> {
        assert!(row.is_none_or(|row| !row.is_empty()), "a row that refers to a run has a key");
        let row = row.unwrap_or_default();
        let mut writer = Writer::new(1 + 10 + 4 + row.len());
        writer.byte(LAYOUT);
        writer.varint(run.len);
        writer.raw(&run.crc.to_be_bytes());
        writer.raw(row);
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<BackRow, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let (run_len, run_crc) = (reader.varint()?, u32::from_be_bytes(reader.array()?));
        let row = reader.rest();
        Ok(BackRow { run_len, run_crc, row: (!row.is_empty()).then(|| row.to_vec()) })
    }

    /// The run of a back row.
    pub fn run(&self, segment: SegmentId, offset: u64) -> Run {
        Run { segment, offset, len: self.run_len, crc: self.run_crc }
    }
}

/// The value of a location row.
pub fn encode_location(row: &[u8]) -> Vec<u8> {
    assert!(!row.is_empty(), "a row that holds a file has a key");
    [&[LAYOUT], row].concat()
}

/// Returns the key of the row that holds the file.
pub fn decode_location(value: &[u8]) -> Result<&[u8], Damaged> {
    match value {
        [LAYOUT, row @ ..] if !row.is_empty() => Ok(row),
        _ => Err(Damaged("a location that is no key")),
    }
}
