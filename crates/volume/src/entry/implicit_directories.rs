//! Removes implicit directories with their last entry.
//!
//! Why:        S3 has no directories, so an implicit directory, created by a PUT on its way, disappears when it is
//!                empty.
//! Invariants: I1 a directory is removed with its entry's version and its emptiness asserted; a directory that stays
//!                because of another entry has that entry's existence asserted. So no entry is lost and no implicit
//!                directory stays empty.
//! Locking:    the caller holds the directory's latch over the reads and the commit: concurrent removals would
//!             otherwise each rely on the entry that the other is about to remove.
//! Not here:   creating them (paths), explicit directories (make_directory, posix).

use std::ops::ControlFlow;

use margay_meta::Guard;
use margay_rows::record::DirectoryEntry;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::cache::Step;
use crate::draft::{Draft, Seen};
use crate::entry::current::Current;
use crate::entry::paths::Walk;
use crate::open::Volume;

impl Volume {
    /// Drafts the removal of an entry and of implicit directories that become empty. Removing the object `a/` of an
    /// explicit directory makes the directory implicit.
    pub(crate) fn draft_entry_gone(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        current: &Current<'_>,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        if current.file.is_some() {
            draft.delete(current.entry_key.clone());
        }
        let mut steps = walk.path.steps.clone();
        match steps.last_mut() {
            // The object `a/` is removed, so the directory becomes implicit.
            Some(step) if current.name.is_empty() && step.entry.explicit => {
                step.entry.explicit = false;
                draft.put(step.key.clone(), step.entry.encode());
            }
            _ => {}
        }
        self.vacate(draft, walk.path.bucket.root, &steps, (current.entry_key.clone(), &[]), seen)
    }

    /// Drafts the removal of implicit directories that contain nothing but `gone`, from the last step upwards;
    /// directories in `kept` stay. The caller asserts the steps.
    pub(crate) fn vacate(
        &self,
        draft: &mut Draft,
        root: Ino,
        steps: &[Step],
        (mut gone, kept): (Vec<u8>, &[Ino]),
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let now = self.now().0.max(0) as u64;
        for (depth, step) in steps.iter().enumerate().rev() {
            let DirectoryEntry { ino, explicit, .. } = step.entry;
            if explicit || kept.contains(&ino) {
                draft.max(key::times(ino), now);
                return Ok(());
            }
            if let Some(other) = self.another_entry(ino, &gone, seen)? {
                draft.assert_exists(other);
                draft.max(key::times(ino), now);
                return Ok(());
            }
            draft.assert_empty_but(&key::entries(ino), &gone, Guard::Key(step.key.clone()));
            draft.delete(step.key.clone());
            let parent = if depth == 0 { root } else { steps[depth - 1].entry.ino };
            draft.add(key::subdirectories(parent), -1);
            self.release_directory(draft, &step.entry)?;
            gone.clone_from(&step.key);
        }
        draft.max(key::times(root), now);
        Ok(())
    }

    /// An entry of a directory other than `but`.
    fn another_entry(&self, directory: Ino, but: &[u8], seen: &mut Seen) -> Result<Option<Vec<u8>>, Error> {
        let mut other = None;
        for range in key::entries_beside(directory, but) {
            self.scan(&range, seen, |row| {
                other = Some(row.key.to_vec());
                Ok(ControlFlow::Break(()))
            })?;
            if other.is_some() {
                break;
            }
        }
        Ok(other)
    }
}
