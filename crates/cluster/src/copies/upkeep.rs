//! What nobody waits for: copies that are missing are made, those that nobody needs are removed.
//!
//! Invariants: U1 a segment that is written no more is at as many stores as the volume says, once these can be reached.
//!             U2 a copy is removed when no row has named this store for it during `UNNAMED_FOR`: the first commit that refers to a
//!                segment may be that much later than its bytes.
//!             U3 of a store that is detached for good, the lowest of the stores that have a segment makes the copy that is missing.
//! Locking:    one thread; its own state is not shared.
//! Not here:   copies of what is being written (copies).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use margay_segment::{SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{Error, KnownSegment, SegmentState, has_copy, is_referenced, rename_stores, segments_made_by};
use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::segment::Copied;
use super::{Inner, send};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const REPAIR_EVERY: Duration = Duration::from_secs(5);
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A copy that no row names is kept for so long.
const UNNAMED_FOR: Duration = Duration::from_secs(3600);
/// Segments that are copied again at once; the others wait for them.
const REPAIRED_AT_ONCE: usize = 2;
/// Rows of a detached store that are read at once.
const ROWS_READ: usize = 1000;

/// Ends the thread.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    ended: Mutex<bool>,
    changed: Condvar,
    is_over: AtomicBool,
}

/// What the thread knows between two rounds.
#[derive(Default)]
struct Rounds {
    repaired_at: Option<Instant>,
    swept_at: Option<Instant>,
    /// How often a store had been opened when it was asked what it has.
    asked: HashMap<StoreNumber, u64>,
    /// Copies that no row names, how long they were, and since when.
    unnamed: HashMap<SegmentId, (u64, Instant)>,
}

impl Upkeep {
    pub(super) fn start(inner: Arc<Inner>) -> io::Result<(Arc<Upkeep>, JoinHandle<()>)> {
        let upkeep = Arc::new(Upkeep::default());
        let own = Arc::clone(&upkeep);
        let thread = std::thread::Builder::new().name("copies".to_owned()).spawn(move || own.run(&inner))?;
        Ok((upkeep, thread))
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        *self.ended.lock() = true;
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn run(&self, inner: &Arc<Inner>) {
        let mut rounds = Rounds::default();
        loop {
            {
                let mut ended = self.ended.lock();
                if !*ended {
                    self.changed.wait_for(&mut ended, LOOK_EVERY);
                }
                if *ended {
                    return;
                }
            }
            // Before the volume has given the store its number, it has no segments of its own.
            if inner.own.is_attached()
                && let Err(error) = self.round(inner, &mut rounds)
            {
                tracing::warn!(%error, "copies of segments are looked after later");
            }
        }
    }

    fn round(&self, inner: &Arc<Inner>, rounds: &mut Rounds) -> Result<(), Error> {
        inner.targets.look(inner)?;
        self.settle(inner);
        let now = Instant::now();
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at + every <= now);
        if is_due(rounds.repaired_at, REPAIR_EVERY) {
            rounds.repaired_at = Some(now);
            self.ask_what_they_have(inner, &mut rounds.asked);
            self.repair(inner);
            self.repair_detached(inner)?;
        }
        if is_due(rounds.swept_at, SWEEP_EVERY) {
            rounds.swept_at = Some(now);
            self.sweep(inner, &mut rounds.unnamed)?;
        }
        Ok(())
    }

    /// Segments that are written no more and have all of their copies need nothing any more; the others get them.
    fn settle(&self, inner: &Arc<Inner>) {
        let wanted = usize::from(inner.targets.numbers().copies) - 1;
        let segments: Vec<Arc<Copied>> = inner.segments.lock().values().cloned().collect();
        for copied in segments {
            let Ok(info) = inner.own.listed(copied.id) else {
                inner.segments.lock().remove(&copied.id);
                continue;
            };
            inner.push(&copied, wanted);
            let count = copied.count();
            if info.open || count.have < wanted || count.sending_behind > 0 {
                continue;
            }
            inner.segments.lock().remove(&copied.id);
            inner.unsure.lock().remove(&copied.id);
            for store in copied.tried() {
                inner.peers.spawn(send::seal(Arc::clone(inner), copied.id, store));
            }
        }
    }

    /// What rows say of a store is compared with what it has, once for each time that it is opened.
    fn ask_what_they_have(&self, inner: &Arc<Inner>, asked: &mut HashMap<StoreNumber, u64>) {
        for (store, generation) in inner.targets.live() {
            if asked.get(&store) == Some(&generation) || !inner.targets.is_usable(store) {
                continue;
            }
            let there =
                inner.stores.lock().iter().filter(|(_, stores)| stores.contains(&store)).map(|(id, _)| *id).collect();
            if self.ask_one(inner, store, there) {
                asked.insert(store, generation);
            }
        }
    }

    /// False if it was not told all.
    fn ask_one(&self, inner: &Arc<Inner>, store: StoreNumber, there: Vec<SegmentId>) -> bool {
        for id in there {
            let Ok(info) = inner.own.listed(id) else { continue };
            // What is being written is looked after by who writes it.
            if self.is_over() || info.open || inner.segments.lock().contains_key(&id) {
                continue;
            }
            let asked = Arc::clone(inner);
            match inner.peers.block(async move { send::copied_bytes(&asked, id, store).await }) {
                Some(Ok(bytes)) if bytes.is_some_and(|bytes| bytes >= info.len) => {}
                Some(Ok(bytes)) => {
                    tracing::warn!(segment = ?id, store = store.0, bytes, len = info.len, "a copy is missing, or not whole");
                    inner.forget_copy(id, store);
                }
                Some(Err(_)) | None => return false,
            }
        }
        true
    }

