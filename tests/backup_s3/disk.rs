//! Files in a bucket beside files on a disk: the same calls, the same outcomes; and what only buckets have.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use margay_client::bucket::Bucket;
use margay_client::disk::{BucketDisk, LockTimes};
use margay_client::{Condition, Credentials, Target};
use margay_env::{Disk, Env, OpenMode};

use crate::{ACCESS_KEY, SECRET_KEY, Server};

/// Steps of one run of random calls.
const STEPS: usize = 400;
const PIECE_BYTES: usize = 1000;
/// Nobody is taken for dead, however busy the machine is.
const TIMES: LockTimes = LockTimes {
    renewal: Duration::from_millis(300),
    lease: Duration::from_secs(600),
    takeover: Duration::from_secs(1200),
};
/// Whoever was not heard of for a second is dead.
const HASTY: LockTimes = LockTimes { takeover: Duration::from_secs(1), ..TIMES };

pub(crate) fn target(server: &Server) -> Arc<Target> {
    let address = server.endpoint.trim_start_matches("http://").parse().unwrap();
    let credentials = Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
    Arc::new(Target::plain(address, credentials.into()))
}

fn bucket(server: &Server) -> Bucket {
    Bucket::new(target(server), "copies").unwrap()
}

fn disk(server: &Server, prefix: &str) -> BucketDisk {
    disk_with(server, prefix, TIMES)
}

fn disk_with(server: &Server, prefix: &str, times: LockTimes) -> BucketDisk {
    BucketDisk::with(&Env::real(), bucket(server), prefix, PIECE_BYTES, times)
}

pub(crate) struct Store {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new() -> Store {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("store"));
        server.client(&["mb", "s3://copies"]);
        Store { server, folder }
    }
}

/// Small numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What a directory holds: names, lengths, what is a directory.
fn listed(disk: &dyn Disk, path: &Path) -> Result<BTreeSet<(String, bool, u64)>, ErrorKind> {
    let entries = disk.list(path).map_err(|error| error.kind())?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.is_dir, entry.len)).collect())
}

fn content(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, ErrorKind> {
    let file = disk.open(path, OpenMode::Read).map_err(|error| error.kind())?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Ok(bytes)
}

/// One random call; gives what it did, in words that are equal on every disk.
fn step(disk: &dyn Disk, root: &Path, chance: &mut Chance) -> String {
    let dir = root.join(["one", "two", "three"][chance.below(3) as usize]);
    let path = dir.join(["f", "g", "f.x"][chance.below(3) as usize]);
    let kind = |error: std::io::Error| error.kind();
    match chance.below(9) {
        0 => format!("{:?}", disk.create_dir_all(&dir).map_err(kind)),
        1..=3 => {
            // Files of directories that are not there are of no use to anybody, and a disk refuses them.
            if !disk.exists(&dir).unwrap() {
                return "no directory".to_owned();
            }
            let mode = if chance.below(4) == 0 { OpenMode::CreateNew } else { OpenMode::OpenOrCreate };
            let file = match disk.open(&path, mode) {
                Ok(file) => file,
                Err(error) => return format!("{:?}", error.kind()),
            };
            let begin = file.len().unwrap();
            let count = chance.below(3);
            let mut at = begin;
            for _ in 0..count {
                let bytes: Vec<u8> = (0..chance.below(1700)).map(|index| (index * 31 + at) as u8).collect();
                file.write_all_at(&bytes, at).unwrap();
                at += bytes.len() as u64;
            }
            let mut seen = vec![0; at as usize];
            file.read_exact_at(&mut seen, 0).unwrap();
            file.sync_data().unwrap();
            format!("{begin} {at} {:?}", crc(&seen))
        }
        4 => format!("{:?}", content(disk, &path).map(|bytes| crc(&bytes))),
        5 => {
            let Ok(file) = disk.open(&path, OpenMode::Read) else { return "none".to_owned() };
            let (offset, mut buffer) = (chance.below(3000), vec![0; chance.below(2500) as usize]);
            let counts: Vec<usize> = (0..2).map(|_| file.read_at(&mut buffer, offset).unwrap()).collect();
            format!("{counts:?} {:?}", crc(&buffer[..counts[1]]))
        }
        6 => format!("{:?}", disk.remove(&path).map_err(kind)),
        7 => format!("{:?} {:?}", listed(disk, &dir), disk.exists(&path).unwrap()),
        _ => {
            let to = root.join(["one", "two", "three"][chance.below(3) as usize]);
            if dir == to || !disk.exists(&dir).unwrap() || disk.exists(&to).unwrap() {
                return "not renamed".to_owned();
            }
            format!("{:?}", disk.rename(&dir, &to).map_err(kind))
        }
    }
}

fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(17, |sum: u64, byte| sum.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte))
}

