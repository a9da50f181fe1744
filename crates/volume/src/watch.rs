//! Telling mounts what S3 changed, and waiting until their kernels forgot it.
//!
//! Why:        a kernel keeps names and attributes for a minute or more, so each change through another door must
//!             take them away before its answer; a mount knows its own changes and is not told of them.
//! Invariants: W1 notices are in the order of their tickets, which is an order in which their commits can be told:
//!                a notice is given after its commit.
//!             W2 an answer waits for the watchers at most `WAIT_MAX`; what takes longer is counted.
//!             W3 a watcher's queue is bounded: when it is full, one notice says to forget everything.
//! Locking:    a leaf lock per watcher; nothing else is locked while anybody waits. A thread wakes those who wait, so
//!             that they see their time run out; it sleeps while nobody does and ends with the last watcher.
//! Not here:   what a notice means for a kernel (fuse).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use event_listener::Event;
use margay_env::Clock;
use margay_rows::Ino;
use parking_lot::{Condvar, Mutex};

/// Longest time that an answer waits for kernels to forget what it changed.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(50);
/// Notices held for one watcher.
pub(crate) const NOTICES_MAX: usize = 65_536;

/// What one commit of another door changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    pub ticket: u64,
    /// Directory and sort name of each entry that was put or removed; a directory's ends in `/`.
    pub entries: Vec<(Ino, String)>,
    /// Files with several names whose attributes changed.
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
    /// Every notice up to this ticket has been acted on.
    done: AtomicU64,
    moved: Event,
}

/// One follower of the changes of other doors; dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    channel: Arc<Channel>,
    watchers: Arc<Watchers>,
}

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    list: Mutex<(u64, Vec<Weak<Channel>>)>,
    /// Answers that are waiting; the ticking thread sleeps while there are none.
    waiting: Mutex<usize>,
    begun: Condvar,
    /// Answers that did not wait to the end.
    late: AtomicU64,
}

/// How often those who wait look at the time.
const TICK: Duration = Duration::from_millis(5);

/// Counts an answer that waits.
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
            // Without the thread an answer waits for a watcher that hangs; nothing worse.
            let _ = std::thread::Builder::new().name("watch-tick".to_owned()).spawn(move || watchers.tick());
        }
        Watcher { channel, watchers: Arc::clone(self) }
    }

    /// Whether anybody wants to be told.
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

    /// Gives a notice to all; its ticket is what [`Watchers::reached`] waits for.
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

    /// Waits until every watcher has acted on the notice, or for `WAIT_MAX`. Blocks no thread.
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

    /// Answers that gave up waiting.
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

    /// The kernel has forgotten what notices up to this ticket changed.
    pub fn done(&self, ticket: u64) {
        self.channel.done.fetch_max(ticket, Ordering::AcqRel);
        self.channel.moved.notify(usize::MAX);
    }

    /// Ends `next` on whichever thread waits in it.
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
