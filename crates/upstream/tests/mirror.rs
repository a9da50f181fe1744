//! A far volume and a simulated bucket: any changes of a mount, with requests and answers lost, ends of the process and
//! another client, and at the end the bucket has what the tree has, and a new mount shows it.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

#[path = "../../client/tests/upstream/listen.rs"]
mod listen;
#[path = "mirror/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use margay_client::Target;
use margay_client::upstream::{Limits, Upstream};
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Clock, Env};
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store as Segments;
use margay_upstream::{Far, FarOptions};
use margay_volume::posix::*;
use margay_volume::{Ino, Options, ReclaimBudget, SealedLogs, Volume};
use store::Store;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
const NEW: NewFile = NewFile { rights: 0o644, umask: 0, uid: 7, gid: 8 };

/// Runs the store and what is asynchronous of a volume.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// What a process has: its engine and segments stay when it ends.
struct Cache {
    engine: Arc<Memory>,
    segments: Arc<Segments>,
    env: Env,
    id: String,
}

struct World {
    far: Arc<Far>,
    mount: Arc<Mount>,
}

impl Cache {
    fn new(seed: u64) -> Cache {
        let (disk, random) = (SimDisk::new(seed), SimRandom::new(seed));
        let env = Env { disk: Arc::new(disk), clock: Arc::new(RealClock::new()), random: Arc::new(random) };
        let mut options = margay_segment::Options::new(Path::new("/segments"));
        options.reserve_bytes = 0;
        let segments = Segments::open(env.clone(), options).unwrap();
        let engine = Arc::new(Memory::with_payloads(Arc::clone(&segments), 4096));
        Cache { engine, segments, env, id: format!("{seed:x}") }
    }

    fn open(&self, target: &Arc<Target>, prefix: &str) -> World {
        let upstream = Upstream::new(Arc::clone(target), None, "far", Limits::default()).unwrap();
        let options = FarOptions { upstream, prefix: prefix.to_owned(), id: self.id.clone(), host: "here".to_owned() };
        let engine = Arc::clone(&self.engine) as Arc<dyn Engine>;
        let far = Arc::new(Far::open(self.env.clone(), engine, options).unwrap());
        let options = Options { peers: Some(far.peers()), local_before_write: true, ..Options::default() };
        let volume = Volume::open(self.env.clone(), far.engine(), Arc::clone(&self.segments), options).unwrap();
        let is_new = runtime().block_on(volume.head_bucket("b")).is_err();
        if is_new {
            runtime().block_on(volume.create_bucket("b")).unwrap();
        }
        far.begin(&volume, "b", is_new).unwrap();
        let upstream = Some(Arc::clone(&far) as Arc<dyn UpstreamSync>);
        let mount = Mount::open(volume, "b", "", MountOptions { upstream, ..MountOptions::default() }).unwrap();
        World { far, mount }
    }
}

/// Numbers by a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.below(names.len() as u64) as usize]
    }
}

/// Everything is sealed, everything that is named moves, everything else goes.
const ALL: ReclaimBudget = ReclaimBudget {
    move_bytes_max: u64::MAX,
    live_percent_min: 1_000_000,
    seal_dead_bytes_min: 0,
    quarantine: Duration::ZERO,
    free_percent_min: 0,
    punch: true,
};

/// Directories in which things happen, and names.
const DIRECTORIES: [&str; 5] = ["", "d", "e", "d/d", "e/d"];
const NAMES: [&str; 4] = ["a", "b", "d", "e"];

type Done<T> = Result<T, PosixError>;

