//! The rules of buckets, kept read, for the header `x-amz-expiration`.
//!
//! Invariants: rules are those of the bucket's generation, which is read for each answer; at most `KNOWN_MAX` buckets.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use margay_volume::{Setting, View};
use parking_lot::Mutex;

use super::{Days, Lifecycle, Subject, read};
use crate::time::http_date;
use crate::xml::write::percent_encode;

/// Buckets whose rules are kept; the next one empties it.
const KNOWN_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct KnownLifecycles(Mutex<HashMap<String, (u64, Arc<Lifecycle>)>>);

impl KnownLifecycles {
    /// The header of an object that a rule will end: when, and which rule. Days are real ones, also when tests shorten
    /// those of the background.
    pub(crate) async fn header(&self, view: View<'_>, bucket: &str, subject: &Subject<'_>) -> Option<String> {
        // The answer stands without it: what it is about was done or read.
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
