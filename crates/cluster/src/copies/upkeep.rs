//! What nobody waits for: copies that are missing are made, those that nobody needs are removed.
//!
//! Invariants: U1 a segment that is written no more is at as many stores as the volume says, once these can be reached.
//!             U2 a copy is removed when no row has named this store for it during `UNNAMED_FOR`: the first commit that refers to a
//!                segment may be that much later than its bytes.
//!             U3 of a store that is detached for good, the lowest of the stores that have a segment makes the copy that is missing.
//! Locking:    one thread; its own state is not shared.
//! Not here:   copies of what is being written (copies).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_segment::{OtherStore, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{CopiesRecord, Error, KnownSegment, is_referenced, rename_stores, visit_segments_made_by};
use tokio::time::Instant;

use super::segment::Copied;
use super::{Inner, send};
use crate::peers::HttpStore;

const LOOK_EVERY: Duration = Duration::from_secs(1);
const REPAIR_EVERY: Duration = Duration::from_secs(5);
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A copy that no row names is kept for so long.
const UNNAMED_FOR: Duration = Duration::from_secs(3600);
/// Segments that are copied again at once; the others wait for them.
const REPAIRED_AT_ONCE: usize = 2;

/// The thread, and what it knows between two rounds.
pub(super) struct Upkeep {
    inner: Arc<Inner>,
    repaired_at: Option<Instant>,
    swept_at: Option<Instant>,
    /// How often a store had been opened when it was asked what it has.
    asked: HashMap<StoreNumber, u64>,
    /// Detached stores whose segments lack no copy that is made here, while these are the numbers.
    whole: (CopiesRecord, BTreeSet<StoreNumber>),
    /// Copies that no row names, how long they were, and since when.
    unnamed: HashMap<SegmentId, (u64, Instant)>,
}

