//! The state of the event queue in memory: its length, where orders begin, cached rules.
//!
//! Invariants: E1 the order of an event is below the orders of all changes that read its commit, in any process:
//!                `order` of the newest commit before the change is below that of any later commit.
//!             E2 no order is below that of an event that was queued when the volume was opened (`base`), even if
//!                commits are counted from the start again (a restored volume).
//! Locking:    a leaf lock on the rules.
//! Not here:   the rows (events).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::{Cursor, RowVersion};
use margay_rows::Ino;
use parking_lot::Mutex;

use crate::event::EventRules;

/// Number of orders per commit; a commit with more events uses the last one for the rest.
const ORDERS_PER_COMMIT: u64 = 1 << 8;

/// Rules by the bucket's root, with the version of the bucket's row under which they were read.
pub(crate) type KnownRules = HashMap<Ino, (RowVersion, Arc<dyn EventRules>)>;

/// The state of the queue in memory.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    pub(crate) rules: Mutex<KnownRules>,
    /// Where orders begin.
    pub(crate) base: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) queued: event_listener::Event,
}

impl EventQueue {
    /// The order of an event of a change that has read what it depends on (Q2), after `behind` others of its batch.
    pub(crate) fn order(&self, newest: Cursor, behind: u64) -> u64 {
        let of_commit = newest.0.saturating_mul(ORDERS_PER_COMMIT).saturating_add(behind.min(ORDERS_PER_COMMIT - 1));
        self.base.load(Ordering::Acquire).saturating_add(of_commit)
    }

    /// Events were removed.
    pub(crate) fn shrank(&self, count: u64) {
        let less = |waiting: u64| Some(waiting.saturating_sub(count));
        let _always = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Events were committed.
    pub(crate) fn grew(&self, count: u64) {
        if count > 0 {
            self.waiting.fetch_add(count, Ordering::AcqRel);
            self.queued.notify(usize::MAX);
        }
    }
}
