//! How much may be under way at once.
//!
//! Invariants: R1 whoever waits for bytes holds no slot, and whoever holds a slot waits for nothing but the store: they
//!             never wait for each other.  R2 nobody is passed over: both are given in the order of asking.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::ClientError;

/// Bytes are counted in steps of so many, so that they fit the counter.
const STEP_BYTES: u64 = 1 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that are sent and not answered in full.
    pub requests_max: usize,
    /// Bytes of bodies, of both directions.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests_max: 64, bytes_max: 256 << 20 }
    }
}

/// Place for bytes; given back when dropped.
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

    /// Waits until there is place; fails at once for what never fits.
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
