//! Builds the storage of one data directory from its parts.
//!
//! Why:        the only place that knows which engine the volume uses.
//! Durability: closing makes a checkpoint, so that the next start replays little; a crash loses nothing durable.
//! Not here:   what the parts do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_accounts::fingerprint::CheckedKeys;
use margay_accounts::{encryption_keys, fingerprint};
use margay_env::Env;
use margay_meta::Engine;
use margay_meta::distant::DistantEngine;
use margay_meta::embedded::{self, EmbeddedEngine};
use margay_metrics::{Exposition, Kind};
use margay_segment::{Kind as Segment, SegmentInfo, Store};
use margay_upstream::{Far, FarOptions};
use margay_volume::{Blocking, KeyFile, KnownFingerprints, MasterKeys, SessionName, Volume, stored_key_fingerprints};
use serde_json::{Value, json};

use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::progress::Progress;
use crate::settings::StorageLimits;

/// Open storage; holds the directory's lock.
#[derive(Debug)]
pub struct Storage {
    pub volume: Arc<Volume>,
    pub engine: Arc<EmbeddedEngine>,
    pub segments: Arc<Store>,
    pub env: Env,
    /// Progress of a scrub and of a compaction.
    pub scrubbed: Progress,
    pub compacted: Progress,
    pub backed_up: Progress,
    stopping: AtomicBool,
    dir: DataDir,
}

/// Runs blocking disk work on the runtime's blocking threads.
#[derive(Debug)]
struct RuntimeThreads(tokio::runtime::Handle);

impl Blocking for RuntimeThreads {
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(work);
    }
}

impl Storage {
    /// Opens everything in the directory to serve it; blocks while the log is replayed. Refuses encryption keys that
    /// the volume was not used with. Must be called inside a tokio runtime.
    pub fn open(dir: DataDir, limits: &StorageLimits) -> Result<Storage, Failure> {
        Storage::open_with(dir, limits, |dir, known| Ok(encryption_keys::load(&dir.env, &dir.path, known)?))
    }

    /// As `open`, without any keys: for commands that read no content, and that work also when the keys are lost.
    pub fn open_at_rest(dir: DataDir, limits: &StorageLimits) -> Result<Storage, Failure> {
        Storage::open_with(dir, limits, |_, _| Ok(CheckedKeys { keys: MasterKeys::default(), keep: None }))
    }

