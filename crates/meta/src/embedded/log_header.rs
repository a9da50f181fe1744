//! The header of a log file.
//!
//! Why:        it distinguishes a file in use from a prepared one, and records what was durable when it was begun.
//! Layout:     docs/format/log.md; format 1 has 32 bytes, format 2 has 64.
//! Invariants: H1 a header lies in one sector, so one that is neither intact nor zero was damaged, not torn.
//! Not here:   the records after it (record), writing it (log).

use margay_segment::SegmentId;

use crate::{Cursor, EngineError};

/// Length of the header that is written, in bytes.
pub(super) const FILE_HEADER_BYTES: u64 = 64;
const FILE_HEADER_BYTES_1: u64 = 32;
const FILE_MAGIC: [u8; 8] = *b"margylog";
const FILE_VERSION: u32 = 2;

/// The seed of the records' checksums: a record of another file does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogId {
    pub(super) segment: u64,
    /// Random, so that no payload can pass for a record; 0 in format 1, which has none.
    pub(super) nonce: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) log: LogId,
    /// Number of the first record: the commits before it are durable elsewhere.
    pub(super) first: Cursor,
    /// The tree held the commits up to this one, durably.
    pub(super) folded: Cursor,
    /// The nonce of the previous file that has records; 0 if there is none, or it is unknown.
    pub(super) before: u64,
    /// Where the records begin.
    pub(super) len: u64,
}

/// Magic, version, crc, segment id, first sequence number, folded sequence number, nonce, nonce of the previous file.
pub(super) fn encode_file_header(
    log: LogId,
    first: Cursor,
    folded: Cursor,
    before: u64,
) -> [u8; FILE_HEADER_BYTES as usize] {
    assert!(log.nonce != 0, "a file of this format has a nonce");
    let mut header = [0; FILE_HEADER_BYTES as usize];
    header[..8].copy_from_slice(&FILE_MAGIC);
    header[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&log.segment.to_le_bytes());
    header[24..32].copy_from_slice(&first.0.to_le_bytes());
    header[32..40].copy_from_slice(&folded.0.to_le_bytes());
    header[40..48].copy_from_slice(&log.nonce.to_le_bytes());
    header[48..56].copy_from_slice(&before.to_le_bytes());
    let crc = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Makes the checksum of a header right.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn seal_file_header(file: &mut [u8]) {
    let len = if file.get(8) == Some(&2) { FILE_HEADER_BYTES } else { FILE_HEADER_BYTES_1 };
    if let Some(header) = file.get_mut(..len as usize) {
        header[12..16].fill(0);
        let crc = crc32c::crc32c(header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Distinguishes logs of different volumes with the same id by their first bytes: nonce and first commit. `None` if the
/// file was never begun, or is damaged.
pub fn log_origin(header: &[u8], segment: SegmentId) -> Option<(u64, Cursor)> {
    let header = decode_file_header(header, segment.0).ok()??;
    Some((header.log.nonce, header.first))
}

/// What the first bytes of a log file say; `Ok(None)` when the file was never begun.
pub(super) fn decode_file_header(header: &[u8], segment: u64) -> Result<Option<FileHeader>, EngineError> {
    let damaged = || {
        EngineError::Corrupt(format!(
            "the header of segments/{segment:016x}.log is damaged: restore this file from a backup"
        ))
    };
    let header: &[u8; FILE_HEADER_BYTES as usize] = header.try_into().map_err(|_| damaged())?;
    if header[..FILE_HEADER_BYTES_1 as usize].iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let sum_is_right = |len: u64| {
        let mut unsigned = header[..len as usize].to_vec();
        unsigned[12..16].fill(0);
        crc32c::crc32c(&unsigned) == half(12)
    };
    let (old, new) = (sum_is_right(FILE_HEADER_BYTES_1), sum_is_right(FILE_HEADER_BYTES));
    if header[..8] != FILE_MAGIC || !(old || new) || word(16) != segment {
        return Err(damaged());
    }
    match half(8) {
        1 if old => Ok(Some(FileHeader {
            log: LogId { segment, nonce: 0 },
            first: Cursor(word(24)),
            folded: Cursor(0),
            before: 0,
            len: FILE_HEADER_BYTES_1,
        })),
        FILE_VERSION if new && word(40) != 0 => Ok(Some(FileHeader {
            log: LogId { segment, nonce: word(40) },
            first: Cursor(word(24)),
            folded: Cursor(word(32)),
            before: word(48),
            len: FILE_HEADER_BYTES,
        })),
        1 | FILE_VERSION => Err(damaged()),
        found => Err(EngineError::Corrupt(format!(
            "log {segment:016x} has format {found}, this program reads {FILE_VERSION}: use a newer margay"
        ))),
    }
}
