//! One line on the terminal that says how far a long step is, and how long the rest takes.
//!
//! Why:        filling ten million keys takes minutes; a silent program looks dead.
//! Invariants: nothing is written, and no thread started, when standard error is not a terminal. One line at a time.
//!             Counting a step is one addition: neither the clock nor the terminal is touched by what is measured.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use margay_env::Env;

/// Refreshes of the line in a second.
const REFRESHES: u8 = 5;
/// Before this much of the time has passed, a guess of the rest is worth nothing.
const GUESS_AFTER: Duration = Duration::from_secs(1);

/// Draws a line again and again until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    line: ProgressBar,
}

impl Ticker {
    /// `line` gets the time since now. It is asked on a thread of the ticker's own, so that whoever is measured draws nothing.
    pub(crate) fn new(env: &Env, line: impl Fn(Duration) -> String + Send + Sync + 'static) -> Ticker {
        let drawn = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(REFRESHES));
        if !drawn.is_hidden() {
            let (line, clock, started) = (Arc::new(line), Arc::clone(&env.clock), env.clock.monotonic());
            let text = move |_: &ProgressState, out: &mut dyn Write| {
                // A line that cannot be drawn stops nothing.
                let _ = out.write_str(&line(clock.monotonic() - started));
            };
            let style = ProgressStyle::with_template("{line}").expect("the template has one field");
            drawn.set_style(style.with_key("line", text));
            drawn.enable_steady_tick(Duration::from_secs(1) / u32::from(REFRESHES));
        }
        Ticker { line: drawn }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.line.finish_and_clear();
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
        use std::io::IsTerminal as _;
        // Under a test runner standard error may be a terminal after all.
        if !std::io::stderr().is_terminal() {
            let ticker = Ticker::new(&Env::real(), |_| unreachable!("drawn without a terminal"));
            std::thread::sleep(3 * Duration::from_secs(1) / u32::from(REFRESHES));
            assert!(ticker.line.is_hidden());
        }
    }
}