    /// Begins to copy own segments that are at too few stores (U1).
    fn repair(&self, inner: &Arc<Inner>) {
        let numbers = inner.targets.numbers();
        let wanted = usize::from(numbers.copies) - 1;
        let mut running = inner.segments.lock().values().filter(|copied| copied.is_repair).count();
        for info in inner.own.segments() {
            if running >= REPAIRED_AT_ONCE || self.is_over() {
                return;
            }
            if info.open || info.id.made_by() != inner.own_number() || inner.segments.lock().contains_key(&info.id) {
                continue;
            }
            numbers.detached.iter().for_each(|store| inner.forget_copy(info.id, *store));
            let mut have = inner.stores.lock().get(&info.id).cloned().unwrap_or_default();
            have.retain(|store| !inner.targets.is_long_gone(*store));
            // Those of an earlier process get all of it again.
            let again =
                if inner.unsure.lock().contains(&info.id) { std::mem::take(&mut have) } else { BTreeSet::new() };
            let is_possible = again.iter().any(|store| inner.targets.is_usable(*store))
                || !inner.targets.usable(&have.iter().copied().collect::<Vec<_>>()).is_empty();
            if have.len() < wanted && is_possible {
                begin_repair(inner, &info, have, again);
                running += 1;
            }
        }
    }

    /// U3.
    fn repair_detached(&self, inner: &Arc<Inner>) -> Result<(), Error> {
        let numbers = inner.targets.numbers();
        for gone in &numbers.detached {
            let mut from = gone.ids().0;
            loop {
                let known = segments_made_by(&*inner.peers.engine, *gone, from, ROWS_READ)?;
                let Some(last) = known.last().map(|known| known.id) else { break };
                for known in &known {
                    if self.is_over() {
                        return Ok(());
                    }
                    repair_one_detached(inner, known, &numbers.detached)?;
                }
                from = SegmentId(last.0 + 1);
            }
        }
        Ok(())
    }

    /// Removes copies that nobody needs (U2).
    fn sweep(&self, inner: &Arc<Inner>, unnamed: &mut HashMap<SegmentId, (u64, Instant)>) -> Result<(), Error> {
        let (own, now) = (inner.own_number(), Instant::now());
        let copies: Vec<SegmentInfo> =
            inner.own.segments().into_iter().filter(|info| info.id.made_by() != own).collect();
        unnamed.retain(|id, _| copies.iter().any(|info| info.id == *id));
        for info in copies {
            if self.is_over() {
                return Ok(());
            }
            if has_copy(&*inner.peers.engine, info.id, own)? {
                unnamed.remove(&info.id);
                continue;
            }
            let (len, since) = *unnamed.entry(info.id).or_insert((info.len, now));
            if len != info.len {
                unnamed.insert(info.id, (info.len, now));
            } else if since + UNNAMED_FOR <= now {
                match inner.own.remove_copy(info.id) {
                    Ok(()) => drop(inner.counters.removed.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => tracing::warn!(segment = ?info.id, %error, "a copy that nobody needs stays"),
                }
            }
        }
        Ok(())
    }
}

fn begin_repair(
    inner: &Arc<Inner>,
    info: &SegmentInfo,
    have: BTreeSet<StoreNumber>,
    again: impl IntoIterator<Item = StoreNumber>,
) {
    let copied = Arc::new(Copied::whole(info.id, info.kind, info.len, have.into_iter()));
    again.into_iter().filter(|store| inner.targets.is_usable(*store)).for_each(|store| copied.join(store));
    tracing::info!(segment = ?info.id, "a segment is at too few stores, and is copied");
    inner.counters.repaired.fetch_add(1, Ordering::Relaxed);
    inner.segments.lock().insert(info.id, Arc::clone(&copied));
    inner.push(&copied, usize::from(inner.targets.numbers().copies) - 1);
}

fn repair_one_detached(inner: &Arc<Inner>, known: &KnownSegment, detached: &[StoreNumber]) -> Result<(), Error> {
    let (own, wanted) = (inner.own_number(), usize::from(inner.targets.numbers().copies));
    if known.record.state == SegmentState::Removed {
        return Ok(());
    }
    if !is_referenced(&*inner.peers.engine, known.id)? {
        return Ok(());
    }
    let mut have: Vec<StoreNumber> =
        known.record.stores.iter().copied().filter(|store| !detached.contains(store)).collect();
    if have.first() != Some(&own) || have.len() >= wanted {
        return Ok(());
    }
    let (Ok(info), Some(store)) = (inner.own.listed(known.id), inner.targets.choose(known.id, &have)) else {
        return Ok(());
    };
    let sender = Arc::clone(inner);
    let all = std::iter::once(0..info.len).collect::<Vec<_>>();
    let sent = inner.peers.block(async move {
        let sent = send::send_batch(&sender, (info.id, info.kind), (&all, 0), store).await;
        send::seal(sender, info.id, store).await;
        sent
    });
    match sent {
        Some(Ok(())) => {
            inner.counters.repaired.fetch_add(1, Ordering::Relaxed);
            have.push(store);
            have.sort_unstable();
            rename_stores(&*inner.peers.engine, known, have).map(drop)
        }
        Some(Err(error)) => {
            inner.targets.failed(store);
            tracing::warn!(segment = ?known.id, %error, "a segment of a detached store is copied later");
            Ok(())
        }
        None => Ok(()),
    }
}
