//! Open files on a machine that loses its power, and on a disk that fills up.
//!
//! After a crash each file is one of the versions that were published since its last sync, whole.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Disk;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_volume::posix::*;
use margay_volume::*;
use world::maintenance::{ALL, Maintained};
use world::{body_of, machine, read_all, wait};

static MAINTAINED: Maintained = Maintained::new();

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
const FILES: usize = 3;

struct Machine {
    volume: Arc<Volume>,
    engine: Arc<EmbeddedEngine>,
    mount: Arc<Mount>,
}

fn open(disk: &SimDisk, seed: u64) -> Machine {
    let interval = Duration::from_millis([1, 5, 1000][seed as usize % 3]);
    let options = Options { file_memory_bytes_max: 160 << 10, file_pieces_max: 40, paths_max: 8, ..Options::default() };
    let (volume, engine) = machine::open(disk, seed, Some(interval), options);
    match wait(volume.create_bucket("b")) {
        Ok(_) | Err(Error::BucketExists) => {}
        Err(error) => panic!("{error}"),
    }
    let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    Machine { volume, engine, mount }
}

fn plain(which: usize) -> Name {
    Name::Plain(format!("f{which}"))
}

/// A file and what S3 may show of it after a crash: the newest is last.
struct File {
    handle: Option<Handle>,
    ino: Ino,
    model: Vec<u8>,
    versions: Vec<Vec<u8>>,
}

impl File {
    fn handle(&self) -> &Handle {
        self.handle.as_ref().unwrap()
    }

    /// From now on this content may be found.
    fn may_be(&mut self) {
        self.versions.push(self.model.clone());
    }

    fn must_be(&mut self) {
        self.versions = vec![self.model.clone()];
    }
}

/// Reclaim, with all files closed or open: what is open is pinned, and stays where it is.
fn maintain(machine: &Machine, files: &mut [File], closed: bool) -> Result<(), PosixError> {
    let mount = &machine.mount;
    for file in files.iter_mut().filter(|_| closed) {
        file.may_be();
        let handle = file.handle.take().unwrap();
        file.ino = handle.ino();
        mount.release(handle)?;
    }
    machine.engine.checkpoint().map_err(Error::from)?;
    let done = machine.volume.reclaim_once(&ALL, &SealedLogs)?;
    MAINTAINED.count(&done);
    MAINTAINED.check_until_crash(&machine.volume);
    for file in files.iter_mut().filter(|_| closed) {
        file.handle = Some(mount.open_file(file.ino, BOTH)?);
    }
    Ok(())
}

fn step(machine: &Machine, files: &mut [File], random: &SimRandom, number: usize) -> Result<(), PosixError> {
    let mount = &machine.mount;
    let which = random.below(FILES as u64) as usize;
    match random.below(14) {
        0..6 => {
            let file = &mut files[which];
            let at = if random.chance(50) { file.model.len() } else { random.below(200_000) as usize };
            let len = 1 + random.below([300, 9000, 150_000][random.below(3) as usize]) as usize;
            let bytes = body_of(number, len);
            mount.write(file.handle(), at as u64, &bytes, false)?;
            file.model.resize(file.model.len().max(at + len), 0);
            file.model[at..at + len].copy_from_slice(&bytes);
        }
        6 => {
            let file = &mut files[which];
            let how = Allocate::PunchHole;
            mount.allocate(file.handle(), how, 1000, 70_000, false)?;
            let end = file.model.len();
            file.model[1000.min(end)..71_000.min(end)].fill(0);
        }
        7 => {
            files[which].may_be();
            mount.flush(files[which].handle())?;
        }
        8 | 9 => {
            files[which].may_be();
            mount.sync(files[which].handle())?;
            files[which].must_be();
        }
        10 => {
            files[which].may_be();
            let handle = files[which].handle.take().unwrap();
            let ino = handle.ino();
            mount.release(handle)?;
            files[which].handle = Some(mount.open_file(ino, BOTH)?);
        }
        11 | 12 => maintain(machine, files, random.chance(70))?,
        _ => {
            let other = (which + 1) % FILES;
            files[which].may_be();
            files[other].may_be();
            let bytes = files[other].model.clone();
            let mut copied = files[which].model.clone();
            copied.resize(copied.len().max(500 + bytes.len()), 0);
            copied[500..500 + bytes.len()].copy_from_slice(&bytes);
            if !bytes.is_empty() {
                let before = std::mem::replace(&mut files[which].model, copied);
                files[which].may_be();
                let len = bytes.len() as u64;
                let done = mount.copy_range(files[other].handle(), 0, files[which].handle(), 500, len, false);
                if done.is_err() {
                    files[which].model = before;
                }
                assert_eq!(done?, len);
            }
        }
    }
    Ok(())
}

