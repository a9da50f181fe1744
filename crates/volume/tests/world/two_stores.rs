//! Two volumes over one engine, each with a store of its own, as two processes have them.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use margay_env::Env;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::{Cursor, Engine};
use margay_segment::{Segments, Store, StoreNumber};
use margay_volume::*;

/// What ties the two together: each knows the other's store, and publishes from where on it reads whenever it is asked.
#[derive(Default)]
pub struct Cluster {
    volumes: [OnceLock<Weak<Volume>>; 2],
    stores: [OnceLock<Arc<Store>>; 2],
    /// Reads of others are not waited for: the mistake that the tests must notice.
    pub hasty: bool,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Cluster")
    }
}

/// One of the two, as its volume sees the others.
#[derive(Debug)]
struct Member {
    cluster: Arc<Cluster>,
    session: u64,
}

impl Peers for Member {
    fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>> {
        let mut stores = self.cluster.stores.iter().filter_map(OnceLock::get);
        stores.find(|store| store.name().number == number).map(|store| Arc::<Store>::clone(store) as Arc<dyn Segments>)
    }
}

impl Processes for Member {
    fn session(&self) -> u64 {
        self.session
    }

    fn is_live(&self, _session: u64) -> Result<bool, Error> {
        Ok(true)
    }

    fn oldest_reader(&self) -> Result<Cursor, Error> {
        if self.cluster.hasty {
            return Ok(Cursor(u64::MAX));
        }
        let live = self.cluster.volumes.iter().filter_map(OnceLock::get).filter_map(Weak::upgrade);
        Ok(live.map(|volume| volume.advance_readers()).min().unwrap_or(Cursor(u64::MAX)))
    }
}

pub fn sim_env(seed: u64) -> Env {
    let (disk, random) = (SimDisk::new(seed), SimRandom::new(seed));
    Env { disk: Arc::new(disk), clock: Arc::new(RealClock::new()), random: Arc::new(random) }
}

/// Two empty stores; packs are small, so that tests fill many.
pub fn stores() -> [(Env, Arc<Store>); 2] {
    [1, 2].map(|seed| {
        let env = sim_env(seed);
        let mut options = margay_segment::Options::new(Path::new("/segments"));
        (options.pack_bytes_max, options.raw_bytes_min, options.reserve_bytes) = (1 << 10, 32 << 10, 0);
        (env.clone(), Store::open(env, options).unwrap())
    })
}

/// The same, where what each still reads is told by the rows of their sessions alone; with options.
pub fn in_sessions_with(
    engine: &Arc<dyn Engine>,
    stores: &[(Env, Arc<Store>); 2],
    options: &Options,
) -> [Arc<Volume>; 2] {
    open([engine, engine], stores, false, |_| options.clone())
}

/// As `in_sessions_with`, each with an engine of its own over the same rows.
pub fn in_sessions_over(
    engines: &[Arc<dyn Engine>; 2],
    stores: &[(Env, Arc<Store>); 2],
    options: &Options,
) -> [Arc<Volume>; 2] {
    open(engines.each_ref(), stores, false, |_| options.clone())
}

/// A volume on each store.
pub fn volumes(
    engine: &Arc<dyn Engine>,
    stores: &[(Env, Arc<Store>); 2],
    options: &Options,
    hasty: bool,
) -> [Arc<Volume>; 2] {
    open([engine, engine], stores, hasty, |member| Options { processes: Some(member), ..options.clone() })
}

/// The same, where what each still reads is told by the rows of their sessions alone.
pub fn in_sessions(engine: &Arc<dyn Engine>, stores: &[(Env, Arc<Store>); 2]) -> [Arc<Volume>; 2] {
    in_sessions_with(engine, stores, &Options::default())
}

fn open(
    engines: [&Arc<dyn Engine>; 2],
    stores: &[(Env, Arc<Store>); 2],
    hasty: bool,
    options: impl Fn(Arc<Member>) -> Options,
) -> [Arc<Volume>; 2] {
    let cluster = Arc::new(Cluster { hasty, ..Cluster::default() });
    [0, 1].map(|index| {
        let (env, store) = &stores[index];
        let member = Arc::new(Member { cluster: Arc::clone(&cluster), session: index as u64 + 1 });
        let options = Options { peers: Some(Arc::<Member>::clone(&member)), ..options(member) };
        let volume = Volume::open(env.clone(), Arc::clone(engines[index]), Arc::clone(store), options).unwrap();
        cluster.stores[index].set(Arc::clone(store)).unwrap();
        cluster.volumes[index].set(Arc::downgrade(&volume)).unwrap();
        volume
    })
}
