//! Counts and latencies of a load, per operation, outcome and interval.
//!
//! Why:        millions of samples must fit in memory and be merged from several threads and machines. HdrHistogram
//!             does both; each thread has its own counts while it measures, so nobody waits for locks, and the sums
//!             are taken at the end.
//! Invariants: T1 merging loses nothing: histograms add up bucket by bucket. T2 a request belongs to the interval in
//!             which it ended; what was due in the measured time and ended after it is in the intervals behind.
//! Not here:   the log of them (`log`), their tables and pictures (`show`).

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::mix::Operation;
use super::series::Series;
use crate::windows::Window;

/// Latencies are kept from one microsecond to ten minutes, in nanoseconds with three digits.
pub(super) const LATENCY_NS_MIN: u64 = 1_000;
pub(super) const LATENCY_NS_MAX: u64 = 600_000_000_000;
pub(super) const DIGITS: u8 = 3;

/// A histogram that grows with its largest latency: most intervals see milliseconds only.
pub(super) fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(LATENCY_NS_MIN, 2 * LATENCY_NS_MIN, DIGITS)
        .expect("the bounds are in order and the digits in range");
    histogram.auto(true);
    histogram
}

/// How the time of a run is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) interval: Duration,
    pub(super) measured: Duration,
}

impl Grid {
    /// Intervals within the measured time; the last one may be short.
    pub(super) fn count(&self) -> usize {
        self.measured.as_nanos().div_ceil(self.interval.as_nanos()) as usize
    }

    /// The interval of a moment after the beginning.
    pub(super) fn place(&self, at: Duration) -> usize {
        match at.checked_sub(self.measured) {
            None => (at.as_nanos() / self.interval.as_nanos()) as usize,
            Some(late) => self.count() + (late.as_nanos() / self.interval.as_nanos()) as usize,
        }
    }

    /// Begin and length of an interval.
    pub(super) fn bounds(&self, index: usize) -> (Duration, Duration) {
        let late = index.checked_sub(self.count());
        match late {
            Some(late) => (self.measured + self.interval * late as u32, self.interval),
            None => {
                let begin = self.interval * index as u32;
                (begin, self.interval.min(self.measured - begin))
            }
        }
    }
}

/// What ended alike in one interval.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) latency: Histogram<u64>,
    pub(super) bytes: u64,
}

impl Counted {
    fn new() -> Counted {
        Counted { latency: histogram(), bytes: 0 }
    }

    fn add(&mut self, other: &Counted) {
        self.latency.add(&other.latency).expect("it grows as far as it must");
        self.bytes += other.bytes;
    }
}

pub(super) type Interval = BTreeMap<Series, Counted>;

/// The counts of one thread, or of all.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    grid: Grid,
    intervals: Vec<Interval>,
}

impl Stats {
    pub(super) fn new(grid: Grid) -> Stats {
        Stats { grid, intervals: Vec::new() }
    }

    pub(super) fn grid(&self) -> Grid {
        self.grid
    }

    pub(super) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    fn counted(&mut self, place: usize, series: Series) -> &mut Counted {
        if self.intervals.len() <= place {
            self.intervals.resize_with(place + 1, Interval::new);
        }
        self.intervals[place].entry(series).or_insert_with(Counted::new)
    }

