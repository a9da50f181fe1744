//! Builds the storage of one data directory from its parts.
//!
//! Why:        the only place that opens an engine and a store for the volume.
//! Durability: closing makes a checkpoint, so that the next start replays little; a crash loses nothing durable.
//! Not here:   what the parts do.

mod copy_metrics;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_accounts::fingerprint::CheckedKeys;
use margay_accounts::identities::SealKey;
use margay_accounts::{encryption_keys, fingerprint};
use margay_cluster::{ClusterKey, HttpCopies, HttpPeers, StoreTls};
use margay_disks::Disks;
use margay_env::Env;
use margay_jobs::session_keeper::SessionKeeper;
use margay_meta::Engine;
use margay_meta::distant::DistantEngine;
use margay_meta::embedded::{self, EmbeddedEngine};
use margay_metrics::{Exposition, Kind};
use margay_postgres::{PostgresEngine, PostgresOptions};
use margay_segment::{Kind as Segment, SegmentInfo, Store};
use margay_upstream::{Far, FarOptions};
use margay_volume::{
    Blocking, KeyFile, KnownFingerprints, MasterKeys, SessionName, Volume, store_identity, stored_key_fingerprints,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::datadir::DataDir;
use crate::disks;
use crate::exit::Failure;
use crate::pools::OwnKeys;
use crate::progress::Progress;
use crate::rows::Rows;
use crate::settings::StorageLimits;

/// Open storage; holds the directory's lock.
#[derive(Debug)]
pub struct Storage {
    pub volume: Arc<Volume>,
    pub rows: Rows,
    pub segments: Arc<Store>,
    pub env: Env,
    /// Progress of a scrub and of a compaction.
    pub scrubbed: Progress,
    pub compacted: Progress,
    pub backed_up: Progress,
    /// Of a volume that several servers share.
    copies: Option<Arc<HttpCopies>>,
    stopping: AtomicBool,
    /// Of a command; a server keeps its session itself.
    session: Mutex<Option<SessionKeeper>>,
    dir: DataDir,
}

/// What a store of a shared volume is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Clients,
    /// It keeps copies, and reads no content.
    Endpoint,
    /// A command that reads no content.
    Command,
}

/// Runs blocking disk work on the runtime's blocking threads.
#[derive(Debug)]
struct RuntimeThreads(tokio::runtime::Handle);

impl Blocking for RuntimeThreads {
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(work);
    }
}

/// As `status` and `top` tell it: `ok`, or what is wrong.
pub fn told(found: Result<(), String>) -> String {
    found.err().unwrap_or_else(|| "ok".to_owned())
}

impl Storage {
    /// Opens everything in the directory to serve it; blocks while the log is replayed. Refuses encryption keys that
    /// the volume was not used with. Must be called inside a tokio runtime.
    pub fn open(dir: DataDir, limits: &StorageLimits) -> Result<Storage, Failure> {
        Storage::open_with(dir, limits, |dir, known| Ok(encryption_keys::load(&dir.env, &dir.path, known)?))
    }

    /// As `open`, without any keys: for commands that read no content, and that work also when the keys are lost.
    pub fn open_at_rest(dir: DataDir, limits: &StorageLimits) -> Result<Storage, Failure> {
        Storage::open_with(dir, limits, |_, _| Ok(without_keys()))
    }

    /// Opens the cache of a far bucket; the second one sends and fetches once it is told to begin. Must be called inside a
    /// tokio runtime.
    pub fn open_cache(dir: DataDir, limits: &StorageLimits, far: FarOptions) -> Result<(Storage, Arc<Far>), Failure> {
        let mut opened = None;
        let storage = Storage::open_below(
            dir,
            limits,
            |_, _| Ok(without_keys()),
            |env, engine, options| {
                let far = Arc::new(Far::open(env.clone(), engine, far)?);
                (options.peers, options.local_before_write) = (Some(far.peers()), true);
                options.file_headers = Some(far.file_headers());
                (options.evict, options.absences) = (Some(far.evict()), Some(far.absences()));
                let engine = far.engine();
                opened = Some(far);
                Ok(engine)
            },
        )?;
        let far = opened.ok_or_else(|| Failure::failed("the cache was opened without its bucket".to_owned()))?;
        Ok((storage, far))
    }

    fn open_with(
        dir: DataDir,
        limits: &StorageLimits,
        keys: impl FnOnce(&DataDir, &KnownFingerprints) -> Result<CheckedKeys<MasterKeys>, Failure>,
    ) -> Result<Storage, Failure> {
        Storage::open_below(dir, limits, keys, |_, engine, _| Ok(engine))
    }

