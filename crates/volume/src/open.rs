//! The volume itself: what it is made of, how it opens, and how an operation runs.
//!
//! Why:        every operation is the same loop: read rows, decide, commit with what was read as preconditions,
//!             and on a conflict begin again; only its middle differs.
//! Invariants: V3 an answer is given when what it rests on is durable, refusals included.
//! Locking:    a key's latch before a directory's latch, both only to spare retries: what is right is decided by
//!             preconditions. Engine calls are made on the caller's thread; no latch is held across an await.
//! Not here:   the operations.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use margay_env::{Env, Timestamp};
use margay_meta::{Engine, Row, RowRef, Seq};
use margay_segment::Store;
use parking_lot::Mutex;

use crate::api::Error;
use crate::blocking::{Blocking, OnThisThread};
use crate::draft::Draft;
use crate::error::Refused;
use crate::inos::Inos;
use crate::key::{self, Ino};
use crate::paths::PathCache;
use crate::seen::Seen;

/// The layout of rows that this program reads and writes.
pub const FORMAT_VERSION: u32 = 1;
/// Times that an operation begins again after a conflict before it answers `Busy`.
const TRIES_MAX: u32 = 64;
/// From this try on, wait a little first.
const TRIES_WITHOUT_WAIT: u32 = 4;
/// Longest wait between tries, in microseconds.
const WAIT_US_MAX: u64 = 500;
/// Latches for removals; a directory uses one of them.
const LATCHES: usize = 64;
/// Latches for changes of one key; a key uses one of them.
const KEY_LATCHES: usize = 1024;

/// Settings and ports of a volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where reads that wait for a device run.
    pub blocking: Arc<dyn Blocking>,
    /// Bodies up to this many bytes travel with their commit, as far as the engine can take them.
    pub payload_bytes_max: usize,
    /// Longer bodies are stored as several runs of this many bytes.
    pub run_bytes_max: u64,
    /// Directories whose path is kept in memory.
    pub paths_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            blocking: Arc::new(OnThisThread),
            payload_bytes_max: 64 << 10,
            run_bytes_max: 1 << 30,
            paths_max: 16_384,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the volume has format {found}, this program knows formats up to {FORMAT_VERSION}: use a newer margay")]
    Newer { found: u32 },
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The file system. Cheap to share behind an `Arc`; every operation may run concurrently with every other.
/// Async operations answer only when what they report is durable.
#[derive(Debug)]
pub struct Volume {
    pub(crate) env: Env,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) store: Arc<Store>,
    pub(crate) options: Options,
    pub(crate) inos: Inos,
    pub(crate) paths: PathCache,
    /// Removals in one directory take turns, so that they do not conflict over who was the last.
    latches: Vec<Mutex<()>>,
    /// Changes of one key take turns, so that many writers of it do not conflict until they give up.
    key_latches: Vec<Mutex<()>>,
}

impl Volume {
    /// Opens the volume that the engine holds, or makes one in an empty engine, and drains what a crash left.
    pub fn open(
        env: Env,
        engine: Arc<dyn Engine>,
        store: Arc<Store>,
        options: Options,
    ) -> Result<Arc<Volume>, OpenError> {
        check_format(&*engine)?;
        let paths = PathCache::new(options.paths_max);
        let latches = |count| (0..count).map(|_| Mutex::new(())).collect();
        let (latches, key_latches) = (latches(LATCHES), latches(KEY_LATCHES));
        let volume = Volume { env, engine, store, options, inos: Inos::default(), paths, latches, key_latches };
        volume.drain_orphans()?;
        Ok(Arc::new(volume))
    }

