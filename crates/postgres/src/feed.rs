//! The change feed: what the table of changes has below the oldest transaction that is under way.
//!
//! Why:        commits get their numbers in their order, but become visible in another one; who asks for those behind the last
//!             number that it saw would miss a commit that was late.
//! Invariants: G1 a page ends before the oldest transaction under way (F1 of margay_meta::feed). So it may lack what a read has
//!                shown already; `wait_feed` waits for that.
//!             G2 batches that shared a call are changes of their own, with one cursor.
//! Not here:   doorbells between processes: who waits asks again and again.

use std::time::Duration;

use margay_meta::{Change, Cursor, EngineError, FEED_PAGE_BYTES_MAX, FeedError, FeedPage};

use crate::connection::nonsense;
use crate::read::{Readers, Reading};

/// Commits that the feed keeps.
pub(crate) const CHANGES_HELD_MAX: i64 = 65_536;
/// A process removes older ones after so many commits of its own.
pub(crate) const FORGET_EVERY: u64 = 4096;

/// The oldest transaction under way, and the number behind the newest that has ended.
const BOUNDS: &str = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint, \
                      pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
const START: &str = "select greatest(pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1, forgotten) from feed";
/// Commits end within milliseconds, unless one of another database or program is under way.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOKS_MAX: usize = 1500;

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
        page.changes.extend(batches(encoded)?.into_iter().map(|keys| Change { cursor, keys }));
    }
    Ok(page)
}

/// The keys of each batch, each with its length before it; length 0 is between two batches.
pub(crate) fn batches(mut encoded: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, EngineError> {
    let cut = || nonsense("a key of the feed is cut off");
    let mut batches = vec![Vec::new()];
    while let Some((len, rest)) = encoded.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len));
        let (key, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        match batches.last_mut() {
            Some(keys) if len > 0 => keys.push(key.to_vec()),
            _ => batches.push(Vec::new()),
        }
        encoded = rest;
    }
    if encoded.is_empty() { Ok(batches) } else { Err(cut()) }
}

/// Before the oldest transaction under way. What is forgotten has ended, unless it took as long as all the others that the feed holds.
pub(crate) async fn feed_start(reading: &Reading) -> Result<Cursor, EngineError> {
    let told = reading.query(START, &[]).await?;
    let start = told.first().and_then(|row| row.try_get::<_, i64>(0).ok());
    start.map(|start| Cursor(start.cast_unsigned())).ok_or_else(|| nonsense("a feed without a start"))
}

/// Waits until the feed shows all that was visible when this began.
pub(crate) async fn wait_feed(readers: &Readers) -> Result<(), EngineError> {
    let mut wanted = None;
    for _ in 0..LOOKS_MAX {
        let row = readers.one().await?.query(BOUNDS, &[]).await?;
        let row = row.first().ok_or_else(|| nonsense("no transaction"))?;
        let number = |at| row.try_get::<_, i64>(at).map_err(|error| nonsense(&error.to_string()));
        let (oldest, newest) = (number(0)?, number(1)?);
        if oldest >= *wanted.get_or_insert(newest) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let why = "a transaction of the server is under way for long: what other processes changed is not known";
    Err(EngineError::Unavailable(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_batches_come_back_and_a_cut_is_an_error() {
        let whole = [0, 1, b'a', 0, 0, 0, 2, b'b', b'c'];
        assert_eq!(batches(&whole).unwrap(), [vec![b"a".to_vec()], vec![b"bc".to_vec()]]);
        let cut: Vec<usize> = (0..whole.len()).filter(|len| batches(&whole[..*len]).is_ok()).collect();
        assert_eq!(cut, [0, 3, 5]);
    }
}
