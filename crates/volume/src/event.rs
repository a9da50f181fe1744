//! What is told of an event, and who decides where it goes.
//!
//! Not here: the queue (event_queue, events), what rules say (the S3 door).

use std::fmt::Debug;
use std::sync::Arc;

use margay_rows::event::{Event, EventKind};
use margay_rows::values::{ETag, VersionId};

/// What a change tells; the rest is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) kind: EventKind,
    pub(crate) key: &'a str,
    pub(crate) size: u64,
    pub(crate) etag: ETag,
    /// `None` in a bucket that never kept versions.
    pub(crate) version: Option<VersionId>,
}

/// An event that waits for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedEvent {
    /// Larger than that of every earlier event of the same key.
    pub number: u64,
    pub event: Event,
    /// The id of the rule that asked for it.
    pub rule: String,
}

/// Where an event goes, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub target: String,
    pub rule: String,
}

/// The notification rules of one bucket.
pub trait EventRules: Send + Sync + Debug {
    fn routes(&self, kind: EventKind, key: &str) -> Vec<Route>;
}

/// Reads the rules out of a bucket's setting. A document that it cannot read has no rules.
pub trait EventRouter: Send + Sync + Debug {
    fn read(&self, document: &[u8]) -> Arc<dyn EventRules>;
}