    /// The engine below, for metrics and for tools.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The segment store below, for metrics and for tools.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    pub(crate) fn new_ino(&self) -> Result<Ino, Error> {
        self.inos.next(&*self.engine)
    }

    /// Taken before a directory's latch, never after.
    pub(crate) fn key_latch(&self, bucket: &str, directories: &str, name: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        (bucket, directories, name).hash(&mut hasher);
        &self.key_latches[hasher.finish() as usize % KEY_LATCHES]
    }

    pub(crate) fn latch(&self, directory: Ino) -> &Mutex<()> {
        &self.latches[directory.0 as usize % LATCHES]
    }

    /// Asked before rows are added; what removes or moves rows may use the room that is kept back.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        if self.engine.has_room() { Ok(()) } else { Err(Error::Full) }
    }

    pub(crate) fn commit(&self, draft: Draft) -> Result<Seq, Refused> {
        draft.commit(&*self.engine)
    }

    /// Runs `attempt` until it commits or is refused for good: a refusal counts when what it was decided on still
    /// holds.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut(&mut Seen) -> Result<T, Refused>) -> Result<T, Error> {
        for tries in 1..=TRIES_MAX {
            let mut seen = Seen::default();
            match attempt(&mut seen) {
                Ok(value) => return Ok(value),
                Err(Refused::Error(error @ (Error::Full | Error::ReadOnly(_) | Error::Io(_)))) => return Err(error),
                Err(Refused::Error(error)) if self.still(&seen)? => return Err(error),
                Err(_) => self.wait_a_little(tries),
            }
        }
        Err(Error::Busy)
    }

    fn wait_a_little(&self, tries: u32) {
        if tries >= TRIES_WITHOUT_WAIT {
            let longest = WAIT_US_MAX.min(1 << tries.min(20));
            self.env.clock.sleep(Duration::from_micros(self.env.random.next_u64() % longest));
        }
    }

    /// Waits until a change, or the reason of its refusal, is durable, and answers.
    pub(crate) async fn answer<T>(&self, done: Result<(T, Seq), Error>) -> Result<T, Error> {
        match done {
            Ok((value, seq)) => {
                self.settle(seq).await?;
                Ok(value)
            }
            Err(error @ (Error::Full | Error::ReadOnly(_) | Error::Io(_) | Error::Corrupt(_))) => Err(error),
            Err(error) => {
                self.settle(self.engine.last_seq()).await?;
                Err(error)
            }
        }
    }

    pub(crate) async fn settle(&self, seq: Seq) -> Result<(), Error> {
        if seq > self.engine.durable_seq() {
            self.engine.durable(seq).await?;
        }
        Ok(())
    }

    /// One row, noted in `seen`.
    pub(crate) fn get(&self, key: &[u8], seen: &mut Seen) -> Result<Option<Row>, Error> {
        let read = self.engine.get(key)?;
        seen.rises_to(read.observed);
        seen.row(key, read.value.as_ref().map(|row| row.version));
        Ok(read.value)
    }

    /// Visits rows until the visitor breaks; a value that does not decode ends the scan with an error.
    pub(crate) fn scan(
        &self,
        range: &key::Range,
        seen: &mut Seen,
        mut visit: impl FnMut(RowRef<'_>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let mut failed = None;
        let read = self.engine.scan(&range.0, &range.1, &mut |row| match visit(row) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        seen.rises_to(read.observed);
        failed.map_or(Ok(()), Err)
    }
}

fn check_format(engine: &dyn Engine) -> Result<(), OpenError> {
    let row = engine.get(&key::format()).map_err(Error::from)?.value;
    let Some(row) = row else {
        let mut draft = Draft::default();
        draft.assert_absent(key::format());
        draft.put(key::format(), FORMAT_VERSION.to_be_bytes().to_vec());
        return match draft.commit(engine) {
            Ok(seq) => Ok(engine.wait_durable(seq).map_err(Error::from)?),
            Err(Refused::Conflict) => check_format(engine),
            Err(Refused::Error(error)) => Err(error.into()),
        };
    };
    let found = row.value.as_ref().try_into().map(u32::from_be_bytes);
    match found {
        Ok(FORMAT_VERSION) => Ok(()),
        Ok(found) if found > FORMAT_VERSION => Err(OpenError::Newer { found }),
        _ => Err(Error::Corrupt("the format row holds no format".to_owned()).into()),
    }
}
