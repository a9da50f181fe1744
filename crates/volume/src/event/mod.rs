//! Events, and the port that decides their targets.
//!
//! Not here: the queue (event_queue, events), what rules say (the S3 door).

mod queue;

pub(crate) use self::queue::EventQueue;

use std::fmt::Debug;
use std::sync::Arc;

use margay_rows::event::{Event, EventKind};
use margay_rows::key::EventNumber;
use margay_rows::values::{ETag, VersionId};

/// The facts of an event that a change supplies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) kind: EventKind,
    pub(crate) key: &'a str,
    pub(crate) size: u64,
    pub(crate) etag: ETag,
    /// `None` in a bucket that never kept versions.
    pub(crate) version: Option<VersionId>,
}

/// An event in the queue of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedEvent {
    /// Greater than those of all earlier events of the same key.
    pub number: EventNumber,
    pub event: Event,
    /// The id of the rule that matched.
    pub rule: String,
}

/// A target, and the rule that selected it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub target: String,
    pub rule: String,
}

/// The notification rules of one bucket.
pub trait EventRules: Send + Sync + Debug {
    fn routes(&self, kind: EventKind, key: &str) -> Vec<Route>;
}

/// Parses a bucket's notification setting. A document that it cannot parse has no rules.
pub trait EventRouter: Send + Sync + Debug {
    fn read(&self, document: &[u8]) -> Arc<dyn EventRules>;
}
