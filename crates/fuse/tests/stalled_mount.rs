//! Requests of a mount that wait for a stalled engine: others, which need no metadata or another volume's, are answered.
//!
//! Why:      those that wait are in a process of their own, this test once more: a process that ends could not end its threads
//!           that wait for its own mount.
//! Not here: requests of S3 that wait (margay-s3, `stalled`).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]
#![allow(clippy::disallowed_methods, reason = "the test is a program that uses a mount")]

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use margay_env::Env;
use margay_fuse::{Mounted, Ownership, SessionOptions};
use margay_meta::Engine;
use margay_meta::distant::DistantEngine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::{Mount, MountOptions};
use margay_volume::{Options, Volume};

const WAITING: usize = 1000;
const STALL: Duration = Duration::from_secs(20);
const STACK_BYTES: usize = 128 << 10;

struct World {
    mounted: Option<Mounted>,
    at: PathBuf,
    folder: tempfile::TempDir,
}

impl World {
    fn new(waits: bool, wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>) -> World {
        let folder = tempfile::tempdir().unwrap();
        let mut options = margay_segment::Options::new(folder.path().join("segments"));
        options.reserve_bytes = 0;
        let store = Store::open(Env::real(), options).unwrap();
        let rows: Arc<dyn Engine> = Arc::new(Memory::new());
        {
            let volume = Volume::open(Env::real(), Arc::clone(&rows), Arc::clone(&store), Options::default()).unwrap();
            let created = pin!(volume.create_bucket("b")).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(created, Poll::Ready(Ok(_))), "an engine in memory has its answer at once");
        }
        let volume = Volume::open(Env::real(), wrap(rows), store, Options::default()).unwrap();
        let mount = Mount::open(volume, "b", "", MountOptions::default()).unwrap();
        let at = folder.path().join("mount");
        fs::create_dir(&at).unwrap();
        // As the program does for an engine that waits.
        let options = SessionOptions { threads: 64, waits, ..SessionOptions::default() };
        let mounted = Mounted::new(&mount, &at, Ownership::default(), &options, &Env::real(), &|| {}).unwrap();
        World { mounted: Some(mounted), at, folder }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Unmounts before its folder is removed.
        self.mounted.take();
    }
}

fn must_not_mount() -> bool {
    if std::env::var_os("MARGAY_NO_FUSE").is_some_and(|value| value == "1") {
        eprintln!("SKIPPED: MARGAY_NO_FUSE=1");
        return true;
    }
    assert!(
        Path::new("/dev/fuse").exists(),
        "this test needs /dev/fuse; MARGAY_NO_FUSE=1 leaves out all tests that mount"
    );
    false
}

/// A file of the mount that is open and whose pages the kernel does not have.
fn opened(at: &Path) -> File {
    fs::write(at, vec![7; 64 << 10]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(at).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    file
}

/// Set in the process that asks: where to look up absent names, and what to make when there is an answer.
const ASKS: &str = "MARGAY_TEST_ASKS";
const ANSWERED: &str = "MARGAY_TEST_ANSWERED";

/// The other process. Its exit code says whether all was as it should be.
fn ask(at: &Path, answered: &Path) {
    let ask = |number: usize| {
        let (path, answered) = (at.join(format!("absent-{number}")), answered.to_owned());
        let work = move || {
            let found = fs::metadata(path).map_err(|error| error.kind());
            File::create(answered).unwrap();
            assert_eq!(found.unwrap_err(), ErrorKind::NotFound);
        };
        thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap()
    };
    let waiting: Vec<_> = (0..WAITING).map(ask).collect();
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_thousand_requests_that_wait_hold_up_no_other() {
    if let (Some(at), Some(answered)) = (std::env::var_os(ASKS), std::env::var_os(ANSWERED)) {
        return ask(Path::new(&at), Path::new(&answered));
    }
    if must_not_mount() {
        return;
    }
    let mut engine = None;
    let far = World::new(true, |below| {
        let distant = Arc::new(DistantEngine::new(below, Env::real().clock, Duration::ZERO));
        engine = Some(Arc::clone(&distant));
        distant
    });
    let (near, engine) = (World::new(false, |below| below), engine.unwrap());
    let file = opened(&far.at.join("file"));
    let answered = far.folder.path().join("answered");
    let blocked = engine.blocked();
    engine.set_round_trip(STALL);
    let mut waiting = Command::new(std::env::current_exe().unwrap());
    waiting.args(["--exact", "a_thousand_requests_that_wait_hold_up_no_other"]);
    let mut waiting = waiting.env(ASKS, &far.at).env(ANSWERED, &answered).spawn().unwrap();
    let begun = Instant::now();
    while engine.blocked() - blocked < WAITING as u64 {
        assert!(begun.elapsed() < STALL, "not all of them reach the engine: {}", engine.blocked() - blocked);
        thread::sleep(Duration::from_millis(5));
    }
    // Requests that need no metadata.
    let mut bytes = [0; 4096];
    for number in 0..8 {
        file.read_exact_at(&mut bytes, number * 4096).unwrap();
        assert_eq!(bytes, [7; 4096]);
        file.write_all_at(b"written", number * 4096).unwrap();
    }
    // Another volume's.
    for number in 0..100 {
        let path = near.at.join(number.to_string());
        fs::write(&path, b"body").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"body");
    }
    assert!(!answered.exists(), "all still wait");
    engine.set_round_trip(Duration::ZERO);
    assert!(waiting.wait().unwrap().success());
    assert!(answered.exists());
    file.sync_all().unwrap();
}
