//! Where the open files of this process may be, by the feed of changes: other processes rename them too.
//!
//! Why:        an open file is published under its present name. A row or a call per open file would tell where that is,
//!             and cost each open; the feed tells it to those who ask.
//! Invariants: M1 a commit that puts an entry at another name writes both, so a file that was at one of its places is
//!                at one of them still, or at another entry of a commit that wrote one of them.
//!             M2 a file is noted with its place before the follower reads any commit behind the state in which it was
//!                there; otherwise `opened` says so.
//!             M3 where commits were missed, or there are too many places, the trail is lost and everything is searched.
//! Locking:    a leaf lock. It covers a whole page of the feed, so a file is noted before or after it.
//! Not here:   reading the feed (follower), reading the rows at the places (posix::moved).

use std::collections::{BTreeSet, HashMap, HashSet};

use margay_meta::{Change, Cursor};
use margay_rows::Ino;
use margay_rows::key::Table;
use parking_lot::Mutex;

/// A commit with more entries of files renames none: it is a removal of many.
const ENTRIES_MAX: usize = 16;
/// With more places the trail is lost.
const PLACES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Trails {
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// The follower has read the commits up to this one.
    read: Cursor,
    files: HashMap<Ino, Trail>,
    /// The files that may be at each place.
    at: HashMap<Vec<u8>, HashSet<Ino>>,
}

/// Where one open file may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trail {
    /// Keys of entries.
    pub(crate) places: BTreeSet<Vec<u8>>,
    /// Number of commits that may have moved it.
    pub(crate) moves: u64,
    pub(crate) lost: bool,
}

impl Trails {
    /// An open file is at this entry, as of a read or commit. False if the follower has read later commits: the caller
    /// reads the entry again.
    pub(crate) fn opened(&self, ino: Ino, entry: Vec<u8>, observed: Cursor) -> bool {
        let mut noted = self.noted.lock();
        noted.files.insert(ino, Trail::default());
        noted.put(ino, entry);
        noted.read <= observed
    }

    pub(crate) fn closed(&self, ino: Ino) {
        let mut noted = self.noted.lock();
        if let Some(trail) = noted.files.remove(&ino) {
            trail.places.iter().for_each(|place| noted.leave(ino, place));
        }
    }

    /// The file may be anywhere.
    pub(crate) fn lost(&self, ino: Ino) {
        if let Some(trail) = self.noted.lock().files.get_mut(&ino) {
            trail.lost = true;
        }
    }

    /// All files may be anywhere: commits up to this one were not read.
    pub(crate) fn all_lost(&self, read: Cursor) {
        let mut noted = self.noted.lock();
        noted.files.values_mut().for_each(|trail| trail.lost = true);
        noted.read = noted.read.max(read);
    }

    /// `None` if it is not open.
    pub(crate) fn of(&self, ino: Ino) -> Option<Trail> {
        self.noted.lock().files.get(&ino).cloned()
    }

    /// The file was found there; unless it may have moved since `trail`, it is nowhere else.
    pub(crate) fn found(&self, ino: Ino, trail: &Trail, entry: &[u8]) {
        let mut noted = self.noted.lock();
        let Some(now) = noted.files.get_mut(&ino).filter(|now| now.moves == trail.moves) else { return };
        now.lost = false;
        let before = std::mem::take(&mut now.places);
        before.iter().for_each(|place| noted.leave(ino, place));
        noted.put(ino, entry.to_vec());
    }

    /// A page of the feed, which ends at this commit; own commits are part of it.
    pub(crate) fn follow(&self, changes: &[Change], next: Cursor) {
        let mut noted = self.noted.lock();
        if !noted.files.is_empty() {
            changes.iter().for_each(|change| noted.follow(change));
        }
        noted.read = noted.read.max(next);
    }
}

