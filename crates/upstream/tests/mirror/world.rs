//! A machine with a cache, and what a process on it does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use margay_client::Target;
use margay_client::upstream::{Limits, Upstream};
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Clock, Env, Timestamp};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::Store as Segments;
use margay_upstream::{CacheOptions, Far, FarOptions, Fsync, Opens, PartSizes, Ttl, Writers};
use margay_volume::posix::*;
use margay_volume::{Ino, Options, ReclaimBudget, SealedLogs, Volume};

use crate::store::{Lists, Store};

pub(crate) const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
pub(crate) const NEW: NewFile = NewFile { rights: 0o644, umask: 0, uid: 7, gid: 8 };

/// Runs the store and what is asynchronous of a volume.
pub(crate) fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// What a machine has: its disk and its clock stay when a process ends.
pub(crate) struct Cache {
    disk: SimDisk,
    clock: Arc<Jumping>,
    seed: u64,
    fsync: Fsync,
    opens: Opens,
    writers: Writers,
}

/// A process.
pub(crate) struct World {
    /// Files that stay open while they are written.
    open: Mutex<Vec<Handle>>,
    pub(crate) far: Arc<Far>,
    pub(crate) mount: Arc<Mount>,
}

/// The time of the machine, and what a test adds to it.
#[derive(Debug)]
pub(crate) struct Jumping(RealClock, AtomicU64, AtomicBool);

impl Jumping {
    pub(crate) fn jump(&self, time: Duration) {
        self.1.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// From now on whoever sends panics.
    pub(crate) fn break_sending(&self) {
        self.2.store(true, Ordering::SeqCst);
    }
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        let is_sender = || std::thread::current().name().is_some_and(|name| name.starts_with("margay-upstream"));
        assert!(!self.2.load(Ordering::SeqCst) || !is_sender(), "the clock is broken");
        self.0.monotonic() + Duration::from_nanos(self.1.load(Ordering::SeqCst))
    }

    fn sleep(&self, length: Duration) {
        self.0.sleep(length);
    }
}

impl Cache {
    pub(crate) fn new(seed: u64) -> Cache {
        let clock = Arc::new(Jumping(RealClock::new(), AtomicU64::new(0), AtomicBool::new(false)));
        let (fsync, opens, writers) = (Fsync::Upstream, Opens::default(), Writers::Many);
        Cache { disk: SimDisk::new(seed), clock, seed, fsync, opens, writers }
    }

    /// Whose syncs wait for its disk alone.
    pub(crate) fn local(seed: u64) -> Cache {
        Cache { fsync: Fsync::Local, ..Cache::new(seed) }
    }

    /// Whose opens ask the bucket so.
    pub(crate) fn opening(seed: u64, opens: Opens) -> Cache {
        Cache { opens, ..Cache::new(seed) }
    }

    /// Whose mounts are the only writers.
    pub(crate) fn alone(seed: u64) -> Cache {
        Cache { writers: Writers::One, ..Cache::new(seed) }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.fsync == Fsync::Local
    }

    /// Begins the write ids.
    pub(crate) fn id(&self) -> String {
        format!("{:x}", self.seed)
    }

    /// With half of the seeds, files of some hundred KiB have parts.
    fn parts(&self) -> PartSizes {
        let small = PartSizes {
            one_put_bytes_max: 256 << 10,
            part_bytes: 64 << 10,
            copy_bytes_max: 1 << 20,
            ..PartSizes::default()
        };
        if self.has_parts() { small } else { PartSizes::default() }
    }

