//! What a load counted: latencies per operation, bytes, errors by kind, requests per second of the run.
//!
//! Why:        each thread counts for itself without locks, and the sums are taken at the end.
//! Invariants: merging loses nothing: histograms add up bucket by bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::args::Operation;

/// Latencies are kept from one microsecond to ten minutes with three digits.
const LATENCY_NS_MIN: u64 = 1_000;
const LATENCY_NS_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

#[derive(Clone, Debug)]
struct Counted {
    latency: Histogram<u64>,
    /// Requests that also ended within the measured time, and their bytes: what throughput is made of.
    in_time: u64,
    bytes: u64,
}

impl Counted {
    fn new() -> Counted {
        let latency = Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, DIGITS)
            .expect("the bounds are in order and the digits in range");
        Counted { latency, in_time: 0, bytes: 0 }
    }
}

/// The counts of one thread, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Stats {
    operations: BTreeMap<Operation, Counted>,
    errors: BTreeMap<String, u64>,
    /// Successful requests that ended in each second of the measured time.
    seconds: Vec<u64>,
    /// Requests that were due before the end of an open loop and never sent.
    pub(super) unsent: u64,
}

impl Stats {
    /// Counts a success: its latency, its bytes, when it ended after the measuring began, and how long is measured.
    pub(super) fn success(
        &mut self,
        operation: Operation,
        latency: Duration,
        bytes: u64,
        ended: Duration,
        measured: Duration,
    ) {
        let counted = self.operations.entry(operation).or_insert_with(Counted::new);
        counted.latency.saturating_record(latency.as_nanos() as u64);
        if ended >= measured {
            return;
        }
        counted.in_time += 1;
        counted.bytes += bytes;
        let second = ended.as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += 1;
    }

    pub(super) fn error(&mut self, operation: Operation, kind: &str) {
        *self.errors.entry(format!("{}: {kind}", operation.name())).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: &Stats) {
        for (operation, counted) in &other.operations {
            let mine = self.operations.entry(*operation).or_insert_with(Counted::new);
            mine.latency.add(&counted.latency).expect("all histograms have the same bounds");
            mine.in_time += counted.in_time;
            mine.bytes += counted.bytes;
        }
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), 0);
        }
        for (mine, count) in self.seconds.iter_mut().zip(&other.seconds) {
            *mine += count;
        }
        self.unsent += other.unsent;
    }

    /// One row per operation, and one for all together when there are several.
    pub(super) fn rows(&self, seconds: f64) -> Vec<OperationRow> {
        let mut rows: Vec<OperationRow> =
            self.operations.iter().map(|(operation, counted)| row(operation.name(), counted, seconds)).collect();
        if rows.len() > 1 {
            let mut all = Counted::new();
            for counted in self.operations.values() {
                all.latency.add(&counted.latency).expect("all histograms have the same bounds");
                all.in_time += counted.in_time;
                all.bytes += counted.bytes;
            }
            rows.push(row("all", &all, seconds));
        }
        rows
    }

    pub(super) fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    /// Requests per second of the run, whole seconds only.
    pub(super) fn per_second(&self, seconds: u64) -> Vec<u64> {
        let mut per_second = self.seconds.clone();
        per_second.resize(seconds as usize, 0);
        per_second
    }
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationRow {
    pub operation: &'static str,
    pub requests: u64,
    pub requests_per_second: f64,
    /// Bodies only, in units of 1,000,000 bytes.
    pub megabytes_per_second: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
}

fn row(operation: &'static str, counted: &Counted, seconds: f64) -> OperationRow {
    let at = |quantile: f64| counted.latency.value_at_quantile(quantile) as f64 / 1e6;
    OperationRow {
        operation,
        requests: counted.latency.len(),
        requests_per_second: counted.in_time as f64 / seconds,
        megabytes_per_second: counted.bytes as f64 / 1e6 / seconds,
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        max_ms: counted.latency.max() as f64 / 1e6,
        mean_ms: counted.latency.mean() / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_counts_are_the_counts_of_all() {
        let (mut one, mut two, mut all) = (Stats::default(), Stats::default(), Stats::default());
        for index in 1..=1000_u64 {
            let latency = Duration::from_micros(index * 10);
            let part = if index % 3 == 0 { &mut one } else { &mut two };
            let (ended, measured) = (Duration::from_millis(index * 2 - 1), Duration::from_secs(2));
            part.success(Operation::Get, latency, 100, ended, measured);
            all.success(Operation::Get, latency, 100, ended, measured);
        }
        two.error(Operation::Put, "503 SlowDown");
        all.error(Operation::Put, "503 SlowDown");
        for late in [&mut one, &mut all] {
            late.success(Operation::Get, Duration::from_secs(3), 100, Duration::from_secs(4), Duration::from_secs(2));
        }
        one.merge(&two);
        assert_eq!(one.rows(2.0), all.rows(2.0));
        assert_eq!((one.errors(), one.per_second(2)), (all.errors(), all.per_second(2)));
        let row = &one.rows(2.0)[0];
        assert_eq!((row.requests, row.requests_per_second), (1001, 500.0));
        assert!((row.p50_ms - 5.0).abs() < 0.02 && (row.p99_ms - 9.91).abs() < 0.02 && row.max_ms >= 3000.0, "{row:?}");
    }
}
