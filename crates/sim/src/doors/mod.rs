//! One tree behind two doors: random changes through S3 and through the mount, each followed by looks through both.
//!
//! Why:        a kernel keeps names, absences, attributes and pages for a long time; only a server that takes them
//!             away before it answers can let it. One stale look is a broken promise.
//! Invariants: O1 before a change its names are looked up, listed and read through the mount, so that everything that
//!                could be stale is in the kernel's caches, absences included.
//!             O2 right after the answer: stat, content and listing through the mount, and the object through S3,
//!                are as the model says.
//!                An answer that did not wait any longer for the kernel, which the server counts, is the only exception:
//!                then they are so soon, and it is counted here as well.
//!             O3 a file that was open keeps the content that it had, whatever S3 puts in its place.
//!             O4 all of it beside `upkeep`, which makes and ends objects in a directory of the same tree; what has expired
//!                there is gone from the mount, whatever the kernel had seen of it. After a stop fsck finds nothing.
//! Not here:   crashes (kill), races between clients.

#![allow(clippy::disallowed_methods, reason = "the mount is looked at as any program does")]

mod model;
mod watcher;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use margay_env::sim::SimRandom;
use tokio::runtime::Runtime;

use crate::blob::Blob;
use crate::http::Http;
use crate::process::{Process, at_rest, last_said, late_notices};
use crate::target::{BUCKET, Target, Trouble};
use crate::upkeep::{Done, ExpiryArea, Upkeep};
use crate::{Failure, fail};
use model::Model;
use watcher::Watcher;

/// Largest object, in bytes; some are inline, most go with their commit, some into segments.
const OBJECT_BYTES_MAX: u64 = 200_000;
/// How soon the mount shows what an answer did not wait for.
const LATE_TIME_MAX: Duration = Duration::from_secs(60);
const LATE_STEP: Duration = Duration::from_millis(10);
/// Share of changes before which a file is opened and held, in percent.
const HELD_PERCENT: u64 = 25;
/// So many changes have to show that reclaim and expiry did something.
const PROOF_CHANGES: u64 = 1000;

#[derive(Clone, Debug)]
pub struct Options {
    pub binary: PathBuf,
    /// Where data and mount point go.
    pub folder: PathBuf,
    pub operations: u64,
    /// Share of changes made through the mount, in percent.
    pub mount_percent: u64,
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub operations: u64,
    pub through_mount: u64,
    /// Looks that were as the model says.
    pub checks: u64,
    /// Answers that did not wait for the kernel as long as it took.
    pub late: u64,
    /// Looks at what expires.
    pub watched: u64,
    pub upkeep: Done,
}

#[derive(Clone, Debug)]
enum Change {
    Put(String, Blob),
    Delete(String),
    /// An object.
    Rename(String, String),
    /// Directories, each with its `/`.
    RenameDirectory(String, String),
}

impl Change {
    /// Keys that it gives or takes away by name.
    fn keys(&self) -> Vec<&str> {
        match self {
            Change::Put(key, _) | Change::Delete(key) => vec![key],
            Change::Rename(from, to) | Change::RenameDirectory(from, to) => vec![from, to],
        }
    }
}

struct Doors<'a> {
    options: &'a Options,
    mount: PathBuf,
    http: Http,
    runtime: Runtime,
    random: SimRandom,
    model: Model,
    report: Report,
    /// What the server has counted of answers that did not wait.
    late_notices: u64,
}

/// A file that is held open, and what was in it.
struct Held {
    key: String,
    file: File,
    content: Vec<u8>,
}

/// Runs all changes; `told` hears of each.
pub fn run(options: &Options, told: &mut dyn FnMut(&Report)) -> (Report, Result<(), Failure>) {
    let mut report = Report::default();
    let outcome = start_and_run(options, &mut report, told);
    (report, outcome)
}

fn start_and_run(options: &Options, report: &mut Report, told: &mut dyn FnMut(&Report)) -> Result<(), Failure> {
    let (data, mount) = (options.folder.join("data"), options.folder.join("mount"));
    std::fs::create_dir_all(&mount).map_err(|error| Failure(format!("{}: {error}", mount.display())))?;
    let mut pair = std::ffi::OsString::from(BUCKET);
    pair.push("=");
    pair.push(&mount);
    let mut process = Process::start(&options.binary, &data, &[OsStr::new("--mount"), &pair])?;
    let unmount = Unmount(mount.clone());
    let outcome = work(options, &mut process, (&data, &mount), report, told);
    let alive = process.check();
    let stopped = outcome.and(alive).and_then(|()| process.stop());
    drop(unmount);
    let checked = stopped.and_then(|()| at_rest(&options.binary, "fsck", &data).map(drop));
    let said = last_said(&data);
    checked.map_err(|failure| Failure(format!("{failure}\nthe server said:\n{said}")))
}