    /// Opens the cache of a far bucket; the second one sends and fetches once it is told to begin. Must be called inside a
    /// tokio runtime.
    pub fn open_cache(dir: DataDir, limits: &StorageLimits, far: FarOptions) -> Result<(Storage, Arc<Far>), Failure> {
        let mut opened = None;
        let storage = Storage::open_below(
            dir,
            limits,
            |_, _| Ok(CheckedKeys { keys: MasterKeys::default(), keep: None }),
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
        let env = dir.env.clone();
        let fail = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", dir.path.display()));
        let segments = Store::open(env.clone(), segment_options(&dir, limits)).map_err(|error| fail(&error))?;
        let engine = EmbeddedEngine::open(env.clone(), Arc::clone(&segments), engine_options(&dir, limits))
            .map_err(|error| fail(&error))?;
        dir.trust().map_err(|error| fail(&error))?;
        let engine = Arc::new(engine);
        let known = stored_key_fingerprints(&*engine, KeyFile::Encryption).map_err(|error| fail(&error))?;
        let keys = keys(&dir, &known)?;
        let mut options = margay_volume::Options {
            master_keys: keys.keys.clone(),
            blocking: Arc::new(RuntimeThreads(tokio::runtime::Handle::current())),
            paths_max: limits.paths_max,
            file_memory_bytes_max: limits.file_memory_bytes_max,
            memory_bytes_max: limits.files_memory_bytes_max,
            events: Some(Arc::new(margay_s3::notification::Router)),
            events_max: limits.events_max,
            session_name: SessionName {
                host: std::env::var("HOSTNAME").unwrap_or_default(),
                pid: std::process::id(),
                program: concat!("margay ", env!("CARGO_PKG_VERSION")).to_owned(),
            },
            ..margay_volume::Options::default()
        };
        let mut below = Arc::clone(&engine) as Arc<dyn Engine>;
        if !limits.metadata_round_trip.is_zero() {
            below = Arc::new(DistantEngine::new(below, Arc::clone(&env.clock), limits.metadata_round_trip));
        }
        let below = above(&env, below, &mut options).map_err(|error| fail(&error))?;
        let volume = Volume::open(env.clone(), below, Arc::clone(&segments), options).map_err(|error| fail(&error))?;
        fingerprint::keep(&volume, KeyFile::Encryption, &known, keys)?;
        Ok(Storage {
            volume,
            engine,
            segments,
            env,
            scrubbed: Progress::default(),
            compacted: Progress::default(),
            backed_up: Progress::default(),
            stopping: AtomicBool::new(false),
            dir,
        })
    }

    /// The data directory.
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// `Err` says what cannot be read or written.
    pub fn health(&self) -> Result<(), String> {
        match self.segments.fault().or_else(|| self.engine.fault()) {
            Some(fault) => Err(format!("read-only after a storage fault, restart to recover: {fault}")),
            None => self.volume.session_fault().map_or(Ok(()), Err),
        }
    }

    /// Long tasks should end.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub fn stop_works(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Makes a checkpoint for a quick next start; blocks.
    pub fn close(&self) -> Result<(), Failure> {
        let checkpoint = self.engine.checkpoint();
        checkpoint.map_err(|error| {
            Failure::failed(format!("the last checkpoint failed, nothing acknowledged is lost: {error}"))
        })
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        self.write_engine_metrics(out);
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

    fn write_engine_metrics(&self, out: &mut Exposition) {
        let statistics = self.engine.statistics();
        let seconds = statistics.checkpoint_nanoseconds as f64 / 1e9;
        let behind = self.engine.last_cursor().0.saturating_sub(self.engine.durable_cursor().0);
        let counter = Kind::Counter;
        out.value(
            "margay_log_commits_total",
            counter,
            "Metadata commits since the volume was made.",
            statistics.commits,
        );
        out.family("margay_metadata_calls_total", counter, "Calls of the metadata engine, by operation.");
        for (operation, count) in statistics.calls {
            out.sample("margay_metadata_calls_total", &[("operation", operation)], count);
        }
        out.value("margay_log_syncs_total", counter, "Syncs of the log.", statistics.log_syncs);
        out.value("margay_log_written_bytes_total", counter, "Bytes written to the log.", statistics.log_bytes_written);
        out.value("margay_log_bytes", Kind::Gauge, "Bytes in use of the log file being written.", statistics.log_bytes);
        out.value("margay_log_unsynced_commits", Kind::Gauge, "Commits that are not yet durable.", behind);
        out.value("margay_checkpoints_total", counter, "Checkpoints.", statistics.checkpoints);
        out.value(
            "margay_checkpoint_rows_total",
            counter,
            "Rows folded into the tree file.",
            statistics.checkpoint_rows,
        );
        out.family("margay_checkpoint_seconds", Kind::Histogram, "How long a checkpoint took.");
        let ends = embedded::CHECKPOINT_BUCKETS_MS.map(|end| end as f64 / 1e3);
        let buckets = ends.into_iter().zip(statistics.checkpoints_by_time);
        out.histogram("margay_checkpoint_seconds", &[], buckets, (statistics.checkpoints, seconds));
        out.value("margay_overlay_rows", Kind::Gauge, "Rows in memory since the last seal.", statistics.overlay_rows);
        out.value("margay_overlay_bytes", Kind::Gauge, "Memory of those rows.", statistics.overlay_bytes);
        out.value("margay_overlay_sealed_rows", Kind::Gauge, "Rows waiting to be folded.", statistics.sealed_rows);
        out.value("margay_tree_file_bytes", Kind::Gauge, "Bytes of the tree file.", statistics.tree_file_bytes);
        out.value(
            "margay_tree_damaged_pages",
            Kind::Gauge,
            "Pages of the tree found damaged since the start.",
            statistics.damaged_pages,
        );
    }

    /// For `margay status`.
    pub fn status(&self) -> Value {
        let statistics = self.engine.statistics();
        let infos = self.segments.segments();
        let segments: serde_json::Map<String, Value> = by_kind(&infos)
            .into_iter()
            .map(|(kind, count, bytes)| (kind.to_owned(), json!({ "files": count, "bytes": bytes })))
            .collect();
        json!({
            "segments": segments,
            "scrub": self.scrubbed.to_json(),
            "compact": self.compacted.to_json(),
            "backup": self.backed_up.to_json(),
            "commits": statistics.commits,
            "log_syncs": statistics.log_syncs,
            "checkpoints": statistics.checkpoints,
            "rows_in_memory": statistics.overlay_rows + statistics.sealed_rows,
            "tree_bytes": statistics.tree_file_bytes,
            "tree_damaged_pages": statistics.damaged_pages,
            "tree_checksums": match statistics.tree_checksums {
                true => "every page",
                false => "not every page yet: margay scrub adds them",
            },
        })
    }
}

pub(crate) fn segment_options(dir: &DataDir, limits: &StorageLimits) -> margay_segment::Options {
    let mut options = margay_segment::Options::new(dir.segments());
    options.pack_bytes_max = limits.pack_bytes_max;
    options.raw_bytes_min = limits.raw_bytes_min;
    options.reserve_bytes = limits.reserve_bytes;
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
