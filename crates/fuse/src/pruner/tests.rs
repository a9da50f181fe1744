//! The pruner over a real volume and a simulated kernel.

use std::collections::HashSet;
use std::task::{Context, Poll, Waker};

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::Store;
use margay_volume::posix::{FileKind, Mount, MountOptions, Name, NewFile};
use margay_volume::{Options, Volume};
use parking_lot::Mutex;

use super::*;
use crate::door::Ownership;
use crate::protocol::Answer;

const MOST: usize = 160;

/// Forgets the inodes that it is asked to, unless they are in use.
#[derive(Debug)]
struct Played {
    mount: Arc<Mount>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    used: Mutex<HashSet<Node>>,
    /// Every inode is in use.
    all_used: std::sync::atomic::AtomicBool,
    old: bool,
    messages: Mutex<Vec<Vec<Node>>>,
}

impl Kernel for Played {
    fn forget_name(&self, _: Node, _: &[u8]) {}
    fn forget_file(&self, _: Node, _: bool) {}
    fn prune(&self, nodes: &[Node]) -> Answer<()> {
        self.shared.messages.lock().push(nodes.to_vec());
        if self.shared.old {
            return Err(Errno::INVAL);
        }
        let used = self.shared.used.lock();
        if !self.shared.all_used.load(Ordering::Relaxed) {
            nodes.iter().filter(|node| !used.contains(node)).for_each(|node| self.mount.forget(Ino(*node), 1));
        }
        Ok(())
    }
}

struct World {
    pruner: Pruner,
    kernel: Arc<Shared>,
    files: usize,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(old: bool) -> World {
        let folder = tempfile::tempdir().unwrap();
        let mut options = margay_segment::Options::new(folder.path().join("segments"));
        options.reserve_bytes = 0;
        let store = Store::open(Env::real(), options).unwrap();
        let options = margay_meta::embedded::Options::new(folder.path().join("tree"));
        let engine: Arc<dyn Engine> = Arc::new(EmbeddedEngine::open(Env::real(), Arc::clone(&store), options).unwrap());
        let volume = Volume::open(Env::real(), engine, store, Options::default()).unwrap();
        wait(volume.create_bucket("b")).unwrap();
        let mount = Mount::open(volume, "b", "", MountOptions::default()).unwrap();
        let kernel = Arc::new(Shared { old, ..Shared::default() });
        let played = Box::new(Played { mount: Arc::clone(&mount), shared: Arc::clone(&kernel) });
        let door = Arc::new(Door::new(mount, Ownership::default(), false, Env::real()));
        let pruner = Pruner { door, kernel: played, most: MOST, metrics: Arc::default() };
        World { pruner, kernel, files: 0, _folder: folder }
    }

    fn mount(&self) -> &Mount {
        &self.pruner.door.mount
    }

    fn make(&mut self, count: usize) -> Vec<Node> {
        let new = NewFile { rights: 0o644, ..NewFile::default() };
        let numbers = self.files..self.files + count;
        self.files += count;
        let make = |number| {
            let name = Name::Plain(format!("{number}"));
            self.mount().make_file(self.mount().root(), &name, &new, FileKind::Regular, 0).unwrap().ino.0
        };
        numbers.map(make).collect()
    }

    fn asked(&self) -> usize {
        self.kernel.messages.lock().iter().map(Vec::len).sum()
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

#[test]
fn what_is_too_much_goes_and_what_is_used_stays() {
    let mut world = World::new(false);
    let used: HashSet<Node> = world.make(1000).into_iter().step_by(20).collect();
    world.kernel.used.lock().clone_from(&used);
    let mut attempts = 0;
    while world.mount().known() > MOST {
        assert_ne!(world.pruner.attempt(Duration::ZERO), Gain::Over);
        attempts += 1;
        assert!(attempts < 1000, "{} files stay known", world.mount().known());
    }
    assert!(used.iter().all(|node| world.mount().knows(Ino(*node))));
    assert!(world.mount().knows(world.mount().root()));
    // The root has another number in the kernel, and no inode is requested twice in a row.
    let messages = world.kernel.messages.lock().clone();
    let root = world.mount().root().0;
    assert!(messages.iter().all(|nodes| nodes.len() <= MESSAGE_FILES_MAX && !nodes.contains(&root)));
    assert!(messages.windows(2).all(|two| two[0].iter().all(|node| !two[1].contains(node))));
    assert_eq!(world.pruner.metrics.pruned(), 1001 - world.mount().known() as u64);
}

#[test]
fn little_gain_is_told_from_enough() {
    let mut world = World::new(false);
    world.make(1000);
    world.kernel.all_used.store(true, Ordering::Relaxed);
    // At first the kernel forgets all, then it keeps them.
    for _ in 0..100 {
        assert_eq!(world.pruner.attempt(Duration::ZERO), Gain::Little);
    }
    assert_eq!((world.mount().known(), world.pruner.metrics.pruned()), (1001, 0));
    assert!(world.asked() > 1000, "those that stay are asked for again");
    world.kernel.all_used.store(false, Ordering::Relaxed);
    assert!((0..100).any(|_| world.pruner.attempt(Duration::ZERO) == Gain::Enough));
}

#[test]
fn an_old_kernel_is_asked_once() {
    let mut world = World::new(true);
    world.make(1000);
    // The pruner ends by itself.
    world.pruner.run();
    assert_eq!((world.kernel.messages.lock().len(), world.mount().known()), (1, 1001));
}

#[test]
fn the_thread_sleeps_until_there_are_too_many_and_ends_when_told() {
    let mut world = World::new(false);
    world.make(MOST - 1);
    let kernel = Arc::clone(&world.kernel);
    let mount = Arc::clone(&world.pruner.door.mount);
    let played = Box::new(Played { mount: Arc::clone(&mount), shared: Arc::clone(&kernel) });
    let (door, metrics) = (Arc::clone(&world.pruner.door), Arc::clone(&world.pruner.metrics));
    start(Arc::clone(&door), played, MOST, metrics).unwrap();
    assert_eq!((mount.known(), world.asked()), (MOST, 0));
    world.make(1);
    while mount.known() > MOST {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(world.asked() >= MOST / SHARE);
    mount.stop_waiting();
    // The thread holds the door while it runs; this world holds it once more.
    while Arc::strong_count(&door) > 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
}
