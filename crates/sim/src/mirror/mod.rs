//! The mount beside a file system that is known to be right: the same random calls on both, and the same answers.
//!
//! Why:        POSIX is what Linux's own file systems do, down to each error; a model in memory would be a second
//!             opinion, a directory of the machine is the first.
//! Invariants: Y1 every call gives the same result or the same error on both sides; names are few, so that they meet.
//!             Y2 S3 changes the mount's tree between calls, and does what a rename over the name, or an unlink, does.
//!             Y3 after kill -9 the tree is as it was after some call, and not before the last one that was synced.
//!             Y4 all of it beside `upkeep`, whose own objects lie in another bucket; fsck finds nothing after a stop.
//! Not here:   caches that two doors could leave stale (doors), lost power (volume).

#![allow(clippy::disallowed_methods, reason = "both sides are used as any program does")]

mod op;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use margay_env::sim::SimRandom;
use tokio::runtime::Runtime;

use crate::blob::Blob;
use crate::http::Http;
use crate::process::{Process, at_rest, last_said};
use crate::target::{BUCKET, Target};
use crate::upkeep::{Done, ExpiryArea, Upkeep};
use crate::{Failure, fail};
use op::{Dump, How, Op, SLOTS, Side, dump};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DEPTH_MAX: u64 = 3;
/// Bytes that offsets and lengths stay below.
const FILE_BYTES_MAX: u64 = 150_000;
/// Whole trees are compared after so many calls.
const DUMP_EVERY: u64 = 200;
const S3_PERCENT: u64 = 10;
/// So many calls have to show that reclaim and expiry did something.
const PROOF_CALLS: u64 = 2000;

#[derive(Clone, Debug)]
pub struct Options {
    pub binary: PathBuf,
    pub folder: PathBuf,
    pub operations: u64,
    /// kill -9 after so many calls, on average; 0: never.
    pub kill_every: u64,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub operations: u64,
    pub through_s3: u64,
    /// Calls that both sides refused with the same error.
    pub refused: u64,
    pub kills: u64,
    pub upkeep: Done,
}

struct Mirror<'a> {
    options: &'a Options,
    data: PathBuf,
    mount: Side,
    reference: Side,
    /// Nothing only while one server follows another.
    process: Option<(Process, Upkeep)>,
    http: Http,
    runtime: Runtime,
    random: SimRandom,
    report: Report,
    /// Trees since the last sync, the oldest as it was then; kept only when there are kills.
    history: Vec<Dump>,
}

pub fn run(options: &Options, told: &mut dyn FnMut(&Report)) -> (Report, Result<(), Failure>) {
    match Mirror::start(options) {
        Err(failure) => (Report::default(), Err(failure)),
        Ok(mut mirror) => {
            let outcome = mirror.run(told);
            let outcome = outcome.and_then(|()| mirror.end());
            let (report, said) = (mirror.report, last_said(&mirror.data));
            (report, outcome.map_err(|failure| Failure(format!("{failure}\nthe server said:\n{said}"))))
        }
    }
}

fn unmount(path: &Path) {
    // Already gone when the server did it.
    let _ = std::process::Command::new("umount").arg("-l").arg(path).stderr(std::process::Stdio::null()).status();
}

fn start_server(binary: &Path, data: &Path, mount: &Path, seed: u64) -> Result<(Process, Upkeep, Http), Failure> {
    let mut pair = OsString::from(BUCKET);
    pair.push("=");
    pair.push(mount);
    let mut process = Process::start(binary, data, &[OsStr::new("--mount"), &pair])?;
    let port = process.port()?;
    let upkeep = Upkeep::beside(data, port, ExpiryArea::APART, seed);
    Ok((process, upkeep, Http::new(port)))
}