    /// Counts a request: how it ended, when (from the beginning), after how long, with how many bytes in its body.
    pub(super) fn add(&mut self, series: Series, ended: Duration, latency: Duration, bytes: u64) {
        let place = self.grid.place(ended);
        let counted = self.counted(place, series);
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).clamp(LATENCY_NS_MIN, LATENCY_NS_MAX);
        counted.latency.record(nanos).expect("it grows as far as the limit");
        counted.bytes += bytes;
    }

    /// Adds a whole histogram to an interval.
    pub(super) fn add_histogram(&mut self, place: usize, series: Series, latency: &Histogram<u64>) {
        self.counted(place, series).latency.add(latency).expect("it grows as far as it must");
    }

    /// The other's grid is the same.
    pub(super) fn merge(&mut self, other: &Stats) {
        for (place, interval) in other.intervals.iter().enumerate() {
            for (series, counted) in interval {
                self.counted(place, series.clone()).add(counted);
            }
        }
    }

    /// Names of what succeeded, each with a test of which series it stands for; all together last when they are several.
    fn names(&self) -> Vec<(&'static str, Option<Operation>)> {
        let seen =
            |operation| self.intervals.iter().any(|interval| interval.keys().any(|key| key.operation == operation));
        let mut names: Vec<(&'static str, Option<Operation>)> = Operation::ALL
            .into_iter()
            .filter(|operation| seen(*operation))
            .map(|operation| (operation.name(), Some(operation)))
            .collect();
        if names.len() > 1 {
            names.push(("all", None));
        }
        names
    }

    /// Successes of an operation, or of all, in some intervals; and the number of failures.
    fn sum<'a>(intervals: impl Iterator<Item = &'a Interval>, operation: Option<Operation>) -> (Counted, u64) {
        let (mut sum, mut failed) = (Counted::new(), 0);
        for (series, counted) in intervals.flatten() {
            if operation.is_some_and(|operation| operation != series.operation) {
                continue;
            }
            match &series.failure {
                None => sum.add(counted),
                Some(_) => failed += counted.latency.len(),
            }
        }
        (sum, failed)
    }

    /// One row per operation, and one for all together when there are several.
    pub(super) fn rows(&self) -> Vec<OperationRow> {
        let seconds = self.grid.measured.as_secs_f64();
        let row = |(name, operation)| {
            let (whole, failed) = Stats::sum(self.intervals.iter(), operation);
            let (in_time, _) = Stats::sum(self.intervals.iter().take(self.grid.count()), operation);
            row(name, &whole.latency, failed, (in_time.latency.len(), in_time.bytes), seconds)
        };
        self.names().into_iter().map(row).collect()
    }

    /// The failed requests, by operation and kind.
    pub(super) fn failures(&self) -> Vec<FailureRow> {
        let mut counts: BTreeMap<&Series, u64> = BTreeMap::new();
        for (series, counted) in self.intervals.iter().flatten() {
            *counts.entry(series).or_default() += counted.latency.len();
        }
        let row = |(series, count): (&Series, u64)| {
            let failure = series.failure.as_ref()?;
            let operation = series.operation.name();
            Some(FailureRow { operation, kind: failure.kind.name(), what: failure.what.clone(), count })
        };
        counts.into_iter().filter_map(row).collect()
    }

    /// The intervals within the measured time.
    pub(super) fn timelines(&self) -> Vec<Timeline> {
        let empty = Interval::new();
        let timeline = |(name, operation)| {
            let windows = (0..self.grid.count()).map(|place| {
                let interval = self.intervals.get(place).unwrap_or(&empty);
                let (counted, failed) = Stats::sum(std::iter::once(interval), operation);
                window(self.grid.bounds(place), &counted.latency, failed)
            });
            Timeline { operation: name, windows: windows.collect() }
        };
        self.names().into_iter().map(timeline).collect()
    }
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationRow {
    pub operation: &'static str,
    /// Successful ones, as are the latencies.
    pub requests: u64,
    pub failed: u64,
    pub requests_per_second: f64,
    /// Bodies only, in units of 1,000,000 bytes; 0 where none were counted, as in a log.
    pub megabytes_per_second: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
}

/// Requests of one operation that failed alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureRow {
    pub operation: &'static str,
    /// refused, timeout, connection or wrong.
    pub kind: &'static str,
    /// Status and S3 code, or a few words.
    pub what: String,
    pub count: u64,
}

/// One operation over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    pub operation: &'static str,
    pub windows: Vec<Window>,
}

/// A latency in milliseconds.
fn at(latency: &Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1e6
}

fn row(
    operation: &'static str,
    latency: &Histogram<u64>,
    failed: u64,
    (requests_in_time, bytes_in_time): (u64, u64),
    seconds: f64,
) -> OperationRow {
    OperationRow {
        operation,
        requests: latency.len(),
        failed,
        requests_per_second: requests_in_time as f64 / seconds,
        megabytes_per_second: bytes_in_time as f64 / 1e6 / seconds,
        p50_ms: at(latency, 0.5),
        p90_ms: at(latency, 0.9),
        p99_ms: at(latency, 0.99),
        p999_ms: at(latency, 0.999),
        max_ms: latency.max() as f64 / 1e6,
        mean_ms: latency.mean() / 1e6,
    }
}

