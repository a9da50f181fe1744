//! Where the bytes of a file are stored, so that who sends them elsewhere can tell which of them are still the same.
//!
//! Why:        a large file is sent while it is written. Stored bytes never change: what is written again is stored at another
//!             place. So a part with the places that it had when it was sent has the bytes that were sent.
//! Invariants: L1 two parts with equal places have equal bytes, as long as the process lives. A place is no reference: it
//!                keeps nothing.
//!             L2 what is in memory only has no place.
//! Locking:    the file's state, shared; for one read at most.
//! Not here:   which parts are sent, and when (margay-upstream).

use std::time::Duration;

use bytes::Bytes;
use margay_rows::Ino;
use margay_rows::record::data::is_hole;
use margay_segment::{Extent, SegmentId};

use crate::api::Error;
use crate::open::Volume;
use crate::open_files::pieces::Content as PieceContent;
use crate::open_files::{STREAM_RUN_BYTES, State};
use crate::reader::{Content, Reader};

/// Somebody who looks at an open file waits so long for who works on it.
const LOOK_TIME_MAX: Duration = Duration::from_millis(20);

/// A stretch of stored bytes, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 0: a hole.
    segment: SegmentId,
    /// In the segment.
    offset: u64,
    len: u64,
}

/// The parts of an open file that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenParts {
    /// Of the file as it is read now.
    pub size: u64,
    /// Of each whole part; `None`: some of it is in memory only.
    pub parts: Vec<Option<Vec<Place>>>,
}

/// Adds what follows; stretches that continue each other are one, however they were written.
fn push(places: &mut Vec<Place>, next: Place) {
    if let Some(last) = places.last_mut()
        && last.segment == next.segment
        && (next.segment == SegmentId(0) || last.offset + last.len == next.offset)
    {
        last.len += next.len;
        return;
    }
    places.push(next);
}

fn hole(len: u64) -> Place {
    Place { segment: SegmentId(0), offset: 0, len }
}

/// A run that is still written begins at the same offset as when it has ended: at that of its segment.
fn stored(extent: &Extent, skip: u64, len: u64) -> Place {
    let offset = if extent.run.len == STREAM_RUN_BYTES { 0 } else { extent.run.offset };
    Place { segment: extent.run.segment, offset: offset + extent.skip + skip, len }
}

impl State {
    fn places(&self, start: u64, end: u64) -> Option<Vec<Place>> {
        let mut places = Vec::new();
        for (_, len, piece, skip) in self.pieces.within(start, end) {
            push(
                &mut places,
                match &piece.content {
                    PieceContent::Hole => hole(len),
                    PieceContent::Stored(extent) => stored(extent, skip, len),
                    PieceContent::Memory(_) | PieceContent::Encrypted(..) => return None,
                },
            );
        }
        Some(places)
    }
}

impl Volume {
    /// Open files of which more was written than is kept in memory.
    pub fn large_written(&self) -> Vec<Ino> {
        self.open_files.large()
    }

    /// The places of whole parts of an open file, from the part `first` on (counted from 0), at most `count`; `None` if it is
    /// not open, or somebody works on it for long.
    pub fn open_parts(&self, ino: Ino, part_bytes: u64, first: u64, count: u64) -> Option<OpenParts> {
        let file = self.open_files.get(ino)?;
        // A writer may hold it for long.
        let state = file.state.try_read_for(LOOK_TIME_MAX)?;
        let size = state.pieces.end();
        let last = (size / part_bytes).min(first.saturating_add(count));
        let parts = (first..last).map(|part| state.places(part * part_bytes, (part + 1) * part_bytes));
        Some(OpenParts { size, parts: parts.collect() })
    }

    /// Up to `len` bytes of an open file, if they are at these places, which begin at `start` of the file. `None`: the file is
    /// closed, or has other bytes there.
    pub fn read_placed(
        &self,
        ino: Ino,
        (start, places): (u64, &[Place]),
        offset: u64,
        len: usize,
    ) -> Result<Option<Bytes>, Error> {
        let Some(file) = self.open_files.get(ino) else { return Ok(None) };
        let state = file.state.read();
        let skip = offset - start;
        match state.places(offset, offset + len as u64) {
            Some(now) if now == slice(places, skip..skip + len as u64) => {
                self.read_state(&state, offset, len).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// A part of what is at these places.
pub(crate) fn slice(places: &[Place], range: std::ops::Range<u64>) -> Vec<Place> {
    let (mut found, mut at) = (Vec::new(), 0);
    for place in places {
        let (from, to) = (range.start.max(at), range.end.min(at + place.len));
        if from < to {
            let offset = if place.segment == SegmentId(0) { 0 } else { place.offset + (from - at) };
            push(&mut found, Place { segment: place.segment, offset, len: to - from });
        }
        at += place.len;
    }
    found
}

impl Reader {
    /// The places of a range; `None` if the bytes are in the row, or encrypted.
    pub fn places(&self, range: std::ops::Range<u64>) -> Option<Vec<Place>> {
        let Content::Extents { extents, .. } = &self.content else { return None };
        let mut places = Vec::new();
        let first = extents.partition_point(|(start, extent)| start + extent.len <= range.start);
        for (start, extent) in extents[first..].iter().take_while(|(start, _)| *start < range.end) {
            let (from, to) = (range.start.max(*start), range.end.min(start + extent.len));
            push(
                &mut places,
                match is_hole(extent) {
                    true => hole(to - from),
                    false => stored(extent, from - start, to - from),
                },
            );
        }
        Some(places)
    }
}

/// Whether a part of an object is where it was in an older state of it, whose places these are from its beginning on.
pub fn is_unmoved(old: &[Place], now: &[Place], range: std::ops::Range<u64>) -> bool {
    let old_len: u64 = old.iter().map(|place| place.len).sum();
    range.end <= old_len && slice(old, range) == now
}

#[cfg(test)]
mod tests {
    use margay_segment::Run;

    use super::*;

    fn place(segment: u64, offset: u64, len: u64) -> Place {
        Place { segment: SegmentId(segment), offset, len }
    }

    #[test]
    fn stretches_that_continue_each_other_are_one() {
        let mut places = Vec::new();
        for next in [place(1, 0, 5), place(1, 5, 5), place(1, 20, 5), hole(3), hole(4), place(2, 25, 1)] {
            push(&mut places, next);
        }
        assert_eq!(places, [place(1, 0, 10), place(1, 20, 5), hole(7), place(2, 25, 1)]);
        assert_eq!(slice(&places, 8..16), [place(1, 8, 2), place(1, 20, 5), hole(1)]);
        assert_eq!(slice(&places, 0..23), places);
        assert!(is_unmoved(&places, &[place(1, 2, 3)], 2..5) && !is_unmoved(&places, &[place(1, 3, 3)], 2..5));
        assert!(!is_unmoved(&places, &[place(2, 25, 1)], 22..24), "it had no such bytes");
    }

    #[test]
    fn a_run_that_is_written_keeps_its_place_when_it_ends() {
        let extent = |len, crc| Extent { run: Run { segment: SegmentId(7), offset: 0, len, crc }, skip: 100, len: 50 };
        assert_eq!(stored(&extent(STREAM_RUN_BYTES, 0), 10, 5), stored(&extent(200, 9), 10, 5));
    }
}
