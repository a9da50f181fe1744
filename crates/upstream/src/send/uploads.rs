//! Uploads that were begun and have not ended, and where the bytes of large objects were when they were sent.
//!
//! Invariants: U1 an upload has a durable row before a part of it is sent, and the row goes when the upload has ended: what a
//!                process that ended has left is aborted by the next one.
//!             U2 a file has one upload at most.
//! Locking:    short mutexes, never over a request.
//! Not here:   which parts are sent (parts, ahead).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use margay_client::upstream::{Metadata, OpenUpload};
use margay_meta::{Engine, EngineError, Write};
use margay_rows::record::UpstreamUpload;
use margay_rows::{Ino, key};
use margay_volume::posix::Place;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::Sender;
use super::request::Unsent;
use crate::tracked::{commit, visit_rows};

/// Parts of open files in progress, of all files.
const AHEAD_AT_ONCE: usize = 12;
/// Large objects of which the places are kept.
const PLACED_MAX: usize = 1000;

/// How large files are cut.
#[derive(Clone, Copy, Debug)]
pub struct PartSizes {
    /// Larger objects are sent in parts.
    pub one_put_bytes_max: u64,
    /// Of a part, where they are not too many.
    pub part_bytes: u64,
    /// The store copies no larger object in one request.
    pub copy_bytes_max: u64,
    /// How often it is looked which parts of open files may go.
    pub look_every: Duration,
}

impl Default for PartSizes {
    fn default() -> PartSizes {
        PartSizes {
            one_put_bytes_max: 16 << 20,
            part_bytes: 8 << 20,
            copy_bytes_max: 5 << 30,
            look_every: Duration::from_millis(50),
        }
    }
}

/// A part that the store has.
#[derive(Debug)]
pub(super) struct SentPart {
    pub(super) places: Vec<Place>,
    pub(super) etag: String,
}

/// An upload of a file.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) upload: OpenUpload,
    row: u64,
    pub(super) part_bytes: u64,
    /// The last change of the state whose metadata and key it has; `None`: it is at a temporary key, for any state.
    pub(super) changed: Option<u64>,
    pub(super) parts: BTreeMap<u32, SentPart>,
    /// The content that its object has, and the ETag.
    pub(super) completed: Option<(u64, String)>,
}

/// Tells a task to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: AtomicBool,
    pub(super) told: Notify,
}

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.told.notify_one();
    }
}

#[derive(Debug)]
enum Kept {
    Parked(Box<Begun>),
    /// Parts of the open file are being sent.
    Running(Arc<Stop>, JoinHandle<Option<Begun>>),
}

/// Where the bytes of an object were when they were sent.
#[derive(Debug)]
pub(super) struct Placed {
    etag: String,
    pub(super) places: Vec<Place>,
}

#[derive(Debug)]
pub(crate) struct Uploads {
    kept: Mutex<HashMap<Ino, Kept>>,
    placed: Mutex<HashMap<Ino, Arc<Placed>>>,
    /// Rows of earlier processes.
    old: Mutex<Vec<(u64, OpenUpload)>>,
    next_row: AtomicU64,
    pub(super) ahead: Arc<Semaphore>,
    /// Open files are to be looked at now.
    pub(crate) looks: Notify,
}

impl Uploads {
    /// Reads what earlier processes have left.
    pub(crate) fn read(engine: &dyn Engine) -> Result<Uploads, EngineError> {
        let mut old = Vec::new();
        visit_rows(engine, &key::all_upstream_uploads(), |key, value| {
            let UpstreamUpload { key: object_key, id } = UpstreamUpload::decode(value)?;
            old.push((key::parse_upstream(key)?.0, OpenUpload { key: object_key, id }));
            Ok(())
        })?;
        let next_row = old.iter().map(|(number, _)| number + 1).max().unwrap_or(1).into();
        let ahead = Arc::new(Semaphore::new(AHEAD_AT_ONCE));
        let (kept, placed, old, looks) = (Mutex::default(), Mutex::default(), Mutex::new(old), Notify::new());
        Ok(Uploads { kept, placed, old, next_row, ahead, looks })
    }

