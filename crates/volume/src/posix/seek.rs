//! `SEEK_DATA` and `SEEK_HOLE`.
//!
//! Not here:   other seeks, which the kernel does.

use crate::open_files::pieces::{Content, Pieces};
use crate::posix::api::{PosixError, SeekTo};
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;

impl Mount {
    /// The first byte of data, or of a hole, at or behind `offset`; the end of the file is a hole.
    pub fn seek(&self, handle: &Handle, offset: u64, to: SeekTo) -> Result<u64, PosixError> {
        let state = handle.file.state.read();
        seek(&state.pieces, offset, to).ok_or(PosixError::NoSuchOffset)
    }
}

fn seek(pieces: &Pieces, offset: u64, to: SeekTo) -> Option<u64> {
    if offset >= pieces.end() {
        return None;
    }
    let wanted = |content: &Content| matches!(content, Content::Hole) == (to == SeekTo::Hole);
    let found = pieces.from(offset).find(|(_, piece)| wanted(&piece.content)).map(|(start, _)| offset.max(*start));
    match to {
        SeekTo::Data => found,
        SeekTo::Hole => Some(found.unwrap_or(pieces.end())),
    }
}
