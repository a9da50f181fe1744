//! Which of many objects that are to be removed are still there: a page of a listing tells it of up to a thousand.
//!
//! Why:        where a store ignores conditions of removals each key is asked for before it, and a HEAD each makes a removed tree
//!             as slow as that many round trips.
//! Invariants: L1 a listing tells only that an object is there with the ETag that is meant. Of any other key somebody asks by HEAD:
//!                pages may be late, cut off, or in another order.
//!             L2 no more pages are read than HEADs would be sent, each by `WORTH` keys.
//! Not here:   removing (removal).

use std::collections::HashSet;

use margay_client::ClientError;
use margay_client::client::{ListQuery, PAGE_KEYS_MAX};
use margay_client::upstream::{StateOf, Upstream};

/// Keys from which on a page is read for them: stores take as much for a page as for about this many HEADs.
pub(super) const WORTH: usize = 12;

/// The keys of those states that were seen in a listing.
pub(super) async fn seen(upstream: &Upstream, mut states: Vec<StateOf<'_>>) -> Result<HashSet<String>, ClientError> {
    states.sort_unstable_by_key(|state| state.key);
    let mut seen = HashSet::new();
    let mut left = states.as_slice();
    while let ([first, ..], true) = (left, left.len() >= WORTH) {
        let query = ListQuery {
            prefix: common(first.key, left[left.len() - 1].key),
            start_after: Some(before(first.key)),
            keys_max: PAGE_KEYS_MAX,
            encoded: true,
            ..ListQuery::default()
        };
        let page = upstream.list(&query).await?;
        let Some(last) = page.entries.last() else { break };
        let (reached, rest) = left.split_at(left.partition_point(|state| *state.key <= *last.key));
        seen.extend(
            page.entries
                .iter()
                .filter(|entry| is_meant(reached, &entry.key, &entry.etag))
                .map(|entry| entry.key.clone()),
        );
        if !page.truncated || reached.len() < WORTH {
            break;
        }
        left = rest;
    }
    Ok(seen)
}

fn is_meant(states: &[StateOf<'_>], key: &str, etag: &str) -> bool {
    let found = states.binary_search_by(|state| state.key.cmp(key)).ok().map(|at| states[at].etag);
    // Some stores quote ETags in headers alone.
    found.is_some_and(|meant| meant.trim_matches('"') == etag.trim_matches('"'))
}

/// The directory that has both keys.
fn common<'k>(one: &'k str, other: &str) -> &'k str {
    let same = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let end = one.as_bytes()[..same].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    &one[..end]
}

/// A text that is shorter, and so comes before the key, with few other keys between.
fn before(key: &str) -> &str {
    let end = key.char_indices().last().map_or(0, |(at, _)| at);
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_begins_before_the_first_key() {
        assert_eq!((common("a/b/c1", "a/b/c2"), common("a/b", "a/b"), common("a", "b")), ("a/b/", "a/", ""));
        assert_eq!(common("a/é1", "a/è2"), "a/");
        assert_eq!((before("a/é"), before("a/b1"), before("")), ("a/", "a/b", ""));
    }
}
