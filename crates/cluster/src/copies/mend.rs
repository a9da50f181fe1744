//! The own file of a segment is made right from other stores: runs that are damaged, or all of a file that is gone.
//!
//! Why:        what one disk has lost the others still have; without it each read goes to another store for good, and nothing of the
//!             segment counts as whole.
//! Invariants: M1 bytes are taken from a store that has just verified the run, and the run is verified here again.
//!             M2 only what was found bad is written over. A file that is gone is made beside the others, and appears once each run that
//!                rows name is right in it.
//!             M3 nothing is done to an own segment that is written, nor to one in quarantine or not to be here as its row says.
//! Locking:    one at a time in a process (`Inner::mending`); nothing else is held.
//! Not here:   when it is asked for (repair, scrub, upkeep, an operator), copies at other stores (repair).

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_segment::{Extent, Kind, OtherStore, Remade, Run, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{Error, SegmentRecord, SegmentState, named_runs, read_segment, visit_segments_made_by};

use super::{Inner, elsewhere, right};
use crate::question::READ_BYTES_MAX;

/// What came of an order to mend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Runs that rows name and that were damaged or missing here.
    pub bad: u64,
    /// Of these, runs that are so still.
    pub left: u64,
}

impl Mended {
    fn none_of(lost: &[Run]) -> Mended {
        Mended { bad: lost.len() as u64, left: lost.len() as u64 }
    }
}

/// Files that are fetched in one go; more are found later.
const LOST_MAX: usize = 1000;

