//! Segments of stores that are detached for good: who has one makes the copies that are missing, and its row is changed.
//!
//! Why:        their maker never comes back. While its row does not say that it is sealed, a store that it names may have a part only.
//! Invariants: A1 of a sealed segment, the lowest of the stores that have it and run makes the copy that is missing. One that has it not, or
//!                has it damaged, is named no more if others have what it lacks.
//!             A2 one that is not sealed is compared, run by run as rows name them, by each store that has it; who has what another one lacks
//!                sends it. Its row says sealed, and names the stores that have all, once these are known. Nothing else counts as a copy of it.
//!             A3 only what was verified is sent (`right`), so nobody overwrites what he lacks himself. What the own file lacks is fetched first
//!                (`mend`), from pools too. A pool has all or nothing, and stays in the row: its object may be the last copy.
//!             A4 rows change under the version of the row that says who is detached (`rename_stores`).
//! Locking:    tasks; what they read, they read on threads that may wait.
//! Not here:   when it is looked for (repair), segments that nothing refers to (orphaned).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_segment::{Extent, Run, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{CopiesRecord, Error, KnownSegment, SegmentState, named_runs, rename_stores};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::right::{self, Right};
use super::send::{self, Pace};
use super::targets::Need;
use super::{Inner, elsewhere, mend};

/// A segment that was looked at in vain is looked at again after so long, and after twice as long each time.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const AGAIN_DOUBLED_MAX: u32 = 6;

/// Segments that were looked at, when, and how often in vain.
#[derive(Debug, Default)]
pub(super) struct Looked(Mutex<HashMap<SegmentId, (Instant, u32)>>);

impl Looked {
    pub(super) fn is_due(&self, id: SegmentId) -> bool {
        let looked = self.0.lock();
        looked.get(&id).is_none_or(|(at, times)| at.elapsed() >= AGAIN_AFTER * (1 << (*times).min(AGAIN_DOUBLED_MAX)))
    }

    fn is_done(&self, id: SegmentId, is_done: bool) {
        let mut looked = self.0.lock();
        let times = looked.remove(&id).map_or(0, |(_, times)| times + 1);
        if !is_done {
            looked.insert(id, (Instant::now(), times));
        }
    }

    /// Stores have come or gone, or an operator has changed something.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }
}

/// Stores that are not detached and have a segment.
pub(super) fn left(known: &KnownSegment, numbers: &CopiesRecord) -> Vec<StoreNumber> {
    let mut have = known.record.stores.clone();
    have.retain(|store| !numbers.detached.contains(store));
    have
}

/// Those of them that are servers, which can be told to do something.
pub(super) fn servers_left(known: &KnownSegment, numbers: &CopiesRecord) -> Vec<StoreNumber> {
    left(known, numbers).into_iter().filter(|store| !numbers.is_pool(*store)).collect()
}

fn is_sealed(known: &KnownSegment) -> bool {
    matches!(known.record.state, SegmentState::Sealed { .. })
}

/// Whether this process is to do something about a segment of a detached store (A1, A2).
pub(super) fn is_lacking_here(inner: &Inner, known: &KnownSegment, numbers: &CopiesRecord) -> bool {
    let (own, have) = (inner.own_number(), left(known, numbers));
    let servers = || servers_left(known, numbers).into_iter();
    let first = || servers().find(|store| *store == own || inner.targets.is_open(*store));
    let is_few = || numbers.count(have.iter().copied()) < usize::from(numbers.copies);
    let is_first_of_few = || first() == Some(own) && is_few();
    known.is_at(own) && (!is_sealed(known) || is_first_of_few())
}

/// The task of one segment.
pub(super) async fn adopt(inner: Arc<Inner>, known: KnownSegment, looked: Arc<Looked>) {
    let id = known.id;
    let done = match is_sealed(&known) {
        true => copy_sealed(&inner, known).await,
        false => compare(&inner, known).await,
    };
    if let Err(error) = &done {
        tracing::warn!(segment = ?id, %error, "a segment of a detached store is copied later");
    }
    looked.is_done(id, matches!(done, Ok(true)));
}

/// A1; false: nothing was done.
async fn copy_sealed(inner: &Arc<Inner>, known: KnownSegment) -> Result<bool, Error> {
    let have = left(&known, &inner.targets.numbers());
    let Some((info, right)) = own_file(inner, known.id).await? else {
        return leave_to_others(inner, known, None).await;
    };
    if !right.lost.is_empty() {
        return leave_to_others(inner, known, Some(right.lost)).await;
    }
    let Some(store) = inner.targets.choose(known.id, (&have, &[]), Need::Spare) else { return Ok(false) };
    send_right(inner, info, &right, store).await?;
    inner.counters.repaired.fetch_add(1, Ordering::Relaxed);
    let state = known.record.state;
    rename(inner, known, have.into_iter().chain([store]), state).await
}

