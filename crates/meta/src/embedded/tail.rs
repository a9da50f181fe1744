//! The newest commits' keys, kept in memory for those who follow changes.
//!
//! Why:        kernel caches, write-back and replication follow commits; scanning for changes would not scale.
//! Invariants: T1 what is held is a gapless suffix of the commits.  T2 bounded in commits; whoever falls behind is
//!             told so and looks at everything anew.
//! Locking:    its own mutex, taken last and briefly.
//! Not here:   durable consumers' marks (rows written by volume).

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::{Change, Cursor, TailLost, Write};

#[derive(Debug)]
pub(super) struct Tail {
    commits_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// Changes up to this one are gone.
    dropped: Cursor,
    changes: VecDeque<Change>,
    /// Nobody has asked yet: commits need not copy their keys.
    asleep: bool,
}

impl Tail {
    pub(super) fn new(last: Cursor, commits_max: usize) -> Tail {
        Tail { commits_max, held: Mutex::new(Held { dropped: last, changes: VecDeque::new(), asleep: true }) }
    }

    /// Called in the order of commits.
    pub(super) fn record(&self, seq: Cursor, writes: &[Write]) {
        let mut held = self.held.lock();
        if held.asleep {
            held.dropped = seq;
            return;
        }
        let changed = writes.iter().filter(|write| matches!(write, Write::Put { .. } | Write::Delete { .. }));
        let keys = changed.map(|write| write.key().to_vec()).collect();
        held.changes.push_back(Change { cursor: seq, keys });
        if held.changes.len() > self.commits_max
            && let Some(oldest) = held.changes.pop_front()
        {
            held.dropped = oldest.cursor;
        }
    }

    pub(super) fn since(&self, after: Cursor, limit: usize, last: Cursor) -> Result<Vec<Change>, TailLost> {
        let mut held = self.held.lock();
        held.asleep = false;
        if after < held.dropped && after < last {
            return Err(TailLost { oldest: held.dropped });
        }
        let first = held.changes.partition_point(|change| change.cursor <= after);
        Ok(held.changes.iter().skip(first).take(limit).cloned().collect())
    }
}
