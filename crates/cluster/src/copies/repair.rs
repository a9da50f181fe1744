//! Copies that are missing are made again, several segments at once.
//!
//! Why:        what a lost disk had is at risk until it is elsewhere, so the segments with the fewest copies come first, and the next one
//!             begins once one is done. What is sent gives way to writes that wait (`send`).
//! Invariants: U1 a segment that is written no more is at as many stores as the volume says, and in two racks or as many as a write
//!                waits for, once these can be reached.
//! Locking:    used by the thread of upkeep; tasks that copy for a detached store count themselves in `running`.
//! Not here:   when it is looked for (upkeep), sending (send), segments of detached stores (adopt).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use margay_segment::{SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{CopiesRecord, Error, KnownSegment, is_referenced, visit_segments_made_by};
use tokio::time::Instant;

use super::adopt::{Looked, adopt, is_lacking_here};
use super::right::{self, Right};
use super::segment::Copied;
use super::{Inner, elsewhere, mend, rebalance};

/// Segments that are copied again at once; the others wait for them.
const REPAIRED_AT_ONCE: usize = 4;
/// A file that is not whole is read again after so long.
pub(super) const PARTIAL_AGAIN: Duration = Duration::from_secs(3600);
/// Segments of a detached store that are remembered until their turn; more are found when these are done.
const ADOPTED_MAX: usize = 1000;

#[derive(Default)]
pub(super) struct Repairs {
    /// Own segments, those with the fewest copies first.
    waiting: VecDeque<SegmentId>,
    /// Own segments that get a copy elsewhere, of which another one goes then.
    moves: VecDeque<(SegmentId, StoreNumber)>,
    /// Segments of detached stores that are copied from here.
    adopted: VecDeque<KnownSegment>,
    /// Of these, those that are being copied.
    running: Arc<AtomicUsize>,
    /// Those that were looked at in vain.
    looked: Arc<Looked>,
    looked_for: HashMap<StoreNumber, u64>,
    /// Detached stores whose segments lack no copy that is made here, while these are the numbers.
    whole: (CopiesRecord, BTreeSet<StoreNumber>),
}

impl Repairs {
    /// Looks which segments lack copies that can be made. `may_move`: nothing is left of the moves before.
    pub(super) fn find(&mut self, inner: &Inner, may_move: bool) -> Result<(), Error> {
        let mut waiting: Vec<(usize, SegmentId)> = Vec::new();
        for info in inner.own.segments() {
            waiting.extend(lack_of(inner, &info).map(|lack| (lack.have.len(), info.id)));
        }
        waiting.sort_unstable();
        self.waiting = waiting.into_iter().map(|(_, id)| id).collect();
        // Whose rows say who is detached, and so what may be done, have changed.
        if self.whole.0 != inner.targets.numbers() {
            self.adopted.clear();
        }
        let live = inner.targets.live();
        if self.looked_for != live || self.whole.0 != inner.targets.numbers() {
            self.looked.forget();
            self.looked_for = live;
        }
        if self.adopted.is_empty() && self.running.load(Ordering::Acquire) == 0 {
            self.find_adopted(inner)?;
        }
        if !inner.targets.numbers().rebalances {
            self.moves.clear();
        } else if self.moves.is_empty() && may_move && !inner.segments.lock().values().any(|copied| copied.is_repair) {
            self.moves = rebalance::moves(inner)?.into();
        }
        Ok(())
    }

