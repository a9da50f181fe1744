//! Pages of a listing, with what HEAD says of each object where the store tells it.
//!
//! Why:        a HEAD for each object is most of what a first listing costs.
//! Invariants: P1 what a store tells is seen in its answers, not known from its name. What a page does not tell whole is asked for
//!                by HEAD.
//!             P2 a store that refuses the parameter is asked without it afterwards.
//! Not here:   the elements of a page (margay-client), entries (list), when somebody looks again (refresh).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use margay_client::ClientError;
use margay_client::client::{ListQuery, PAGE_KEYS_MAX};
use margay_client::upstream::{Described, Upstream, described};

use crate::refusal::Refusal;

/// What a listing says of a key.
#[derive(Clone, Debug)]
pub(crate) enum Listed {
    /// There is something below it.
    Directory,
    Object(Line),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) size: u64,
    pub(crate) etag: String,
    /// In milliseconds; 0: the page does not say.
    pub(crate) modified: u64,
    /// What HEAD would say.
    pub(crate) described: Option<Described>,
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) listed: Vec<(String, Listed)>,
    /// Where the next one begins.
    pub(crate) next: Option<String>,
    /// There is an object of the directory itself.
    pub(crate) has_marker: bool,
}

const UNKNOWN: u8 = 0;
const TOLD: u8 = 1;
const NOT_TOLD: u8 = 2;
const REFUSED: u8 = 3;

#[derive(Debug)]
pub(crate) struct Pages {
    upstream: Upstream,
    /// Whether the store tells metadata.
    metadata: AtomicU8,
    refusal: Arc<Refusal>,
}

impl Pages {
    pub(crate) fn new(upstream: Upstream, refusal: Arc<Refusal>) -> Pages {
        Pages { upstream, metadata: AtomicU8::new(UNKNOWN), refusal }
    }

    /// Whether the store tells metadata in listings; `None`: it has not listed an object yet.
    pub(crate) fn tells_metadata(&self) -> Option<bool> {
        match self.metadata.load(Ordering::Relaxed) {
            UNKNOWN => None,
            told => Some(told == TOLD),
        }
    }

    /// One page of the names directly below a path, without the hidden one; `metadata`: also what HEAD says, if the store tells it.
    pub(crate) async fn page(
        &self,
        (path, hidden): (&str, &str),
        token: Option<String>,
        metadata: bool,
    ) -> Result<Page, ClientError> {
        let with = metadata && self.metadata.load(Ordering::Relaxed) != REFUSED;
        let query = ListQuery {
            prefix: path,
            delimiter: Some("/"),
            token: token.as_deref(),
            keys_max: PAGE_KEYS_MAX,
            encoded: true,
            metadata: with,
            ..ListQuery::default()
        };
        let page = match self.upstream.list(&query).await {
            Err(error) if with && is_refusal(&error) => {
                let plain = self.upstream.list(&ListQuery { metadata: false, ..query }).await;
                if plain.is_ok() {
                    tracing::info!(%error, "this store lists no metadata");
                    self.metadata.store(REFUSED, Ordering::Relaxed);
                }
                plain
            }
            page => page,
        };
        self.refusal.note(&page);
        let page = page?;
        let mut listed = Vec::with_capacity(page.entries.len() + page.prefixes.len());
        let mut has_marker = false;
        for entry in page.entries {
            let described = described(&entry);
            if with && self.metadata.load(Ordering::Relaxed) != TOLD {
                let seen = if described.is_some() { TOLD } else { NOT_TOLD };
                // A refusal stays.
                let known = |now: u8| (now != REFUSED).then_some(seen);
                let _ = self.metadata.fetch_update(Ordering::Relaxed, Ordering::Relaxed, known);
            }
            if entry.key == path {
                has_marker = true;
            } else {
                let modified = entry.modified.parse().map_or(0, |at: jiff::Timestamp| at.as_millisecond());
                let modified = u64::try_from(modified).unwrap_or(0);
                let line = Line { size: entry.size, etag: entry.etag, modified, described };
                listed.push((entry.key, Listed::Object(line)));
            }
        }
        let prefixes = page.prefixes.into_iter().filter(|prefix| prefix != hidden && prefix != path);
        listed.extend(prefixes.map(|prefix| (prefix, Listed::Directory)));
        Ok(Page { listed, next: page.next_token.filter(|_| page.truncated), has_marker })
    }
}

/// Whether a store may mean the parameter.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error.status(), Some(400 | 405 | 501))
}
