//! Open files, as operations on names and attributes use them.
//!
//! Why:        an open, written file shows what its reader reads, and may have no row any more.
//! Locking:    the file's turn, held by the caller where attributes are changed.
//! Not here:   the state of open files (open_files).

use std::collections::HashSet;

use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::record::FileEntry;

use crate::known::Turns;
use crate::open::Volume;
use crate::posix::mount::Mount;

/// An open file's attributes.
pub(crate) struct Opened {
    pub(crate) file: FileEntry,
    /// Bytes outside holes.
    pub(crate) stored: u64,
    /// They differ from the row's, or there is no row: attribute changes are made here.
    pub(crate) differs: bool,
}

/// The turns of files.
#[derive(Debug)]
#[allow(dead_code, reason = "holding them is what they are for")]
pub struct HeldFiles<'v>(Vec<Turns<'v>>);

impl Volume {
    /// Whether a mount has the file open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.open_files.handles(ino) > 0
    }

    /// Those of these files that no mount has open, and that nobody is working on now. None of them is opened or moved by a
    /// mount until the first part is dropped; a caller must not wait for the kernel meanwhile.
    pub fn hold_closed(&self, files: &[Ino]) -> (HeldFiles<'_>, HashSet<Ino>) {
        let (turns, mut held) = self.known.try_turns(files);
        held.retain(|ino| !self.is_open(*ino));
        (HeldFiles(turns), held)
    }
}

impl Mount {
    pub(crate) fn opened(&self, ino: Ino) -> Option<Opened> {
        let open = self.volume.open_files.get(ino)?;
        let differs = open.keeps_changes();
        let (file, stored) = open.entry();
        Some(Opened { file, stored, differs })
    }

    /// Changes the attributes of an open file; they are published with its content.
    pub(crate) fn change_opened(&self, ino: Ino, change: impl FnOnce(&mut FileEntry)) {
        if let Some(open) = self.volume.open_files.get(ino) {
            open.change(self.volume.monotonic(), change);
        }
    }

    /// The row of a possibly open file was committed again, with the same content.
    pub(crate) fn row_changed(&self, file: &FileEntry, version: RowVersion) {
        if let Some(open) = self.volume.open_files.get(file.ino) {
            open.changed_to(file, version);
        }
    }
}
