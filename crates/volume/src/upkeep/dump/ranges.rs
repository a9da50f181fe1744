//! The byte ranges of a segment that a dump includes.
//!
//! Why:        dead bytes are omitted, but not what reclaim needs to parse a pack.
//! Invariants: G1 ranges ascend and do not touch; everything that a referenced run needs is inside.
//! Not here:   reading them (mod).

use std::collections::BTreeMap;
use std::ops::Range;

use margay_segment::format::{ALIGN_BYTES, OWNER_BYTES_MAX, PACK_HEADER_BYTES, RUN_END_BYTES, RUN_HEADER_BYTES};
use margay_segment::{Kind, Run};

/// The beginning of a log, in bytes.
const LOG_HEADER_BYTES: u64 = 64;
/// Dead bytes that are included rather than starting another piece.
const GAP_BYTES_MAX: u64 = 4096;
/// Bytes before a run in a pack that contain its header, with an owner of any length.
const BEFORE_RUN_BYTES: u64 = (RUN_HEADER_BYTES + OWNER_BYTES_MAX) as u64 + ALIGN_BYTES;

/// `len` is the file's length; `runs` are the referenced runs, by offset.
pub(super) fn ranges_of(kind: Kind, runs: &BTreeMap<u64, Run>, len: u64) -> Vec<Range<u64>> {
    let head = match kind {
        Kind::Log => LOG_HEADER_BYTES,
        Kind::Pack => PACK_HEADER_BYTES as u64,
        // A raw segment is a single run.
        Kind::Raw => len,
    };
    let mut ranges: Vec<Range<u64>> = std::iter::once(0..head).collect();
    for run in runs.values() {
        let end = run.offset.saturating_add(run.len).saturating_add(run.table_bytes());
        let (start, end) = match kind {
            Kind::Pack => (run.offset.saturating_sub(BEFORE_RUN_BYTES), end.saturating_add(RUN_END_BYTES as u64)),
            Kind::Log | Kind::Raw => (run.offset, end),
        };
        let last = ranges.last_mut().expect("it begins with one");
        if start <= last.end.saturating_add(GAP_BYTES_MAX) {
            last.end = last.end.max(end);
        } else {
            ranges.push(start..end);
        }
    }
    ranges.iter_mut().for_each(|range| range.end = range.end.min(len));
    ranges.retain(|range| range.start < range.end);
    assert!(ranges.is_sorted_by(|one, next| one.end < next.start), "ranges ascend and do not touch (G1)");
    ranges
}

#[cfg(test)]
mod tests {
    use margay_segment::SegmentId;

    use super::*;

    fn runs(places: &[(u64, u64)]) -> BTreeMap<u64, Run> {
        let run = |(offset, len)| (offset, Run { segment: SegmentId(1), offset, len, crc: 0 });
        places.iter().copied().map(run).collect()
    }

    #[test]
    fn dead_bytes_stay_behind() {
        let far = runs(&[(100, 50), (20_000, 100_000), (119_999, 9)]);
        assert_eq!(ranges_of(Kind::Log, &far, 1 << 20), [0..150, 20_000..120_008]);
        assert_eq!(ranges_of(Kind::Pack, &runs(&[(50_000, 100)]), 60_000), [0..64, 48_928..50_112]);
        let one = |kind, runs, len| -> Range<u64> {
            let mut ranges = ranges_of(kind, runs, len);
            assert_eq!(ranges.len(), 1);
            ranges.remove(0)
        };
        assert_eq!(one(Kind::Raw, &far, 777), 0..777);
        assert_eq!(one(Kind::Log, &runs(&[(100, 50)]), 120), 0..120, "a file that is too short");
    }
}
