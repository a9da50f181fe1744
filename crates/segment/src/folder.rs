//! The folder of segment files: which exist, their open handles, their ids.
//!
//! Why:        the store, its writers and its sync threads share this; it outlives none of them.
//! Invariants: S3 ids are unique across restarts: a mark in the folder is above every id whose file was removed.
//!             S5 a request for a segment in quarantine restores it, with an alarm.
//! Durability: a new name is durable after `sync_names`; a removed name is not waited for (reclaim removes again).
//! Locking:    `table`, `pack` and `names` may be held while the disk is touched; order: copies, pack, names,
//!             quarantine, table.
//! Not here:   runs (pack, raw, writer), reading (reader).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_env::{Env, File, OpenMode, Timestamp};
use parking_lot::{Mutex, RwLock};

use crate::buffers::Buffers;
use crate::cache::Cache;
use crate::checksum_table::ChecksumTable;
use crate::error::{invalid, newer};
use crate::format::{self, FormatError};
use crate::identity;
use crate::names::{self, Name};
use crate::open_pack::OpenPack;
use crate::quarantine::{Held, Leaving, Proof, Quarantine, Quarantined, may_leave};
use crate::segment::{FOUND_NAMES, LocalPin, Segment};
use crate::space::SpaceGate;
use crate::{Kind, Options, SegmentCopy, SegmentError, SegmentId, StoreIdentity, StoreName, StoreNumber};

/// Maximum number of segment files held open for reading.
pub const OPEN_FILES_MAX: usize = 4096;
/// Cache for checksum tables of runs being read, in bytes.
pub const TABLE_CACHE_BYTES_MAX: usize = 16 << 20;
/// Ids that one mark covers beyond the allocated ones.
const MARK_AHEAD: u64 = 1024;
/// Largest id that a file name may have.
const ID_MAX: u64 = 1 << 56;

#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) env: Env,
    pub(crate) options: Options,
    next_id: AtomicU64,
    name: RwLock<StoreName>,
    /// The volume has confirmed the name.
    attached: AtomicBool,
    table: RwLock<BTreeMap<SegmentId, Arc<Segment>>>,
    pub(crate) quarantine: Arc<Quarantine>,
    handles: Cache<SegmentId, Arc<dyn File>>,
    /// Verified checksum tables, by the location of their run.
    pub(crate) tables: Cache<(SegmentId, u64), ChecksumTable>,
    pub(crate) buffers: Buffers,
    pub(crate) pack: Mutex<Option<OpenPack>>,
    /// Held while the file of a copy is made.
    pub(crate) copies: Mutex<()>,
    pub(crate) space: Arc<SpaceGate>,
    names: Mutex<Names>,
    /// Counts created names; a folder sync covers the names counted before it began.
    creations: AtomicU64,
    /// Counts removals of stored bytes, before they happen.
    removals: AtomicU64,
    poison: OnceLock<String>,
}

#[derive(Debug)]
struct Names {
    /// Creations up to this one are durable.
    durable_creations: u64,
    /// Ids below are never allocated again, even if no file has them; durable. 0 until this process has written a mark:
    /// an existing one may be lost in a power loss, if its process was killed or its sync failed.
    mark: u64,
    /// The newest mark in the folder.
    shown_mark: u64,
}