    fn find_adopted(&mut self, inner: &Inner) -> Result<(), Error> {
        let numbers = inner.targets.numbers();
        if self.whole.0 != numbers {
            self.whole = (numbers.clone(), BTreeSet::new());
        }
        for gone in numbers.detached.iter().filter(|gone| !self.whole.1.contains(gone)).copied().collect::<Vec<_>>() {
            let mut is_whole = true;
            visit_segments_made_by(&*inner.peers.engine, gone, &mut |known| {
                if inner.is_over() || self.adopted.len() >= ADOPTED_MAX {
                    is_whole = false;
                    return Ok(ControlFlow::Break(()));
                }
                if is_lacking_here(inner, &known, &numbers) && is_referenced(&*inner.peers.engine, known.id)? {
                    is_whole = false;
                    if self.looked.is_due(known.id) {
                        self.adopted.push_back(known);
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if is_whole {
                self.whole.1.insert(gone);
            }
        }
        Ok(())
    }

    /// Begins with as many as may run at once.
    pub(super) fn begin(&mut self, inner: &Arc<Inner>) {
        let own = inner.segments.lock().values().filter(|copied| copied.is_repair).count();
        let mut running = own + self.running.load(Ordering::Acquire);
        while running < REPAIRED_AT_ONCE && !inner.is_over() {
            let has_begun = if let Some(id) = self.waiting.pop_front() {
                begin_own(inner, id)
            } else if let Some(known) = self.adopted.pop_front() {
                begin_adopted(inner, known, (&self.running, &self.looked))
            } else if let Some((id, store)) = self.moves.pop_front() {
                begin_move(inner, id, store)
            } else {
                return;
            };
            running += usize::from(has_begun);
        }
    }
}

/// What a segment has and lacks.
struct Lack {
    have: BTreeSet<StoreNumber>,
    /// Of an earlier process: they get all of it again.
    again: BTreeSet<StoreNumber>,
}

/// `None`: it lacks nothing, or nothing can be done now, or it is being written or copied.
fn lack_of(inner: &Inner, info: &SegmentInfo) -> Option<Lack> {
    if inner.own.is_written(info.id)
        || info.id.made_by() != inner.own_number()
        || inner.segments.lock().contains_key(&info.id)
    {
        return None;
    }
    if inner.partial.lock().get(&info.id).is_some_and(|at| at.elapsed() < PARTIAL_AGAIN) {
        return None;
    }
    let numbers = inner.targets.numbers();
    numbers.detached.iter().for_each(|store| inner.forget_copy(info.id, *store));
    let mut have = inner.stores.lock().get(&info.id).cloned().unwrap_or_default();
    have.retain(|store| !inner.targets.is_long_gone(*store));
    let is_unsure = inner.unsure.lock().contains(&info.id);
    // A pool has all or nothing.
    let (pools, others): (BTreeSet<_>, BTreeSet<_>) = have.iter().copied().partition(|store| numbers.is_pool(*store));
    let (have, again) = if is_unsure { (pools, others) } else { (have, BTreeSet::new()) };
    let mut stores: Vec<StoreNumber> = have.iter().copied().collect();
    let is_possible =
        again.iter().any(|store| inner.targets.is_usable(*store)) || !inner.targets.usable(&stores).is_empty();
    let is_few = numbers.count(have.iter().copied()) + 1 < usize::from(numbers.copies);
    let is_unsure = is_unsure && numbers.copies > 1;
    // The file is verified, and what counts then is settled, also if pools are enough.
    let is_looked_at = is_unsure && again.is_empty() && !is_few;
    let is_lacking = is_looked_at || (is_unsure || is_few) && is_possible;
    stores.push(inner.own_number());
    let is_near =
        || !is_unsure && !inner.is_spread(&stores) && inner.targets.choose_rack(info.id, &stores, &[]).is_some();
    (is_lacking || is_near()).then_some(Lack { have, again })
}

/// Of these stores, those that bytes are sent to.
fn servers(inner: &Inner, stores: BTreeSet<StoreNumber>) -> impl Iterator<Item = StoreNumber> {
    let numbers = inner.targets.numbers();
    stores.into_iter().filter(move |store| !numbers.is_pool(*store))
}

fn begin_own(inner: &Arc<Inner>, id: SegmentId) -> bool {
    let Ok(info) = inner.own.listed(id) else { return false };
    let Some(Lack { have, again }) = lack_of(inner, &info) else { return false };
    let copied = Arc::new(Copied::again(info.id, info.kind, servers(inner, have)));
    again.into_iter().filter(|store| inner.targets.is_usable(*store)).for_each(|store| copied.join(store));
    tracing::info!(segment = ?info.id, "a segment is at too few stores, and is copied");
    inner.counters.repaired.fetch_add(1, Ordering::Relaxed);
    read_and_send(inner, info, copied);
    true
}

/// V1.
fn read_and_send(inner: &Arc<Inner>, info: SegmentInfo, copied: Arc<Copied>) {
    inner.segments.lock().insert(info.id, Arc::clone(&copied));
    let task = Arc::clone(inner);
    inner.peers.spawn(async move {
        let inner = Arc::clone(&task);
        let read = tokio::task::spawn_blocking(move || read_or_mend(&inner, &info)).await.unwrap_or(Err(Error::Busy));
        match read {
            Ok(right) if right.parts.is_empty() => {
                tracing::error!(segment = ?info.id, "nothing of the file is right, and nothing of it is copied");
                give_up(&task, info.id);
            }
            Ok(right) => {
                let is_whole = right.is_whole();
                if !is_whole {
                    tracing::error!(
                        segment = ?info.id,
                        runs = right.lost.len(),
                        has_its_length = right.has_its_length,
                        "the file lacks bytes that rows name: these are not copied, and copies that have them keep them"
                    );
                    task.partial.lock().insert(info.id, Instant::now());
                }
                copied.read(right.parts, is_whole);
                task.push(&copied, elsewhere::wanted(&task, info.id), (0, 0));
            }
            Err(error) => {
                tracing::warn!(segment = ?info.id, %error, "a segment is copied later");
                task.segments.lock().remove(&info.id);
            }
        }
        task.wake_upkeep();
    });
}

/// What the file lacks is fetched from where it is, before the others are sent what is right.
pub(super) fn read_or_mend(inner: &Arc<Inner>, info: &SegmentInfo) -> Result<Right, Error> {
    let right = right::of(inner, info)?;
    if right.is_whole() || !mend::mend(inner, info.id).is_ok_and(|mended| mended.left == 0) {
        return Ok(right);
    }
    let info = inner.own.listed(info.id)?;
    right::of(inner, &info)
}

/// It is looked at again after `PARTIAL_AGAIN`.
fn give_up(inner: &Inner, id: SegmentId) {
    inner.partial.lock().insert(id, Instant::now());
    inner.unsure.lock().insert(id);
    inner.segments.lock().remove(&id);
}

/// Another copy at that store; `trim` finds that there is one too many.
fn begin_move(inner: &Arc<Inner>, id: SegmentId, store: StoreNumber) -> bool {
    let Ok(info) = inner.own.listed(id) else { return false };
    if inner.own.is_written(id) || inner.segments.lock().contains_key(&id) || !inner.targets.is_usable(store) {
        return false;
    }
    let have = inner.stores.lock().get(&id).cloned().unwrap_or_default();
    let copied = Arc::new(Copied::again(info.id, info.kind, servers(inner, have)));
    copied.join(store);
    read_and_send(inner, info, copied);
    true
}

fn begin_adopted(
    inner: &Arc<Inner>,
    known: KnownSegment,
    (running, looked): (&Arc<AtomicUsize>, &Arc<Looked>),
) -> bool {
    if !is_lacking_here(inner, &known, &inner.targets.numbers()) {
        return false;
    }
    running.fetch_add(1, Ordering::AcqRel);
    let (task, running, looked) = (Arc::clone(inner), Arc::clone(running), Arc::clone(looked));
    inner.peers.spawn(async move {
        adopt(Arc::clone(&task), known, looked).await;
        running.fetch_sub(1, Ordering::AcqRel);
        task.wake_upkeep();
    });
    true
}
