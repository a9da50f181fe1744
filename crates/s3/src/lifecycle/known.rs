//! The header `x-amz-expiration`: when a rule will expire an object, and by which rule.
//!
//! Not here: the cache of parsed rules (margay-volume's facts of buckets).

use bytes::{Bytes, BytesMut};
use margay_volume::{BucketFact, BucketInfo, Setting, View};

use super::{Days, Lifecycle, Subject, read};
use crate::time::http_date;
use crate::xml::write::percent_encode;

impl BucketFact for Lifecycle {
    const SETTINGS: &'static [Setting] = &[Setting::Lifecycle];

    /// Without rules if it has none, or if they cannot be read.
    fn parse(_: &BucketInfo, documents: &[(Setting, Bytes)]) -> Lifecycle {
        documents.first().and_then(|(_, document)| read(document).ok()).unwrap_or_default()
    }
}

/// The header of an object that a rule will expire. Uses real days, even when tests shorten those of the background
/// job.
pub(crate) async fn expiration(view: View<'_>, bucket: &str, subject: &Subject<'_>) -> Option<String> {
    // The response is valid without the header: its operation has already succeeded.
    let rules = view.bucket_fact::<Lifecycle>(bucket).await.ok()?;
    let due = rules.current(subject, Days::REAL)?;
    let mut rule = BytesMut::new();
    percent_encode(&mut rule, &due.rule.id);
    Some(format!("expiry-date=\"{}\", rule-id=\"{}\"", http_date(due.at), String::from_utf8_lossy(&rule)))
}
