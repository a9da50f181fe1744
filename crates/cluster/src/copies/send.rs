//! Sends the bytes of a segment to one store.
//!
//! Invariants: N1 what a store has of a batch counts only if one process of it took all of it and synced it: one that was started
//!                again in between may have lost what was not synced, and gets the batch again.
//!             N2 the piece that asks for the sync is sent after all others were answered.
//!             N3 what nobody waits for has turns of its own, and lets writes that wait go first.
//! Not here:   who is sent what (segment), the store's answers (peers).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_segment::{Kind, SegmentError, SegmentId, StoreNumber};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Inner;
use super::segment::Copied;
use crate::question::{WRITE_BYTES_MAX, What};

/// An answer to a write takes so long at most; others may be asked before (`JOINED_AFTER`).
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
/// How often a batch is sent whose store was started again meanwhile.
const BATCH_TRIES_MAX: usize = 3;
/// Pieces of one batch that are on their way at once: one is read and one is synced while one is sent.
const PIECES_AT_ONCE: usize = 3;
/// A store syncs after so many pieces: with more of them in its memory the syncs of others would wait for these too.
const SYNC_EVERY: usize = 4;
/// A piece that nobody waits for gives way to writes that wait for so long at most (N3).
const GIVES_WAY_FOR: Duration = Duration::from_millis(25);
const GIVES_WAY_STEP: Duration = Duration::from_millis(2);
const REMOVED_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(11), Duration::from_secs(60)];

/// Until the store has all, or fails.
pub(super) async fn send(inner: Arc<Inner>, copied: Arc<Copied>, store: StoreNumber) {
    while let Some(lacking) = copied.lacking(store) {
        let pace = if copied.is_repair { Pace::Background } else { Pace::Awaited };
        match send_batch(&inner, (copied.id, copied.kind), (&lacking.parts, lacking.before), (store, pace)).await {
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
            // The own file was removed meanwhile, which says nothing of the store.
            Err(SegmentError::Missing(_)) if inner.own.listed(copied.id).is_err() => {
                copied.failed(store, "the segment is gone".to_owned());
                break;
            }
            Err(error) => {
                inner.counters.failed_sends.fetch_add(1, Ordering::Relaxed);
                inner.targets.failed(store);
                copied.failed(store, error.to_string());
                seal_here(&inner, &copied);
                break;
            }
        }
    }
    if copied.is_repair {
        inner.wake_upkeep();
    }
}

/// Whether somebody waits for what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Awaited,
    Background,
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
    (store, pace): (StoreNumber, Pace),
) -> Result<(), SegmentError> {
    let batch = Batch { inner: Arc::clone(inner), id, kind, before, store, pace };
    let pieces: Vec<Range<u64>> = parts.iter().flat_map(pieces_of).collect();
    let Some((last, others)) = pieces.split_last() else { return Ok(()) };
    for _ in 0..BATCH_TRIES_MAX {
        let mut generations = batch.send_all(others).await?;
        // N2.
        let turn = batch.turn().await?;
        generations.push(batch.clone().send_piece(last.clone(), true, turn).await?);
        if generations.windows(2).all(|two| two[0] == two[1]) {
            return Ok(());
        }
    }
    Err(SegmentError::Unreachable(id, store))
}

type Turn = tokio::sync::OwnedSemaphorePermit;

#[derive(Clone)]
struct Batch {
    inner: Arc<Inner>,
    id: SegmentId,
    kind: Kind,
    before: u64,
    store: StoreNumber,
    pace: Pace,
}

impl Batch {
    async fn turn(&self) -> Result<Turn, SegmentError> {
        let turns: Arc<Semaphore> = match self.pace {
            Pace::Awaited => self.inner.sends(self.store),
            Pace::Background => self.inner.background_sends(self.store),
        };
        // The semaphore is never closed.
        let turn = turns.acquire_owned().await.map_err(|error| SegmentError::Io(io::Error::other(error)))?;
        let begun = Instant::now();
        while self.pace == Pace::Background && self.inner.is_waited() && begun.elapsed() < GIVES_WAY_FOR {
            sleep(GIVES_WAY_STEP).await;
        }
        Ok(turn)
    }

    /// Several pieces at once, in any order; the generations of the store that took them.
    async fn send_all(&self, pieces: &[Range<u64>]) -> Result<Vec<bytes::Bytes>, SegmentError> {
        let (mut generations, mut under_way) = (Vec::new(), JoinSet::new());
        let answered = |joined: Result<Result<bytes::Bytes, SegmentError>, tokio::task::JoinError>| {
            joined.unwrap_or_else(|error| Err(SegmentError::Io(io::Error::other(error))))
        };
        for (at, piece) in pieces.iter().enumerate() {
            while under_way.len() >= PIECES_AT_ONCE {
                generations.extend(under_way.join_next().await.map(answered).transpose()?);
            }
            let (turn, durably) = (self.turn().await?, (at + 1) % SYNC_EVERY == 0);
            under_way.spawn(self.clone().send_piece(piece.clone(), durably, turn));
        }
        while let Some(joined) = under_way.join_next().await {
            generations.push(answered(joined)?);
        }
        Ok(generations)
    }

    async fn send_piece(self, piece: Range<u64>, durably: bool, _turn: Turn) -> Result<bytes::Bytes, SegmentError> {
        let (inner, len) = (&self.inner, piece.end - piece.start);
        let body = read(inner, self.id, piece.clone()).await?;
        let what = What::Write { id: self.id, kind: self.kind, offset: piece.start, len, durably, before: self.before };
        let answer = inner.peers.ask_with(self.store, what, body, SEND_TIME_MAX).await?;
        inner.counters.sent_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(answer)
    }
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

/// Nothing refers to these ranges any more. A store that is not reached keeps them until the segment goes.
pub(super) async fn punch(inner: Arc<Inner>, id: SegmentId, holes: Vec<Range<u64>>, store: StoreNumber) {
    let sends = inner.background_sends(store);
    for hole in holes {
        let Ok(_turn) = sends.acquire().await else { return };
        let what = What::Punch { id, offset: hole.start, len: hole.end - hole.start };
        if inner.peers.ask(store, what, SEND_TIME_MAX).await.is_err() {
            return;
        }
    }
}

/// The segment is gone, or one copy too many. A store that is not reached (`Unreachable`) may do it later; else it removes its copy by the
/// rows. Another error: it answered that the copy stays.
pub(super) async fn remove(inner: Arc<Inner>, id: SegmentId, store: StoreNumber) -> Result<(), SegmentError> {
    let sends = inner.sends(store);
    // The semaphore is never closed.
    let _turn = sends.acquire().await.map_err(|error| SegmentError::Io(io::Error::other(error)))?;
    inner.peers.ask(store, What::Remove(id), SEND_TIME_MAX).await.map(drop)
}

/// The segment is gone, and so its copy goes. One that stays because it was put there a moment ago, or that is not reached, is tried again
/// some times; then its store finds out by the rows.
pub(super) async fn remove_gone(inner: Arc<Inner>, id: SegmentId, store: StoreNumber) {
    for wait in REMOVED_AGAIN_AFTER {
        if remove(Arc::clone(&inner), id, store).await.is_ok() || inner.is_over() {
            return;
        }
        sleep(wait).await;
    }
    // Its store finds out.
    drop(remove(inner, id, store).await);
}
