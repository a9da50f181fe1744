//! Computes a body's digests while it is being received.
//!
//! Why:        the MD5 of a large body takes longer than everything else together. So it must start with the first
//!             bytes, never wait for the connection, and leave the connection's thread free.
//! Invariants: H1 small bodies are hashed on the receiving thread; of large ones at most `BACKLOG_BYTES_MAX` wait.
//!             H2 a thread is held only while there is something to hash, so slow clients hold none.
//! Locking:    the queue, held to add or take a piece.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::body::Digests;
use crate::error::S3Error;

/// Bodies up to this size are hashed on the receiving thread.
const INLINE_BYTES_MAX: u64 = 256 << 10;
/// A hashing job starts when this many bytes wait.
const JOB_BYTES_MIN: usize = 64 << 10;
/// Maximum number of bytes that wait to be hashed.
const BACKLOG_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Hashing {
    /// `None` while a job has them.
    digests: Option<Digests>,
    job: Option<JoinHandle<Digests>>,
    backlog: Arc<Backlog>,
    is_inline: bool,
}

struct Backlog {
    waiting: Mutex<Waiting>,
    /// Free space in the queue, in bytes.
    room: Semaphore,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// A job is running and takes further pieces.
    has_job: bool,
}

impl Hashing {
    /// For a body of at most `len_max` bytes.
    pub(crate) fn new(digests: Digests, len_max: u64) -> Hashing {
        let is_inline = len_max <= INLINE_BYTES_MAX || !digests.is_heavy();
        let backlog = Backlog { waiting: Mutex::default(), room: Semaphore::new(BACKLOG_BYTES_MAX) };
        Hashing { digests: Some(digests), job: None, backlog: Arc::new(backlog), is_inline }
    }

    /// Queues the next piece; waits while the queue is full.
    pub(crate) async fn take(&mut self, piece: Bytes) -> Result<(), S3Error> {
        if self.is_inline {
            self.digests.as_mut().expect("inline digests never leave").update(&piece);
            return Ok(());
        }
        let room = self.backlog.room.acquire_many(room_of(&piece)).await;
        room.map_err(|_| S3Error::internal(&"a body could not be hashed"))?.forget();
        if self.backlog.add(piece) {
            let mut digests = self.settle().await?;
            let backlog = Arc::clone(&self.backlog);
            self.job = Some(tokio::task::spawn_blocking(move || {
                backlog.hash(&mut digests);
                digests
            }));
        }
        Ok(())
    }

    /// The digests of all pieces.
    pub(crate) async fn finish(mut self) -> Result<Digests, S3Error> {
        let mut digests = self.settle().await?;
        self.backlog.hash(&mut digests);
        Ok(digests)
    }

    /// Waits for the running job.
    async fn settle(&mut self) -> Result<Digests, S3Error> {
        match (self.digests.take(), self.job.take()) {
            (Some(digests), _) => Ok(digests),
            (None, Some(job)) => job.await.map_err(|error| S3Error::internal(&error)),
            (None, None) => Err(S3Error::internal(&"a body was hashed after an error")),
        }
    }
}

impl Backlog {
    /// Adds a piece that fits; returns whether a job must be started.
    fn add(&self, piece: Bytes) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.bytes += piece.len();
        waiting.pieces.push_back(piece);
        let begins = !waiting.has_job && waiting.bytes >= JOB_BYTES_MIN;
        waiting.has_job |= begins;
        begins
    }

    fn next(&self) -> Option<Bytes> {
        let mut waiting = self.waiting.lock();
        let piece = waiting.pieces.pop_front();
        match &piece {
            Some(piece) => waiting.bytes -= piece.len(),
            None => waiting.has_job = false,
        }
        piece
    }

    /// Hashes until the queue is empty.
    fn hash(&self, digests: &mut Digests) {
        let _closing = CloseOnPanic(&self.room);
        while let Some(piece) = self.next() {
            digests.update(&piece);
            self.room.add_permits(room_of(&piece) as usize);
        }
    }
}

/// If the job panics, tasks that wait for space must not wait for ever.
struct CloseOnPanic<'a>(&'a Semaphore);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

/// Queue space that a piece takes: at most the capacity of an empty queue.
fn room_of(piece: &Bytes) -> u32 {
    piece.len().min(BACKLOG_BYTES_MAX - JOB_BYTES_MIN) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::PayloadForm;
    use crate::body::{DigestPlan, Trailers, Want};

    #[tokio::test]
    async fn pieces_of_any_size_are_hashed_in_their_order() {
        let body: Vec<u8> = (0..3 << 20).map(|at| (at * 7 + at / 251) as u8).collect();
        let want = Want { md5: true, fallback: None };
        for size in [1000, JOB_BYTES_MIN - 1, JOB_BYTES_MIN, 300_000, body.len()] {
            let plan = DigestPlan::read(&http::HeaderMap::new(), &PayloadForm::Unsigned, want).unwrap();
            let mut hashing = Hashing::new(plan.digests(), body.len() as u64);
            for piece in body.chunks(size) {
                hashing.take(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            let computed = hashing.finish().await.unwrap().finish(&Trailers::default()).unwrap();
            let md5: [u8; 16] = <md5::Md5 as md5::Digest>::digest(&body).into();
            assert_eq!((computed.bytes, computed.md5), (body.len() as u64, Some(md5)), "pieces of {size}");
        }
    }
}
