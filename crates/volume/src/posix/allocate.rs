//! `fallocate`: holes made and filled.
//!
//! Why:        space is not reserved, so extending a file creates a hole, and free space is only checked.
//! Not here:   truncation (resize).

use std::ops::Range;

use crate::open::Volume;
use crate::open_files::pieces::Piece;
use crate::open_files::{OpenFile, State};
use crate::posix::api::{Allocate, PosixError};
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;
use crate::posix::piece_limit::CUT_PIECES_MAX;
use crate::posix::write::FILE_BYTES_MAX;

impl Mount {
    pub fn allocate(
        &self,
        handle: &Handle,
        how: Allocate,
        offset: u64,
        len: u64,
        kill_privileges: bool,
    ) -> Result<(), PosixError> {
        if !handle.flags.write {
            return Err(PosixError::BadHandle);
        }
        if len == 0 {
            return Err(PosixError::Invalid);
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(PosixError::FileTooLarge)?;
        self.volume.allocate(&handle.file, how, offset..end, kill_privileges)
    }
}

impl Volume {
    fn allocate(
        &self,
        file: &OpenFile,
        how: Allocate,
        Range { start: offset, end }: Range<u64>,
        kill_privileges: bool,
    ) -> Result<(), PosixError> {
        let mut state = file.state.write();
        self.make_local(file, &mut state)?;
        let size = state.pieces.end();
        let grows = end > size && matches!(how, Allocate::Reserve { keep_size: false });
        if grows || !matches!(how, Allocate::Reserve { .. }) {
            self.make_room_for_pieces(file, &mut state, CUT_PIECES_MAX)?;
        }
        match how {
            Allocate::Reserve { keep_size } => {
                self.check_room()?;
                self.store.check_space(end - offset).map_err(crate::api::Error::from)?;
                if keep_size || end <= size {
                    // Nothing changes, but set-id bits are cleared, as on Linux.
                    self.drop_privileges(&mut state, kill_privileges);
                    return Ok(());
                }
                self.check_growth(file, &state, end)?;
                state.pieces.resize(end);
            }
            Allocate::PunchHole => self.zero(&mut state, offset, end.min(size)),
            Allocate::ZeroRange { keep_size: true } => self.zero(&mut state, offset, end.min(size)),
            Allocate::ZeroRange { keep_size: false } => {
                self.check_growth(file, &state, end)?;
                self.zero(&mut state, offset, end);
            }
        }
        self.touched(&mut state, kill_privileges);
        Ok(())
    }

    fn zero(&self, state: &mut State, offset: u64, end: u64) {
        if offset < end {
            let before = state.pieces.memory();
            state.pieces.replace(offset, Piece::hole(end - offset));
            self.open_files.memory_changed(before, state.pieces.memory());
        }
    }
}
