//! Puts the rows of an overlay into the tree's table, in key order.
//!
//! Why:        an insertion descends the tree and shifts a page, and most rows of a fold follow each other in one gap of
//!             the table: back rows of the newest log, entries of a directory that is being filled. A cursor takes such a
//!             run at a quarter of the cost, but costs more than an insertion where there is no run.
//! Invariants: F1 every row is put once, over the one that is there.  F2 a run ends where its gap does, so the cursor
//!                replaces nothing.
//! Not here:   the transaction, deletions (tree), when to fold (checkpoint).

use std::iter::Peekable;
use std::ops::Bound;

use redb::{CursorError, Table};

use super::overlay::Live;
use super::tree::store_row;

/// Rows of a run that repay its cursor.
const RUN_ROWS_MIN: usize = 8;
/// Maximum number of new rows until the next cursor is tried, while runs are shorter.
const WAIT_ROWS_MAX: usize = 63;

type Rows<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// `put` is called after each row.
pub(super) fn put_rows<'a>(
    table: &mut Rows<'_>,
    rows: impl Iterator<Item = (&'a [u8], &'a Live)>,
    mut put: impl FnMut(),
) -> Result<(), redb::Error> {
    let mut stored = Vec::with_capacity(512);
    let mut rows = rows.peekable();
    let (mut wait, mut left) = (0, 0);
    while let Some((key, live)) = rows.next() {
        store_row(&mut stored, key, live.version, &live.value);
        let is_new = table.insert(key, stored.as_slice())?.is_none();
        put();
        if !is_new || rows.peek().is_none() {
            continue;
        }
        if left > 0 {
            left -= 1;
            continue;
        }
        let run = put_run(table, key, &mut rows, &mut stored, &mut put)?;
        wait = if run >= RUN_ROWS_MIN { 0 } else { (2 * wait + 1).min(WAIT_ROWS_MAX) };
        left = wait;
    }
    Ok(())
}

/// Puts rows as long as they belong into the gap after `key`; returns their number.
fn put_run<'a>(
    table: &mut Rows<'_>,
    key: &[u8],
    rows: &mut Peekable<impl Iterator<Item = (&'a [u8], &'a Live)>>,
    stored: &mut Vec<u8>,
    put: &mut impl FnMut(),
) -> Result<usize, redb::Error> {
    let mut cursor = table.lower_bound_mut(Bound::Excluded(key))?;
    let mut run = 0;
    while let Some((key, live)) = rows.peek() {
        store_row(stored, key, live.version, &live.value);
        match cursor.insert_before(*key, stored.as_slice()) {
            Ok(()) => {}
            Err(CursorError::UnorderedKey) => break,
            Err(error) => return Err(error.into()),
        }
        rows.next();
        run += 1;
        put();
    }
    cursor.close()?;
    Ok(run)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use margay_env::sim::SimRandom;
    use margay_env::{Env, Random};

    use crate::embedded::overlay::Overlay;
    use crate::embedded::tree::{Folded, Tree};
    use crate::{Cursor, RowVersion};

    /// Folds of runs, of scattered rows and of both, new and there already, beside a map.
    #[test]
    fn folds_of_any_rows_leave_what_a_map_has() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(&Env::real(), folder.path(), 1 << 20, false).unwrap();
        let (random, mut model) = (SimRandom::new(7), BTreeMap::new());
        for fold in 1..=40u64 {
            let mut overlay = Overlay::default();
            let below = |end: u64| random.next_u64() % end;
            for _ in 0..=below(6) {
                let (first, rows, step) = (below(5000), below(400), 1 + below(4));
                for number in (0..rows).map(|row| first + row * step) {
                    let key = number.to_be_bytes().repeat(1 + number as usize % 3);
                    let value = vec![fold as u8; below(900) as usize];
                    overlay.put(&key, &value, RowVersion::from_bits(fold), Cursor(fold));
                    model.insert(key, (fold, value));
                }
            }
            let (done, put) = (std::cell::Cell::new(0), overlay.rows());
            tree.fold(&overlay, Folded { seq: Cursor(fold), first_log: 1 }, &|rows| done.set(rows)).unwrap();
            assert_eq!(done.get(), put, "each row is counted");
            let snapshot = tree.snapshot().unwrap();
            let mut range = snapshot.range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded).unwrap().unwrap();
            let mut found = Vec::new();
            while let Some((key, row)) = snapshot.next_row(&mut range).unwrap() {
                found.push((key.value().to_vec(), (row.version().bits(), row.value().to_vec())));
            }
            assert!(found.into_iter().eq(model.clone()), "after fold {fold}");
        }
        let checked = tree.check(9, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((checked.damaged, checked.shown), (0, Vec::new()));
    }
}