    fn has_parts(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    pub(crate) fn clock(&self) -> &Jumping {
        &self.clock
    }

    /// The process is killed; returns by what the next one reaches the store.
    pub(crate) fn end(&mut self, world: World, store: &Arc<Store>) -> Arc<Target> {
        let target = runtime().block_on(store.door());
        self.disk = self.disk.kill(self.seed);
        drop(world);
        target
    }

    /// The power is cut: what was not synced is lost or torn, by the seed.
    pub(crate) fn cut_power(&mut self, world: World, store: &Arc<Store>, seed: u64) -> Arc<Target> {
        let target = runtime().block_on(store.door());
        self.disk = self.disk.crash(seed);
        drop(world);
        target
    }

    /// The engine and segments of one process, over those of the one before.
    pub(crate) fn storage(&self, random: u64) -> (Env, Arc<dyn Engine>, Arc<Segments>) {
        let random = Arc::new(SimRandom::new(self.seed.wrapping_mul(1000).wrapping_add(random)));
        let env = Env { disk: Arc::new(self.disk.clone()), clock: Arc::clone(&self.clock) as Arc<dyn Clock>, random };
        let mut options = margay_segment::Options::new(Path::new("/data/segments"));
        (options.pack_bytes_max, options.raw_bytes_min, options.reserve_bytes) = (128 << 10, 48 << 10, 0);
        let segments = Segments::open(env.clone(), options).unwrap();
        let mut tree = margay_meta::embedded::Options::new("/data/tree".into());
        (tree.log_file_bytes, tree.tree_cache_bytes) = (256 << 10, 1 << 20);
        // Nothing is durable by itself, so that what must be is asked for.
        tree.sync_interval = Duration::from_secs(2);
        let engine = Arc::new(EmbeddedEngine::open(env.clone(), Arc::clone(&segments), tree).unwrap());
        (env, engine, segments)
    }

    pub(crate) fn open(&self, target: &Arc<Target>, prefix: &str) -> World {
        let (volume, far) = self.volume(target, prefix);
        if runtime().block_on(volume.head_bucket("b")).is_err() {
            runtime().block_on(volume.create_bucket("b")).unwrap();
        }
        far.begin(&volume, "b").unwrap();
        let upstream = Some(Arc::clone(&far) as Arc<dyn UpstreamSync>);
        let mount = Mount::open(volume, "b", "", MountOptions { upstream, ..MountOptions::default() }).unwrap();
        World { open: Mutex::default(), far, mount }
    }

    /// Without a bucket, and nothing is sent yet.
    pub(crate) fn volume(&self, target: &Arc<Target>, prefix: &str) -> (Arc<Volume>, Arc<Far>) {
        static PROCESSES: AtomicU64 = AtomicU64::new(0);
        let (env, engine, segments) = self.storage(PROCESSES.fetch_add(1, Ordering::SeqCst));
        let upstream = Upstream::new(Arc::clone(target), "far", Limits::default());
        let cache = CacheOptions { blocks: "/data/blocks".into(), bytes_max: 32 << 20 };
        let (prefix, host, fsync, parts) = (prefix.to_owned(), "here".to_owned(), self.fsync, self.parts());
        let (id, opens, ttl, writers) = (self.id(), self.opens, Ttl::default(), self.writers);
        let options = FarOptions { upstream, prefix, id, host, cache, parts, fsync, opens, ttl, writers };
        let far = Arc::new(Far::open(env.clone(), engine, options).unwrap());
        let options = Options {
            peers: Some(far.peers()),
            local_before_write: true,
            evict: Some(far.evict()),
            // So that they are stored while they are written.
            file_memory_bytes_max: if self.has_parts() { 128 << 10 } else { Options::default().file_memory_bytes_max },
            ..Options::default()
        };
        (Volume::open(env, far.engine(), segments, options).unwrap(), far)
    }
}

/// Everything is sealed, everything that is named moves, everything else goes.
pub(crate) const ALL: ReclaimBudget = ReclaimBudget {
    move_bytes_max: u64::MAX,
    live_percent_min: 1_000_000,
    seal_dead_bytes_min: 0,
    quarantine: Duration::ZERO,
    free_percent_min: 0,
    punch: true,
};

/// Directories in which things happen, and names.
pub(crate) const DIRECTORIES: [&str; 5] = ["", "d", "e", "d/d", "e/d"];
pub(crate) const NAMES: [&str; 4] = ["a", "b", "d", "e"];

pub(crate) type Done<T> = Result<T, PosixError>;

impl World {
    pub(crate) fn at(&self, path: &str) -> Done<Ino> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let mut at = self.mount.root();
        for name in names {
            at = self.mount.lookup(at, &Name::Plain(name.to_owned()))?.ino;
        }
        Ok(at)
    }

    pub(crate) fn create(&self, directory: &str, name: &str) -> Done<Handle> {
        Ok(self.mount.create(self.at(directory)?, &Name::Plain(name.to_owned()), &NEW, BOTH)?.1)
    }

    pub(crate) fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Done<()> {
        let (from, to) = (Name::Plain(from.to_owned()), Name::Plain(to.to_owned()));
        self.mount.rename(self.mount.root(), &from, self.mount.root(), &to, mode)
    }