impl<'a> Mirror<'a> {
    fn start(options: &'a Options) -> Result<Mirror<'a>, Failure> {
        let (data, mount) = (options.folder.join("data"), options.folder.join("mount"));
        let reference = options.folder.join("reference");
        for folder in [&mount, &reference] {
            std::fs::create_dir_all(folder).map_err(|error| Failure(format!("{}: {error}", folder.display())))?;
        }
        let random = SimRandom::new(options.seed);
        let (process, upkeep, http) = start_server(&options.binary, &data, &mount, random.below(u64::MAX))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (mount, reference) = (Side::new(mount), Side::new(reference));
        let history = if options.kill_every > 0 { vec![Dump::new()] } else { Vec::new() };
        Ok(Mirror {
            options,
            data,
            mount,
            reference,
            process: Some((process, upkeep)),
            http,
            runtime: runtime.expect("the test machine has threads left"),
            random,
            report: Report::default(),
            history,
        })
    }

    fn run(&mut self, told: &mut dyn FnMut(&Report)) -> Result<(), Failure> {
        for number in 1..=self.options.operations {
            self.step(number).map_err(|failure| Failure(format!("call {number}: {failure}")))?;
            self.report.operations = number;
            told(&self.report);
        }
        self.compare_trees()
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.mount.let_all_go();
        if let Some((process, upkeep)) = self.process.take() {
            self.report.upkeep.add(upkeep.settle()?);
            process.stop()?;
        }
        unmount(&self.mount.root);
        at_rest(&self.options.binary, "fsck", &self.data)?;
        if self.options.operations < PROOF_CALLS { Ok(()) } else { self.report.upkeep.shows_something() }
    }

    fn step(&mut self, number: u64) -> Result<(), Failure> {
        if self.process.as_ref().is_some_and(|(_, upkeep)| upkeep.broke_off())
            && let Some((_process, upkeep)) = self.process.take()
        {
            upkeep.end()?;
        }
        if self.options.kill_every > 0 && self.random.below(self.options.kill_every) == 0 {
            return self.kill();
        }
        if self.random.chance(S3_PERCENT) && self.change_by_s3(number)? {
            self.report.through_s3 += 1;
            return self.remember(true);
        }
        let op = self.choose(number);
        let (mount, reference) = (self.mount.run(&op), self.reference.run(&op));
        if mount != reference {
            fail!("{op:?}: the mount gives {}, should be {}", short(&mount), short(&reference));
        }
        self.report.refused += u64::from(mount.is_err());
        if number.is_multiple_of(DUMP_EVERY) {
            self.compare_trees()?;
        }
        self.remember(matches!(op, Op::Sync(_)) && mount.is_ok())
    }

    fn remember(&mut self, synced: bool) -> Result<(), Failure> {
        if self.options.kill_every > 0 {
            let tree = dump(&self.reference.root).map_err(|error| Failure(format!("the reference: {error}")))?;
            if synced {
                self.history.clear();
            }
            if self.history.last() != Some(&tree) {
                self.history.push(tree);
            }
        }
        Ok(())
    }

    fn compare_trees(&self) -> Result<(), Failure> {
        let [mount, reference] = [&self.mount.root, &self.reference.root]
            .map(|root| dump(root).map_err(|error| Failure(format!("{}: {error}", root.display()))));
        let (mount, reference) = (mount?, reference?);
        if let Some(difference) = difference(&mount, &reference) {
            fail!("trees differ: {difference}");
        }
        Ok(())
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.random.below(DEPTH_MAX);
        let names: Vec<&str> = (0..depth).map(|_| NAMES[self.random.below(NAMES.len() as u64) as usize]).collect();
        names.join("/")
    }

    fn blob(&mut self, number: u64) -> Blob {
        let bound = [100, 5000, FILE_BYTES_MAX][self.random.below(3) as usize];
        Blob { tag: self.options.seed ^ (number << 20), len: self.random.below(bound) as usize }
    }

    fn choose(&mut self, number: u64) -> Op {
        let (path, other) = (self.path(), self.path());
        let at = self.random.below(FILE_BYTES_MAX);
        let blob = self.blob(number);
        let mode = [0o755, 0o700, 0o644, 0o600, 0o2755, 0o4711][self.random.below(6) as usize];
        let how = [How::Replace, How::Replace, How::NoReplace, How::Exchange][self.random.below(4) as usize];
        let slot = self.random.below(SLOTS as u64) as usize;
        // What is written to a held file is published when it is closed, in no order with other calls.
        let held = self.options.kill_every == 0;
        match self.random.below(if held { 36 } else { 31 }) {
            0..=4 => Op::Create(path, self.random.chance(50)),
            5..=7 => Op::Mkdir(path, mode),
            8 => Op::Rmdir(path),
            9..=10 => Op::Unlink(path),
            11 => Op::Link(path, other),
            12 => Op::Symlink(other, path),
            13..=15 => Op::Rename(path, other, how),
            16 => Op::Scatter(path, at),
            17..=18 => Op::Write(path, at, blob),
            19 => Op::Append(path, blob),
            20 => Op::Truncate(path, at),
            21 => Op::Punch(path, at, 1 + self.random.below(FILE_BYTES_MAX)),
            22 => Op::Chmod(path, mode),
            23 => Op::SetXattr(path, format!("value {number}")),
            24 => Op::RemoveXattr(path),
            25 => Op::CopyRange(path, other, at),
            26 => Op::Sync(path),
            27..=28 => Op::Read(path),
            29 => Op::Stat(path),
            30 => Op::Readdir(path),
            31..=32 => Op::Hold(path, slot),
            33 => Op::HeldWrite(slot, at, blob),
            34 => Op::HeldRead(slot),
            _ => Op::LetGo(slot),
        }
    }

    /// PUT or DELETE where the tree has a place for it; false when it has none.
    fn change_by_s3(&mut self, number: u64) -> Result<bool, Failure> {
        let (key, blob) = (self.path(), self.blob(number));
        let path = self.reference.root.join(&key);
        let broken = |error: std::io::Error| Failure(format!("the reference: {error}"));
        let real_parent = path.ancestors().skip(1).take_while(|above| **above != *self.reference.root);
        let mut real_parent = real_parent.map(|above| std::fs::symlink_metadata(above).is_ok_and(|data| data.is_dir()));
        let old = std::fs::symlink_metadata(&path).ok();
        if !real_parent.all(|is| is) || old.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Ok(false);
        }
        let remove = old.is_some() && self.random.chance(30);
        let answer = self
            .runtime
            .block_on(async { if remove { self.http.delete(&key).await } else { self.http.put(&key, blob).await } });
        answer.map_err(|trouble| Failure(format!("S3 {key}: {trouble}")))?;
        if remove {
            std::fs::remove_file(&path).map_err(broken)?;
        } else {
            use std::os::unix::fs::PermissionsExt;
            // New bytes do not get the rights of a program's owner.
            let inherited = old.filter(std::fs::Metadata::is_file);
            let inherited = inherited.map_or(0o644, |data| data.permissions().mode() & !0o6000);
            let new = self.reference.root.with_extension("new");
            std::fs::write(&new, blob.bytes()).map_err(broken)?;
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(inherited)).map_err(broken)?;
            std::fs::rename(&new, &path).map_err(broken)?;
        }
        self.check_by_s3(&key)?;
        Ok(true)
    }

    fn check_by_s3(&self, key: &str) -> Result<(), Failure> {
        let object = self.runtime.block_on(self.http.get(key));
        let object = object.map_err(|trouble| Failure(format!("S3 GET {key}: {trouble}")))?;
        let file = std::fs::read(self.reference.root.join(key)).ok();
        if object != file {
            fail!("S3 GET {key} is not what was put: {:?} bytes", object.map(|bytes| bytes.len()));
        }
        Ok(())
    }

    /// kill -9, start again, compare with what may be there, and begin anew.
    fn kill(&mut self) -> Result<(), Failure> {
        if let Some((process, upkeep)) = self.process.take() {
            upkeep.excuse();
            process.kill();
            self.report.upkeep.add(upkeep.end()?);
        }
        unmount(&self.mount.root);
        let seed = self.random.below(u64::MAX);
        let (process, upkeep, http) = start_server(&self.options.binary, &self.data, &self.mount.root, seed)?;
        (self.process, self.http) = (Some((process, upkeep)), http);
        self.report.kills += 1;
        let tree = dump(&self.mount.root).map_err(|error| Failure(format!("after kill -9: {error}")))?;
        if !self.history.contains(&tree) {
            let newest = self.history.last().and_then(|newest| difference(&tree, newest));
            let oldest = self.history.first().and_then(|oldest| difference(&tree, oldest));
            fail!(
                "after kill -9 the tree is none of the last {}; from the newest: {newest:?}; from the synced: {oldest:?}",
                self.history.len()
            );
        }
        for root in [&self.mount.root, &self.reference.root] {
            empty(root).map_err(|error| Failure(format!("emptying {}: {error}", root.display())))?;
        }
        self.history = vec![tree];
        self.remember(false)
    }
}

