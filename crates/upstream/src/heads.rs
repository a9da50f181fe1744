//! Asks for what a listing does not say of its names.
//!
//! Invariants: A1 a HEAD that the store refuses because of its key costs the attributes of that entry, not the listing.
//!             A2 a directory without a marker is there only if something is below it, where a listing alone does not tell that.
//! Not here:   listings (pages), entries (list).

use http::HeaderMap;
use margay_client::ClientError;
use margay_client::client::ListQuery;
use margay_client::upstream::{Described, StoreName, Upstream};
use tokio::task::JoinSet;

use crate::attributes::written_ms;
use crate::pages::{Line, Listed};

/// The status of a bad request, whose cause an answer to a HEAD does not say.
const BAD: u16 = 400;

/// A name in a listing, and what a HEAD says of it.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) sort_name: String,
    pub(crate) key: String,
    /// `None`: a directory without a marker.
    pub(crate) there: Option<Described>,
    /// As `UpstreamObject::modified`.
    pub(crate) modified: u64,
    /// The entry gets the attributes that these say in place of those of the object, which is to get them.
    pub(crate) attributes: Option<HeaderMap>,
}

impl Found {
    /// What HEAD says of an object.
    pub(crate) fn object(key: &str, name: &str, there: Described) -> Found {
        let (sort_name, key, modified) = (name.to_owned(), key.to_owned(), written_ms(&there.headers));
        Found { sort_name, key, there: Some(there), modified, attributes: None }
    }

    /// As it would be found with these headers.
    pub(crate) fn with(&self, headers: &HeaderMap) -> Found {
        let there = self.there.as_ref().map(|there| Described { headers: headers.clone(), ..there.clone() });
        Found { there, attributes: None, ..self.clone() }
    }
}

/// Whether two times of an object are one: some are told in whole seconds. 0 is not known.
pub(crate) fn is_same_time(one: u64, other: u64) -> bool {
    let is_rough = one.is_multiple_of(1000) || other.is_multiple_of(1000);
    one == 0 || other == 0 || one == other || is_rough && one / 1000 == other / 1000
}

/// What is there under the names directly below a path.
pub(crate) async fn described(
    upstream: &Upstream,
    path: &str,
    listed: Vec<(String, Listed)>,
) -> Result<Vec<Found>, ClientError> {
    let mut heads = JoinSet::new();
    let mut found = Vec::with_capacity(listed.len());
    let mut is_any_bad = false;
    let mut put = |key: String, modified: Option<u64>, there: Option<Described>| {
        // An object without an answer was removed since.
        if let Some(name) = key.strip_prefix(path).filter(|_| modified.is_none() || there.is_some()) {
            let sort_name = name.to_owned();
            let told = there.as_ref().map_or(0, |there| written_ms(&there.headers));
            // HEAD says it in whole seconds.
            let modified = modified.filter(|listed| is_same_time(*listed, told)).unwrap_or(told);
            found.push(Found { sort_name, there, key, modified, attributes: None });
        }
    };
    for (key, listed) in listed {
        match listed {
            Listed::Object(Line { described: Some(there), modified, .. }) => put(key, Some(modified), Some(there)),
            listed => drop(heads.spawn(head(upstream.clone(), key, listed))),
        }
    }
    while let Some(head) = heads.join_next().await {
        let head = head.map_err(|error| ClientError::Source(std::io::Error::other(error)))??;
        if let Some(Head { key, modified, there, is_bad }) = head {
            put(key, modified, there);
            is_any_bad |= is_bad;
        }
    }
    if is_any_bad {
        // Keys that have expired meanwhile are refused with the same status, and whatever is asked.
        upstream.list(&ListQuery { prefix: path, keys_max: 1, encoded: true, ..ListQuery::default() }).await?;
    }
    found.sort_unstable_by(|one, other| one.sort_name.cmp(&other.sort_name));
    Ok(found)
}

/// The answer to a HEAD.
struct Head {
    key: String,
    /// The listed time of an object; `None`: it is a directory's marker.
    modified: Option<u64>,
    there: Option<Described>,
    /// It was a bad request.
    is_bad: bool,
}

/// Whether a store refuses a HEAD because of its key: it is too long, or encrypted with a customer's key, or others may not
/// read it. What is not about the key: who asks, and that it may be asked again.
fn is_of_key(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 401 | 404 | 407 | 408 | 425 | 429)
}

/// `None`: it is no directory (A2).
async fn head(upstream: Upstream, key: String, listed: Listed) -> Result<Option<Head>, ClientError> {
    if matches!(listed, Listed::Directory) && upstream.store().is_some_and(StoreName::lists_empty_directories) {
        let query = ListQuery { prefix: &key, keys_max: 1, encoded: true, ..ListQuery::default() };
        if upstream.list(&query).await?.entries.is_empty() {
            return Ok(None);
        }
    }
    let (there, is_bad) = match upstream.describe(&key).await {
        Err(error) if error.status().is_some_and(is_of_key) => (None, error.status() == Some(BAD)),
        there => {
            let there = there?;
            let modified = if let Listed::Object(line) = listed { Some(line.modified) } else { None };
            return Ok(Some(Head { key, modified, there, is_bad: false }));
        }
    };
    Ok(Some(match listed {
        // It may be listed and not be read: it is shown, and reading it says so.
        Listed::Object(Line { size, etag, modified, .. }) => {
            let there = Some(Described { etag, size, headers: HeaderMap::new() });
            Head { key, modified: Some(modified), there, is_bad }
        }
        // Where missing keys are refused, too.
        Listed::Directory => Head { key, modified: None, there, is_bad },
    }))
}