    pub(crate) fn write(&self, directory: &str, name: &str, offset: u64, bytes: &[u8]) -> Done<()> {
        let handle = self.create(directory, name)?;
        self.mount.write(&handle, offset, bytes, false)?;
        self.mount.flush(&handle)?;
        self.mount.release(handle)
    }

    /// One change; whether it succeeds depends on what is there.
    pub(crate) fn change(&self, chance: &mut crate::Chance, number: u64, store: &Store, id: &str) -> Done<()> {
        let (from, to) = (chance.of(&DIRECTORIES), chance.of(&DIRECTORIES));
        let (one, two) = (Name::Plain(chance.of(&NAMES).to_owned()), Name::Plain(chance.of(&NAMES).to_owned()));
        let Name::Plain(name) = &one else { unreachable!() };
        let may_lose = |directory: Ino, name: &Name| {
            if let Ok(found) = self.mount.lookup(directory, name) {
                store.may_lose(id, found.ino.0);
            }
        };
        match chance.below(15) {
            0..4 => {
                let len = [0, 1, 100, 5000, 3 << 20][chance.below(5) as usize];
                let body: Vec<u8> = (0..len).map(|at: u64| (at ^ number) as u8).collect();
                self.write(from, name, chance.below(2) * 50, &body)
            }
            4 => {
                let change = AttributeChange { size: Some(chance.below(8000)), ..AttributeChange::default() };
                self.mount.set_attributes(self.mount.lookup(self.at(from)?, &one)?.ino, &change).map(drop)
            }
            5 => {
                let rights = 0o600 + chance.below(0o100) as u32;
                let change = AttributeChange { rights: Some(rights), ..AttributeChange::default() };
                self.mount.set_attributes(self.mount.lookup(self.at(from)?, &one)?.ino, &change).map(drop)
            }
            6..9 => {
                let (from, to) = (self.at(from)?, self.at(to)?);
                may_lose(to, &two);
                self.mount.rename(from, &one, to, &two, RenameMode::Replace)
            }
            9 => self.mount.make_directory(self.at(from)?, &one, &NEW).map(drop),
            10 => {
                let directory = self.at(from)?;
                may_lose(directory, &one);
                self.mount.unlink(directory, &one)
            }
            11 => {
                let (ino, name) = (self.mount.lookup(self.at(from)?, &one)?.ino, chance.of(&["user.x", "trusted.x"]));
                match chance.below(4) {
                    0 => self.mount.remove_xattr(ino, name.as_bytes()),
                    _ => self.mount.set_xattr(ino, name.as_bytes(), &number.to_be_bytes(), SetXattr::Any, false),
                }
            }
            12 => {
                let directory = self.at(from)?;
                may_lose(directory, &one);
                self.mount.remove_directory(directory, &one)
            }
            _ => self.grow(chance, (from, name), number),
        }
    }

