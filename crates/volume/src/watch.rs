//! Notifies mounts of changes by S3, and waits until their kernels have dropped what changed.
//!
//! Why:        a kernel caches names and attributes for a day, so a change through another door must invalidate them
//!             before its answer; a mount knows its own changes and is not notified of them.
//! Invariants: W1 notices have the order of their tickets, a valid order of their commits: a notice follows its commit.
//!             W2 an answer waits for the watchers at most `WAIT_MAX`; longer ones are counted.
//!             W3 a watcher's queue is bounded: when it is full, one notice says to drop everything.
//! Locking:    a leaf lock per watcher; nothing else is locked while an answer waits. A thread wakes waiting answers so
//!             that they notice their timeout; it sleeps while there are none and ends with the last watcher.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use event_listener::Event;
use margay_env::Clock;
use margay_rows::Ino;
use parking_lot::{Condvar, Mutex};

/// Maximum time that an answer waits for kernels to drop what it changed.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(50);
/// Capacity of a watcher's queue.
pub(crate) const NOTICES_MAX: usize = 65_536;

/// The changes of one commit by another door.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    pub ticket: u64,
    /// Directory and sort name of each entry that was put or removed; a directory's ends in `/`.
    pub entries: Vec<(Ino, String)>,
    /// Hard-linked files whose attributes changed.
    pub files: Vec<Ino>,
    /// Some notices were dropped: everything may have changed.
    pub everything: bool,
}

#[derive(Debug, Default)]
struct Queue {
    notices: VecDeque<Notice>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Channel {
    queue: Mutex<Queue>,
    ready: Condvar,
    /// All notices up to this ticket were handled.
    done: AtomicU64,
    moved: Event,
}

/// A follower of changes by other doors; dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    channel: Arc<Channel>,
    watchers: Arc<Watchers>,
}

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    list: Mutex<(u64, Vec<Weak<Channel>>)>,
    /// Number of waiting answers; the ticking thread sleeps while there are none.
    waiting: Mutex<usize>,
    begun: Condvar,
    /// Answers that reached their timeout.
    late: AtomicU64,
}

/// How often waiting answers check their timeout.
const TICK: Duration = Duration::from_millis(5);

/// Counts a waiting answer.
struct Waiting<'a>(&'a Watchers);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock() -= 1;
    }
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>) -> Watcher {
        let channel = Arc::new(Channel::default());
        let mut list = self.list.lock();
        channel.done.store(list.0, Ordering::Release);
        list.1.push(Arc::downgrade(&channel));
        if self.count.fetch_add(1, Ordering::AcqRel) == 0 {
            let watchers = Arc::clone(self);
            // Without the thread an answer waits for a hanging watcher; nothing worse.
            let _ = std::thread::Builder::new().name("watch-tick".to_owned()).spawn(move || watchers.tick());
        }
        Watcher { channel, watchers: Arc::clone(self) }
    }

    /// Whether there are watchers.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn tick(&self) {
        while self.any() {
            let mut waiting = self.waiting.lock();
            while *waiting == 0 && self.any() {
                self.begun.wait(&mut waiting);
            }
            drop(waiting);
            std::thread::sleep(TICK);
            let channels: Vec<_> = self.list.lock().1.iter().filter_map(Weak::upgrade).collect();
            channels.iter().for_each(|channel| {
                channel.moved.notify(usize::MAX);
            });
        }
    }

    /// The ticket of the newest notice.
    pub(crate) fn newest(&self) -> u64 {
        self.list.lock().0
    }

    /// Queues a notice for all watchers; [`Watchers::reached`] waits for its ticket.
    pub(crate) fn tell(&self, mut notice: Notice) -> u64 {
        let mut list = self.list.lock();
        list.0 += 1;
        notice.ticket = list.0;
        for channel in list.1.iter().filter_map(Weak::upgrade) {
            let mut queue = channel.queue.lock();
            if queue.notices.len() < NOTICES_MAX {
                queue.notices.push_back(notice.clone());
            } else {
                queue.notices.clear();
                queue.notices.push_back(Notice { ticket: notice.ticket, everything: true, ..Notice::default() });
            }
            channel.ready.notify_one();
        }
        notice.ticket
    }

    /// Waits until every watcher has handled the notice, or for `WAIT_MAX`. Blocks no thread.
    pub(crate) async fn reached(&self, ticket: u64, clock: &dyn Clock) {
        let mut channels: Vec<_> = self.list.lock().1.iter().filter_map(Weak::upgrade).collect();
        channels.retain(|channel| channel.done.load(Ordering::Acquire) < ticket);
        if channels.is_empty() {
            return;
        }
        *self.waiting.lock() += 1;
        let _counted = Waiting(self);
        self.begun.notify_one();
        let deadline = clock.monotonic() + WAIT_MAX;
        for channel in channels {
            while channel.done.load(Ordering::Acquire) < ticket {
                let listener = channel.moved.listen();
                if channel.done.load(Ordering::Acquire) >= ticket {
                    break;
                }
                if clock.monotonic() >= deadline {
                    self.late.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                listener.await;
            }
        }
    }

    /// Whether all watchers have done what this ticket's notice and those before it say.
    pub(crate) fn have_done(&self, ticket: u64) -> bool {
        let channels: Vec<_> = self.list.lock().1.iter().filter_map(Weak::upgrade).collect();
        channels.iter().all(|channel| channel.done.load(Ordering::Acquire) >= ticket)
    }

    /// Answers that reached their timeout.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }
}

