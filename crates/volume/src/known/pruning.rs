//! Chooses files that a kernel should forget, by the clock algorithm: those not used since the last sweep.
//!
//! Why:        a kernel with free memory keeps every inode that it saw, and each costs memory here too.
//! Invariants: G1 a file is chosen only when the hand has gone around completely since its last use.
//!             G2 a file that was chosen but stays, because it is open, is skipped the next time.
//! Locking:    one shard at a time.
//! Not here:   sending the request, and when (the POSIX door).

use std::sync::atomic::Ordering;

use margay_rows::Ino;

use super::locations::{Locations, SHARDS};

/// State of a file for the clock algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Looked up, or requested by number, since the hand passed.
    Used,
    Idle,
    /// The kernel was asked to forget it.
    Asked,
}

impl Locations {
    /// Files that the kernel should forget: the unused ones of as many shards as yield `least`, or of all. A shard is
    /// taken as a whole, so there may be more. After a burst of new files the first call yields none.
    pub(crate) fn choose(&self, least: usize) -> Vec<Ino> {
        let mut chosen = Vec::new();
        // One full sweep, so that files in use can show it between two calls.
        for _ in 0..SHARDS {
            if chosen.len() >= least {
                break;
            }
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            for (ino, node) in self.shards[at].lock().iter_mut() {
                node.age = match node.age {
                    Age::Used | Age::Asked => Age::Idle,
                    Age::Idle => {
                        chosen.push(*ino);
                        Age::Asked
                    }
                };
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FILES: u64 = 100 * SHARDS as u64;

    fn full() -> Locations {
        let locations = Locations::default();
        (0..FILES).for_each(|number| locations.remember(Ino(number), Ino(1), "a"));
        locations
    }

    #[test]
    fn idle_files_are_chosen_once_and_shards_whole() {
        let locations = full();
        assert!(locations.choose(1).is_empty(), "all are new");
        let mut seen = HashSet::new();
        for _ in 0..SHARDS {
            let chosen = locations.choose(1);
            assert_eq!(chosen.len(), 100);
            chosen.iter().for_each(|ino| assert!(seen.insert(*ino), "{ino:?} is asked back before all others were"));
        }
        assert_eq!(seen.len(), FILES as usize);
        // A file that stays is skipped once.
        assert!(locations.choose(1).is_empty());
        assert_eq!(locations.choose(201).len(), 300);
        assert!(locations.choose(0).is_empty());
    }

    #[test]
    fn what_is_used_stays_while_others_are_idle() {
        let locations = full();
        let used = |ino: &Ino| ino.0.is_multiple_of(7);
        let mut gone = 0;
        for _ in 0..2 * SHARDS {
            let chosen = locations.choose(100);
            assert!(!chosen.iter().any(used), "a file was asked back that is in use");
            chosen.iter().for_each(|ino| locations.forget(*ino, 1));
            gone += chosen.len();
            for ino in (0..FILES).map(Ino).filter(used) {
                // Every kind of use counts.
                match ino.0 % 3 {
                    0 => assert!(locations.remember_again(ino, Ino(1), "a")),
                    1 => assert!(locations.count(ino)),
                    _ => assert!(locations.location(ino).is_some()),
                }
            }
        }
        assert_eq!(gone, (0..FILES).map(Ino).filter(|ino| !used(ino)).count());
    }
}
