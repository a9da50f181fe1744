//! The threads on which requests to the bucket run, and waiting for one from any thread.
//!
//! Why:        the kernel's requests and the rows' readers are plain threads, or threads of another runtime that must not be
//!             entered again.
//! Invariants: R1 `wait` never runs the future on the caller's thread.
//!             R2 a thread of these that waits for another request lets the tasks of its queue go on.
//!             R3 the tasks refer to what refers to the threads, so somebody must call `stop`. Without tasks dropping does.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

const THREADS: usize = 2;

/// How long the end of a request that has just been answered is waited for.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a thread on which requests run: others wait for it.
pub(crate) fn is_of_requests() -> bool {
    IS_OWN.get()
}

/// Owns the threads.
#[derive(Debug)]
pub(crate) struct Requests {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

impl Requests {
    pub(crate) fn begin() -> io::Result<Requests> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("margay-upstream").on_thread_start(|| IS_OWN.set(true));
        let runtime = builder.enable_all().build()?;
        let handle = runtime.handle().clone();
        Ok(Requests { runtime: Mutex::new(Some(runtime)), handle })
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }

    /// As `spawn`; `broke` is told why, if the future panics. It is not told of an end by `stop`.
    pub(crate) fn spawn_watched(
        &self,
        future: impl Future<Output = ()> + Send + 'static,
        broke: impl FnOnce(String) + Send + 'static,
    ) {
        let task = self.handle.spawn(future);
        self.handle.spawn(async move {
            if let Err(error) = task.await
                && error.is_panic()
            {
                broke(error.to_string());
            }
        });
    }

    /// Runs something that may block, on a thread of its own.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.handle.spawn_blocking(work);
    }

    /// Runs a future and blocks this thread until it has ended; `None` if the threads have ended.
    pub(crate) fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // The caller waits for it.
            let _ = sender.send(future.await);
        });
        match is_of_requests() {
            // What is waited for may be next in the queue of this thread.
            true => tokio::task::block_in_place(|| receiver.recv().ok()),
            false => receiver.recv().ok(),
        }
    }

    /// Breaks off requests in progress; nothing runs any more when it returns. What they did at the bucket is found out by the
    /// next process.
    pub(crate) fn stop(&self) {
        let Some(runtime) = self.runtime.lock().take() else { return };
        // On a thread of its own: the caller may be a thread of another runtime.
        let stopping = std::thread::spawn(move || runtime.shutdown_timeout(STOP_TIME_MAX));
        assert!(stopping.join().is_ok(), "the threads of requests end");
    }
}

/// Runs a future that waits for locks of the volume. Others may hold them while they wait for requests, so what else this thread
/// has to do goes to another one.
pub(crate) async fn alone<T>(future: impl Future<Output = T>) -> T {
    match is_of_requests() {
        true => tokio::task::block_in_place(|| Handle::current().block_on(future)),
        false => future.await,
    }
}

impl Drop for Requests {
    /// An opening that failed may drop them on a thread of another runtime, which must not wait for this one.
    fn drop(&mut self) {
        self.stop();
    }
}
