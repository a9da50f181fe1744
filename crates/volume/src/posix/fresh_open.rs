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
//! Not here:   names, whose age has a limit ([`NAMES_KEPT`]), the kernel's pages themselves (margay-fuse).

use std::time::Duration;

use margay_rows::Ino;

use crate::api::{ETag, Error};
use crate::error::Refused;
use crate::open::Volume;
use crate::open_files::OpenFile;
use crate::posix::api::PosixError;
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;

/// How long a kernel keeps names and attributes of a volume that other processes change too. It is told of changes within a second;
/// this is the limit where that fails.
pub const NAMES_KEPT: Duration = Duration::from_secs(5);
/// Attempts to read a file that others publish meanwhile.
const TRIES_MAX: usize = 64;

/// What a kernel may keep of a file that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its pages and attributes.
    All,
    /// It has no pages; its attributes may be old.
    Pages,
    /// Pages and attributes may be old.
    Nothing,
}

/// A number for one content of a file; never 0.
pub(crate) fn content_number(etag: &ETag) -> u64 {
    let (first, _) = etag.digest.split_first_chunk::<8>().expect("a digest has 16 bytes");
    u64::from_be_bytes(*first).max(1)
}

impl Mount {
    /// What the kernel may keep, now that it has opened the file (C2).
    pub fn kept_at_open(&self, handle: &Handle) -> Kept {
        if !self.volume.engine.is_shared() {
            return Kept::All;
        }
        let now = content_number(&handle.file.state.read().file.etag);
        match self.known.content_is(handle.file.ino, now) {
            0 => Kept::Pages,
            before if before == now => Kept::All,
            _ => Kept::Nothing,
        }
    }

    /// A file that may be open is brought up to date, if it can be; its attributes are asked for.
    pub(crate) fn refresh_opened(&self, ino: Ino) {
        let _turn = self.volume.known.turn(ino);
        if let Some(file) = self.volume.open_files.get(ino)
            && let Err(error) = self.volume.refresh(&file)
        {
            tracing::debug!(ino = ino.0, %error, "an open file is shown as it was when it was opened");
        }
    }
}

impl Volume {
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