impl Folder {
    pub(crate) fn open(env: Env, options: Options) -> Result<Folder, SegmentError> {
        env.disk.create_dir_all(&options.folder)?;
        let mut table = BTreeMap::new();
        let mut held = BTreeMap::new();
        let name = identity::read(&*env.disk, &options.folder)?.unwrap_or_else(|| unnamed(&env));
        let is_own = |id: SegmentId| id.made_by() == name.number;
        let (mut next, mut mark) = (name.number.ids().0.0, 0);
        for entry in env.disk.list(&options.folder)? {
            if names::is_left_over(&entry.name) {
                env.disk.remove(&options.folder.join(&entry.name))?;
            }
            match names::parse(&entry.name) {
                Some(Name::Segment(id, _) | Name::Quarantined(id, ..) | Name::Mark(id)) if id.0 > ID_MAX => {
                    return Err(invalid(format!("{} cannot be a segment of this store", entry.name)));
                }
                Some(Name::Segment(id, kind)) if !entry.is_dir => {
                    next = if is_own(id) { next.max(id.0 + 1) } else { next };
                    match table.entry(id) {
                        Entry::Vacant(slot) => slot.insert(Arc::new(Segment::found(id, kind, entry.len))),
                        Entry::Occupied(_) => return Err(invalid(format!("two segment files have the id {id:?}"))),
                    };
                }
                Some(Name::Quarantined(id, kind, seconds)) if !entry.is_dir => {
                    next = if is_own(id) { next.max(id.0 + 1) } else { next };
                    let since = Timestamp(seconds.saturating_mul(1_000_000_000));
                    let (len, used_bytes) = (entry.len, entry.used_bytes);
                    let shown = Quarantined { id, kind, len, used_bytes, since, number: 0 };
                    let segment = Arc::new(Segment::found(id, kind, len));
                    if held.insert(id, Held { shown, segment }).is_some() {
                        return Err(invalid(format!("two files in quarantine have the id {id:?}")));
                    }
                }
                Some(Name::Mark(id)) if is_own(id) => mark = mark.max(id.0),
                _ => {}
            }
        }
        if let Some(id) = held.keys().find(|id| table.contains_key(id)) {
            return Err(invalid(format!("segment {id:?} is there twice, once in quarantine")));
        }
        Ok(Folder {
            next_id: AtomicU64::new(next.max(mark)),
            name: RwLock::new(name),
            attached: AtomicBool::new(false),
            table: RwLock::new(table),
            quarantine: Arc::new(Quarantine::found(held)),
            handles: Cache::new(OPEN_FILES_MAX),
            tables: Cache::new(TABLE_CACHE_BYTES_MAX),
            buffers: Buffers::default(),
            pack: Mutex::new(None),
            copies: Mutex::new(()),
            space: SpaceGate::new(env.clone(), options.folder.clone(), options.reserve_bytes),
            names: Mutex::new(Names { durable_creations: 0, mark: 0, shown_mark: mark }),
            creations: AtomicU64::new(FOUND_NAMES + 1),
            removals: AtomicU64::new(0),
            poison: OnceLock::new(),
            env,
            options,
        })
    }

    pub(crate) fn next_id(&self) -> SegmentId {
        let id = SegmentId(self.next_id.fetch_add(1, Ordering::Relaxed));
        assert_eq!(id.made_by(), self.name().number, "a store has made all of its ids");
        id
    }

    /// No id of the own number up to this one is allocated again; durable.
    pub(crate) fn skip_ids(&self, last: SegmentId) -> Result<(), SegmentError> {
        assert_eq!(last.made_by(), self.name().number, "a store skips its own ids");
        let next = self.next_id.fetch_max(last.0 + 1, Ordering::AcqRel);
        if next > last.0 { Ok(()) } else { self.cover_by_mark(last) }
    }