impl Watcher {
    /// The next notice, in order; `None` when the watcher was closed.
    pub fn next(&self) -> Option<Notice> {
        let mut queue = self.channel.queue.lock();
        loop {
            if let Some(notice) = queue.notices.pop_front() {
                return Some(notice);
            }
            if queue.closed {
                return None;
            }
            self.channel.ready.wait(&mut queue);
        }
    }

    /// The kernel has dropped what notices up to this ticket changed.
    pub fn done(&self, ticket: u64) {
        self.channel.done.fetch_max(ticket, Ordering::AcqRel);
        self.channel.moved.notify(usize::MAX);
    }

    /// Ends `next` on the thread that waits in it.
    pub fn close(&self) {
        self.channel.queue.lock().closed = true;
        self.channel.ready.notify_all();
        self.done(u64::MAX);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.close();
        let mut list = self.watchers.list.lock();
        let gone = Arc::downgrade(&self.channel);
        list.1.retain(|channel| !channel.ptr_eq(&gone));
        self.watchers.count.fetch_sub(1, Ordering::AcqRel);
        drop(list);
        let _asleep = self.watchers.waiting.lock();
        self.watchers.begun.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on(future: impl Future<Output = ()>) {
        let mut future = std::pin::pin!(future);
        let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = std::task::Context::from_waker(&waker);
        while future.as_mut().poll(&mut context).is_pending() {
            std::thread::park();
        }
    }

    fn clock() -> Arc<dyn Clock> {
        margay_env::Env::real().clock
    }

    struct Unpark(std::thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn an_answer_waits_until_the_watcher_acted() {
        let watchers = Arc::new(Watchers::default());
        let watcher = watchers.watch();
        let ticket = watchers.tell(Notice { entries: vec![(Ino(1), "a".to_owned())], ..Notice::default() });
        let follower = std::thread::spawn(move || {
            let notice = watcher.next().unwrap();
            watcher.done(notice.ticket);
            watcher
        });
        block_on(watchers.reached(ticket, &*clock()));
        assert_eq!(watchers.late(), 0);
        drop(follower.join().unwrap());
        assert!(!watchers.any());
    }

    #[test]
    fn an_answer_does_not_wait_for_a_watcher_that_hangs() {
        let watchers = Arc::new(Watchers::default());
        let _hangs = watchers.watch();
        let ticket = watchers.tell(Notice::default());
        block_on(watchers.reached(ticket, &*clock()));
        assert_eq!(watchers.late(), 1);
    }

    #[test]
    fn a_full_queue_says_so() {
        let watchers = Arc::new(Watchers::default());
        let watcher = watchers.watch();
        (0..=NOTICES_MAX).for_each(|_| {
            watchers.tell(Notice::default());
        });
        assert!(watcher.next().unwrap().everything);
    }
}
