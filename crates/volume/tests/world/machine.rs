//! A volume over the embedded engine on a simulated disk, which forgets what was not synced when its power goes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::Store;
use margay_volume::{Options, Volume};

/// Opens what is on the disk. Log files and segments are small, so that tests fill many. Without an interval the
/// engine syncs as often as it does by itself.
pub fn open(
    disk: &SimDisk,
    seed: u64,
    sync_interval: Option<Duration>,
    options: Options,
) -> (Arc<Volume>, Arc<EmbeddedEngine>) {
    open_with_reserve(disk, seed, sync_interval, options, 0)
}

/// As `open`; data writes leave `reserve_bytes` of the disk free.
pub fn open_with_reserve(
    disk: &SimDisk,
    seed: u64,
    sync_interval: Option<Duration>,
    options: Options,
    reserve_bytes: u64,
) -> (Arc<Volume>, Arc<EmbeddedEngine>) {
    let random = SimRandom::new(seed);
    let env = Env { disk: Arc::new(disk.clone()), clock: Arc::new(RealClock::new()), random: Arc::new(random) };
    let mut segments = margay_segment::Options::new(Path::new("/data/segments"));
    (segments.pack_bytes_max, segments.raw_bytes_min, segments.reserve_bytes) = (128 << 10, 48 << 10, reserve_bytes);
    let store = Store::open(env.clone(), segments).unwrap();
    let mut tree = margay_meta::embedded::Options::new("/data/tree".into());
    (tree.log_file_bytes, tree.tree_cache_bytes) = (256 << 10, 1 << 20);
    tree.sync_interval = sync_interval.unwrap_or(tree.sync_interval);
    let engine = Arc::new(EmbeddedEngine::open(env.clone(), Arc::clone(&store), tree).unwrap());
    let below = Arc::clone(&engine) as Arc<dyn Engine>;
    (Volume::open(env, below, store, options).unwrap(), engine)
}
