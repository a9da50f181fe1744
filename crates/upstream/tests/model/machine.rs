//! A machine with a cache: its disk outlives its processes, each of which is a mount with one thread of a user.

#[path = "change.rs"]
mod change;
#[path = "growing.rs"]
mod growing;
#[path = "opening.rs"]
mod opening;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use margay_client::upstream::{Limits, Upstream};
use margay_env::Env;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::Store as Segments;
use margay_upstream::{CacheOptions, Far, FarOptions, Fsync, Opens, Ttl, Writers};
use margay_volume::posix::*;
use margay_volume::{Ino, Options, ReclaimBudget, SealedLogs, Volume};

pub(crate) use self::growing::Shown;
use crate::ops::{Op, Tree};
use crate::order::Order;
use crate::sim::{Line, SeedClock, Sim};
use crate::text::named;
use crate::uploads::SIZES;

pub(crate) type Done<T> = Result<T, PosixError>;

const READ: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, exclusive: false, kill_privileges: false };
const BOTH: OpenFlags = OpenFlags { write: true, ..READ };
const NEW: NewFile = NewFile { rights: 0o644, umask: 0, uid: 7, gid: 8 };
/// Everything is sealed, everything that is named moves, everything else goes.
const ALL: ReclaimBudget = ReclaimBudget {
    move_bytes_max: u64::MAX,
    live_percent_min: 1_000_000,
    seal_dead_bytes_min: 0,
    quarantine: Duration::ZERO,
    free_percent_min: 0,
    punch: true,
};

type Work = Box<dyn FnOnce(&User) + Send>;

/// Bytes of an open file that are kept in memory, where files grow.
const GROWING_MEMORY_BYTES: u64 = 192;

/// How a machine is mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// What its syncs wait for.
    pub(crate) fsync: Fsync,
    /// What it asks the bucket before a file is opened.
    pub(crate) opens: Opens,
    /// Large files are stored while they are written.
    pub(crate) grows: bool,
}

/// What stays when a process ends.
pub(crate) struct Machine {
    number: usize,
    settings: Settings,
    disk: SimDisk,
    sim: Arc<Sim>,
    processes: usize,
    process: Option<Process>,
}

struct Process {
    number: usize,
    user: Arc<User>,
    work: mpsc::Sender<Work>,
    is_busy: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

/// What a user of one process has.
pub(crate) struct User {
    pub(crate) name: String,
    fsync: Fsync,
    opens: Opens,
    process: usize,
    sim: Arc<Sim>,
    engine: Arc<dyn Engine>,
    pub(crate) far: Arc<Far>,
    pub(crate) mount: Arc<Mount>,
    /// Contents, since all was sent.
    written: Mutex<Vec<String>>,
    /// Contents that the process has read.
    seen: Mutex<BTreeSet<String>>,
    /// A file that stays open while it is written.
    open: Mutex<Option<growing::Growing>>,
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
}

impl Machine {
    pub(crate) fn new(number: usize, settings: Settings, sim: &Arc<Sim>, seed: u64) -> Machine {
        Machine { number, settings, disk: SimDisk::new(seed), sim: Arc::clone(sim), processes: 0, process: None }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.is_busy.load(Ordering::SeqCst))
    }

    pub(crate) fn user(&self) -> &Arc<User> {
        &self.process.as_ref().unwrap().user
    }

    /// Looks at what is due: its clock has moved.
    pub(crate) fn look(&self) {
        if let Some(process) = &self.process {
            process.user.far.look();
        }
    }