    /// Opens a store of a volume whose rows are in PostgreSQL; other servers read it at `address`. Returns also the key that all
    /// its servers have. Must be called inside a tokio runtime.
    pub fn open_shared(
        dir: DataDir,
        limits: &StorageLimits,
        shared: (&PostgresOptions, StoreTls),
        address: String,
    ) -> Result<(Storage, ClusterKey), Failure> {
        Storage::open_store(dir, limits, shared, address, Purpose::Clients)
    }

    /// As `open_shared`, without keys that encrypt content; refused while the volume has no server with clients, whose key the others
    /// need. Must be called inside a tokio runtime.
    pub fn open_endpoint(
        dir: DataDir,
        limits: &StorageLimits,
        shared: (&PostgresOptions, StoreTls),
        address: String,
    ) -> Result<(Storage, ClusterKey), Failure> {
        Storage::open_store(dir, limits, shared, address, Purpose::Endpoint)
    }

    fn open_store(
        dir: DataDir,
        limits: &StorageLimits,
        (postgres, tls): (&PostgresOptions, StoreTls),
        address: String,
        purpose: Purpose,
    ) -> Result<(Storage, ClusterKey), Failure> {
        let engine = PostgresEngine::open(postgres);
        let engine = engine.map_err(|error| Failure::failed(format!("{}: {error}", postgres.config)))?;
        let rows = Rows::Postgres(Arc::new(engine));
        let fail = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
        let known = stored_key_fingerprints(&*rows.engine(), KeyFile::Identity).map_err(|error| fail(&error))?;
        if purpose == Purpose::Endpoint && known.fingerprints.is_none() {
            return Err(Failure::failed(format!(
                "this volume has no server with clients yet: start one without --endpoint-only first, and copy its identity-key to {}",
                dir.path.display()
            )));
        }
        let key = ClusterKey::derive(&SealKey::secret(&dir.env, &dir.path, &known)?);
        let buckets = Arc::new(OwnKeys::of_process(&dir.env));
        let peers = HttpPeers::start(rows.engine(), key.clone(), tls, Some(buckets)).map_err(|error| fail(&error))?;
        let segments = open_segments(&dir, limits)?;
        check_known(&dir, &*rows.engine(), &segments)?;
        let copies = HttpCopies::start(&peers, Arc::clone(&segments)).map_err(|error| fail(&error))?;
        let copies = Arc::new(copies);
        let made = Arc::clone(&copies);
        let storage = Storage::open_rows(
            dir,
            limits,
            (segments, rows),
            |dir, known| match purpose {
                Purpose::Clients => Ok(encryption_keys::load(&dir.env, &dir.path, known)?),
                Purpose::Endpoint | Purpose::Command => Ok(without_keys()),
            },
            |_, engine, options| {
                options.peers = Some(Arc::new(peers));
                options.copies = Some(made);
                options.session_name.address = address;
                Ok(engine)
            },
        )?;
        Ok((Storage { copies: Some(copies), ..storage }, key))
    }

    /// `above` puts something between the volume and its engine.
    fn open_below(
        dir: DataDir,
        limits: &StorageLimits,
        keys: impl FnOnce(&DataDir, &KnownFingerprints) -> Result<CheckedKeys<MasterKeys>, Failure>,
        above: impl FnOnce(
            &Env,
            Arc<dyn Engine>,
            &mut margay_volume::Options,
        ) -> Result<Arc<dyn Engine>, margay_meta::EngineError>,
    ) -> Result<Storage, Failure> {
        let segments = open_segments(&dir, limits)?;
        let engine = EmbeddedEngine::open(dir.env.clone(), Arc::clone(&segments), engine_options(&dir, limits));
        let engine = engine.map_err(|error| Failure::failed(format!("{}: {error}", dir.path.display())))?;
        Storage::open_rows(dir, limits, (segments, Rows::Embedded(Arc::new(engine))), keys, above)
    }

