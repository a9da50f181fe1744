//! Races of create against rmdir through two processes that share a volume in PostgreSQL:
//! `cargo run --release -p margay-volume --example create_rmdir -- URL FOLDER [RACES [WORKERS]]`.
//!
//! Why:      a file that is created in a directory while another server removes it must not stay behind where no path leads; JuiceFS and
//!           SeaweedFS have this race. The gate of G1 is 0 files without a directory in 1,000,000 races.
//! How:      two volumes, each with connections, caches and a follower of its own, as two servers have. A worker makes a directory, creates
//!           a file in it through one of them and removes the directory through the other one at the same time. Exactly one may succeed,
//!           and both volumes must show what that one left. In the end `fsck` reads all rows.
//! Not here: kernels (their locks would order the calls of one mount), the engine's rule itself (margay-postgres, contract).

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "an example that counts")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use margay_env::Env;
use margay_meta::Engine;
use margay_postgres::{PostgresEngine, PostgresOptions};
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::{FsckOptions, Ino, Options, Volume};

const NEW: NewFile = NewFile { rights: 0o755, umask: 0o022, uid: 0, gid: 0 };

/// Steps of each race: begin, both are done, both have looked.
type Steps = [Barrier; 3];

/// What became of the races.
#[derive(Debug, Default)]
struct Count {
    created: AtomicU64,
    removed: AtomicU64,
    neither: AtomicU64,
    wrong: AtomicU64,
}

fn volume(url: &str, folder: &Path) -> Arc<Volume> {
    let store = Store::open(Env::real(), margay_segment::Options::new(folder)).unwrap();
    let options = PostgresOptions {
        config: url.to_owned(),
        password: None,
        schema: format!("races_{}", std::process::id()),
        lanes: 4,
        readers: 8,
    };
    let engine: Arc<dyn Engine> = Arc::new(PostgresEngine::open(&options).unwrap());
    Volume::open(Env::real(), engine, store, Options::default()).unwrap()
}

fn mount(volume: &Arc<Volume>) -> Arc<Mount> {
    let mut made = std::pin::pin!(volume.create_bucket("b"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while made.as_mut().poll(&mut context).is_pending() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap()
}

fn plain(name: String) -> Name {
    Name::Plain(name)
}

/// Asks again while the answer is that others were faster.
fn until_told<T>(mut ask: impl FnMut() -> Result<T, PosixError>) -> Result<T, PosixError> {
    loop {
        match ask() {
            Err(PosixError::Failed(margay_volume::Error::Busy)) => {}
            told => return told,
        }
    }
}

/// One half of a worker: what it does of each race, and what it looks at then.
fn creates(mount: &Mount, races: impl Iterator<Item = (Name, Ino)>, steps: &Steps, made: &AtomicBool, count: &Count) {
    let file = plain("f".to_owned());
    for (name, directory) in races {
        steps[0].wait();
        let created = until_told(|| mount.make_file(directory, &file, &NEW, FileKind::Regular, 0)).is_ok();
        made.store(created, Ordering::Release);
        steps[1].wait();
        if created {
            // The other one shows it too, and takes it away.
            count.created.fetch_add(1, Ordering::Relaxed);
        }
        steps[2].wait();
        let gone = until_told(|| mount.lookup(mount.root(), &name));
        count.wrong.fetch_add(u64::from(gone.is_ok()), Ordering::Relaxed);
    }
}

fn removes(mount: &Mount, races: impl Iterator<Item = (Name, Ino)>, steps: &Steps, made: &AtomicBool, count: &Count) {
    let (file, root) = (plain("f".to_owned()), mount.root());
    for (name, directory) in races {
        steps[0].wait();
        let removed = until_told(|| mount.remove_directory(root, &name)).is_ok();
        steps[1].wait();
        let created = made.load(Ordering::Acquire);
        count.removed.fetch_add(u64::from(removed), Ordering::Relaxed);
        count.neither.fetch_add(u64::from(!removed && !created), Ordering::Relaxed);
        let mut is_right = !(removed && created);
        if created {
            is_right &= until_told(|| mount.lookup(directory, &file)).is_ok()
                && until_told(|| mount.unlink(directory, &file)).is_ok();
        }
        if !removed {
            is_right &= until_told(|| mount.remove_directory(root, &name)).is_ok();
        }
        count.wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        steps[2].wait();
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (url, folder) = (words.next().expect("URL of a database"), words.next().expect("an empty folder"));
    let mut number = |default: u64| words.next().map_or(default, |word| word.parse().expect("a number"));
    let (races, workers) = (number(100_000), number(32));
    let folder = Path::new(&folder);
    let volumes = ["one", "two"].map(|name| volume(&url, &folder.join(name)));
    let mounts = [mount(&volumes[0]), Mount::open(Arc::clone(&volumes[1]), "b", "", MountOptions::default()).unwrap()];
    let (count, over, begun) = (Count::default(), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for volume in &volumes {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    volume.follow_once().unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    volume.beat().unwrap();
                    std::thread::sleep(Duration::from_millis(500));
                }
            });
        }
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let (mounts, count) = (&mounts, &count);
                scope.spawn(move || work(mounts, worker, races / workers, count));
            }
        });
        over.store(true, Ordering::Release);
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("{races} races in {seconds:.0} s: {count:?}");
    let report = volumes[0].fsck(FsckOptions::default()).unwrap();
    println!("fsck finds {}", if report.clean() { "nothing wrong" } else { "something wrong" });
    assert!(report.clean() && count.wrong.into_inner() == 0, "{report:#?}");
}

/// In turns, each of the two creates.
fn work(mounts: &[Arc<Mount>; 2], worker: u64, races: u64, count: &Count) {
    for (turn, [creator, remover]) in [[&mounts[0], &mounts[1]], [&mounts[1], &mounts[0]]].into_iter().enumerate() {
        let (steps, made) = ([(); 3].map(|()| Barrier::new(2)), AtomicBool::new(false));
        let (sender, directories) = std::sync::mpsc::sync_channel(0);
        let names = move || (0..races / 2).map(move |race| plain(format!("w{worker}-{turn}-{race}")));
        std::thread::scope(|scope| {
            let (steps, made) = (&steps, &made);
            scope.spawn(move || creates(creator, names().zip(directories), steps, made, count));
            let races = names().map(|name| {
                let directory = until_told(|| remover.make_directory(remover.root(), &name, &NEW)).unwrap().ino;
                sender.send(directory).unwrap();
                (name, directory)
            });
            removes(remover, races, steps, made, count);
        });
    }
}
