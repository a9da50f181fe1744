//! The lanes of a process, and the batches that wait for one.
//!
//! Why:        whoever commits while all lanes are busy shares the next free one with others: with 64 that wait, a call has
//!             about as many batches as there are callers to a lane.
//!             While nobody else commits a thread that blocks drives a lane itself: it is woken half as often as one that asks another.
//! Invariants: W1 a batch is taken by one lane once; the first that waits is part of the next group, so none waits for ever.
//! Locking:    the lock of the queue, never over a call; the lock of a lane, over its call: it has one at a time (P3).
//! Not here:   what a lane does (lane), which batches go together (group).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use margay_meta::{Batch, CommitError, CommitOutcome, CommitToken, EngineError};
use tokio::sync::{Mutex, Notify, oneshot};

use crate::batch::{LockSpace, Prepared};
use crate::blocking::Driver;
use crate::connection::{Server, nonsense};
use crate::group::Group;
use crate::lane::{Done, Lane, token_parts};
use crate::tasks::ended;

/// With more calls under way, a batch waits for the end of one of them: larger groups cost the server less.
const EAGER_LANES: usize = 2;
/// Unless that takes longer, as behind a lock that another process holds.
const STUCK_AFTER: Duration = Duration::from_millis(10);

/// What drives a connection is asked twice: whether something came, and for what that means.
const CATCH_UP_TURNS: usize = 3;

#[derive(Debug)]
pub(crate) struct Lanes {
    space: LockSpace,
    /// Each with its number.
    lanes: Vec<(u64, Arc<Mutex<Lane>>)>,
    /// One of them, of threads that block, with what drives it. Its connection makes progress during a call only, so each begins with what
    /// has come since the last one: that the server is gone.
    blocking: (Arc<Mutex<Lane>>, Driver),
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: parking_lot::Mutex<Waiting>,
    /// Something was queued.
    queued: Notify,
    calls: AtomicU64,
    /// Lanes that commit what is queued.
    busy: AtomicUsize,
    /// Threads that drive a lane, at most one.
    beside: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<(Prepared, oneshot::Sender<Done>)>,
    /// A lane has panicked: nothing is committed any more.
    is_closed: bool,
}

impl Lanes {
    /// On the threads of the engine, where the lanes go on.
    pub(crate) async fn open(server: &Server, count: usize, space: LockSpace) -> Result<Lanes, EngineError> {
        let queue = Arc::new(Queue::default());
        let mut lanes = Vec::with_capacity(count);
        for _ in 0..=count {
            let lane = Lane::begin(server.clone()).await?;
            lanes.push((lane.id(), Arc::new(Mutex::new(lane))));
        }
        let blocking = Arc::clone(&lanes[0].1);
        for (_, lane) in &lanes[1..] {
            // It ends with the threads.
            drop(tokio::spawn(work(Arc::clone(lane), Arc::clone(&queue))));
        }
        Ok(Lanes { space, lanes, blocking: (blocking, Driver::new()?), queue })
    }

    pub(crate) async fn commit(&self, batch: Batch) -> Done {
        let (sender, receiver) = oneshot::channel();
        self.queue.push(self.prepared(batch)?, sender)?;
        receiver.await.unwrap_or_else(|_| Err(ended().into()))
    }

    /// On this thread, which must not be of a runtime; gives the batch back if others commit: a call for several costs less than one each.
    pub(crate) fn commit_here(&self, batch: Batch) -> Result<Done, Batch> {
        let (lane, driver) = &self.blocking;
        if self.queue.busy.load(Ordering::Relaxed) > 0 || self.queue.waiting.lock().is_closed {
            return Err(batch);
        }
        let Ok(mut lane) = lane.try_lock() else { return Err(batch) };
        let batch = match self.prepared(batch) {
            Ok(batch) => batch,
            Err(error) => return Ok(Err(error)),
        };
        let _beside = Busy::begin(&self.queue, &self.queue.beside);
        self.queue.calls.fetch_add(1, Ordering::Relaxed);
        let mut done = driver.run(async {
            for _ in 0..CATCH_UP_TURNS {
                tokio::task::yield_now().await;
            }
            lane.commit(std::slice::from_ref(&batch)).await
        });
        assert_eq!(done.len(), 1, "each batch has an outcome");
        Ok(done.remove(0))
    }

    fn prepared(&self, batch: Batch) -> Result<Prepared, CommitError> {
        batch.check()?;
        if batch.payload.is_some() {
            return Err(CommitError::Invalid("the payload is too long"));
        }
        Ok(Prepared::of(batch, self.space))
    }

    /// Calls of the server.
    pub(crate) fn calls(&self) -> u64 {
        self.queue.calls.load(Ordering::Relaxed)
    }

    pub(crate) async fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        let lane = self.lanes.iter().find(|(number, _)| *number == token.lane);
        let (_, lane) = lane.ok_or_else(|| nonsense("a commit of another process is asked for"))?;
        lane.lock().await.outcome(token_parts(token)).await
    }
}

impl Queue {
    fn push(&self, batch: Prepared, sender: oneshot::Sender<Done>) -> Result<(), EngineError> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(ended());
        }
        waiting.batches.push_back((batch, sender));
        drop(waiting);
        self.queued.notify_one();
        Ok(())
    }

    /// The batch that has waited longest, and those behind it that go together with it.
    fn next_group(&self) -> (Vec<Prepared>, Vec<oneshot::Sender<Done>>) {
        let mut waiting = self.waiting.lock();
        let (mut group, mut taken, mut left) = (Group::default(), (Vec::new(), Vec::new()), VecDeque::new());
        for (batch, sender) in std::mem::take(&mut waiting.batches) {
            if group.add(&batch) {
                taken.0.push(batch);
                taken.1.push(sender);
            } else {
                left.push_back((batch, sender));
            }
        }
        waiting.batches = left;
        taken
    }
}

/// A lane that commits, counted there.
struct Busy<'a>(&'a Queue, &'a AtomicUsize);

impl<'a> Busy<'a> {
    fn begin(queue: &'a Queue, count: &'a AtomicUsize) -> Busy<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Busy(queue, count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
        if std::thread::panicking() {
            // Who waits is told, and nobody waits any more.
            let mut waiting = self.0.waiting.lock();
            (waiting.is_closed, waiting.batches) = (true, VecDeque::new());
        }
    }
}

/// Commits what is queued.
async fn work(lane: Arc<Mutex<Lane>>, queue: Arc<Queue>) {
    loop {
        // It is notified of the last batch, if nobody waits, too: none is overlooked.
        queue.queued.notified().await;
        let busy = queue.busy.load(Ordering::Relaxed);
        if busy > 0 && busy + queue.beside.load(Ordering::Relaxed) >= EAGER_LANES {
            // One of them takes it along, unless their calls take long.
            tokio::time::sleep(STUCK_AFTER).await;
        }
        let _busy = Busy::begin(&queue, &queue.busy);
        while commit_next(&lane, &queue).await {}
    }
}

/// False if nothing waits: another lane has taken it along.
async fn commit_next(lane: &Mutex<Lane>, queue: &Queue) -> bool {
    let mut lane = lane.lock().await;
    let (batches, senders) = queue.next_group();
    if batches.is_empty() {
        return false;
    }
    queue.calls.fetch_add(1, Ordering::Relaxed);
    let done = lane.commit(&batches).await;
    assert_eq!(done.len(), senders.len(), "each batch has an outcome");
    for (sender, done) in senders.into_iter().zip(done) {
        // Who waited may be gone.
        drop(sender.send(done));
    }
    true
}
