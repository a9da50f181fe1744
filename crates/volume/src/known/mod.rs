//! Files that kernels know by number: where their names are, and who takes turns on them.
//!
//! Why:        an entry is found by name, a kernel asks by number; a file has no durable row that leads back to its
//!             name, so the location is kept in memory for as long as somebody may ask. Each mount keeps its own, because
//!             a kernel that unmounts forgets everything without saying so: what it knew goes with its mount. Open
//!             files are kept apart, since they may outlive the mount that opened them.
//! Invariants: N1 a location is changed wherever it is kept by whoever renames the file, in its turn; a location that no
//!                longer holds the number means that the name is gone or was given to another file.
//!             N2 a location is recorded under the file's turn (unless it is recorded already), so a location that a
//!                concurrent rename has left is never recorded.
//! Locking:    a turn is held over an operation that changes or relies on where a file is; the list of mounts and the
//!             shards below only for one step. Directories need no location: their records have it; they are here to be
//!             counted.
//! Not here:   what one mount's kernel knows (locations), which of it is asked back (pruning), open files (open_files).

mod locations;
mod pruning;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use locations::{Location, Locations};
use margay_rows::Ino;
use parking_lot::{Mutex, MutexGuard, RwLock};

const TURNS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Known {
    turns: Vec<Mutex<()>>,
    /// Files that are open, whoever opened them.
    open: Locations,
    mounts: RwLock<Vec<Arc<Locations>>>,
    moves: AtomicU64,
}

/// Turns on one or two files.
#[derive(Debug)]
pub(crate) struct Turns<'a> {
    #[allow(dead_code, reason = "holding them is what they are for")]
    guards: (MutexGuard<'a, ()>, Option<MutexGuard<'a, ()>>),
}

impl Default for Known {
    fn default() -> Known {
        Known {
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
            open: Locations::default(),
            mounts: RwLock::default(),
            moves: AtomicU64::new(0),
        }
    }
}

impl Known {
    pub(crate) fn turn(&self, ino: Ino) -> Turns<'_> {
        Turns { guards: (self.turns[ino.0 as usize % TURNS].lock(), None) }
    }

    /// Turns on two files, which may be one.
    pub(crate) fn turns(&self, one: Ino, other: Ino) -> Turns<'_> {
        let (low, high) = (one.0 as usize % TURNS, other.0 as usize % TURNS);
        let (low, high) = (low.min(high), low.max(high));
        let first = self.turns[low].lock();
        Turns { guards: (first, (low != high).then(|| self.turns[high].lock())) }
    }

    /// What one more kernel knows, until [`Known::end`].
    pub(crate) fn begin(&self) -> Arc<Locations> {
        let locations = Arc::new(Locations::default());
        self.mounts.write().push(Arc::clone(&locations));
        locations
    }

    /// That kernel asks no more.
    pub(crate) fn end(&self, locations: &Arc<Locations>) {
        self.mounts.write().retain(|other| !Arc::ptr_eq(other, locations));
        locations.clear();
    }

    /// The file is open now; its turn is held, or nobody else can know it yet.
    pub(crate) fn opened(&self, ino: Ino, parent: Ino, sort_name: &str) {
        self.open.remember(ino, parent, sort_name);
    }

    /// The file is not open any more; its turn is held.
    pub(crate) fn closed(&self, ino: Ino) {
        self.open.forget(ino, 1);
    }

    /// Where the file is to whoever keeps it. A file with several names may be at one of them to one, at another to
    /// another.
    pub(crate) fn location(&self, ino: Ino) -> Option<Location> {
        self.open.location(ino).or_else(|| self.mounts.read().iter().find_map(|locations| locations.location(ino)))
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.open.contains(ino) || self.mounts.read().iter().any(|locations| locations.contains(ino))
    }

    /// The file is at another location now; its turn is held.
    pub(crate) fn moved(&self, ino: Ino, parent: Ino, sort_name: &str) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        self.open.moved(ino, parent, sort_name);
        for locations in self.mounts.read().iter() {
            locations.moved(ino, parent, sort_name);
        }
    }

    /// How many files were moved so far. Who counts them, reads where a file is, takes its turn, and finds the count as it was,
    /// knows that the file was not moved in between: a rename is counted before its turn ends.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Numbers that kernels hold, each counted once for each of them.
    pub(crate) fn len(&self) -> usize {
        self.mounts.read().iter().map(|locations| locations.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(sort_name: &str) -> Option<Location> {
        Some(Location { parent: Ino(1), sort_name: sort_name.into() })
    }

    #[test]
    fn what_a_kernel_knew_goes_with_it_and_with_nobody_else() {
        let known = Known::default();
        let (one, other) = (known.begin(), known.begin());
        one.remember(Ino(7), Ino(1), "a");
        one.remember(Ino(8), Ino(1), "b");
        other.remember(Ino(7), Ino(1), "a");
        known.opened(Ino(8), Ino(1), "b");
        known.end(&one);
        assert_eq!((known.len(), one.len(), other.len()), (1, 0, 1));
        assert_eq!(known.location(Ino(7)), location("a"));
        assert_eq!(known.location(Ino(8)), location("b"));
        known.closed(Ino(8));
        assert!(!known.contains(Ino(8)));
        known.end(&other);
        assert!(!known.contains(Ino(7)));
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn a_move_is_seen_wherever_the_file_is_kept() {
        let known = Known::default();
        let (one, other) = (known.begin(), known.begin());
        one.remember(Ino(7), Ino(1), "a");
        known.opened(Ino(7), Ino(1), "a");
        known.moved(Ino(7), Ino(1), "b");
        assert_eq!(
            (known.location(Ino(7)), one.location(Ino(7)), other.location(Ino(7))),
            (location("b"), location("b"), None)
        );
        known.closed(Ino(7));
        assert_eq!(known.location(Ino(7)), location("b"));
    }

    #[test]
    fn two_turns_on_one_file_do_not_wait_for_each_other() {
        let known = Known::default();
        drop(known.turns(Ino(3), Ino(3 + TURNS as u64)));
        drop(known.turns(Ino(9), Ino(3)));
    }
}
