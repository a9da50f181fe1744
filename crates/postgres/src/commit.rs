//! The lanes of a process: who commits takes one that is free.
//!
//! Locking:    a list of free lanes, held for a step. A lane whose commit is under way belongs to its task.
//! Not here:   what a lane does (lane).

use std::collections::HashMap;

use margay_meta::{Batch, CommitError, CommitOutcome, CommitToken, Committed, EngineError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::batch::{Arguments, LockSpace};
use crate::connection::Server;
use crate::lane::{Lane, nonsense};

#[derive(Debug)]
pub(crate) struct Lanes {
    space: LockSpace,
    free: Mutex<Vec<Lane>>,
    /// As many as there are free lanes.
    turns: Semaphore,
    /// One turn each, for who asks for a lane by its number.
    numbers: HashMap<u64, Semaphore>,
}

impl Lanes {
    pub(crate) async fn open(server: &Server, count: usize, space: LockSpace) -> Result<Lanes, EngineError> {
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            free.push(Lane::begin(server.clone()).await?);
        }
        let numbers = free.iter().map(|lane| (lane.id(), Semaphore::new(1))).collect();
        Ok(Lanes { space, free: Mutex::new(free), turns: Semaphore::new(count), numbers })
    }

    pub(crate) async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        batch.check()?;
        if batch.payload.is_some() {
            return Err(CommitError::Invalid("the payload is too long"));
        }
        let arguments = Arguments::of(batch, self.space);
        let turn = self.turns.acquire().await.map_err(|_| CommitError::Failed(nonsense("no lanes")))?;
        let mut lane = self.take(None).ok_or_else(|| CommitError::Failed(nonsense("a lane is missing")))?;
        let done = lane.commit(&arguments).await;
        self.free.lock().push(lane);
        drop(turn);
        done
    }

    pub(crate) async fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        let own = || nonsense("a commit of another process is asked for");
        let _turn = self.numbers.get(&token.lane).ok_or_else(own)?.acquire().await.map_err(|_| own())?;
        loop {
            let turn = self.turns.acquire().await.map_err(|_| own())?;
            let Some(mut lane) = self.take(Some(token.lane)) else {
                drop(turn);
                // A commit has it, and settles what was lost before it begins.
                tokio::task::yield_now().await;
                continue;
            };
            let outcome = lane.outcome(token.call).await;
            self.free.lock().push(lane);
            return outcome;
        }
    }

    fn take(&self, number: Option<u64>) -> Option<Lane> {
        let mut free = self.free.lock();
        let at = match number {
            Some(number) => free.iter().position(|lane| lane.id() == number)?,
            None => free.len().checked_sub(1)?,
        };
        Some(free.swap_remove(at))
    }
}
