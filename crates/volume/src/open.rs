//! The volume itself: its parts, and how it opens.
//!
//! Locking:    a key's latch before a directory's latch. Latches only save retries; preconditions ensure correctness.
//!             Engine calls run on the caller's thread; no latch is held across an await.
//! Not here:   how an operation runs (driver), the operations.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::{Env, Timestamp};
use margay_meta::patient::{Patience, PatientEngine};
use margay_meta::{CommitError, Committed, Engine};
use margay_rows::Ino;
use margay_rows::record::FileEntry;
use margay_segment::Segments;
use parking_lot::{Mutex, MutexGuard};

use crate::api::{Error, Headers};
use crate::blocking::{Blocking, OnThisThread};
use crate::cache::inos::Inos;
use crate::cache::{BucketFacts, EntryHints, FollowedFeed, Fresh, KeptRows, PathCache};
use crate::draft::Draft;
use crate::effects::Effects;
use crate::encryption::MasterKeys;
use crate::error::Refused;
use crate::event::{EventQueue, EventRouter};
use crate::file_headers::FileHeaders;
use crate::gate::Gate;
use crate::known::Known;
use crate::lock_time::LockTime;
use crate::open_files::OpenFiles;
use crate::rests::{Counted, Punched, Room, Walks};
use crate::session_state::{MountLease, STILL_BEATS_MAX, SessionName, Sessions};
use crate::stores::{Absences, Alone, Copies, DraftedRows, Evict, NotAttached, Peers, Processes, SegmentRows, Stores};
use crate::trails::Trails;
use crate::upgrade::{self, OpenError};
use crate::watch::{Notice, Watchers};

/// The lease for draining orphans.
pub(crate) const ORPHANS_LEASE: &str = "orphans";
/// Latches for removals; each directory maps to one.
const LATCHES: usize = 64;
/// Latches for changes of one key; each key maps to one.
const KEY_LATCHES: usize = 1024;

/// Settings and ports of a volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs reads that wait for a device.
    pub blocking: Arc<dyn Blocking>,
    /// The server's keys for encrypted objects.
    pub master_keys: MasterKeys,
    /// Bodies up to this size travel with their commit, as far as the engine accepts them.
    pub payload_bytes_max: usize,
    /// Longer bodies are split into runs of this size.
    pub run_bytes_max: u64,
    /// Directories whose path is cached.
    pub paths_max: usize,
    /// Bytes of one open file that are buffered before they are written to the store.
    pub file_memory_bytes_max: u64,
    /// Bytes of all open files that are buffered.
    pub memory_bytes_max: u64,
    /// Maximum pieces of a file after scattered writes; above it the most fragmented stretch is merged.
    pub file_pieces_max: usize,
    /// Parses the notification rules of buckets; without it no change creates an event.
    pub events: Option<Arc<dyn EventRouter>>,
    /// Maximum number of queued events.
    pub events_max: u64,
    /// Stores of other processes that share the rows; without it every segment is expected in the own store.
    pub peers: Option<Arc<dyn Peers>>,
    /// Copies of the own segments at other stores; without it there are none.
    pub copies: Option<Arc<dyn Copies>>,
    /// A mount copies bytes that are in other stores to the own one before it writes to their file.
    pub local_before_write: bool,
    /// Headers of objects that stand for attributes of files; without it none do.
    pub file_headers: Option<Arc<dyn FileHeaders>>,
    /// Lets bytes go that are elsewhere too, when a write finds no room.
    pub evict: Option<Arc<dyn Evict>>,
    /// Asked before an object is said to be missing.
    pub absences: Option<Arc<dyn Absences>>,
    /// The processes that share the rows, if their sessions do not tell.
    pub processes: Option<Arc<dyn Processes>>,
    /// Description of this process for people, among others that share the engine.
    pub session_name: SessionName,
    /// The time between two beats of the session.
    pub beat_every: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            blocking: Arc::new(OnThisThread),
            master_keys: MasterKeys::default(),
            payload_bytes_max: 64 << 10,
            run_bytes_max: 1 << 30,
            paths_max: 16_384,
            file_memory_bytes_max: 16 << 20,
            memory_bytes_max: 256 << 20,
            file_pieces_max: 16_000,
            events: None,
            events_max: 1_000_000,
            peers: None,
            copies: None,
            local_before_write: false,
            file_headers: None,
            evict: None,
            absences: None,
            processes: None,
            session_name: SessionName::default(),
            beat_every: Duration::from_secs(1),
        }
    }
}

