//! Copies of the own segments at the stores of other processes.
//!
//! Why:        a disk that is lost takes nothing with it that was acknowledged (N copies, of which W are waited for).
//! Example:    3 copies, 2 waited for: a run is in the own file and was sent to two other stores; its commit waits for the own disk
//!             and for the faster one of the two.
//! Layout:     `segment` is what was written to one segment and who has it, `send` one store's part of it, `targets` which stores may
//!             be asked, `upkeep` what nobody waits for: `repair` makes copies that are missing, `rebalance` moves some,
//!             `trim` removes those that are too many, `pooled` puts segments into pools, `pool_sweep` removes what is left there.
//! Invariants: C1 what counts as copied is durable in the file of another store's process.
//!             C2 the bytes that are sent are those of the own file, so a copy is the same file.
//!                Of a file that this process has not written only that is sent which was verified (`right`).
//!             C3 a store that fails is replaced for each segment that waits for it; it gets the segment whole, or not at all.
//! Locking:    leaf locks, the state of a segment under none; nothing is sent and no row is read under them.
//! Durability: `wait` after the sync of the own file; a run is acknowledged only then.
//! Not here:   what a store does with copies (margay-segment), the rows (margay-volume).

mod adopt;
mod elsewhere;
mod mend;
mod orders;
mod orphaned;
mod pool_sweep;
mod pooled;
mod put;
mod rebalance;
mod repair;
mod right;
mod scrub;
mod segment;
mod send;
mod spread;
mod targets;
mod trim;
mod upkeep;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use margay_segment::{SegmentError, SegmentId, Store, StoreNumber, SyncFuture};
use margay_volume::Copies;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

pub use self::mend::Mended;
pub use self::orders::Ordered;
use self::segment::Copied;
use self::targets::{Need, Targets};
use self::upkeep::Upkeep;
use crate::peers::{HttpPeers, Shared};

/// Pieces that are sent to one store at once, each of up to 4 MiB.
const SENDS_AT_ONCE: usize = 8;
/// As before, of segments that are copied again.
const BACKGROUND_SENDS_AT_ONCE: usize = 4;
/// A store that has not answered for so long is joined by another one, if there is one.
const JOINED_AFTER: Duration = Duration::from_secs(1);
/// While too few stores can be reached, a write waits so long for one to come back.
const PATIENCE: Duration = Duration::from_millis(1500);
/// A write waits so long at most.
const WAIT_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a write that waits looks for other stores.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Makes copies, over HTTP. Dropping it ends its thread.
#[derive(Debug)]
pub struct HttpCopies {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    peers: Arc<Shared>,
    own: Arc<Store>,
    targets: Targets,
    /// Segments that are written, and those whose copies are not complete.
    segments: Mutex<HashMap<SegmentId, Arc<Copied>>>,
    /// The other stores that have something of an own segment.
    stores: Mutex<HashMap<SegmentId, BTreeSet<StoreNumber>>>,
    /// Of an earlier process: their stores may lack some of them.
    unsure: Mutex<HashSet<SegmentId>>,
    /// Own segments whose file was found not whole, and when.
    partial: Mutex<HashMap<SegmentId, Instant>>,
    /// Copies that this process was sent something of, and when: newer than `put::RECENT`, and some older ones.
    put: Mutex<HashMap<SegmentId, Instant>>,
    /// Held while a file is made right.
    mending: Mutex<()>,
    /// Files that are gone are being fetched.
    is_fetching: AtomicBool,
    sends: Mutex<HashMap<StoreNumber, Arc<Semaphore>>>,
    background_sends: Mutex<HashMap<StoreNumber, Arc<Semaphore>>>,
    /// Writes that wait for copies.
    waits: AtomicU64,
    upkeep: OnceLock<Thread>,
    counters: Counters,
    /// The thread of upkeep is to end.
    is_over: AtomicBool,
}

/// Since the start.
#[derive(Debug, Default)]
struct Counters {
    sent_bytes: AtomicU64,
    failed_sends: AtomicU64,
    repaired: AtomicU64,
    pooled: AtomicU64,
    removed: AtomicU64,
    trimmed: AtomicU64,
    given_up: AtomicU64,
    scrubbed_bytes: AtomicU64,
    damaged: AtomicU64,
    refused: AtomicU64,
}

/// For metrics and the status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStatistics {
    /// Stores that each segment is to be at, and those that a write waits for.
    pub copies: u8,
    pub write: u8,
    /// Other stores that can be asked now.
    pub stores: u64,
    /// Own segments that are at fewer stores than that, those that are being written among them.
    pub incomplete_segments: u64,
    pub sent_bytes: u64,
    pub failed_sends: u64,
    /// Copies of whole segments that were made because one was missing.
    pub repaired_segments: u64,
    /// Segments that were put into pools.
    pub pooled_segments: u64,
    /// Copies that no row named any more.
    pub removed_copies: u64,
    /// Copies that were one too many.
    pub trimmed_copies: u64,
    /// Segments of detached stores that nothing refers to.
    pub given_up_segments: u64,
    /// Bytes of copies at other stores that were read to find damage.
    pub scrubbed_bytes: u64,
    /// Copies that were found damaged so.
    pub damaged_copies: u64,
    /// Writes that were refused because too few stores had them.
    pub refused_writes: u64,
}

