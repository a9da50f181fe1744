//! One segment as the store knows it: its writers, pins and sync state.
//!
//! Invariants: G1 the handle used for writing stays open until a later sync has succeeded, so that no write error is
//!                missed.
//!             G2 `syncs_finished <= syncs_started`, and both only grow.
//!             G3 a segment with pins is `open`: it must not be removed.
//! Locking:    `state` is a leaf: nothing else is locked and no disk is touched under it.
//! Not here:   syncing (sync).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use event_listener::Event;
use margay_env::File;
use parking_lot::Mutex;

use crate::{Kind, SegmentId, SegmentInfo};

/// The creation number of all names found at the start: a killed process may have left them unsynced.
pub(crate) const FOUND_NAMES: u64 = 1;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) kind: Kind,
    /// File bytes known to have been written or found.
    len: AtomicU64,
    /// How often bytes were put into it as a copy.
    copy_writes: AtomicU64,
    pub(crate) state: Mutex<SegmentState>,
    /// Signalled after every sync.
    pub(crate) synced: Event,
}

#[derive(Debug)]
pub(crate) struct SegmentState {
    /// No further run may begin here.
    sealed: bool,
    /// Writers, and callers who need the segment to stay.
    pins: u32,
    /// Of these, writers.
    writers: u32,
    /// The file as it was created, while it may hold unsynced bytes.
    writing: Option<Arc<dyn File>>,
    /// Set when the last writer is done: the number of the newest sync that may have missed its bytes.
    written_until_sync: Option<u64>,
    /// The creation of the file's name that a folder sync must cover; `None` once durable.
    pub(crate) name_creation: Option<u64>,
    pub(crate) syncs_started: u64,
    pub(crate) syncs_finished: u64,
    /// A sync is wanted that has not started.
    pub(crate) queued: bool,
    pub(crate) running: bool,
    /// The file was removed while a sync waited.
    pub(crate) gone: bool,
}

impl Segment {
    /// A file that existed when the folder was opened.
    pub(crate) fn found(id: SegmentId, kind: Kind, len: u64) -> Segment {
        Segment::new(id, kind, len, true, None, Some(FOUND_NAMES))
    }

    /// A file just made by this process; `name_creation` is `None` when its name is durable already.
    pub(crate) fn created(id: SegmentId, kind: Kind, file: Arc<dyn File>, name_creation: Option<u64>) -> Segment {
        Segment::new(id, kind, 0, false, Some(file), name_creation)
    }

    fn new(
        id: SegmentId,
        kind: Kind,
        len: u64,
        sealed: bool,
        writing: Option<Arc<dyn File>>,
        name_creation: Option<u64>,
    ) -> Segment {
        let state = SegmentState {
            sealed,
            pins: 0,
            writers: 0,
            writing,
            written_until_sync: None,
            name_creation,
            syncs_started: 0,
            syncs_finished: 0,
            queued: false,
            running: false,
            gone: false,
        };
        Segment {
            id,
            kind,
            len: AtomicU64::new(len),
            copy_writes: AtomicU64::new(0),
            state: Mutex::new(state),
            synced: Event::new(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn grow_len(&self, end: u64) {
        self.len.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn cut_len(&self, end: u64) {
        self.len.store(end, Ordering::Release);
    }

    pub(crate) fn copy_writes(&self) -> u64 {
        self.copy_writes.load(Ordering::Acquire)
    }

    pub(crate) fn note_copy_write(&self) {
        self.copy_writes.fetch_add(1, Ordering::AcqRel);
    }

    /// The file that writers use, while there may be unsynced bytes in it.
    pub(crate) fn writing(&self) -> Option<Arc<dyn File>> {
        self.state.lock().writing.clone()
    }

    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock();
        !state.sealed || state.pins > 0
    }

    /// Whether bytes may be added: also false while readers have it pinned.
    pub(crate) fn is_written(&self) -> bool {
        let state = self.state.lock();
        !state.sealed || state.writers > 0
    }

    pub(crate) fn info(&self) -> SegmentInfo {
        SegmentInfo { id: self.id, kind: self.kind, len: self.len(), open: self.is_open() }
    }

    /// More is written to a file that was found or sealed.
    pub(crate) fn reopen(&self, file: Arc<dyn File>) {
        let mut state = self.state.lock();
        state.sealed = false;
        state.written_until_sync = None;
        state.writing = Some(file);
    }

    pub(crate) fn seal(&self) {
        let mut state = self.state.lock();
        state.sealed = true;
        state.note_last_writer();
    }

    pub(crate) fn pin(self: &Arc<Segment>) -> LocalPin {
        let mut state = self.state.lock();
        state.pins += 1;
        state.written_until_sync = None;
        LocalPin(Arc::clone(self))
    }

    /// The pin of a writer; before anybody may seal the segment.
    pub(crate) fn pin_writer(self: &Arc<Segment>) -> WriterPin {
        let pin = self.pin();
        self.state.lock().writers += 1;
        WriterPin(pin)
    }
}

impl SegmentState {
    fn note_last_writer(&mut self) {
        if self.sealed && self.pins == 0 {
            self.written_until_sync = Some(self.syncs_started);
        }
    }

    /// Called after a successful sync; drops the writing handle when it can have no unsynced bytes.
    pub(crate) fn release_synced_file(&mut self) -> Option<Arc<dyn File>> {
        assert!(self.syncs_finished <= self.syncs_started);
        match self.written_until_sync {
            Some(missed) if self.syncs_finished > missed => self.writing.take(),
            _ => None,
        }
    }
}

/// Keeps a segment `open`, so that reclaim leaves it alone until metadata refers to its newest run.
#[derive(Debug)]
pub(crate) struct LocalPin(Arc<Segment>);

impl LocalPin {
    pub(crate) fn segment(&self) -> SegmentId {
        self.0.id
    }

    pub(crate) fn target(&self) -> &Segment {
        &self.0
    }
}

/// Held while bytes may be added.
#[derive(Debug)]
pub(crate) struct WriterPin(LocalPin);

impl WriterPin {
    /// For whoever needs the segment to stay once the writer is gone.
    pub(crate) fn pin(&self) -> LocalPin {
        self.0.clone()
    }

    pub(crate) fn segment(&self) -> SegmentId {
        self.0.segment()
    }

    pub(crate) fn target(&self) -> &Segment {
        self.0.target()
    }
}

impl Drop for WriterPin {
    fn drop(&mut self) {
        let mut state = self.target().state.lock();
        state.writers = state.writers.checked_sub(1).expect("every writer is counted once");
    }
}

impl Clone for LocalPin {
    fn clone(&self) -> LocalPin {
        self.0.pin()
    }
}

impl Drop for LocalPin {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.pins = state.pins.checked_sub(1).expect("every pin is counted once");
        state.note_last_writer();
    }
}
