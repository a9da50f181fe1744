//! One line on the terminal that says how far a long step is.
//!
//! Why:        filling ten million keys takes minutes; a silent program looks dead.
//! Invariants: nothing is written when standard error is not a terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::Env;

/// Milliseconds between two refreshes of the line.
const REFRESH_MS: u64 = 200;

#[derive(Debug)]
pub(crate) struct Progress {
    env: Env,
    label: String,
    total: u64,
    done: AtomicU64,
    shown_ms: AtomicU64,
    started: Duration,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(env: &Env, label: impl Into<String>, total: u64) -> Progress {
        Progress {
            env: env.clone(),
            label: label.into(),
            total,
            done: AtomicU64::new(0),
            shown_ms: AtomicU64::new(0),
            started: env.clock.monotonic(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Counts `count` more steps and refreshes the line when it is time.
    pub(crate) fn add(&self, count: u64) {
        let done = self.done.fetch_add(count, Ordering::Relaxed) + count;
        if !self.terminal {
            return;
        }
        let elapsed = self.env.clock.monotonic() - self.started;
        let now_ms = elapsed.as_millis() as u64;
        let shown = self.shown_ms.load(Ordering::Relaxed);
        if now_ms < shown + REFRESH_MS
            || self.shown_ms.compare_exchange(shown, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
        let percent = 100 * done / self.total.max(1);
        eprint!("\r{}: {done}/{} ({percent} %), {rate:.0}/s   ", self.label, self.total);
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.shown_ms.load(Ordering::Relaxed) > 0 {
            eprint!("\r{:width$}\r", "", width = self.label.len() + 60);
            let _ = std::io::stderr().flush();
        }
    }
}
