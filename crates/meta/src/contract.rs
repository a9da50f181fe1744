//! The contract between the file system and a metadata engine.
//!
//! Why:        one commit must be one serial step in the embedded engine and one call to PostgreSQL, so a batch
//!             carries its preconditions and blind counters with it and nobody holds a transaction open.
//! Invariants: M1 a batch is applied whole or not at all, and only if every precondition holds at its place in
//!                the order of commits.
//!             M2 rows are ordered by key bytes; a scan sees each row at one moment between its start and end.
//!             M3 each commit that puts a row gives it a version that no row had before. Versions are equal or not, and
//!                nothing else. `Add` and `Max` keep the row's version, so they conflict with nobody.
//!             M4 after `durable(c)` returned Ok, every commit up to cursor `c` survives a crash; a crash keeps a prefix
//!                of the commits.
//!             M5 after a storage fault every later commit fails with `Poisoned`; reads go on.
//!             M6 a commit that was begun goes on without its future, and its caller is told how it ended.
//!             M7 after `Unavailable` nothing was done. After `Unknown` a commit was applied or may be yet; once `outcome`
//!                has said that it is void, it never will be. Only an engine that waits answers either.
//! Not here:   how an engine does it.

use std::fmt::Debug;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use margay_segment::SegmentId;

use crate::feed::{FeedError, FeedPage};
use crate::read::{Answers, Ask, ReadLimit};

/// A place in the order of commits; 0 is before the first. What it counts is the engine's own matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub u64);

/// Which commit last put a row. Of two versions all that can be said is whether they are equal: in some engines a later
/// commit has a smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowVersion(u64);

impl RowVersion {
    /// For engines, and for whoever was given the bits.
    pub const fn from_bits(bits: u64) -> RowVersion {
        RowVersion(bits)
    }

    /// To be kept or sent, and compared for being equal.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// What a commit gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place, to be waited for until it is durable.
    pub cursor: Cursor,
    /// The version of every row that it put.
    pub version: RowVersion,
    /// Where its payload landed, if it had one.
    pub payload: Option<PayloadLocation>,
}

/// By which the process that made a commit asks what became of it. Made by the engine before the commit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitToken {
    /// The connection that sent it, by a number that the volume keeps.
    pub lane: u64,
    /// Which of its commits it is.
    pub call: u64,
}

/// What became of a commit whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed(Committed),
    /// It was not applied, and never will be.
    Void,
}

/// Where an engine put the payload of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLocation {
    pub segment: SegmentId,
    /// In that segment, in bytes.
    pub offset: u64,
}

/// Longest key that every engine takes, in bytes: a B-tree of PostgreSQL takes 2704.
pub const KEY_BYTES_MAX: usize = 2600;
/// Longest key that an engine takes which may hold rows of before the limit above, in bytes.
pub const OLD_KEY_BYTES_MAX: usize = 4096;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Most writes in one batch.
pub const BATCH_WRITES_MAX: usize = 65_536;
/// Most payload bytes in one batch: 1 MiB and its checksums.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 20) + 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub value: Bytes,
    pub version: RowVersion,
}

/// A row as a scan shows it; valid during the visit only.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub version: RowVersion,
}

/// What a read found, and the newest commit that its answer depends on (also of a deletion that it saw).
/// An answer given to somebody who may act on it is durable first: `durable(observed)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<T> {
    pub value: T,
    pub observed: Cursor,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The row exists and has this version.
    Version {
        key: Vec<u8>,
        version: RowVersion,
    },
    Exists {
        key: Vec<u8>,
    },
    Absent {
        key: Vec<u8>,
    },
    /// No row in `start..end`.
    RangeEmpty {
        start: Vec<u8>,
        end: Vec<u8>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// Fine when the row is absent.
    Delete {
        key: Vec<u8>,
    },
    /// Adds to a row that holds an `i64` in 8 little-endian bytes; an absent row counts as 0. The row stays when
    /// the sum is 0. Wrapping is an engine error.
    Add {
        key: Vec<u8>,
        delta: i64,
    },
    /// Raises a row that holds a `u64` in 8 little-endian bytes; an absent row counts as 0.
    Max {
        key: Vec<u8>,
        at_least: u64,
    },
}

impl Write {
    pub fn key(&self) -> &[u8] {
        match self {
            Write::Put { key, .. } | Write::Delete { key } | Write::Add { key, .. } | Write::Max { key, .. } => key,
        }
    }
}

/// Bytes that go into the engine's log together with the commit that names them (one sync for both).
///
/// Where they land is known only when the commit has its place, so the batch says which bytes to fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    pub bytes: Bytes,
    pub places: Vec<PositionField>,
}

/// Eight bytes, big-endian, that the engine overwrites with the payload's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionField {
    /// Index into `Batch::writes`.
    pub write: usize,
    pub field: Field,
    /// Where in the key or value the eight bytes begin.
    pub at: usize,
    pub what: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Key,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Id of the segment that holds the payload.
    Segment,
    /// Offset of the payload in that segment, in bytes.
    Offset,
}

