//! Truncates or extends a file.
//!
//! Why:        one operation for `ftruncate`, `truncate` and O_TRUNC, whether or not the file is open.
//! Not here:   other attributes (set_attributes).

use margay_rows::Ino;

use crate::open::Volume;
use crate::open_files::OpenFile;
use crate::posix::api::{Attributes, OpenFlags, PosixError};
use crate::posix::mount::Mount;
use crate::posix::write::FILE_BYTES_MAX;

impl Mount {
    /// Sets the size of a file, open or not; no turn is held. Published at once unless the file is open. Returns the
    /// attributes that it has then, whatever another process does with its name.
    pub(crate) fn set_size(&self, ino: Ino, size: u64, kill_privileges: bool) -> Result<Attributes, PosixError> {
        let handle = self.open_file(ino, OpenFlags { write: true, ..OpenFlags::default() })?;
        self.volume.resize(&handle.file, size, kill_privileges)?;
        let resized = self.file_attributes(&handle.file.entry().0);
        self.release(handle)?;
        Ok(resized)
    }
}

impl Volume {
    pub(crate) fn resize(&self, file: &OpenFile, size: u64, kill_privileges: bool) -> Result<(), PosixError> {
        if size > FILE_BYTES_MAX {
            return Err(PosixError::FileTooLarge);
        }
        let mut state = file.state.write();
        if size > 0 {
            self.make_local(file, &mut state)?;
        }
        self.check_growth(file, &state, size)?;
        if size > state.pieces.end() {
            self.make_room_for_pieces(file, &mut state, 1)?;
        }
        let before = state.pieces.memory();
        state.pieces.resize(size);
        self.open_files.memory_changed(before, state.pieces.memory());
        self.touched(&mut state, kill_privileges);
        Ok(())
    }
}