/// Takes the lines away one by one; each step may be what a crash keeps, so the caller has no history of it.
fn empty(root: &Path) -> std::io::Result<()> {
    for line in std::fs::read_dir(root)? {
        let path = line?.path();
        if std::fs::symlink_metadata(&path)?.is_dir() {
            std::fs::remove_dir_all(path)?
        } else {
            std::fs::remove_file(path)?
        }
    }
    rustix::fs::fsync(std::fs::File::open(root)?)?;
    Ok(())
}

fn difference(mount: &Dump, reference: &Dump) -> Option<String> {
    let missing = reference.iter().find(|line| !mount.contains(line)).map(line_text);
    let extra = mount.iter().find(|line| !reference.contains(line)).map(line_text);
    (missing.is_some() || extra.is_some()).then(|| format!("lacks {missing:?}, has {extra:?}"))
}

fn line_text((path, stat, bytes, xattr): &(String, op::Stat, Vec<u8>, Option<Vec<u8>>)) -> String {
    let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    format!("{path}: {stat:?}, {} bytes (sum {sum:08x}), xattr {}", bytes.len(), xattr.is_some())
}

fn short(result: &Result<op::Shown, rustix::io::Errno>) -> String {
    let text = match result {
        Ok(op::Shown::Bytes(bytes)) => {
            let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
            format!("{} bytes (sum {sum:08x})", bytes.len())
        }
        other => format!("{other:?}"),
    };
    text.chars().take(400).collect()
}

impl Drop for Mirror<'_> {
    /// Whatever happened to the server.
    fn drop(&mut self) {
        self.mount.let_all_go();
        self.process = None;
        unmount(&self.mount.root);
    }
}