/// Begins to fetch the files of own segments that are gone and that other stores have.
pub(super) fn begin_lost(inner: &Arc<Inner>) -> Result<(), Error> {
    if inner.is_fetching.load(Ordering::Acquire) {
        return Ok(());
    }
    let (own, mut lost) = (inner.own_number(), Vec::new());
    visit_segments_made_by(&*inner.peers.engine, own, &mut |known| {
        let is_elsewhere = known.is_at(own) && known.record.stores.len() > 1;
        let is_gone = || matches!(inner.own.listed(known.id), Err(SegmentError::Missing(_)));
        if is_elsewhere && is_gone() {
            lost.push(known.id);
        }
        let is_enough = lost.len() >= LOST_MAX || inner.is_over();
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if lost.is_empty() {
        return Ok(());
    }
    // Set by the thread of upkeep alone.
    inner.is_fetching.store(true, Ordering::Release);
    let task = Arc::clone(inner);
    inner.peers.spawn(async move {
        let inner = Arc::clone(&task);
        let fetched = tokio::task::spawn_blocking(move || {
            for id in lost {
                if inner.is_over() {
                    break;
                }
                if inner.own.listed(id).is_ok() {
                    continue;
                }
                if let Err(error) = mend(&inner, id) {
                    tracing::warn!(segment = ?id, %error, "the file of a segment is gone, and is fetched later");
                }
            }
        });
        // A panic was told.
        drop(fetched.await);
        task.is_fetching.store(false, Ordering::Release);
    });
    Ok(())
}

/// Blocks this thread, also while another segment is made right.
pub(super) fn mend(inner: &Arc<Inner>, id: SegmentId) -> Result<Mended, Error> {
    let _alone = inner.mending.lock();
    let engine = &*inner.peers.engine;
    let Some(record) = read_segment(engine, id)? else { return Ok(Mended::default()) };
    let is_held = inner.own.quarantined().iter().any(|held| held.id == id);
    if !record.stores.contains(&inner.own_number()) || is_held {
        return Ok(Mended::default());
    }
    if id.made_by() == inner.own_number() && inner.own.is_written(id) {
        // What comes next goes to another pack.
        inner.own.seal(id)?;
        if inner.own.is_written(id) {
            return Err(Error::Busy);
        }
    }
    let named = named_runs(engine, id)?;
    let mended = match inner.own.listed(id) {
        Ok(_) => mend_runs(inner, id, &record, &named)?,
        Err(SegmentError::Missing(_)) => make_again(inner, id, &record, &named)?,
        Err(error) => return Err(error.into()),
    };
    if mended.bad > 0 {
        tell(id, mended);
    }
    if mended.left < mended.bad {
        // What could not be copied from it can be now.
        inner.partial.lock().remove(&id);
        inner.wake_upkeep();
    }
    Ok(mended)
}

fn tell(id: SegmentId, Mended { bad, left }: Mended) {
    if left == 0 {
        tracing::warn!(segment = ?id, runs = bad, "what the file lacked was fetched from other stores");
    } else {
        tracing::error!(segment = ?id, runs = bad, left, "no store that can be reached has what the file lacks");
    }
}

/// Stores that may give what is missing here: servers, then pools, then servers that did not run a moment ago.
fn others(inner: &Arc<Inner>, id: SegmentId, record: &SegmentRecord) -> Vec<Arc<dyn OtherStore>> {
    let mut all: Vec<StoreNumber> = record.stores.clone();
    if !all.contains(&id.made_by()) {
        all.push(id.made_by());
    }
    let is_pool = |store: StoreNumber| inner.peers.pools.is_pool(store);
    all.retain(|store| *store != inner.own_number());
    all.sort_by_key(|store| if is_pool(*store) { 1 } else { 2 * u8::from(!inner.targets.is_open(*store)) });
    all.into_iter().map(|store| elsewhere::at(inner, store)).collect()
}

fn mend_runs(inner: &Arc<Inner>, id: SegmentId, record: &SegmentRecord, named: &[Run]) -> Result<Mended, Error> {
    let bad: Vec<Run> = named.iter().copied().filter(|run| inner.own.verify(&Extent::whole(*run)).is_err()).collect();
    let (others, mut left) = (others(inner, id, record), 0);
    for run in &bad {
        let write = |offset: u64, bytes: &[u8]| inner.own.mend(id, offset, bytes);
        let is_right = || inner.own.verify(&Extent::whole(*run)).is_ok();
        left += u64::from(!fetch_run(inner, &others, run, &write, &is_right)?);
    }
    if (left as usize) < bad.len() {
        inner.own.sync_mended(id)?;
    }
    Ok(Mended { bad: bad.len() as u64, left })
}

/// M1; false: nobody who answers has it.
fn fetch_run(
    inner: &Inner,
    others: &[Arc<dyn OtherStore>],
    run: &Run,
    write: &Write<'_>,
    is_right: &dyn Fn() -> bool,
) -> Result<bool, Error> {
    for other in others {
        if inner.is_over() {
            return Err(Error::Busy);
        }
        let is_there = other.verify(&Extent::whole(*run)).is_ok();
        match is_there.then(|| fetch(inner, &**other, run.segment, run.offset..right::payload_end(run), write)) {
            Some(Ok(())) if is_right() => return Ok(true),
            Some(Err(Fetch::Here(error))) => return Err(error.into()),
            Some(Err(Fetch::There(error))) => {
                tracing::info!(segment = ?run.segment, %error, "a store could not give a run that it has")
            }
            Some(Ok(())) | None => {}
        }
    }
    Ok(false)
}

/// M2.
fn make_again(inner: &Arc<Inner>, id: SegmentId, record: &SegmentRecord, named: &[Run]) -> Result<Mended, Error> {
    let others = others(inner, id, record);
    let len_min = if let SegmentState::Sealed { len } = record.state { len } else { 0 };
    for other in &others {
        let len = match other.source(id).and_then(|there| Ok(there.file.len()?)) {
            Ok(len) if len >= len_min && record.kind != Kind::Log => len,
            _ => continue,
        };
        let remade = inner.own.remake(id, record.kind)?;
        let write = |offset: u64, bytes: &[u8]| remade.write(offset, bytes);
        match fetch(inner, &**other, id, 0..len, &write) {
            Ok(()) => {}
            Err(Fetch::Here(error)) => return Err(error.into()),
            Err(Fetch::There(_)) => continue,
        }
        if complete(inner, &remade, &others, named)? {
            let SegmentInfo { len, .. } = inner.own.finish_remade(remade)?;
            tracing::info!(segment = ?id, len, "a file that was lost is here again");
            return Ok(Mended { bad: named.len().max(1) as u64, left: 0 });
        }
    }
    Ok(if named.is_empty() { Mended { bad: 1, left: 1 } } else { Mended::none_of(named) })
}

/// Runs that were bad where the file came from are fetched from the others; false: one of them is nowhere.
fn complete(inner: &Inner, remade: &Remade, others: &[Arc<dyn OtherStore>], named: &[Run]) -> Result<bool, Error> {
    for run in named {
        let write = |offset: u64, bytes: &[u8]| remade.write(offset, bytes);
        let is_right = || remade.verify(run).is_ok();
        if !is_right() && !fetch_run(inner, others, run, &write, &is_right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Takes bytes, and where they go.
type Write<'a> = dyn Fn(u64, &[u8]) -> Result<(), SegmentError> + 'a;

/// Where it failed.
enum Fetch {
    There(SegmentError),
    Here(SegmentError),
}

fn fetch(
    inner: &Inner,
    other: &dyn OtherStore,
    id: SegmentId,
    Range { start, end }: Range<u64>,
    write: &Write<'_>,
) -> Result<(), Fetch> {
    let there = other.source(id).map_err(Fetch::There)?;
    let mut buffer = vec![0; (end - start).min(READ_BYTES_MAX) as usize];
    let mut at = start;
    while at < end {
        if inner.is_over() {
            return Err(Fetch::There(SegmentError::Missing(id)));
        }
        let piece = &mut buffer[..(end - at).min(READ_BYTES_MAX) as usize];
        let len = there.file.read_at(piece, at).map_err(|error| Fetch::There(error.into()))?;
        if len == 0 {
            return Err(Fetch::There(SegmentError::Missing(id)));
        }
        write(at, &piece[..len]).map_err(Fetch::Here)?;
        at += len as u64;
    }
    Ok(())
}