/// All changes, and what has to hold when they are made.
fn work(
    options: &Options,
    process: &mut Process,
    (data, mount): (&Path, &Path),
    report: &mut Report,
    told: &mut dyn FnMut(&Report),
) -> Result<(), Failure> {
    let port = process.port()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the test machine has threads left");
    let random = SimRandom::new(options.seed);
    let upkeep = Upkeep::beside(data, port, ExpiryArea::INSIDE, random.below(u64::MAX));
    let watcher = Watcher::begin(&mount.join(ExpiryArea::INSIDE.prefix));
    let (http, mount, model) = (Http::new(port), mount.to_owned(), Model::default());
    let mut doors = Doors { options, mount, http, runtime, random, model, report: Report::default(), late_notices: 0 };
    let outcome = doors.run(&upkeep, told);
    *report = doors.report;
    outcome?;
    report.upkeep = upkeep.settle()?;
    report.watched = watcher.all_gone(LATE_TIME_MAX)?;
    if options.operations < PROOF_CHANGES { Ok(()) } else { report.upkeep.shows_something() }
}

/// Takes the mount away, whatever happened to the server.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // Already gone when the server did it.
        let _ =
            std::process::Command::new("umount").arg("-l").arg(&self.0).stderr(std::process::Stdio::null()).status();
    }
}