    /// Mounts.
    pub(crate) fn begin(&mut self, seed: u64) {
        self.processes += 1;
        let (number, sim) = (self.number * 1000 + self.processes, &self.sim);
        let random = Arc::new(SimRandom::new(seed.wrapping_mul(1000).wrapping_add(number as u64)));
        let clock = Arc::new(SeedClock { sim: Arc::clone(sim), process: number });
        let env = Env { disk: Arc::new(self.disk.clone()), clock, random };
        let mut options = margay_segment::Options::new(Path::new("/data/segments"));
        (options.pack_bytes_max, options.raw_bytes_min, options.reserve_bytes) = (128 << 10, 48 << 10, 0);
        let segments = Segments::open(env.clone(), options).unwrap();
        let mut tree = margay_meta::embedded::Options::new("/data/tree".into());
        (tree.log_file_bytes, tree.tree_cache_bytes) = (256 << 10, 1 << 20);
        // Nothing is durable by itself, so that what must be is asked for.
        tree.sync_interval = Duration::from_secs(3600);
        // It would sleep in real time.
        tree.group_wait_max = Duration::ZERO;
        let engine: Arc<dyn Engine> = Arc::new(EmbeddedEngine::open(env.clone(), Arc::clone(&segments), tree).unwrap());
        let line = Arc::new(Line { sim: Arc::clone(sim), mount: self.number, process: number });
        let upstream = Upstream::carried(line, "far", Limits::default());
        let cache = CacheOptions { blocks: "/data/blocks".into(), bytes_max: 32 << 20 };
        let (id, host) = (format!("{}", self.number), format!("h{}", self.number));
        let (prefix, parts, Settings { fsync, opens, grows }) = (String::new(), SIZES, self.settings);
        let (ttl, writers) = (Ttl::default(), Writers::Many);
        let options = FarOptions { upstream, prefix, id, host, cache, parts, fsync, opens, ttl, writers };
        // Threads of the engine take random numbers when they come to it.
        let own = Env {
            random: Arc::new(SimRandom::new(seed.wrapping_mul(7919).wrapping_add(number as u64))),
            ..env.clone()
        };
        let far = Arc::new(Far::open(own, Arc::clone(&engine), options).unwrap());
        let options = Options {
            peers: Some(far.peers()),
            local_before_write: true,
            evict: Some(far.evict()),
            file_memory_bytes_max: if grows { GROWING_MEMORY_BYTES } else { Options::default().file_memory_bytes_max },
            ..Options::default()
        };
        let volume = Volume::open(env, far.engine(), segments, options).unwrap();
        if runtime().block_on(volume.head_bucket("b")).is_err() {
            runtime().block_on(volume.create_bucket("b")).unwrap();
        }
        far.begin(&volume, "b").unwrap();
        let synced = Some(Arc::clone(&far) as Arc<dyn UpstreamSync>);
        let mount = Mount::open(volume, "b", "", MountOptions { upstream: synced, ..MountOptions::default() }).unwrap();
        let name = format!("m{}", self.number);
        let user = Arc::new(User {
            name,
            fsync,
            opens,
            process: number,
            sim: Arc::clone(sim),
            engine,
            far,
            mount,
            written: Mutex::default(),
            seen: Mutex::default(),
            open: Mutex::default(),
        });
        let (work, told) = mpsc::channel::<Work>();
        let is_busy = Arc::new(AtomicBool::new(false));
        let (own, busy) = (Arc::clone(&user), Arc::clone(&is_busy));
        let thread = std::thread::spawn(move || {
            for work in told {
                work(&own);
                busy.store(false, Ordering::SeqCst);
            }
        });
        self.process = Some(Process { number, user, work, is_busy, thread });
    }

    /// Begins something on the user's thread.
    pub(crate) fn start(&self, work: impl FnOnce(&User) + Send + 'static) {
        let process = self.process.as_ref().unwrap();
        process.is_busy.store(true, Ordering::SeqCst);
        process.work.send(Box::new(work)).unwrap();
    }

    /// The process is killed, or the machine loses its power.
    pub(crate) fn end(&mut self, without_power: bool, seed: u64) {
        let Some(Process { number, user, work, is_busy: _, thread }) = self.process.take() else { return };
        self.sim.end(number);
        self.disk = if without_power { self.disk.crash(seed) } else { self.disk.kill(seed) };
        user.far.stop();
        drop(work);
        thread.join().unwrap_or_else(|_| panic!("the thread of a user panicked"));
        let mut world = self.sim.world();
        world.oracle.forgives_all();
        world.oracle.order.iter_mut().filter(|_| self.number == 0).for_each(Order::crashes);
    }
}