impl Upkeep {
    /// It ends after `Inner::is_over` is set and the thread unparked.
    pub(super) fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
        let (asked, whole, unnamed) = (HashMap::new(), Default::default(), HashMap::new());
        let upkeep = Upkeep { inner, repaired_at: None, swept_at: None, asked, whole, unnamed };
        std::thread::Builder::new().name("copies".to_owned()).spawn(move || upkeep.run())
    }

    fn is_over(&self) -> bool {
        self.inner.is_over.load(Ordering::Acquire)
    }

    fn run(mut self) {
        while !self.is_over() {
            // Before the volume has given the store its number, it has no segments of its own.
            if self.inner.own.is_attached()
                && let Err(error) = self.round()
            {
                tracing::warn!(%error, "copies of segments are looked after later");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    fn round(&mut self) -> Result<(), Error> {
        self.inner.targets.look(&self.inner)?;
        self.settle();
        let now = Instant::now();
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at + every <= now);
        if is_due(self.repaired_at, REPAIR_EVERY) {
            self.repaired_at = Some(now);
            self.ask_what_they_have();
            self.repair();
            self.repair_detached()?;
        }
        if is_due(self.swept_at, SWEEP_EVERY) {
            self.swept_at = Some(now);
            self.sweep(now)?;
        }
        Ok(())
    }

    /// Segments that are written no more and have all of their copies need nothing any more; the others get them.
    fn settle(&self) {
        let inner = &self.inner;
        let wanted = usize::from(inner.targets.numbers().copies) - 1;
        let segments: Vec<Arc<Copied>> = inner.segments.lock().values().cloned().collect();
        for copied in segments {
            let Ok(info) = inner.own.listed(copied.id) else {
                inner.segments.lock().remove(&copied.id);
                continue;
            };
            if !info.open {
                copied.finish(info.len);
            } else if copied.lacks_beginning()
                && let Err(error) = inner.own.seal(copied.id)
            {
                tracing::warn!(segment = ?copied.id, %error, "what it had before copies were made is copied later");
            }
            // Nobody waits for it.
            inner.push(&copied, wanted, 0);
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
    fn ask_what_they_have(&mut self) {
        for (store, generation) in self.inner.targets.live() {
            if self.asked.get(&store) == Some(&generation) || !self.inner.targets.is_usable(store) {
                continue;
            }
            let stores = self.inner.stores.lock();
            let there = stores.iter().filter(|(_, stores)| stores.contains(&store)).map(|(id, _)| *id).collect();
            drop(stores);
            if self.ask_one(store, there) {
                self.asked.insert(store, generation);
            }
        }
    }

    /// False if it was not told all.
    fn ask_one(&self, store: StoreNumber, there: Vec<SegmentId>) -> bool {
        let (inner, asked) = (&self.inner, HttpStore::new(&self.inner.peers, store));
        for id in there {
            let Ok(info) = inner.own.listed(id) else { continue };
            // What is being written is looked after by who writes it.
            if info.open || inner.segments.lock().contains_key(&id) {
                continue;
            }
            if self.is_over() {
                return false;
            }
            let len = match asked.state(id) {
                Ok(there) => there.len,
                Err(SegmentError::Missing(_)) => 0,
                Err(_) => return false,
            };
            if len < info.len {
                tracing::warn!(segment = ?id, store = store.0, len, of = info.len, "a copy is missing, or not whole");
                inner.forget_copy(id, store);
            }
        }
        true
    }

    /// Begins to copy own segments that are at too few stores (U1).
    fn repair(&self) {
        let inner = &self.inner;
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
    fn repair_detached(&mut self) -> Result<(), Error> {
        let numbers = self.inner.targets.numbers();
        if self.whole.0 != numbers {
            self.whole = (numbers.clone(), BTreeSet::new());
        }
        for gone in numbers.detached.iter().filter(|gone| !self.whole.1.contains(gone)).copied().collect::<Vec<_>>() {
            let mut is_whole = true;
            visit_segments_made_by(&*self.inner.peers.engine, gone, &mut |known| {
                is_whole &= repair_one_detached(&self.inner, &known, &numbers)?;
                Ok(if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            if is_whole && !self.is_over() {
                self.whole.1.insert(gone);
            }
        }
        Ok(())
    }

    /// Removes copies that nobody needs (U2).
    fn sweep(&mut self, now: Instant) -> Result<(), Error> {
        let (inner, own) = (Arc::clone(&self.inner), self.inner.own_number());
        let copies: Vec<SegmentInfo> =
            inner.own.segments().into_iter().filter(|info| info.id.made_by() != own).collect();
        let made_by: BTreeSet<StoreNumber> = copies.iter().map(|info| info.id.made_by()).collect();
        let mut named = HashSet::new();
        for store in made_by {
            visit_segments_made_by(&*inner.peers.engine, store, &mut |known| {
                named.extend(known.is_at(own).then_some(known.id));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let before = std::mem::take(&mut self.unnamed);
        for info in copies.into_iter().filter(|info| !named.contains(&info.id)) {
            // One that grows is still written.
            let since = before.get(&info.id).filter(|(len, _)| *len == info.len).map_or(now, |(_, since)| *since);
            if since + UNNAMED_FOR > now {
                self.unnamed.insert(info.id, (info.len, since));
                continue;
            }
            match inner.own.remove_copy(info.id) {
                Ok(()) => drop(inner.counters.removed.fetch_add(1, Ordering::Relaxed)),
                Err(error) => tracing::warn!(segment = ?info.id, %error, "a copy that nobody needs stays"),
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
    inner.push(&copied, usize::from(inner.targets.numbers().copies) - 1, 0);
}

/// False if it lacks a copy that was to be made here.
fn repair_one_detached(inner: &Arc<Inner>, known: &KnownSegment, numbers: &CopiesRecord) -> Result<bool, Error> {
    let (own, wanted) = (inner.own_number(), usize::from(numbers.copies));
    let mut have = known.record.stores.clone();
    have.retain(|store| !numbers.detached.contains(store));
    let is_here = known.is_at(own) && have.first() == Some(&own);
    if !is_here || have.len() >= wanted || !is_referenced(&*inner.peers.engine, known.id)? {
        return Ok(true);
    }
    let (Ok(info), Some(store)) = (inner.own.listed(known.id), inner.targets.choose(known.id, &have, false)) else {
        return Ok(false);
    };
    let (sender, all) = (Arc::clone(inner), vec![Range { start: 0, end: info.len }]);
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
            let is_enough = have.len() >= wanted;
            Ok(rename_stores(&*inner.peers.engine, known, have)? && is_enough)
        }
        Some(Err(error)) => {
            inner.targets.failed(store);
            tracing::warn!(segment = ?known.id, %error, "a segment of a detached store is copied later");
            Ok(false)
        }
        None => Ok(false),
    }
}