fn life(disk: &SimDisk, seed: u64) -> SimDisk {
    let random = SimRandom::new(seed);
    let machine = open(disk, seed);
    let make = |which| {
        let (_, handle) = machine.mount.create(machine.mount.root(), &plain(which), &NewFile::default(), BOTH).unwrap();
        let model = machine.mount.read(&handle, 0, 64 << 20).unwrap().to_vec();
        File { ino: handle.ino(), handle: Some(handle), versions: vec![model.clone()], model }
    };
    let mut files: Vec<File> = (0..FILES).map(make).collect();
    machine.engine.wait_durable(machine.engine.last_cursor()).unwrap();
    disk.fail_after(1 + random.below(120));
    for number in 0..200 {
        if step(&machine, &mut files, &random, number).is_err() {
            break;
        }
    }
    let after = disk.crash(seed);
    disk.fail_after(0);
    drop(disk.sync_dir(Path::new("/")));
    let versions: Vec<Vec<Vec<u8>>> = files.into_iter().map(|file| file.versions).collect();
    drop(machine);
    let machine = open(&after, seed);
    let report = machine.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "seed {seed}: {report:#?}");
    for (which, versions) in versions.into_iter().enumerate() {
        let reader = wait(machine.volume.get_object("b", &format!("f{which}"), &ReadCondition::default())).unwrap();
        let found = read_all(&reader);
        let known = versions.contains(&found);
        assert!(known, "seed {seed}: {} bytes of f{which} were never published so", found.len());
    }
    machine.engine.checkpoint().unwrap();
    drop(machine);
    after
}

#[test]
fn a_crash_leaves_published_versions() {
    for seed in 0..60 {
        let mut disk = SimDisk::new(seed);
        for again in 0..3 {
            disk = life(&disk, seed * 3 + again);
        }
    }
    MAINTAINED.told("open files on a machine that loses its power");
}

/// After a full disk has room again: the open file `f0` can be synced, S3 shows all of it, and all fits together.
fn publishes_all(machine: &Machine, handle: Handle, model: &[u8]) {
    // The store asks the disk again after a while.
    std::thread::sleep(Duration::from_millis(300));
    machine.mount.sync(&handle).unwrap();
    machine.mount.release(handle).unwrap();
    let reader = wait(machine.volume.get_object("b", "f0", &ReadCondition::default())).unwrap();
    assert!(read_all(&reader) == model);
    let report = machine.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

#[test]
fn a_full_disk_stops_writes_and_nothing_else() {
    let disk = SimDisk::new(1);
    let machine = open(&disk, 1);
    let mount = &machine.mount;
    let (_, handle) = mount.create(mount.root(), &plain(0), &NewFile::default(), BOTH).unwrap();
    let first = body_of(1, 400_000);
    mount.write(&handle, 0, &first, false).unwrap();
    mount.sync(&handle).unwrap();
    let space = disk.space(Path::new("/")).unwrap();
    disk.set_capacity(space.total_bytes - space.free_bytes + (1 << 20));
    let mut model = first.clone();
    let mut refused = false;
    for number in 0..60 {
        let bytes = body_of(number, 100_000);
        match mount.write(&handle, model.len() as u64, &bytes, false) {
            Ok(_) => model.extend_from_slice(&bytes),
            Err(PosixError::Failed(Error::Full)) => refused = true,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused);
    assert!(mount.read(&handle, 0, 64 << 20).unwrap() == model, "what was taken can be read");
    let published = mount.flush(&handle);
    assert!(matches!(published, Ok(()) | Err(PosixError::Failed(Error::Full))), "{published:?}");
    disk.set_capacity(space.total_bytes);
    publishes_all(&machine, handle, &model);
}

#[test]
fn what_was_taken_outlives_a_disk_that_fills_up() {
    let disk = SimDisk::new(2);
    let machine = open(&disk, 2);
    let mount = &machine.mount;
    let (_, handle) = mount.create(mount.root(), &plain(0), &NewFile::default(), BOTH).unwrap();
    let mut model = body_of(1, 300_000);
    mount.write(&handle, 0, &model, false).unwrap();
    // More than may wait in memory: this begins a stream.
    let more = body_of(2, 300_000);
    mount.write(&handle, model.len() as u64, &more, false).unwrap();
    model.extend_from_slice(&more);
    let space = disk.space(Path::new("/")).unwrap();
    let last = body_of(3, 400_000);
    let fill = || disk.set_capacity(space.total_bytes - space.free_bytes);
    mount.write_taken(&handle, model.len() as u64, &last, WriteFlags::default(), fill).unwrap();
    model.extend_from_slice(&last);
    assert!(mount.read(&handle, 0, 64 << 20).unwrap() == model, "what was taken can be read");
    let synced = mount.sync(&handle);
    assert!(matches!(synced, Err(PosixError::Failed(Error::Full))), "{synced:?}");
    assert!(mount.read(&handle, 0, 64 << 20).unwrap() == model, "also after a sync that failed");
    disk.set_capacity(space.total_bytes);
    publishes_all(&machine, handle, &model);
}