fn plain(name: &str) -> Name {
    Name::Plain(name.to_owned())
}

/// The directory of a path, and the name in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl User {
    fn at(&self, path: &str) -> Done<Ino> {
        let mut at = self.mount.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.mount.lookup(at, &plain(name))?.ino;
        }
        Ok(at)
    }

    fn is_dead(&self) -> bool {
        self.sim.is_dead(self.process)
    }

    fn bytes(&self, handle: &Handle) -> Done<Vec<u8>> {
        let bytes = self.mount.read(handle, 0, 1 << 20)?.to_vec();
        let content = named(&bytes);
        self.sim.world().oracle.read(&self.name, &content);
        self.seen.lock().unwrap().insert(content);
        Ok(bytes)
    }

    fn content(&self, handle: &Handle) -> Done<String> {
        self.bytes(handle).map(|bytes| named(&bytes))
    }

    /// What the order of syncs is to know, if this mount has one.
    fn orders(&self, note: impl FnOnce(&mut Order)) {
        let mut world = self.sim.world();
        if let Some(order) = world.oracle.order.as_mut().filter(|_| self.name == "m0") {
            note(order);
        }
    }

    /// What was changed on both sides steps aside, also while it is open.
    fn check_same(&self, path: &str, handle: &Handle) -> Done<()> {
        if self.at(path)? == handle.ino() { Ok(()) } else { Err(PosixError::NotFound) }
    }

    /// Runs `change` while the file under a path is open, so that nothing takes its place meanwhile: its content is what the user
    /// has seen and replaces or removes.
    fn over(&self, path: &str, change: impl FnOnce(&User) -> Done<()>) -> Done<()> {
        let ino = self.at(path)?;
        if self.mount.attributes(ino)?.kind == FileKind::Directory {
            return change(self);
        }
        let handle = self.mount.open_file(ino, READ)?;
        let seen = self.content(&handle);
        let changed = seen.and_then(|seen| {
            self.check_same(path, &handle)?;
            self.sim.world().oracle.supersedes(&seen);
            self.supersedes_closed(&handle);
            let changed = change(self);
            if changed.is_err() {
                self.sim.world().oracle.forgives(&seen);
            }
            changed
        });
        self.mount.release(handle)?;
        changed
    }

    pub(crate) fn run(&self, op: Op) {
        let text = format!("{} {op:?}", self.name);
        let done = self.change(op);
        if self.is_dead() {
            return;
        }
        let shown = match done {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        self.sim.tell(format!("{text} -> {shown}"));
    }

    fn change(&self, op: Op) -> Done<()> {
        match op {
            Op::Write { path, draft, syncs } => self.write(&path, |seen| draft.over(seen), syncs),
            Op::Unlink(path) => {
                let (directory, name) = split(&path);
                let directory = self.at(directory)?;
                self.orders(|order| order.may_remove(&path));
                self.over(&path, |user| user.mount.unlink(directory, &plain(name)))?;
                self.orders(|order| order.has_removed(&path));
                Ok(())
            }
            Op::Rename { from, to, mode } => {
                let exchanges = mode == RenameMode::Exchange;
                self.orders(|order| order.may_rename(&from, &to, exchanges));
                self.rename(&from, &to, mode)?;
                self.orders(|order| order.has_renamed(&from, &to, exchanges));
                Ok(())
            }
            Op::MakeDirectory(path) => {
                let (directory, name) = split(&path);
                self.mount.make_directory(self.at(directory)?, &plain(name), &NEW).map(drop)
            }
            Op::RemoveDirectory(path) => {
                let (directory, name) = split(&path);
                self.mount.remove_directory(self.at(directory)?, &plain(name))
            }
            Op::ChangeRights(path, rights) => {
                let change = AttributeChange { rights: Some(rights), ..AttributeChange::default() };
                self.mount.set_attributes(self.at(&path)?, &change).map(drop)
            }
            Op::Read(path) => self.read(&path).map(drop),
            Op::Grow { path, growth, shown } => self.grow(&path, &growth, shown),
            Op::Close { syncs } => self.close(syncs),
            Op::Move { from, to } => self.move_by_copy(&from, &to),
            Op::List => {
                let tree = self.tree()?;
                self.check_shown(tree);
                Ok(())
            }
            Op::SyncAll => {
                if self.sync(None) {
                    self.check_all(self.fsync == Fsync::Upstream);
                }
                Ok(())
            }
            Op::Drain => {
                if self.drain() {
                    self.check_all(true);
                }
                Ok(())
            }
            Op::Evict => {
                self.far.evict_sent(u64::MAX).unwrap();
                Ok(())
            }
            Op::Reclaim => {
                let done = self.mount.volume().reclaim_once(&ALL, &SealedLogs).unwrap();
                assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0));
                Ok(())
            }
            Op::Checkpoint => {
                self.engine.checkpoint().unwrap();
                Ok(())
            }
        }
    }

    /// Everything is sent, or only kept, that was written before.
    fn check_all(&self, is_sent: bool) {
        let written = std::mem::take(&mut *self.written.lock().unwrap());
        self.orders(Order::ends);
        if self.name == "m0" {
            self.sim.world().oracle.settles();
        }
        let mut world = self.sim.world();
        if !is_sent {
            return world.oracle.is_kept(&self.name, written);
        }
        for content in written {
            world.oracle.is_somewhere(&self.name, &content);
        }
    }

    /// All that it shows, as it was read.
    fn check_shown(&self, mut tree: Tree) {
        // It shows something newer instead.
        tree.extend(self.closed_of_open().map(|closed| ("(closed)".to_owned(), closed)));
        let mut world = self.sim.world();
        world.oracle.keeps(&self.name, &tree);
        if self.name != "m0" {
            return;
        }
        if let Some(order) = world.oracle.order.as_mut().filter(|order| !order.is_known)
            && let Err(wrong) = order.is(&tree)
        {
            world.oracle.violation(wrong);
        }
        let shown: BTreeSet<String> = tree.into_values().collect();
        world.oracle.still_shows(&self.name, &self.seen.lock().unwrap(), &shown);
    }

    /// As fsync of one file or of all; says whether it is sent, or kept.
    fn sync(&self, file: Option<&Handle>) -> bool {
        if self.fsync == Fsync::Local {
            let synced = file.map_or_else(|| self.mount.sync_directory(), |file| self.mount.sync(file));
            return synced.is_ok() && !self.is_dead();
        }
        let Some(file) = file else { return self.drain() };
        let sent = self.far.flush(Some(file.ino()), &mut |_: &margay_upstream::Backlog| !self.is_dead());
        self.told(sent)
    }

    /// Waits until the bucket has all.
    fn drain(&self) -> bool {
        let sent = self.far.drain(&mut |_: &margay_upstream::Backlog| !self.is_dead());
        self.told(sent)
    }

    fn told(&self, sent: Result<(), margay_upstream::NotSent>) -> bool {
        if let Err(error) = &sent {
            self.sim.tell(format!("{} sync: {error}", self.name));
        }
        sent.is_ok()
    }

    fn below(&self, directory: Ino, path: &str, into: &mut Tree) -> Done<()> {
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
                self.below(found.ino, &format!("{key}/"), into)?;
                continue;
            }
            let content = self.read_at(&key, found.ino)?;
            into.insert(key, content);
        }
        Ok(())
    }

    /// All files.
    pub(crate) fn tree(&self) -> Done<Tree> {
        let mut tree = Tree::new();
        self.below(self.mount.root(), "", &mut tree)?;
        Ok(tree)
    }
}