impl World {
    fn at(&self, path: &str) -> Done<Ino> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let mut at = self.mount.root();
        for name in names {
            at = self.mount.lookup(at, &Name::Plain(name.to_owned()))?.ino;
        }
        Ok(at)
    }

    fn write(&self, directory: &str, name: &str, offset: u64, bytes: &[u8]) -> Done<()> {
        let (_, handle) = self.mount.create(self.at(directory)?, &Name::Plain(name.to_owned()), &NEW, BOTH)?;
        self.mount.write(&handle, offset, bytes, false)?;
        self.mount.flush(&handle)?;
        self.mount.release(handle)
    }

    /// One change; whether it succeeds depends on what is there.
    fn change(&self, chance: &mut Chance, number: u64, store: &Store, id: &str) -> Done<()> {
        let (from, to) = (chance.of(&DIRECTORIES), chance.of(&DIRECTORIES));
        let (one, two) = (Name::Plain(chance.of(&NAMES).to_owned()), Name::Plain(chance.of(&NAMES).to_owned()));
        let Name::Plain(name) = &one else { unreachable!() };
        let may_lose = |directory: Ino, name: &Name| {
            if let Ok(found) = self.mount.lookup(directory, name) {
                store.may_lose(id, found.ino.0);
            }
        };
        match chance.below(12) {
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
            _ => {
                let directory = self.at(from)?;
                may_lose(directory, &one);
                self.mount.remove_directory(directory, &one)
            }
        }
    }

    /// Keys, rights and contents of everything below a directory.
    fn tree(&self, directory: Ino, path: &str, into: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        let handle = self.mount.open_directory(directory).unwrap();
        let mut items = Vec::new();
        let mut visit = |item: &DirectoryItem<'_>| {
            items.push((item.name.to_owned(), item.attributes.unwrap()));
            true
        };
        self.mount.read_directory(&handle, 0, true, &mut visit).unwrap();
        for (name, found) in items {
            let key = format!("{path}{name}");
            if found.kind == FileKind::Directory {
                self.tree(found.ino, &format!("{key}/"), into);
                into.insert(key + "/", (found.rights, Vec::new()));
                continue;
            }
            let handle = self.mount.open_file(found.ino, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
            let bytes = self.mount.read(&handle, 0, 16 << 20).unwrap();
            assert_eq!(bytes.len() as u64, found.size, "{key}");
            into.insert(key, (found.rights, bytes.to_vec()));
            self.mount.release(handle).unwrap();
        }
    }

    fn shown(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut tree = BTreeMap::new();
        self.tree(self.mount.root(), "", &mut tree);
        tree
    }

    /// A pass that moves all that it can, and a check of all rows.
    fn reclaim(&self) {
        let done = self.mount.volume().reclaim_once(&ALL, &SealedLogs).unwrap();
        assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0));
        let report = self.mount.volume().check(5, &Arc::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }

    fn flush(&self) {
        self.far.flush(None, &mut |_| true).unwrap_or_else(|error| panic!("{error}: {}", self.far.details()));
    }
}

fn in_bucket(store: &Store) -> BTreeMap<String, (u32, Vec<u8>)> {
    let objects = store.objects().into_iter().map(|(key, object)| {
        let mode = object.headers.get("x-amz-meta-mode").map_or(0, |mode| u32::from_str_radix(mode, 8).unwrap());
        (key, (mode & 0o7777, object.body.to_vec()))
    });
    objects.collect()
}

fn keys(tree: &BTreeMap<String, (u32, Vec<u8>)>) -> Vec<String> {
    tree.iter().map(|(key, (mode, bytes))| format!("{key} {mode:o} {}", bytes.len())).collect()
}

/// Changes, losses and ends of the process; then the bucket has what is here, and a new cache shows it.
fn mirrored(seed: u64) {
    let (store, target) = runtime().block_on(Store::start());
    println!("seed {seed}");
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let cache = Cache::new(seed);
    let mut world = cache.open(&target, "");
    store.fail([0, 20, 5][(seed % 3) as usize], seed);
    for round in 0..6 {
        for number in 0..12 {
            // Refusals are part of it.
            let _ = world.change(&mut chance, round * 100 + number, &store, &cache.id);
        }
        world.reclaim();
        match chance.below(3) {
            0 => world.flush(),
            1 => {
                drop(world);
                world = cache.open(&target, "");
            }
            _ => std::thread::sleep(Duration::from_millis(chance.below(300))),
        }
    }
    world.flush();
    world.reclaim();
    store.assert_nothing_was_missing();
    let (here, there) = (world.shown(), in_bucket(&store));
    assert!(here == there, "seed {seed}: here {:#?}\nthere {:#?}", keys(&here), keys(&there));
    assert_eq!(world.far.backlog().files, 0, "seed {seed}");
    store.fail(0, 0);
    let fresh = Cache::new(seed + 1).open(&target, "");
    let shown = fresh.shown();
    assert!(shown == there, "seed {seed}: fresh {:#?}\nthere {:#?}", keys(&shown), keys(&there));
    assert_eq!(fresh.far.backlog().files, 0, "what was read is not dirty");
}

