//! The segment files of one data directory: made, read, removed.
//!
//! API draft (to be completed; names and shapes are relied on by meta and volume).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::{Env, File};

use crate::{Extent, Run, SegmentId};

/// What a segment file holds; its file name's ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of the metadata log with small payloads between them; written by `meta`.
    Log,
    /// Many small runs.
    Pack,
    /// One large run whose payload begins at offset 0.
    Raw,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that holds the segment files.
    pub folder: PathBuf,
    /// A pack is sealed at this size, in bytes.
    pub pack_bytes_max: u64,
    /// Runs of at least this many bytes get a raw segment of their own.
    pub raw_bytes_min: u64,
    /// Data writes fail with `Full` when the file system has less than this many bytes free.
    pub reserve_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("no space left for data")]
    Full,
    #[error("segment {segment:?} is damaged at byte {offset}: {what}")]
    Corrupt { segment: SegmentId, offset: u64, what: &'static str },
    #[error("segment {0:?} does not exist")]
    Missing(SegmentId),
    /// A sync failed earlier; data can be read but not written until a restart.
    #[error("data is read-only after a storage fault: {0}")]
    Poisoned(String),
    #[error("segment storage: {0}")]
    Io(#[from] io::Error),
}

#[derive(Clone, Copy, Debug)]
pub struct SegmentInfo {
    pub id: SegmentId,
    pub kind: Kind,
    /// Length of the file in bytes.
    pub len: u64,
    /// Whether writes may still be appended to it.
    pub open: bool,
}

/// Cheap to share; all calls may run concurrently.
#[derive(Debug)]
pub struct Store {}

/// A run being written: space is reserved, bytes arrive in order. Dropping it gives the space up.
#[derive(Debug)]
pub struct RunWriter {}

#[allow(unused_variables, reason = "draft")]
impl Store {
    /// Opens the folder (made when absent), finds every segment file and continues ids after the largest.
    pub fn open(env: Env, options: Options) -> Result<Arc<Store>, SegmentError> {
        todo!()
    }
    /// A fresh id; never given twice, also across restarts (the caller makes the file before it names the id).
    pub fn next_id(&self) -> SegmentId {
        todo!()
    }
    /// Makes the file of a log segment for `meta`: allocated to `len` bytes, its name durable.
    pub fn create_log(&self, len: u64) -> Result<(SegmentId, Arc<dyn File>), SegmentError> {
        todo!()
    }
    /// Log segments that exist, ordered by id.
    pub fn logs(&self) -> Vec<SegmentInfo> {
        todo!()
    }
    pub fn segments(&self) -> Vec<SegmentInfo> {
        todo!()
    }
    pub fn file(&self, id: SegmentId) -> Result<Arc<dyn File>, SegmentError> {
        todo!()
    }
    /// Reserves space for a run of exactly `len` payload bytes. `owner` goes into the run's header, for fsck.
    pub fn begin_run(&self, len: u64, owner: &[u8]) -> Result<RunWriter, SegmentError> {
        todo!()
    }
    /// Resolves when all that was written to the segment before the call is durable (syncs are shared).
    pub async fn sync(&self, id: SegmentId) -> Result<(), SegmentError> {
        todo!()
    }
    /// Reads and verifies `len` bytes of the extent from `skip` within the extent on. Blocks on the device.
    pub fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        todo!()
    }
    /// As `read`, but `None` when the bytes are not in memory.
    pub fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError> {
        todo!()
    }
    /// Removes the file; open readers keep their bytes. Ids are not reused.
    pub fn remove(&self, id: SegmentId) -> Result<(), SegmentError> {
        todo!()
    }
}

#[allow(unused_variables, reason = "draft")]
impl RunWriter {
    pub fn segment(&self) -> SegmentId {
        todo!()
    }
    /// Appends; more than the reserved length is an error.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SegmentError> {
        todo!()
    }
    /// Ends the run (all reserved bytes must have been written); durable after `Store::sync(segment)`.
    pub fn finish(self) -> Result<Run, SegmentError> {
        todo!()
    }
}
