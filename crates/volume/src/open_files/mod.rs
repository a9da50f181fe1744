//! Open files: one state per file, shared by all of its handles.
//!
//! Why:        all handles of a file see the same content, even before it is published and after its name is removed.
//! Invariants: O1 a file is in the table while it has handles, and its location stays recorded for as long.
//!             O2 every segment that a piece refers to is pinned, and so is a stream's. Pins of overwritten,
//!                unpublished data are released at the next write-out; otherwise the file would fill the disk with it.
//!             O3 a run that a commit refers to was synced before it, or travels with it.
//! Locking:    the file's turn (`Known::turn`), then its state. Reads and writes take the state only.
//! Not here:   operations on files (posix).

pub(crate) mod pieces;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use margay_meta::{Cursor, RowVersion};
use margay_rows::Ino;
use margay_rows::record::{FileEntry, Version};
use margay_rows::values::ETag;
use margay_segment::{Extent, Run, RunWriter, SegmentId, SegmentPin};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::session_state::MountLease;
use pieces::Pieces;

const SHARDS: usize = 64;

/// The row from which an open file's content was loaded, or to which it was last published.
#[derive(Debug, Default)]
pub(crate) struct Base {
    /// `None`: unknown, the row must be read.
    pub(crate) version: Option<RowVersion>,
    /// All extents of the row, by offset.
    pub(crate) extents: Vec<(u64, Extent)>,
    /// The extents are in separate rows.
    pub(crate) in_rows: bool,
    /// The row itself, if it is the entry of the file's only name: its key, and the file without its data.
    pub(crate) row: Option<(Vec<u8>, FileEntry)>,
}

/// A number for one content of a file; never 0.
pub(crate) fn content_number(etag: &ETag) -> u64 {
    let (first, _) = etag.digest.split_first_chunk::<8>().expect("a digest has 16 bytes");
    u64::from_be_bytes(*first).max(1)
}

/// A file as in its row, without its data.
pub(crate) fn without_data(file: &FileEntry) -> FileEntry {
    let mut file = file.clone();
    file.data = margay_rows::record::Data::Inline(Vec::new());
    file
}

/// The end of a file that is written sequentially: its bytes go into one run while they arrive. Pieces refer to it as
/// an extent of a run of [`STREAM_RUN_BYTES`], until it ends.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) writer: Box<dyn RunWriter>,
    /// Where its first byte is in the file.
    pub(crate) start: u64,
    /// Bytes written when the kernel was last asked to write them back.
    pub(crate) synced: u64,
}

/// The length of a run that is still being written.
pub(crate) const STREAM_RUN_BYTES: u64 = u64::MAX;

impl Stream {
    /// Offset in the file at which it continues.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.writer.taken()
    }

    /// The run's reference while it is being written.
    pub(crate) fn run(&self) -> Run {
        Run { segment: self.writer.segment(), offset: 0, len: STREAM_RUN_BYTES, crc: 0 }
    }
}

/// The current state of an open file.
#[derive(Debug)]
pub(crate) struct State {
    /// Attributes as `stat` shows them; its `data` is not used.
    pub(crate) file: FileEntry,
    pub(crate) pieces: Pieces,
    pub(crate) base: Base,
    pub(crate) pins: HashMap<SegmentId, SegmentPin>,
    /// The content differs from the row's.
    pub(crate) data_pending: bool,
    /// Permissions, owner or times were changed here but not in the row.
    pub(crate) attributes_pending: bool,
    /// When the oldest unpublished change was made, on the monotonic clock.
    pub(crate) dirty_since: Option<Duration>,
    pub(crate) named: bool,
    /// Pinned segments with unsynced runs, and the number of the last write-out to each.
    pub(crate) unsynced: BTreeMap<SegmentId, u64>,
    pub(crate) write_outs: u64,
    pub(crate) stream: Option<Box<Stream>>,
    /// Payloads of the pieces can be read from the log once this commit is durable.
    pub(crate) readable: Cursor,
    /// The version that this open session created: further writes change it.
    pub(crate) own_version: Option<Version>,
}

impl State {
    pub(crate) fn new(file: FileEntry) -> State {
        State {
            file,
            pieces: Pieces::default(),
            base: Base::default(),
            pins: HashMap::new(),
            data_pending: false,
            attributes_pending: false,
            dirty_since: None,
            named: true,
            unsynced: BTreeMap::new(),
            write_outs: 0,
            stream: None,
            readable: Cursor(0),
            own_version: None,
        }
    }

    /// Whether there is something to publish.
    pub(crate) fn dirty(&self) -> bool {
        self.data_pending || self.attributes_pending
    }

    /// Whether it has both new content and content of an encrypted object.
    pub(crate) fn mixed(&self) -> bool {
        self.data_pending && self.pieces.encrypted() > 0
    }

    /// Pins a segment that pieces refer to, in addition to an existing pin, which other pieces may need.
    pub(crate) fn keep(&mut self, pin: SegmentPin) {
        match self.pins.entry(pin.segment()) {
            Entry::Occupied(mut kept) => kept.get_mut().join(pin),
            Entry::Vacant(slot) => drop(slot.insert(pin)),
        }
    }

    /// Records a written, unsynced run that pieces now refer to; pins of replaced data are released.
    pub(crate) fn written_out(&mut self, segment: SegmentId, pin: SegmentPin) {
        self.write_outs += 1;
        self.unsynced.insert(segment, self.write_outs);
        self.pins.insert(segment, pin);
        self.drop_pins();
    }

