//! A bucket's notification rules: which changes are sent to which target.
//!
//! Why:        the same values are checked when rules are set and evaluated when an object changes.
//! Layout:     `read` parses a client's document and writes it, `kind` has the names of events.
//! Invariants: T1 a target is the last part of an ARN (arn:aws:sqs:REGION:ACCOUNT:NAME, sns and lambda alike); the
//!                server's settings define the valid names.
//! Not here:   queueing (volume), sending (margay-jobs).

mod kind;
mod message;
mod read;

use std::sync::Arc;

use margay_volume::{EventKind, EventRouter, EventRules, Route};

use self::kind::Pattern;
pub use self::kind::name;
pub use self::message::message;
pub use self::read::read;

/// Maximum number of rules of a bucket.
pub const RULES_MAX: usize = 100;

/// The rules of one bucket, in the order of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notifications {
    pub(crate) rules: Vec<Rule>,
}

/// The kind of target in AWS's terms; here all of them are HTTP endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Queue,
    Topic,
    Function,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    id: String,
    service: Service,
    arn: String,
    events: Vec<Pattern>,
    prefix: Option<String>,
    suffix: Option<String>,
}

impl Rule {
    fn fits(&self, kind: EventKind, key: &str) -> bool {
        self.events.iter().any(|pattern| pattern.fits(kind))
            && self.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
            && self.suffix.as_deref().is_none_or(|suffix| key.ends_with(suffix))
    }

    /// The name of the target in the server's settings.
    pub(crate) fn target(&self) -> &str {
        target(&self.arn)
    }
}

fn target(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

impl Notifications {
    /// The ARN of the first rule whose target is none of `known`.
    pub(crate) fn unknown_target(&self, known: &[String]) -> Option<&str> {
        let unknown = self.rules.iter().find(|rule| !known.iter().any(|name| name == rule.target()));
        unknown.map(|rule| rule.arn.as_str())
    }
}

impl EventRules for Notifications {
    fn routes(&self, kind: EventKind, key: &str) -> Vec<Route> {
        let fitting = self.rules.iter().filter(|rule| rule.fits(kind, key));
        fitting.map(|rule| Route { target: rule.target().to_owned(), rule: rule.id.clone() }).collect()
    }
}

/// Parses stored documents for the volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Router;

impl EventRouter for Router {
    fn read(&self, document: &[u8]) -> Arc<dyn EventRules> {
        let rules = read(document).unwrap_or_else(|error| {
            // It was valid when it was set.
            tracing::error!(%error, "a bucket's notifications cannot be read: none are sent");
            Notifications::default()
        });
        Arc::new(rules)
    }
}
