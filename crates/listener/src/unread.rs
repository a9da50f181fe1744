//! Backpressure for responses that clients do not read: counts their bytes in memory and closes the slowest client.
//!
//! Why:        a client that requests and does not read holds 256 KiB or a whole listing. Ten thousand of them would
//!             fill memory although none of them exceeds a limit of its own.
//! Invariants: U1 `Traffic::unread` is the sum over connections of the bytes handed to them and not written, and of
//!                responses that are wholly in memory.
//!             U2 over the limit no response begins and no download continues; bytes already handed over still leave.
//!             U3 a task that waits for room closes the connection whose bytes have waited longest, if that is
//!                `AGE_MIN` or more. So there is room after that time, whatever clients do.
//! Locking:    the list of connections before one connection's lock; neither is held across an await.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Traffic;

/// A client whose bytes have waited for less than this counts as reading.
pub(crate) const AGE_MIN: Duration = Duration::from_secs(2);
/// How often a waiting task checks for room.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// All connections of a listener.
#[derive(Debug)]
pub(crate) struct Unread {
    bytes_max: u64,
    traffic: Arc<Traffic>,
    connections: Mutex<HashMap<u64, Arc<Backlog>>>,
    next: AtomicU64,
}

/// Bytes that one connection's client has not read.
#[derive(Debug)]
pub(crate) struct Backlog {
    traffic: Arc<Traffic>,
    state: Mutex<State>,
    closing: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes handed over and not written: when, and how many; the oldest first.
    handed: VecDeque<(Instant, u64)>,
    /// Responses wholly in memory: HTTP/1 has one at a time, HTTP/2 a few.
    whole: Vec<Whole>,
    next: u64,
    closed: bool,
}

#[derive(Debug)]
struct Whole {
    number: u64,
    /// When bytes of it were last handed to the connection.
    since: Instant,
    /// Bytes not yet handed to the connection.
    left: u64,
}

/// Keeps a connection in the list until dropped.
#[derive(Debug)]
pub(crate) struct Known {
    all: Arc<Unread>,
    number: u64,
    pub backlog: Arc<Backlog>,
}

impl Unread {
    pub(crate) fn new(bytes_max: u64, traffic: Arc<Traffic>) -> Arc<Unread> {
        Arc::new(Unread { bytes_max, traffic, connections: Mutex::default(), next: AtomicU64::new(0) })
    }

    pub(crate) fn connection(self: &Arc<Unread>) -> Known {
        let backlog =
            Arc::new(Backlog { traffic: Arc::clone(&self.traffic), state: Mutex::default(), closing: Notify::new() });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().insert(number, Arc::clone(&backlog));
        Known { all: Arc::clone(self), number, backlog }
    }

    /// Whether another response may begin or a download continue; if not, the slowest client is closed.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_at(Instant::now())
    }

    fn has_room_at(&self, now: Instant) -> bool {
        if self.traffic.unread() < self.bytes_max {
            return true;
        }
        self.close_slowest(now);
        false
    }

    /// Waits for room.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn close_slowest(&self, now: Instant) {
        let connections = self.connections.lock();
        let oldest = connections.values().filter_map(|backlog| Some((backlog.oldest()?, backlog)));
        let Some((since, backlog)) = oldest.min_by_key(|(since, _)| *since) else { return };
        if now.saturating_duration_since(since) >= AGE_MIN {
            backlog.close();
        }
    }
}

impl Backlog {
    /// Resolves when the connection must close.
    pub(crate) async fn closing(&self) {
        self.closing.notified().await;
    }

    /// A response begins that is wholly in memory; returns its number.
    pub(crate) fn begin(&self, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        if bytes > 0 && !state.closed {
            state.whole.push(Whole { number, since: Instant::now(), left: bytes });
            self.traffic.unread_grows(bytes);
        }
        number
    }

    /// Bytes of a response are handed to the connection.
    pub(crate) fn hand(&self, number: u64, bytes: u64) {
        let mut state = self.state.lock();
        if bytes == 0 || state.closed {
            return;
        }
        let now = Instant::now();
        let mut counted = 0;
        if let Some(whole) = state.whole.iter_mut().find(|whole| whole.number == number) {
            counted = bytes.min(whole.left);
            (whole.since, whole.left) = (now, whole.left - counted);
        }
        state.handed.push_back((now, bytes));
        self.traffic.unread_grows(bytes - counted);
    }

