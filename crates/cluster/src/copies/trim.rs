//! Copies that are too many are removed: a store has come back, fewer are wanted, or a copy was moved.
//!
//! Invariants: X1 a copy goes only while as many others as the volume says are at stores that answer and say that they have all of it,
//!                in as many racks as before or as are wanted.
//!             X2 the row goes first: a copy is removed once the row that is stored does not name its store, and for `UNNAMED_FOR`
//!                after that was decided, since a commit under way may name it once more.
//! Locking:    used by the thread of upkeep, which also begins repairs: no segment is copied to a store while its copy there goes.
//! Not here:   copies of segments that are gone, and those that no row names (upkeep).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_segment::{SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{Error, read_segment};
use tokio::time::Instant;

use super::targets::weight;
use super::{Inner, elsewhere, send};

const UNNAMED_FOR: Duration = Duration::from_secs(5);
/// The thread looks after other things when it has asked for so long.
const TIME_MAX: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Trims {
    /// Segments with too many copies.
    waiting: VecDeque<SegmentId>,
    /// Copies that are not counted any more, and since when.
    going: HashMap<(SegmentId, StoreNumber), Instant>,
}

impl Trims {
    pub(super) fn find(&mut self, inner: &Inner) {
        let has_too_many = |info: &SegmentInfo| !surplus(inner, info).is_empty();
        self.waiting = inner.own.segments().into_iter().filter(has_too_many).map(|info| info.id).collect();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.going.is_empty()
    }

    /// Gives up some copies, and removes those that were given up before.
    pub(super) fn go_on(&mut self, inner: &Arc<Inner>) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < TIME_MAX
            && !inner.is_over()
            && let Some(id) = self.waiting.pop_front()
        {
            if let Some(store) = give_up_one(inner, id) {
                self.going.insert((id, store), begun);
            }
        }
        let due = self.going.iter().filter(|(_, since)| since.elapsed() >= UNNAMED_FOR);
        for (id, store) in due.map(|(copy, _)| *copy).collect::<Vec<_>>() {
            if begun.elapsed() >= 2 * TIME_MAX || inner.is_over() {
                break;
            }
            if is_done_with(inner, id, store)? {
                self.going.remove(&(id, store));
            }
        }
        Ok(())
    }
}

/// The stores that have a segment of which one has a copy too many.
fn surplus(inner: &Inner, info: &SegmentInfo) -> Vec<StoreNumber> {
    let is_settled = !inner.own.is_written(info.id)
        && info.id.made_by() == inner.own_number()
        && !inner.segments.lock().contains_key(&info.id)
        && !inner.unsure.lock().contains(&info.id);
    if !is_settled {
        return Vec::new();
    }
    let numbers = inner.targets.numbers();
    let stores = inner.stores.lock();
    let have = stores.get(&info.id).into_iter().flatten().copied().filter(|store| !numbers.detached.contains(store));
    let have: Vec<StoreNumber> = have.collect();
    let may_go = have.iter().any(|store| !numbers.is_pool(*store));
    let is_too_many = numbers.count(have.iter().copied()) >= usize::from(numbers.copies);
    if may_go && is_too_many { have } else { Vec::new() }
}

/// X1; the store whose copy is not counted from now on.
fn give_up_one(inner: &Inner, id: SegmentId) -> Option<StoreNumber> {
    let info = inner.own.listed(id).ok()?;
    let have = surplus(inner, &info);
    let store = choose(inner, id, &have)?;
    for kept in have.into_iter().filter(|kept| *kept != store) {
        match elsewhere::state_at(inner, kept, id) {
            Ok(there) if there.len >= info.len => {}
            Ok(_) | Err(SegmentError::Missing(_)) => {
                tracing::warn!(segment = ?id, store = kept.0, "a copy is missing, or not whole");
                inner.forget_copy(id, kept);
                return None;
            }
            Err(_) => return None,
        }
    }
    tracing::info!(segment = ?id, store = store.0, "a copy is one too many, and goes");
    inner.forget_copy(id, store);
    Some(store)
}

/// The copy that is missed least, never that in a pool: one that is not reached, one at a gateway, one in the rack with the most copies, at the fullest store while copies are
/// moved, then by the segment's own order of stores.
fn choose(inner: &Inner, id: SegmentId, have: &[StoreNumber]) -> Option<StoreNumber> {
    let numbers = inner.targets.numbers();
    let with_own = |except: Option<StoreNumber>| -> Vec<StoreNumber> {
        let kept = have.iter().copied().filter(|store| Some(*store) != except);
        kept.chain([inner.own_number()]).collect()
    };
    let racks = numbers.racks_of(with_own(None)).min(inner.racks_wanted());
    let may_go = |store: &StoreNumber| {
        let is_reached = |kept: &StoreNumber| kept == store || inner.targets.is_usable(*kept);
        have.iter().all(is_reached) && numbers.racks_of(with_own(Some(*store))) >= racks
    };
    let in_rack =
        |store: StoreNumber| with_own(None).iter().filter(|one| numbers.rack(**one) == numbers.rack(store)).count();
    let fill = |store: StoreNumber| if numbers.rebalances { inner.targets.fill(store) } else { 0 };
    have.iter().copied().filter(|store| may_go(store) && !numbers.is_pool(*store)).max_by_key(|store| {
        let is_reached = inner.targets.is_usable(*store);
        (
            !is_reached,
            !numbers.takes_copies(*store),
            in_rack(*store),
            fill(*store),
            std::cmp::Reverse(weight(id, *store)),
        )
    })
}

/// X2. False: its row names the store still.
fn is_done_with(inner: &Arc<Inner>, id: SegmentId, store: StoreNumber) -> Result<bool, Error> {
    let counts_again = inner.stores.lock().get(&id).is_some_and(|stores| stores.contains(&store));
    if counts_again || inner.segments.lock().contains_key(&id) {
        return Ok(true);
    }
    if read_segment(&*inner.peers.engine, id)?.is_some_and(|record| record.stores.contains(&store)) {
        return Ok(false);
    }
    // A store that is not reached removes its copy later, by the rows.
    if !inner.targets.is_usable(store) {
        return Ok(!inner.targets.is_open(store));
    }
    if inner.peers.block(send::remove(Arc::clone(inner), id, store)) != Some(true) {
        // It may be removed at any time yet, so nothing is copied there meanwhile, and it is asked again.
        inner.targets.failed(store);
        return Ok(false);
    }
    inner.counters.trimmed.fetch_add(1, Ordering::Relaxed);
    Ok(true)
}
