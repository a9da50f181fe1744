//! The wish to stop: Ctrl-C, SIGTERM or a terminal that is gone, noticed between requests.
//!
//! Why:        a benchmark that is interrupted still removes what it made.
//! Invariants: the first signal asks, the second one ends the process at once. Under `nohup` a terminal may go.

#![allow(clippy::disallowed_methods, reason = "reads /proc")]

use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::BenchError;

#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Starts to listen for signals; needs a tokio runtime. `left_behind` is named when a second signal ends it all.
    pub fn listen(left_behind: String) -> Stop {
        let stop = Stop::default();
        let flag = Arc::clone(&stop.0);
        // Without handlers the signals keep their usual effect.
        let Some(mut signals) = Signals::hear() else { return stop };
        tokio::spawn(async move {
            loop {
                signals.next().await;
                let again = flag.swap(true, Ordering::Relaxed);
                // A terminal that is gone takes no words, and does not change what is to be done.
                let _ = match again {
                    true => writeln!(io::stderr(), "stopped at once; left behind: {left_behind}"),
                    false => writeln!(io::stderr(), "stopping, and cleaning up; once more stops at once"),
                };
                if again {
                    std::process::exit(130);
                }
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

    /// As [`Stop::check`], amid calls whose errors are those of files.
    pub(crate) fn go_on(&self) -> io::Result<()> {
        if self.is_set() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Err when it is time to stop.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.is_set() { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

/// Waits for a signal that asks to stop. Needs a tokio runtime; without handlers the signals keep their usual effect.
pub(crate) async fn asked() {
    match Signals::hear() {
        Some(mut signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

/// The signals that ask to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Of the terminal, unless this process outlives it.
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes the signals; needs a tokio runtime.
    fn hear() -> Option<Signals> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt()).ok()?, signal(SignalKind::terminate()).ok()?);
        let hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
        Some(Signals { interrupt, terminate, hangup })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// Whether this process was started to outlive its terminal, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // A bit for each signal, from number 1, which is SIGHUP.
    ignored.is_some_and(|ignored| ignored & 1 != 0)
}
