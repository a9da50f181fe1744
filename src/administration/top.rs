//! `top`: what a process does now, one line of JSON in each interval.
//!
//! Why:        rates need two looks; the process takes them, so that every client shows the same numbers.
//! Not here:   counting (margay-metrics, margay-listener), output (`cli`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use margay_listener::Traffic;
use margay_metrics::{BUCKETS_US, OperationCounts, Requests};
use serde_json::{Value, json};

use super::lines::{self, Gone, Lines};
use super::{Administered, NotDone, WorkAnswer, bad_wish};
use crate::process;
use crate::server::Server;
use crate::trace::Trace;
use crate::wiring;

/// Bounds of the interval, in seconds.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
/// Of the interval, if the client names none, in seconds.
const SECONDS_DEFAULT: u64 = 2;

/// What is looked at.
#[derive(Clone, Debug)]
pub struct TopView {
    pub process: Arc<dyn Administered>,
    pub requests: Arc<Requests>,
    pub traffic: Arc<Traffic>,
    /// Its seats, and the end of the process.
    pub trace: Arc<Trace>,
}

/// Counters of one moment.
struct Look {
    at: Duration,
    operations: BTreeMap<&'static str, OperationCounts>,
    received: u64,
    sent: u64,
    processor: Duration,
}

impl Look {
    fn now(view: &TopView) -> Look {
        let env = view.process.env();
        Look {
            at: env.clock.monotonic(),
            operations: view.requests.by_operation(),
            received: view.traffic.received_bytes(),
            sent: view.traffic.sent_bytes(),
            processor: process::processor_time(env).unwrap_or_default(),
        }
    }
}

pub(super) async fn answer(server: &Arc<Server>, wish: Value) -> Result<WorkAnswer, NotDone> {
    let view = TopView {
        process: Arc::clone(server) as Arc<dyn Administered>,
        requests: Arc::clone(&server.requests),
        traffic: Arc::clone(&server.traffic),
        trace: Arc::clone(&server.trace),
    };
    view.stream(&wish)
}

impl TopView {
    /// Begins to show it; the error is one line.
    pub fn stream(self, wish: &Value) -> Result<WorkAnswer, NotDone> {
        let seconds = if wish["seconds"].is_null() { Some(SECONDS_DEFAULT) } else { wish["seconds"].as_u64() };
        let Some(seconds) = seconds.filter(|seconds| SECONDS.contains(seconds)) else {
            return Err(bad_wish(format!("seconds is {} to {}", SECONDS.start(), SECONDS.end())));
        };
        let seat = self.trace.seat()?;
        let (lines, response) = lines::open();
        tokio::spawn(async move {
            // A client that is gone needs no error.
            let _ = show(&self, Duration::from_secs(seconds), lines).await;
            drop(seat);
        });
        Ok(WorkAnswer::Stream(response))
    }
}

async fn show(view: &TopView, every: Duration, lines: Lines) -> Result<(), Gone> {
    let mut before = Look::now(view);
    lines.pulse().await?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = view.trace.ended() => return Ok(()),
        }
        let now = Look::now(view);
        lines.send(&line(view, &before, &now)).await?;
        before = now;
    }
}

fn line(view: &TopView, before: &Look, now: &Look) -> Value {
    let seconds = now.at.saturating_sub(before.at).as_secs_f64().max(0.001);
    let rate = |count: u64| (count as f64 / seconds * 10.0).round() / 10.0;
    let mut operations = Vec::new();
    for (operation, counts) in &now.operations {
        let old = before.operations.get(operation).copied().unwrap_or_default();
        let count = counts.count.saturating_sub(old.count);
        if count == 0 {
            continue;
        }
        operations.push(json!({
            "operation": operation,
            "requests": count,
            "per_second": rate(count),
            "refused": counts.refused.saturating_sub(old.refused),
            "failed": counts.failed.saturating_sub(old.failed),
            "mean_us": counts.total_us.saturating_sub(old.total_us) / count,
            "p99_us": percentile(counts, &old, count),
        }));
    }
    operations.sort_by_key(|row| std::cmp::Reverse(row["requests"].as_u64()));
    let (process, env) = (&view.process, view.process.env());
    let space = env.disk.space(process.data()).ok();
    json!({
        "time": margay_s3::iso_time(env.clock.now()),
        "seconds": (seconds * 10.0).round() / 10.0,
        "health": wiring::told(process.health()),
        "connections": view.traffic.open(),
        "requests_running": view.traffic.running(),
        "received_bytes_per_second": now.received.saturating_sub(before.received) as f64 / seconds,
        "sent_bytes_per_second": now.sent.saturating_sub(before.sent) as f64 / seconds,
        "processor_percent": (now.processor.saturating_sub(before.processor).as_secs_f64() / seconds * 1000.0).round() / 10.0,
        "free_bytes": space.map(|space| space.free_bytes),
        "total_bytes": space.map(|space| space.total_bytes),
        "operations": operations,
    })
}

/// The bound, in microseconds, below which 99 of 100 requests ended; null above the last one.
fn percentile(now: &OperationCounts, old: &OperationCounts, count: u64) -> Option<u64> {
    let wanted = count - count / 100;
    let mut below = 0;
    for (bound, (now, old)) in BUCKETS_US.iter().zip(now.buckets.iter().zip(&old.buckets)) {
        below += now.saturating_sub(*old);
        if below >= wanted {
            return Some(*bound);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_percentile_is_a_bound_of_the_buckets() {
        let mut now = OperationCounts::default();
        now.buckets[0] = 99;
        now.buckets[3] = 1;
        assert_eq!(percentile(&now, &OperationCounts::default(), 100), Some(250));
        now.buckets[3] = 2;
        assert_eq!(percentile(&now, &OperationCounts::default(), 101), Some(2000));
        assert_eq!(percentile(&now, &now, 1), None, "it took longer than the last bound");
    }
}
