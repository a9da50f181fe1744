//! The contract between the file system and a metadata engine.
//!
//! Why:        a commit is one serial step or one call to PostgreSQL: no transaction is held open (docs/design/0003).
//! Invariants: M1 a batch is applied as a whole, and only if all preconditions hold at its position in the order.
//!             M2 rows are ordered by key bytes; a scan sees each row as of one moment between its start and its end.
//!             M3 each commit gives the rows that it puts a new version; the version of a counter means nothing.
//!             M4 after `durable(c)` returned Ok, a crash keeps every commit up to `c`; it always keeps a prefix.
//!             M5 after a storage fault every commit fails with `Poisoned`; reads work.
//!             M6 a commit continues when its future is dropped.  M7 after `Unavailable` nothing was done; after
//!                `Unknown` the commit may be applied at any time, until `outcome` says that it is void.
//!             M8 each write fits the kind of its row, and preconditions are about plain rows (kind).

use std::fmt::Debug;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use margay_segment::SegmentId;

use crate::feed::{FeedError, FeedPage};
use crate::read::{Answers, Ask, ReadLimit};

/// A position in the order of commits; 0 is before the first. Its unit depends on the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub u64);

/// Identifies the commit that last put a row. Versions compare only for equality: in some engines a later commit has a
/// smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowVersion(u64);

impl RowVersion {
    /// For engines, and for callers that stored the bits.
    pub const fn from_bits(bits: u64) -> RowVersion {
        RowVersion(bits)
    }

    /// For storing or sending a version that is later compared.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its position; wait until it is durable.
    pub cursor: Cursor,
    /// The version of all rows that it put.
    pub version: RowVersion,
    /// Location of its payload, if it had one.
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

/// Location of a batch's payload in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLocation {
    pub segment: SegmentId,
    /// Within the segment, in bytes.
    pub offset: u64,
}

/// Longest key that every engine takes, in bytes: a B-tree of PostgreSQL takes 2704.
pub const KEY_BYTES_MAX: usize = 2600;
/// Longest key that an engine takes which may hold rows of before the limit above, in bytes.
pub const OLD_KEY_BYTES_MAX: usize = 4096;
/// Maximum length of a value, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of writes in a batch.
pub const BATCH_WRITES_MAX: usize = 65_536;
/// Maximum payload of a batch, in bytes: 1 MiB and its checksums.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 20) + 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub value: Bytes,
    /// Means nothing if the row is a counter.
    pub version: RowVersion,
}

/// A row during a scan; valid only within the visitor.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// As in [`Row`].
    pub version: RowVersion,
}

/// Result of a read, and the newest commit that it depends on (including deletions that it saw). Before anybody may act
/// on the result, `durable(observed)` must have resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<T> {
    pub value: T,
    pub observed: Cursor,
}

/// About plain rows only (M8).
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
    /// No row exists in `start..end`.
    RangeEmpty {
        start: Vec<u8>,
        end: Vec<u8>,
        guard: Guard,
    },
}

/// What an engine without locks on ranges locks instead of a range, for this batch alone. Other batches lock what they
/// assert together, and what they put, set, delete or name as a guard alone; so it sees every row that was created in
/// the range. See docs/design/0027.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Every batch that creates a row in the range asserts, writes or names this key. There need not be such a row.
    Key(Vec<u8>),
    /// Every batch that creates a row in the range asserts or writes one of the rows that this batch puts or deletes.
    Written,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Of a plain row.
    Put { key: Vec<u8>, value: Vec<u8> },
    /// Does nothing if the row is absent.
    Delete { key: Vec<u8> },
    /// Replaces a counter, whatever it was.
    Set { key: Vec<u8>, value: [u8; 8] },
    /// Adds to a counter that holds an `i64` in 8 little-endian bytes; an absent row counts as 0. A sum of 0 does not
    /// remove the row. An overflow is an engine error.
    Add { key: Vec<u8>, delta: i64 },
    /// Raises a counter that holds a `u64` in 8 little-endian bytes; an absent row counts as 0.
    Max { key: Vec<u8>, at_least: u64 },
}

impl Write {
    pub fn key(&self) -> &[u8] {
        match self {
            Write::Put { key, .. }
            | Write::Delete { key }
            | Write::Set { key, .. }
            | Write::Add { key, .. }
            | Write::Max { key, .. } => key,
        }
    }

    pub fn key_mut(&mut self) -> &mut [u8] {
        match self {
            Write::Put { key, .. }
            | Write::Delete { key }
            | Write::Set { key, .. }
            | Write::Add { key, .. }
            | Write::Max { key, .. } => key,
        }
    }

    /// Whether the feed shows it, and other batches wait for it: all but the changes that any number of batches make to
    /// one counter at the same time.
    pub fn is_exclusive(&self) -> bool {
        !matches!(self, Write::Add { .. } | Write::Max { .. })
    }
}

/// Bytes that go into the engine's log in the same record as the commit that refers to them (one sync for both).
///
/// Their location is known only when the commit has its position, so the batch names the fields that the engine must
/// fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    pub bytes: Bytes,
    pub places: Vec<PositionField>,
}

