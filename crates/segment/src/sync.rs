//! Durability of segments: syncs shared between waiting callers.
//!
//! Why:        one fdatasync costs the same for one run or a hundred; callers that wait together share one.
//! Invariants: Y1 a caller is released by a sync that began after its call.  Y2 per segment one sync runs at a
//!             time.  Y3 the first failed sync poisons the store; nothing is retried.
//! Locking:    the queue's mutex and a segment's state are never held together.
//! Durability: bytes first, then the folder when the file's name is new.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use event_listener::Listener;
use parking_lot::{Condvar, Mutex};

use crate::SegmentError;
use crate::folder::Folder;
use crate::segment::Segment;

/// Threads that sync; as many segments can be synced at once.
pub const SYNC_THREADS: usize = 4;

/// The sync threads of a store; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Syncer {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

/// Each segment is queued at most once, so the number of segments bounds the queue.
#[derive(Debug, Default)]
struct QueueState {
    segments: VecDeque<Arc<Segment>>,
    closed: bool,
}

/// A sync that a caller waits for: the first to begin after the caller asked.
#[derive(Debug)]
pub(crate) struct Ticket {
    segment: Arc<Segment>,
    /// Number of that sync within the segment.
    sync: u64,
}

impl Syncer {
    pub(crate) fn start(folder: &Arc<Folder>) -> io::Result<Syncer> {
        let mut syncer = Syncer { queue: Arc::default(), threads: Vec::new() };
        for index in 0..SYNC_THREADS {
            let (queue, folder) = (Arc::clone(&syncer.queue), Arc::clone(folder));
            let builder = std::thread::Builder::new().name(format!("segment-sync-{index}"));
            syncer.threads.push(builder.spawn(move || queue.serve(&folder))?);
        }
        Ok(syncer)
    }

    pub(crate) fn ask(&self, segment: Arc<Segment>) -> Ticket {
        let (sync, push) = {
            let mut state = segment.state.lock();
            let push = !state.queued && !state.running;
            state.queued = true;
            (state.syncs_started + 1, push)
        };
        if push {
            self.queue.push(Arc::clone(&segment));
        }
        Ticket { segment, sync }
    }
}

impl Ticket {
    pub(crate) async fn wait(self, folder: &Folder) -> Result<(), SegmentError> {
        loop {
            let listener = self.segment.synced.listen();
            if self.is_over(folder)? {
                return Ok(());
            }
            listener.await;
        }
    }

    pub(crate) fn wait_blocking(self, folder: &Folder) -> Result<(), SegmentError> {
        loop {
            let listener = self.segment.synced.listen();
            if self.is_over(folder)? {
                return Ok(());
            }
            listener.wait();
        }
    }

    fn is_over(&self, folder: &Folder) -> Result<bool, SegmentError> {
        {
            let state = self.segment.state.lock();
            if state.syncs_finished >= self.sync {
                return Ok(true);
            }
            if state.gone {
                return Err(SegmentError::Missing(self.segment.id));
            }
        }
        folder.check_poison()?;
        Ok(false)
    }
}

impl Queue {
    fn push(&self, segment: Arc<Segment>) {
        self.state.lock().segments.push_back(segment);
        self.changed.notify_one();
    }

    fn pop(&self) -> Option<Arc<Segment>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(segment) = state.segments.pop_front() {
                return Some(segment);
            }
            self.changed.wait(&mut state);
        }
    }

    fn serve(&self, folder: &Folder) {
        while let Some(segment) = self.pop() {
            let number = {
                let mut state = segment.state.lock();
                assert!(state.queued && !state.running, "one thread at a time has a segment");
                state.queued = false;
                state.running = true;
                state.syncs_started += 1;
                state.syncs_started
            };
            let result = sync_one(folder, &segment);
            let again = {
                let mut state = segment.state.lock();
                state.running = false;
                if result.is_ok() {
                    state.syncs_finished = number;
                    drop(state.release_synced_file());
                }
                state.queued
            };
            if again {
                self.push(Arc::clone(&segment));
            }
            segment.synced.notify(usize::MAX);
        }
    }
}

fn sync_one(folder: &Folder, segment: &Segment) -> Result<(), SegmentError> {
    folder.check_poison()?;
    // The writers' own handle first: a write error is reported to the handle that wrote.
    let file = match segment.writing() {
        Some(file) => file,
        None => match folder.file(segment) {
            Ok(file) => file,
            Err(error @ SegmentError::Missing(_)) => {
                segment.state.lock().gone = true;
                return Err(error);
            }
            Err(error) => {
                folder.poison(format!("open of segment {:?} for a sync: {error}", segment.id));
                return Err(error);
            }
        },
    };
    let name_creation = segment.state.lock().name_creation;
    let result = file.sync_data().and_then(|()| match name_creation {
        Some(creation) => folder.sync_names(creation),
        None => Ok(()),
    });
    if let Err(error) = result {
        folder.poison(format!("sync of segment {:?}: {error}", segment.id));
        return Err(error.into());
    }
    segment.state.lock().name_creation = None;
    Ok(())
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic was already reported; its waiters are gone with the store.
            let _ = thread.join();
        }
    }
}
