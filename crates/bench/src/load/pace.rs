//! When requests of an open loop become due.
//!
//! Why:        a client that waits for slow answers before it sends more hides what users would feel. Here request
//!             number i is due at begin + i / rate, and its latency counts from then, sent late or not.
//! Invariants: P1 numbers are handed out in order and never before they are due.
//!             P2 after the last number every worker is let go.
//! Not here:   the closed loop, which needs no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::Clock;
use tokio::sync::Semaphore;

use crate::stop::Stop;

/// The pacing thread wakes at least this often, in microseconds, to see a wish to stop.
const NAP_US_MAX: u64 = 100_000;
/// It sleeps at least this long, in microseconds, so high rates come in small groups.
const NAP_US_MIN: u64 = 50;

#[derive(Debug)]
pub(super) struct Pacer {
    begin: Duration,
    rate: u64,
    total: u64,
    due: Semaphore,
    next: AtomicU64,
}

impl Pacer {
    /// `total` requests at `rate` per second from `begin` on.
    pub(super) fn new(begin: Duration, rate: u64, total: u64) -> Pacer {
        assert!(rate > 0, "a rate of nothing never ends");
        Pacer { begin, rate, total, due: Semaphore::new(0), next: AtomicU64::new(0) }
    }

    fn due_at(&self, number: u64) -> Duration {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        self.begin + Duration::from_nanos(nanos as u64)
    }

    /// Waits for the next request and tells when it was due; None when there is none left.
    pub(super) async fn next(&self) -> Option<Duration> {
        self.due.acquire().await.expect("never closed").forget();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.total).then(|| self.due_at(number))
    }

    /// Requests that no worker took.
    pub(super) fn untaken(&self) -> u64 {
        self.total.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Lets requests go when they are due, on a thread of its own; lets all `workers` go at the end.
    pub(super) fn run(self: &Arc<Self>, clock: &dyn Clock, stop: &Stop, workers: usize) {
        let mut issued = 0;
        while issued < self.total && !stop.is_set() {
            let elapsed = clock.monotonic().saturating_sub(self.begin);
            // Number i is due once i / rate has passed: that many and number 0.
            let due = (elapsed.as_nanos() * u128::from(self.rate) / 1_000_000_000) as u64 + 1;
            let due = if clock.monotonic() < self.begin { 0 } else { due.min(self.total) };
            if due > issued {
                self.due.add_permits((due - issued) as usize);
                issued = due;
            }
            let wait = self.due_at(issued).saturating_sub(clock.monotonic());
            clock.sleep(wait.clamp(Duration::from_micros(NAP_US_MIN), Duration::from_micros(NAP_US_MAX)));
        }
        self.due.add_permits(workers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_env::Env;

    #[test]
    fn requests_come_in_order_when_due_and_end() {
        let clock = Env::real().clock;
        let pacer = Arc::new(Pacer::new(clock.monotonic(), 2000, 100));
        let thread = {
            let (pacer, clock) = (Arc::clone(&pacer), Arc::clone(&clock));
            std::thread::spawn(move || pacer.run(&*clock, &Stop::default(), 1))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut count = 0;
        while let Some(due) = runtime.block_on(pacer.next()) {
            assert!(due <= clock.monotonic());
            assert_eq!(due, pacer.due_at(count));
            count += 1;
        }
        thread.join().unwrap();
        assert_eq!((count, pacer.untaken()), (100, 0));
    }
}
