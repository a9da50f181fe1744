//! Cache of entries and of directories' rows that kernels ask for again, for engines whose calls wait.
//!
//! Why:        a kernel reads a directory's attributes before each create in it, since the previous create changed its
//!             times; with an engine a millisecond away that is a third of a create's time. And it looks a name up before
//!             it removes or renames it, or has made it itself, so that the change finds the name's rows here.
//! Invariants: K1 a cached row reflects the newest answered commit: a commit updates or drops its rows before its
//!                answer, and a row is cached only if no commit of its stripe was answered since before the read.
//!             K2 a cached row is raised in place by `Max`, whose order does not matter, if no other kind of write to its stripe was
//!                answered since before the commit; a row that a commit put is cached if none at all was; all others are dropped.
//!             K3 the rows per stripe and the bytes of each are bounded; a full stripe is emptied.
//!             K4 what commits put is cached once somebody has read: a process without mounts caches nothing.
//! Locking:    a leaf lock per stripe of keys, never held during a call of the engine.
//! Not here:   commits of other processes (follower).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use margay_meta::{Row, RowVersion, Write};
use margay_rows::key;
use parking_lot::Mutex;

const STRIPES: usize = 64;
/// Rows per stripe; 65,536 in all.
const STRIPE_ROWS_MAX: usize = 1024;
/// Bytes of a row's value; longer ones, as of large files, are not kept.
const ROW_BYTES_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct KeptRows {
    stripes: Box<[Mutex<Stripe>]>,
    /// K4.
    is_read: AtomicBool,
}

#[derive(Debug, Default)]
struct Stripe {
    /// Rows of this stripe that answered commits wrote.
    changes: u64,
    /// Those that were not only raised.
    other_changes: u64,
    rows: HashMap<Vec<u8>, Option<Row>>,
}

/// Each key's stripe counter before a read.
#[derive(Debug)]
pub(crate) struct Before(Vec<u64>);

/// What a commit will do to rows that may be cached.
#[derive(Debug, Default)]
pub(crate) struct RowChanges(Vec<(Vec<u8>, RowChange)>);

#[derive(Debug, PartialEq, Eq)]
enum RowChange {
    Dropped,
    /// `before`: the stripe's other changes then.
    Raised {
        at_least: u64,
        before: u64,
    },
    /// `before`: as in `Before`.
    Put {
        value: Bytes,
        before: u64,
    },
}

impl Default for KeptRows {
    fn default() -> KeptRows {
        KeptRows { stripes: (0..STRIPES).map(|_| Mutex::default()).collect(), is_read: AtomicBool::new(false) }
    }
}

impl KeptRows {
    /// All of these rows, if all are cached.
    pub(crate) fn all(&self, keys: &[Vec<u8>]) -> Option<Vec<Option<Row>>> {
        keys.iter().map(|key| self.stripe(key).lock().rows.get(key).cloned()).collect()
    }

    /// Whether it is cached that there is no such row.
    pub(crate) fn has_none(&self, key: &[u8]) -> bool {
        self.stripe(key).lock().rows.get(key).is_some_and(Option::is_none)
    }

    /// Must be called before reading rows that are to be cached.
    pub(crate) fn before(&self, keys: &[Vec<u8>]) -> Before {
        self.is_read.store(true, Ordering::Relaxed);
        Before(keys.iter().map(|key| self.stripe(key).lock().changes).collect())
    }

    /// Caches rows that were read after `before`.
    pub(crate) fn keep(&self, keys: &[Vec<u8>], rows: &[Option<Row>], before: &Before) {
        assert!(keys.len() == rows.len() && keys.len() == before.0.len(), "each key has its row and its count");
        for ((key, row), changes) in keys.iter().zip(rows).zip(&before.0) {
            let mut stripe = self.stripe(key).lock();
            if stripe.changes != *changes {
                continue;
            }
            if row.as_ref().is_some_and(|row| row.value.len() > ROW_BYTES_MAX) {
                stripe.rows.remove(key);
                continue;
            }
            stripe.put(key.clone(), row.clone());
        }
    }