impl HttpCopies {
    /// `own`: the store whose segments are copied, and which has copies of others.
    pub fn start(peers: &HttpPeers, own: Arc<Store>) -> io::Result<HttpCopies> {
        let inner = Arc::new(Inner {
            peers: Arc::clone(&peers.0),
            own,
            targets: Targets::default(),
            segments: Mutex::default(),
            stores: Mutex::default(),
            unsure: Mutex::default(),
            partial: Mutex::default(),
            put: Mutex::default(),
            mending: Mutex::default(),
            is_fetching: AtomicBool::new(false),
            sends: Mutex::default(),
            background_sends: Mutex::default(),
            waits: AtomicU64::new(0),
            upkeep: OnceLock::new(),
            counters: Counters::default(),
            is_over: AtomicBool::new(false),
        });
        // The volume is not attached yet, so no own segment is written before the first look.
        inner.targets.look(&inner).map_err(|error| io::Error::other(error.to_string()))?;
        // Dropping it ends a thread also if the second one cannot start.
        let mut copies = HttpCopies { inner, threads: Vec::new() };
        copies.threads.push(Upkeep::start(Arc::clone(&copies.inner))?);
        copies.threads.push(scrub::start(Arc::clone(&copies.inner))?);
        Ok(copies)
    }

    pub fn statistics(&self) -> CopyStatistics {
        let (inner, counters) = (&*self.inner, &self.inner.counters);
        let numbers = inner.targets.numbers();
        let incomplete = inner.segments.lock().len() as u64;
        CopyStatistics {
            copies: numbers.copies,
            write: numbers.write,
            stores: inner.targets.usable(&[]).len() as u64,
            incomplete_segments: if numbers.copies > 1 { incomplete } else { 0 },
            sent_bytes: counters.sent_bytes.load(Ordering::Relaxed),
            failed_sends: counters.failed_sends.load(Ordering::Relaxed),
            repaired_segments: counters.repaired.load(Ordering::Relaxed),
            pooled_segments: counters.pooled.load(Ordering::Relaxed),
            removed_copies: counters.removed.load(Ordering::Relaxed),
            trimmed_copies: counters.trimmed.load(Ordering::Relaxed),
            given_up_segments: counters.given_up.load(Ordering::Relaxed),
            scrubbed_bytes: counters.scrubbed_bytes.load(Ordering::Relaxed),
            damaged_copies: counters.damaged.load(Ordering::Relaxed),
            refused_writes: counters.refused.load(Ordering::Relaxed),
        }
    }
}

