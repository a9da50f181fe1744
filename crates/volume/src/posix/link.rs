//! Adds a name to a file (hard link).
//!
//! Why:        with a second name the attributes move to an inode record that both entries refer to (names).
//! Invariants: N1 asserts the row with the attributes and the known entry, and that both entries of the new name are
//!                absent.
//! Locking:    the file's turn.

use margay_rows::Ino;

use crate::draft::Draft;
use crate::object::count;
use crate::posix::api::{Attributes, FileKind, LINKS_MAX, Name, PosixError};
use crate::posix::mount::Mount;

impl Mount {
    /// Adds a name to a file. Counts one lookup.
    pub fn link(&self, ino: Ino, parent: Ino, name: &Name) -> Result<Attributes, PosixError> {
        self.volume.check_room()?;
        if self.options.upstream.is_some() || self.is_directory(ino)? {
            return Err(PosixError::NotPermitted);
        }
        let _turn = self.volume.known.turn(ino);
        let (file, name) = self.change(|one| {
            let located = self.locate_file(ino)?.ok_or(PosixError::NotFound)?;
            if located.file.links >= LINKS_MAX {
                return Err(PosixError::TooManyLinks.into());
            }
            let resolved = self.resolve(parent, name, &mut one.seen)?;
            if resolved.found.is_some() {
                return Err(PosixError::Exists.into());
            }
            self.volume.check_newest_quota(self.bucket_root, 1, located.file.size as i64)?;
            let directory = self.directory(parent, one)?;
            let mut draft = Draft::default();
            if self.bucket_state(&mut draft)?.keeps() {
                return Err(PosixError::NotPermitted.into());
            }
            let key = resolved.draft_free(&mut draft, &directory, FileKind::of(located.file.mode))?;
            self.draft_change_in(&mut draft, &directory, self.volume.now().0);
            count(&mut draft, self.bucket_root, None, Some(&located.file));
            let file = self.volume.add_name(&mut draft, &located, key)?;
            let done = self.commit(draft)?;
            self.row_changed(&file, done.version);
            Ok(((file, resolved.name), Some(done)))
        })?;
        self.known.remember(ino, parent, &name);
        Ok(self.file_attributes(&file))
    }
}
