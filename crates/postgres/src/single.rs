//! One batch as the arguments of `commit_one_v1`.
//!
//! Why:        most calls have one batch, and an argument costs the server as much as a row: what is empty is null.
//! Invariants: O1 counters are in the order in which all commits take them: additions, then what is raised, each by its key.
//! Not here:   several batches (group), the call (lane).

use tokio_postgres::types::ToSql;

use crate::batch::Prepared;

/// Columns, each as the function takes it.
#[derive(Debug)]
pub(crate) struct Single<'a> {
    lock_ids: Vec<i64>,
    lock_alone: Vec<bool>,
    pre_kinds: Option<Vec<i32>>,
    pre_keys: Option<Vec<&'a [u8]>>,
    pre_ends: Option<Vec<&'a [u8]>>,
    pre_versions: Option<Vec<i64>>,
    put_keys: Option<Vec<&'a [u8]>>,
    put_values: Option<Vec<&'a [u8]>>,
    deleted_keys: Option<Vec<&'a [u8]>>,
    set_keys: Option<Vec<&'a [u8]>>,
    set_values: Option<Vec<i64>>,
    counter_keys: Option<Vec<&'a [u8]>>,
    counter_values: Option<Vec<i64>>,
    changed: Option<&'a [u8]>,
}

impl<'a> Single<'a> {
    pub(crate) fn of(batch: &'a Prepared) -> Single<'a> {
        let (lock_ids, lock_alone) = batch.locks.iter().map(|(id, is_alone)| (*id, *is_alone)).unzip();
        let preconditions = &batch.preconditions;
        let has_range = preconditions.iter().any(|one| !one.end.is_empty());
        let sets = by_key(&batch.sets);
        let counters = [by_key(&batch.adds), by_key(&batch.maxes)].concat();
        Single {
            lock_ids,
            lock_alone,
            pre_kinds: some(preconditions.iter().map(|one| one.kind)),
            pre_keys: some(preconditions.iter().map(|one| one.key.as_slice())),
            pre_ends: if has_range { some(preconditions.iter().map(|one| one.end.as_slice())) } else { None },
            pre_versions: some(preconditions.iter().map(|one| one.version)),
            put_keys: some(batch.puts.iter().map(|(key, _)| key.as_slice())),
            put_values: some(batch.puts.iter().map(|(_, value)| value.as_slice())),
            deleted_keys: some(batch.deletes.iter().map(Vec::as_slice)),
            set_keys: some(sets.iter().map(|(key, _)| *key)),
            set_values: some(sets.iter().map(|(_, value)| *value)),
            counter_keys: some(counters.iter().map(|(key, _)| *key)),
            counter_values: some(counters.iter().map(|(_, value)| *value)),
            changed: (!batch.changed.is_empty()).then_some(&batch.changed),
        }
    }

    /// In the order of the function, behind lane, call and shard.
    pub(crate) fn arguments(&self) -> [&(dyn ToSql + Sync); 14] {
        [
            &self.lock_ids,
            &self.lock_alone,
            &self.pre_kinds,
            &self.pre_keys,
            &self.pre_ends,
            &self.pre_versions,
            &self.put_keys,
            &self.put_values,
            &self.deleted_keys,
            &self.set_keys,
            &self.set_values,
            &self.counter_keys,
            &self.counter_values,
            &self.changed,
        ]
    }
}

fn by_key(counters: &[(Vec<u8>, i64)]) -> Vec<(&[u8], i64)> {
    let mut all: Vec<_> = counters.iter().map(|(key, value)| (key.as_slice(), *value)).collect();
    all.sort_unstable();
    all
}

fn some<T>(column: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let column: Vec<T> = column.collect();
    (!column.is_empty()).then_some(column)
}

#[cfg(test)]
mod tests {
    use margay_meta::{Batch, Precondition, Write};

    use super::*;
    use crate::batch::LockSpace;

    #[test]
    fn counters_are_in_one_order_and_what_is_empty_is_null() {
        let add = |key: &[u8]| Write::Add { key: key.to_vec(), delta: 1 };
        let max = |key: &[u8]| Write::Max { key: key.to_vec(), at_least: 7 };
        let writes = vec![max(b"t2"), add(b"l1"), max(b"t1"), add(b"c9")];
        let preconditions = vec![Precondition::Exists { key: b"d".to_vec() }];
        let batch = Prepared::of(Batch { preconditions, writes, payload: None }, LockSpace::of_schema("one"));
        let single = Single::of(&batch);
        let keys: [&[u8]; 4] = [b"c9", b"l1", b"t1", b"t2"];
        assert_eq!(single.counter_keys.as_deref(), Some(&keys[..]));
        assert_eq!((single.pre_kinds, single.pre_ends), (Some(vec![1]), None));
        assert!(single.put_keys.is_none() && single.deleted_keys.is_none() && single.set_keys.is_none());
        assert_eq!(single.changed, None, "counters are no news");
    }
}