fn window((begin, length): (Duration, Duration), latency: &Histogram<u64>, failed: u64) -> Window {
    let seconds = length.as_secs_f64();
    Window {
        elapsed_seconds: (begin + length).as_secs_f64(),
        window_seconds: seconds,
        successful: latency.len(),
        failed,
        requests_per_second: latency.len() as f64 / seconds,
        min_ms: if latency.is_empty() { 0.0 } else { latency.min() as f64 / 1e6 },
        mean_ms: latency.mean() / 1e6,
        median_ms: at(latency, 0.5),
        p95_ms: at(latency, 0.95),
        p99_ms: at(latency, 0.99),
        p999_ms: at(latency, 0.999),
        max_ms: latency.max() as f64 / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::{Failure, FailureKind};
    use super::*;

    fn grid(interval_ms: u64, measured_ms: u64) -> Grid {
        Grid { interval: Duration::from_millis(interval_ms), measured: Duration::from_millis(measured_ms) }
    }

    #[test]
    fn merged_counts_are_the_counts_of_all() {
        let grid = grid(500, 2000);
        let (mut one, mut two, mut all) = (Stats::new(grid), Stats::new(grid), Stats::new(grid));
        let get = || Series { operation: Operation::Get, failure: None };
        for index in 1..=1000_u64 {
            let (ended, latency) = (Duration::from_millis(index * 2 - 1), Duration::from_micros(index * 10));
            let part = if index % 3 == 0 { &mut one } else { &mut two };
            part.add(get(), ended, latency, 100);
            all.add(get(), ended, latency, 100);
        }
        let failure = Failure { kind: FailureKind::Refused, what: "503 SlowDown".to_owned() };
        for stats in [&mut two, &mut all] {
            let series = Series { operation: Operation::Put, failure: Some(failure.clone()) };
            stats.add(series, Duration::from_millis(700), Duration::from_secs(1), 0);
        }
        for late in [&mut one, &mut all] {
            late.add(get(), Duration::from_secs(4), Duration::from_secs(3), 100);
        }
        one.merge(&two);
        assert_eq!(one.rows(), all.rows());
        assert_eq!((one.failures(), one.timelines()), (all.failures(), all.timelines()));
        let rows = one.rows();
        let names: Vec<_> = rows.iter().map(|row| (row.operation, row.requests, row.failed)).collect();
        assert_eq!(names, [("put", 0, 1), ("get", 1001, 0), ("all", 1001, 1)]);
        let row = &rows[1];
        assert_eq!((row.requests_per_second, row.megabytes_per_second), (500.0, 0.05));
        assert!((row.p50_ms - 5.0).abs() < 0.02 && (row.p99_ms - 9.91).abs() < 0.02 && row.max_ms >= 3000.0, "{row:?}");
        let windows = &one.timelines()[2].windows;
        assert_eq!(windows.iter().map(|window| window.failed).collect::<Vec<_>>(), [0, 1, 0, 0]);
        assert_eq!(windows.iter().map(|window| window.successful).sum::<u64>(), 1000);
        let failures = one.failures();
        assert_eq!((failures.len(), failures[0].kind, failures[0].count), (1, "refused", 1));
    }

    #[test]
    fn every_moment_is_in_one_interval() {
        for (interval, measured) in [(1000, 10_000), (3000, 10_000), (1000, 500), (700, 1500)] {
            let grid = grid(interval, measured);
            let mut covered = Duration::ZERO;
            for index in 0..grid.count() + 3 {
                let (begin, length) = grid.bounds(index);
                assert_eq!(begin, covered, "{interval} of {measured}");
                assert_eq!((grid.place(begin), grid.place(begin + length - Duration::from_nanos(1))), (index, index));
                covered = begin + length;
            }
        }
    }
}