#[test]
fn random_calls_do_in_a_bucket_what_they_do_on_a_disk() {
    let store = Store::new();
    for seed in 1..=2 {
        let root = store.folder.path().join(format!("files-{seed}"));
        let (real, copy) = (Env::real().disk, disk(&store.server, &format!("p/{seed}")));
        real.create_dir_all(&root).unwrap();
        let (mut one, mut other) = (Chance(seed), Chance(seed));
        for number in 0..STEPS {
            let did = step(&*real, &root, &mut one);
            assert_eq!(did, step(&copy, Path::new(""), &mut other), "seed {seed}, step {number}");
        }
        for dir in ["one", "two", "three"] {
            assert_eq!(listed(&*real, &root.join(dir)), listed(&copy, Path::new(dir)), "seed {seed}, {dir}");
        }
    }
}

#[test]
fn what_was_written_is_never_written_again() {
    let store = Store::new();
    let disk = disk(&store.server, "");
    disk.create_dir_all(Path::new("d")).unwrap();
    let file = disk.open(Path::new("d/f"), OpenMode::CreateNew).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    for offset in [0, 50, 101] {
        assert_eq!(file.write_all_at(&[2; 10], offset).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    // Nobody sees it before it is synced.
    assert!(!disk.exists(Path::new("d/f")).unwrap());
    file.sync_data().unwrap();
    assert_eq!(content(&disk, Path::new("d/f")).unwrap(), [1; 100]);
    let reader = disk.open(Path::new("d/f"), OpenMode::Read).unwrap();
    assert_eq!(reader.write_all_at(&[2], 100).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_lock_is_one_holder_s_until_it_is_too_old() {
    let store = Store::new();
    let lock = Path::new("lock");
    let (one, other) = (disk(&store.server, "p"), disk(&store.server, "p"));
    let held = one.lock(lock).unwrap();
    assert_eq!(other.lock(lock).unwrap_err().kind(), ErrorKind::WouldBlock);
    let bucket = bucket(&store.server);
    let written = || bucket.get("p/lock").unwrap().headers["last-modified"].clone();
    let first = written();
    while written() == first {
        std::thread::sleep(TIMES.renewal);
    }
    drop(held);
    drop(other.lock(lock).unwrap());
    // One that nobody renews.
    bucket.put("p/lock", Bytes::from_static(b"of a dead one"), Condition::Absent).unwrap();
    assert_eq!(one.lock(lock).unwrap_err().kind(), ErrorKind::WouldBlock);
    let hasty = disk_with(&store.server, "p", HASTY);
    while let Err(error) = hasty.lock(lock) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        std::thread::sleep(TIMES.renewal);
    }
    let held = one.lock(lock).unwrap();
    // Another takes it, as it may not: the holder sees it and changes nothing any more.
    one.create_dir_all(Path::new("d")).unwrap();
    bucket.put("p/lock", Bytes::from_static(b"of another"), Condition::Always).unwrap();
    let refused = (0..200).find_map(|_| {
        std::thread::sleep(TIMES.renewal);
        one.create_dir_all(Path::new("d")).unwrap();
        let file = one.open(Path::new("d/f"), OpenMode::OpenOrCreate).unwrap();
        file.write_all_at(b"x", file.len().unwrap()).unwrap();
        file.sync_data().err()
    });
    assert!(refused.unwrap().to_string().contains("lock"));
    drop(held);
    assert_eq!(bucket.get("p/lock").unwrap().body, &b"of another"[..], "it was not the holder's any more");
}

#[test]
fn who_takes_the_lock_removes_what_broken_works_left() {
    let store = Store::new();
    let (disk, bucket) = (disk(&store.server, "p"), bucket(&store.server));
    disk.create_dir_all(Path::new("d")).unwrap();
    for key in ["p/d/f/0000000000000000-1", "p/d/f/0000000000000005-1", "p/e/f/0000000000000000-1", "p/d/note", "other"]
    {
        bucket.put(key, Bytes::from_static(b"x"), Condition::Absent).unwrap();
    }
    assert!(!disk.exists(Path::new("e")).unwrap());
    assert_eq!(listed(&disk, Path::new("d")).unwrap(), BTreeSet::from([("f".to_owned(), false, 1)]));
    drop(disk.lock(Path::new("lock")).unwrap());
    let left: Vec<String> = bucket.list("").unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, ["other", "p/d/.directory", "p/d/f/0000000000000000-1", "p/d/note"]);
}
