//! Samples of a case, and what they say of each interval and of the whole.
//!
//! Why:        every sample is kept, so percentiles are exact and an interval's do not borrow from its neighbours.
//! Invariants: latencies are of successful requests only; a request belongs to the interval in which it ended.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::summary::{ms, percentile};
use crate::windows::Window;

#[derive(Clone, Copy, Debug)]
struct Sample {
    ended_us: u64,
    latency_us: u64,
}

/// What one connection saw, or all of them.
#[derive(Debug, Default)]
pub(super) struct Samples {
    successes: Vec<Sample>,
    failed_us: Vec<u64>,
    errors: BTreeMap<String, u64>,
    bytes: u64,
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Samples {
    /// Counts a success: when it ended, counted from the beginning, its latency, and the bytes of its body.
    pub(super) fn success(&mut self, ended: Duration, latency: Duration, bytes: u64) {
        self.successes.push(Sample { ended_us: us(ended), latency_us: us(latency) });
        self.bytes += bytes;
    }

    pub(super) fn failure(&mut self, ended: Duration, kind: &str) {
        self.failed_us.push(us(ended));
        *self.errors.entry(kind.to_owned()).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: Samples) {
        self.successes.extend(other.successes);
        self.failed_us.extend(other.failed_us);
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.bytes += other.bytes;
    }

    pub(super) fn errors(&self) -> &BTreeMap<String, u64> {
        &self.errors
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn end_us(&self) -> u64 {
        let ends = self.successes.iter().map(|sample| sample.ended_us).chain(self.failed_us.iter().copied());
        ends.max().unwrap_or(0)
    }

    /// The whole case as one interval.
    pub(super) fn whole(&self) -> Window {
        let latencies = self.successes.iter().map(|sample| sample.latency_us).collect();
        window(self.end_us(), self.end_us(), latencies, self.failed_us.len() as u64)
    }

    /// One entry per interval; the last one is as long as the case still ran.
    pub(super) fn windows(&self, interval: Duration) -> Vec<Window> {
        let interval = us(interval);
        let end = self.end_us();
        let count = end.div_ceil(interval).max(1) as usize;
        // A request that ended right at a boundary belongs to the interval before it.
        let place = |at: u64| (at.saturating_sub(1) / interval) as usize;
        let mut latencies: Vec<Vec<u64>> = vec![Vec::new(); count];
        let mut failed = vec![0_u64; count];
        for sample in &self.successes {
            latencies[place(sample.ended_us)].push(sample.latency_us);
        }
        for &at in &self.failed_us {
            failed[place(at)] += 1;
        }
        let windows = latencies.into_iter().zip(failed).enumerate();
        windows
            .map(|(index, (latencies, failed))| {
                let elapsed = end.min((index as u64 + 1) * interval);
                window(elapsed, elapsed - index as u64 * interval, latencies, failed)
            })
            .collect()
    }
}

/// A stretch of time that ended `elapsed_us` after the beginning and took `window_us`.
fn window(elapsed_us: u64, window_us: u64, mut latencies: Vec<u64>, failed: u64) -> Window {
    latencies.sort_unstable();
    let count = latencies.len();
    let to_ms = |us: u64| ms(Duration::from_micros(us));
    let at = |per_mille: usize| percentile(&latencies, per_mille).map_or(0.0, |&us| to_ms(us));
    let window_seconds = window_us as f64 / 1e6;
    let sum: u64 = latencies.iter().sum();
    Window {
        elapsed_seconds: elapsed_us as f64 / 1e6,
        window_seconds,
        successful: count as u64,
        failed,
        requests_per_second: if window_us == 0 { 0.0 } else { count as f64 / window_seconds },
        min_ms: latencies.first().map_or(0.0, |&us| to_ms(us)),
        mean_ms: if count == 0 { 0.0 } else { sum as f64 / count as f64 / 1e3 },
        median_ms: at(500),
        p95_ms: at(950),
        p99_ms: at(990),
        p999_ms: at(999),
        max_ms: at(1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_fall_into_their_intervals_and_none_is_lost() {
        let (mut one, mut two) = (Samples::default(), Samples::default());
        for index in 1..=1000_u64 {
            let samples = if index % 2 == 0 { &mut one } else { &mut two };
            samples.success(Duration::from_millis(index * 3), Duration::from_millis(index), 10);
        }
        two.failure(Duration::from_millis(2500), "503 SlowDown");
        one.merge(two);
        let whole = one.whole();
        assert_eq!((whole.successful, whole.failed, one.bytes()), (1000, 1, 10_000));
        assert_eq!((whole.median_ms, whole.p95_ms, whole.p99_ms, whole.p999_ms), (500.0, 950.0, 990.0, 999.0));
        assert_eq!((whole.min_ms, whole.max_ms, whole.mean_ms), (1.0, 1000.0, 500.5));
        assert!((whole.requests_per_second - 1000.0 / 3.0).abs() < 0.001);
        for interval_ms in [250, 1000, 2000, 5000] {
            let windows = one.windows(Duration::from_millis(interval_ms));
            assert_eq!(windows.len() as u64, 3000_u64.div_ceil(interval_ms));
            assert_eq!(windows.iter().map(|window| window.successful).sum::<u64>(), 1000);
            assert_eq!(windows.iter().map(|window| window.failed).sum::<u64>(), 1);
            let length: f64 = windows.iter().map(|window| window.window_seconds).sum();
            assert!((length - 3.0).abs() < 1e-9);
        }
        assert_eq!(one.windows(Duration::from_secs(1))[0].max_ms, 333.0);
    }

    #[test]
    fn nothing_has_no_latency() {
        assert_eq!(Samples::default().whole(), Window::default());
        assert_eq!(Samples::default().windows(Duration::from_secs(1)), [Window::default()]);
    }
}
