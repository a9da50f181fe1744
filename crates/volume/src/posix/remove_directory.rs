//! Removes an empty directory.
//!
//! Why:        POSIX also treats a directory with only the empty S3 object `a/` as empty, since the mount does not show
//!             it.
//! Invariants: R1 asserts the entry's version and that nothing is below, so no name can be created in it concurrently:
//!                that would assert the same entry.
//! Not here:   implicit directories that S3 removes (delete_object).

use std::ops::ControlFlow;

use margay_meta::Guard;
use margay_rows::{Ino, key};

use crate::draft::{Draft, Seen};
use crate::posix::api::{Name, PosixError};
use crate::posix::attempt::{Attempt, Try};
use crate::posix::mount::Mount;
use crate::posix::resolve::{Found, Subdirectory};
use crate::watch::Notice;

impl Mount {
    pub fn remove_directory(&self, parent: Ino, name: &Name) -> Result<(), PosixError> {
        let removed = self.change(|one| {
            self.look_at(&[(parent, name)], one)?;
            let found = match self.resolve(parent, name, &mut one.seen)?.found {
                Some(Found::Directory(found)) => found,
                Some(Found::File(_)) => return Err(PosixError::NotDirectory.into()),
                None => return Err(PosixError::NotFound.into()),
            };
            let directory = self.directory(parent, one)?;
            let mut draft = Draft::default();
            self.draft_change_in(&mut draft, &directory, self.volume.now().0);
            draft.assert_version(found.entry_key.clone(), found.version);
            draft.delete(found.entry_key.clone());
            draft.add(key::subdirectories(parent), -1);
            self.draft_end_of_directory(&mut draft, &found, one)?;
            let done = self.commit(draft)?;
            Ok((found.entry, Some(done)))
        })?;
        self.directories.forget(removed.ino);
        self.keep_removed(&removed);
        if let Name::Plain(name) = name {
            self.left_its_name(parent, name);
        }
        Ok(())
    }

    /// After a directory was removed: a file that was shown beside it now has the plain name, and the kernel, which
    /// does not know that, must drop the other name.
    pub(crate) fn left_its_name(&self, parent: Ino, name: &str) {
        let watchers = &self.volume.watchers;
        // If somebody has made one since that was read, the kernel is told of it on its own.
        let is_none = self.volume.kept_rows.has_none(&key::entry(parent, name.as_bytes()));
        // The change is done, so a read that fails is no error of it; a name that is dropped for nothing is looked up again.
        let may_be =
            || self.read_file(parent, name.as_bytes(), &mut Seen::default()).map_or(true, |file| file.is_some());
        if !is_none && watchers.any() && may_be() {
            watchers.tell(Notice { entries: vec![(parent, name.to_owned())], ..Notice::default() });
        }
    }

    /// Drafts the removal of a directory and of its empty object `a/`, if any; refuses if it contains more. The caller
    /// asserts and removes or replaces the entry's row.
    pub(crate) fn draft_end_of_directory(
        &self,
        draft: &mut Draft,
        directory: &Subdirectory,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        let ino = directory.entry.ino;
        if let Some(upstream) = &self.options.upstream {
            upstream.will_remove(ino);
        }
        let entries = key::entries(ino);
        let body_key = key::entry(ino, b"");
        let (mut body, mut other) = (false, false);
        self.volume.scan(&entries, &mut Seen::default(), |row| {
            let is_body = row.key == body_key;
            (body, other) = (body || is_body, !is_body);
            Ok(if is_body { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if other {
            // A name that was created or removed since is in no row that was read, so the refusal is of the scan's
            // moment.
            return Err(PosixError::NotEmpty.into());
        }
        let guard = Guard::Key(directory.entry_key.clone());
        if body {
            let located = self.read_file(ino, b"", &mut one.seen)?.ok_or(Attempt::Conflict)?;
            if located.file.size > 0 {
                return Err(PosixError::NotEmpty.into());
            }
            self.draft_end_of_name(draft, (ino, ""), &located, one)?;
            draft.delete(body_key.clone());
            draft.assert_empty_but(&entries, &body_key, guard);
        } else {
            draft.assert_empty(entries, guard);
        }
        self.volume.release_directory(draft, &directory.entry)?;
        Ok(())
    }
}
