//! `SEEK_DATA` and `SEEK_HOLE`.
//!
//! Why:        holes may begin and end at any byte, but programs expect whole blocks, as on a disk. So holes are
//!             reported in blocks of [`HOLE_BLOCK_BYTES`], and smaller ones are data.
//! Not here:   other seeks, which the kernel does.

use std::ops::Range;

use crate::open_files::pieces::{Content, Pieces};
use crate::posix::api::{PosixError, SeekTo};
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;

/// Unit of reported holes; the one at the end of the file may be shorter.
const HOLE_BLOCK_BYTES: u64 = 4096;

impl Mount {
    /// The first byte of data, or of a hole, at or after `offset`; the end of the file is a hole.
    pub fn seek(&self, handle: &Handle, offset: u64, to: SeekTo) -> Result<u64, PosixError> {
        let state = handle.file.state.read();
        seek(&state.pieces, offset, to).ok_or(PosixError::NoSuchOffset)
    }
}

fn seek(pieces: &Pieces, offset: u64, to: SeekTo) -> Option<u64> {
    let end = pieces.end();
    if offset >= end {
        return None;
    }
    let hole = hole_behind(pieces, offset);
    match (to, hole) {
        (SeekTo::Hole, hole) => Some(hole.map_or(end, |hole| hole.start.max(offset))),
        (SeekTo::Data, Some(hole)) if hole.start <= offset => (hole.end < end).then_some(hole.end),
        (SeekTo::Data, _) => Some(offset),
    }
}

/// The first hole of whole blocks that ends after `offset`.
fn hole_behind(pieces: &Pieces, offset: u64) -> Option<Range<u64>> {
    let end = pieces.end();
    let blocks = |from: u64, to: u64| {
        let to = if to == end { end } else { to - to % HOLE_BLOCK_BYTES };
        let from = from.next_multiple_of(HOLE_BLOCK_BYTES);
        (from < to && offset < to).then_some(from..to)
    };
    let mut begun = None;
    for (start, piece) in pieces.from(offset - offset % HOLE_BLOCK_BYTES) {
        if matches!(piece.content, Content::Hole) {
            begun.get_or_insert(*start);
        } else if let Some(found) = begun.take().and_then(|from| blocks(from, *start)) {
            return Some(found);
        }
    }
    begun.and_then(|from| blocks(from, end))
}
