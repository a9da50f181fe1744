//! Keys of rows about segments: owners of runs, and counters of live bytes.

use margay_segment::{SegmentId, StoreNumber};

use super::{BACK, LIVE, LOCATION, Range, SEGMENT, SHARE, parse_ino, range, table};
use crate::ino::Ino;
use crate::record::Damaged;

/// Position of the segment id in a live counter's key.
pub const LIVE_SEGMENT_AT: usize = 1;

/// Positions of the segment id and of the offset in a back row's key.
pub const BACK_SEGMENT_AT: usize = 1;
pub const BACK_OFFSET_AT: usize = 9;

/// From a run to one of its owners, a file or part.
pub fn back(segment: SegmentId, offset: u64, owner: Ino) -> Vec<u8> {
    table(BACK, &[&segment.0.to_be_bytes(), &offset.to_be_bytes(), &owner.0.to_be_bytes()])
}

/// All owners of a run.
pub fn backs_of_run(segment: SegmentId, offset: u64) -> Range {
    range(table(BACK, &[&segment.0.to_be_bytes(), &offset.to_be_bytes()]))
}

/// All owners of all runs of a segment.
pub fn backs_of_segment(segment: SegmentId) -> Range {
    range(table(BACK, &[&segment.0.to_be_bytes()]))
}

pub fn all_backs() -> Range {
    range(vec![BACK])
}

/// Segment, offset of the run, owner.
pub fn parse_back(key: &[u8]) -> Result<(SegmentId, u64, Ino), Damaged> {
    let (segment, rest) = parse_ino(key)?;
    let (offset, owner) = rest.split_first_chunk::<8>().ok_or(Damaged("a back row's key is too short"))?;
    let owner = owner.try_into().map_err(|_| Damaged("a back row's key has a wrong length"))?;
    Ok((SegmentId(segment.0), u64::from_be_bytes(*offset), Ino(u64::from_be_bytes(owner))))
}

/// The location of a file with extent rows: the key of its row.
pub fn location(ino: Ino) -> Vec<u8> {
    table(LOCATION, &[&ino.0.to_be_bytes()])
}

pub fn all_locations() -> Range {
    range(vec![LOCATION])
}

/// Rows of formats 1 to 3, which listed the owners of shared runs.
pub fn all_shares() -> Range {
    range(vec![SHARE])
}

/// The counters of a segment. They are separate because one batch may place a payload in a segment whose id it does not
/// know yet, and change the owners of other runs of the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// Bytes of runs that got their first owner.
    Gained,
    /// Bytes of runs, counted for each owner that they lost.
    Lost,
    /// Bytes of runs, counted for each further owner.
    Shared,
}

pub fn live(segment: SegmentId, side: Live) -> Vec<u8> {
    let side = match side {
        Live::Gained => b"+",
        Live::Lost => b"-",
        Live::Shared => b"*",
    };
    table(LIVE, &[&segment.0.to_be_bytes(), side])
}

pub fn all_live() -> Range {
    range(vec![LIVE])
}

/// The segment, and what the row counts.
pub fn parse_live(key: &[u8]) -> Result<(SegmentId, Live), Damaged> {
    let (segment, rest) = parse_ino(key)?;
    match rest {
        b"+" => Ok((SegmentId(segment.0), Live::Gained)),
        b"-" => Ok((SegmentId(segment.0), Live::Lost)),
        b"*" => Ok((SegmentId(segment.0), Live::Shared)),
        _ => Err(Damaged("a live counter's key has a wrong side")),
    }
}

/// The segment of a counter of gained bytes; `None` for other keys; 0 means the log that a payload goes to.
pub fn gained_segment(key: &[u8]) -> Option<SegmentId> {
    let rest = key.strip_prefix(&[LIVE])?;
    let (segment, side) = rest.split_first_chunk::<8>()?;
    (side == b"+").then(|| SegmentId(u64::from_be_bytes(*segment)))
}

/// Rows of segments, those of stores, and how many copies there are to be.
const OF_SEGMENT: &[u8] = b"s";
const OF_STORE: &[u8] = b"t";
const COPIES: &[u8] = b"c";

/// The record of a segment.
pub fn segment(id: SegmentId) -> Vec<u8> {
    table(SEGMENT, &[OF_SEGMENT, &id.0.to_be_bytes()])
}

/// The segments that a store created.
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

/// The record of a store.
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

/// How many copies of each segment the volume has.
pub fn copies() -> Vec<u8> {
    table(SEGMENT, &[COPIES])
}

/// Whether the row describes locations of segments: they hold only for these stores, so a restored backup omits them.
pub fn is_segment(key: &[u8]) -> bool {
    key.first() == Some(&SEGMENT)
}
