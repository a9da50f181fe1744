//! What is known of the queue of events without reading it: how many wait, the last number, the rules in force.
//!
//! Invariants: a number is larger than every earlier one of this process, and than those of earlier processes whose
//!             events were durable: each is at most a few above its commit's sequence number, times
//!             `NUMBERS_PER_COMMIT`.
//! Locking:    a leaf lock on the rules.
//! Not here:   the rows (events).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::{Cursor, RowVersion};
use margay_rows::Ino;
use parking_lot::Mutex;

use crate::event::EventRules;

/// A number is the newest commit's, times so many, unless the last number was larger.
const NUMBERS_PER_COMMIT: u64 = 1 << 8;

/// Rules by the root of the bucket, with the version of the bucket's row that they were read under.
pub(crate) type KnownRules = HashMap<Ino, (RowVersion, Arc<dyn EventRules>)>;

/// What is known of the queue without reading it.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    pub(crate) rules: Mutex<KnownRules>,
    pub(crate) last_number: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) queued: event_listener::Event,
}

impl EventQueue {
    /// A number for an event of a change that has read what it depends on (Q2).
    pub(crate) fn next_number(&self, newest: Cursor) -> u64 {
        let least = newest.0.saturating_mul(NUMBERS_PER_COMMIT);
        let next = |last: u64| Some(least.max(last + 1));
        let last = self.last_number.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        last.map_or(least, |last| least.max(last + 1))
    }

    /// Some events were forgotten.
    pub(crate) fn shrank(&self, count: u64) {
        let less = |waiting: u64| Some(waiting.saturating_sub(count));
        let _always = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Some events were committed.
    pub(crate) fn grew(&self, count: u64) {
        if count > 0 {
            self.waiting.fetch_add(count, Ordering::AcqRel);
            self.queued.notify(usize::MAX);
        }
    }
}
