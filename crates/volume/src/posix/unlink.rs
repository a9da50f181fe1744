//! Removes a file's name.
//!
//! Why:        with its last name a file's rows are removed at once; processes that have it open have pinned its bytes
//!             (X3).
//! Invariants: U1 asserts the directory, the entry, and for a hard-linked file its inode record.
//! Not here:   directories (remove_directory), releasing data (release), versions (versions).

use margay_rows::Ino;

use crate::draft::Draft;
use crate::posix::api::{Name, PosixError};
use crate::posix::mount::Mount;
use crate::posix::resolve::Found;

impl Mount {
    pub fn unlink(&self, parent: Ino, name: &Name) -> Result<(), PosixError> {
        self.change(|one| {
            self.look_at(&[(parent, name)], one)?;
            let resolved = self.resolve(parent, name, &mut one.seen)?;
            let located = match &resolved.found {
                Some(Found::File(located)) => located,
                Some(Found::Directory(_)) => return Err(PosixError::IsDirectory.into()),
                None => return Err(PosixError::NotFound.into()),
            };
            let directory = self.directory(parent, one)?;
            let mut draft = Draft::default();
            resolved.assert_kept(&mut draft, parent, one);
            self.draft_change_in(&mut draft, &directory, self.volume.now().0);
            self.draft_end_of_name(&mut draft, (parent, resolved.name.as_str()), located, one)?;
            draft.delete(located.entry_key.clone());
            let done = self.commit(draft)?;
            Ok(((), Some(done)))
        })
    }
}
