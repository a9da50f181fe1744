//! Payload on a disk that has come back: kept beside, until another copy is right.
//!
//! Why:        what others have, too, is copied again, and while it is, an old copy may be the only one without a bad sector.
//! Invariants: B1 a copy in doubt has a name of its own, so that no start takes it for a right one; the name says when its disk left.
//!             B2 it becomes a right one only if nobody has another that is right, and no disk that is still out left later.
//!             B3 it is removed only when its disk has a new copy, or enough others have one.
//! Locking:    `names`, then an entry's `inner`.
//! Not here:   when a disk comes back (admit), copying (fill).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::class::{Class, DATA_FOLDER, doubtful_name, in_doubt};
use crate::entry::{Copy, Entry, Inner};
use crate::member::Member;
use crate::record::State;

impl Catalogue {
    /// Copies in doubt in a member's directory: segment and order of leaving.
    pub(crate) fn files_in_doubt(&self, member: &Member) -> io::Result<Vec<(PathBuf, u64)>> {
        let listed = match self.env.disk.list(&member.path(Path::new(DATA_FOLDER))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        Ok(listed.iter().filter(|entry| !entry.is_dir).filter_map(|entry| in_doubt(&entry.name)).collect())
    }

    /// Whether a disk that is out may have something newer than one that left then.
    pub(crate) fn may_be_older(&self, left: u64) -> bool {
        self.members().iter().any(|member| member.state(Class::Data) == State::Out && member.left() > left)
    }

    /// The newest copy that is complete and does not count, if no disk that is out may have a newer one.
    pub(crate) fn best_of_doubtful<'a>(&self, inner: &'a Inner) -> Option<&'a Copy> {
        let best = inner.copies.iter().filter(|copy| copy.complete).max_by_key(|copy| copy.left())?;
        (!self.may_be_older(best.left())).then_some(best)
    }

    /// Of files that nobody else has, the newest copy in doubt counts again.
    pub(crate) fn promote(&self) {
        let entries: Vec<Arc<Entry>> = self.names.lock().entries.values().cloned().collect();
        for entry in entries.iter().filter(|entry| entry.class == Class::Data) {
            let is_needed = {
                let inner = entry.inner.read();
                inner.readable(Class::Data) == 0 && inner.copies.iter().any(|copy| copy.doubt.is_some())
            };
            if !is_needed {
                continue;
            }
            // No name changes meanwhile.
            let _names = self.names.lock();
            let mut inner = entry.inner.write();
            if let Err(error) = self.promote_one(&mut inner) {
                tracing::warn!(file = %inner.name.display(), %error, "the only copy stays in doubt");
            }
        }
    }

    fn promote_one(&self, inner: &mut Inner) -> io::Result<()> {
        if inner.removed || inner.readable(Class::Data) > 0 {
            return Ok(());
        }
        let Some(best) = self.best_of_doubtful(inner) else { return Ok(()) };
        let Some(left) = best.doubt.filter(|_| best.member.state(Class::Data).is_living()) else { return Ok(()) };
        let member = Arc::clone(&best.member);
        self.env.disk.rename(&member.path(&doubtful_name(&inner.name, left)), &member.path(&inner.name))?;
        self.env.disk.sync_dir(&member.path(Path::new(DATA_FOLDER)))?;
        inner.copies.retain(|copy| copy.member.id != member.id);
        inner.copies.push(Copy::new(&member, true, None));
        Ok(())
    }

    /// Removes copies in doubt of files that have enough others.
    pub(crate) fn drop_doubtful(&self) {
        let wanted = self.copies_wanted(Class::Data);
        let entries: Vec<Arc<Entry>> = self.names.lock().entries.values().cloned().collect();
        for entry in entries.iter().filter(|entry| entry.class == Class::Data) {
            let has_some = entry.inner.read().copies.iter().any(|copy| copy.doubt.is_some());
            if has_some && entry.inner.read().whole(Class::Data) >= wanted {
                self.remove_doubtful(&mut entry.inner.write(), |_| true);
            }
        }
    }

    /// Removes copies in doubt on some members. One that stays is removed when the volume is opened.
    pub(crate) fn remove_doubtful(&self, inner: &mut Inner, of: impl Fn(&Member) -> bool) {
        let Inner { name, copies, .. } = inner;
        copies.retain(|copy| {
            let Some(left) = copy.doubt.filter(|_| of(&copy.member)) else { return true };
            drop(self.env.disk.remove(&copy.member.path(&doubtful_name(name, left))));
            false
        });
    }
}
