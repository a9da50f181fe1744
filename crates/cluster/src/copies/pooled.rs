//! Segments that are written no more are put into pools, and objects of pools that no row names go.
//!
//! Invariants: P1 only a file that is right is put there, whole (`right`), and it counts once it was read back (B2 of `pools`).
//!             P2 an object is removed once its segment's file was, and so after the proofs of reclaim; or when no row has named the pool for
//!                it during `UNNAMED_FOR`: the first row that does may be that much later than its bytes.
//! Locking:    used by the thread of upkeep; its tasks share `tried` and `running`.
//! Not here:   requests (pools), copies at other servers that are too many then (trim).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_segment::{Kind, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{Error, is_referenced, read_segment, visit_segments_made_by};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Inner, right};
use crate::pools::{PoolError, PoolObjects, ReadOwn};

/// Segments that one process puts at once.
const PUTS_AT_ONCE: usize = 2;
/// Segments that are put next are looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// One that could not be put is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// What is in a pool is compared with the rows so often.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// An object that no row names is kept for so long.
const UNNAMED_FOR: Duration = Duration::from_secs(3600);

type Copy = (SegmentId, StoreNumber);

#[derive(Default)]
pub(super) struct Pooled {
    running: Arc<AtomicUsize>,
    /// What is being put, and what could not be put and when.
    tried: Arc<Mutex<HashMap<Copy, Option<Instant>>>>,
    looked_at: Option<Instant>,
    swept_at: Option<Instant>,
    /// Objects that no row names, and since when.
    unnamed: HashMap<Copy, Instant>,
}

/// Pools that are in use and can be opened.
fn pools(inner: &Inner) -> Vec<Arc<PoolObjects>> {
    let numbers = inner.targets.numbers();
    let in_use = numbers.pools.keys().filter(|number| !numbers.detached.contains(number));
    in_use.filter_map(|number| inner.peers.pools.objects(*number)).collect()
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
        && !inner.partial.lock().contains_key(&info.id)
}

impl Pooled {
    pub(super) fn go_on(&mut self, inner: &Arc<Inner>, now: Instant) -> Result<(), Error> {
        if self.looked_at.is_none_or(|at| at + LOOK_EVERY <= now) {
            self.looked_at = Some(now);
            for pool in pools(inner) {
                self.put_some(inner, &pool, now)?;
            }
        }
        if self.swept_at.is_none_or(|at| at + SWEEP_EVERY <= now) {
            self.swept_at = Some(now);
            for pool in pools(inner).into_iter().filter(|_| inner.targets.is_lowest_of_live(inner.own_number())) {
                self.sweep(inner, &pool, now)?;
            }
        }
        Ok(())
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

    /// Removes objects that no row names (P2).
    fn sweep(&mut self, inner: &Arc<Inner>, pool: &Arc<PoolObjects>, now: Instant) -> Result<(), Error> {
        let (mut there, mut after) = (Vec::new(), None);
        loop {
            let objects = Arc::clone(pool);
            let page = inner.peers.block(async move { objects.list(after).await });
            match page {
                Some(Ok(page)) if page.is_empty() => break,
                Some(Ok(page)) => {
                    after = page.last().copied();
                    there.extend(page);
                }
                Some(Err(error)) => {
                    tracing::warn!(pool = pool.name, %error, "what is in a pool is compared with the rows later");
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
        let named = named(inner, &there, pool.number)?;
        let before = std::mem::take(&mut self.unnamed);
        self.unnamed.extend(before.iter().filter(|((_, number), _)| *number != pool.number));
        for id in there.into_iter().filter(|id| !named.contains(id)) {
            let since = before.get(&(id, pool.number)).copied().unwrap_or(now);
            let is_counted = || inner.stores.lock().get(&id).is_some_and(|stores| stores.contains(&pool.number));
            if since + UNNAMED_FOR > now || self.tried.lock().contains_key(&(id, pool.number)) || is_counted() {
                self.unnamed.insert((id, pool.number), since);
                continue;
            }
            // The rows were read a while ago.
            let row = read_segment(&*inner.peers.engine, id)?;
            if !row.is_some_and(|record| record.stores.contains(&pool.number)) {
                inner.peers.spawn(remove(Arc::clone(inner), Arc::clone(pool), id));
            }
        }
        Ok(())
    }
}

/// Which of these segments have a row that names the pool.
fn named(inner: &Inner, ids: &[SegmentId], pool: StoreNumber) -> Result<HashSet<SegmentId>, Error> {
    let made_by: BTreeSet<StoreNumber> = ids.iter().map(|id| id.made_by()).collect();
    let mut named = HashSet::new();
    for store in made_by {
        visit_segments_made_by(&*inner.peers.engine, store, &mut |known| {
            named.extend(known.is_at(pool).then_some(known.id));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(named)
}

/// The segment is gone, or nothing names its object. One that is not removed is found later by `sweep`.
pub(super) async fn remove(inner: Arc<Inner>, pool: Arc<PoolObjects>, id: SegmentId) {
    inner.peers.pools.blocks.forget((pool.number, id));
    match pool.remove(id).await {
        Ok(()) => drop(inner.counters.removed.fetch_add(1, Ordering::Relaxed)),
        Err(error) => tracing::warn!(segment = ?id, pool = pool.name, %error, "an object of a pool is removed later"),
    }
}

type Shared = (Arc<AtomicUsize>, Arc<Mutex<HashMap<Copy, Option<Instant>>>>);

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
    let looked = tokio::task::spawn_blocking(move || right::of(&task, &info)).await;
    let looked = looked.unwrap_or(Err(Error::Busy)).map_err(|error| PoolError::Unreachable(error.to_string()))?;
    // P1. What no row names may be anything.
    if !looked.is_whole() {
        tracing::error!(segment = ?info.id, "the file lacks bytes that rows name, and is not put into a pool");
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
        remove(Arc::clone(inner), Arc::clone(pool), info.id).await;
        return Ok(false);
    }
    Ok(true)
}