impl Doors<'_> {
    fn run(&mut self, upkeep: &Upkeep, told: &mut dyn FnMut(&Report)) -> Result<(), Failure> {
        for number in 1..=self.options.operations {
            if upkeep.broke_off() {
                // Settling says why.
                return Ok(());
            }
            let change = self.choose(number);
            self.step(&change).map_err(|failure| Failure(format!("change {number}, {change:?}: {failure}")))?;
            self.report.operations = number;
            told(&self.report);
        }
        Ok(())
    }

    fn choose(&mut self, number: u64) -> Change {
        let key = self.model.any_key(&mut self.random);
        match self.random.below(10) {
            0..=4 => {
                let len = match self.random.below(4) {
                    0 => self.random.below(128),
                    1..=2 => self.random.below(8000),
                    _ => self.random.below(OBJECT_BYTES_MAX),
                };
                Change::Put(key, Blob { tag: self.options.seed ^ (number << 20), len: len as usize })
            }
            5..=6 => Change::Delete(self.model.some_key(&mut self.random).unwrap_or(key)),
            7..=8 => Change::Rename(self.model.some_key(&mut self.random).unwrap_or_else(|| key.clone()), key),
            _ => {
                let (from, to) = self.model.any_directories(&mut self.random);
                Change::RenameDirectory(from, to)
            }
        }
    }

    fn step(&mut self, change: &Change) -> Result<(), Failure> {
        for key in change.keys() {
            self.warm(key);
        }
        let held = if self.random.chance(HELD_PERCENT) { self.hold(change.keys()[0])? } else { None };
        let mut through_mount = self.random.chance(self.options.mount_percent);
        if let Change::RenameDirectory(from, to) = change {
            // Whether a directory without objects is there is the mount's affair, so S3 asks only for what it knows.
            through_mount = false;
            if !self.model.may_rename_directory(from, to) {
                return Ok(());
            }
        }
        if through_mount {
            self.report.through_mount += 1;
            self.change_by_mount(change)?;
        } else {
            self.change_by_s3(change)?;
        }
        self.look_at_all(change).or_else(|failure| self.look_again(change, failure))?;
        held.map_or(Ok(()), |held| self.look_at_held(held, through_mount))
    }

    fn look_at_all(&mut self, change: &Change) -> Result<(), Failure> {
        change.keys().into_iter().try_for_each(|key| self.look(key))
    }

    /// Looks until all is as it should be, when the server's answer did not wait for the kernel.
    fn look_again(&mut self, change: &Change, mut failure: Failure) -> Result<(), Failure> {
        let late_notices = late_notices(&self.options.binary, &self.options.folder.join("data"))?;
        if late_notices == self.late_notices {
            return Err(failure);
        }
        self.report.late += 1;
        self.late_notices = late_notices;
        let began = Instant::now();
        while began.elapsed() < LATE_TIME_MAX {
            std::thread::sleep(LATE_STEP);
            match self.look_at_all(change) {
                Ok(()) => return Ok(()),
                Err(again) => failure = again,
            }
        }
        Err(Failure(format!("{failure}, {LATE_TIME_MAX:?} after a late notice")))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.mount.join(key)
    }

    /// Fills the kernel's caches with what it may know of a key and its directory.
    fn warm(&self, key: &str) {
        let path = self.path(key);
        let _ = std::fs::symlink_metadata(&path);
        let _ = std::fs::read(&path);
        if let Some(Ok(lines)) = path.parent().map(std::fs::read_dir) {
            lines.flatten().for_each(|line| drop(line.metadata()));
        }
    }

    fn hold(&self, key: &str) -> Result<Option<Held>, Failure> {
        let Some(blob) = self.model.get(key) else { return Ok(None) };
        let file = File::open(self.path(key)).map_err(|error| Failure(format!("open {key}: {error}")))?;
        Ok(Some(Held { key: key.to_owned(), file, content: blob.bytes() }))
    }

    /// A file that S3 replaced or removed keeps its bytes; one that the mount wrote has the new ones.
    fn look_at_held(&mut self, mut held: Held, through_mount: bool) -> Result<(), Failure> {
        if through_mount {
            return Ok(());
        }
        let mut bytes = Vec::new();
        held.file.read_to_end(&mut bytes).map_err(|error| Failure(format!("read of open {}: {error}", held.key)))?;
        if bytes != held.content {
            fail!("{} was open and has changed under its reader: {}", held.key, difference(&bytes, &held.content));
        }
        self.report.checks += 1;
        Ok(())
    }

    fn change_by_s3(&mut self, change: &Change) -> Result<(), Failure> {
        let Doors { http, runtime, model, .. } = self;
        let outcome: Result<bool, Trouble> = runtime.block_on(async {
            match change {
                Change::Put(key, blob) => http.put(key, *blob).await.map(|()| true),
                Change::Delete(key) => http.delete(key).await.map(|()| true),
                Change::Rename(from, to) | Change::RenameDirectory(from, to) => http.rename(from, to).await,
            }
        });
        // A directory that only the mount knows may stand in the way of another one.
        if outcome.map_err(|trouble| Failure(format!("S3: {trouble}")))? {
            model.apply(change);
        }
        Ok(())
    }

    fn change_by_mount(&mut self, change: &Change) -> Result<(), Failure> {
        let parent = |path: &Path| path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let outcome = match change {
            Change::Put(key, blob) => {
                let path = self.path(key);
                parent(&path).and_then(|()| std::fs::write(&path, blob.bytes()))
            }
            Change::Delete(key) if self.model.get(key).is_some() => std::fs::remove_file(self.path(key)),
            Change::Rename(from, to) if self.model.get(from).is_some() => {
                let to = self.path(to);
                parent(&to).and_then(|()| std::fs::rename(self.path(from), to))
            }
            Change::Delete(_) | Change::Rename(..) | Change::RenameDirectory(..) => Ok(()),
        };
        outcome.map_err(|error| Failure(format!("mount: {error}")))?;
        self.model.apply(change);
        Ok(())
    }

    /// A key through both doors, and its directory's lines.
    fn look(&mut self, key: &str) -> Result<(), Failure> {
        if !key.ends_with('/') {
            self.look_at_file(key)?;
            let object = self.runtime.block_on(self.http.get(key));
            let object = object.map_err(|trouble| Failure(format!("S3 GET: {trouble}")))?;
            self.same(key, "S3", object)?;
        }
        let directory = key.trim_end_matches('/').rfind('/').map_or("", |slash| &key[..=slash]);
        self.look_at_directory(directory)
    }

    fn look_at_file(&mut self, key: &str) -> Result<(), Failure> {
        let path = self.path(key);
        let size = absent_is_none(std::fs::symlink_metadata(&path)).map_err(|error| failed("stat", key, &error))?;
        let size = size.map(|data| data.len());
        let expected = self.model.get(key).map(|blob| blob.len as u64);
        if size != expected {
            fail!("stat of {key} shows size {size:?}, should be {expected:?}");
        }
        let content = absent_is_none(std::fs::read(&path)).map_err(|error| failed("read", key, &error))?;
        self.same(key, "the mount", content)
    }

    fn same(&mut self, key: &str, door: &str, found: Option<Vec<u8>>) -> Result<(), Failure> {
        self.report.checks += 1;
        match (found, self.model.get(key).map(|blob| blob.bytes())) {
            (None, None) => Ok(()),
            (Some(found), Some(expected)) if found == expected => Ok(()),
            (Some(found), Some(expected)) => fail!("{key} through {door}: {}", difference(&found, &expected)),
            (found, expected) => {
                fail!("{key} through {door} is there: {}, should be: {}", found.is_some(), expected.is_some())
            }
        }
    }

    /// Files exactly; directories at least those that objects need.
    fn look_at_directory(&mut self, directory: &str) -> Result<(), Failure> {
        let path = self.path(directory);
        let lines = absent_is_none(std::fs::read_dir(&path)).map_err(|error| failed("readdir", directory, &error))?;
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for line in lines.into_iter().flatten() {
            let line = line.map_err(|error| failed("readdir", directory, &error))?;
            let name = line.file_name().to_string_lossy().into_owned();
            let kind = line.file_type().map_err(|error| failed("file type", &name, &error))?;
            if kind.is_dir() { directories.push(name) } else { files.push(name) }
        }
        files.sort_unstable();
        let (should_files, should_directories) = self.model.lines(directory);
        if files != should_files {
            fail!("readdir of {directory:?} shows files {files:?}, should be {should_files:?}");
        }
        if let Some(missing) = should_directories.iter().find(|name| !directories.contains(name)) {
            fail!("readdir of {directory:?} lacks {missing:?}: {directories:?}");
        }
        self.report.checks += 1;
        Ok(())
    }
}

fn failed(what: &str, name: &str, error: &std::io::Error) -> Failure {
    Failure(format!("{what} of {name:?}: {error}"))
}

fn absent_is_none<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn difference(found: &[u8], expected: &[u8]) -> String {
    let at = found.iter().zip(expected).position(|(one, other)| one != other);
    format!("{} bytes, should be {}, first difference at {at:?}", found.len(), expected.len())
}
