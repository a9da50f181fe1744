//! Files that are open: one state per file, whoever opened it and however often.
//!
//! Why:        all handles of a file see one content, also before it is published and after its name is gone.
//! Invariants: O1 a file is here while it has handles, and keeps its place known for as long.
//!             O2 every segment that a piece names is pinned, and that of a stream. What was written over before it was
//!                published is let go when more is written out, or the file would fill the disk with it.
//!             O3 a run that a commit names was synced before it, or travels with it.
//! Locking:    the file's turn (`Known::turn`), then its state. Reads and writes take the state only.
//! Not here:   what is done with files (posix).

pub(crate) mod pieces;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use margay_meta::{Cursor, RowVersion};
use margay_rows::Ino;
use margay_rows::record::{FileEntry, Version};
use margay_segment::{Extent, Run, RunWriter, SegmentId, SegmentPin};
use parking_lot::{Mutex, MutexGuard, RwLock};

use pieces::Pieces;

const SHARDS: usize = 64;

/// The row that an open file's content began with, or was last published as.
#[derive(Debug, Default)]
pub(crate) struct Base {
    /// `None`: unknown, the row must be read.
    pub(crate) version: Option<RowVersion>,
    /// Every extent of the row, by offset.
    pub(crate) extents: Vec<(u64, Extent)>,
    /// The extents are in rows of their own.
    pub(crate) in_rows: bool,
    /// The row itself, where it is the entry of the file's one name: its key, and the file without its data.
    pub(crate) row: Option<(Vec<u8>, FileEntry)>,
}

/// A file as its row has it, without its data.
pub(crate) fn without_data(file: &FileEntry) -> FileEntry {
    let mut file = file.clone();
    file.data = margay_rows::record::Data::Inline(Vec::new());
    file
}

/// The bytes at the end of a file that is written from front to back, on their way into one run. Pieces name it as an
/// extent of a run of [`STREAM_RUN_BYTES`], until it ends.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) writer: Box<dyn RunWriter>,
    /// Where its first byte is in the file.
    pub(crate) start: u64,
    /// Bytes that were there when the kernel was last asked to write them to the device.
    pub(crate) synced: u64,
}

/// The length of a run that is still being written.
pub(crate) const STREAM_RUN_BYTES: u64 = u64::MAX;

impl Stream {
    /// Where its next byte belongs in the file.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.writer.taken()
    }

    /// The name of the run while it is written.
    pub(crate) fn run(&self) -> Run {
        Run { segment: self.writer.segment(), offset: 0, len: STREAM_RUN_BYTES, crc: 0 }
    }
}

/// What an open file is now.
#[derive(Debug)]
pub(crate) struct State {
    /// Attributes as `stat` shows them; its `data` is not used.
    pub(crate) file: FileEntry,
    pub(crate) pieces: Pieces,
    pub(crate) base: Base,
    pub(crate) pins: HashMap<SegmentId, SegmentPin>,
    /// The content differs from the row's.
    pub(crate) data_pending: bool,
    /// Rights, owner or times were changed here and not in the row.
    pub(crate) attributes_pending: bool,
    /// When the first change came that is not published, by the monotonic clock.
    pub(crate) dirty_since: Option<Duration>,
    pub(crate) named: bool,
    /// Pinned segments with runs that were not synced since, and the number of the write-out that was the last to add one.
    pub(crate) unsynced: BTreeMap<SegmentId, u64>,
    pub(crate) write_outs: u64,
    pub(crate) stream: Option<Box<Stream>>,
    /// Payloads that the pieces name can be read from the log once this is durable.
    pub(crate) readable: Cursor,
    /// The version that was made while the file was open here: what is written on is still that one.
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

    /// There is something to publish.
    pub(crate) fn dirty(&self) -> bool {
        self.data_pending || self.attributes_pending
    }

    /// There is new content, and some of an encrypted object's beside it.
    pub(crate) fn mixed(&self) -> bool {
        self.data_pending && self.pieces.encrypted() > 0
    }

    /// Keeps a segment that pieces name, beside what is kept of it already: other pieces may rest on that.
    pub(crate) fn keep(&mut self, pin: SegmentPin) {
        match self.pins.entry(pin.segment()) {
            Entry::Occupied(mut kept) => kept.get_mut().join(pin),
            Entry::Vacant(slot) => drop(slot.insert(pin)),
        }
    }

    /// A run was written that pieces name now, and was not synced. What it replaced is let go.
    pub(crate) fn written_out(&mut self, segment: SegmentId, pin: SegmentPin) {
        self.write_outs += 1;
        self.unsynced.insert(segment, self.write_outs);
        self.pins.insert(segment, pin);
        self.drop_pins();
    }

    /// Lets go of segments that no piece names: nobody will sync or publish what was written to them.
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
    /// Somebody opened it for writing.
    pub(crate) written: AtomicBool,
    pub(crate) state: RwLock<State>,
}

impl OpenFile {
    /// Attributes as `stat` shows them, and the bytes that are not holes.
    pub(crate) fn entry(&self) -> (FileEntry, u64) {
        let state = self.state.read();
        let mut file = state.file.clone();
        file.size = state.pieces.end();
        if !state.named {
            file.links = 0;
        }
        (file, state.pieces.stored())
    }

    /// Whether a change of attributes belongs here ([`OpenFile::change`]) and not into the row: there are changes
    /// to publish, or no row.
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

    /// The row was committed anew as this, with the same content. The file's turn is held.
    pub(crate) fn changed_to(&self, file: &FileEntry, version: RowVersion) {
        let mut state = self.state.write();
        state.take_over(file);
        state.base.version = Some(version);
        // A file that has several names has its row elsewhere from then on.
        let row = state.base.row.take().filter(|_| file.links <= 1);
        state.base.row = row.map(|(key, _)| (key, without_data(file)));
    }
}

impl State {
    /// Takes over from the row what was not changed here.
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
    /// Bytes of all files that are in memory only.
    memory: AtomicU64,
    /// Files that were opened for writing and closed by the last who had them open.
    closes: AtomicU64,
}

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        OpenFiles {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            memory: AtomicU64::new(0),
            closes: AtomicU64::new(0),
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

    /// One more handle of an open file.
    pub(crate) fn enter(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        let mut shard = self.shard(ino);
        let slot = shard.get_mut(&ino)?;
        slot.handles += 1;
        Some(Arc::clone(&slot.file))
    }

    /// The first handle of a file; its turn is held, or nobody else can know it yet.
    pub(crate) fn insert(&self, file: Arc<OpenFile>) {
        let before = self.shard(file.ino).insert(file.ino, Slot { file, handles: 1 });
        assert!(before.is_none(), "a file is opened once");
    }

    pub(crate) fn handles(&self, ino: Ino) -> u64 {
        self.shard(ino).get(&ino).map_or(0, |slot| slot.handles)
    }

    /// One handle less; true when it was the last, and the file is gone from here.
    pub(crate) fn leave(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino);
        let Some(slot) = shard.get_mut(&ino) else { return false };
        slot.handles -= 1;
        if slot.handles > 0 {
            return false;
        }
        if slot.file.written.load(Ordering::Relaxed) {
            // Before it is gone: who does not find it any more finds it counted.
            self.closes.fetch_add(1, Ordering::Release);
        }
        shard.remove(&ino);
        true
    }

    /// How often a file that was open for writing was let go by its last handle, and so published.
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

    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// A file's bytes in memory became more or less.
    pub(crate) fn memory_changed(&self, before: u64, after: u64) {
        if after >= before {
            self.memory.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.memory.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