/// Eight bytes, big-endian, that the engine overwrites with the payload's segment or offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionField {
    /// Index into `Batch::writes`.
    pub write: usize,
    pub field: Field,
    /// Index of the first of the eight bytes in the key, behind its table, or in the value of a `Put`.
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

/// Applied as a whole or not at all. A batch must not write a key twice.
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
    /// The disk is full; nothing was written.
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
    /// An earlier write or sync failed; the state of unacknowledged commits is unknown. Only a restart helps.
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
    /// Whether a full disk is the only problem.
    pub fn is_full(&self) -> bool {
        matches!(self, EngineError::Io(error) if error.kind() == std::io::ErrorKind::StorageFull)
    }
}

/// Progress and findings of a check of the engine's own storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pages of rows read from the disk, and their bytes.
    pub pages: u64,
    pub bytes: u64,
    /// Location of the page that was read last: offset and length in its file.
    pub last: (u64, u64),
    /// Number of damaged locations.
    pub damaged: u64,
    /// The first of them, with the keys before and after.
    pub shown: Vec<String>,
    /// Whether every page has a checksum that reads verify.
    pub complete: bool,
}

/// A result that becomes available later.
pub type EngineFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Callback with the result of a commit.
pub type CommitTold = Box<dyn FnOnce(&Result<Committed, CommitError>) + Send>;

pub type DurableFuture<'a> = EngineFuture<'a, Result<(), EngineError>>;

/// A metadata engine. `get`, `scan`, `read` and `commit` block the calling thread until the result is there; each
/// engine says how long.
pub trait Engine: Send + Sync + Debug {
    /// Whether results come from another machine, so that a caller with other work should not block. If false, calls
    /// return after local disk I/O at most.
    fn waits(&self) -> bool {
        false
    }

    /// As [`Engine::read`], without blocking the thread.
    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        assert!(!self.waits(), "an engine that waits has its own");
        let answers = self.read(&asks, limit);
        Box::pin(std::future::ready(answers))
    }

    /// As [`Engine::commit`], without blocking the thread. `told` is called once with the result, before the future
    /// resolves; also if the future was dropped, because that does not stop the commit (M6).
    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        assert!(!self.waits(), "an engine that waits has its own");
        let done = self.commit(batch);
        told(&done);
        Box::pin(std::future::ready(done))
    }

    /// One row. Beside [`Engine::read`], which does the same for an engine that waits, because on the spot neither this
    /// nor a scan has to copy keys, or rows that are only looked at.
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError>;

    /// Visits rows of `start..end` in key order until the visitor breaks. The visitor must not call the engine.
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError>;

    /// Answers several reads in one call; see [`crate::read`].
    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError>;

    /// Checks and applies a batch. It is visible to later reads when this returns, and durable only after
    /// [`Engine::durable`].
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

    /// The newest commit that this process knows. Other processes may have committed later.
    fn last_cursor(&self) -> Cursor;
    fn durable_cursor(&self) -> Cursor;

    /// No commit that an answer has shown so far is behind it, and each commit of this process that is not made yet will be. Where other
    /// processes commit it may be ahead of `last_cursor`.
    fn seen_cursor(&self) -> Cursor {
        self.last_cursor()
    }

    /// Where a follower begins: each commit up to it is visible to all reads that begin later, and `changes` will show the others.
    fn feed_start(&self) -> Result<Cursor, EngineError> {
        Ok(self.durable_cursor())
    }

    /// Whether there was no commit, by any process, since `last_cursor` returned this; false also if the engine cannot
    /// know.
    fn unchanged_since(&self, cursor: Cursor) -> bool;

    /// Durable commits after `after`, oldest first, at most `limit`; see [`crate::feed`].
    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError>;

    /// Blocks this thread until `changes` shows each durable commit that a read before this call may have seen.
    fn wait_feed(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Resolves when there are changes after `after`, without blocking a thread. Fails when there can be no more.
    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>>;

    /// Whether other processes, or other volumes in this process, commit to this engine. Then each has a session, jobs
    /// need leases, and a follower reads the feed.
    fn is_shared(&self) -> bool {
        false
    }

    /// Longest key that it takes, in bytes: `KEY_BYTES_MAX`, or more where older rows must stay writable.
    fn key_bytes_max(&self) -> usize {
        KEY_BYTES_MAX
    }

    /// Maximum payload of a batch; 0 if this engine has no log of its own.
    fn payload_bytes_max(&self) -> usize;

    /// Whether the disk has space for commits that add rows. Commits that only remove or move rows need not ask:
    /// reserved space is left for them.
    fn has_room(&self) -> bool {
        true
    }

    /// All rows as of one moment, not before the call, with every commit up to it durable. For long reads; it accepts
    /// no commits. May checkpoint first.
    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError>;

    /// Reads all stored rows from the disk and verifies their checksums. `pace` is called after each page, and may wait
    /// or end the check. Runs concurrently with all other calls. An engine without files has nothing to check.
    fn check_storage(
        &self,
        _shown_max: usize,
        _pace: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<Checked, EngineError> {
        Ok(Checked { complete: true, ..Checked::default() })
    }

    /// Folds the log into the B-tree or its equivalent, so that log files can be released.
    fn checkpoint(&self) -> Result<(), EngineError>;
}
