//! Limits of concurrent requests and bytes.
//!
//! Why:        a store that answers that it is too busy should get fewer requests at once, and more again when it is not.
//! Invariants: R1 a task that waits for bytes holds no slot, and a task with a slot waits only for the store, so there
//!                is no deadlock.  R2 both are granted in the order of requests.
//!             R3 the number of slots is halved when the store is too busy, once for all requests that were in progress then;
//!                it grows by one with each round of as many answers as there are slots, up to `Limits::requests_max`.
//!             R4 bytes that are sent and bytes that are fetched are counted apart: what is sent may have to be fetched first.
//! Locking:    one short mutex for the number of slots.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::ClientError;

/// Unit of counting bytes, so that they fit the counter.
const STEP_BYTES: u64 = 1 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in progress.
    pub requests_max: usize,
    /// Bytes of bodies in memory, in each direction.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests_max: 64, bytes_max: 256 << 20 }
    }
}

/// Requests in progress, and how many may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub in_progress: usize,
    pub limit: usize,
    pub limit_max: usize,
    /// How often the limit was halved.
    pub halved: u64,
}

/// A share of the bytes; released on drop.
#[derive(Debug)]
pub struct Held {
    _steps: OwnedSemaphorePermit,
}

/// The right to have one request in progress, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'r> {
    room: &'r Room,
    permit: Option<SemaphorePermit<'r>>,
    number: u64,
}

/// How many slots there are.
#[derive(Debug)]
struct Width {
    limit: usize,
    /// Slots that are in use and go when they are free.
    too_many: usize,
    in_progress: usize,
    /// Slots that were ever given.
    given: u64,
    /// The store was too busy for requests before this one.
    cut_before: u64,
    /// Answers since the limit changed.
    answers: usize,
    halved: u64,
}

#[derive(Debug)]
pub(super) struct Room {
    slots: Semaphore,
    width: Mutex<Width>,
    fetched: Arc<Semaphore>,
    sent: Arc<Semaphore>,
    limits: Limits,
}

impl Room {
    pub(super) fn new(limits: Limits) -> Room {
        let limit = limits.requests_max;
        assert!(limit > 0, "without a slot nothing is ever sent");
        let steps = usize::try_from(limits.bytes_max / STEP_BYTES).unwrap_or(usize::MAX);
        let steps = || Arc::new(Semaphore::new(steps.min(Semaphore::MAX_PERMITS)));
        let (too_many, in_progress, given, cut_before, answers, halved) = (0, 0, 0, 0, 0, 0);
        let width = Mutex::new(Width { limit, too_many, in_progress, given, cut_before, answers, halved });
        Room { slots: Semaphore::new(limit), width, fetched: steps(), sent: steps(), limits }
    }

    /// Waits for this many bytes to fetch; fails at once if they can never fit.
    pub(super) async fn hold_fetched(&self, bytes: u64) -> Result<Held, ClientError> {
        self.hold(&self.fetched, bytes).await
    }

    /// As `hold_fetched`, of bytes to send.
    pub(super) async fn hold_sent(&self, bytes: u64) -> Result<Held, ClientError> {
        self.hold(&self.sent, bytes).await
    }

    async fn hold(&self, all: &Arc<Semaphore>, bytes: u64) -> Result<Held, ClientError> {
        let steps = u32::try_from(bytes.div_ceil(STEP_BYTES)).ok().filter(|_| bytes <= self.limits.bytes_max);
        let steps = steps.ok_or_else(|| {
            ClientError::Usage(format!("{bytes} bytes at once are more than the {} allowed", self.limits.bytes_max))
        })?;
        let steps = Arc::clone(all).acquire_many_owned(steps).await.expect("it is never closed");
        Ok(Held { _steps: steps })
    }

    pub(super) async fn slot(&self) -> Slot<'_> {
        let permit = self.slots.acquire().await.expect("it is never closed");
        let mut width = self.width.lock();
        width.given += 1;
        width.in_progress += 1;
        Slot { room: self, permit: Some(permit), number: width.given }
    }

    pub(super) fn flow(&self) -> Flow {
        let width = self.width.lock();
        let (in_progress, limit, halved) = (width.in_progress, width.limit, width.halved);
        Flow { in_progress, limit, limit_max: self.limits.requests_max, halved }
    }
}

impl Slot<'_> {
    /// The store has answered, perhaps that it is too busy.
    pub(super) fn answered(&self, is_too_busy: bool) {
        let mut width = self.room.width.lock();
        if is_too_busy {
            if self.number > width.cut_before {
                let gone = width.limit - (width.limit / 2).max(1);
                width.limit -= gone;
                let free = self.room.slots.forget_permits(gone);
                width.too_many += gone - free;
                (width.cut_before, width.answers) = (width.given, 0);
                width.halved += 1;
            }
            return;
        }
        width.answers += 1;
        if width.answers >= width.limit && width.limit < self.room.limits.requests_max {
            (width.limit, width.answers) = (width.limit + 1, 0);
            match width.too_many {
                0 => self.room.slots.add_permits(1),
                _ => width.too_many -= 1,
            }
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut width = self.room.width.lock();
        width.in_progress -= 1;
        if width.too_many > 0
            && let Some(permit) = self.permit.take()
        {
            width.too_many -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(requests_max: usize) -> Room {
        Room::new(Limits { requests_max, ..Limits::default() })
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test)
    }

    #[test]
    fn a_busy_store_halves_the_slots_once_for_all_that_are_in_progress() {
        run(async {
            let room = room(16);
            let mut slots = Vec::new();
            for _ in 0..16 {
                slots.push(room.slot().await);
            }
            slots.iter().for_each(|slot| slot.answered(true));
            assert_eq!(room.flow(), Flow { in_progress: 16, limit: 8, limit_max: 16, halved: 1 });
            slots.truncate(8);
            assert_eq!(room.slots.available_permits(), 0, "eight are in progress, and no more may be");
            slots.truncate(7);
            room.slot().await.answered(true);
            assert_eq!((room.flow().limit, room.slots.available_permits()), (4, 0));
            slots.clear();
            assert_eq!((room.flow().in_progress, room.slots.available_permits()), (0, 4));
            for _ in 0..10 {
                room.slot().await.answered(true);
            }
            assert_eq!((room.flow().limit, room.slots.available_permits()), (1, 1), "one is always left");
        });
    }

    #[test]
    fn slots_grow_by_one_with_each_round() {
        run(async {
            let room = room(8);
            room.slot().await.answered(true);
            for limit in 4..8 {
                assert_eq!(room.flow().limit, limit);
                for _ in 0..limit {
                    room.slot().await.answered(false);
                }
            }
            for _ in 0..100 {
                room.slot().await.answered(false);
            }
            assert_eq!((room.flow().limit, room.slots.available_permits()), (8, 8));
        });
    }
}