    fn open_rows(
        dir: DataDir,
        limits: &StorageLimits,
        (segments, rows): (Arc<Store>, Rows),
        keys: impl FnOnce(&DataDir, &KnownFingerprints) -> Result<CheckedKeys<MasterKeys>, Failure>,
        above: impl FnOnce(
            &Env,
            Arc<dyn Engine>,
            &mut margay_volume::Options,
        ) -> Result<Arc<dyn Engine>, margay_meta::EngineError>,
    ) -> Result<Storage, Failure> {
        let env = dir.env.clone();
        let fail = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", dir.path.display()));
        dir.trust().map_err(|error| fail(&error))?;
        let mut below = rows.engine();
        let known = stored_key_fingerprints(&*below, KeyFile::Encryption).map_err(|error| fail(&error))?;
        let keys = keys(&dir, &known)?;
        let mut options = volume_options(limits, keys.keys.clone());
        if !limits.metadata_round_trip.is_zero() {
            below = Arc::new(DistantEngine::new(below, Arc::clone(&env.clock), limits.metadata_round_trip));
        }
        let below = above(&env, below, &mut options).map_err(|error| fail(&error))?;
        let volume = Volume::open(env.clone(), below, Arc::clone(&segments), options).map_err(|error| fail(&error))?;
        fingerprint::keep(&volume, KeyFile::Encryption, &known, keys)?;
        Ok(Storage {
            volume,
            rows,
            segments,
            env,
            scrubbed: Progress::default(),
            compacted: Progress::default(),
            backed_up: Progress::default(),
            copies: None,
            stopping: AtomicBool::new(false),
            session: Mutex::default(),
            dir,
        })
    }

    /// Of a volume that several servers share.
    pub fn copies(&self) -> Option<&Arc<HttpCopies>> {
        self.copies.as_ref()
    }

    /// The data directory.
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// `Err` says what cannot be read or written.
    pub fn health(&self) -> Result<(), String> {
        match self.segments.fault().or_else(|| self.rows.fault()) {
            Some(fault) => Err(format!("read-only after a storage fault, restart to recover: {fault}")),
            None => self.volume.session_fault().map_or(Ok(()), Err),
        }
    }

    /// Long tasks should end.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// From now on other directories of the volume are looked at and filled.
    pub fn start_disks(&self) -> Result<(), Failure> {
        let started = self.dir.disks.as_ref().map_or(Ok(()), Disks::start);
        started.map_err(|error| Failure::failed(format!("cannot start a thread: {error}; look at ulimit -u")))
    }

    /// The other directories, if there are some.
    pub fn disks(&self) -> Option<&Disks> {
        self.dir.disks.as_ref()
    }

