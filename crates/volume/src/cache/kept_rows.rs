//! Cache of entries and of directories' rows that kernels ask for again, for engines whose calls wait.
//!
//! Why:        a kernel reads a directory's attributes before each create in it, since the previous create changed its
//!             times; with an engine a millisecond away that is a third of a create's time. And it looks a name up before
//!             it removes or renames it, so that the change finds the name's rows here.
//! Invariants: K1 a cached row reflects the newest answered commit: a commit updates or drops its rows before its
//!                answer, and a row is cached only if no commit of its stripe was answered since before the read.
//!             K2 only `Max` rows are updated in place, since their order does not matter; all others are dropped.
//!             K3 the rows per stripe and the bytes of each are bounded; a full stripe is emptied.
//! Locking:    a leaf lock per stripe of keys, never held during a call of the engine.
//! Not here:   commits of other processes (follower).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use margay_meta::{Row, Write};
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
}

#[derive(Debug, Default)]
struct Stripe {
    /// Answered commits that wrote rows of this stripe.
    changes: u64,
    rows: HashMap<Vec<u8>, Option<Row>>,
}

/// Each key's stripe counter before a read.
#[derive(Debug)]
pub(crate) struct Before(Vec<u64>);

/// What a commit will do to rows that may be cached.
#[derive(Debug, Default)]
pub(crate) struct RowChanges(Vec<(Vec<u8>, Option<u64>)>);

impl Default for KeptRows {
    fn default() -> KeptRows {
        KeptRows { stripes: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }
}

impl KeptRows {
    /// All of these rows, if all are cached.
    pub(crate) fn all(&self, keys: &[Vec<u8>]) -> Option<Vec<Option<Row>>> {
        keys.iter().map(|key| self.stripe(key).lock().rows.get(key).cloned()).collect()
    }

    /// Must be called before reading rows that are to be cached.
    pub(crate) fn before(&self, keys: &[Vec<u8>]) -> Before {
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
            if stripe.rows.len() >= STRIPE_ROWS_MAX {
                stripe.rows.clear();
            }
            stripe.rows.insert(key.clone(), row.clone());
        }
    }

    /// The changes of a commit with these writes; computed before the commit, and passed to `changed` after it.
    pub(crate) fn changes(writes: &[Write]) -> RowChanges {
        let changes = writes.iter().filter(|write| is_kept(write.key())).map(|write| match write {
            Write::Max { key, at_least } => (key.clone(), Some(*at_least)),
            write => (write.key().to_vec(), None),
        });
        RowChanges(changes.collect())
    }

    /// Called when a commit has ended. `made`: it is certain to have succeeded; otherwise its rows are dropped.
    pub(crate) fn changed(&self, changes: RowChanges, made: bool) {
        for (key, raised) in changes.0 {
            let mut stripe = self.stripe(&key).lock();
            stripe.changes += 1;
            let raised = raised.filter(|_| made).and_then(|at_least| raise(stripe.rows.get(&key)?.as_ref()?, at_least));
            match raised {
                Some(row) => {
                    stripe.rows.insert(key, Some(row));
                }
                None => {
                    stripe.rows.remove(&key);
                }
            }
        }
    }

    /// Other processes changed these rows.
    pub(crate) fn forget(&self, keys: Vec<Vec<u8>>) {
        self.changed(RowChanges(keys.into_iter().map(|key| (key, None)).collect()), true);
    }

    pub(crate) fn forget_all(&self) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.changes += 1;
            stripe.rows.clear();
        }
    }

    fn stripe(&self, key: &[u8]) -> &Mutex<Stripe> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.stripes[hasher.finish() as usize % STRIPES]
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
        let raise = |at_least| KeptRows::changes(&[Write::Max { key: key::times(Ino(7)), at_least }]);
        let before = rows.before(&keys);
        rows.changed(raise(5), true);
        rows.keep(&keys, &[row(3)], &before);
        assert_eq!(rows.all(&keys), None);
        rows.keep(&keys, &[row(5)], &rows.before(&keys));
        rows.changed(raise(4), true);
        assert_eq!(rows.all(&keys), Some(vec![row(5)]));
        rows.changed(raise(9), true);
        assert_eq!(rows.all(&keys), Some(vec![row(9)]));
        // The outcome of the commit is unknown.
        rows.changed(raise(10), false);
        assert_eq!(rows.all(&keys), None);
    }

    #[test]
    fn what_is_never_kept_is_not_looked_at() {
        let part = Write::Put { key: key::part(Ino(7), 1), value: Vec::new() };
        let file = Write::Delete { key: key::entry(Ino(7), b"file") };
        assert_eq!(KeptRows::changes(&[part, file]).0, [(key::entry(Ino(7), b"file"), None)]);
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
