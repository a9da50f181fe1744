//! Sends the bytes of a segment to one store.
//!
//! Invariants: N1 what a store has of a batch counts only if one process of it took all of it and synced it: one that was started
//!                again in between may have lost what was not synced, and gets the batch again.
//! Not here:   who is sent what (segment), the store's answers (peers).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_segment::{Kind, SegmentError, SegmentId, StoreNumber};

use super::Inner;
use super::segment::Copied;
use crate::question::{WRITE_BYTES_MAX, What};

/// An answer to a write takes so long at most; others may be asked before (`JOINED_AFTER`).
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
/// How often a batch is sent whose store was started again meanwhile.
const BATCH_TRIES_MAX: usize = 3;

/// Until the store has all, or fails.
pub(super) async fn send(inner: Arc<Inner>, copied: Arc<Copied>, store: StoreNumber) {
    while let Some(lacking) = copied.lacking(store) {
        match send_batch(&inner, (copied.id, copied.kind), (&lacking.parts, lacking.before), store).await {
            Ok(()) => {
                // Before whoever waits sees it: its commit names the store.
                inner.note_copy(copied.id, store);
                copied.has(store, lacking.until);
            }
            // Its copy was removed meanwhile (U2 of upkeep): it gets all again.
            Err(SegmentError::Missing(_)) if lacking.before > 0 => {
                inner.forget_copy(copied.id, store);
                copied.lost(store);
            }
            Err(error) => {
                inner.counters.failed_sends.fetch_add(1, Ordering::Relaxed);
                inner.targets.failed(store);
                copied.failed(store, error.to_string());
                seal_here(&inner, &copied);
                return;
            }
        }
    }
}

/// What comes next goes to another pack, whose stores do not have to get what is in this one first.
pub(super) fn seal_here(inner: &Arc<Inner>, copied: &Copied) {
    if copied.kind == Kind::Pack {
        let (own, id) = (Arc::clone(&inner.own), copied.id);
        // If it fails, the pack is sealed when it is full.
        drop(tokio::task::spawn_blocking(move || own.seal(id)));
    }
}

/// Parts of a file, durably. `before`: how long the copy is; `Missing` if it is shorter.
pub(super) async fn send_batch(
    inner: &Arc<Inner>,
    (id, kind): (SegmentId, Kind),
    (parts, before): (&[Range<u64>], u64),
    store: StoreNumber,
) -> Result<(), SegmentError> {
    let sends = inner.sends(store);
    let pieces: Vec<Range<u64>> = parts.iter().flat_map(pieces_of).collect();
    for _ in 0..BATCH_TRIES_MAX {
        let mut generations = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            // The semaphore is never closed.
            let _turn = sends.acquire().await.map_err(|error| SegmentError::Io(io::Error::other(error)))?;
            let (len, durably) = (piece.end - piece.start, at + 1 == pieces.len());
            let body = read(inner, id, piece.clone()).await?;
            let what = What::Write { id, kind, offset: piece.start, len, durably, before };
            let answer = inner.peers.ask_with(store, what, body, SEND_TIME_MAX).await?;
            inner.counters.sent_bytes.fetch_add(len, Ordering::Relaxed);
            generations.push(answer);
        }
        if generations.windows(2).all(|two| two[0] == two[1]) {
            return Ok(());
        }
    }
    Err(SegmentError::Unreachable(id, store))
}

fn pieces_of(part: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = part.end;
    let starts = (part.start..end).step_by(WRITE_BYTES_MAX as usize);
    starts.map(move |start| start..(start + WRITE_BYTES_MAX).min(end))
}

/// Bytes of the own file, behind room for the question.
async fn read(inner: &Arc<Inner>, id: SegmentId, piece: Range<u64>) -> Result<Vec<u8>, SegmentError> {
    let own = Arc::clone(&inner.own);
    let read = tokio::task::spawn_blocking(move || {
        let mut body = vec![0; (piece.end - piece.start) as usize];
        own.file(id)?.read_exact_at(&mut body, piece.start)?;
        Ok(body)
    });
    read.await.unwrap_or_else(|error| Err(SegmentError::Io(io::Error::other(error))))
}

/// Nothing is added to the segment any more.
pub(super) async fn seal(inner: Arc<Inner>, id: SegmentId, store: StoreNumber) {
    let sends = inner.sends(store);
    let Ok(_turn) = sends.acquire().await else { return };
    // A copy that stays open costs a file handle until its store is started again.
    let _ = inner.peers.ask(store, What::Seal(id), SEND_TIME_MAX).await;
}

/// The segment is gone. A store that is not reached removes its copy later, by the rows.
pub(super) async fn remove(inner: Arc<Inner>, id: SegmentId, store: StoreNumber) {
    let sends = inner.sends(store);
    let Ok(_turn) = sends.acquire().await else { return };
    let _ = inner.peers.ask(store, What::Remove(id), SEND_TIME_MAX).await;
}
