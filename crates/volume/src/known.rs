//! Files that a kernel knows by number: where their names are, and who takes turns on them.
//!
//! Why:        an entry is found by name, a kernel asks by number; a file has no durable row that leads back to its
//!             name, so the place is kept in memory for as long as the kernel may ask.
//! Invariants: N1 a place is changed by whoever renames the file, in its turn; a place that no longer holds the
//!                number means that the name is gone or was given to another file.
//!             N2 a number is forgotten when as many lookups were forgotten as were made.
//! Locking:    a turn is held over an operation that changes or relies on where a file is; the shards only for one
//!             step. Directories need no place: their records have it; they are here to be counted.
//! Not here:   open files (open_files).

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use crate::key::Ino;

const SHARDS: usize = 64;
const TURNS: usize = 1024;

/// A file's directory and its sort name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: Ino,
    pub(crate) sort_name: String,
}

#[derive(Debug)]
struct Node {
    place: Place,
    lookups: u64,
}

#[derive(Debug)]
pub(crate) struct Known {
    shards: Vec<Mutex<HashMap<Ino, Node>>>,
    turns: Vec<Mutex<()>>,
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
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            turns: (0..TURNS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Known {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Node>> {
        self.shards[ino.0 as usize % SHARDS].lock()
    }

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

    /// One more lookup of a file that is here.
    pub(crate) fn remember(&self, ino: Ino, parent: Ino, sort_name: &str) {
        let mut shard = self.shard(ino);
        match shard.get_mut(&ino) {
            Some(node) => {
                node.lookups += 1;
                if node.place.parent != parent || node.place.sort_name != sort_name {
                    node.place = Place { parent, sort_name: sort_name.to_owned() };
                }
            }
            None => {
                let place = Place { parent, sort_name: sort_name.to_owned() };
                shard.insert(ino, Node { place, lookups: 1 });
            }
        }
    }

    /// One more lookup of a file that is here, if this place is no news.
    pub(crate) fn remember_again(&self, ino: Ino, parent: Ino, sort_name: &str) -> bool {
        match self.shard(ino).get_mut(&ino) {
            Some(node) if node.place.parent == parent && node.place.sort_name == sort_name => {
                node.lookups += 1;
                true
            }
            _ => false,
        }
    }

    /// One more lookup of a file that is known; where it is stays as it was.
    pub(crate) fn count(&self, ino: Ino) -> bool {
        self.shard(ino).get_mut(&ino).map(|node| node.lookups += 1).is_some()
    }

    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        let mut shard = self.shard(ino);
        if let Some(node) = shard.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 {
                shard.remove(&ino);
            }
        }
    }

    pub(crate) fn place(&self, ino: Ino) -> Option<Place> {
        self.shard(ino).get(&ino).map(|node| node.place.clone())
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }

    /// The file is at another place now; its turn is held.
    pub(crate) fn moved(&self, ino: Ino, parent: Ino, sort_name: &str) {
        if let Some(node) = self.shard(ino).get_mut(&ino) {
            node.place = Place { parent, sort_name: sort_name.to_owned() };
        }
    }

    /// Shows every number with its place.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(Ino, Ino, &str)) {
        for shard in &self.shards {
            for (ino, node) in shard.lock().iter() {
                visit(*ino, node.place.parent, &node.place.sort_name);
            }
        }
    }

    /// Numbers that are held.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_forgotten_with_its_last_lookup() {
        let known = Known::default();
        known.remember(Ino(7), Ino(1), "a");
        known.remember(Ino(7), Ino(1), "b");
        known.forget(Ino(7), 1);
        assert_eq!(known.place(Ino(7)), Some(Place { parent: Ino(1), sort_name: "b".to_owned() }));
        known.forget(Ino(7), 1);
        assert!(!known.contains(Ino(7)));
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn two_turns_on_one_file_do_not_wait_for_each_other() {
        let known = Known::default();
        drop(known.turns(Ino(3), Ino(3 + TURNS as u64)));
        drop(known.turns(Ino(9), Ino(3)));
    }
}
