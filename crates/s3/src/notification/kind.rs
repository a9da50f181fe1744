//! S3's names of events.

use margay_volume::EventKind;

/// The name of an event, without `s3:`.
pub fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Put => "ObjectCreated:Put",
        EventKind::Copy => "ObjectCreated:Copy",
        EventKind::CompleteMultipartUpload => "ObjectCreated:CompleteMultipartUpload",
        EventKind::Delete => "ObjectRemoved:Delete",
        EventKind::DeleteMarkerCreated => "ObjectRemoved:DeleteMarkerCreated",
        EventKind::Expired => "LifecycleExpiration:Delete",
        EventKind::ExpiredToMarker => "LifecycleExpiration:DeleteMarkerCreated",
        EventKind::TaggingPut => "ObjectTagging:Put",
        EventKind::TaggingDelete => "ObjectTagging:Delete",
    }
}

/// Events of S3 that never occur here; a rule may name them all the same.
const NEVER: &[&str] = &[
    "ObjectAcl:Put",
    "ObjectCreated:Post",
    "ReducedRedundancyLostObject",
    "ObjectRestore:*",
    "ObjectRestore:Post",
    "ObjectRestore:Completed",
    "ObjectRestore:Delete",
    "Replication:*",
    "Replication:OperationFailedReplication",
    "Replication:OperationMissedThreshold",
    "Replication:OperationNotTracked",
    "Replication:OperationReplicatedAfterThreshold",
    "LifecycleTransition",
    "IntelligentTiering",
];

/// The event type in a rule: one event, or with `*` all of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// `None`: S3 has no such event.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        let event = text.strip_prefix("s3:")?;
        let pattern = Pattern(text.to_owned());
        let known = NEVER.contains(&event) || EventKind::ALL.into_iter().any(|kind| pattern.fits(kind));
        known.then_some(pattern)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn fits(&self, kind: EventKind) -> bool {
        covers(&self.0["s3:".len()..], name(kind))
    }

    /// Whether some event matches both.
    pub(crate) fn meets(&self, other: &Pattern) -> bool {
        covers(&self.0, &other.0) || covers(&other.0, &self.0)
    }
}

/// `ObjectCreated:*` covers `ObjectCreated:Put`; a bare `*` covers nothing.
fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => start.ends_with(':') && name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let all = Pattern::parse("s3:ObjectCreated:*").unwrap();
        let put = Pattern::parse("s3:ObjectCreated:Put").unwrap();
        assert!(all.fits(EventKind::Put) && all.fits(EventKind::Copy) && !all.fits(EventKind::Delete));
        assert!(put.fits(EventKind::Put) && !put.fits(EventKind::Copy));
        assert!(put.meets(&all) && all.meets(&put) && all.meets(&all));
        assert!(!put.meets(&Pattern::parse("s3:ObjectCreated:Copy").unwrap()));
        assert!(
            Pattern::parse("s3:ObjectRestore:*").is_some_and(|one| !EventKind::ALL.iter().any(|kind| one.fits(*kind)))
        );
        for wrong in ["s3:*", "s3:Object*", "ObjectCreated:*", "s3:ObjectCreated:Pu", "s3:", ""] {
            assert_eq!(Pattern::parse(wrong), None, "{wrong}");
        }
    }
}