impl Drop for HttpCopies {
    fn drop(&mut self) {
        self.inner.end();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The panic was already reported.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn own_number(&self) -> StoreNumber {
        self.own.name().number
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake_upkeep();
    }

    /// The thread of upkeep is to end.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Bounds the memory of what is sent to a store, and no other one waits for it.
    fn sends(&self, store: StoreNumber) -> Arc<Semaphore> {
        Arc::clone(self.sends.lock().entry(store).or_insert_with(|| Arc::new(Semaphore::new(SENDS_AT_ONCE))))
    }

    /// As `sends`, for what nobody waits for.
    fn background_sends(&self, store: StoreNumber) -> Arc<Semaphore> {
        let of_store = || Arc::new(Semaphore::new(BACKGROUND_SENDS_AT_ONCE));
        Arc::clone(self.background_sends.lock().entry(store).or_insert_with(of_store))
    }

    /// Whether a write waits for its copies.
    fn is_waited(&self) -> bool {
        self.waits.load(Ordering::Relaxed) > 0
    }

    /// A segment that was copied again is done with, so the next one can begin.
    fn wake_upkeep(&self) {
        self.upkeep.get().into_iter().for_each(Thread::unpark);
    }

    fn copied(&self, id: SegmentId) -> Option<Arc<Copied>> {
        self.segments.lock().get(&id).cloned()
    }

    /// Another store has something of the segment, durably.
    fn note_copy(&self, id: SegmentId, store: StoreNumber) {
        self.stores.lock().entry(id).or_default().insert(store);
    }

    fn forget_copy(&self, id: SegmentId, store: StoreNumber) {
        if let Some(stores) = self.stores.lock().get_mut(&id) {
            stores.remove(&store);
        }
    }

    /// What a store had of a segment does not count once it is detached, or away for long; true if there was any.
    fn drop_gone(&self, copied: &Copied) -> bool {
        let detached = self.targets.numbers().detached;
        let gone = copied.gone(&|store| detached.contains(&store) || self.targets.is_long_gone(store));
        gone.iter().for_each(|store| self.forget_copy(copied.id, *store));
        !gone.is_empty()
    }

    /// As many stores as are wanted have all that was to be sent of a segment. While it is here its row does not say so, so what counts
    /// is put right before it goes.
    fn is_copied(&self, copied: &Copied) {
        let id = copied.id;
        let (have, _) = copied.stores_of(copied.parts());
        if copied.is_partial() {
            // Who had it before may have what the own file lacks, and nobody is known to have all.
            self.unsure.lock().insert(id);
        } else if self.unsure.lock().contains(&id) {
            // One that was not sent to, because it was not reached, may lack what an earlier process did not send. A pool has all or
            // nothing.
            let (mut stores, numbers) = (self.stores.lock(), self.targets.numbers());
            let all = stores.entry(id).or_default();
            all.retain(|store| numbers.is_pool(*store));
            all.extend(have);
        } else {
            // One that failed has a part of it.
            let failed = copied.tried().into_iter().filter(|store| !have.contains(store));
            failed.for_each(|store| self.forget_copy(id, store));
        }
        if !copied.is_partial() {
            self.partial.lock().remove(&id);
            self.unsure.lock().remove(&id);
        }
        self.segments.lock().remove(&id);
    }

    /// Finds stores for a segment until so many are sent to, lets those that have failed try again when they are there again, and
    /// sends what they lack.
    /// `needed`: so many are waited for, and so many more because others are slow. Only for those a store is tried that has just failed:
    /// each failure ends a segment.
    fn push(self: &Arc<Inner>, copied: &Arc<Copied>, wanted: usize, (needed, more): (usize, usize)) {
        copied.revive(&|store| self.targets.is_usable(store));
        let pools = self.pools_with(copied.id);
        loop {
            let (mut has, need) = (copied.sent_to(), Need::of(copied.count().sending, needed, more));
            let is_more = has.len() < wanted;
            has.extend(pools.iter().copied().chain([self.own_number()]));
            let store = match is_more {
                true => self.targets.choose(copied.id, (&has, &copied.tried()), need),
                false if self.is_spread(&has) => None,
                false => self.targets.choose_rack(copied.id, &has, &copied.tried()),
            };
            let Some(store) = store else { break };
            copied.join(store);
        }
        let is_short = self.racks_with(&[copied.sent_to(), pools].concat()) < self.targets.numbers().racks;
        if copied.count().sending < needed + more || needed > 0 && is_short {
            copied.revive(&|store| self.targets.is_open(store));
        }
        for store in copied.behind() {
            self.peers.spawn(send::send(Arc::clone(self), Arc::clone(copied), store));
        }
    }

    async fn wait(self: Arc<Inner>, id: SegmentId) -> Result<(), SegmentError> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        // The task is not dropped before it ends, but with its runtime.
        let waited = Arc::clone(&self).wait_for_stores(id).await;
        self.waits.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    async fn wait_for_stores(self: Arc<Inner>, id: SegmentId) -> Result<(), SegmentError> {
        let numbers = self.targets.numbers();
        let Some(copied) = self.copied(id).filter(|_| numbers.write > 1) else { return Ok(()) };
        let (others, needed) = (usize::from(numbers.copies) - 1, usize::from(numbers.write).saturating_sub(1));
        let (target, begun) = (copied.parts(), Instant::now());
        loop {
            let changed = copied.changed.listen();
            if copied.count_of(target).have >= needed && self.racks_with(&copied.stores_of(target).0) >= numbers.racks {
                return Ok(());
            }
            let waited = begun.elapsed();
            let joined = usize::from(waited >= JOINED_AFTER);
            if joined > 0 {
                // What comes next does not wait for them.
                copied.slow().into_iter().for_each(|store| self.targets.failed(store));
                send::seal_here(&self, &copied);
            }
            self.push(&copied, others + joined, (needed, joined));
            let count = copied.count_of(target);
            let (have, behind) = copied.stores_of(target);
            let may_have = self.racks_with(&[have, behind].concat());
            let is_too_few = count.have + count.sending_behind < needed || may_have < numbers.racks;
            let is_hopeless = is_too_few && waited >= PATIENCE;
            if is_hopeless || waited >= WAIT_TIME_MAX {
                return Err(self.refused(&copied, target));
            }
            // Another store may be there by now; a change ends the wait early.
            drop(timeout(LOOK_EVERY, changed).await);
        }
    }

    fn refused(&self, copied: &Copied, parts: usize) -> SegmentError {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let numbers = self.targets.numbers();
        let (have, _) = copied.stores_of(parts);
        let racks = match numbers.racks {
            1 => String::new(),
            racks => format!(", in {} of {racks} racks", self.racks_with(&have)),
        };
        let said = format!(
            "{} of the {} stores that a write waits for have it{racks}; {}",
            have.len() + 1,
            numbers.write,
            match copied.failures() {
                none if none.is_empty() => "no other store can be reached".to_owned(),
                failures => failures,
            }
        );
        SegmentError::TooFewCopies(copied.id, said)
    }
}

impl Copies for HttpCopies {
    fn knows(&self, id: SegmentId, stores: &[StoreNumber], is_complete: bool) {
        let own = self.inner.own_number();
        if !is_complete && stores.iter().any(|store| *store != own) {
            self.inner.unsure.lock().insert(id);
        }
        let others = stores.iter().filter(|store| **store != own).copied();
        self.inner.stores.lock().entry(id).or_default().extend(others);
    }