    /// Writes to a file that stays open.
    fn grow(&self, chance: &mut crate::Chance, (directory, name): (&str, &str), number: u64) -> Done<()> {
        let mut open = self.open.lock().unwrap();
        if open.is_empty() || open.len() < 3 && chance.below(3) == 0 {
            open.push(self.create(directory, name)?);
        }
        let at = chance.below(open.len() as u64) as usize;
        let size = self.mount.attributes(open[at].ino())?.size;
        let offset = if chance.below(3) == 0 { chance.below(size + 1) } else { size };
        let len = [1000, 300 << 10, 900 << 10][chance.below(3) as usize];
        let body: Vec<u8> = (0..len).map(|at: u64| (at ^ number ^ (at >> 8)) as u8).collect();
        for (start, some) in (offset..).step_by(50_000).zip(body.chunks(50_000)) {
            self.mount.write(&open[at], start, some, false)?;
        }
        match chance.below(6) {
            0 => self.mount.flush(&open[at]),
            1 => self.mount.release(open.swap_remove(at)),
            2 => {
                std::thread::sleep(Duration::from_millis(150));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Closes what is open.
    pub(crate) fn close(&self) {
        for handle in self.open.lock().unwrap().drain(..) {
            self.mount.release(handle).unwrap();
        }
    }

    /// Keys, rights and contents of everything below a directory.
    fn tree(&self, directory: Ino, path: &str, into: &mut BTreeMap<String, (u32, Vec<u8>)>) -> Done<()> {
        let handle = self.mount.open_directory(directory)?;
        let mut items = Vec::new();
        let mut visit = |item: &DirectoryItem<'_>| {
            items.push((item.name.to_owned(), item.attributes.unwrap()));
            true
        };
        self.mount.read_directory(&handle, 0, true, &mut visit)?;
        for (name, found) in items {
            let key = format!("{path}{name}");
            if found.kind == FileKind::Directory {
                self.tree(found.ino, &format!("{key}/"), into)?;
                into.insert(key + "/", (found.rights, Vec::new()));
                continue;
            }
            let handle = self.mount.open_file(found.ino, OpenFlags { read: true, ..OpenFlags::default() })?;
            let bytes = self.mount.read(&handle, 0, 16 << 20);
            self.mount.release(handle)?;
            let bytes = bytes?;
            assert_eq!(bytes.len() as u64, found.size, "{key}");
            into.insert(key, (found.rights, bytes.to_vec()));
        }
        Ok(())
    }

    /// Names and values of all extended attributes of a file or directory.
    pub(crate) fn xattrs(&self, path: &str) -> BTreeMap<String, Vec<u8>> {
        let ino = self.at(path).unwrap();
        let names = self.mount.list_xattrs(ino).unwrap();
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let pair = |name: &[u8]| {
            (String::from_utf8(name.to_vec()).unwrap(), self.mount.get_xattr(ino, name).unwrap().to_vec())
        };
        names.map(pair).collect()
    }

    pub(crate) fn shown(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        self.try_shown().unwrap()
    }

    /// Fails if somebody else changes what is read.
    pub(crate) fn try_shown(&self) -> Done<BTreeMap<String, (u32, Vec<u8>)>> {
        let mut tree = BTreeMap::new();
        self.tree(self.mount.root(), "", &mut tree)?;
        Ok(tree)
    }

    /// A pass that moves all that it can, and a check of all rows.
    pub(crate) fn reclaim(&self) {
        let done = self.mount.volume().reclaim_once(&ALL, &SealedLogs).unwrap();
        assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0));
        let report = self.mount.volume().check(5, &Arc::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }

    pub(crate) fn flush(&self) {
        self.far.drain(&mut |_| true).unwrap_or_else(|error| panic!("{error}: {}", self.far.details()));
    }
}

pub(crate) fn in_bucket(store: &Store) -> BTreeMap<String, (u32, Vec<u8>)> {
    // What a process that ended has left of its probe goes with the next one.
    let objects = store.objects().into_iter().filter(|(key, _)| !key.contains(".margay-tmp/"));
    let objects = objects.map(|(key, object)| {
        let mode = object.headers.get("x-amz-meta-mode").map_or(0, |mode| u32::from_str_radix(mode, 8).unwrap());
        (key, (mode & 0o7777, object.body.to_vec()))
    });
    objects.collect()
}

pub(crate) fn keys(tree: &BTreeMap<String, (u32, Vec<u8>)>) -> Vec<String> {
    tree.iter().map(|(key, (mode, bytes))| format!("{key} {mode:o} {}", bytes.len())).collect()
}

/// A bucket with these objects of somebody else, mounted and listed.
pub(crate) fn listed(seed: u64, objects: &[(&'static str, &'static [u8])]) -> (Arc<Store>, World, Cache) {
    listed_by(seed, objects, Lists::Nothing)
}

/// As `listed`; so says the store in its listings.
pub(crate) fn listed_by(
    seed: u64,
    objects: &[(&'static str, &'static [u8])],
    lists: Lists,
) -> (Arc<Store>, World, Cache) {
    let (store, target) = runtime().block_on(Store::start());
    store.set_lists(lists);
    objects.iter().for_each(|(key, body)| store.put(key, body));
    let cache = Cache::new(seed);
    let world = cache.open(&target, "");
    let handle = world.mount.open_directory(world.mount.root()).unwrap();
    world.mount.read_directory(&handle, 0, true, &mut |_: &DirectoryItem<'_>| true).unwrap();
    store.wait_probed();
    (store, world, cache)
}

pub(crate) fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, body)| ((*key).to_owned(), (*body).to_owned())).collect()
}

pub(crate) fn wait(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}: not within a minute of waiting");
}
