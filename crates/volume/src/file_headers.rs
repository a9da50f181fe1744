//! What the headers of an object say of its file, for a volume whose objects another store has too.
//!
//! Why:        other programs keep modes, owners and times of files as headers of objects. Where mounts of the other store show
//!             these, a mount of this volume shows the same of what S3 has put here.
//! Invariants: F1 without the port headers are kept and given back, and say nothing.
//!             F2 what is taken from headers is told again, as it was said or as the file has it since.
//! Not here:   which headers these are (margay-upstream).

use std::fmt::Debug;

use margay_rows::record::FileEntry;
use margay_rows::values::Headers;

/// Knows the headers that stand for attributes.
pub trait FileHeaders: Send + Sync + Debug {
    /// Gives a new file what its headers say. They are all in the entry.
    fn take(&self, file: &mut FileEntry);

    /// Adds to a file's headers what they said, as S3 shows it.
    fn tell(&self, file: &FileEntry, headers: &mut Headers);
}
