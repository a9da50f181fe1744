//! Requests about locks of programs, where other servers must see them.

use std::collections::BTreeSet;

use margay_volume::Ino;
use margay_volume::posix::{Kept, LockTaken};

use super::answer;
use crate::door::Door;
use crate::protocol::{Answer, Errno, LockWish, Node};

impl Door {
    pub(super) fn do_lock(&self, node: Node, handle: u64, wish: &LockWish) -> Answer<()> {
        let file = self.file(handle)?;
        file.lock_owners.lock().insert(wish.owner);
        match answer(self.mount.lock(&file.handle, wish))? {
            LockTaken::No => return Err(Errno::AGAIN),
            LockTaken::Yes(Kept::All) => {}
            LockTaken::Yes(Kept::Pages) => self.forget_attributes(node),
            // Whoever reads after this request sees what was published before it.
            LockTaken::Yes(Kept::Nothing) => self.forget_content(node),
        }
        Ok(())
    }

    pub(super) fn do_unlock(&self, handle: u64, wish: &LockWish) -> Answer<()> {
        let file = self.file(handle)?;
        answer(self.mount.unlock(&file.handle, wish))
    }

    pub(super) fn do_unlock_closed(&self, handle: u64, owner: u64) -> Answer<()> {
        let file = self.file(handle)?;
        answer(self.mount.unlock_all(file.handle.ino(), owner))?;
        file.lock_owners.lock().remove(&owner);
        Ok(())
    }

    /// The kernel closes a handle without a word of `flock`s and of locks of open file descriptions (F_OFD_SETLK): their owners are
    /// left. Each process that had it has closed it, so other owners are not.
    pub(super) fn unlock_owners(&self, file: Ino, owners: BTreeSet<u64>) -> Answer<()> {
        owners.into_iter().try_for_each(|owner| answer(self.mount.unlock_all(file, owner)))
    }
}
