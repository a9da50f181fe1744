//! Limits the pieces of an open file to what an object may have.
//!
//! Why:        a file with too many pieces could not be published, and unpublished data would be lost. So the call that
//!             would exceed the limit makes room by merging, or fails without a change.
//! Invariants: M1 after each change a file has at most `pieces_max` pieces, or not more than when it was opened.
//!             M2 holes too large to be filled stay holes.
//! Locking:    the file's state, held by the caller.
//! Not here:   rewriting for other reasons (defragment).

use margay_rows::record::data::OBJECT_EXTENTS_MAX;

use crate::open::Volume;
use crate::open_files::pieces::{Content, Pieces};
use crate::open_files::{OpenFile, State};
use crate::posix::api::PosixError;

/// A change of a range splits the pieces at its two ends.
pub(crate) const CUT_PIECES_MAX: usize = 2;
/// A hole up to this size, in bytes, may be filled with zeros to merge its neighbours.
const FILLED_HOLE_BYTES_MAX: u64 = 64 << 10;
/// Bytes that one call rewrites to make room; a call that would need more fails.
const JOINED_BYTES_MAX: u64 = 256 << 20;
/// Room is made for this part of the maximum at a time.
const ROOM_PART: usize = 8;

/// Adjacent pieces that are merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    offset: u64,
    bytes: u64,
    pieces: usize,
}

impl Volume {
    /// Maximum pieces of an open file: the threshold of `defragment` plus a quarter.
    fn pieces_max(&self) -> usize {
        let soft = self.options.file_pieces_max;
        OBJECT_EXTENTS_MAX.min(soft.saturating_add(soft / 4))
    }

    /// Called before a change that adds at most this many pieces. `FileTooLarge`: nothing may be changed.
    pub(crate) fn make_room_for_pieces(
        &self,
        file: &OpenFile,
        state: &mut State,
        more: usize,
    ) -> Result<(), PosixError> {
        let most = self.pieces_max();
        let wanted = state.pieces.count().saturating_add(more);
        if wanted <= most {
            return Ok(());
        }
        self.write_out(file, state)?;
        self.end_stream(state)?;
        let needed = wanted - most;
        let affordable = [needed + most / ROOM_PART, needed]
            .into_iter()
            .map(|less| windows(&state.pieces, less))
            .find(|found| found.iter().map(|window| window.bytes).sum::<u64>() <= JOINED_BYTES_MAX);
        for window in affordable.unwrap_or_default() {
            self.rewrite(file, state, &[(window.offset, window.bytes)])?;
        }
        if state.pieces.count().saturating_add(more) <= most { Ok(()) } else { Err(PosixError::FileTooLarge) }
    }
}

/// Windows of neighbours to merge until there are `less` fewer pieces, cheapest first, without overlaps; fewer if not
/// so many can be merged.
fn windows(pieces: &Pieces, less: usize) -> Vec<Window> {
    let mut found = Vec::new();
    let mut neighbours: Vec<(u64, u64)> = Vec::new();
    for (offset, piece) in pieces.iter() {
        let apart = match piece.content {
            Content::Hole => piece.len > FILLED_HOLE_BYTES_MAX,
            // They are decrypted when they are published.
            Content::Encrypted(..) => true,
            Content::Stored(_) | Content::Memory(_) => false,
        };
        if apart {
            found.extend(cheapest(&neighbours, less));
            neighbours.clear();
        } else {
            neighbours.push((offset, piece.len));
        }
    }
    found.extend(cheapest(&neighbours, less));
    found.sort_by_key(|window| window.bytes / (window.pieces as u64 - 1));
    let mut saved = 0;
    let enough = found.iter().take_while(|window| {
        let go_on = saved < less;
        saved += window.pieces - 1;
        go_on
    });
    let count = enough.count();
    found.truncate(count);
    found
}

/// The window with the fewest bytes that saves this many pieces, or all neighbours.
fn cheapest(neighbours: &[(u64, u64)], less: usize) -> Option<Window> {
    let pieces = neighbours.len().min(less + 1);
    if pieces < 2 {
        return None;
    }
    let mut bytes: u64 = neighbours[..pieces].iter().map(|(_, len)| len).sum();
    let mut best = (bytes, 0);
    for start in 1..=neighbours.len() - pieces {
        bytes = bytes - neighbours[start - 1].1 + neighbours[start + pieces - 1].1;
        best = best.min((bytes, start));
    }
    let (bytes, start) = best;
    Some(Window { offset: neighbours[start].0, bytes, pieces })
}

#[cfg(test)]
mod tests {
    use margay_segment::{Extent, Run, SegmentId};

    use super::*;
    use crate::open_files::pieces::Piece;

    fn pieces(parts: &[(bool, u64)]) -> Pieces {
        let mut pieces = Pieces::default();
        for (index, (stored, len)) in parts.iter().enumerate() {
            let run = Run { segment: SegmentId(1), offset: index as u64 * 1_000_000, len: *len, crc: 0 };
            pieces.push(if *stored { Piece::stored(Extent::whole(run)) } else { Piece::hole(*len) });
        }
        pieces
    }

    #[test]
    fn the_cheapest_neighbours_are_joined_and_large_holes_stay() {
        let large = FILLED_HOLE_BYTES_MAX + 1;
        let pieces = pieces(&[(true, 500), (false, 10), (true, 900), (false, large), (true, 3), (true, 4), (true, 5)]);
        let one = Window { offset: 1410 + large, bytes: 7, pieces: 2 };
        assert_eq!(windows(&pieces, 1), [one]);
        let all = [Window { offset: 1410 + large, bytes: 12, pieces: 3 }, Window { offset: 0, bytes: 1410, pieces: 3 }];
        assert_eq!(windows(&pieces, 4), all);
        assert_eq!(windows(&pieces, 100), all);
    }

    #[test]
    fn what_large_holes_keep_apart_is_not_joined() {
        let large = FILLED_HOLE_BYTES_MAX + 1;
        let pieces = pieces(&[(true, 1), (false, large), (true, 1), (false, large), (true, 1)]);
        assert_eq!(windows(&pieces, 3), []);
    }
}
