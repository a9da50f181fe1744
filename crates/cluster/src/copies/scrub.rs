//! Copies of own segments are read where they are, slowly, and those that are damaged are made again.
//!
//! Why:        a copy that nobody reads may be damaged for years, and then the last good one is lost.
//! Invariants: K1 a store reads the run itself; what goes over the network is the question.
//!             K2 a damaged copy counts no more from then on, so it is made again like one that is missing (repair).
//!             K3 at most `BYTES_PER_SECOND` are read for this, all other stores together.
//! Locking:    a thread of its own.
//! Not here:   objects of pools (a read verifies them; their store looks after them), the own file (the volume's scrub), copies of segments of detached stores.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_segment::{Extent, Kind, OtherStore, Run, SegmentError, SegmentId, StoreNumber};
use tokio::time::Instant;

use super::{Inner, mend};
use crate::store::HttpStore;

const BYTES_PER_SECOND: u64 = 8 << 20;
/// Between two rounds, and before the first one: copies are made first.
const ROUND_EVERY: Duration = Duration::from_secs(7 * 86_400);
const FIRST_AFTER: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_secs(1);

/// It ends after `Inner::is_over` is set and the thread unparked.
pub(super) fn start(inner: Arc<Inner>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("copies-scrub".to_owned()).spawn(move || run(&inner))
}

fn run(inner: &Arc<Inner>) {
    let mut wait = FIRST_AFTER;
    while !inner.is_over() {
        let begun = Instant::now();
        while begun.elapsed() < wait && !inner.is_over() {
            std::thread::park_timeout(STEP);
        }
        if inner.own.is_attached() {
            round(inner);
            wait = ROUND_EVERY;
        }
    }
}

fn round(inner: &Arc<Inner>) {
    for info in inner.own.segments() {
        if inner.own.is_written(info.id) || info.id.made_by() != inner.own_number() {
            continue;
        }
        // The store of a segment that is copied just now is not known to have it.
        for store in stores_of(inner, info.id) {
            if inner.is_over() {
                return;
            }
            look_at(inner, (info.id, info.kind), store);
        }
    }
}

fn stores_of(inner: &Inner, id: SegmentId) -> Vec<StoreNumber> {
    if inner.segments.lock().contains_key(&id) || inner.unsure.lock().contains(&id) {
        return Vec::new();
    }
    let numbers = inner.targets.numbers();
    let stores = inner.stores.lock();
    stores.get(&id).into_iter().flatten().copied().filter(|store| !numbers.is_pool(*store)).collect()
}

fn look_at(inner: &Arc<Inner>, (id, kind): (SegmentId, Kind), store: StoreNumber) {
    // A run that is damaged here, too, is the own scrub's.
    for run in runs_of(inner, id, kind).unwrap_or_default() {
        if inner.is_over() || !inner.targets.is_usable(store) || !stores_of(inner, id).contains(&store) {
            return;
        }
        let begun = Instant::now();
        let extent = Extent::whole(run);
        let answer = HttpStore::new(&inner.peers, store).verify(&extent);
        inner.counters.scrubbed_bytes.fetch_add(run.len, Ordering::Relaxed);
        // A file that is gone, or that a disk does not give, is damaged too; a store that does not answer may have it.
        let is_damaged = answer.is_err_and(|error| !matches!(error, SegmentError::Unreachable(..)));
        if is_damaged && inner.own.verify(&extent).is_err() {
            // Another copy may have it.
            let mended = mend::mend(inner, id);
            mended.map(drop).unwrap_or_else(|error| tracing::warn!(segment = ?id, %error, "a file is mended later"));
        }
        if is_damaged && inner.own.verify(&extent).is_ok() {
            tracing::error!(segment = ?id, store = store.0, "a copy is damaged, and is made again");
            inner.counters.damaged.fetch_add(1, Ordering::Relaxed);
            inner.forget_copy(id, store);
            inner.wake_upkeep();
            return;
        }
        // K3.
        let until = Duration::from_micros(run.len.saturating_mul(1_000_000) / BYTES_PER_SECOND);
        while begun.elapsed() < until && !inner.is_over() {
            std::thread::park_timeout(until.saturating_sub(begun.elapsed()).min(STEP));
        }
    }
}

/// Complete runs of the own file.
fn runs_of(inner: &Inner, id: SegmentId, kind: Kind) -> Result<Vec<Run>, SegmentError> {
    match kind {
        Kind::Log => Ok(Vec::new()),
        Kind::Raw => Ok(vec![inner.own.raw_run(id)?.1]),
        Kind::Pack => {
            let mut runs = Vec::new();
            inner.own.walk_pack(id, &mut |walked| {
                runs.extend(walked.run);
                ControlFlow::Continue(())
            })?;
            Ok(runs)
        }
    }
}
