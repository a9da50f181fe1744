//! Several disks of one server: pulled under load, replaced, filled again; metadata in two directories.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves and wait")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use margay_client::upstream::{Upstream, Wanted};
use margay_client::{ClientError, Condition};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

mod server;

use server::far::upstream_of;
use server::{Server, ends, margay, metric};

/// In a segment of its own.
const LARGE_BYTES: usize = 17 << 20;

struct World {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

impl World {
    fn new() -> World {
        let mut world = World { folder: tempfile::tempdir().unwrap(), server: None };
        for disk in ["d1", "d2"] {
            fs::create_dir(world.path(disk)).unwrap();
        }
        world.start("data", &["--copies", "2"]);
        world.server().client(&["mb", "s3://bucket"]);
        world.until_whole();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn start(&mut self, data: &str, more: &[&str]) {
        let (one, two, mirror) = (self.path("d1"), self.path("d2"), self.path("mirror"));
        let mut all = vec!["--disk", one.to_str().unwrap(), "--disk", two.to_str().unwrap()];
        if data == "data" {
            all.extend(["--mirror-metadata", mirror.to_str().unwrap()]);
        }
        all.extend(more);
        self.server = Some(Server::start_with(&self.path(data), &all));
    }

    fn stop(&mut self, signal: Signal) {
        let server = self.server.take().unwrap();
        server.signal(signal);
        server.code();
    }

    fn status(&self) -> Value {
        let data = self.server().data.clone();
        let text = ends(0, &["disk", "ls", "--json", "--data", data.to_str().unwrap()]);
        serde_json::from_str(&text).unwrap()
    }

    fn state(&self, disk: &str) -> Value {
        self.status()["of"][self.path(disk).to_str().unwrap()].clone()
    }

    fn add(&self, disk: &str) -> String {
        let data = self.server().data.clone();
        ends(0, &["disk", "add", self.path(disk).to_str().unwrap(), "--data", data.to_str().unwrap()])
    }

    fn until_whole(&self) {
        self.until("all copies are made", |status| {
            let disks = status["of"].as_object().unwrap();
            let is_in = |disk: &Value| {
                !["filling", "out", "leaving"].iter().any(|word| disk["metadata"] == *word || disk["payload"] == *word)
            };
            status["short_files"] == 0 && disks.values().all(is_in)
        });
    }

    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if holds(&status) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{what}: {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(29).wrapping_add((at >> 12) as u8 ^ seed as u8)).collect()
}

/// Puts and gets all the time; any failure is kept.
struct Load {
    known: Mutex<Vec<(String, usize, usize)>>,
    errors: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Load {
    fn get(runtime: &Runtime, upstream: &Upstream, key: &str) -> Result<Option<Bytes>, ClientError> {
        let Some(there) = runtime.block_on(upstream.describe(key))? else { return Ok(None) };
        Ok(runtime.block_on(upstream.get(key, 0..there.size, Wanted::Any))?.map(|found| found.bytes))
    }

    fn check(&self, runtime: &Runtime, upstream: &Upstream, (key, seed, len): &(String, usize, usize)) {
        match Load::get(runtime, upstream, key) {
            Ok(Some(bytes)) if bytes == content(*seed, *len) => {}
            other => self
                .errors
                .lock()
                .push(format!("GET {key} of {len} bytes: {:?}", other.map(|bytes| bytes.map(|bytes| bytes.len())))),
        }
    }

    fn check_all(&self, server: &Server) {
        let (runtime, upstream) = (Runtime::new().unwrap(), upstream_of(server));
        let known = self.known.lock().clone();
        assert!(known.len() > 10, "{}", known.len());
        known.iter().for_each(|known| self.check(&runtime, &upstream, known));
        self.expect_no_error();
    }

    fn expect_no_error(&self) {
        let errors = self.errors.lock();
        assert!(errors.is_empty(), "{} errors: {errors:#?}", errors.len());
    }

    fn run(&self, server: &Server, thread: usize) {
        let (runtime, upstream) = (Runtime::new().unwrap(), upstream_of(server));
        let mut count = 0;
        while !self.ended.load(Ordering::Relaxed) {
            count += 1;
            let key = format!("{thread}/{}", self.known.lock().len());
            let len = if count % 40 == 0 { LARGE_BYTES } else { [100, 5000, 90_000, 900_000][count % 4] };
            let put = upstream.put(&key, Bytes::from(content(count, len)), Condition::Always);
            if let Err(error) = runtime.block_on(put) {
                self.errors.lock().push(format!("PUT {key}: {error}"));
                continue;
            }
            let known = (key, count, len);
            self.check(&runtime, &upstream, &known);
            self.known.lock().push(known);
        }
    }

    /// Runs beside `work`.
    fn beside(self: &Arc<Load>, server: &Server, work: impl FnOnce(&dyn Fn(usize))) {
        self.ended.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || self.run(server, thread));
            }
            let more = |count: usize| {
                let wanted = self.known.lock().len() + count;
                let begun = Instant::now();
                while self.known.lock().len() < wanted && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&more)));
            self.ended.store(true, Ordering::Relaxed);
            if let Err(panic) = done {
                std::panic::resume_unwind(panic);
            }
        });
        self.expect_no_error();
    }
}