/// All or nothing. No key may be written twice in one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub preconditions: Vec<Precondition>,
    pub writes: Vec<Write>,
    pub payload: Option<Payload>,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The precondition with this index did not hold; nothing was written. Read again and decide again.
    #[error("precondition {precondition} does not hold")]
    Conflict { precondition: usize },
    /// The disk has no room; nothing was written.
    #[error("no space left for metadata")]
    Full,
    /// The batch breaks a rule of the contract.
    #[error("invalid batch: {0}")]
    Invalid(&'static str),
    /// The answer was lost: ask [`Engine::outcome`] before anything else.
    #[error("the outcome of commit {} of lane {} is unknown", .0.call, .0.lane)]
    Unknown(CommitToken),
    #[error(transparent)]
    Failed(#[from] EngineError),
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A write or sync failed earlier; what was not acknowledged is unknown. Only a restart helps.
    #[error("metadata is read-only after a storage fault: {0}")]
    Poisoned(String),
    /// There is no answer for now, as during a fail-over. Nothing was done: try again.
    #[error("metadata is unavailable: {0}")]
    Unavailable(String),
    #[error("metadata storage: {0}")]
    Io(#[from] std::io::Error),
    /// Stored bytes do not decode.
    #[error("metadata is damaged: {0}")]
    Corrupt(String),
}

impl EngineError {
    /// Nothing is wrong but that the disk has no room.
    pub fn is_full(&self) -> bool {
        matches!(self, EngineError::Io(error) if error.kind() == std::io::ErrorKind::StorageFull)
    }
}

/// What a check of the engine's own storage found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pages of rows read from the disk, and their bytes.
    pub pages: u64,
    pub bytes: u64,
    /// Where the page lies that was read last: offset and length in its file.
    pub last: (u64, u64),
    /// Places that cannot be read as they were written.
    pub damaged: u64,
    /// The first of them, with the keys between which they lie.
    pub shown: Vec<String>,
    /// Each page has a checksum that is compared when the page is read.
    pub complete: bool,
}

/// An answer that comes later.
pub type EngineFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Told what became of a commit.
pub type CommitTold = Box<dyn FnOnce(&Result<Committed, CommitError>) + Send>;

pub type DurableFuture<'a> = EngineFuture<'a, Result<(), EngineError>>;

/// An engine. `get`, `scan`, `read` and `commit` block the calling thread until the answer has come; see each engine for
/// how long.
pub trait Engine: Send + Sync + Debug {
    /// Whether an answer comes from somewhere else, so that a caller with other work should not block on it. Calls of
    /// an engine that does not wait return at once, but for what its own disk takes.
    fn waits(&self) -> bool {
        false
    }

    /// As [`Engine::read`], without blocking the thread.
    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        assert!(!self.waits(), "an engine that waits has its own");
        let answers = self.read(&asks, limit);
        Box::pin(std::future::ready(answers))
    }

    /// As [`Engine::commit`], without blocking the thread. `told` is called once with what became of the commit, before the
    /// future gives it; also when the future was dropped meanwhile, since that does not stop the commit (M6).
    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        assert!(!self.waits(), "an engine that waits has its own");
        let done = self.commit(batch);
        told(&done);
        Box::pin(std::future::ready(done))
    }

    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError>;

    /// Visits rows of `start..end` in key order until the visitor breaks. The visitor must not call the engine.
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError>;

    /// Answers several questions in one call; see [`crate::read`].
    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError>;

    /// Checks and applies; visible to every later read when it returns, durable only after [`Engine::durable`].
    fn commit(&self, batch: Batch) -> Result<Committed, CommitError>;

    /// What became of a commit of this process whose answer was lost (M7).
    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        assert!(!self.waits(), "an engine that waits has its own");
        Err(EngineError::Io(std::io::Error::other(format!("nothing is unknown of {token:?}"))))
    }

    /// Resolves when all commits up to `cursor` are on stable storage.
    fn durable(&self, cursor: Cursor) -> DurableFuture<'_>;

    /// As [`Engine::durable`], blocking this thread.
    fn wait_durable(&self, cursor: Cursor) -> Result<(), EngineError>;

    /// The newest commit that this process knows of, and the newest durable one. Others may have made later ones.
    fn last_cursor(&self) -> Cursor;
    fn durable_cursor(&self) -> Cursor;

    /// Nothing was committed since `last_cursor` gave this, by anybody; false also when the engine cannot know.
    fn unchanged_since(&self, cursor: Cursor) -> bool;

    /// Durable commits behind `after`, oldest first, at most `limit`; see [`crate::feed`].
    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError>;

    /// Resolves when there are changes behind `after`; holds no thread. Fails when there will be none.
    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>>;

    /// Whether other processes, or other volumes of this one, commit here too. Then each has a session, jobs run under
    /// leases, and somebody follows the feed.
    fn is_shared(&self) -> bool {
        false
    }

    /// Longest key that it takes, in bytes: `KEY_BYTES_MAX`, or more where older rows must stay writable.
    fn key_bytes_max(&self) -> usize {
        KEY_BYTES_MAX
    }

    /// Largest payload that a batch may carry; 0 when this engine has no log of its own.
    fn payload_bytes_max(&self) -> usize;

    /// Whether the disk has room for commits that add rows. Those that only remove or move rows may be made without
    /// asking: the room kept back is for them.
    fn has_room(&self) -> bool {
        true
    }

    /// All rows as they were at one moment, which is not before the call, with every commit up to it durable. For long
    /// reads; it takes no commits. May checkpoint first.
    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError>;

    /// Reads all stored rows from the disk and compares their checksums; `pace` is told after each page, and may wait
    /// or end the check. Runs beside everything else. An engine that keeps no files has nothing to check.
    fn check_storage(
        &self,
        _shown_max: usize,
        _pace: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<Checked, EngineError> {
        Ok(Checked { complete: true, ..Checked::default() })
    }

    /// Folds what is in the log into the long-term store, so that log files can be let go.
    fn checkpoint(&self) -> Result<(), EngineError>;
}
