//! The files that one kernel knows, each with its location and lookup count.
//!
//! Invariants: L1 a number is dropped when the kernel has forgotten as many lookups as were made.
//!             L2 `count` is the number of nodes in all shards; it changes under the lock of the changed shard.
//!             L3 a thread that waits for the count to exceed a limit is woken by the insertion that exceeds it.
//! Locking:    one shard, for one operation; the waiter's lock is never held together with one.
//! Not here:   turns, several kernels (the module above), choosing files to prune (pruning).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_rows::Ino;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::pruning::Age;

pub(super) const SHARDS: usize = 64;
/// A shard is shrunk when its capacity is this many times its size.
const ROOM_FACTOR_MAX: usize = 4;
/// A shard with at most this capacity is not shrunk.
const ROOM_KEPT: usize = 1024;

/// A file's directory, and its sort name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) parent: Ino,
    pub(crate) sort_name: Box<str>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) location: Location,
    pub(super) lookups: u64,
    pub(super) age: Age,
    /// Identifies the content of which the kernel may have pages; 0: not known.
    content: u64,
}

pub(super) type Shard = HashMap<Ino, Node>;

#[derive(Debug)]
pub(crate) struct Locations {
    pub(super) shards: Vec<Mutex<Shard>>,
    /// The clock hand: the next shard to examine for pruning.
    pub(super) hand: AtomicUsize,
    count: AtomicUsize,
    /// The insertion that reaches this count wakes the waiter.
    awaited: AtomicUsize,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Default for Locations {
    fn default() -> Locations {
        Locations {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hand: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            awaited: AtomicUsize::new(usize::MAX),
            closed: Mutex::new(false),
            changed: Condvar::new(),
        }
    }
}

impl Locations {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        self.shards[ino.0 as usize % SHARDS].lock()
    }

    /// Counts another lookup of a file at this location.
    pub(crate) fn remember(&self, ino: Ino, parent: Ino, sort_name: &str) {
        let mut shard = self.shard(ino);
        if let Some(node) = shard.get_mut(&ino) {
            node.lookups += 1;
            node.age = Age::Used;
            if node.location.parent != parent || *node.location.sort_name != *sort_name {
                node.location = Location { parent, sort_name: sort_name.into() };
            }
            return;
        }
        let location = Location { parent, sort_name: sort_name.into() };
        shard.insert(ino, Node { location, lookups: 1, age: Age::Used, content: 0 });
        let before = self.count.fetch_add(1, Ordering::SeqCst);
        drop(shard);
        // Sequentially consistent with `wait_above`, so that one of the two sees the other's store.
        if before == self.awaited.load(Ordering::SeqCst) {
            drop(self.closed.lock());
            self.changed.notify_all();
        }
    }

    /// Counts another lookup, if this location is already recorded.
    pub(crate) fn remember_again(&self, ino: Ino, parent: Ino, sort_name: &str) -> bool {
        match self.shard(ino).get_mut(&ino) {
            Some(node) if node.location.parent == parent && *node.location.sort_name == *sort_name => {
                node.lookups += 1;
                node.age = Age::Used;
                true
            }
            _ => false,
        }
    }

