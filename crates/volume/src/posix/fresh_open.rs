//! What another process has changed is seen by who opens the file next.
//!
//! Why:        programs on two machines agree on a file by closing it and opening it again, as on any network file system.
//! Invariants: C1 an open that begins after a publish at another process shows what was published: its row is read, and a file
//!                that is open already without changes of its own adopts it.
//!             C2 the kernel keeps the pages that it has of a file only if they are of the content that was opened.
//!             C3 a file that stays open shows what it had when it was last opened or asked for its attributes, size and bytes
//!                alike.
//!             C4 nothing is read, and no lock taken, where the engine is not shared.
//! Locking:    the file's turn, held by the caller, then its state.
//! Not here:   names, whose age has a limit (`NAMES_KEPT`), what the kernel may keep (handle), the kernel's pages themselves (margay-fuse).

use margay_rows::Ino;

use crate::api::Error;
use crate::error::Refused;
use crate::open::Volume;
use crate::open_files::OpenFile;
use crate::posix::api::PosixError;

/// Attempts to read a file that others publish meanwhile.
const TRIES_MAX: usize = 64;

impl Volume {
    /// A file that may be open is brought up to date, if it can be; its attributes are asked for.
    pub(crate) fn refresh_opened(&self, ino: Ino) {
        let _turn = self.known.turn(ino);
        if let Some(file) = self.open_files.get(ino)
            && let Err(error) = self.refresh(&file)
        {
            tracing::debug!(ino = ino.0, %error, "an open file is shown as it was when it was opened");
        }
    }

    /// Brings a file that is open already up to date (C1). Its turn is held.
    pub(crate) fn refresh(&self, file: &OpenFile) -> Result<(), PosixError> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            if file.state.read().dirty() {
                return Ok(());
            }
            let Some(located) = self.locate_file(file.ino)? else { return Err(PosixError::Stale) };
            let mut state = file.state.write();
            if state.dirty() || state.base.version == Some(located.version) {
                return Ok(());
            }
            let before = state.pieces.memory();
            let adopted = self.rebase(&mut state, &located);
            state.drop_pins();
            self.open_files.memory_changed(before, state.pieces.memory());
            match adopted {
                Err(Refused::Conflict) => {}
                Err(Refused::Error(error)) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
        Err(Error::Busy.into())
    }
}