/// The file system. Cheap to share behind an `Arc`; all operations may run concurrently. Async operations return only
/// when their result is durable.
#[derive(Debug)]
pub struct Volume {
    pub(crate) env: Env,
    pub(crate) engine: Arc<dyn Engine>,
    /// The port to stored bytes.
    pub(crate) store: Arc<dyn Segments>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) segment_rows: Arc<SegmentRows>,
    pub(crate) options: Options,
    pub(crate) inos: Inos,
    pub(crate) paths: PathCache,
    pub(crate) entry_hints: EntryHints,
    /// Serialize removals in one directory, so that they do not conflict over which is the last.
    latches: Vec<Mutex<()>>,
    /// Serialize changes of one key, so that many writers of it do not exhaust their retries.
    key_latches: Vec<Mutex<()>>,
    /// Changes that others were faster than again and again.
    pub(crate) gate: Gate,
    /// Files that kernels know.
    pub(crate) known: Known,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) kept_rows: Arc<KeptRows>,
    pub(crate) open_files: OpenFiles,
    pub(crate) trails: Trails,
    pub(crate) fresh: Fresh,
    pub(crate) bucket_facts: BucketFacts,
    pub(crate) events: Arc<EventQueue>,
    /// Held by any task that removes bytes or compares rows with segments.
    pub(crate) upkeep: Mutex<()>,
    /// Changes refused because the engine is full; the store counts those with data.
    refused: AtomicU64,
    pub(crate) walks: Mutex<Walks>,
    pub(crate) room: Mutex<Room>,
    pub(crate) punched: Mutex<Punched>,
    pub(crate) counted: Mutex<Counted>,
    /// The time by which locks end, if the clock is watched.
    pub(crate) lock_time: LockTime,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) followed: Arc<FollowedFeed>,
    /// Held by the follower of the feed.
    pub(crate) following: Mutex<()>,
}