    pub fn stop_works(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Opens the store of a shared volume for a command, while no server uses it: a process among the servers, which gives them nothing.
    /// Must be called inside a tokio runtime.
    pub fn open_shared_at_rest(
        dir: DataDir,
        limits: &StorageLimits,
        shared: (&PostgresOptions, StoreTls),
    ) -> Result<Storage, Failure> {
        let (storage, _) = Storage::open_store(dir, limits, shared, String::new(), Purpose::Command)?;
        let keeper = SessionKeeper::start(&storage.env, &storage.volume);
        let keeper =
            keeper.map_err(|error| Failure::failed(format!("cannot start a thread: {error}; look at ulimit -u")))?;
        *storage.session.lock() = Some(keeper);
        Ok(storage)
    }

    /// Makes a checkpoint for a quick next start; blocks. Ends the session of a command.
    pub fn close(&self) -> Result<(), Failure> {
        self.copies.iter().for_each(|copies| copies.end());
        drop(self.session.lock().take());
        let checkpoint = self.rows.checkpoint();
        checkpoint.map_err(|error| {
            Failure::failed(format!("the last checkpoint failed, nothing acknowledged is lost: {error}"))
        })
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        self.rows.write_metrics(out);
        self.copies.iter().for_each(|copies| copy_metrics::write(&copies.statistics(), out));
        self.dir.disks.iter().for_each(|disks| disks::write_metrics(&disks.status(), out));
        let infos = self.segments.segments();
        out.family("margay_segments", Kind::Gauge, "Segment files by kind.");
        for (kind, count, _) in by_kind(&infos) {
            out.sample("margay_segments", &[("kind", kind)], count);
        }
        out.family("margay_segment_bytes", Kind::Gauge, "Bytes of segment files by kind.");
        for (kind, _, bytes) in by_kind(&infos) {
            out.sample("margay_segment_bytes", &[("kind", kind)], bytes);
        }
        // Values that cannot be read now are omitted: the page must be available, above all when something is wrong.
        if let Ok(used) = self.segments.used_bytes() {
            out.family("margay_segment_used_bytes", Kind::Gauge, "Bytes of the device that they occupy.");
            for (kind, bytes) in used {
                out.sample("margay_segment_used_bytes", &[("kind", kind_name(kind))], bytes);
            }
        }
        if let Ok(live) = self.volume.live_bytes() {
            out.family("margay_segment_live_bytes", Kind::Gauge, "Bytes in them that objects and parts name.");
            for kind in KINDS {
                let of_kind = infos.iter().filter(|info| info.kind == kind);
                let bytes: u64 = of_kind.filter_map(|info| live.get(&info.id)).sum();
                out.sample("margay_segment_live_bytes", &[("kind", kind_name(kind))], bytes);
            }
        }
    }

    /// For `margay status`.
    pub fn status(&self) -> Value {
        let infos = self.segments.segments();
        let segments: serde_json::Map<String, Value> = by_kind(&infos)
            .into_iter()
            .map(|(kind, count, bytes)| (kind.to_owned(), json!({ "files": count, "bytes": bytes })))
            .collect();
        let mut status = self.rows.status();
        let own = [
            ("segments", Value::Object(segments)),
            ("scrub", self.scrubbed.to_json()),
            ("compact", self.compacted.to_json()),
            ("backup", self.backed_up.to_json()),
        ];
        for (name, value) in own {
            status[name] = value;
        }
        if let Some(disks) = &self.dir.disks {
            status["disks"] = disks::status(&disks.status());
        }
        if let Some(copies) = self.copies.as_ref().map(|copies| copies.statistics()) {
            status["copies"] = json!({
                "copies": copies.copies,
                "write": copies.write,
                "other_stores": copies.stores,
                "incomplete_segments": copies.incomplete_segments,
                "refused_writes": copies.refused_writes,
            });
        }
        status
    }
}

fn without_keys() -> CheckedKeys<MasterKeys> {
    CheckedKeys { keys: MasterKeys::default(), keep: None }
}

fn open_segments(dir: &DataDir, limits: &StorageLimits) -> Result<Arc<Store>, Failure> {
    let segments = Store::open(dir.env.clone(), segment_options(dir, limits));
    segments.map_err(|error| Failure::failed(format!("{}: {error}", dir.path.display())))
}

fn volume_options(limits: &StorageLimits, master_keys: MasterKeys) -> margay_volume::Options {
    margay_volume::Options {
        master_keys,
        blocking: Arc::new(RuntimeThreads(tokio::runtime::Handle::current())),
        paths_max: limits.paths_max,
        file_memory_bytes_max: limits.file_memory_bytes_max,
        memory_bytes_max: limits.files_memory_bytes_max,
        events: Some(Arc::new(margay_s3::notification::Router)),
        events_max: limits.events_max,
        session_name: SessionName {
            host: host_name(),
            pid: std::process::id(),
            program: concat!("margay ", env!("CARGO_PKG_VERSION")).to_owned(),
            address: String::new(),
        },
        ..margay_volume::Options::default()
    }
}

pub(crate) fn segment_options(dir: &DataDir, limits: &StorageLimits) -> margay_segment::Options {
    let mut options = margay_segment::Options::new(dir.segments());
    options.pack_bytes_max = limits.pack_bytes_max;
    options.raw_bytes_min = limits.raw_bytes_min;
    options.reserve_bytes = limits.reserve_bytes;
    options.files_may_be_missing = dir.disks.is_some();
    options
}

pub(crate) fn engine_options(dir: &DataDir, limits: &StorageLimits) -> embedded::Options {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut options = embedded::Options::new(dir.tree());
    options.tree_cache_bytes = bytes(limits.cache_bytes);
    options.log_file_bytes = limits.log_bytes_max / 2;
    options.overlay_bytes_max = bytes(limits.overlay_bytes_max);
    options.after_fault = dir.after_fault;
    options
}

const KINDS: [Segment; 3] = [Segment::Log, Segment::Pack, Segment::Raw];

fn kind_name(kind: Segment) -> &'static str {
    match kind {
        Segment::Log => "log",
        Segment::Pack => "pack",
        Segment::Raw => "raw",
    }
}

/// Name, count and bytes of each kind of segment.
fn by_kind(infos: &[SegmentInfo]) -> [(&'static str, u64, u64); 3] {
    KINDS.map(|kind| {
        let of_kind = || infos.iter().filter(|info| info.kind == kind);
        (kind_name(kind), of_kind().count() as u64, of_kind().map(|info| info.len).sum())
    })
}

/// What this machine calls itself, "here" if it says nothing. The shell's variable `HOSTNAME` is often not passed on.
pub(crate) fn host_name() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if told.trim().is_empty() { "here".to_owned() } else { told.trim().to_owned() }
}

/// A directory whose segments no row knows would be taken for a new one, and lose them to reclaim.
fn check_known(dir: &DataDir, rows: &dyn Engine, segments: &Store) -> Result<(), Failure> {
    let name = segments.name();
    if name.generation <= 1 && segments.segments().is_empty() {
        return Ok(());
    }
    let known = store_identity(rows, name.number).map_err(|error| Failure::failed(error.to_string()))?;
    if known.is_some() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} has segments of a volume that this database does not know: it is another database or schema (metadata, metadata_schema), \
         or was restored to a point before this directory was part of the volume; name the right one, or start with an empty directory",
        dir.path.display()
    )))
}
