//! Pruning keeps every moment that is left whole, wherever it stops, and never touches what it does not know.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]
#![allow(clippy::disallowed_methods, reason = "the test lays out copies of backups itself")]

mod world;

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_env::{DirEntry, Disk, Env, File, LockHandle, OpenMode, Space};
use margay_volume::*;
use world::backups::*;
use world::*;

/// Fails every change after so many.
#[derive(Debug)]
struct StoppingDisk {
    disk: Arc<dyn Disk>,
    left: AtomicU64,
}

impl StoppingDisk {
    fn change<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let counted = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        counted.map_err(|_| io::Error::other("the machine has stopped"))?;
        change()
    }
}

impl Disk for StoppingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, mode)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(|| self.disk.create_dir_all(path))
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|| self.disk.remove(path))
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|| self.disk.remove_dir(path))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| self.disk.rename(from, to))
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|| self.disk.sync_dir(path))
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        self.disk.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }
}

fn keep(moments: usize) -> NonZeroUsize {
    NonZeroUsize::new(moments).unwrap()
}

fn key(round: usize, index: usize) -> String {
    format!("r{round}/{index}")
}

const ROUNDS: usize = 3;
const OBJECTS: usize = 6;

/// Some in logs, some in segments of their own.
fn content(round: usize, index: usize) -> Vec<u8> {
    body_of(round * OBJECTS + index, [40_000, 90_000][index % 2])
}

/// A backup of as many moments as there are rounds, each with the objects of its own round alone.
fn three_rounds(world: &World, backup_folder: &Path) {
    wait(world.volume.create_bucket("b")).unwrap();
    for round in 0..ROUNDS {
        for index in 0..OBJECTS {
            world.put("b", &key(round, index), &content(round, index)).unwrap();
            if round > 0 {
                assert!(world.delete("b", &key(round - 1, index)).unwrap());
            }
        }
        backup(world, backup_folder);
    }
}

fn restores(backup: &Path, moment: &str, round: usize) {
    let to = tempfile::tempdir().unwrap();
    let volume = restore(backup, moment, to.path());
    let objects = all_objects(&volume, "b", (0..OBJECTS).map(|index| key(round, index)));
    assert_eq!(objects.len(), OBJECTS, "round {round}");
    for (index, bytes) in objects.values().enumerate() {
        assert!(*bytes == content(round, index));
    }
    assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
}

/// Every file below a folder, but locks.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().unwrap() != "lock" {
                found.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn copy_of(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in files(folder) {
        let to = copy.path().join(&file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(folder.join(&file), to).unwrap();
    }
    copy
}

#[test]
fn old_moments_go_with_what_only_they_name() {
    let world = World::new(EMBEDDED);
    let folder = tempfile::tempdir().unwrap();
    three_rounds(&world, folder.path());
    let env = Env::real();
    let all = moments(&env, folder.path()).unwrap();
    assert_eq!(all.len(), ROUNDS);
    let before = files(folder.path());
    assert_eq!(prune(&env, folder.path(), keep(ROUNDS), false).unwrap().segments, 0);
    let dry = prune(&env, folder.path(), keep(1), true).unwrap();
    assert_eq!(files(folder.path()), before, "a dry run changes nothing");
    assert_eq!((dry.moments.as_slice(), dry.kept), (&all[..ROUNDS - 1], 1));
    // Moments from before there were lists are read by their rows, and say the same.
    let old = copy_of(folder.path());
    for moment in &all {
        fs::remove_file(old.path().join("moments").join(moment).join("segments")).unwrap();
    }
    assert_eq!(prune(&env, old.path(), keep(1), false).unwrap(), dry);
    assert_eq!(prune(&env, folder.path(), keep(1), false).unwrap(), dry);
    assert!(dry.segments >= 6 && dry.bytes >= 90_000 * OBJECTS as u64, "{dry:?}");
    assert_eq!(moments(&env, folder.path()).unwrap(), all[ROUNDS - 1..]);
    for backup in [folder.path(), old.path()] {
        restores(backup, &all[ROUNDS - 1], ROUNDS - 1);
    }
    // And the next backup finds what it needs.
    backup(&world, folder.path());
    restores(folder.path(), moments(&env, folder.path()).unwrap().last().unwrap(), ROUNDS - 1);
}

#[test]
fn wherever_a_pruning_stops_every_moment_is_whole() {
    let world = World::new(EMBEDDED);
    let folder = tempfile::tempdir().unwrap();
    three_rounds(&world, folder.path());
    let env = Env::real();
    let all = moments(&env, folder.path()).unwrap();
    let whole = copy_of(folder.path());
    prune(&env, whole.path(), keep(1), false).unwrap();
    let mut stopped = 0;
    loop {
        let copy = copy_of(folder.path());
        let disk = StoppingDisk { disk: Arc::clone(&env.disk), left: AtomicU64::new(stopped) };
        let stopping = Env { disk: Arc::new(disk), ..Env::real() };
        let done = prune(&stopping, copy.path(), keep(1), false).is_ok();
        for moment in moments(&env, copy.path()).unwrap() {
            restores(copy.path(), &moment, all.iter().position(|known| *known == moment).unwrap());
        }
        prune(&env, copy.path(), keep(1), false).unwrap();
        assert_eq!(files(copy.path()), files(whole.path()), "stopped after {stopped} changes");
        if done {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 6, "{stopped} changes are too few to be a pruning");
}

#[test]
fn a_backup_in_use_or_of_another_directory_is_left_alone() {
    let world = World::new(EMBEDDED);
    let folder = tempfile::tempdir().unwrap();
    three_rounds(&world, folder.path());
    let env = Env::real();
    let go_on = |_| std::ops::ControlFlow::Continue(());
    {
        let _held = env.disk.lock(&folder.path().join("lock")).unwrap();
        assert!(matches!(world.volume.backup(&Env::real(), folder.path(), go_on), Err(BackupError::InUse)));
        assert!(matches!(prune(&env, folder.path(), keep(1), false), Err(BackupError::InUse)));
    }
    let other = World::new(EMBEDDED);
    wait(other.volume.create_bucket("b")).unwrap();
    for index in 0..OBJECTS {
        other.put("b", &key(0, index), &body_of(100 + index, 40_000)).unwrap();
    }
    let before = files(folder.path());
    let refused = other.volume.backup(&Env::real(), folder.path(), go_on);
    assert!(matches!(refused, Err(BackupError::OfAnother { .. })), "{refused:?}");
    let whole: Vec<PathBuf> =
        files(folder.path()).into_iter().filter(|file| !file.to_str().unwrap().contains(".unfinished")).collect();
    assert_eq!(whole, before);
    for (round, moment) in moments(&env, folder.path()).unwrap().iter().enumerate() {
        restores(folder.path(), moment, round);
    }
}

#[test]
fn nothing_goes_when_a_remaining_moment_cannot_be_read() {
    let world = World::new(EMBEDDED);
    let folder = tempfile::tempdir().unwrap();
    three_rounds(&world, folder.path());
    let env = Env::real();
    let all = moments(&env, folder.path()).unwrap();
    let list = folder.path().join("moments").join(&all[ROUNDS - 1]).join("segments");
    let mut bytes = fs::read(&list).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&list, bytes).unwrap();
    let before = files(folder.path());
    let refused = prune(&env, folder.path(), keep(1), false);
    assert!(
        matches!(&refused, Err(BackupError::Unreadable { moment, .. }) if *moment == all[ROUNDS - 1]),
        "{refused:?}"
    );
    assert_eq!(files(folder.path()), before);
}
