//! Conditional reads and writes, decided on the row that was read.
//!
//! Why:   both doors and all operations share the evaluation; the same commit asserts the row's version.
//! Order: RFC 9110 section 13.2.2: If-Match, else If-Unmodified-Since; then If-None-Match, else If-Modified-Since.

use margay_env::Timestamp;

use crate::api::{ETag, ETagMatch, Error, ReadCondition, WriteCondition};

impl ReadCondition {
    /// Compared in whole seconds, the resolution of HTTP dates.
    pub(crate) fn check(&self, etag: ETag, modified: Timestamp) -> Result<(), Error> {
        let listed = |list: &[ETagMatch]| {
            list.iter().any(|one| match one {
                ETagMatch::Any => true,
                ETagMatch::Exact(wanted) => *wanted == etag,
                ETagMatch::Never => false,
            })
        };
        match (&self.if_match, self.if_unmodified_since) {
            (Some(list), _) if !listed(list) => return Err(Error::PreconditionFailed),
            (None, Some(since)) if modified.seconds() > since.seconds() => return Err(Error::PreconditionFailed),
            _ => {}
        }
        match (&self.if_none_match, self.if_modified_since) {
            (Some(list), _) if listed(list) => Err(Error::NotModified),
            (None, Some(since)) if modified.seconds() <= since.seconds() => Err(Error::NotModified),
            _ => Ok(()),
        }
    }

    /// As `check`, for the source of a copy: there is no client cache, so "not modified" is a failure.
    pub(crate) fn check_source(&self, etag: ETag, modified: Timestamp) -> Result<(), Error> {
        match self.check(etag, modified) {
            Err(Error::NotModified) => Err(Error::PreconditionFailed),
            other => other,
        }
    }
}

impl WriteCondition {
    /// For a write to, or a deletion of, a key with the object `current`.
    pub(crate) fn check(&self, current: Option<ETag>) -> Result<(), Error> {
        match (self, current) {
            (WriteCondition::None, _) | (WriteCondition::Absent, None) | (WriteCondition::Present, Some(_)) => Ok(()),
            (WriteCondition::Absent, Some(_)) => Err(Error::PreconditionFailed),
            (WriteCondition::Differs(list), Some(etag)) if list.contains(&etag) => Err(Error::PreconditionFailed),
            (WriteCondition::Differs(_), _) => Ok(()),
            // AWS answers 404 when there is nothing to compare with.
            (WriteCondition::Matches(_) | WriteCondition::Present, None) => Err(Error::NoSuchKey),
            (WriteCondition::Matches(list), Some(etag)) if list.contains(&etag) => Ok(()),
            (WriteCondition::Matches(_), Some(_)) => Err(Error::PreconditionFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: ETag = ETag { digest: [1; 16], parts: 0 };
    const OTHER: ETag = ETag { digest: [2; 16], parts: 0 };

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000 + 5)
    }

    #[test]
    fn if_match_outranks_if_unmodified_since() {
        let mut condition = ReadCondition { if_unmodified_since: Some(at(1)), ..ReadCondition::default() };
        assert!(matches!(condition.check(ETAG, at(2)), Err(Error::PreconditionFailed)));
        condition.if_match = Some(vec![ETagMatch::Exact(OTHER), ETagMatch::Exact(ETAG)]);
        assert!(condition.check(ETAG, at(2)).is_ok());
        condition.if_match = Some(vec![ETagMatch::Never]);
        assert!(matches!(condition.check(ETAG, at(2)), Err(Error::PreconditionFailed)));
    }

    #[test]
    fn if_none_match_outranks_if_modified_since() {
        let mut condition = ReadCondition { if_modified_since: Some(at(2)), ..ReadCondition::default() };
        assert!(matches!(condition.check(ETAG, at(2)), Err(Error::NotModified)));
        assert!(matches!(condition.check_source(ETAG, at(2)), Err(Error::PreconditionFailed)));
        condition.if_none_match = Some(vec![ETagMatch::Exact(OTHER)]);
        assert!(condition.check(ETAG, at(2)).is_ok());
        condition.if_none_match = Some(vec![ETagMatch::Any]);
        assert!(matches!(condition.check(ETAG, at(9)), Err(Error::NotModified)));
    }

    #[test]
    fn writes() {
        assert!(WriteCondition::Absent.check(None).is_ok());
        assert!(matches!(WriteCondition::Absent.check(Some(ETAG)), Err(Error::PreconditionFailed)));
        assert!(matches!(WriteCondition::Present.check(None), Err(Error::NoSuchKey)));
        assert!(matches!(WriteCondition::Matches(vec![ETAG]).check(None), Err(Error::NoSuchKey)));
        assert!(WriteCondition::Matches(vec![OTHER, ETAG]).check(Some(ETAG)).is_ok());
        assert!(matches!(WriteCondition::Matches(vec![OTHER]).check(Some(ETAG)), Err(Error::PreconditionFailed)));
        assert!(matches!(WriteCondition::Differs(vec![OTHER, ETAG]).check(Some(ETAG)), Err(Error::PreconditionFailed)));
        assert!(WriteCondition::Differs(vec![OTHER]).check(Some(ETAG)).is_ok());
        assert!(WriteCondition::Differs(vec![ETAG]).check(None).is_ok());
    }
}
