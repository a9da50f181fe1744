//! The bytes of segment files: encoders and decoders, version 1.
//!
//! Why:        all untrusted bytes are read by these bounds-checked functions.
//! Layout:     all numbers little-endian; byte diagrams at each function and in docs/format/segment.md.
//! Invariants: F1 a decoder never panics.  F2 a header or footer contains its own identity (segment, offset), so bytes
//!                at a wrong location are refused.  F3 a newer version is refused by its number.
//! Not here:   log segments; their records belong to `meta`.

use crate::id::table_bytes;
use crate::{RUN_BYTES_MAX, Run, SegmentId};

/// The version of pack and raw files that this build writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Maximum length of an owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 1024;
/// Bytes of the header of a pack file.
pub const PACK_HEADER_BYTES: usize = 64;
/// Bytes of the fixed part of a run header; the owner follows.
pub const RUN_HEADER_BYTES: usize = 40;
/// Bytes of the mark that ends a complete run in a pack.
pub const RUN_END_BYTES: usize = 12;
/// Bytes of the fixed part at the end of a raw file; the owner precedes it.
pub const RAW_FOOTER_BYTES: usize = 64;
/// Alignment of run headers and payloads in a pack.
pub const ALIGN_BYTES: u64 = 8;

const PACK_MAGIC: [u8; 8] = *b"mgypack\n";
const RAW_MAGIC: [u8; 8] = *b"mgyraw\r\n";
const RUN_MAGIC: [u8; 4] = *b"mRun";
const RUN_END_MAGIC: [u8; 4] = *b"mEnd";

/// Reasons why bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("{0}")]
    Damaged(&'static str),
    #[error("format version {0} is newer than this build reads (up to {VERSION})")]
    Newer(u32),
}

/// Random number of a pack file, part of the checksums of its run headers, so that no payload can look like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub u64);

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn align_up(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN_BYTES)
}

/// ```text
///  0  8 magic "mgypack\n"      8  4 version      12  4 zero
/// 16  8 segment id            24  8 salt         32 28 zero      60  4 CRC-32C of bytes 0..60
/// ```
pub fn encode_pack_header(segment: SegmentId, salt: Salt) -> [u8; PACK_HEADER_BYTES] {
    let mut bytes = [0; PACK_HEADER_BYTES];
    bytes[0..8].copy_from_slice(&PACK_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&segment.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&salt.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub fn decode_pack_header(bytes: &[u8], segment: SegmentId) -> Result<Salt, FormatError> {
    const SHORT: FormatError = FormatError::Damaged("the pack header is cut short");
    let bytes = bytes.get(..PACK_HEADER_BYTES).ok_or(SHORT)?;
    if bytes[..8] != PACK_MAGIC {
        return Err(FormatError::Damaged("the pack header has the wrong magic"));
    }
    // A newer version may change the rest of the layout, but not the offset of the version.
    let version = u32_at(bytes, 8).ok_or(SHORT)?;
    if version > VERSION {
        return Err(FormatError::Newer(version));
    }
    if u32_at(bytes, 60) != Some(crc32c::crc32c(&bytes[..60])) || version == 0 {
        return Err(FormatError::Damaged("the pack header has the wrong checksum"));
    }
    if u64_at(bytes, 16) != Some(segment.0) {
        return Err(FormatError::Damaged("the pack header belongs to another segment"));
    }
    Ok(Salt(u64_at(bytes, 24).ok_or(SHORT)?))
}

/// Offsets of the parts of a run in a pack file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlace {
    pub header: u64,
    pub payload: u64,
    pub len: u64,
    /// End of the end mark; the next run header begins here.
    pub next: u64,
}

impl RunPlace {
    /// Offsets of a run whose header begins at `header`; `None` if the run would exceed any file.
    pub fn at(header: u64, owner_bytes: usize, len: u64) -> Option<RunPlace> {
        if !header.is_multiple_of(ALIGN_BYTES) || owner_bytes > OWNER_BYTES_MAX || len > RUN_BYTES_MAX {
            return None;
        }
        let payload = align_up(header.checked_add((RUN_HEADER_BYTES + owner_bytes) as u64)?);
        let end = payload.checked_add(len + table_bytes(len) + RUN_END_BYTES as u64)?;
        let next = end.checked_next_multiple_of(ALIGN_BYTES)?;
        (next <= i64::MAX as u64).then_some(RunPlace { header, payload, len, next })
    }

    /// Bytes that such a run takes in a pack, its frame included.
    pub fn bytes_in_pack(owner_bytes: usize, len: u64) -> Option<u64> {
        RunPlace::at(0, owner_bytes, len).map(|place| place.next)
    }

    /// Offset of the end mark.
    pub fn end_mark(&self) -> u64 {
        self.payload + self.len + table_bytes(self.len)
    }
}

/// ```text
///  0  4 magic "mRun"     4  2 owner bytes n     6  2 zero     8  8 payload bytes
/// 16  8 segment id      24  8 offset of this header in the file
/// 32  4 CRC-32C of (salt, bytes 0..32, owner)  36  4 zero     40  n owner, then zeros up to a multiple of 8
/// ```
pub fn encode_run_header(segment: SegmentId, salt: Salt, place: &RunPlace, owner: &[u8]) -> Vec<u8> {
    assert!(owner.len() <= OWNER_BYTES_MAX, "checked when the run was begun");
    let mut bytes = vec![0; (place.payload - place.header) as usize];
    bytes[0..4].copy_from_slice(&RUN_MAGIC);
    bytes[4..6].copy_from_slice(&(owner.len() as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&place.len.to_le_bytes());
    bytes[16..24].copy_from_slice(&segment.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&place.header.to_le_bytes());
    let crc = run_header_crc(salt, &bytes[..32], owner);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    bytes[RUN_HEADER_BYTES..RUN_HEADER_BYTES + owner.len()].copy_from_slice(owner);
    bytes
}

pub(crate) fn run_header_crc(salt: Salt, fixed: &[u8], owner: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&salt.0.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, fixed), owner)
}

