//! What nobody waits for: what the rows say is looked at, and copies that nobody needs are removed.
//!
//! Invariants: U2 a copy is removed when no row has named this store for it during `UNNAMED_FOR`, and nothing was written to it: the row follows the
//!                bytes with the next commit or reclaim. Nothing promises that it does within that time: a copy whose row is later is removed and
//!                made again, and no other copy goes for it before it was asked (X3 of trim).
//! Locking:    one thread; its own state is not shared.
//! Not here:   copies of what is being written (copies), those that are missing (repair).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_segment::{Kind, OtherStore, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{CopiesRecord, Error, read_segment};
use tokio::time::Instant;

use super::orphaned::Orphaned;
use super::pooled::Pooled;
use super::repair::Repairs;
use super::segment::Copied;
use super::trim::Trims;
use super::{Inner, elsewhere, mend, send};
use crate::store::HttpStore;

const LOOK_EVERY: Duration = Duration::from_secs(1);
const REPAIR_EVERY: Duration = Duration::from_secs(5);
const ORPHANED_EVERY: Duration = Duration::from_secs(600);
/// Own files that are gone are looked for so often.
const LOST_EVERY: Duration = Duration::from_secs(600);
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A copy that no row names is kept for so long.
const UNNAMED_FOR: Duration = Duration::from_secs(3600);
/// The thread looks after other things when it has asked a store about its copies for so long.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);

/// The thread, and what it knows between two rounds.
pub(super) struct Upkeep {
    inner: Arc<Inner>,
    looked_at: Option<Instant>,
    found_at: Option<Instant>,
    swept_at: Option<Instant>,
    orphaned_at: Option<Instant>,
    lost_at: Option<Instant>,
    orphaned: Orphaned,
    /// What the rows said when copies that are missing were looked for.
    found_for: (CopiesRecord, HashMap<StoreNumber, u64>),
    repairs: Repairs,
    trims: Trims,
    pooled: Pooled,
    /// How often a store had been opened when it was asked what it has, and the segments that it is to be asked for still.
    asked: HashMap<StoreNumber, (u64, Vec<SegmentId>)>,
    /// Copies that no row names, how often they had been written to, and since when.
    unnamed: HashMap<SegmentId, (u64, Instant)>,
}

/// What came of the question for one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Answered,
    /// It has not all of it, so it is forgotten that it had.
    Lacks,
    NotNow,
    NoAnswer,
}