/// A2; false: it is not known yet who has all.
async fn compare(inner: &Arc<Inner>, known: KnownSegment) -> Result<bool, Error> {
    let id = known.id;
    let Some((info, right)) = own_file(inner, id).await? else { return leave_to_others(inner, known, None).await };
    let own = inner.own_number();
    let numbers = inner.targets.numbers();
    let others = left(&known, &numbers).into_iter().filter(|store| *store != own);
    let (pools, others): (Vec<_>, Vec<_>) = others.partition(|store| numbers.is_pool(*store));
    let (open, away): (Vec<_>, Vec<_>) = others.into_iter().partition(|store| inner.targets.is_open(*store));
    let named = named(inner, id).await?;
    let (mut has_all, mut nowhere) = (vec![own], right.lost.clone());
    for pool in pools {
        let lost = lost_at(inner, pool, right.lost.clone()).await?;
        nowhere.retain(|run| lost.contains(run));
        has_all.push(pool);
    }
    for store in open {
        let lost = lost_at(inner, store, named.clone()).await?;
        nowhere.retain(|run| lost.contains(run));
        if lost.iter().any(|run| !right.lost.contains(run)) {
            send_right(inner, info, &right, store).await?;
        }
        has_all.push(store);
    }
    // What the others have and this store lacks, they send (A2), or it is fetched when this is looked at again.
    if nowhere.len() < right.lost.len() || !nowhere.is_empty() && !away.is_empty() {
        return Ok(false);
    }
    if !nowhere.is_empty() {
        tracing::error!(segment = ?id, runs = nowhere.len(), "no store has all of a segment of a detached store");
    }
    // A store that is away is not known to have all; it is not asked, since nobody may come back.
    rename(inner, known, has_all.into_iter(), SegmentState::Sealed { len: info.len }).await
}

/// This store does not have the segment, or not these runs of it: it is named no more, if another one has what it lacks.
async fn leave_to_others(inner: &Arc<Inner>, known: KnownSegment, lost: Option<Vec<Run>>) -> Result<bool, Error> {
    let own = inner.own_number();
    let lost = match lost {
        Some(lost) => lost,
        None => named(inner, known.id).await?,
    };
    let others: Vec<StoreNumber> =
        left(&known, &inner.targets.numbers()).into_iter().filter(|store| *store != own).collect();
    let numbers = inner.targets.numbers();
    let is_asked = |store: &StoreNumber| inner.targets.is_open(*store) && !numbers.is_pool(*store);
    for store in others.iter().copied().filter(is_asked) {
        if lost_at(inner, store, lost.clone()).await?.is_empty() {
            tracing::error!(segment = ?known.id, "the copy here is missing or damaged, and is made again");
            let state = known.record.state;
            return rename(inner, known, others.into_iter(), state).await;
        }
    }
    Ok(false)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Busy))
}

/// The own file and what is right in it, after what it lacks was fetched; `None`: there is none.
async fn own_file(inner: &Arc<Inner>, id: SegmentId) -> Result<Option<(SegmentInfo, Right)>, Error> {
    let inner = Arc::clone(inner);
    blocking(move || {
        let found = look(&inner, id)?;
        if found.as_ref().is_some_and(|(_, right)| right.is_whole()) {
            return Ok(found);
        }
        match mend::mend(&inner, id) {
            Ok(_) => look(&inner, id),
            Err(error) => {
                tracing::warn!(segment = ?id, %error, "what a file lacks could not be fetched");
                Ok(found)
            }
        }
    })
    .await
}

fn look(inner: &Inner, id: SegmentId) -> Result<Option<(SegmentInfo, Right)>, Error> {
    match inner.own.listed(id) {
        Ok(info) => Ok(Some((info, right::of(inner, &info)?))),
        Err(SegmentError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn named(inner: &Arc<Inner>, id: SegmentId) -> Result<Vec<Run>, Error> {
    let inner = Arc::clone(inner);
    blocking(move || named_runs(&*inner.peers.engine, id)).await
}

/// Which of these runs another store does not have; an error if it does not answer.
async fn lost_at(inner: &Arc<Inner>, store: StoreNumber, runs: Vec<Run>) -> Result<Vec<Run>, Error> {
    let inner = Arc::clone(inner);
    blocking(move || {
        let other = elsewhere::at(&inner, store);
        let mut lost = Vec::new();
        for run in runs {
            match other.verify(&Extent::whole(run)) {
                Ok(()) => {}
                Err(error @ SegmentError::Unreachable(..)) => return Err(error.into()),
                Err(_) => lost.push(run),
            }
            if inner.is_over() {
                return Err(Error::Busy);
            }
        }
        Ok(lost)
    })
    .await
}

/// A3.
async fn send_right(inner: &Arc<Inner>, info: SegmentInfo, right: &Right, store: StoreNumber) -> Result<(), Error> {
    let sent = send::send_batch(inner, (info.id, info.kind), (&right.parts, 0), (store, Pace::Background)).await;
    sent.inspect_err(|error| {
        if !matches!(error, SegmentError::Missing(_)) {
            inner.targets.failed(store);
        }
    })?;
    send::seal(Arc::clone(inner), info.id, store).await;
    Ok(())
}

/// A4; false if the row has changed meanwhile, and the segment is looked at again.
async fn rename(
    inner: &Arc<Inner>,
    known: KnownSegment,
    stores: impl Iterator<Item = StoreNumber>,
    state: SegmentState,
) -> Result<bool, Error> {
    let (inner, mut stores) = (Arc::clone(inner), stores.collect::<Vec<_>>());
    stores.sort_unstable();
    blocking(move || rename_stores(&*inner.peers.engine, &known, stores, state)).await
}
