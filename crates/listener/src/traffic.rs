//! Counters of one listener's connections and bytes.
//!
//! Why:        one lock-free increment per event.
//! Not here:   counts and latencies by operation (margay-metrics).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_metrics::{Exposition, Kind};

/// Counters of one listener's connections and bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    running: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// Bytes of responses that are in memory and not yet read by the client.
    unread_bytes: AtomicU64,
    unread_closed: AtomicU64,
}

/// An open connection; counted until dropped.
#[derive(Debug)]
pub struct Open(Arc<Traffic>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    pub fn opened(self: &Arc<Traffic>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A request begins; `end` follows in every case.
    pub fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn unread_grows(&self, bytes: u64) {
        self.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn unread_shrinks(&self, bytes: u64) {
        let before = self.unread_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "no more leaves than was counted");
    }

    /// Bytes of responses that clients have not read.
    pub fn unread(&self) -> u64 {
        self.unread_bytes.load(Ordering::Relaxed)
    }

    /// A connection was closed because its client does not read its responses.
    pub fn unread_closed(&self) {
        self.unread_closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections closed because their clients did not read.
    pub fn closed_unread(&self) -> u64 {
        self.unread_closed.load(Ordering::Relaxed)
    }

    /// Bytes received from clients so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Bytes sent to clients so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Requests that are running now.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub fn write(&self, out: &mut Exposition) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        out.value("margay_requests_running", Kind::Gauge, "Requests being answered.", load(&self.running));
        out.value("margay_connections", Kind::Gauge, "Open S3 connections.", load(&self.open));
        out.value("margay_connections_total", Kind::Counter, "S3 connections accepted.", load(&self.accepted));
        out.value(
            "margay_connections_refused_total",
            Kind::Counter,
            "Connections refused because all places were taken.",
            load(&self.refused),
        );
        out.value(
            "margay_received_bytes_total",
            Kind::Counter,
            "Bytes received from clients.",
            load(&self.received_bytes),
        );
        let help = "Bytes of answers that clients have not taken yet.";
        out.value("margay_unread_answer_bytes", Kind::Gauge, help, self.unread());
        let help = "Connections closed because memory for unread answers was short and theirs waited longest.";
        out.value("margay_connections_unread_closed_total", Kind::Counter, help, self.closed_unread());
        out.value("margay_sent_bytes_total", Kind::Counter, "Bytes sent to clients.", load(&self.sent_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_counted_until_they_end() {
        let traffic = Arc::new(Traffic::default());
        let first = traffic.opened();
        drop(traffic.opened());
        assert_eq!(traffic.open(), 1);
        drop(first);
        assert_eq!((traffic.open(), traffic.accepted.load(Ordering::Relaxed)), (0, 2));
    }
}
