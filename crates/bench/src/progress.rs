//! One line on the terminal that says how far a long step is, and how long the rest takes.
//!
//! Why:        filling ten million keys takes minutes; a silent program looks dead.
//! Invariants: nothing is written, and no thread started, when standard error is not a terminal. One line at a time.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use margay_env::Env;

/// Time between two refreshes of the line.
const REFRESH: Duration = Duration::from_millis(200);
/// Before this much of the time has passed, a guess of the rest is worth nothing.
const GUESS_AFTER: Duration = Duration::from_secs(1);

/// Draws a line again and again until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    drawing: Option<(Arc<AtomicBool>, std::thread::JoinHandle<()>)>,
}

impl Ticker {
    /// `line` gets the time since now.
    pub(crate) fn new(env: &Env, line: impl Fn(Duration) -> String + Send + 'static) -> Ticker {
        if !std::io::stderr().is_terminal() {
            return Ticker { drawing: None };
        }
        let (ended, clock) = (Arc::new(AtomicBool::new(false)), Arc::clone(&env.clock));
        let (end, started) = (Arc::clone(&ended), clock.monotonic());
        let thread = std::thread::spawn(move || {
            let mut width = 0;
            loop {
                std::thread::park_timeout(REFRESH);
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let text = line(clock.monotonic() - started);
                // What the last line was longer by is wiped.
                eprint!("\r{text:<width$}");
                width = text.chars().count();
                let _ = std::io::stderr().flush();
            }
            eprint!("\r{:width$}\r", "");
            let _ = std::io::stderr().flush();
        });
        Ticker { drawing: Some((ended, thread)) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.drawing.take() {
            ended.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            // It panics only when its line does, which loses nothing but the line.
            let _ = thread.join();
        }
    }
}

/// Steps of which the number is known.
#[derive(Debug)]
pub(crate) struct Progress {
    done: Arc<AtomicU64>,
    _ticker: Ticker,
}

impl Progress {
    pub(crate) fn new(env: &Env, label: impl Into<String>, total: u64) -> Progress {
        let (label, done) = (label.into(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&done);
        let line = move |elapsed| line(&label, counted.load(Ordering::Relaxed), total, elapsed);
        Progress { done, _ticker: Ticker::new(env, line) }
    }

    /// Counts `count` more steps.
    pub(crate) fn add(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }

    /// A step that is counted when it ends, however it ends.
    pub(crate) fn step(&self) -> Step<'_> {
        Step(self)
    }
}

#[derive(Debug)]
pub(crate) struct Step<'a>(&'a Progress);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

fn line(label: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let percent = 100 * done / total.max(1);
    let mut text = format!("{label}: {done} of {total} ({percent} %)");
    if done > 0 && elapsed >= GUESS_AFTER {
        let left = elapsed.mul_f64(total.saturating_sub(done) as f64 / done as f64);
        text.push_str(&format!(", {} left", short_time(left)));
    }
    text
}

/// A time as `0:07`, `12:34` or `1:02:03`.
pub(crate) fn short_time(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_guessed_from_what_was_done() {
        let at = |done, seconds| line("fill", done, 400, Duration::from_secs(seconds));
        assert_eq!(at(0, 30), "fill: 0 of 400 (0 %)");
        assert_eq!(at(100, 0), "fill: 100 of 400 (25 %)");
        assert_eq!(at(100, 30), "fill: 100 of 400 (25 %), 1:30 left");
        assert_eq!(at(400, 30), "fill: 400 of 400 (100 %), 0:00 left");
        assert_eq!(line("none", 0, 0, Duration::ZERO), "none: 0 of 0 (0 %)");
        assert_eq!(short_time(Duration::from_secs(3723)), "1:02:03");
    }

    #[test]
    fn a_line_that_nobody_sees_costs_no_thread() {
        let ticker = Ticker::new(&Env::real(), |_| unreachable!("drawn without a terminal"));
        // Under a test runner standard error may be a terminal after all.
        assert_eq!(ticker.drawing.is_some(), std::io::stderr().is_terminal());
        std::mem::forget(ticker);
    }
}
