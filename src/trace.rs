//! Live requests for those who watch: `margay trace`.
//!
//! Why:        the access log is for later; whoever looks for a slow or refused request now wants it as it ends.
//! Invariants: T1 a request never waits for a watcher: one that does not keep up loses events, and is told how many.
//!             T2 while nobody watches, a request costs one atomic read.
//!             T3 at most `WATCHERS_MAX` watch at once, and a stop of the server ends all of them.
//! Locking:    the channel's own lock, held while one event is put into it.
//! Not here:   who may watch and the stream itself (`administration`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_env::Clock;
use margay_s3::{AccessSubject, RequestDone, iso_time};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Events that a slow watcher may be behind.
const EVENTS_MAX: usize = 1024;
/// Watchers at once.
pub const WATCHERS_MAX: usize = 16;
/// Bytes of a key that an event shows.
const KEY_BYTES_MAX: usize = 1024;

/// One request that was answered.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    pub operation: &'static str,
    pub status: u16,
    pub bucket: String,
    pub total_us: u64,
    /// Everything, as it is sent.
    pub line: Arc<Value>,
}

/// Where requests are shown.
#[derive(Debug)]
pub struct Trace {
    /// None once the server stops.
    sender: Mutex<Option<Sender<TraceEvent>>>,
    watchers: AtomicUsize,
    /// Of streams that show sums.
    seats: Arc<Semaphore>,
    end: watch::Sender<bool>,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace {
            sender: Mutex::new(Some(broadcast::channel(EVENTS_MAX).0)),
            watchers: AtomicUsize::new(0),
            seats: Arc::new(Semaphore::new(WATCHERS_MAX)),
            end: watch::Sender::new(false),
        }
    }
}

/// A watcher; counted until dropped.
#[derive(Debug)]
pub struct Watcher {
    trace: Arc<Trace>,
    pub events: Receiver<TraceEvent>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.trace.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Trace {
    /// Whether anybody watches.
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Begins to watch; the error is one line.
    pub fn watch(self: &Arc<Trace>) -> Result<Watcher, String> {
        let sender = self.sender.lock();
        let Some(sender) = &*sender else { return Err("the server stops".to_owned()) };
        // Under the lock, so that two cannot both be the last one.
        if self.watchers.load(Ordering::Relaxed) >= WATCHERS_MAX {
            return Err(format!("{WATCHERS_MAX} watch already; end one of them"));
        }
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Ok(Watcher { trace: Arc::clone(self), events: sender.subscribe() })
    }

    /// A place among those who watch sums; held as long as the permit. The error is one line.
    pub fn seat(&self) -> Result<OwnedSemaphorePermit, String> {
        let seat = Arc::clone(&self.seats).try_acquire_owned();
        seat.map_err(|_| format!("{WATCHERS_MAX} watch already; end one of them"))
    }

    /// Returns when the server stops.
    pub async fn ended(&self) {
        // The sender lives as long as this.
        let _ = self.end.subscribe().wait_for(|ended| *ended).await;
    }

    /// Ends all watchers; nobody can begin any more.
    pub fn close(&self) {
        *self.sender.lock() = None;
        self.end.send_replace(true);
    }

    /// Shows a request that was answered; never waits.
    pub fn note(&self, done: &RequestDone<'_>, clock: &dyn Clock) {
        if !self.is_watched() {
            return;
        }
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let subject = done.subject.map(AccessSubject::shown).unwrap_or_default();
        let line = json!({
            "time": iso_time(clock.now()),
            "operation": done.operation,
            "status": done.status.as_u16(),
            "code": done.code,
            "request_id": done.request_id,
            "peer": done.peer.ip().to_canonical().to_string(),
            "requester": subject.requester,
            "user_agent": subject.user_agent,
            "bucket": subject.bucket,
            "key": shortened(subject.key),
            "bytes_in": done.bytes_in,
            "bytes_out": done.bytes_out,
            "first_byte_us": micros(done.first_byte),
            "total_us": micros(done.total),
            "complete": done.complete,
        });
        let event = TraceEvent {
            operation: done.operation,
            status: done.status.as_u16(),
            bucket: subject.bucket.to_owned(),
            total_us: micros(done.total),
            line: Arc::new(line),
        };
        if let Some(sender) = &*self.sender.lock() {
            // Fails only when the last watcher has just gone.
            let _ = sender.send(event);
        }
    }
}

fn shortened(key: &str) -> &str {
    &key[..key.floor_char_boundary(KEY_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_counted_and_a_stop_ends_them() {
        let trace = Arc::new(Trace::default());
        assert!(!trace.is_watched());
        let mut all: Vec<Watcher> = (0..WATCHERS_MAX).map(|_| trace.watch().unwrap()).collect();
        assert!(trace.is_watched() && trace.watch().is_err());
        let mut last = all.pop().unwrap();
        drop(all);
        assert!(trace.is_watched() && trace.watch().is_ok());
        trace.close();
        assert!(matches!(last.events.try_recv(), Err(broadcast::error::TryRecvError::Closed)));
        assert!(trace.watch().is_err());
        drop(last);
        assert!(!trace.is_watched());
    }

    #[test]
    fn a_long_key_is_cut_between_characters() {
        let key = "é".repeat(KEY_BYTES_MAX);
        assert_eq!(shortened(&key).len(), KEY_BYTES_MAX);
        assert_eq!(shortened(&format!("a{key}")).len(), KEY_BYTES_MAX - 1);
        assert_eq!(shortened("k"), "k");
    }
}