impl Volume {
    /// Opens the volume that the engine holds, or makes one in an empty engine, and drains what a crash left.
    pub fn open<S: Segments + 'static>(
        env: Env,
        engine: Arc<dyn Engine>,
        store: Arc<S>,
        options: Options,
    ) -> Result<Arc<Volume>, OpenError> {
        Volume::open_over(env, engine, store, options)
    }

    /// As `open`, with any implementation of segments.
    pub fn open_over(
        env: Env,
        engine: Arc<dyn Engine>,
        store: Arc<dyn Segments>,
        options: Options,
    ) -> Result<Arc<Volume>, OpenError> {
        let engine = patient(engine, &env);
        upgrade::check_format(&*engine)?;
        let (inos, sessions) = (Inos::default(), Arc::new(Sessions::new(&engine, &options.session_name)));
        if engine.is_shared() {
            sessions.open(inos.next(&*engine)?, engine.last_cursor(), Draft::default())?;
        }
        let opened = attach_store(&env, &engine, &store, &options, &sessions).and_then(|stores| {
            let stores = Arc::new(stores);
            let rows = Arc::new(SegmentRows::read(&*engine, &stores)?);
            let shared = (stores, rows, Arc::clone(&sessions));
            let volume = Volume { inos, ..Volume::assemble(env, engine, shared, options) };
            // Before caching anything that another process may change.
            volume.followed.passed(volume.engine.feed_start().map_err(Error::from)?);
            volume.count_events()?;
            if let Some(lease) = volume.lease_here(ORPHANS_LEASE)? {
                volume.drain_orphans(&lease)?;
            }
            Ok(volume)
        });
        if opened.is_err()
            && let Err(error) = sessions.close()
        {
            tracing::warn!(%error, "the session stays behind; others take it for dead in a while");
        }
        opened.map(Arc::new)
    }

    /// A read-only copy of the volume over a snapshot of the rows, with the current segments.
    pub(crate) fn frozen(&self) -> Result<Volume, Error> {
        let rows = self.engine.snapshot()?;
        let shared = (Arc::clone(&self.stores), Arc::clone(&self.segment_rows), Arc::clone(&self.sessions));
        Ok(Volume::assemble(self.env.clone(), rows, shared, self.options.clone()))
    }

    fn assemble(
        env: Env,
        engine: Arc<dyn Engine>,
        (stores, segment_rows, sessions): (Arc<Stores>, Arc<SegmentRows>, Arc<Sessions>),
        options: Options,
    ) -> Volume {
        let store = stores.segments();
        let paths = PathCache::new(options.paths_max);
        let latches = |count| (0..count).map(|_| Mutex::new(())).collect();
        let (latches, key_latches) = (latches(LATCHES), latches(KEY_LATCHES));
        let (known, watchers, open_files, fresh) =
            (Known::new(engine.waits()), Arc::default(), OpenFiles::default(), Fresh::default());
        let inos = Inos::default();
        Volume {
            env,
            engine,
            store,
            stores,
            segment_rows,
            options,
            inos,
            paths,
            entry_hints: EntryHints::default(),
            latches,
            key_latches,
            gate: Gate::default(),
            known,
            watchers,
            open_files,
            trails: Trails::default(),
            fresh,
            bucket_facts: BucketFacts::default(),
            events: Arc::default(),
            kept_rows: Arc::default(),
            upkeep: Mutex::new(()),
            refused: AtomicU64::default(),
            walks: Mutex::default(),
            room: Mutex::default(),
            punched: Mutex::default(),
            counted: Mutex::default(),
            lock_time: LockTime::default(),
            sessions,
            followed: Arc::default(),
            following: Mutex::new(()),
        }
    }

    /// The engine below, for metrics and for tools.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The segments, for metrics and tools.
    pub fn store(&self) -> &Arc<dyn Segments> {
        &self.store
    }

    /// A new file of S3 has what its headers say.
    pub(crate) fn take_headers(&self, file: &mut FileEntry) {
        if let Some(port) = &self.options.file_headers {
            port.take(file);
        }
    }

    /// What S3 is shown of a file beside its own headers.
    pub(crate) fn tell_headers(&self, file: &FileEntry, headers: &mut Headers) {
        if let Some(port) = &self.options.file_headers {
            port.tell(file, headers);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    pub(crate) fn new_ino(&self) -> Result<Ino, Error> {
        self.inos.next(&*self.engine)
    }

    /// The latch of one key. Taken before a directory's latch, never after.
    pub(crate) fn turn_at_key(&self, bucket: &str, directories: &str, name: &str) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        (bucket, directories, name).hash(&mut hasher);
        self.turn(&self.key_latches[hasher.finish() as usize % KEY_LATCHES])
    }

    /// The latch of removals in one directory.
    pub(crate) fn turn_in(&self, directory: Ino) -> Option<MutexGuard<'_, ()>> {
        self.turn(&self.latches[directory.0 as usize % LATCHES])
    }

    /// Where the engine waits, no lock is held over its calls: concurrent changes conflict and are retried.
    fn turn<'v>(&self, latch: &'v Mutex<()>) -> Option<MutexGuard<'v, ()>> {
        (!self.engine.waits()).then(|| latch.lock())
    }

    /// Called before rows are added; removing or moving rows may use the reserved space.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        if self.engine.has_room() {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Error::Full)
    }

    /// As `check_room`, before content is added.
    pub(crate) fn check_content_room(&self) -> Result<(), Error> {
        self.check_room()?;
        if self.waits_for_other_store() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Full);
        }
        Ok(())
    }

    /// Whether too much is only here.
    pub(crate) fn waits_for_other_store(&self) -> bool {
        self.options.evict.as_ref().is_some_and(|evict| evict.is_full())
    }

    /// Whether another store may have names that are not here.
    pub(crate) fn asks_for_absences(&self) -> bool {
        self.options.absences.is_some()
    }

    /// Fails if a name that is not in this directory may be in another store.
    pub(crate) fn check_absent(&self, directory: Ino) -> Result<(), Error> {
        let known = self.options.absences.as_ref().map(|absences| absences.known(directory));
        known.unwrap_or(Ok(())).map_err(Error::Unavailable)
    }

    /// Number of writes refused for lack of space since the start.
    pub fn refused(&self) -> u64 {
        self.store.refused() + self.refused.load(Ordering::Relaxed)
    }

    /// Effects of a change through S3, which kernels do not know of.
    fn effects_of(&self, draft: &Draft) -> Effects {
        let notice = self.watchers.any().then(|| draft.notice(&self.known));
        let notice = notice.filter(|notice| *notice != Notice::default());
        Effects { notice: notice.map(|notice| (notice, Arc::clone(&self.watchers))), ..self.effects_at_mount(draft) }
    }

    /// Effects of a change through a mount, whose kernel knows of it.
    fn effects_at_mount(&self, draft: &Draft) -> Effects {
        let events = (draft.events() > 0).then(|| (draft.events(), Arc::clone(&self.events)));
        let rows = self.engine.waits().then(|| {
            let changes = self.kept_rows.changes(draft.writes(), !draft.has_payload());
            (changes, Arc::clone(&self.kept_rows))
        });
        let followed = self.engine.is_shared().then(|| Arc::clone(&self.followed));
        Effects { notice: None, events, rows, segments: None, followed }
    }

    /// Adds to a draft what it must assert, and the rows of segments that it is the first to refer to.
    fn complete(&self, draft: &mut Draft) -> Result<Option<DraftedRows>, Refused> {
        self.sessions.check()?;
        self.sessions.bind(draft)?;
        Ok(self.segment_rows.add_to(draft))
    }

    /// Commits, and notifies the mounts.
    pub(crate) fn commit(&self, mut draft: Draft) -> Result<Committed, Refused> {
        let segments = self.complete(&mut draft)?;
        let effects = Effects { segments, ..self.effects_of(&draft) };
        let done = draft.commit(&*self.engine);
        effects.settle((&done).into());
        done
    }

    /// As `commit`, without blocking the thread. The effects run even if the future is dropped.
    pub(crate) async fn commit_later(&self, mut draft: Draft) -> Result<Committed, Refused> {
        let segments = self.complete(&mut draft)?;
        let effects = Effects { segments, ..self.effects_of(&draft) };
        let told = move |done: &Result<Committed, CommitError>| effects.settle(done.into());
        draft.commit_later(&*self.engine, Box::new(told)).await
    }

    /// Commits a change that came from a mount, whose kernel knows of it, while the mount holds its lease.
    pub(crate) fn commit_from_mount(&self, lease: &MountLease, mut draft: Draft) -> Result<Committed, Refused> {
        lease.assert_held(&mut draft)?;
        let segments = self.complete(&mut draft)?;
        let effects = Effects { segments, ..self.effects_at_mount(&draft) };
        let done = draft.commit(&*self.engine);
        effects.settle((&done).into());
        if matches!(done, Err(Refused::Error(Error::LeaseLost))) {
            lease.lost();
        }
        done
    }

    /// Waits until kernels have dropped what was changed so far; bounded in time.
    pub(crate) async fn tell_mounts(&self) {
        if self.watchers.any() {
            self.watchers.reached(self.watchers.newest(), &*self.env.clock).await;
        }
    }

    /// Answers to S3 that did not wait until a kernel had dropped what they changed.
    pub fn late_invalidations(&self) -> u64 {
        self.watchers.late()
    }

    /// Files that kernels know.
    pub fn known_files(&self) -> usize {
        self.known.len()
    }
}

