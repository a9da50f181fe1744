//! Removing a file's name.
//!
//! Why:        with its last name a file's rows go at once; whoever has it open has pinned its bytes (X3).
//! Invariants: asserts the entry, of a file with several names its inode record too, and the directory.
//! Not here:   directories (remove_directory), letting go of data (release).

use crate::draft::Draft;
use crate::key::Ino;
use crate::posix::api::{Name, PosixError};
use crate::posix::attempt::Attempt;
use crate::posix::locate::Located;
use crate::posix::mount::Mount;
use crate::posix::resolve::Found;
use crate::put_object::count;

impl Mount {
    pub fn unlink(&self, parent: Ino, name: &Name) -> Result<(), PosixError> {
        self.change(|one| {
            let located = match self.resolve(parent, name, &mut one.seen)?.found {
                Some(Found::File(located)) => located,
                Some(Found::Directory(_)) => return Err(PosixError::IsDirectory.into()),
                None => return Err(PosixError::NotFound.into()),
            };
            let directory = self.directory(parent, one)?;
            let mut draft = Draft::default();
            self.draft_change_in(&mut draft, &directory, self.volume.now().0);
            draft.delete(located.entry_key.clone());
            self.draft_end_of_name(&mut draft, &located)?;
            let seq = self.commit(draft)?;
            Ok(((), Some(seq)))
        })
    }

    /// Drafts that a file loses a name, and counts it out. The entry's row is the caller's to remove or to replace.
    pub(crate) fn draft_end_of_name(&self, draft: &mut Draft, located: &Located) -> Result<(), Attempt> {
        count(draft, self.bucket_root, Some(&located.file), None);
        self.volume.drop_name(draft, located)?;
        Ok(())
    }
}
