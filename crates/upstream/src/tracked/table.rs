//! Dirty files by their numbers, and in the orders in which they are looked for.
//!
//! Why:        with a hundred thousand dirty files, nothing that happens for each change or each answer may look at all of them.
//! Invariants: I1 every order has what the files say: they change only in `edit`, `put` and `remove`.
//! Locking:    the caller's.
//! Not here:   rows (files).

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use margay_rows::Ino;

use super::file::File;

#[derive(Debug, Default)]
pub(crate) struct Table {
    files: HashMap<Ino, File>,
    orders: Orders,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Orders {
    /// By the time at which the planner is to look at it.
    due: BTreeSet<(Duration, Ino)>,
    /// By the first change that the bucket lacks.
    lacking: BTreeSet<(u64, Ino)>,
    refused: BTreeSet<(u64, Ino)>,
    /// As `lacking`, of what the end of an epoch waits for.
    epochs: BTreeSet<(u64, Ino)>,
    /// Writes that may succeed.
    writes: BTreeSet<(u64, Ino)>,
    removals: BTreeSet<Ino>,
    moved: BTreeSet<Ino>,
    failing: BTreeSet<Ino>,
    /// Keys at which the bucket has, gets or loses something of it.
    keys: BTreeSet<(String, Ino)>,
    bytes: u64,
    in_progress: u64,
}

impl Orders {
    fn of(&mut self, ino: Ino, file: &File, is_in: bool) {
        fn set<T: Ord>(order: &mut BTreeSet<T>, one: Option<T>, is_in: bool) {
            let Some(one) = one else { return };
            if is_in {
                order.insert(one);
            } else {
                order.remove(&one);
            }
        }
        let since = (file.lacking_since(), ino);
        set(&mut self.due, file.looked_at().map(|at| (at, ino)), is_in);
        set(&mut self.lacking, (!file.is_read).then_some(since), is_in);
        set(&mut self.refused, (!file.is_read && file.is_refused).then_some(since), is_in);
        set(&mut self.epochs, (!file.is_read && !file.is_refused).then_some(since), is_in);
        let write = file.next().filter(|_| file.holds_removals()).map(|next| (next.since, ino));
        set(&mut self.writes, write, is_in);
        set(&mut self.removals, (file.is_removal() && file.removing == 0).then_some(ino), is_in);
        set(&mut self.moved, file.dirty.moved.then_some(ino), is_in);
        set(&mut self.failing, file.failure.is_some().then_some(ino), is_in);
        file.keys().for_each(|key| set(&mut self.keys, Some((key.to_owned(), ino)), is_in));
        let (bytes, in_progress) = (file.bytes_to_send(), u64::from(file.in_progress));
        if is_in {
            (self.bytes, self.in_progress) = (self.bytes + bytes, self.in_progress + in_progress);
        } else {
            (self.bytes, self.in_progress) = (self.bytes - bytes, self.in_progress - in_progress);
        }
    }
}

impl Table {
    pub(crate) fn get(&self, ino: Ino) -> Option<&File> {
        self.files.get(&ino)
    }

