//! Progress of a long task, and the line on a terminal that shows it.
//!
//! Why:        a scrub reads for hours; a silent program looks dead.
//! Invariants: L1 nothing is written when standard error is not a terminal.  L2 the line is removed when the task ends.
//! Not here:   the tasks (`works`, margay-volume).

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use margay_env::Env;
use serde_json::{Value, json};

use crate::settings::parse::show_bytes;

/// Pause between two refreshes of the line.
const REFRESH: Duration = Duration::from_millis(500);

/// Bytes done and in total; empty while the task does not run.
#[derive(Debug, Default)]
pub struct Progress {
    running: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

/// The task counts as running until this is dropped.
#[derive(Debug)]
pub struct Running<'a>(&'a Progress);

impl Progress {
    /// A task begins; of two at once the newer is shown.
    pub fn begin(&self, total: u64) -> Running<'_> {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
        Running(self)
    }

    pub fn now(&self) -> Option<Far> {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        self.running.load(Ordering::Relaxed).then(|| Far::Bytes(load(&self.done), load(&self.total)))
    }

    /// For `margay status`; null while it does not run.
    pub fn to_json(&self) -> Value {
        match self.now() {
            Some(Far::Bytes(done, total)) => json!({ "done_bytes": done, "total_bytes": total }),
            _ => Value::Null,
        }
    }
}

impl Running<'_> {
    pub fn at(&self, done: u64) {
        self.0.done.store(done, Ordering::Relaxed);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
    }
}

/// Progress of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Far {
    /// Done, and in total.
    Bytes(u64, u64),
    /// Read so far.
    Rows(u64),
    /// What is left, in words.
    Left(String),
}

impl Far {
    /// Parses a server's status.
    pub fn from_json(value: &Value) -> Option<Far> {
        Some(Far::Bytes(value["done_bytes"].as_u64()?, value["total_bytes"].as_u64()?))
    }

    fn text(self, label: &str, elapsed: Duration) -> String {
        let rate = |done: u64| (done as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
        match self {
            Far::Bytes(done, total) => {
                // Data that several objects share is counted for each of them, so the sum may exceed the total.
                let percent = (done.saturating_mul(100) / total.max(1)).min(99);
                let (done, total, rate) = (round(done), round(total), round(rate(done)));
                format!("{label}: {done} of {total} ({percent} %), {rate}/s")
            }
            Far::Rows(rows) => format!("{label}: {rows} rows read, {}/s", rate(rows)),
            Far::Left(what) => format!("{label}: {what}"),
        }
    }
}

/// While it runs, whole units are precise enough.
fn round(bytes: u64) -> String {
    let unit = [1 << 30, 1 << 20, 1 << 10].into_iter().find(|unit| bytes >= 10 * unit).unwrap_or(1);
    show_bytes(bytes / unit * unit)
}

/// A progress line; removed when dropped.
#[derive(Debug)]
pub struct Line(ProgressBar);

impl Line {
    /// Polls `far` on a thread of its own.
    pub fn follow(env: &Env, label: &'static str, far: impl Fn() -> Option<Far> + Send + Sync + 'static) -> Line {
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if !line.is_hidden() {
            let (far, clock, began) = (Arc::new(far), Arc::clone(&env.clock), env.clock.monotonic());
            let text = move |_: &ProgressState, out: &mut dyn Write| {
                let text = far().map(|far| far.text(label, clock.monotonic().saturating_sub(began)));
                // An error of drawing the line is ignored.
                let _ = out.write_str(&text.unwrap_or_default());
            };
            let style = ProgressStyle::with_template("{far}").expect("the template has one field");
            line.set_style(style.with_key("far", text));
            line.enable_steady_tick(REFRESH);
        }
        Line(line)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_is_shown_while_it_runs() {
        let progress = Progress::default();
        assert_eq!((progress.now(), progress.to_json()), (None, Value::Null));
        let running = progress.begin(4 << 30);
        running.at(3 << 30);
        let far = progress.now().unwrap();
        assert_eq!(Far::from_json(&progress.to_json()), Some(far.clone()));
        assert_eq!(far.text("scrub", Duration::from_secs(30)), "scrub: 3GiB of 4GiB (75 %), 102MiB/s");
        assert_eq!(Far::Bytes(7, 0).text("x", Duration::ZERO), "x: 7 of 0 (99 %), 7000/s");
        assert_eq!(Far::Rows(100).text("fsck", Duration::from_secs(2)), "fsck: 100 rows read, 50/s");
        drop(running);
        assert_eq!(progress.now(), None);
    }
}
