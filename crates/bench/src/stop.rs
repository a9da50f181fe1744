//! The wish to stop: Ctrl-C or SIGTERM, noticed between requests.
//!
//! Why:        a benchmark that is interrupted still removes what it made.
//! Invariants: the first signal asks, the second one ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::BenchError;

#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Starts to listen for signals; needs a tokio runtime. `left_behind` is named when a second signal ends it all.
    pub fn listen(left_behind: String) -> Stop {
        let stop = Stop::default();
        let flag = Arc::clone(&stop.0);
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            // Without handlers the signals keep their usual effect.
            return stop;
        };
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if flag.swap(true, Ordering::Relaxed) {
                    eprintln!("stopped at once; left behind: {left_behind}");
                    std::process::exit(130);
                }
                eprintln!("stopping, and cleaning up; once more stops at once");
            }
        });
        stop
    }

    /// Runs `work` on this thread while another one hears signals. Builds a runtime: call it from a plain thread.
    pub(crate) fn heard<T>(
        left_behind: String,
        work: impl FnOnce(&Stop) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let runtime = crate::runtime()?;
        let _entered = runtime.enter();
        let stop = Stop::listen(left_behind);
        std::thread::scope(|scope| {
            let (_ending, end) = tokio::sync::oneshot::channel::<()>();
            scope.spawn(|| runtime.block_on(end));
            work(&stop)
        })
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Err when it is time to stop.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.is_set() { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}
