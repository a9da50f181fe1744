//! Moves calls that wait to other threads: for a disk sync, or for space after ENOSPC.
//!
//! Why:        reclaim may be about to free space, and a program should not get ENOSPC meanwhile. Waiting may take
//!             long, and the session's few threads must stay free for other requests.
//! Not here:   how space is reclaimed (volume).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{ReplyEmpty, ReplyWrite};

use super::convert;
use super::reply::{empty, written};
use super::work::{Adapter, Work};
use crate::metrics::Request;
use crate::protocol::{Answer, Errno, Operations, WriteFlags};

/// Bytes of waiting writes. Above this a thread of the session waits, and the kernel holds further requests back.
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// Retries of a call after a pass of reclaim: other calls may take the freed space first.
const ROOM_TRIES_MAX: usize = 8;

impl<O: Operations> Work<O> {
    /// Retries a call that failed with ENOSPC for as long as reclaim frees space.
    fn with_room(&self, mut answer: Answer<()>, mut again: impl FnMut() -> Answer<()>) -> Answer<()> {
        for _ in 0..ROOM_TRIES_MAX {
            if answer != Err(Errno::NOSPC) || !self.operations.make_room() {
                break;
            }
            answer = again();
        }
        answer
    }

    /// `is_full`: it has failed with ENOSPC once.
    fn write_again(
        &self,
        (handle, offset): (u64, u64),
        bytes: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
        is_full: bool,
    ) {
        let mut reply = Some(reply);
        let mut again = || {
            let mut taken = || written(&mut reply, bytes.len());
            self.measured(Request::Write, |operations| operations.write(handle, offset, bytes, flags, &mut taken))
        };
        let first = if is_full { Err(Errno::NOSPC) } else { again() };
        let answer = self.with_room(first, again);
        assert!(answer.is_err() || reply.is_none(), "a write that succeeded was answered (A1 of the adapter)");
        if let (Err(error), Some(reply)) = (answer, reply) {
            reply.error(convert::errno(error));
        }
    }

    fn waits_no_more(&self, len: u64) {
        let before = self.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
        assert!(before >= len, "bytes that wait were counted");
    }
}

impl<O: Operations> Adapter<O> {
    /// Runs the call on a thread that may wait.
    pub(super) fn wait(
        &self,
        request: Request,
        reply: ReplyEmpty,
        call: impl FnOnce(&O) -> Answer<()> + Send + 'static,
    ) {
        let work = Arc::clone(&self.work);
        self.waiters.run(move || empty(reply, work.measured(request, call)));
    }

    /// Runs the call on a thread that may wait, also for space.
    pub(super) fn wait_for_room(
        &self,
        request: Request,
        reply: ReplyEmpty,
        call: impl Fn(&O) -> Answer<()> + Send + 'static,
    ) {
        let work = Arc::clone(&self.work);
        self.waiters.run(move || {
            let answer = work.measured(request, &call);
            empty(reply, work.with_room(answer, || work.measured(request, &call)));
        });
    }

    /// Writes on a thread that may wait, also for space; `is_full`: it has failed with ENOSPC here.
    pub(super) fn write_later(
        &self,
        handle: u64,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
        is_full: bool,
    ) {
        let len = bytes.len() as u64;
        if self.work.waiting_bytes.fetch_add(len, Ordering::Relaxed) + len > WAITING_BYTES_MAX {
            self.work.waits_no_more(len);
            return self.work.write_again((handle, offset), bytes, flags, reply, is_full);
        }
        let (work, bytes) = (Arc::clone(&self.work), bytes.to_vec());
        self.waiters.run(move || {
            work.write_again((handle, offset), &bytes, flags, reply, is_full);
            work.waits_no_more(len);
        });
    }
}
