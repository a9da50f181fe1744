//! Keys of rows about segments: runs that several rows name, and what a segment still holds.

use margay_segment::{SegmentId, StoreNumber};

use super::{LIVE, Range, SEGMENT, SHARE, parse_ino, range, table};
use crate::ino::Ino;
use crate::record::Damaged;

/// Where the segment id begins in a live counter's key.
pub const LIVE_SEGMENT_AT: usize = 1;

pub fn share(segment: SegmentId, offset: u64, owner: Ino) -> Vec<u8> {
    table(SHARE, &[&segment.0.to_be_bytes(), &offset.to_be_bytes(), &owner.0.to_be_bytes()])
}

pub fn is_share(key: &[u8]) -> bool {
    key.first() == Some(&SHARE)
}

/// All owners of a shared run.
pub fn shares(segment: SegmentId, offset: u64) -> Range {
    range(table(SHARE, &[&segment.0.to_be_bytes(), &offset.to_be_bytes()]))
}

pub fn all_shares() -> Range {
    range(vec![SHARE])
}

/// Segment, offset of the run, owner.
pub fn parse_share(key: &[u8]) -> Result<(SegmentId, u64, Ino), Damaged> {
    let (segment, rest) = parse_ino(key)?;
    let (offset, owner) = rest.split_first_chunk::<8>().ok_or(Damaged("a share's key is too short"))?;
    let owner = owner.try_into().map_err(|_| Damaged("a share's key has a wrong length"))?;
    Ok((SegmentId(segment.0), u64::from_be_bytes(*offset), Ino(u64::from_be_bytes(owner))))
}

/// The two counters of a segment: live bytes are what was gained less what was lost. They are apart because one
/// batch may gain in a segment whose id it does not know yet and lose in the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    Gained,
    Lost,
}

pub fn live(segment: SegmentId, side: Live) -> Vec<u8> {
    table(LIVE, &[&segment.0.to_be_bytes(), if side == Live::Gained { b"+" } else { b"-" }])
}

pub fn all_live() -> Range {
    range(vec![LIVE])
}

/// The segment, and whether the row counts what was gained.
pub fn parse_live(key: &[u8]) -> Result<(SegmentId, Live), Damaged> {
    let (segment, rest) = parse_ino(key)?;
    match rest {
        b"+" => Ok((SegmentId(segment.0), Live::Gained)),
        b"-" => Ok((SegmentId(segment.0), Live::Lost)),
        _ => Err(Damaged("a live counter's key has a wrong side")),
    }
}

/// The segment whose counter of gained bytes this is, if it is one; 0 stands for the log that a payload goes to.
pub fn gained_segment(key: &[u8]) -> Option<SegmentId> {
    let rest = key.strip_prefix(&[LIVE])?;
    let (segment, side) = rest.split_first_chunk::<8>()?;
    (side == b"+").then(|| SegmentId(u64::from_be_bytes(*segment)))
}

/// Rows of segments, then those of stores.
const OF_SEGMENT: &[u8] = b"s";
const OF_STORE: &[u8] = b"t";

/// What is known of a segment.
pub fn segment(id: SegmentId) -> Vec<u8> {
    table(SEGMENT, &[OF_SEGMENT, &id.0.to_be_bytes()])
}

/// The segments that a store has made.
pub fn segments_of(store: StoreNumber) -> Range {
    let (first, end) = store.ids();
    (segment(first), segment(end))
}

pub fn all_segments() -> Range {
    range(table(SEGMENT, &[OF_SEGMENT]))
}

pub fn parse_segment(key: &[u8]) -> Result<SegmentId, Damaged> {
    let id = key.get(2..).unwrap_or_default();
    let id = id.try_into().map_err(|_| Damaged("a segment's key has a wrong length"))?;
    Ok(SegmentId(u64::from_be_bytes(id)))
}

/// Who a store is.
pub fn store(number: StoreNumber) -> Vec<u8> {
    table(SEGMENT, &[OF_STORE, &number.0.to_be_bytes()])
}

pub fn all_stores() -> Range {
    range(table(SEGMENT, &[OF_STORE]))
}

pub fn parse_store(key: &[u8]) -> Result<StoreNumber, Damaged> {
    let number = key.get(2..).unwrap_or_default();
    let number = number.try_into().map_err(|_| Damaged("a store's key has a wrong length"))?;
    Ok(StoreNumber(u16::from_be_bytes(number)))
}

/// Whether the row says where segments are: it is true of these stores only, so a backup that is put back has none.
pub fn is_segment(key: &[u8]) -> bool {
    key.first() == Some(&SEGMENT)
}
