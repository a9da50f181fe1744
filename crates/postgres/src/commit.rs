//! The lanes of a process, and the batches that wait for one.
//!
//! Why:        whoever commits while all lanes are busy shares the next free one with others: with 64 that wait, a call has
//!             about as many batches as there are callers to a lane.
//! Invariants: W1 a batch is taken by one lane once; the first that waits is part of the next group, so none waits for ever.
//! Locking:    the lock of the queue, never over a call; the lock of a lane, over its call: it has one at a time (P3).
//! Not here:   what a lane does (lane), which batches go together (group).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use margay_meta::{Batch, CommitError, CommitOutcome, CommitToken, EngineError};
use tokio::sync::{Mutex, Semaphore, oneshot};

use crate::batch::{LockSpace, Prepared};
use crate::connection::Server;
use crate::group::Group;
use crate::lane::{Done, Lane, nonsense, token_parts};
use crate::tasks::ended;

/// With more calls under way, a batch waits for the end of one of them: larger groups cost the server less.
const EAGER_LANES: usize = 2;
/// Unless that takes longer, as behind a lock that another process holds.
const STUCK_AFTER: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Lanes {
    space: LockSpace,
    /// At least one, each with its number.
    lanes: Vec<(u64, Arc<Mutex<Lane>>)>,
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    waiting: parking_lot::Mutex<VecDeque<(Prepared, oneshot::Sender<Done>)>>,
    /// A permit for each batch that was queued; who takes several batches leaves permits, and others look in vain.
    queued: Semaphore,
    calls: AtomicU64,
    /// Lanes that commit.
    busy: AtomicUsize,
}

impl Lanes {
    /// On the threads of the engine, where the lanes go on.
    pub(crate) async fn open(server: &Server, count: usize, space: LockSpace) -> Result<Lanes, EngineError> {
        let waiting = parking_lot::Mutex::default();
        let queue =
            Arc::new(Queue { waiting, queued: Semaphore::new(0), calls: AtomicU64::new(0), busy: AtomicUsize::new(0) });
        let mut lanes = Vec::with_capacity(count);
        for _ in 0..count {
            let lane = Lane::begin(server.clone()).await?;
            lanes.push((lane.id(), Arc::new(Mutex::new(lane))));
        }
        for (_, lane) in &lanes {
            // It ends with the threads.
            drop(tokio::spawn(work(Arc::clone(lane), Arc::clone(&queue))));
        }
        Ok(Lanes { space, lanes, queue })
    }

    pub(crate) async fn commit(&self, batch: Batch) -> Done {
        batch.check()?;
        if batch.payload.is_some() {
            return Err(CommitError::Invalid("the payload is too long"));
        }
        let (sender, receiver) = oneshot::channel();
        self.queue.waiting.lock().push_back((Prepared::of(batch, self.space), sender));
        self.queue.queued.add_permits(1);
        receiver.await.unwrap_or_else(|_| Err(ended().into()))
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
    /// The batch that has waited longest, and those behind it that go together with it.
    fn next_group(&self) -> (Vec<Prepared>, Vec<oneshot::Sender<Done>>) {
        let mut waiting = self.waiting.lock();
        let (mut group, mut taken, mut left) = (Group::default(), (Vec::new(), Vec::new()), VecDeque::new());
        for (batch, sender) in waiting.drain(..) {
            if group.add(&batch) {
                taken.0.push(batch);
                taken.1.push(sender);
            } else {
                left.push_back((batch, sender));
            }
        }
        *waiting = left;
        taken
    }
}

/// Commits what is queued.
async fn work(lane: Arc<Mutex<Lane>>, queue: Arc<Queue>) {
    loop {
        match queue.queued.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return,
        }
        if queue.busy.load(Ordering::Relaxed) >= EAGER_LANES {
            // They take it along, unless their calls take long.
            tokio::time::sleep(STUCK_AFTER).await;
        }
        queue.busy.fetch_add(1, Ordering::Relaxed);
        while commit_next(&lane, &queue).await {}
        queue.busy.fetch_sub(1, Ordering::Relaxed);
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