    /// A number for the temporary key of an upload of this process.
    pub(super) fn ahead_number(&self) -> u64 {
        self.next_row.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, file: Ino) -> bool {
        self.kept.lock().contains_key(&file)
    }

    pub(super) fn files(&self) -> Vec<Ino> {
        self.kept.lock().keys().copied().collect()
    }

    pub(super) fn park(&self, file: Ino, begun: Begun) {
        self.kept.lock().insert(file, Kept::Parked(Box::new(begun)));
    }

    pub(super) fn runs(&self, file: Ino, stop: Arc<Stop>, task: JoinHandle<Option<Begun>>) {
        self.kept.lock().insert(file, Kept::Running(stop, task));
    }

    /// The upload of a file, when its parts in progress have ended.
    pub(super) async fn take(&self, file: Ino) -> Option<Begun> {
        let kept = self.kept.lock().remove(&file)?;
        match kept {
            Kept::Parked(begun) => Some(*begun),
            Kept::Running(stop, task) => {
                stop.set();
                task.await.ok().flatten()
            }
        }
    }

    /// The places of the object with this ETag.
    pub(super) fn placed(&self, file: Ino, etag: &str) -> Option<Arc<Placed>> {
        self.placed.lock().get(&file).filter(|placed| placed.etag == etag).cloned()
    }

    pub(super) fn set_placed(&self, file: Ino, etag: &str, places: Vec<Place>) {
        let mut placed = self.placed.lock();
        if placed.len() >= PLACED_MAX {
            // What is forgotten is sent as a whole again.
            placed.clear();
        }
        placed.insert(file, Arc::new(Placed { etag: etag.to_owned(), places }));
    }

    pub(super) fn forget_placed(&self, file: Ino) {
        self.placed.lock().remove(&file);
    }
}

impl Sender {
    pub(super) async fn begin_upload(
        &self,
        key: &str,
        metadata: &Metadata,
        part_bytes: u64,
        changed: Option<u64>,
    ) -> Result<Begun, Unsent> {
        let local = |error: EngineError| Unsent::Local(error.to_string());
        let upload = self.upstream.begin_upload(key, metadata).await?;
        let row = self.uploads.next_row.fetch_add(1, Ordering::Relaxed);
        let value = UpstreamUpload { key: upload.key.clone(), id: upload.id.clone() }.encode();
        let below = &self.tracked.below;
        commit(&**below, vec![Write::Put { key: key::upstream_upload(row), value }]).map_err(local)?;
        below.durable(below.last_cursor()).await.map_err(local)?;
        Ok(Begun { upload, row, part_bytes, changed, parts: BTreeMap::new(), completed: None })
    }

    /// It was completed or aborted.
    pub(super) fn upload_ended(&self, begun: &Begun) {
        self.remove_row(begun.row);
    }

    fn remove_row(&self, row: u64) {
        if let Err(error) = commit(&*self.tracked.below, vec![Write::Delete { key: key::upstream_upload(row) }]) {
            tracing::error!(%error, "the row of an upload that has ended stays");
        }
    }

    /// Nobody wants it any more. What cannot be aborted now is aborted by the next process.
    pub(super) async fn abandon(&self, begun: Begun) {
        if begun.completed.is_some() {
            return self.remove_temporary(&begun.upload.key).await;
        }
        match self.upstream.abort_upload(&begun.upload).await {
            Ok(()) => self.remove_row(begun.row),
            Err(error) => tracing::info!(%error, key = begun.upload.key, "an upload stays until the next start"),
        }
    }

    /// What stays is removed by the next process (`tidy`).
    pub(super) async fn remove_temporary(&self, key: &str) {
        if let Err(error) = self.upstream.delete(key).await {
            tracing::info!(%error, key, "a temporary object stays until the next start");
        }
    }

    /// Aborts what earlier processes have begun.
    pub(super) async fn abort_old(&self) -> Result<(), String> {
        let old = self.uploads.old.lock().clone();
        for (row, upload) in old {
            self.upstream.abort_upload(&upload).await.map_err(|error| error.to_string())?;
            self.remove_row(row);
            self.uploads.old.lock().retain(|(other, _)| *other != row);
        }
        Ok(())
    }
}
