//! Buckets of other S3 stores that have copies of sealed segments.
//!
//! Why:        a store that is there already, and looks after its own copies, keeps what is written no more.
//! Layout:     `objects` is one bucket: a segment is one object, whole. `blocks` keeps some of what was read, `store` is the pool as a store
//!             of the volume.
//! Invariants: B1 an object is what one segment was when nobody wrote to it any more; it is written once more only with the same bytes.
//!                No condition of a request is relied on: some stores ignore them.
//!             B2 a pool counts for a segment only after the whole object was read back and has the checksum of the own file.
//!             B3 what is read from a pool is verified here, by the checksums of its run, before a byte of it is used.
//!             B4 a pool that does not answer is unreachable, never empty.
//! Locking:    leaf locks; no request is sent under them.
//! Not here:   which segments go there (copies), where the keys come from (the caller's `PoolBuckets`).

mod blocks;
mod objects;
mod store;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use margay_client::upstream::Upstream;
use margay_segment::StoreNumber;
use margay_volume::Pool;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

pub(crate) use self::blocks::Blocks;
pub(crate) use self::objects::{Listed, PoolError, PoolObjects, ReadOwn};
pub(crate) use self::store::PoolStore;

/// A pool that cannot be opened, for want of keys for example, is tried again after so long.
const OPENED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Opens the bucket of a pool with the keys that this process has. The error is one line, without keys.
pub trait PoolBuckets: Send + Sync + Debug {
    fn open(&self, pool: &Pool) -> Result<Upstream, String>;
}

/// A pool that did not answer a read is not asked again for so long.
const SILENT_FOR: Duration = Duration::from_secs(2);
/// A pool that is not reached is told of at most so often.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The pools of the volume, as its rows say.
#[derive(Debug)]
pub(crate) struct Pools {
    buckets: Option<Arc<dyn PoolBuckets>>,
    open: Mutex<HashMap<StoreNumber, Opened>>,
    pub(crate) blocks: Blocks,
    /// When a pool was told of last that it is not reached.
    told: Mutex<HashMap<StoreNumber, Instant>>,
    /// When a pool did not answer, unless it has since.
    silent: Mutex<HashMap<StoreNumber, Instant>>,
    runtime: Handle,
}

#[derive(Debug)]
struct Opened {
    pool: Pool,
    /// `Err`: when that was found.
    objects: Result<Arc<PoolObjects>, Instant>,
}

impl Pools {
    /// `runtime`: requests are sent on its threads.
    pub(crate) fn new(buckets: Option<Arc<dyn PoolBuckets>>, runtime: Handle) -> Pools {
        let (open, told, silent) = (Mutex::default(), Mutex::default(), Mutex::default());
        Pools { buckets, open, blocks: Blocks::default(), told, silent, runtime }
    }

    /// Blocks this thread, not those of the answers; `None`: the process ends.
    fn block<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.runtime.spawn(async move { drop(sender.send(task.await)) });
        receiver.recv().ok()
    }

    /// Whether it did not answer a moment ago: who reads is told so at once, and does not wait for the time of a request each.
    fn is_silent(&self, number: StoreNumber) -> bool {
        self.silent.lock().get(&number).is_some_and(|at| at.elapsed() < SILENT_FOR)
    }

    fn has_answered(&self, number: StoreNumber, has: bool) {
        match has {
            true => drop(self.silent.lock().remove(&number)),
            false => drop(self.silent.lock().insert(number, Instant::now())),
        }
    }

    fn tell_unreachable(&self, number: StoreNumber, why: &str) {
        let mut told = self.told.lock();
        if told.get(&number).is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            told.insert(number, Instant::now());
            tracing::warn!(store = number.0, why, "a pool is not reached");
        }
    }

    /// These are the pools now.
    pub(crate) fn set(&self, pools: &BTreeMap<StoreNumber, Pool>) {
        for (number, pool) in pools {
            let is_known = match self.open.lock().get(number) {
                Some(Opened { pool: known, objects }) if known == pool => {
                    objects.as_ref().map_or_else(|at| at.elapsed() < OPENED_AGAIN_AFTER, |_| true)
                }
                _ => false,
            };
            if !is_known {
                let objects = self.opened(*number, pool);
                self.open.lock().insert(*number, Opened { pool: pool.clone(), objects });
            }
        }
        self.open.lock().retain(|number, _| pools.contains_key(number));
    }

    fn opened(&self, number: StoreNumber, pool: &Pool) -> Result<Arc<PoolObjects>, Instant> {
        let no_way = || Err("this process opens no pools".to_owned());
        match self.buckets.as_ref().map_or_else(no_way, |buckets| buckets.open(pool)) {
            Ok(upstream) => Ok(Arc::new(PoolObjects::new(number, upstream, pool))),
            Err(error) => {
                tracing::error!(
                    pool = pool.name,
                    error,
                    "a pool cannot be opened: what is there alone cannot be read here"
                );
                Err(Instant::now())
            }
        }
    }

    pub(crate) fn is_pool(&self, number: StoreNumber) -> bool {
        self.open.lock().contains_key(&number)
    }

    /// `None`: it is no pool, or cannot be opened.
    pub(crate) fn objects(&self, number: StoreNumber) -> Option<Arc<PoolObjects>> {
        self.open.lock().get(&number)?.objects.as_ref().ok().cloned()
    }
}
