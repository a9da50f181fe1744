//! Watches in the reference engine that writers keep the rule of guards.
//!
//! Why:        the embedded engine looks at ranges themselves; one that locks their guards would miss a row of a writer that
//!             does not touch the guard. The tests of interleavings run into exactly those commits.
//! Invariants: U1 a batch that fails only because of a row in a range would be known by the guard: the batch that created
//!                that row touched the guard, or this one asserts a row that is not older than that.
//! Not here:   what the guards are (volume).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::contract::{Batch, Cursor, Guard, Precondition, Write};

type Keys = BTreeSet<Vec<u8>>;

/// Which commit created each row, and what its batch touched.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuardWatch {
    created: BTreeMap<Vec<u8>, (Cursor, Arc<Keys>)>,
}

/// Rows that the batch puts, sets or deletes. Additions to counters are not locked.
fn written(batch: &Batch) -> impl Iterator<Item = &[u8]> {
    batch.writes.iter().filter(|write| write.is_exclusive()).map(Write::key)
}

fn touched(batch: &Batch) -> Keys {
    let asserted = batch.preconditions.iter().filter_map(|one| match one {
        Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => Some(key),
        Precondition::RangeEmpty { guard: Guard::Key(key), .. } => Some(key),
        Precondition::RangeEmpty { guard: Guard::Written, .. } => None,
    });
    asserted.cloned().chain(written(batch).map(<[u8]>::to_vec)).collect()
}

impl GuardWatch {
    /// Notes a batch that is about to be applied.
    pub(crate) fn committed(&mut self, batch: &Batch, at: Cursor, exists: impl Fn(&[u8]) -> bool) {
        let touched = Arc::new(touched(batch));
        for write in &batch.writes {
            match write {
                Write::Delete { key } => drop(self.created.remove(key)),
                Write::Put { key, .. } if !exists(key) => {
                    self.created.insert(key.clone(), (at, Arc::clone(&touched)));
                }
                // No range that is asserted has counters (N3).
                Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Max { .. } => {}
            }
        }
    }

    /// Panics if an engine that locks guards would not see this row in a range that the batch asserts to be empty.
    pub(crate) fn check(&self, key: &[u8], guard: &Guard, batch: &Batch) {
        let Some((at, touched)) = self.created.get(key) else { return };
        let is_newer =
            |one: &Precondition| matches!(one, Precondition::Version { version, .. } if version.bits() >= at.0);
        let is_touched = match guard {
            Guard::Key(guard) => touched.contains(guard),
            Guard::Written => written(batch).any(|key| touched.contains(key)),
        };
        assert!(
            is_touched || batch.preconditions.iter().any(is_newer),
            "the row {} came into a range beside its guard {guard:?}; its batch touched {touched:?}",
            key.escape_ascii()
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::Memory;
    use crate::{Batch, CommitError, Engine, Guard, Precondition, Write};

    fn put(key: &str) -> Write {
        Write::Put { key: key.into(), value: Vec::new() }
    }

    /// A row comes into the range, by a batch with these preconditions, before the range is asserted to be empty.
    fn race(preconditions: Vec<Precondition>, guard: Guard) {
        let engine = Memory::new();
        engine.commit(Batch { preconditions, writes: vec![put("d/1")], payload: None }).unwrap();
        let empty = Precondition::RangeEmpty { start: b"d/".to_vec(), end: b"d0".to_vec(), guard };
        let writes = vec![Write::Delete { key: b"d".to_vec() }];
        let done = engine.commit(Batch { preconditions: vec![empty], writes, payload: None });
        assert!(matches!(done, Err(CommitError::Conflict { precondition: 0 })));
    }

    fn absent(key: &str) -> Vec<Precondition> {
        vec![Precondition::Absent { key: key.into() }]
    }

    #[test]
    fn a_writer_that_touches_the_guard_is_seen() {
        race(absent("d"), Guard::Key(b"d".to_vec()));
        race(absent("d"), Guard::Written);
        race(absent("mark"), Guard::Key(b"mark".to_vec()));
    }

    #[test]
    #[should_panic(expected = "beside its guard")]
    fn a_writer_beside_the_guard_is_found() {
        race(absent("e"), Guard::Key(b"d".to_vec()));
    }

    #[test]
    #[should_panic(expected = "beside its guard")]
    fn a_writer_beside_all_rows_that_are_written_is_found() {
        race(absent("e"), Guard::Written);
    }
}