    fn wrote(&self, id: SegmentId, part: Range<u64>) {
        if self.inner.targets.numbers().copies < 2 {
            return;
        }
        if let Some(copied) = self.inner.copied(id) {
            return copied.wrote(part);
        }
        let kind = match self.inner.own.listed(id) {
            Ok(info) => info.kind,
            Err(error) => return tracing::error!(segment = ?id, %error, "a segment that is being written is not there"),
        };
        let copied = {
            let mut segments = self.inner.segments.lock();
            Arc::clone(segments.entry(id).or_insert_with(|| Arc::new(Copied::new(id, kind))))
        };
        copied.wrote(part);
    }

    fn start(&self, id: SegmentId) {
        let numbers = self.inner.targets.numbers();
        if let Some(copied) = self.inner.copied(id).filter(|_| numbers.copies > 1) {
            let needed = usize::from(numbers.write).saturating_sub(1);
            self.inner.push(&copied, usize::from(numbers.copies) - 1, (needed, 0));
        }
    }

    fn wait(&self, id: SegmentId) -> SyncFuture<'_> {
        // Time is told by the runtime of whoever waits, which may have none.
        let (inner, (sender, answer)) = (Arc::clone(&self.inner), tokio::sync::oneshot::channel());
        if inner.copied(id).is_none() {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.inner.peers.spawn(async move { drop(sender.send(inner.wait(id).await)) });
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(ended(id))) })
    }

    fn wait_blocking(&self, id: SegmentId) -> Result<(), SegmentError> {
        let inner = Arc::clone(&self.inner);
        if inner.copied(id).is_none() {
            return Ok(());
        }
        self.inner.peers.block(inner.wait(id)).unwrap_or_else(|| Err(ended(id)))
    }

    fn stores(&self, id: SegmentId) -> Vec<StoreNumber> {
        let mut all = self.inner.stores.lock().get(&id).cloned().unwrap_or_default();
        all.insert(self.inner.own_number());
        all.into_iter().collect()
    }

    fn is_complete(&self, id: SegmentId) -> bool {
        let inner = &self.inner;
        let numbers = inner.targets.numbers();
        let wanted = usize::from(numbers.copies);
        if wanted < 2 {
            return true;
        }
        let is_settled = !inner.segments.lock().contains_key(&id) && !inner.unsure.lock().contains(&id);
        is_settled && numbers.count(self.stores(id)) >= wanted
    }

    fn is_partial(&self, id: SegmentId) -> bool {
        // With one copy there is nothing to compare it with.
        let is_partial = self.inner.partial.lock().contains_key(&id);
        is_partial && !self.is_complete(id)
    }

    fn punched(&self, id: SegmentId, holes: Vec<Range<u64>>) {
        let holes = segment::blocks_of(&holes);
        let stores = self.inner.stores.lock().get(&id).cloned().unwrap_or_default();
        // An object is whole until it goes.
        let is_pool = |store: &StoreNumber| self.inner.targets.numbers().is_pool(*store);
        for store in stores.into_iter().filter(|store| !holes.is_empty() && !is_pool(store)) {
            self.inner.peers.spawn(send::punch(Arc::clone(&self.inner), id, holes.clone(), store));
        }
    }

    fn removed(&self, id: SegmentId) {
        self.inner.segments.lock().remove(&id);
        self.inner.unsure.lock().remove(&id);
        self.inner.partial.lock().remove(&id);
        let stores = self.inner.stores.lock().remove(&id).unwrap_or_default();
        for store in stores {
            if let Some(pool) = self.inner.peers.pools.objects(store) {
                self.inner.peers.spawn(elsewhere::remove_object(Arc::clone(&self.inner), pool, id));
                continue;
            }
            self.inner.peers.spawn(send::remove_gone(Arc::clone(&self.inner), id, store));
        }
    }
}

fn ended(id: SegmentId) -> SegmentError {
    SegmentError::TooFewCopies(id, "the process ends".to_owned())
}