/// Decodes the header at offset `header`; `bytes` begin there and include the owner unless the file ends earlier.
pub fn decode_run_header(
    bytes: &[u8],
    segment: SegmentId,
    salt: Salt,
    header: u64,
) -> Result<(RunPlace, &[u8]), FormatError> {
    const SHORT: FormatError = FormatError::Damaged("a run header is cut short");
    let fixed = bytes.get(..RUN_HEADER_BYTES).ok_or(SHORT)?;
    if fixed[..4] != RUN_MAGIC {
        return Err(FormatError::Damaged("a run header has the wrong magic"));
    }
    let owner_bytes = usize::from(u16_at(fixed, 4).ok_or(SHORT)?);
    let owner = bytes.get(RUN_HEADER_BYTES..RUN_HEADER_BYTES + owner_bytes).ok_or(SHORT)?;
    if u32_at(fixed, 32) != Some(run_header_crc(salt, &fixed[..32], owner)) {
        return Err(FormatError::Damaged("a run header has the wrong checksum"));
    }
    if u64_at(fixed, 16) != Some(segment.0) || u64_at(fixed, 24) != Some(header) {
        return Err(FormatError::Damaged("a run header belongs to another place"));
    }
    let len = u64_at(fixed, 8).ok_or(SHORT)?;
    let place = RunPlace::at(header, owner_bytes, len);
    Ok((place.ok_or(FormatError::Damaged("a run header has an impossible length"))?, owner))
}

/// ```text
/// 0  4 magic "mEnd"     4  4 the run's checksum     8  4 CRC-32C of (salt, header offset, bytes 0..8)
/// ```
pub fn encode_run_end(salt: Salt, place: &RunPlace, run_crc: u32) -> [u8; RUN_END_BYTES] {
    let mut bytes = [0; RUN_END_BYTES];
    bytes[0..4].copy_from_slice(&RUN_END_MAGIC);
    bytes[4..8].copy_from_slice(&run_crc.to_le_bytes());
    let crc = run_end_crc(salt, place, &bytes[..8]);
    bytes[8..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn run_end_crc(salt: Salt, place: &RunPlace, fixed: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&salt.0.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &place.header.to_le_bytes()), fixed)
}

/// The run's checksum, if the run is complete.
pub fn decode_run_end(bytes: &[u8], salt: Salt, place: &RunPlace) -> Option<u32> {
    let bytes = bytes.get(..RUN_END_BYTES)?;
    let intact = bytes[..4] == RUN_END_MAGIC && u32_at(bytes, 8)? == run_end_crc(salt, place, &bytes[..8]);
    if intact { u32_at(bytes, 4) } else { None }
}

/// The end of a raw file: the owner, then
/// ```text
///  0  8 magic "mgyraw\r\n"     8  4 version         12  4 owner bytes n
/// 16  8 segment id            24  8 payload bytes   32  4 the run's checksum
/// 36 24 zero                  60  4 CRC-32C of (owner, bytes 0..60)
/// ```
pub fn encode_raw_footer(run: &Run, owner: &[u8]) -> Vec<u8> {
    assert!(owner.len() <= OWNER_BYTES_MAX, "checked when the run was begun");
    let mut fixed = [0; RAW_FOOTER_BYTES];
    fixed[0..8].copy_from_slice(&RAW_MAGIC);
    fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
    fixed[12..16].copy_from_slice(&(owner.len() as u32).to_le_bytes());
    fixed[16..24].copy_from_slice(&run.segment.0.to_le_bytes());
    fixed[24..32].copy_from_slice(&run.len.to_le_bytes());
    fixed[32..36].copy_from_slice(&run.crc.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(owner), &fixed[..60]);
    fixed[60..].copy_from_slice(&crc.to_le_bytes());
    [owner, &fixed].concat()
}

