//! A cache of parsed lifecycle rules, for the header `x-amz-expiration`.
//!
//! Invariants: K1 rules are used only for the bucket's current generation, which each response reads.
//!             K2 at most `KNOWN_MAX` buckets are cached.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use margay_volume::{Setting, View};
use parking_lot::Mutex;

use super::{Days, Lifecycle, Subject, read};
use crate::time::http_date;
use crate::xml::write::percent_encode;

/// Capacity of the cache; the next bucket clears it.
const KNOWN_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct KnownLifecycles(Mutex<HashMap<String, (u64, Arc<Lifecycle>)>>);

impl KnownLifecycles {
    /// The header of an object that a rule will expire: when, and by which rule. Uses real days, even when tests
    /// shorten those of the background job.
    pub(crate) async fn header(&self, view: View<'_>, bucket: &str, subject: &Subject<'_>) -> Option<String> {
        // The response is valid without the header: its operation has already succeeded.
        let info = view.head_bucket(bucket).await.ok()?;
        if !info.settings.contains(Setting::Lifecycle) {
            return None;
        }
        let known = self.0.lock().get(bucket).filter(|(generation, _)| *generation == info.generation).cloned();
        let rules = match known {
            Some((_, rules)) => rules,
            None => {
                let stored = view.bucket_setting(bucket, Setting::Lifecycle).await.ok()??;
                let rules = Arc::new(read(&stored).unwrap_or_default());
                let mut known = self.0.lock();
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                known.insert(bucket.to_owned(), (info.generation, Arc::clone(&rules)));
                rules
            }
        };
        let due = rules.current(subject, Days::REAL)?;
        let mut rule = BytesMut::new();
        percent_encode(&mut rule, &due.rule.id);
        Some(format!("expiry-date=\"{}\", rule-id=\"{}\"", http_date(due.at), String::from_utf8_lossy(&rule)))
    }
}
