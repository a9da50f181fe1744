//! Locks of programs that other servers must see: asking for them, and waiting for one that is taken.
//!
//! Why:        nothing tells this server when another one gives a lock back, so it asks again and again, on one thread for all that
//!             wait. A process that waits for an answer of a FUSE server cannot be killed, so each round looks whether it has a
//!             signal.
//! Invariants: L1 a request that waits is answered when it has the lock, when its process has a signal (EINTR), or when asking
//!                fails otherwise than for want of an answer; each once.
//!             L2 who asked first is asked for first in each round, so of two that wait here for the same lock the first gets it.
//!             L3 the thread ends when nobody waits.
//! Locking:    that of waiting_locks, not held while the operations are asked.
//! Not here:   who has which lock (operations, volume).

use std::sync::Arc;
use std::time::Duration;

use fuser::{LockOwner, ReplyEmpty, ReplyLock};

use super::convert;
use super::reply::empty;
use super::waiting_locks::{LockRequest, Waiting};
use super::work::{Adapter, Work};
use crate::metrics::Request;
use crate::protocol::{Errno, LockWish, Operations};

/// F_RDLCK, F_WRLCK and F_UNLCK.
const SHARED: i32 = 0;
const EXCLUSIVE: i32 = 1;
pub(super) const UNLOCK: i32 = 2;
/// Between two rounds of asking; a lock that is given back by an order at this server is asked for at once.
const ROUND_TIME: Duration = Duration::from_millis(20);
/// A process waits so long whose signals cannot be seen, since it is in another namespace of processes.
const BLIND_TIME_MAX: Duration = Duration::from_secs(5);

/// The operations number open files.
pub(super) fn wish(owner: LockOwner, (first, last): (u64, u64), kind: i32, process: u32) -> LockWish {
    LockWish { owner: owner.0, handle: 0, process, first, last, exclusive: kind == EXCLUSIVE }
}

impl<O: Operations> Adapter<O> {
    pub(super) fn lock(&self, request: LockRequest, reply: ReplyEmpty) {
        let work = Arc::clone(&self.work);
        self.waiters.run(move || match work.try_lock(&request) {
            Err(error) if request.waits && may_be_had_later(error) => {
                Work::wait_for_lock(&work, Waiting { request, since: work.now(), reply });
            }
            answer => empty(reply, answer),
        });
    }

    pub(super) fn unlock(&self, handle: u64, wish: LockWish, reply: ReplyEmpty) {
        let work = Arc::clone(&self.work);
        self.waiters.run(move || {
            let answer = work.measured(Request::Unlock, |operations| operations.unlock(handle, &wish));
            work.locks.freed();
            empty(reply, answer);
        });
    }

    pub(super) fn locked_by(&self, handle: u64, wish: &LockWish, reply: ReplyLock) {
        let (work, wish) = (Arc::clone(&self.work), *wish);
        self.waiters.run(move || {
            match work.measured(Request::LockedBy, |operations| operations.locked_by(handle, &wish)) {
                Ok(Some(lock)) => {
                    let kind = if lock.exclusive { EXCLUSIVE } else { SHARED };
                    reply.locked(lock.first, lock.last, kind, lock.process);
                }
                Ok(None) => reply.locked(wish.first, wish.last, UNLOCK, 0),
                Err(error) => reply.error(convert::errno(error)),
            }
        });
    }
}

impl<O: Operations> Work<O> {
    fn try_lock(&self, request: &LockRequest) -> Result<(), Errno> {
        let LockRequest { node, handle, wish, .. } = request;
        self.measured(Request::Lock, |operations| operations.lock(*node, *handle, wish))
    }

    fn wait_for_lock(work: &Arc<Work<O>>, waiting: Waiting) {
        let mut state = work.locks.state.lock();
        state.line.push(waiting);
        if state.runs {
            return;
        }
        let run = Arc::clone(work);
        state.runs =
            std::thread::Builder::new().name("fuse-locks".to_owned()).spawn(move || run.ask_for_locks()).is_ok();
        if !state.runs {
            // Without a thread nobody would ask again.
            state.line.drain(..).for_each(|waiting| empty(waiting.reply, Err(Errno::NOLCK)));
        }
    }

    /// Asks for all that wait until nobody does.
    fn ask_for_locks(&self) {
        loop {
            let line = {
                let mut state = self.locks.state.lock();
                if !state.freed {
                    self.locks.freed.wait_for(&mut state, ROUND_TIME);
                }
                state.freed = false;
                if state.line.is_empty() {
                    state.runs = false;
                    return;
                }
                std::mem::take(&mut state.line)
            };
            let mut left: Vec<Waiting> = line.into_iter().filter_map(|waiting| self.ask_again(waiting)).collect();
            let mut state = self.locks.state.lock();
            // Who came meanwhile is behind (L2).
            left.append(&mut state.line);
            state.line = left;
        }
    }

    /// Answers, or gives back what waits on (L1).
    fn ask_again(&self, waiting: Waiting) -> Option<Waiting> {
        let asked = match has_signal(waiting.request.task) {
            Some(true) => Err(Errno::INTR),
            None if self.now().saturating_sub(waiting.since) > BLIND_TIME_MAX => Err(Errno::INTR),
            _ => self.try_lock(&waiting.request),
        };
        match asked {
            Err(error) if may_be_had_later(error) => Some(waiting),
            answer => {
                empty(waiting.reply, answer);
                None
            }
        }
    }
}

/// Another program has it, or nobody answered (if it was taken all the same, asking again says so).
fn may_be_had_later(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::TIMEDOUT)
}

/// Whether a signal waits for the thread that it does not block; `None` where it cannot be seen.
fn has_signal(task: u32) -> Option<bool> {
    if task == 0 {
        return None;
    }
    // Gone, which it cannot be while it waits: a number of another namespace.
    let status = std::fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    pending(&status)
}

/// `SigPnd`, `ShdPnd` and `SigBlk` are sets in hexadecimal (proc_pid_status(5)); those that are ignored never wait.
fn pending(status: &str) -> Option<bool> {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    Some((set("SigPnd:")? | set("ShdPnd:")?) & !set("SigBlk:")? != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_not_blocked_are_seen() {
        let status = |own: u64, shared: u64, blocked: u64| {
            format!("Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n")
        };
        assert_eq!(pending(&status(0, 0, 0)), Some(false));
        assert_eq!(pending(&status(0x100, 0, 0)), Some(true));
        assert_eq!(pending(&status(0, 0x4000, 0)), Some(true));
        assert_eq!(pending(&status(0, 0x4000, 0x4000)), Some(false));
        assert_eq!(pending("Name:\tx\n"), None);
        assert_eq!((has_signal(0), has_signal(std::process::id())), (None, Some(false)));
    }
}
