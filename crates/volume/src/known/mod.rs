//! Files that kernels know by number: their locations (directory and name), and a lock per file.
//!
//! Why:        a kernel asks by number, but no durable row leads from a file back to its name, so the location is
//!             cached while a kernel may ask: in a table per mount, dropped on unmount, and in one for open files,
//!             which may outlive their mount.
//! Invariants: N1 a rename updates the location in every table, under the file's turn; if the entry at a location no
//!                longer has the number, the name was removed or given to another file.
//!             N2 a location is recorded under the file's turn (unless already recorded), so a location that a
//!                concurrent rename has left is never recorded.
//! Locking:    a turn (the file's lock) is held over an operation that changes or relies on the file's location. Where the
//!             engine waits, a turn is a claim on that one file, and no lock is held over a call.

mod claims;
mod locations;
mod pruning;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use claims::Claim;
use claims::Claims;
pub(crate) use locations::{Location, Locations};
use margay_rows::Ino;
use parking_lot::{Mutex, MutexGuard, RwLock};

const TURNS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Known {
    turns: Vec<Mutex<()>>,
    /// Instead of `turns` where the engine waits.
    claims: Option<Arc<Claims>>,
    /// Locations of open files, whoever opened them.
    open: Locations,
    mounts: RwLock<Vec<Arc<Locations>>>,
    moves: AtomicU64,
}

/// The turns of one or two files.
#[derive(Debug)]
#[allow(dead_code, reason = "holding them is what they are for")]
pub(crate) enum Turns<'a> {
    Locked(MutexGuard<'a, ()>, Option<MutexGuard<'a, ()>>),
    Claimed(Claim, Option<Claim>),
}

impl Known {
    /// `waits`: calls of the engine may take long.
    pub(crate) fn new(waits: bool) -> Known {
        Known {
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
            claims: waits.then(Arc::default),
            open: Locations::default(),
            mounts: RwLock::default(),
            moves: AtomicU64::new(0),
        }
    }

    /// Waits on this thread for the file's turn.
    pub(crate) fn turn(&self, ino: Ino) -> Turns<'_> {
        match &self.claims {
            Some(claims) => Turns::Claimed(claims.wait(ino), None),
            None => Turns::Locked(self.turns[ino.0 as usize % TURNS].lock(), None),
        }
    }

    /// The turns of two files, which may be the same.
    pub(crate) fn turns(&self, one: Ino, other: Ino) -> Turns<'_> {
        let (one, other) = (one.min(other), one.max(other));
        if let Some(claims) = &self.claims {
            let first = claims.wait(one);
            return Turns::Claimed(first, (one != other).then(|| claims.wait(other)));
        }
        let (low, high) = (one.0 as usize % TURNS, other.0 as usize % TURNS);
        let (low, high) = (low.min(high), low.max(high));
        let first = self.turns[low].lock();
        Turns::Locked(first, (low != high).then(|| self.turns[high].lock()))
    }

    /// The turns of those files of which nobody has them now, without waiting.
    pub(crate) fn try_turns<'k>(&'k self, files: &[Ino]) -> (Vec<Turns<'k>>, HashSet<Ino>) {
        let (mut turns, mut slots, mut had) = (Vec::new(), HashMap::new(), HashSet::new());
        let mut keep = |turn: Option<Turns<'k>>| {
            let is_had = turn.is_some();
            turns.extend(turn);
            is_had
        };
        for ino in files {
            let slot = ino.0 as usize % TURNS;
            let is_had = match &self.claims {
                Some(claims) => keep(claims.take(*ino).map(|claim| Turns::Claimed(claim, None))),
                // Several files may have one turn.
                None => *slots
                    .entry(slot)
                    .or_insert_with(|| keep(self.turns[slot].try_lock().map(|turn| Turns::Locked(turn, None)))),
            };
            if is_had {
                had.insert(*ino);
            }
        }
        (turns, had)
    }

    /// The file's turn where the engine waits, for a thread that must not; `None` if somebody has it.
    pub(crate) fn claim(&self, ino: Ino) -> Option<Claim> {
        self.claims.as_ref().expect("the engine waits").take(ino)
    }

    /// Starts the table of another kernel, until [`Known::end`].
    pub(crate) fn begin(&self) -> Arc<Locations> {
        let locations = Arc::new(Locations::default());
        self.mounts.write().push(Arc::clone(&locations));
        locations
    }

    /// That kernel has unmounted.
    pub(crate) fn end(&self, locations: &Arc<Locations>) {
        self.mounts.write().retain(|other| !Arc::ptr_eq(other, locations));
        locations.clear();
    }

    /// See [`Locations::content_went`].
    pub(crate) fn content_went(&self, ino: Ino, from: u64, to: u64) {
        self.mounts.read().iter().for_each(|locations| locations.content_went(ino, from, to));
    }

    /// The file was opened; its turn is held, or nobody else can know it yet.
    pub(crate) fn opened(&self, ino: Ino, parent: Ino, sort_name: &str) {
        self.open.remember(ino, parent, sort_name);
    }

    /// The file was closed; its turn is held.
    pub(crate) fn closed(&self, ino: Ino) {
        self.open.forget(ino, 1);
    }

    /// A recorded location of the file. Tables may record different names of a hard-linked file.
    pub(crate) fn location(&self, ino: Ino) -> Option<Location> {
        self.open.location(ino).or_else(|| self.mounts.read().iter().find_map(|locations| locations.location(ino)))
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.open.contains(ino) || self.mounts.read().iter().any(|locations| locations.contains(ino))
    }

    /// The file was moved to another location; its turn is held.
    pub(crate) fn moved(&self, ino: Ino, parent: Ino, sort_name: &str) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        self.open.moved(ino, parent, sort_name);
        for locations in self.mounts.read().iter() {
            locations.moved(ino, parent, sort_name);
        }
    }

    /// The number of moves so far. A caller that reads this count, then a location, takes the file's turn and finds the
    /// count unchanged, knows that the file was not moved in between: a rename is counted before its turn is released.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Numbers that kernels know, counted per kernel.
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
    fn turns_that_somebody_has_are_not_waited_for() {
        for waits in [false, true] {
            let known = Known::new(waits);
            let held = known.turn(Ino(5));
            let files = [Ino(4), Ino(5), Ino(6), Ino(6 + TURNS as u64)];
            let (turns, had) = known.try_turns(&files);
            assert_eq!(had, HashSet::from([files[0], files[2], files[3]]), "waits: {waits}");
            drop((turns, held));
            assert_eq!(known.try_turns(&files).1.len(), 4);
        }
    }

    #[test]
    fn what_a_kernel_knew_goes_with_it_and_with_nobody_else() {
        let known = Known::new(false);
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
        let known = Known::new(false);
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
        let known = Known::new(false);
        drop(known.turns(Ino(3), Ino(3 + TURNS as u64)));
        drop(known.turns(Ino(9), Ino(3)));
        let known = Known::new(true);
        drop(known.turns(Ino(3), Ino(3)));
        drop(known.turns(Ino(9), Ino(3)));
    }

    #[test]
    fn where_the_engine_waits_no_two_files_share_a_turn() {
        let known = Known::new(true);
        let _held: Vec<_> = (0..2 * TURNS as u64).map(|number| known.turn(Ino(number))).collect();
        assert!(known.claim(Ino(3)).is_none() && known.claim(Ino(2 * TURNS as u64)).is_some());
    }
}
