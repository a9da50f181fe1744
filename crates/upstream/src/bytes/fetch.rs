//! Fetches blocks that follow one another in one request, unless they are on disk.
//!
//! Invariants: F1 every slot is filled, with an error if the request ends without an answer.
//!             F2 each request asks for the ETag that the rows name now; the object may move between finding and reading it.
//! Not here:   which blocks (the store).

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use margay_client::ClientError;
use margay_client::upstream::{Upstream, Wanted};
use margay_segment::SegmentId;

use super::cache::{BLOCK_BYTES, BlockCache, Slot};
use super::disk::DiskBlocks;
use super::{FAR_STORE, FarObject, Objects};
use crate::silence::{SILENT_LOOK_EVERY, SILENT_TIME_MAX, told, unless_silent};

/// A rename in the bucket may move an object between finding and reading it.
const TRIES_MAX: usize = 3;

/// Why a block could not be fetched; every reader that waits for it is told.
type Failed = (ErrorKind, String);

/// Where blocks come from, and where they are kept.
#[derive(Clone, Debug)]
pub(super) struct Fetcher {
    pub(super) bucket: Upstream,
    pub(super) objects: Arc<dyn Objects>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) disk: Option<Arc<DiskBlocks>>,
}

/// The slot of a block that somebody fills.
pub(super) struct Filling(Arc<Slot>);

impl Filling {
    pub(super) fn new(slot: &Arc<Slot>) -> Filling {
        Filling(Arc::clone(slot))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.fill_if_empty(Err((ErrorKind::Interrupted, "the mount ends".to_owned())));
    }
}

impl Fetcher {
    /// Fills the slots of these blocks, the first of which has this index.
    pub(super) async fn fill(self, id: SegmentId, first: u64, slots: Vec<Filling>) {
        let end = first + slots.len() as u64;
        let blocks = match self.fetch(id, first..end).await {
            Ok(blocks) => blocks.into_iter().map(Ok).collect(),
            Err(failed) => {
                // The next reader asks again.
                (first..end).for_each(|index| self.cache.forget(id, index));
                vec![Err(failed); slots.len()]
            }
        };
        assert_eq!(blocks.len(), slots.len(), "a fetch gives each block");
        slots.iter().zip(blocks).for_each(|(slot, block)| slot.0.fill(block));
    }

    async fn fetch(&self, id: SegmentId, indexes: Range<u64>) -> Result<Vec<Bytes>, Failed> {
        let number = id.0 - FAR_STORE.ids().0.0;
        let mut last = None;
        for _ in 0..TRIES_MAX {
            let found = self.objects.find(number).map_err(|error| (ErrorKind::Other, error.to_string()))?;
            let Some(object) = found.filter(|found| last.as_ref() != Some(found)) else { break };
            let range = indexes.start * BLOCK_BYTES..object.size.min(indexes.end * BLOCK_BYTES);
            let blocks = range.end.saturating_sub(range.start).div_ceil(BLOCK_BYTES);
            if blocks != indexes.end - indexes.start {
                return Err((ErrorKind::InvalidData, "the object has fewer bytes".to_owned()));
            }
            if let Some(blocks) = self.kept(number, &indexes, &object).await {
                return Ok(blocks);
            }
            let get = self.bucket.get(&object.key, range, Wanted::Same(&object.etag));
            let silent = || self.bucket.meter().contact().silent.map(|silence| silence.since);
            let Some(got) = unless_silent(get, silent, SILENT_TIME_MAX, SILENT_LOOK_EVERY).await else {
                return Err(self.unanswered("no answer"));
            };
            match got {
                Ok(Some(fetched)) => return Ok(self.cut(number, indexes.start, &object, &fetched.bytes)),
                Ok(None) => return Err((ErrorKind::InvalidData, "an answer without bytes".to_owned())),
                // It may have moved since.
                Err(error) if matches!(error.status(), Some(404 | 412)) => last = Some(object),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        self.objects.note_replaced(number);
        Err((ErrorKind::StaleNetworkFileHandle, "the object was changed or removed in the bucket".to_owned()))
    }

    /// The blocks, if all of them are on disk, of this state of the object.
    async fn kept(&self, number: u64, indexes: &Range<u64>, object: &FarObject) -> Option<Vec<Bytes>> {
        let disk = self.disk.as_ref().filter(|disk| indexes.clone().all(|index| disk.has((number, index))))?;
        let (disk, indexes, etag, size) = (Arc::clone(disk), indexes.clone(), object.etag.clone(), object.size);
        let read = move || -> Option<Vec<Bytes>> {
            let block = |index: u64| {
                let len = (size - index * BLOCK_BYTES).min(BLOCK_BYTES);
                disk.get((number, index), &etag).filter(|block| block.len() as u64 == len)
            };
            indexes.map(block).collect()
        };
        tokio::task::spawn_blocking(read).await.ok()?
    }

    fn failed(&self, error: &ClientError) -> Failed {
        match error.status() {
            Some(403) => (ErrorKind::PermissionDenied, error.to_string()),
            _ if error.is_unanswered() => self.unanswered(&error.to_string()),
            _ => (ErrorKind::Other, error.to_string()),
        }
    }

    fn unanswered(&self, why: &str) -> Failed {
        let why = told(&self.bucket).unwrap_or_else(|| format!("the bucket {}: {why}", self.bucket.name()));
        (ErrorKind::TimedOut, why)
    }

    /// Cuts an answer into blocks, and has them written to disk later.
    fn cut(&self, number: u64, first: u64, object: &FarObject, bytes: &Bytes) -> Vec<Bytes> {
        let starts = (0..bytes.len()).step_by(BLOCK_BYTES as usize);
        let blocks: Vec<Bytes> =
            starts.map(|start| bytes.slice(start..bytes.len().min(start + BLOCK_BYTES as usize))).collect();
        if let Some(disk) = self.disk.clone().filter(|disk| disk.takes(object.size)) {
            let (blocks, etag) = (blocks.clone(), object.etag.clone());
            tokio::task::spawn_blocking(move || {
                for (index, block) in (first..).zip(&blocks) {
                    disk.put((number, index), &etag, block);
                }
            });
        }
        blocks
    }
}