fn load() -> Arc<Load> {
    Arc::new(Load { known: Mutex::default(), errors: Mutex::default(), ended: AtomicBool::new(false) })
}

/// The directory is gone as if its file system was unmounted.
fn pull(path: &Path) {
    let pulled = path.with_extension("pulled");
    // Of an earlier time.
    let _ = fs::remove_dir_all(&pulled);
    fs::rename(path, pulled).unwrap();
}

#[test]
fn each_disk_is_pulled_under_load_replaced_and_filled_and_nothing_is_lost() {
    let mut world = World::new();
    let load = load();
    load.beside(world.server(), |more| {
        for disk in ["d1", "d2"] {
            more(50);
            pull(&world.path(disk));
            world.until("it is out", |status| status["of"][world.path(disk).to_str().unwrap()]["payload"] == "out");
            more(30);
            assert!(world.state(disk)["next"].as_str().unwrap().contains("margay disk add"), "{}", world.state(disk));
            // An empty directory may be a mount point without its disk: it is taken when told so.
            fs::create_dir(world.path(disk)).unwrap();
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(world.state(disk)["payload"], "out");
            world.add(disk);
            world.until_whole();
        }
    });
    assert!(metric(&world.server().data, "margay_disk_copied_bytes_total") > 0);
    world.stop(Signal::KILL);
    world.start("data", &[]);
    load.check_all(world.server());
    world.stop(Signal::TERM);
    let data = world.path("data");
    let found = margay().args(["fsck", "--data"]).arg(&data).output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
}

#[test]
fn metadata_is_in_two_directories_and_each_one_opens_the_volume() {
    let mut world = World::new();
    let load = load();
    load.beside(world.server(), |more| {
        more(40);
        pull(&world.path("mirror"));
        world.until("it is out", |status| status["of"][world.path("mirror").to_str().unwrap()]["metadata"] == "out");
        more(30);
        fs::create_dir(world.path("mirror")).unwrap();
        world.add("mirror");
        world.until_whole();
        more(30);
    });
    world.stop(Signal::KILL);
    // The data directory is lost.
    pull(&world.path("data"));
    let refused = ends(3, &["fsck", "--data", world.path("mirror").to_str().unwrap()]);
    assert!(refused.contains("--accept-missing-disks") && refused.trim().lines().count() == 1, "{refused}");
    world.start("mirror", &["--accept-missing-disks"]);
    load.check_all(world.server());
    // An empty one takes its place.
    world.stop(Signal::TERM);
    let mirror = world.path("mirror");
    world.server = Some(Server::start_with(
        &world.path("data"),
        &["--mirror-metadata", mirror.to_str().unwrap(), "--accept-missing-disks"],
    ));
    world.until_whole();
    load.check_all(world.server());
    world.stop(Signal::KILL);
    // What was out is never the truth: with it alone nothing opens.
    pull(&mirror);
    fs::rename(world.path("data"), world.path("kept")).unwrap();
    fs::rename(world.path("data.pulled"), world.path("data")).unwrap();
    let refused =
        margay().args(["serve", "--address", "127.0.0.1:0", "--data"]).arg(world.path("data")).output().unwrap();
    assert!(!refused.status.success());
    fs::remove_dir_all(world.path("data")).unwrap();
    fs::rename(world.path("kept"), world.path("data")).unwrap();
    world.start("data", &["--accept-missing-disks"]);
    load.check_all(world.server());
}

