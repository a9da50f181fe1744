//! Claims on single files: turns for engines whose calls wait.
//!
//! Why:        a turn is held until a commit is answered. If many files shared one, a stalled call would hold up files that
//!             have nothing to do with it.
//! Invariants: C1 a file is claimed by one holder at a time, and no two files share a claim.
//!             C2 two files are claimed in the order of their numbers, so holders do not wait for each other in a circle.
//! Locking:    a leaf lock per shard, held for one step; never while a call of the engine is under way.
//! Not here:   turns where the engine does not wait (the module above).

use std::collections::HashSet;
use std::sync::Arc;

use margay_rows::Ino;
use parking_lot::{Condvar, Mutex};

const SHARDS: usize = 64;

#[derive(Debug)]
pub(super) struct Claims {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    claimed: Mutex<HashSet<Ino>>,
    freed: Condvar,
}

/// Ends when it is dropped. It may outlive the attempt that made it.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    ino: Ino,
}

impl Default for Claims {
    fn default() -> Claims {
        Claims { shards: std::array::from_fn(|_| Shard::default()) }
    }
}

impl Claims {
    fn shard(&self, ino: Ino) -> &Shard {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Waits on this thread until nobody else has the file.
    pub(super) fn wait(self: &Arc<Claims>, ino: Ino) -> Claim {
        let shard = self.shard(ino);
        let mut claimed = shard.claimed.lock();
        while !claimed.insert(ino) {
            shard.freed.wait(&mut claimed);
        }
        Claim { claims: Arc::clone(self), ino }
    }

    /// `None` if somebody has the file.
    pub(super) fn take(self: &Arc<Claims>, ino: Ino) -> Option<Claim> {
        let is_free = self.shard(ino).claimed.lock().insert(ino);
        is_free.then(|| Claim { claims: Arc::clone(self), ino })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let shard = self.claims.shard(self.ino);
        let was_claimed = shard.claimed.lock().remove(&self.ino);
        assert!(was_claimed, "a claim ends once");
        shard.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_claimed_once_and_its_neighbours_are_free() {
        let claims = Arc::new(Claims::default());
        let held = claims.take(Ino(7)).unwrap();
        assert!(claims.take(Ino(7)).is_none());
        // In the same shard.
        assert!(claims.take(Ino(7 + SHARDS as u64)).is_some());
        let waiting = Arc::clone(&claims);
        let thread = std::thread::spawn(move || drop(waiting.wait(Ino(7))));
        drop(held);
        thread.join().unwrap();
        assert!(claims.take(Ino(7)).is_some());
    }
}