    /// A response has ended or was cancelled.
    pub(crate) fn end(&self, number: u64) {
        let mut state = self.state.lock();
        let found = state.whole.iter().position(|whole| whole.number == number);
        let left = found.map_or(0, |at| state.whole.swap_remove(at).left);
        drop(state);
        self.traffic.unread_shrinks(left);
    }

    /// Bytes were written to the client. Heads and frames are written too, so this may exceed what was handed over.
    pub(crate) fn wrote(&self, bytes: u64) {
        let mut state = self.state.lock();
        let mut rest = bytes;
        while rest > 0 {
            let Some((_, first)) = state.handed.front_mut() else { break };
            let taken = rest.min(*first);
            (*first, rest) = (*first - taken, rest - taken);
            if *first == 0 {
                state.handed.pop_front();
            }
        }
        drop(state);
        self.traffic.unread_shrinks(bytes - rest);
    }

    /// The connection is idle: bytes handed over and never written belonged to cancelled responses.
    pub(crate) fn rests(&self) {
        let handed: u64 = self.state.lock().handed.drain(..).map(|(_, bytes)| bytes).sum();
        self.traffic.unread_shrinks(handed);
    }

    /// When the bytes that have waited longest were handed over.
    fn oldest(&self) -> Option<Instant> {
        let state = self.state.lock();
        let whole = state.whole.iter().filter(|whole| whole.left > 0).map(|whole| whole.since);
        whole.chain(state.handed.front().map(|(since, _)| *since)).min()
    }

    /// Removes the connection from the count: its memory is freed with its task.
    fn close(&self) {
        let mut state = self.state.lock();
        if !state.closed {
            self.traffic.unread_closed();
            self.closing.notify_one();
        }
        self.forget(&mut state);
    }

    fn forget(&self, state: &mut State) {
        state.closed = true;
        let handed: u64 = state.handed.drain(..).map(|(_, bytes)| bytes).sum();
        let whole: u64 = state.whole.drain(..).map(|whole| whole.left).sum();
        self.traffic.unread_shrinks(handed + whole);
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.all.connections.lock().remove(&self.number);
        self.backlog.forget(&mut self.backlog.state.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_what_has_not_left() {
        let traffic = Arc::new(Traffic::default());
        let all = Unread::new(100, Arc::clone(&traffic));
        let (one, two) = (all.connection(), all.connection());
        let whole = one.backlog.begin(60);
        one.backlog.hand(whole, 60);
        assert_eq!(traffic.unread(), 60, "a whole answer is counted once");
        let download = two.backlog.begin(0);
        two.backlog.hand(download, 50);
        assert!(traffic.unread() == 110 && !all.has_room());
        // The head was written first.
        one.backlog.wrote(30);
        two.backlog.wrote(500);
        assert!(traffic.unread() == 30 && all.has_room());
        let given_up = one.backlog.begin(40);
        one.backlog.end(given_up);
        assert_eq!(traffic.unread(), 30);
        one.backlog.rests();
        assert_eq!(traffic.unread(), 0);
        two.backlog.hand(download, 50);
        drop(two);
        assert_eq!(traffic.unread(), 0, "nothing of a connection outlives it");
    }

    #[tokio::test]
    async fn the_slowest_is_closed_when_others_need_room() {
        let traffic = Arc::new(Traffic::default());
        let all = Unread::new(100, Arc::clone(&traffic));
        let (slow, quick, begun) = (all.connection(), all.connection(), Instant::now());
        slow.backlog.hand(0, 90);
        quick.backlog.hand(0, 90);
        assert!(!all.has_room_at(begun) && traffic.unread() == 180, "neither waits for long");
        assert!(!all.has_room_at(Instant::now() + AGE_MIN), "there is room when its memory is back");
        slow.backlog.closing().await;
        assert!(all.has_room() && traffic.unread() == 90);
        slow.backlog.hand(0, 90);
        assert_eq!(traffic.unread(), 90, "what is closed is counted no more");
    }
}