#[test]
fn a_bucket_gets_what_a_mount_changes() {
    let seeds = std::env::var("MARGAY_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24);
    let first = std::env::var("MARGAY_TEST_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(1);
    (first..first + seeds).for_each(mirrored);
    println!("evidence: far mounts: {seeds} seeds");
}

/// Somebody else writes and removes objects while the mount does; nobody's content is lost.
fn shared_with_another(seed: u64) {
    println!("seed {seed} with another client");
    let (store, target) = runtime().block_on(Store::start());
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let cache = Cache::new(seed);
    let mut world = cache.open(&target, "");
    let mut theirs: BTreeMap<String, &'static [u8]> = BTreeMap::new();
    store.fail([0, 10][(seed % 2) as usize], seed);
    for round in 0..6 {
        for number in 0..8 {
            let _ = world.change(&mut chance, round * 100 + number, &store, &cache.id);
        }
        // Theirs is never written again by them, so it must be there at the end.
        let key = format!("{}{}", chance.of(&["", "d/", "e/"]), chance.of(&["a", "b"]));
        if chance.below(2) == 0 {
            let body: &'static [u8] = format!("theirs {round}").leak().as_bytes();
            store.put(&key, body);
            theirs.insert(key, body);
        } else if !theirs.contains_key(&key) {
            store.remove(&key);
        }
        match chance.below(4) {
            0 => world.flush(),
            1 => {
                drop(world);
                world = cache.open(&target, "");
            }
            _ => {}
        }
    }
    world.flush();
    let there = in_bucket(&store);
    for (key, body) in &theirs {
        assert_eq!(there.get(key).map(|(_, bytes)| bytes.as_slice()), Some(*body), "seed {seed}: {key} is theirs");
    }
}

#[test]
fn what_another_client_writes_stays() {
    (1..=16).for_each(shared_with_another);
}

#[test]
fn both_contents_of_a_conflict_are_kept() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("dir/file.txt", b"first");
    store.put("dir/gone", b"first");
    let cache = Cache::new(7);
    let world = cache.open(&target, "dir/");
    assert_eq!(keys(&world.shown()), ["file.txt 644 5", "gone 644 5"]);
    store.put("dir/file.txt", b"theirs");
    world.write("", "file.txt", 5, b" and mine").unwrap();
    store.remove("dir/gone");
    world.write("", "gone", 0, b"mine").unwrap();
    world.flush();
    let backlog = world.far.backlog();
    let [conflict] = backlog.conflicts.as_slice() else { panic!("{backlog:?}") };
    assert!(conflict.starts_with("file.txt.conflict-20") && conflict.ends_with("Z-here"), "{conflict}");
    let there = in_bucket(&store);
    let content = |key: &str| there.get(key).map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(content("dir/file.txt").as_deref(), Some("theirs"));
    assert_eq!(content(&format!("dir/{conflict}")).as_deref(), Some("first and mine"));
    assert_eq!(content("dir/gone").as_deref(), Some("minet"), "removed there, changed here: made again");
    let here = world.shown();
    assert_eq!(here["file.txt"].1, b"theirs");
    assert_eq!(here[conflict.as_str()].1, b"first and mine");
    // Removed here, changed there: what is there stays, and is shown.
    store.put("dir/file.txt", b"again");
    world.mount.unlink(world.mount.root(), &Name::Plain("file.txt".to_owned())).unwrap();
    world.flush();
    assert_eq!(store.objects()["dir/file.txt"].body, "again");
    assert_eq!(world.shown()["file.txt"].1, b"again");
}

#[test]
fn a_created_file_costs_one_request_and_a_thousand_removed_ones_few() {
    let (store, target) = runtime().block_on(Store::start());
    let world = Cache::new(3).open(&target, "");
    world.shown();
    let (before, clock) = (store.requests(), RealClock::new());
    for number in 0..1000 {
        world.write("", &format!("f{number}"), 0, b"content").unwrap();
    }
    world.flush();
    let made = store.requests() - before;
    assert!(made <= 1020, "{made} requests for 1000 files");
    for number in 0..1000 {
        world.mount.attributes(world.at(&format!("f{number}")).unwrap()).unwrap();
    }
    assert_eq!(store.requests() - before, made, "a stat costs none");
    for number in 0..1000 {
        let name = Name::Plain(format!("f{number}"));
        store.may_lose("3", world.mount.lookup(world.mount.root(), &name).unwrap().ino.0);
        world.mount.unlink(world.mount.root(), &name).unwrap();
    }
    world.flush();
    let removed = store.requests() - before - made;
    println!("evidence: far mounts: {made} requests for 1000 files made, {removed} for 1000 removed");
    // Removals wait a second for others, so a slow machine makes more of them.
    let seconds = clock.monotonic().as_secs();
    assert!(removed <= 3 + seconds && store.objects().is_empty(), "{removed} requests, {:?}", store.objects().keys());
}
