//! Limits of concurrent requests and bytes.
//!
//! Invariants: R1 a task that waits for bytes holds no slot, and a task with a slot waits only for the store, so there
//!                is no deadlock.  R2 both are granted in the order of requests.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::ClientError;

/// Unit of counting bytes, so that they fit the counter.
const STEP_BYTES: u64 = 1 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in progress.
    pub requests_max: usize,
    /// Bytes of bodies in both directions.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests_max: 64, bytes_max: 256 << 20 }
    }
}

/// A share of the bytes; released on drop.
#[derive(Debug)]
pub struct Held {
    _steps: OwnedSemaphorePermit,
}

pub(super) struct Room {
    slots: Semaphore,
    steps: Arc<Semaphore>,
    limits: Limits,
}

impl Room {
    pub(super) fn new(limits: Limits) -> Room {
        assert!(limits.requests_max > 0, "without a slot nothing is ever sent");
        let steps = usize::try_from(limits.bytes_max / STEP_BYTES).unwrap_or(usize::MAX);
        let steps = Arc::new(Semaphore::new(steps.min(Semaphore::MAX_PERMITS)));
        Room { slots: Semaphore::new(limits.requests_max), steps, limits }
    }

    /// Waits for this many bytes; fails at once if they can never fit.
    pub(super) async fn hold(&self, bytes: u64) -> Result<Held, ClientError> {
        let steps = u32::try_from(bytes.div_ceil(STEP_BYTES)).ok().filter(|_| bytes <= self.limits.bytes_max);
        let steps = steps.ok_or_else(|| {
            ClientError::Usage(format!("{bytes} bytes at once are more than the {} allowed", self.limits.bytes_max))
        })?;
        let steps = Arc::clone(&self.steps).acquire_many_owned(steps).await.expect("it is never closed");
        Ok(Held { _steps: steps })
    }

    pub(super) async fn slot(&self) -> SemaphorePermit<'_> {
        self.slots.acquire().await.expect("it is never closed")
    }
}
