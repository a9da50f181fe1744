//! Requests about locks of programs, where other servers must see them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_volume::Ino;
use margay_volume::posix::{Kept, LockTaken};

use super::answer;
use crate::door::Door;
use crate::protocol::{Answer, Errno, LockWish, Node};

/// Between two tries to give back what could not be given back when a file was closed.
const GIVE_BACK_EVERY: Duration = Duration::from_millis(500);

impl Door {
    pub(super) fn do_lock(&self, node: Node, handle: u64, wish: &LockWish) -> Answer<()> {
        let file = self.file(handle)?;
        file.lock_owners.lock().insert(wish.owner);
        match answer(self.mount.lock(&file.handle, &LockWish { handle: file.number, ..*wish }))? {
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
        answer(self.mount.unlock(&file.handle, &LockWish { handle: file.number, ..*wish }))
    }

    pub(super) fn do_unlock_closed(&self, handle: u64, owner: u64) -> Answer<()> {
        let file = self.file(handle)?;
        file.lock_owners.lock().remove(&owner);
        let unlocked = answer(self.mount.unlock_closed(file.handle.ino(), owner, file.number));
        self.give_back_later();
        unlocked
    }

    /// The kernel closes an open file without a word of `flock`s and of its own locks (F_OFD_SETLK): their owners are left. Each process
    /// that had it has closed it, so other owners are not.
    pub(super) fn unlock_owners(&self, file: Ino, number: u64, owners: BTreeSet<u64>) -> Answer<()> {
        let mut unlocked = Ok(());
        for owner in owners {
            unlocked = unlocked.and(answer(self.mount.unlock_ended(file, owner, number)));
        }
        self.give_back_later();
        unlocked
    }

    fn give_back_later(&self) {
        if !self.mount.owes_locks() || self.gives_back.swap(true, Ordering::AcqRel) {
            return;
        }
        let (mount, runs) = (Arc::clone(&self.mount), Arc::clone(&self.gives_back));
        let clock = Arc::clone(&self.env.clock);
        let run = move || {
            loop {
                while mount.owes_locks() {
                    clock.sleep(GIVE_BACK_EVERY);
                    mount.give_owed_locks_back();
                }
                runs.store(false, Ordering::Release);
                // Whoever owed one since the last look may have seen this thread.
                if !mount.owes_locks() || runs.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        };
        // Without a thread the next close tries again.
        if std::thread::Builder::new().name("fuse-unlock".to_owned()).spawn(run).is_err() {
            self.gives_back.store(false, Ordering::Release);
        }
    }
}