    /// Releases segments that no piece refers to: nobody will sync or publish them.
    pub(crate) fn drop_pins(&mut self) {
        let stream = self.stream.as_ref().map(|stream| stream.writer.segment());
        let pieces = self.pieces.iter().filter_map(|(_, piece)| piece.extent().map(|extent| extent.run.segment));
        let named: HashSet<SegmentId> = pieces.chain(stream).collect();
        self.pins.retain(|segment, _| named.contains(segment));
        self.unsynced.retain(|segment, _| named.contains(segment));
        assert_eq!(self.pins.len(), named.len(), "every segment that a piece names is pinned");
    }
}

/// One open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) ino: Ino,
    /// The root directory of its bucket.
    pub(crate) root: Ino,
    /// Of the mount that opened it first.
    pub(crate) lease: Arc<MountLease>,
    /// Somebody opened it for writing.
    pub(crate) written: AtomicBool,
    pub(crate) state: RwLock<State>,
}

impl OpenFile {
    /// Attributes as `stat` shows them, and the bytes outside holes.
    pub(crate) fn entry(&self) -> (FileEntry, u64) {
        let state = self.state.read();
        let mut file = state.file.clone();
        file.size = state.pieces.end();
        if !state.named {
            file.links = 0;
        }
        (file, state.pieces.stored())
    }

    /// Whether attribute changes are made here ([`OpenFile::change`]) and not in the row: there are changes to publish,
    /// or no row.
    pub(crate) fn keeps_changes(&self) -> bool {
        let state = self.state.read();
        state.dirty() || !state.named
    }

    /// Changes attributes here; they are published with the content. The file's turn is held.
    pub(crate) fn change(&self, now: Duration, apply: impl FnOnce(&mut FileEntry)) {
        let mut state = self.state.write();
        apply(&mut state.file);
        state.attributes_pending = true;
        state.dirty_since.get_or_insert(now);
    }

    /// The row was committed with these attributes and the same content. The file's turn is held.
    pub(crate) fn changed_to(&self, file: &FileEntry, version: RowVersion) {
        let mut state = self.state.write();
        state.take_over(file);
        state.base.version = Some(version);
        // After a second name was added, the attributes are in another row.
        let row = state.base.row.take().filter(|_| file.links <= 1);
        state.base.row = row.map(|(key, _)| (key, without_data(file)));
    }
}

impl State {
    /// Adopts from the row what was not changed here.
    pub(crate) fn take_over(&mut self, file: &FileEntry) {
        let mine = std::mem::replace(&mut self.file, file.clone());
        self.file.data = margay_rows::record::Data::Inline(Vec::new());
        if self.attributes_pending {
            (self.file.mode, self.file.uid, self.file.gid) = (mine.mode, mine.uid, mine.gid);
            self.file.accessed = mine.accessed;
        }
        if self.dirty() {
            (self.file.modified, self.file.changed) = (mine.modified, mine.changed);
        }
    }
}

#[derive(Debug)]
struct Slot {
    file: Arc<OpenFile>,
    handles: u64,
}

/// The table of open files.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    shards: Vec<Mutex<HashMap<Ino, Slot>>>,
    /// Buffered bytes of all files.
    memory: AtomicU64,
    /// How often a file opened for writing was closed by its last handle.
    closes: AtomicU64,
    /// Files of which more was written than is kept in memory.
    large: Mutex<HashSet<Ino>>,
}

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        OpenFiles {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            memory: AtomicU64::new(0),
            closes: AtomicU64::new(0),
            large: Mutex::default(),
        }
    }
}

impl OpenFiles {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Slot>> {
        self.shards[ino.0 as usize % SHARDS].lock()
    }

    /// The file, if it is open.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        self.shard(ino).get(&ino).map(|slot| Arc::clone(&slot.file))
    }

    /// Adds a handle to an open file.
    pub(crate) fn enter(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let mut shard = self.shard(ino);
        let slot = shard.get_mut(&ino)?;
        slot.handles += 1;
        Some(Arc::clone(&slot.file))
    }

    /// Inserts the first handle of a file; its turn is held, or nobody else can know it yet.
    pub(crate) fn insert(&self, file: Arc<OpenFile>) {
        let before = self.shard(file.ino).insert(file.ino, Slot { file, handles: 1 });
        assert!(before.is_none(), "a file is opened once");
    }

    pub(crate) fn handles(&self, ino: Ino) -> u64 {
        self.shard(ino).get(&ino).map_or(0, |slot| slot.handles)
    }

    /// Removes a handle; true when it was the last, and the file was removed from the table.
    pub(crate) fn leave(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino);
        let Some(slot) = shard.get_mut(&ino) else { return false };
        slot.handles -= 1;
        if slot.handles > 0 {
            return false;
        }
        if slot.file.written.load(Ordering::Relaxed) {
            // Counted before removal: whoever misses the file in the table sees the new count.
            self.closes.fetch_add(1, Ordering::Release);
            self.large.lock().remove(&ino);
        }
        shard.remove(&ino);
        true
    }

    /// How often a file opened for writing was closed by its last handle, and so published.
    pub(crate) fn closes(&self) -> u64 {
        self.closes.load(Ordering::Acquire)
    }

    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().values().map(|slot| Arc::clone(&slot.file)));
        }
        all
    }

    /// More was written to an open file than is kept in memory.
    pub(crate) fn note_large(&self, ino: Ino) {
        self.large.lock().insert(ino);
    }

    /// Those of which more was written than is kept in memory.
    pub(crate) fn large(&self) -> Vec<Ino> {
        self.large.lock().iter().copied().collect()
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// A file's buffered bytes changed.
    pub(crate) fn memory_changed(&self, before: u64, after: u64) {
        if after >= before {
            self.memory.fetch_add(after - before, Ordering::Relaxed);
        } else {
            let all = self.memory.fetch_sub(before - after, Ordering::Relaxed);
            assert!(all >= before - after, "buffered bytes that go were counted");
        }
    }
}