#[test]
fn a_volume_gets_disks_later_and_is_backed_up_and_dumped() {
    let mut world = World { folder: tempfile::tempdir().unwrap(), server: None };
    world.server = Some(Server::start(&world.path("data")));
    world.server().client(&["mb", "s3://bucket"]);
    let (load, runtime) = (load(), Runtime::new().unwrap());
    for seed in 0..12 {
        let (key, len) = (format!("k{seed}"), [3_000_000, LARGE_BYTES][usize::from(seed % 5 == 0)]);
        let put = upstream_of(world.server());
        runtime.block_on(put.put(&key, Bytes::from(content(seed, len)), Condition::Always)).unwrap();
        load.known.lock().push((key, seed, len));
    }
    world.stop(Signal::TERM);
    world.start("data", &["--copies", "2"]);
    load.check_all(world.server());
    world.until_whole();
    let payload = |folder: PathBuf| {
        let names = fs::read_dir(folder.join("segments")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| [".pack", ".raw"].iter().any(|kind| name.to_string_lossy().ends_with(kind))).count()
    };
    world.until("all payload has moved", |_| payload(world.path("data")) == 0);
    assert_eq!(payload(world.path("d1")), payload(world.path("d2")));
    load.check_all(world.server());
    let (data, backup, dump) = (world.path("data"), world.path("backup"), world.path("volume.dump"));
    let data = data.to_str().unwrap();
    ends(0, &["backup", backup.to_str().unwrap(), "--data", data]);
    ends(0, &["scrub", "--data", data]);
    fs::write(&dump, margay().args(["dump", "--data", data]).output().unwrap().stdout).unwrap();
    assert!(fs::metadata(&dump).unwrap().len() > 20_000_000);
    world.stop(Signal::TERM);
    ends(0, &["fsck", "--data", data]);
    let restored = world.path("restored");
    ends(0, &["restore", backup.to_str().unwrap(), "--data", restored.to_str().unwrap()]);
    for key in ["keys", "identity-key", "encryption-keys"] {
        fs::copy(world.path("data").join(key), restored.join(key)).unwrap();
    }
    world.server = Some(Server::start(&restored));
    load.check_all(world.server());
}

#[test]
fn wrong_disks_are_refused_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let refused = |words: &[&str]| {
        let output = margay()
            .args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off"])
            .args(words)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{words:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().find(|line| line.starts_with("margay: ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let few = refused(&["--data", &path("a"), "--disk", &path("d1"), "--copies", "2"]);
    assert!(few.contains("--copies 2") && few.contains("--disk DIR"), "{few}");
    let twice = refused(&["--data", &path("a"), "--disk", &path("d1"), "--disk", &path("d1")]);
    assert!(twice.contains("same directory"), "{twice}");
    let shared =
        refused(&["--data", &path("a"), "--disk", &path("d1"), "--metadata", "postgres://nobody@localhost/none"]);
    assert!(shared.contains("cluster set"), "{shared}");
    fs::create_dir(path("d1")).unwrap();
    fs::write(path("d1/photo"), "").unwrap();
    let foreign = refused(&["--data", &path("a"), "--disk", &path("d1")]);
    assert!(foreign.contains("photo"), "{foreign}");
    drop(Server::start_with(Path::new(&path("b")), &["--disk", &path("d2")]));
    let other = refused(&["--data", &path("a"), "--disk", &path("d2")]);
    assert!(other.contains("another volume"), "{other}");
    // An older program says that the format is newer; this one says what is missing.
    fs::remove_dir_all(path("d2")).unwrap();
    let missing = refused(&["--data", &path("b")]);
    assert!(missing.contains("--accept-missing-disks"), "{missing}");
}