    /// The changes of a commit with these writes; computed before the commit, and passed to `changed` after it.
    /// `is_final`: the engine puts the values as they are.
    pub(crate) fn changes(&self, writes: &[Write], is_final: bool) -> RowChanges {
        let keeps = is_final && self.is_read.load(Ordering::Relaxed);
        let changes = writes.iter().filter(|write| is_kept(write.key())).map(|write| match write {
            Write::Max { key, at_least } => {
                let before = self.stripe(key).lock().other_changes;
                (key.clone(), RowChange::Raised { at_least: *at_least, before })
            }
            Write::Put { key, value } if keeps && value.len() <= ROW_BYTES_MAX => {
                let before = self.stripe(key).lock().changes;
                (key.clone(), RowChange::Put { value: Bytes::copy_from_slice(value), before })
            }
            write => (write.key().to_vec(), RowChange::Dropped),
        });
        RowChanges(changes.collect())
    }

    /// Called when a commit has ended. `made`: the version of its rows, if it is certain to have succeeded; otherwise they are
    /// dropped.
    pub(crate) fn changed(&self, changes: RowChanges, made: Option<RowVersion>) {
        // Of one commit, which may write several rows of a stripe: all changes, and the other ones.
        let mut own = HashMap::new();
        for (key, change) in changes.0 {
            let at = self.stripe_of(&key);
            let mut stripe = self.stripes[at].lock();
            let (earlier, other) = own.entry(at).or_insert((0_u64, 0_u64));
            let is_other = !matches!(change, RowChange::Raised { .. });
            let row = made.and_then(|version| match change {
                RowChange::Dropped => None,
                RowChange::Raised { at_least, before } if stripe.other_changes == before + *other => {
                    raise(stripe.rows.get(&key)?.as_ref()?, at_least)
                }
                RowChange::Put { value, before } if stripe.changes == before + *earlier => Some(Row { value, version }),
                RowChange::Raised { .. } | RowChange::Put { .. } => None,
            });
            *earlier += 1;
            *other += u64::from(is_other);
            stripe.changes += 1;
            stripe.other_changes += u64::from(is_other);
            match row {
                Some(row) => stripe.put(key, Some(row)),
                None => drop(stripe.rows.remove(&key)),
            }
        }
    }

    /// Other processes changed these rows.
    pub(crate) fn forget(&self, keys: Vec<Vec<u8>>) {
        self.changed(RowChanges(keys.into_iter().map(|key| (key, RowChange::Dropped)).collect()), None);
    }

    pub(crate) fn forget_all(&self) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.changes += 1;
            stripe.other_changes += 1;
            stripe.rows.clear();
        }
    }

    fn stripe(&self, key: &[u8]) -> &Mutex<Stripe> {
        &self.stripes[self.stripe_of(key)]
    }

    fn stripe_of(&self, key: &[u8]) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() as usize % self.stripes.len()
    }
}

impl Stripe {
    fn put(&mut self, key: Vec<u8>, row: Option<Row>) {
        if self.rows.len() >= STRIPE_ROWS_MAX {
            self.rows.clear();
        }
        self.rows.insert(key, row);
    }
}

/// The row after `Max`; `None` if it is not a number.
fn raise(row: &Row, at_least: u64) -> Option<Row> {
    let held = u64::from_le_bytes(row.value.as_ref().try_into().ok()?);
    let value = Bytes::copy_from_slice(&held.max(at_least).to_le_bytes());
    Some(Row { value, version: row.version })
}

