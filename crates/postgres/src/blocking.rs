//! Reads of threads that block: each drives its connection itself while it waits.
//!
//! Why:        a thread of a mount that asks a thread of the engine, which asks PostgreSQL, is woken twice as often as one that asks itself,
//!             and the look-up before each create or unlink is such a read.
//! Invariants: B1 a connection belongs to at most one thread at a time, and makes no progress while it belongs to none: what it missed of a
//!                lost server is noticed when its next answer is checked (`Reading::read`).
//!             B2 a connection that failed is not used again.
//! Locking:    the list of free connections, held for a push or a pop.
//! Not here:   threads of a runtime, which must not block (`engine`).

use std::sync::atomic::{AtomicUsize, Ordering};

use margay_meta::{Answers, Ask, Cursor, EngineError, ReadLimit};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::connection::Server;
use crate::read::Reading;

/// A connection with what drives it.
#[derive(Debug)]
struct Driven {
    reading: Reading,
    by: Driver,
}

/// What is run by the thread that waits for it. Taken when it ends, which must not block: the last owner of the engine may be a
/// thread of a runtime.
#[derive(Debug)]
pub(crate) struct Driver(Option<Runtime>);

#[derive(Debug)]
pub(crate) struct BlockingReaders {
    server: Server,
    /// The one that was used last is the last.
    free: Mutex<Vec<Driven>>,
    most: usize,
    /// Free ones and those that belong to a thread.
    open: AtomicUsize,
}

impl BlockingReaders {
    pub(crate) fn new(server: Server, most: usize) -> BlockingReaders {
        BlockingReaders { server, free: Mutex::default(), most, open: AtomicUsize::new(0) }
    }

    /// None where all connections are in use, or this thread must not block.
    pub(crate) fn read(
        &self,
        asks: &[Ask],
        limit: ReadLimit,
        observed: Cursor,
    ) -> Option<Result<(Answers, Cursor), EngineError>> {
        if Handle::try_current().is_ok() {
            return None;
        }
        let free = self.free.lock().pop();
        let driven = match free {
            Some(driven) => Ok(driven),
            None => self.opened()?,
        };
        let done = driven.and_then(|driven| {
            let answers = driven.by.run(driven.reading.read(asks, limit, observed))?;
            Ok((driven, answers))
        });
        Some(match done {
            Ok((driven, answers)) => {
                self.free.lock().push(driven);
                Ok(answers)
            }
            Err(error) => {
                self.open.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        })
    }

    /// None where there are enough.
    fn opened(&self) -> Option<Result<Driven, EngineError>> {
        let more = |open: usize| (open < self.most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let open = || {
            let by = Driver::new()?;
            Ok(Driven { reading: by.run(Reading::open(&self.server))?, by })
        };
        Some(open())
    }
}

impl Driver {
    pub(crate) fn new() -> Result<Driver, EngineError> {
        Ok(Driver(Some(Builder::new_current_thread().enable_all().build()?)))
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("it ends with its owner").block_on(work)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