/// Gives the own store its number. If the folder's last session has a row, beats until that session is dead, which may
/// be one of a process that was killed; if it lives, the folder is in use.
fn attach_store(
    env: &Env,
    engine: &Arc<dyn Engine>,
    store: &Arc<dyn Segments>,
    options: &Options,
    sessions: &Arc<Sessions>,
) -> Result<Stores, OpenError> {
    let processes = match &options.processes {
        Some(processes) => Arc::clone(processes),
        None if engine.is_shared() => Arc::clone(sessions) as Arc<dyn Processes>,
        None => Arc::new(Alone),
    };
    // Nothing is read yet.
    let oldest = engine.last_cursor();
    let mut looks = 0;
    let others = (options.peers.clone(), options.copies.clone());
    loop {
        let number = match Stores::open(env, engine, Arc::clone(store), others.clone(), Arc::clone(&processes)) {
            Ok(stores) => return Ok(stores),
            Err(NotAttached::InUse(number)) => number.0,
            Err(NotAttached::Detached(number)) => return Err(OpenError::StoreDetached { number: number.0 }),
            Err(NotAttached::Failed(error)) => return Err(error.into()),
        };
        if !engine.is_shared() || looks > STILL_BEATS_MAX {
            return Err(OpenError::StoreInUse { number });
        }
        looks += 1;
        sessions.beat(&|| oldest)?;
        env.clock.sleep(options.beat_every);
    }
}

/// An engine that waits may be unavailable, or lose the answer of a commit; every caller of the volume gets past that (V5).
fn patient(engine: Arc<dyn Engine>, env: &Env) -> Arc<dyn Engine> {
    if !engine.waits() {
        return engine;
    }
    Arc::new(PatientEngine::new(engine, Arc::clone(&env.clock), Patience::default()))
}