    /// In no order.
    pub(crate) fn inos(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Changes a file, if it is dirty.
    pub(crate) fn edit<T>(&mut self, ino: Ino, change: impl FnOnce(&mut File) -> T) -> Option<T> {
        let file = self.files.get_mut(&ino)?;
        self.orders.of(ino, file, false);
        let changed = change(file);
        self.orders.of(ino, file, true);
        Some(changed)
    }

    pub(crate) fn put(&mut self, ino: Ino, file: File) {
        self.remove(ino);
        self.orders.of(ino, &file, true);
        self.files.insert(ino, file);
    }

    pub(crate) fn remove(&mut self, ino: Ino) -> Option<File> {
        let file = self.files.remove(&ino)?;
        self.orders.of(ino, &file, false);
        Some(file)
    }

    /// Removes it if it needs no row.
    pub(crate) fn remove_nothing(&mut self, ino: Ino) {
        if self.get(ino).is_some_and(File::is_nothing) {
            self.remove(ino);
        }
    }

    /// Files to look at until `now`, the first ones first, from the one behind `after`; those that somebody waits for come before
    /// all.
    pub(crate) fn due_after(&self, after: (Duration, Ino), now: Duration, count: usize) -> Vec<(Duration, Ino)> {
        let range = (Bound::Excluded(after), Bound::Included((now, Ino(u64::MAX))));
        self.orders.due.range(range).take(count).copied().collect()
    }

    /// When the next file is looked at that is not now.
    pub(crate) fn next_due(&self, now: Duration) -> Option<Duration> {
        let after = (Bound::Excluded((now, Ino(u64::MAX))), Bound::Unbounded);
        self.orders.due.range(after).next().map(|(at, _)| *at)
    }

    /// The first change that the bucket lacks; files that only wait for their readers do not count.
    pub(crate) fn first_lacking(&self) -> Option<u64> {
        self.orders.lacking.first().map(|(since, _)| *since)
    }

    /// As `first_lacking`; what the bucket refuses does not count either.
    pub(crate) fn first_in_epochs(&self) -> Option<u64> {
        self.orders.epochs.first().map(|(since, _)| *since)
    }

    /// Files of which something is left that was changed up to this number, the oldest first, from the one behind `after`.
    pub(crate) fn in_epoch(&self, after: (u64, Ino), end: u64, count: usize) -> Vec<(u64, Ino)> {
        let range = (Bound::Excluded(after), Bound::Included((end, Ino(u64::MAX))));
        self.orders.epochs.range(range).take(count).copied().collect()
    }

    /// The file with that change.
    pub(crate) fn oldest(&self) -> Option<&File> {
        self.orders.lacking.first().map(|(_, ino)| &self.files[ino])
    }

    /// A file that the bucket refuses, and that was changed up to this number.
    pub(crate) fn refused(&self, sequence: u64) -> Option<&File> {
        self.orders.refused.first().filter(|(since, _)| *since <= sequence).map(|(_, ino)| &self.files[ino])
    }

    /// The first change of which the bucket lacks a write that may succeed.
    pub(crate) fn first_write(&self) -> Option<u64> {
        self.orders.writes.first().map(|(since, _)| *since)
    }

    /// Files of which nothing is left but removals that nobody has begun.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Ino> {
        self.orders.removals.iter().copied()
    }

    /// Directories below which nothing was noted yet.
    pub(crate) fn moved(&self) -> Vec<Ino> {
        self.orders.moved.iter().copied().collect()
    }

    /// Files with a failure.
    pub(crate) fn failing(&self) -> impl Iterator<Item = (Ino, &File)> {
        self.orders.failing.iter().map(|ino| (*ino, &self.files[ino]))
    }

    pub(crate) fn failing_count(&self) -> u64 {
        self.orders.failing.len() as u64
    }

    /// Files that have, want, make or leave an object under this key.
    pub(crate) fn with_key(&self, key: &str) -> Vec<Ino> {
        let from = (key.to_owned(), Ino(0));
        self.orders.keys.range(from..).take_while(|(other, _)| other == key).map(|(_, ino)| *ino).collect()
    }

    /// As `with_key`, of all keys with this beginning.
    pub(crate) fn with_keys_below<'a>(&'a self, beginning: &'a str) -> impl Iterator<Item = (&'a str, Ino)> {
        let from = (beginning.to_owned(), Ino(0));
        let below = self.orders.keys.range(from..).take_while(move |(key, _)| key.starts_with(beginning));
        below.map(|(key, ino)| (key.as_str(), *ino))
    }

    /// Bytes that are to be sent, and how many have a request in progress.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.orders.bytes, self.orders.in_progress)
    }

    /// I1, at the cost of all files.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut orders = Orders::default();
        self.files.iter().for_each(|(ino, file)| orders.of(*ino, file, true));
        orders == self.orders
    }
}