    pub(crate) fn name(&self) -> StoreName {
        *self.name.read()
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    /// Sets the name that the volume has for this folder; new ids use its number. A number never decreases, because ids
    /// of log segments ascend.
    pub(crate) fn attach(&self, name: StoreName) -> Result<(), SegmentError> {
        let mut current = self.name.write();
        assert!(name.number >= current.number, "a store's number never falls");
        // Once in each process even if it reads the same: the sync of an earlier process may have failed, and then only
        // the page cache has it.
        if *current != name || !self.is_attached() {
            identity::write(&self.env, &self.options.folder, &name)?;
            self.next_id.fetch_max(name.number.ids().0.0, Ordering::AcqRel);
            *current = name;
        }
        self.attached.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn path(&self, id: SegmentId, kind: Kind) -> PathBuf {
        self.options.folder.join(names::segment_name(id, kind))
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Result<Arc<Segment>, SegmentError> {
        if let Some(segment) = self.table.read().get(&id) {
            return Ok(Arc::clone(segment));
        }
        self.take_back(id)?;
        self.table.read().get(&id).cloned().ok_or(SegmentError::Missing(id))
    }

    /// As `segment`, but ignores the quarantine.
    pub(crate) fn listed(&self, id: SegmentId) -> Result<Arc<Segment>, SegmentError> {
        self.table.read().get(&id).cloned().ok_or(SegmentError::Missing(id))
    }

    /// Pins a segment that is not in the quarantine, and so keeps it out of it: nobody can set it aside in between.
    pub(crate) fn pin_listed(&self, id: SegmentId) -> Result<LocalPin, SegmentError> {
        self.table.read().get(&id).map(Segment::pin).ok_or(SegmentError::Missing(id))
    }

    /// Takes a segment back from quarantine; false if it is not there.
    pub(crate) fn take_back(&self, id: SegmentId) -> Result<bool, SegmentError> {
        let mut state = self.quarantine.state.lock();
        let Some(held) = state.held.get(&id) else { return Ok(false) };
        self.env.disk.rename(&self.quarantined_path(&held.shown), &self.path(id, held.shown.kind))?;
        tracing::error!(
            segment = ?id,
            "a segment in quarantine is still in use and was taken back: its counters are wrong, run margay fsck"
        );
        self.table.write().insert(id, Arc::clone(&held.segment));
        state.held.remove(&id);
        state.disputed.insert(id);
        self.quarantine.taken_back.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    pub(crate) fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        let open = |path: &std::path::Path, kind| -> Result<SegmentCopy, SegmentError> {
            let file = self.env.disk.open(path, OpenMode::Read)?;
            Ok(SegmentCopy { name: names::segment_name(id, kind), kind, file })
        };
        // Under this lock no segment moves between folder and quarantine.
        let state = self.quarantine.state.lock();
        match state.held.get(&id) {
            Some(held) => open(&self.quarantined_path(&held.shown), held.shown.kind),
            None => {
                let segment = self.listed(id)?;
                open(&self.path(id, segment.kind), segment.kind)
            }
        }
    }

    fn quarantined_path(&self, held: &Quarantined) -> PathBuf {
        self.options.folder.join(names::quarantined_name(held.id, held.kind, held.since.seconds()))
    }

    /// Moves a dead segment to quarantine; open readers keep their bytes. False if its proofs disagreed before (Q2).
    pub(crate) fn set_aside(&self, segment: &Arc<Segment>) -> Result<bool, SegmentError> {
        let id = segment.id;
        let used_bytes = self.file(segment)?.allocated_bytes()?;
        let mut state = self.quarantine.state.lock();
        if state.disputed.contains(&id) {
            return Ok(false);
        }
        let (kind, len, since) = (segment.kind, segment.len(), self.env.clock.now());
        let shown = Quarantined { id, kind, len, used_bytes, since, number: state.count + 1 };
        let mut table = self.table.write();
        self.begin_removal();
        // Under the table's lock, as `pin_listed` is.
        if segment.is_open() {
            return Err(invalid(format!("segment {id:?} is still being written or read")));
        }
        if !table.contains_key(&id) {
            return Err(SegmentError::Missing(id));
        }
        self.env.disk.rename(&self.path(id, kind), &self.quarantined_path(&shown))?;
        table.remove(&id);
        drop(table);
        self.handles.remove(&id);
        state.count += 1;
        state.held.insert(id, Held { shown, segment: Arc::clone(segment) });
        Ok(true)
    }

    /// Unlinks a segment in quarantine and returns its description.
    pub(crate) fn release(&self, id: SegmentId, proof: Proof<'_>) -> Result<Quarantined, SegmentError> {
        self.cover_by_mark(id)?;
        let mut state = self.quarantine.state.lock();
        let held = state.held.get(&id).ok_or(SegmentError::Missing(id))?;
        let shown = held.shown;
        if held.segment.is_open() {
            return Err(invalid(format!("segment {id:?} is still being read")));
        }
        if self.quarantine.is_held() {
            return Err(invalid(format!("segment {id:?} stays while somebody holds the quarantine")));
        }
        may_leave(Leaving::Quarantined(&shown), proof)?;
        self.unlink(&self.quarantined_path(&shown))?;
        state.held.remove(&id);
        Ok(shown)
    }

    /// Called before checking that what will be removed has no pin: a later pin sees the count.
    pub(crate) fn begin_removal(&self) {
        self.removals.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    fn unlink(&self, path: &std::path::Path) -> Result<(), SegmentError> {
        match self.env.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn list(&self) -> Vec<Arc<Segment>> {
        self.table.read().values().cloned().collect()
    }

    pub(crate) fn check_poison(&self) -> Result<(), SegmentError> {
        match self.poison.get() {
            Some(reason) => Err(SegmentError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.poison.get().cloned()
    }

    pub(crate) fn poison(&self, reason: String) {
        // Only the first fault is kept: later ones follow from it.
        let _ = self.poison.set(reason);
    }

    /// Creates a file with a new id; `fill` writes its initial content before it becomes visible.
    pub(crate) fn create(
        &self,
        kind: Kind,
        fill: impl FnOnce(SegmentId, &dyn File) -> Result<(), SegmentError>,
    ) -> Result<(Arc<Segment>, Arc<dyn File>), SegmentError> {
        self.check_poison()?;
        let id = self.next_id();
        if self.options.files_may_be_missing {
            self.cover_by_mark(id)?;
        }
        self.create_as(id, kind, |file| fill(id, file))
    }

    /// As `create`, with an id that no file has.
    pub(crate) fn create_as(
        &self,
        id: SegmentId,
        kind: Kind,
        fill: impl FnOnce(&dyn File) -> Result<(), SegmentError>,
    ) -> Result<(Arc<Segment>, Arc<dyn File>), SegmentError> {
        let path = self.path(id, kind);
        let file = self.env.disk.open(&path, OpenMode::CreateNew)?;
        let creation = self.creations.fetch_add(1, Ordering::AcqRel);
        let segment = Arc::new(Segment::created(id, kind, Arc::clone(&file), Some(creation)));
        if let Err(error) = fill(&*file) {
            // The id stays unused; a file that cannot be removed now is dead space for reclaim.
            let _ = self.env.disk.remove(&path);
            return Err(error);
        }
        segment.grow_len(file.len()?);
        let before = self.table.write().insert(id, Arc::clone(&segment));
        assert!(before.is_none(), "ids are given once");
        Ok((segment, file))
    }

    /// A file that has just appeared, durably.
    pub(crate) fn insert_found(&self, segment: Segment) {
        let before = self.table.write().insert(segment.id, Arc::new(segment));
        assert!(before.is_none(), "ids are given once");
    }

    /// Makes the `creation`th name durable; one folder sync covers all names created before it.
    pub(crate) fn sync_names(&self, creation: u64) -> io::Result<()> {
        let mut names = self.names.lock();
        if names.durable_creations >= creation {
            return Ok(());
        }
        self.sync_folder(&mut names)
    }

    fn sync_folder(&self, names: &mut Names) -> io::Result<()> {
        // A sync after a failed one would return Ok without writing what that one lost.
        self.check_poison().map_err(io::Error::other)?;
        // Counted after the name was created, so every creation below the counter has its name in the folder.
        let made = self.creations.load(Ordering::Acquire) - 1;
        if let Err(error) = self.env.disk.sync_dir(&self.options.folder) {
            // Before the lock is released: waiting threads must not retry.
            self.poison(format!("sync of the segment folder: {error}"));
            return Err(error);
        }
        names.durable_creations = made;
        Ok(())
    }

    /// An open handle, which is cached.
    pub(crate) fn file(&self, segment: &Segment) -> Result<Arc<dyn File>, SegmentError> {
        if let Some(file) = self.open_file(segment) {
            return Ok(file);
        }
        let open = || self.env.disk.open(&self.path(segment.id, segment.kind), OpenMode::ReadWrite);
        let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        // It may have been moved to quarantine since it was looked up.
        let file = match open() {
            Err(error) if missing(&error) && self.take_back(segment.id)? => open(),
            other => other,
        };
        let file =
            file.map_err(|error| if missing(&error) { SegmentError::Missing(segment.id) } else { error.into() })?;
        if segment.kind == Kind::Pack {
            refuse_newer(segment.id, &*file)?;
        }
        Ok(self.handles.insert(segment.id, file, 1))
    }

    /// A cached handle, if there is one.
    pub(crate) fn open_file(&self, segment: &Segment) -> Option<Arc<dyn File>> {
        self.handles.get(&segment.id).or_else(|| segment.writing())
    }

    /// Drops a segment without runs and removes its file; open readers continue.
    pub(crate) fn remove(&self, segment: &Segment, proof: Proof<'_>) -> Result<(), SegmentError> {
        may_leave(Leaving::Whole(segment.id, segment.kind), proof)?;
        self.cover_by_mark(segment.id)?;
        self.unlink(&self.path(segment.id, segment.kind))?;
        self.table.write().remove(&segment.id);
        self.handles.remove(&segment.id);
        Ok(())
    }

    /// Ensures that a restart finds a mark above `id`, before the file with that id is removed.
    fn cover_by_mark(&self, id: SegmentId) -> Result<(), SegmentError> {
        let mut names = self.names.lock();
        // Other stores keep their own ids unique.
        if id.0 < names.mark || id.made_by() != self.name().number {
            return Ok(());
        }
        let mark = self.next_id.load(Ordering::Relaxed).max(id.0 + 1) + MARK_AHEAD;
        let path = self.options.folder.join(names::mark_name(SegmentId(mark)));
        self.env.disk.open(&path, OpenMode::OpenOrCreate)?;
        self.sync_folder(&mut names)?;
        names.mark = mark;
        let old = std::mem::replace(&mut names.shown_mark, mark);
        if old > 0 {
            // An old mark that stays does no harm: the largest counts.
            let _ = self.env.disk.remove(&self.options.folder.join(names::mark_name(SegmentId(old))));
        }
        Ok(())
    }
}

/// The name of a folder without a volume. Its number is 0, as for folders from before names existed.
fn unnamed(env: &Env) -> StoreName {
    let mut identity = [0; 16];
    env.random.fill(&mut identity);
    StoreName { identity: StoreIdentity(identity), number: StoreNumber(0), generation: 0 }
}

/// A damaged header alone does not hide intact runs, but a newer format is refused.
fn refuse_newer(id: SegmentId, file: &dyn File) -> Result<(), SegmentError> {
    let mut header = [0; format::PACK_HEADER_BYTES];
    let count = file.read_at(&mut header, 0)?;
    match format::decode_pack_header(&header[..count], id) {
        Err(error @ FormatError::Newer(_)) => Err(newer(id, error)),
        _ => Ok(()),
    }
}