/// Decodes the end of a raw file of `file_len` bytes; `tail` is its last bytes, including the owner.
pub fn decode_raw_footer(tail: &[u8], segment: SegmentId, file_len: u64) -> Result<(Run, &[u8]), FormatError> {
    const SHORT: FormatError = FormatError::Damaged("the raw footer is cut short");
    let split = tail.len().checked_sub(RAW_FOOTER_BYTES).ok_or(SHORT)?;
    let (before, fixed) = tail.split_at(split);
    if fixed[..8] != RAW_MAGIC {
        return Err(FormatError::Damaged("the raw footer has the wrong magic (the file was not finished)"));
    }
    let version = u32_at(fixed, 8).ok_or(SHORT)?;
    if version > VERSION {
        return Err(FormatError::Newer(version));
    }
    let owner_bytes = u32_at(fixed, 12).ok_or(SHORT)? as usize;
    let owner = before.len().checked_sub(owner_bytes).and_then(|start| before.get(start..)).ok_or(SHORT)?;
    if u32_at(fixed, 60) != Some(crc32c::crc32c_append(crc32c::crc32c(owner), &fixed[..60])) || version == 0 {
        return Err(FormatError::Damaged("the raw footer has the wrong checksum"));
    }
    if u64_at(fixed, 16) != Some(segment.0) {
        return Err(FormatError::Damaged("the raw footer belongs to another segment"));
    }
    let len = u64_at(fixed, 24).ok_or(SHORT)?;
    let crc = u32_at(fixed, 32).ok_or(SHORT)?;
    if len > RUN_BYTES_MAX || len + table_bytes(len) + (owner_bytes + RAW_FOOTER_BYTES) as u64 != file_len {
        return Err(FormatError::Damaged("the raw footer does not fit the length of the file"));
    }
    Ok((Run { segment, offset: 0, len, crc }, owner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: SegmentId = SegmentId(7);
    const SALT: Salt = Salt(0x1234_5678_9abc_def0);

    #[test]
    fn headers_survive_a_round_trip() {
        assert_eq!(decode_pack_header(&encode_pack_header(ID, SALT), ID), Ok(SALT));
        assert!(decode_pack_header(&encode_pack_header(ID, SALT), SegmentId(8)).is_err());
        let place = RunPlace::at(64, 5, 200_000).unwrap();
        assert_eq!((place.payload, place.end_mark(), place.next), (112, 200_112 + 16, 200_144));
        let header = encode_run_header(ID, SALT, &place, b"owner");
        assert_eq!(header.len() as u64, place.payload - place.header);
        assert_eq!(decode_run_header(&header, ID, SALT, 64), Ok((place, &b"owner"[..])));
        assert!(decode_run_header(&header, ID, SALT, 72).is_err(), "another place");
        assert!(decode_run_header(&header, ID, Salt(1), 64).is_err(), "another salt");
        assert_eq!(decode_run_end(&encode_run_end(SALT, &place, 99), SALT, &place), Some(99));
        assert_eq!(decode_run_end(&[0; 12], SALT, &place), None);
        let run = Run { segment: ID, offset: 0, len: 70_000, crc: 5 };
        let footer = encode_raw_footer(&run, b"me");
        let file_len = 70_000 + 8 + footer.len() as u64;
        assert_eq!(decode_raw_footer(&footer, ID, file_len), Ok((run, &b"me"[..])));
        assert!(decode_raw_footer(&footer, ID, file_len + 1).is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut header = encode_pack_header(ID, SALT);
        header[8] = 2;
        assert_eq!(decode_pack_header(&header, ID), Err(FormatError::Newer(2)));
        let mut footer = encode_raw_footer(&Run { segment: ID, offset: 0, len: 0, crc: 0 }, b"");
        footer[8] = 3;
        assert_eq!(decode_raw_footer(&footer, ID, 64), Err(FormatError::Newer(3)));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<u64>()) {
            let _ = decode_pack_header(&bytes, ID);
            let _ = decode_run_header(&bytes, ID, SALT, at);
            let _ = decode_raw_footer(&bytes, ID, at);
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0..RUN_HEADER_BYTES + 5, flip in 1..=255u8) {
            let place = RunPlace::at(64, 5, 100).unwrap();
            let mut header = encode_run_header(ID, SALT, &place, b"owner");
            header[at] ^= flip;
            // The four bytes after the checksum are padding, which the checksum does not cover.
            prop_assert!((36..40).contains(&at) || decode_run_header(&header, ID, SALT, 64).is_err());
        }
    }
}
