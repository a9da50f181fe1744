//! Segments that are written no more are put into pools.
//!
//! Invariants: P1 only a file that is right is put there, whole (`right`), and it counts once it was read back (B2 of `pools`).
//!             P2 an object is removed once its segment's file was, and so after the proofs of reclaim; or by a sweep (`pool_sweep`).
//! Locking:    used by the thread of upkeep; its tasks share `tried` and `running`.
//! Not here:   requests (pools), objects that no row names (pool_sweep), copies at other servers that are too many then (trim).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_segment::{Kind, SegmentError, SegmentInfo, StoreNumber};
use margay_volume::{Error, is_referenced};
use tokio::time::Instant;

use super::Inner;
use super::elsewhere::{Tried, pools, remove_object};
use super::pool_sweep::PoolSweep;
use super::repair::{PARTIAL_AGAIN, read_or_mend};
use crate::pools::{PoolError, PoolObjects, ReadOwn};

/// Segments that one process puts at once.
const PUTS_AT_ONCE: usize = 2;
/// Segments that are put next are looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// One that could not be put is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Pooled {
    running: Arc<AtomicUsize>,
    tried: Tried,
    looked_at: Option<Instant>,
    sweep: PoolSweep,
}

/// Whether this process may put a segment there: its own, that nobody writes to or copies, and that is not there.
fn is_due(inner: &Inner, info: &SegmentInfo, pool: StoreNumber) -> bool {
    let has = || inner.stores.lock().get(&info.id).is_some_and(|stores| stores.contains(&pool));
    let is_busy = || inner.segments.lock().contains_key(&info.id) || inner.unsure.lock().contains(&info.id);
    info.kind != Kind::Log
        && info.id.made_by() == inner.own_number()
        && !inner.own.is_written(info.id)
        && !has()
        && !is_busy()
        && inner.partial.lock().get(&info.id).is_none_or(|at| at.elapsed() >= PARTIAL_AGAIN)
}

impl Pooled {
    pub(super) fn go_on(&mut self, inner: &Arc<Inner>, now: Instant) -> Result<(), Error> {
        if self.looked_at.is_none_or(|at| at + LOOK_EVERY <= now) {
            self.looked_at = Some(now);
            for pool in pools(inner) {
                self.put_some(inner, &pool, now)?;
            }
        }
        self.sweep.go_on(inner, &self.tried, now)
    }

    fn put_some(&mut self, inner: &Arc<Inner>, pool: &Arc<PoolObjects>, now: Instant) -> Result<(), Error> {
        self.tried.lock().retain(|_, at| at.is_none_or(|at| at + AGAIN_AFTER > now));
        for info in inner.own.segments() {
            if self.running.load(Ordering::Acquire) >= PUTS_AT_ONCE || inner.is_over() {
                return Ok(());
            }
            let copy = (info.id, pool.number);
            let is_next = is_due(inner, &info, pool.number) && !self.tried.lock().contains_key(&copy);
            if is_next && is_referenced(&*inner.peers.engine, info.id)? {
                self.tried.lock().insert(copy, None);
                self.running.fetch_add(1, Ordering::AcqRel);
                let (inner, pool) = (Arc::clone(inner), Arc::clone(pool));
                let (running, tried) = (Arc::clone(&self.running), Arc::clone(&self.tried));
                inner.peers.spawn(put(Arc::clone(&inner), pool, info, (running, tried)));
            }
        }
        Ok(())
    }
}

type Shared = (Arc<AtomicUsize>, Tried);

async fn put(inner: Arc<Inner>, pool: Arc<PoolObjects>, info: SegmentInfo, (running, tried): Shared) {
    let done = put_right(&inner, &pool, info).await;
    let copy = (info.id, pool.number);
    match done {
        Ok(true) => {
            tracing::info!(segment = ?info.id, pool = pool.name, "a segment is in a pool");
            inner.counters.pooled.fetch_add(1, Ordering::Relaxed);
            tried.lock().remove(&copy);
        }
        Ok(false) => {
            tried.lock().insert(copy, Some(Instant::now()));
        }
        Err(error) => {
            tracing::warn!(segment = ?info.id, pool = pool.name, %error, "a segment is put into a pool later");
            inner.counters.failed_sends.fetch_add(1, Ordering::Relaxed);
            tried.lock().insert(copy, Some(Instant::now()));
        }
    }
    running.fetch_sub(1, Ordering::AcqRel);
    inner.wake_upkeep();
}

/// False: the file is not right, or gone.
async fn put_right(inner: &Arc<Inner>, pool: &Arc<PoolObjects>, info: SegmentInfo) -> Result<bool, PoolError> {
    let task = Arc::clone(inner);
    let looked = tokio::task::spawn_blocking(move || -> Result<_, Error> {
        let is_whole = read_or_mend(&task, &info)?.is_whole();
        // What was mended may be longer.
        Ok((is_whole, task.own.listed(info.id)?))
    });
    let looked = looked.await.unwrap_or(Err(Error::Busy));
    let (is_whole, info) = looked.map_err(|error| PoolError::Unreachable(error.to_string()))?;
    // P1. What no row names may be anything.
    if !is_whole {
        tracing::error!(segment = ?info.id, "the file lacks bytes that rows name, and is not put into a pool");
        // Copies may have what it lacks, so none of them goes, and it is read again after a while.
        inner.unsure.lock().insert(info.id);
        inner.partial.lock().insert(info.id, Instant::now());
        return Ok(false);
    }
    let own = Arc::clone(&inner.own);
    let read: ReadOwn = Arc::new(move |range: Range<u64>| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let file = own.file(info.id)?;
        file.read_exact_at(&mut bytes, range.start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SegmentError::Missing(info.id),
            _ => error.into(),
        })?;
        Ok(bytes)
    });
    pool.put(info, read).await?;
    let is_there = || inner.own.listed(info.id).is_ok();
    if is_there() {
        inner.note_copy(info.id, pool.number);
    }
    // It may have been removed meanwhile, before the pool was noted or after that.
    if !is_there() {
        inner.forget_copy(info.id, pool.number);
        remove_object(Arc::clone(inner), Arc::clone(pool), info.id).await;
        return Ok(false);
    }
    Ok(true)
}
