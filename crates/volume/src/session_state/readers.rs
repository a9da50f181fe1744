//! Readers of bytes that other processes may remove, and the oldest cursor that they depend on.
//!
//! Why:        bytes may be removed only when no session holds rows that refer to them.
//! Invariants: R1 a reader begins before it reads the rows that refer to its bytes, so its cursor is never below the
//!                last published one.
//! Locking:    one leaf lock.
//! Not here:   bytes in the own store, which pins hold (margay-segment).

use std::collections::BTreeMap;
use std::sync::Arc;

use margay_meta::Cursor;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Readers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last published cursor.
    said: Cursor,
    running: BTreeMap<Cursor, usize>,
}

/// A registered reader, until it is dropped.
#[derive(Debug)]
pub struct ReaderGuard {
    readers: Arc<Readers>,
    cursor: Cursor,
}

impl Readers {
    /// Begins a reader whose rows are no older than `cursor`; call it before reading them (R1).
    pub(crate) fn begin(self: &Arc<Self>, cursor: Cursor) -> ReaderGuard {
        let mut state = self.state.lock();
        let cursor = cursor.max(state.said);
        *state.running.entry(cursor).or_default() += 1;
        ReaderGuard { readers: Arc::clone(self), cursor }
    }

    /// Publishes the oldest reader's cursor; without readers the newest commit, which is determined under the lock.
    pub(crate) fn publish(&self, newest: impl FnOnce() -> Cursor) -> Cursor {
        let mut state = self.state.lock();
        let newest = newest();
        let oldest = state.running.first_key_value().map_or(newest, |(cursor, _)| *cursor);
        assert!(oldest >= state.said || state.running.is_empty(), "no reader is older than what was said (R1)");
        state.said = oldest;
        oldest
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock();
        if let Some(count) = state.running.get_mut(&self.cursor) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.cursor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_reader_is_said_and_never_falls_behind_what_was_said() {
        let readers = Arc::new(Readers::default());
        assert_eq!(readers.publish(|| Cursor(5)), Cursor(5));
        let (late, second) = (readers.begin(Cursor(3)), readers.begin(Cursor(8)));
        assert_eq!(readers.publish(|| Cursor(9)), Cursor(5));
        drop(late);
        assert_eq!(readers.publish(|| Cursor(9)), Cursor(8));
        drop(second);
        assert_eq!(readers.publish(|| Cursor(10)), Cursor(10));
    }
}