    /// Counts another lookup of a known file, and keeps its location.
    pub(crate) fn count(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino);
        let Some(node) = shard.get_mut(&ino) else { return false };
        node.lookups += 1;
        node.age = Age::Used;
        true
    }

    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        let mut shard = self.shard(ino);
        let Some(node) = shard.get_mut(&ino) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        shard.remove(&ino);
        assert!(self.count.fetch_sub(1, Ordering::SeqCst) > 0, "a node that goes was counted (L2)");
        if shard.capacity() > ROOM_KEPT && shard.len() < shard.capacity() / ROOM_FACTOR_MAX {
            let room = shard.len() * 2;
            shard.shrink_to(room);
        }
    }

    /// The location for a request by number, which counts as a use.
    pub(crate) fn location(&self, ino: Ino) -> Option<Location> {
        self.shard(ino).get_mut(&ino).map(|node| {
            node.age = Age::Used;
            node.location.clone()
        })
    }

    /// The kernel may have pages of this content from now on; gives what it was before (0: not known).
    pub(crate) fn content_is(&self, ino: Ino, content: u64) -> u64 {
        self.shard(ino).get_mut(&ino).map_or(0, |node| std::mem::replace(&mut node.content, content))
    }

    /// A kernel that had pages of the one content has those of the other: it wrote them.
    pub(super) fn content_went(&self, ino: Ino, from: u64, to: u64) {
        if let Some(node) = self.shard(ino).get_mut(&ino)
            && node.content == from
        {
            node.content = to;
        }
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }

    /// See [`super::Known::moved`].
    pub(super) fn moved(&self, ino: Ino, parent: Ino, sort_name: &str) {
        if let Some(node) = self.shard(ino).get_mut(&ino) {
            node.location = Location { parent, sort_name: sort_name.into() };
        }
    }

    /// Calls `visit` with every number and its location.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(Ino, Ino, &str)) {
        for shard in &self.shards {
            for (ino, node) in shard.lock().iter() {
                visit(*ino, node.location.parent, &node.location.sort_name);
            }
        }
    }

    /// Drops all numbers, whatever their lookup counts, and frees their memory.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let gone = std::mem::take(&mut *shard);
            self.count.fetch_sub(gone.len(), Ordering::SeqCst);
            drop(shard);
        }
    }

    /// Number of known files.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until the count exceeds `most`, up to `longest`; false when [`Locations::close`] ended it. For one thread.
    pub(crate) fn wait_above(&self, most: usize, longest: Option<Duration>) -> bool {
        let mut closed = self.closed.lock();
        self.awaited.store(most, Ordering::SeqCst);
        let mut more = |closed: &mut bool| !*closed && self.len() <= most;
        match longest {
            Some(longest) => {
                self.changed.wait_while_for(&mut closed, &mut more, longest);
            }
            None => self.changed.wait_while(&mut closed, &mut more),
        }
        self.awaited.store(usize::MAX, Ordering::SeqCst);
        !*closed
    }

    /// Ends [`Locations::wait_above`].
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_file_is_forgotten_with_its_last_lookup() {
        let locations = Locations::default();
        locations.remember(Ino(7), Ino(1), "a");
        locations.remember(Ino(7), Ino(1), "b");
        locations.forget(Ino(7), 1);
        assert_eq!(locations.location(Ino(7)), Some(Location { parent: Ino(1), sort_name: "b".into() }));
        locations.forget(Ino(7), 1);
        assert!(!locations.contains(Ino(7)));
        locations.forget(Ino(7), 1);
        assert_eq!(locations.len(), 0);
    }

    #[test]
    fn room_for_what_is_forgotten_is_given_back() {
        let locations = Locations::default();
        let numbers = || (0..4 * SHARDS * ROOM_KEPT).map(|number| Ino(number as u64));
        let room = || locations.shards.iter().map(|shard| shard.lock().capacity()).sum::<usize>();
        numbers().for_each(|ino| locations.remember(ino, Ino(1), "a"));
        let full = room();
        numbers().filter(|ino| !ino.0.is_multiple_of(100)).for_each(|ino| locations.forget(ino, 1));
        assert!(room() < full / 2, "room for {} of {full}", room());
        assert_eq!(locations.len(), numbers().filter(|ino| ino.0.is_multiple_of(100)).count());
        locations.clear();
        assert_eq!((locations.len(), room()), (0, 0));
    }

    #[test]
    fn one_file_too_many_wakes_who_waits() {
        let locations = Arc::new(Locations::default());
        (0..10).for_each(|number| locations.remember(Ino(number), Ino(1), "a"));
        assert!(locations.wait_above(9, None));
        assert!(locations.wait_above(10, Some(Duration::ZERO)));
        // Only now: one thread waits at a time, or the end of one wait would take the other's mark away.
        let waiting = Arc::clone(&locations);
        let thread = std::thread::spawn(move || (waiting.wait_above(10, None), waiting.wait_above(11, None)));
        locations.remember(Ino(10), Ino(1), "a");
        while locations.awaited.load(Ordering::SeqCst) != 11 {
            std::thread::yield_now();
        }
        locations.close();
        assert_eq!(thread.join().unwrap(), (true, false));
    }
}