impl Noted {
    fn put(&mut self, ino: Ino, place: Vec<u8>) {
        let Some(trail) = self.files.get_mut(&ino) else { return };
        if trail.places.len() >= PLACES_MAX {
            trail.lost = true;
            return;
        }
        trail.places.insert(place.clone());
        self.at.entry(place).or_default().insert(ino);
    }

    fn leave(&mut self, ino: Ino, place: &[u8]) {
        if let Some(there) = self.at.get_mut(place) {
            there.remove(&ino);
            if there.is_empty() {
                self.at.remove(place);
            }
        }
    }

    fn follow(&mut self, change: &Change) {
        let is_file = |key: &&Vec<u8>| Table::of(key) == Some(Table::Entry) && !key.ends_with(b"/");
        let entries: Vec<&Vec<u8>> = change.keys.iter().filter(is_file).take(ENTRIES_MAX + 1).collect();
        if !(2..=ENTRIES_MAX).contains(&entries.len()) {
            return;
        }
        let moved: HashSet<Ino> = entries.iter().filter_map(|entry| self.at.get(*entry)).flatten().copied().collect();
        for ino in moved {
            entries.iter().for_each(|entry| self.put(ino, entry.to_vec()));
            if let Some(trail) = self.files.get_mut(&ino) {
                trail.moves += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use margay_rows::key;

    use super::*;

    fn entry(name: &str) -> Vec<u8> {
        key::entry(Ino(1), name.as_bytes())
    }

    fn change(cursor: u64, names: &[&str]) -> Change {
        Change { cursor: Cursor(cursor), keys: names.iter().map(|name| entry(name)).collect() }
    }

    #[test]
    fn a_trail_goes_on_from_each_place_and_ends_with_the_file() {
        let trails = Trails::default();
        assert!(trails.opened(Ino(7), entry("a"), Cursor(3)));
        trails.follow(
            &[change(4, &["x", "y"]), change(5, &["a", "b"]), change(6, &["a"]), change(7, &["b", "c"])],
            Cursor(7),
        );
        let trail = trails.of(Ino(7)).unwrap_or_default();
        assert_eq!((trail.places.len(), trail.moves, trail.lost), (3, 2, false));
        assert!(!trails.opened(Ino(8), entry("z"), Cursor(6)), "the follower was faster");
        trails.follow(&[change(8, &["c", "d/"])], Cursor(8));
        assert_eq!(trails.of(Ino(7)), Some(trail.clone()), "directories are no places of files");
        trails.found(Ino(7), &trail, &entry("c"));
        assert_eq!(trails.of(Ino(7)).map(|trail| trail.places), Some(BTreeSet::from([entry("c")])));
        trails.follow(&[change(9, &["a", "e"]), change(10, &["c", "f"])], Cursor(10));
        trails.found(Ino(7), &trail, &entry("c"));
        assert_eq!(trails.of(Ino(7)).map(|trail| trail.places.len()), Some(2), "it has moved since");
        trails.all_lost(Cursor(20));
        assert!(trails.of(Ino(7)).is_some_and(|trail| trail.lost));
        trails.closed(Ino(7));
        trails.closed(Ino(8));
        assert!(trails.of(Ino(7)).is_none() && trails.noted.lock().at.is_empty());
    }

    #[test]
    fn a_commit_of_many_entries_moves_nothing_and_too_many_places_are_lost() {
        let trails = Trails::default();
        trails.opened(Ino(7), entry("a"), Cursor(0));
        let many: Vec<String> = (0..ENTRIES_MAX).map(|number| number.to_string()).chain(["a".to_owned()]).collect();
        trails.follow(&[change(1, &many.iter().map(String::as_str).collect::<Vec<_>>())], Cursor(1));
        assert_eq!(trails.of(Ino(7)).map(|trail| trail.moves), Some(0));
        for number in 0..PLACES_MAX as u64 {
            trails.follow(&[change(2 + number, &["a", &number.to_string()])], Cursor(2 + number));
        }
        assert!(trails.of(Ino(7)).is_some_and(|trail| trail.lost && trail.places.len() == PLACES_MAX));
    }
}
