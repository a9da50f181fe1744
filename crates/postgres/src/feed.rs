//! The change feed: what the table of changes has below the oldest transaction that is under way.
//!
//! Why:        commits get their numbers in their order, but become visible in another one; who asks for those behind the last
//!             number that it saw would miss a commit that was late.
//! Invariants: G1 a page ends before the oldest transaction under way (F1 of margay_meta::feed).
//! Not here:   doorbells between processes: who waits asks again and again.

use margay_meta::{Change, Cursor, EngineError, FEED_PAGE_BYTES_MAX, FeedError, FeedPage};

use crate::lane::nonsense;
use crate::read::Reading;

/// Commits that the feed keeps.
pub(crate) const CHANGES_HELD_MAX: i64 = 65_536;
/// A process removes older ones after so many commits of its own.
pub(crate) const FORGET_EVERY: u64 = 4096;

pub(crate) async fn changes(reading: &Reading, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
    let (behind, rows) = (after.0.cast_signed(), i64::try_from(limit).unwrap_or(i64::MAX));
    let told = reading.query("select version, keys from changes_v1($1, $2)", &[&behind, &rows]).await?;
    let number = |at: usize| -> Result<u64, EngineError> {
        let row = told.get(at).ok_or_else(|| nonsense("a feed without a beginning"))?;
        Ok(row.try_get::<_, i64>(0).map_err(|error| nonsense(&error.to_string()))?.cast_unsigned())
    };
    let (forgotten, newest) = (number(0)?, number(1)?);
    if after.0 < forgotten || after.0 >= newest && after.0 > 0 {
        return Err(FeedError::TooOld { oldest: Cursor(forgotten) });
    }
    let (mut page, mut bytes) = (FeedPage { changes: Vec::new(), next: after }, 0);
    for (at, row) in told.iter().enumerate().skip(2) {
        let encoded: &[u8] = row.try_get(1).map_err(|error| nonsense(&error.to_string()))?;
        bytes += encoded.len();
        if bytes > FEED_PAGE_BYTES_MAX && !page.changes.is_empty() {
            break;
        }
        let cursor = Cursor(number(at)?);
        assert!(cursor > page.next, "changes are in the order of their commits (F1)");
        page.next = cursor;
        page.changes.push(Change { cursor, keys: keys(encoded)? });
    }
    Ok(page)
}

/// Each with its length before it.
pub(crate) fn keys(mut encoded: &[u8]) -> Result<Vec<Vec<u8>>, EngineError> {
    let mut keys = Vec::new();
    while let Some((len, rest)) = encoded.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len));
        let (key, rest) = rest.split_at_checked(len).ok_or_else(|| nonsense("a key of the feed is cut off"))?;
        keys.push(key.to_vec());
        encoded = rest;
    }
    if encoded.is_empty() { Ok(keys) } else { Err(nonsense("a key of the feed is cut off")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_a_cut_is_an_error() {
        let whole = [0, 1, b'a', 0, 0, 0, 2, b'b', b'c'];
        assert_eq!(keys(&whole).unwrap(), [b"a".to_vec(), Vec::new(), b"bc".to_vec()]);
        let cut: Vec<usize> = (0..whole.len()).filter(|len| keys(&whole[..*len]).is_ok()).collect();
        assert_eq!(cut, [0, 3, 5]);
    }
}
