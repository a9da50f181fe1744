//! The lanes of a process: who commits takes one that is free.
//!
//! Locking:    the lock of a lane, over its call: it has one at a time (P3).
//! Not here:   what a lane does (lane).

use margay_meta::{Batch, CommitError, CommitOutcome, CommitToken, Committed, EngineError};
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use crate::batch::{Arguments, LockSpace};
use crate::connection::Server;
use crate::lane::{Lane, nonsense};

#[derive(Debug)]
pub(crate) struct Lanes {
    space: LockSpace,
    /// At least one, each with its number.
    lanes: Vec<(u64, Mutex<Lane>)>,
    /// Commits under way at most: as many as there are lanes.
    turns: Semaphore,
}

impl Lanes {
    pub(crate) async fn open(server: &Server, count: usize, space: LockSpace) -> Result<Lanes, EngineError> {
        let mut lanes = Vec::with_capacity(count);
        for _ in 0..count {
            let lane = Lane::begin(server.clone()).await?;
            lanes.push((lane.id(), Mutex::new(lane)));
        }
        Ok(Lanes { space, lanes, turns: Semaphore::new(count) })
    }

    pub(crate) async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        batch.check()?;
        if batch.payload.is_some() {
            return Err(CommitError::Invalid("the payload is too long"));
        }
        let arguments = Arguments::of(batch, self.space);
        let _turn = self.turns.acquire().await.map_err(|_| CommitError::Failed(nonsense("no lanes")))?;
        self.free().await.commit(&arguments).await
    }

    /// Who asks for an outcome may have the last one.
    async fn free(&self) -> MutexGuard<'_, Lane> {
        match self.lanes.iter().find_map(|(_, lane)| lane.try_lock().ok()) {
            Some(lane) => lane,
            None => self.lanes[0].1.lock().await,
        }
    }

    pub(crate) async fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        let lane = self.lanes.iter().find(|(number, _)| *number == token.lane);
        let (_, lane) = lane.ok_or_else(|| nonsense("a commit of another process is asked for"))?;
        lane.lock().await.outcome(token.call).await
    }
}