/// Whether rows of such a key are ever kept.
fn is_kept(key: &[u8]) -> bool {
    key::is_entry(key) || key::is_directory_attributes(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_meta::RowVersion;
    use margay_rows::Ino;

    fn row(number: u64) -> Option<Row> {
        Some(Row { value: Bytes::copy_from_slice(&number.to_le_bytes()), version: RowVersion::from_bits(1) })
    }

    #[test]
    fn a_row_read_before_a_change_was_answered_is_not_kept() {
        let (rows, keys) = (KeptRows::default(), [key::times(Ino(7))]);
        let raise = |at_least| rows.changes(&[Write::Max { key: key::times(Ino(7)), at_least }], true);
        let made = Some(RowVersion::from_bits(2));
        let before = rows.before(&keys);
        rows.changed(raise(5), made);
        rows.keep(&keys, &[row(3)], &before);
        assert_eq!(rows.all(&keys), None);
        rows.keep(&keys, &[row(5)], &rows.before(&keys));
        rows.changed(raise(4), made);
        assert_eq!(rows.all(&keys), Some(vec![row(5)]));
        rows.changed(raise(9), made);
        assert_eq!(rows.all(&keys), Some(vec![row(9)]));
        // Somebody sets the time meanwhile, and is answered first.
        let late = raise(20);
        rows.changed(rows.changes(&[Write::Set { key: key::times(Ino(7)), value: 1_u64.to_le_bytes() }], true), made);
        rows.keep(&keys, &[row(1)], &rows.before(&keys));
        rows.changed(late, made);
        assert_eq!(rows.all(&keys), None);
        rows.keep(&keys, &[row(1)], &rows.before(&keys));
        // The outcome of the commit is unknown.
        rows.changed(raise(10), None);
        assert_eq!(rows.all(&keys), None);
    }

    #[test]
    fn what_is_never_kept_is_not_looked_at() {
        let part = Write::Put { key: key::part(Ino(7), 1), value: Vec::new() };
        let file = Write::Delete { key: key::entry(Ino(7), b"file") };
        let changes = KeptRows::default().changes(&[part, file], true);
        assert_eq!(changes.0, [(key::entry(Ino(7), b"file"), RowChange::Dropped)]);
    }

    #[test]
    fn a_row_that_was_put_is_kept_unless_another_commit_was_answered_meanwhile() {
        // All keys are of one stripe.
        let rows = KeptRows { stripes: vec![Mutex::default()].into(), is_read: AtomicBool::new(true) };
        let key = |name: &str| key::entry(Ino(7), name.as_bytes());
        let put = |name: &str, number: u64| Write::Put { key: key(name), value: number.to_le_bytes().to_vec() };
        let version = |number| Some(RowVersion::from_bits(number));
        rows.changed(rows.changes(&[put("one", 5), put("two", 6)], true), version(1));
        assert_eq!(rows.all(&[key("one"), key("two")]), Some(vec![row(5), row(6)]), "both are of one commit");
        let (first, second) = (rows.changes(&[put("one", 7)], true), rows.changes(&[put("one", 8)], true));
        // It was committed first, and is answered last.
        rows.changed(second, version(3));
        rows.changed(first, version(2));
        assert_eq!(rows.all(&[key("one")]), None);
        rows.changed(rows.changes(&[put("one", 9)], true), None);
        rows.changed(rows.changes(&[put("two", 9)], false), version(4));
        assert_eq!([rows.all(&[key("one")]), rows.all(&[key("two")])], [None, None], "nobody knows what is there");
        let late = rows.changes(&[put("one", 10)], true);
        rows.forget(vec![key("one")]);
        rows.changed(late, version(5));
        assert_eq!(rows.all(&[key("one")]), None, "another process changed it meanwhile");
    }

    #[test]
    fn a_long_row_is_not_kept_and_takes_the_place_of_a_shorter_one() {
        let (rows, keys) = (KeptRows::default(), [key::entry(Ino(7), b"file")]);
        rows.keep(&keys, &[row(3)], &rows.before(&keys));
        let long = Row { value: vec![0; ROW_BYTES_MAX + 1].into(), version: RowVersion::from_bits(2) };
        rows.keep(&keys, &[Some(long)], &rows.before(&keys));
        assert_eq!(rows.all(&keys), None);
    }
}