impl Upkeep {
    /// It ends after `Inner::is_over` is set and the thread unparked.
    pub(super) fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
        let upkeep = Upkeep {
            inner,
            looked_at: None,
            found_at: None,
            swept_at: None,
            orphaned_at: None,
            lost_at: None,
            orphaned: Orphaned::default(),
            found_for: Default::default(),
            repairs: Repairs::default(),
            trims: Trims::default(),
            pooled: Pooled::default(),
            asked: HashMap::new(),
            unnamed: HashMap::new(),
        };
        std::thread::Builder::new().name("copies".to_owned()).spawn(move || upkeep.run())
    }

    fn run(mut self) {
        // Set once, by this thread.
        let _ = self.inner.upkeep.set(std::thread::current());
        while !self.inner.is_over() {
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
        let now = Instant::now();
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at + every <= now);
        if is_due(self.looked_at, LOOK_EVERY) {
            self.looked_at = Some(now);
            let before = self.inner.targets.numbers().recovered;
            self.inner.targets.look(&self.inner)?;
            if self.inner.targets.numbers().recovered != before {
                // An operator wants all stores to be asked again.
                (self.asked, self.found_at, self.lost_at) = (HashMap::new(), None, None);
            }
            self.ask_what_they_have();
        }
        self.settle();
        let rows = (self.inner.targets.numbers(), self.inner.targets.live());
        if is_due(self.found_at, REPAIR_EVERY) || self.found_for != rows {
            (self.found_at, self.found_for) = (Some(now), rows);
            self.trims.find(&self.inner);
            self.repairs.find(&self.inner, self.trims.is_idle())?;
        }
        self.repairs.begin(&self.inner);
        self.trims.go_on(&self.inner)?;
        // Once others can be asked: none is known before the first look.
        if is_due(self.lost_at, LOST_EVERY) && !self.inner.targets.live().is_empty() {
            self.lost_at = Some(now);
            mend::begin_lost(&self.inner)?;
        }
        self.pooled.go_on(&self.inner, now)?;
        if is_due(self.orphaned_at, ORPHANED_EVERY) {
            self.orphaned_at = Some(now);
            self.orphaned.look(&self.inner, now)?;
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
        let segments: Vec<Arc<Copied>> = inner.segments.lock().values().cloned().collect();
        for copied in segments {
            let Ok(info) = inner.own.listed(copied.id) else {
                inner.segments.lock().remove(&copied.id);
                continue;
            };
            if copied.is_unread() {
                continue;
            }
            let wanted = elsewhere::wanted(inner, copied.id);
            let is_written = inner.own.is_written(copied.id);
            let has_lost = inner.drop_gone(&copied);
            let sent_to = copied.sent_to();
            let is_elsewhere = sent_to.len() > wanted
                || sent_to.iter().any(|store| !inner.targets.takes_new(*store))
                || inner.may_spread(copied.id, &sent_to);
            if !is_written {
                // Asked anew, since it was written to until now.
                copied.finish(inner.own.listed(copied.id).map_or(info.len, |info| info.len));
            } else if copied.lacks_beginning() || copied.kind == Kind::Pack && (is_elsewhere || has_lost) {
                // What comes next goes to a new pack, and to other stores.
                let sealed = inner.own.seal(copied.id);
                sealed.unwrap_or_else(|error| tracing::warn!(segment = ?copied.id, %error, "a pack is sealed later"));
            }
            // Nobody waits for it.
            inner.push(&copied, wanted, (0, 0));
            let count = copied.count();
            if is_written || count.have < wanted || count.sending_behind > 0 {
                continue;
            }
            inner.is_copied(&copied);
            for store in copied.tried() {
                inner.peers.spawn(send::seal(Arc::clone(inner), copied.id, store));
            }
        }
    }

    /// What rows say of a store is compared with what it has, once for each time that it is opened.
    fn ask_what_they_have(&mut self) {
        let begun = Instant::now();
        let live = self.inner.targets.live();
        self.asked.retain(|store, (generation, _)| live.get(store) == Some(generation));
        for (store, generation) in live {
            let is_over = || begun.elapsed() >= ASK_TIME_MAX || self.inner.is_over();
            if is_over() || !self.inner.targets.is_usable(store) {
                continue;
            }
            let (_, left) = self.asked.remove(&store).unwrap_or_else(|| (generation, self.said_to_be_at(store)));
            let (mut later, mut is_there) = (Vec::new(), true);
            for id in left {
                // What is left is asked for in another round, also if the store does not answer now.
                let asked = if !is_there || is_over() { Asked::NotNow } else { self.ask_about(store, id) };
                later.extend(matches!(asked, Asked::NotNow | Asked::NoAnswer).then_some(id));
                is_there &= asked != Asked::NoAnswer;
                // Its copies are made again now, and not when it is next looked whether some are missing.
                self.found_at = self.found_at.filter(|_| asked != Asked::Lacks);
            }
            if !is_there {
                self.inner.targets.failed(store);
            }
            self.asked.insert(store, (generation, later));
        }
    }

    fn said_to_be_at(&self, store: StoreNumber) -> Vec<SegmentId> {
        let stores = self.inner.stores.lock();
        stores.iter().filter(|(_, stores)| stores.contains(&store)).map(|(id, _)| *id).collect()
    }

    fn ask_about(&self, store: StoreNumber, id: SegmentId) -> Asked {
        let inner = &self.inner;
        let Ok(info) = inner.own.listed(id) else { return Asked::Answered };
        // What is being written or copied is looked after by who does it, until then. A copy of a file that is not whole may be shorter
        // than it.
        let is_busy = || inner.segments.lock().contains_key(&id) || inner.unsure.lock().contains(&id);
        if inner.own.is_written(id) || is_busy() {
            return Asked::NotNow;
        }
        let len = match HttpStore::new(&inner.peers, store).state(id) {
            Ok(there) => there.len,
            Err(SegmentError::Unreachable(..)) => return Asked::NoAnswer,
            // Missing, or its disk does not give it.
            Err(_) => 0,
        };
        if len < info.len {
            tracing::warn!(segment = ?id, store = store.0, len, of = info.len, "a copy is missing, or not whole");
            inner.forget_copy(id, store);
            return Asked::Lacks;
        }
        Asked::Answered
    }

    /// Removes copies that nobody needs (U2).
    fn sweep(&mut self, now: Instant) -> Result<(), Error> {
        let (inner, own) = (Arc::clone(&self.inner), self.inner.own_number());
        let copies: Vec<SegmentInfo> =
            inner.own.segments().into_iter().filter(|info| info.id.made_by() != own).collect();
        let named = elsewhere::named_at(&inner, copies.iter().map(|info| info.id), own)?;
        let before = std::mem::take(&mut self.unnamed);
        for info in copies.into_iter().filter(|info| !named.contains(&info.id)) {
            // One that is made again does not grow.
            let Ok(writes) = inner.own.copy_writes(info.id) else { continue };
            let since = before.get(&info.id).filter(|(known, _)| *known == writes).map_or(now, |(_, since)| *since);
            if since + UNNAMED_FOR > now {
                self.unnamed.insert(info.id, (writes, since));
                continue;
            }
            // The rows were read a while ago.
            if read_segment(&*inner.peers.engine, info.id)?.is_some_and(|record| record.stores.contains(&own)) {
                continue;
            }
            match inner.own.remove_copy_not_written(info.id, writes) {
                Ok(true) => drop(inner.counters.removed.fetch_add(1, Ordering::Relaxed)),
                Ok(false) => {}
                Err(error) => tracing::warn!(segment = ?info.id, %error, "a copy that nobody needs stays"),
            }
        }
        Ok(())
    }
}
