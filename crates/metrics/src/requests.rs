//! Counters and a histogram of requests.
//!
//! Why:        one lock-free increment per event; the usual exporter crates bring 25 packages for the same text.
//! Invariants: N1 labels come from fixed sets (operation names, statuses), so memory is bounded.
//! Locking:    the map's lock is taken for writing only when a pair of labels is seen for the first time.
//! Not here:   the text format (`exposition`), gauges of the storage (read when scraped).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::{Exposition, Kind};

/// Upper bounds of the latency buckets, in microseconds.
pub const BUCKETS_US: [u64; 16] = [
    250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 60_000_000,
];

/// Requests with one operation and one status.
#[derive(Debug, Default)]
struct Series {
    count: AtomicU64,
    total_us: AtomicU64,
    buckets: [AtomicU64; BUCKETS_US.len()],
}

/// What one operation has counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    pub count: u64,
    /// Answered with a status of 400 to 499, and of 500 and more.
    pub refused: u64,
    pub failed: u64,
    pub total_us: u64,
    /// Requests up to each of [`BUCKETS_US`], and not to the one before.
    pub buckets: [u64; BUCKETS_US.len()],
}

/// All requests, by operation and status.
#[derive(Debug, Default)]
pub struct Requests {
    series: RwLock<BTreeMap<(&'static str, u16), Arc<Series>>>,
}

impl Requests {
    /// Records a request that was answered, or whose client disconnected.
    pub fn record(&self, operation: &'static str, status: u16, took: Duration) {
        let known = self.series.read().get(&(operation, status)).cloned();
        let series = known.unwrap_or_else(|| Arc::clone(self.series.write().entry((operation, status)).or_default()));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        series.count.fetch_add(1, Ordering::Relaxed);
        series.total_us.fetch_add(micros, Ordering::Relaxed);
        if let Some(bucket) = BUCKETS_US.iter().position(|end| micros <= *end) {
            series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.series.read().values().map(|series| series.count.load(Ordering::Relaxed)).sum()
    }

    /// What each operation has counted so far.
    pub fn by_operation(&self) -> BTreeMap<&'static str, OperationCounts> {
        let mut counts: BTreeMap<&'static str, OperationCounts> = BTreeMap::new();
        for ((operation, status), series) in self.series.read().iter() {
            let own = counts.entry(operation).or_default();
            let count = series.count.load(Ordering::Relaxed);
            own.count += count;
            own.refused += if (400..500).contains(status) { count } else { 0 };
            own.failed += if *status >= 500 { count } else { 0 };
            own.total_us += series.total_us.load(Ordering::Relaxed);
            for (sum, bucket) in own.buckets.iter_mut().zip(&series.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        counts
    }

    pub fn write(&self, out: &mut Exposition) {
        let all: Vec<_> = self.series.read().iter().map(|(labels, series)| (*labels, Arc::clone(series))).collect();
        out.family("margay_requests_total", Kind::Counter, "Requests answered, by operation and HTTP status.");
        for ((operation, status), series) in &all {
            let labels = [("operation", *operation), ("status", &status.to_string())];
            out.sample("margay_requests_total", &labels, series.count.load(Ordering::Relaxed));
        }
        out.family("margay_request_seconds", Kind::Histogram, "From a request's head to the end of its answer.");
        for (operation, (buckets, count, total_us)) in by_operation(&all) {
            let buckets = BUCKETS_US.iter().map(|end| *end as f64 / 1e6).zip(buckets);
            let sums = (count, total_us as f64 / 1e6);
            out.histogram("margay_request_seconds", &[("operation", operation)], buckets, sums);
        }
    }
}

type Sums = ([u64; BUCKETS_US.len()], u64, u64);

fn by_operation(all: &[((&'static str, u16), Arc<Series>)]) -> BTreeMap<&'static str, Sums> {
    let mut sums: BTreeMap<&'static str, Sums> = BTreeMap::new();
    for ((operation, _), series) in all {
        let (buckets, count, total_us) = sums.entry(operation).or_default();
        for (sum, bucket) in buckets.iter_mut().zip(&series.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        *count += series.count.load(Ordering::Relaxed);
        *total_us += series.total_us.load(Ordering::Relaxed);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_status() {
        let requests = Requests::default();
        for (status, millis) in [(200, 1), (200, 3), (404, 70_000)] {
            requests.record("GetObject", status, Duration::from_millis(millis));
        }
        let mut out = Exposition::default();
        requests.write(&mut out);
        let text = out.finish();
        for line in [
            "# TYPE margay_request_seconds histogram",
            "margay_requests_total{operation=\"GetObject\",status=\"200\"} 2",
            "margay_requests_total{operation=\"GetObject\",status=\"404\"} 1",
            "margay_request_seconds_bucket{operation=\"GetObject\",le=\"0.001\"} 1",
            "margay_request_seconds_bucket{operation=\"GetObject\",le=\"0.005\"} 2",
            "margay_request_seconds_bucket{operation=\"GetObject\",le=\"60\"} 2",
            "margay_request_seconds_bucket{operation=\"GetObject\",le=\"+Inf\"} 3",
            "margay_request_seconds_sum{operation=\"GetObject\"} 70.004",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        requests.record("GetObject", 503, Duration::from_millis(1));
        let counts = requests.by_operation()["GetObject"];
        assert_eq!((counts.count, counts.refused, counts.failed, counts.total_us), (4, 1, 1, 70_005_000));
        assert_eq!(counts.buckets.iter().sum::<u64>(), 3, "one took longer than the last bound");
    }
}
