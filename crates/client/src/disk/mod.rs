//! Files in a bucket: the part of the disk port that backups need.
//!
//! Why:        code for backups in a directory works on a bucket unchanged.
//! Layout:     a file is a sequence of objects `FILE/<offset>-<length>` (`pieces`), a directory has a marker object
//!             `DIR/.directory`; docs/format/backup.md. `file` reads and writes, `lock` excludes other writers.
//! Invariants: K1 a piece never changes: files are only appended to, and removed as a whole.
//!             K2 a directory exists while its marker does, so a renamed directory appears at once, complete.
//!             K3 leftovers of interrupted work (pieces without a directory or after a gap) are never visible; the next
//!                holder of the lock removes them.  K4 without the lock nothing is changed.
//! Durability: a PUT is durable once answered; `sync_dir` does nothing.  Other uses of files are `Unsupported`.

mod file;
mod lock;
mod pieces;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use margay_env::{Clock, DirEntry, Disk, Env, File, LockHandle, OpenMode, Random, Space};
use parking_lot::Mutex;

use self::file::BucketFile;
use self::lock::Lease;
use self::pieces::{Chain, Piece};
use crate::bucket::Bucket;
use crate::condition::Condition;
use crate::error::ClientError;

/// Maximum size of a piece, in bytes.
pub const PIECE_BYTES: usize = 16 << 20;
/// Name of the marker object of a directory.
const MARKER: &str = ".directory";

/// Times of the lock.
#[derive(Clone, Copy, Debug)]
pub struct LockTimes {
    /// Interval between renewals.
    pub renewal: Duration,
    /// A holder that could not renew the lock for this long has lost it.
    pub lease: Duration,
    /// Others take over a lock that was not renewed for this long; far more than the lease, because requests may be in
    /// flight.
    pub takeover: Duration,
}

impl Default for LockTimes {
    fn default() -> LockTimes {
        LockTimes {
            renewal: Duration::from_secs(15),
            lease: Duration::from_secs(60),
            takeover: Duration::from_secs(180),
        }
    }
}

/// The objects of a bucket below a prefix, as files.
#[derive(Clone, Debug)]
pub struct BucketDisk(Arc<Root>);

#[derive(Debug)]
struct Root {
    bucket: Bucket,
    /// Empty, or ends with `/`.
    prefix: String,
    piece_bytes: usize,
    times: LockTimes,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// The lease of the lock that this disk holds.
    lease: Mutex<Option<Arc<Lease>>>,
}

impl BucketDisk {
    pub fn new(env: &Env, bucket: Bucket, prefix: &str) -> BucketDisk {
        BucketDisk::with(env, bucket, prefix, PIECE_BYTES, LockTimes::default())
    }

    /// With other sizes and times, for tests.
    pub fn with(env: &Env, bucket: Bucket, prefix: &str, piece_bytes: usize, times: LockTimes) -> BucketDisk {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (clock, random) = (Arc::clone(&env.clock), Arc::clone(&env.random));
        BucketDisk(Arc::new(Root { bucket, prefix, piece_bytes, times, clock, random, lease: Mutex::default() }))
    }

    pub fn bucket(&self) -> &Bucket {
        &self.0.bucket
    }

    /// The key of the object at this path, or the prefix of its pieces' keys.
    pub fn key(&self, path: &Path) -> io::Result<String> {
        self.0.key(path)
    }
}

impl Root {
    fn key(&self, path: &Path) -> io::Result<String> {
        let mut key = self.prefix.trim_end_matches('/').to_owned();
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => {
                    let name = name.to_str().ok_or_else(|| io::Error::other("a name that is not UTF-8"))?;
                    if !key.is_empty() {
                        key.push('/');
                    }
                    key.push_str(name);
                }
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        Ok(key)
    }

    fn done<T>(&self, outcome: Result<T, ClientError>) -> io::Result<T> {
        outcome.map_err(|error| self.bucket.io_error(&error))
    }

    /// Checked before every change.
    fn may_change(&self) -> io::Result<()> {
        match &*self.lease.lock() {
            Some(lease) if !lease.is_held() => Err(io::Error::other(
                "the lock of the backup could not be renewed in time, another may have taken it; try again",
            )),
            _ => Ok(()),
        }
    }

    fn put(&self, key: &str, body: Bytes) -> io::Result<()> {
        self.may_change()?;
        self.done(self.bucket.put(key, body, Condition::Always)).map(drop)
    }

    fn delete(&self, keys: &[String]) -> io::Result<()> {
        self.may_change()?;
        self.done(self.bucket.delete_all(keys))
    }

    fn is_dir(&self, key: &str) -> io::Result<bool> {
        self.done(self.bucket.exists(&format!("{key}/{MARKER}")))
    }

    fn chain(&self, key: &str) -> io::Result<Chain> {
        let begin = format!("{key}/");
        let listed = self.done(self.bucket.list(&begin))?;
        let pieces = listed.iter().filter_map(|entry| Piece::of(entry.key.strip_prefix(&begin)?, entry.size));
        Ok(Chain::of(pieces.collect()))
    }

    fn remove_file(&self, key: &str) -> io::Result<bool> {
        let chain = self.chain(key)?;
        let there = chain.is_there();
        let keys: Vec<String> = chain.pieces.iter().chain(&chain.stray).map(|piece| piece.key(key)).collect();
        self.delete(&keys)?;
        Ok(there)
    }

    /// All objects below a path, by the rest of their keys.
    fn below(&self, key: &str) -> io::Result<Vec<(String, u64)>> {
        let begin = if key.is_empty() { String::new() } else { format!("{key}/") };
        let listed = self.done(self.bucket.list(&begin))?;
        Ok(listed.into_iter().map(|entry| (entry.key[begin.len()..].to_owned(), entry.size)).collect())
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        if self.is_dir(to)? {
            // Left by a rename that was interrupted before the old name was removed.
            self.delete(&[format!("{to}/{MARKER}")])?;
            let old: Vec<String> = self.below(to)?.into_iter().map(|(name, _)| format!("{to}/{name}")).collect();
            self.delete(&old)?;
        }
        let names: Vec<String> = self.below(from)?.into_iter().map(|(name, _)| name).collect();
        let (marker, content): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name == MARKER);
        for name in &content {
            self.may_change()?;
            self.done(self.bucket.copy(&format!("{from}/{name}"), &format!("{to}/{name}")))?;
        }
        self.put(&format!("{to}/{MARKER}"), Bytes::new())?;
        // From here on the new directory exists; the marker of the old one is removed before its files.
        for names in [marker, content] {
            let keys: Vec<String> = names.iter().map(|name| format!("{from}/{name}")).collect();
            self.delete(&keys)?;
        }
        Ok(())
    }

    /// Removes leftovers of interrupted work: pieces in directories without a marker, pieces after a gap.
    fn sweep(&self) -> io::Result<()> {
        let all = self.below(self.prefix.trim_end_matches('/'))?;
        let end = format!("/{MARKER}");
        let dirs: BTreeSet<&str> = all.iter().filter_map(|(key, _)| key.strip_suffix(&end)).collect();
        let mut files: BTreeMap<&str, Vec<Piece>> = BTreeMap::new();
        for (key, size) in &all {
            let Some((file, name)) = key.rsplit_once('/') else { continue };
            if let Some(piece) = Piece::of(name, *size) {
                files.entry(file).or_default().push(piece);
            }
        }
        let mut strays = Vec::new();
        for (file, pieces) in files {
            let in_dir = file.rsplit_once('/').is_none_or(|(dir, _)| dirs.contains(dir));
            let stray = if in_dir { Chain::of(pieces).stray } else { pieces };
            strays.extend(stray.iter().map(|piece| format!("{}{}", self.prefix, piece.key(file))));
        }
        if !strays.is_empty() {
            tracing::info!(objects = strays.len(), "what a broken backup left in the bucket is removed");
        }
        self.delete(&strays)
    }
}

fn unsupported<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("files in a bucket cannot {what}")))
}

impl Disk for BucketDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let key = self.0.key(path)?;
        let chain = self.0.chain(&key)?;
        match (mode, chain.is_there()) {
            (OpenMode::Read | OpenMode::ReadRegular | OpenMode::ReadWrite, false) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            (OpenMode::CreateNew, true) => return Err(io::ErrorKind::AlreadyExists.into()),
            _ => {}
        }
        if mode != OpenMode::Read && !chain.stray.is_empty() {
            let keys: Vec<String> = chain.stray.iter().map(|piece| piece.key(&key)).collect();
            self.0.delete(&keys)?;
        }
        Ok(Arc::new(BucketFile::new(Arc::clone(&self.0), key, chain, mode != OpenMode::Read)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        for dir in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            let key = self.0.key(dir)?;
            if key != self.0.prefix.trim_end_matches('/') && !self.0.is_dir(&key)? {
                self.0.put(&format!("{key}/{MARKER}"), Bytes::new())?;
            }
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let key = self.0.key(path)?;
        Ok(self.0.is_dir(&key)? || self.0.chain(&key)?.is_there())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let there = self.0.remove_file(&self.0.key(path)?)?;
        if there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let key = self.0.key(path)?;
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.0.delete(&[format!("{key}/{MARKER}")])
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.0.key(from)?, self.0.key(to)?);
        if !self.0.is_dir(&from)? {
            return unsupported("be renamed");
        }
        self.0.rename_dir(&from, &to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let key = self.0.key(path)?;
        if !self.0.is_dir(&key)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut dirs = BTreeSet::new();
        let mut files: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
        for (name, size) in self.0.below(&key)? {
            match name.split_once('/') {
                Some((dir, MARKER)) => drop(dirs.insert(dir.to_owned())),
                Some((file, piece)) => {
                    if let Some(piece) = Piece::of(piece, size) {
                        files.entry(file.to_owned()).or_default().push(piece);
                    }
                }
                None => {}
            }
        }
        let dirs = dirs.into_iter().map(|name| DirEntry { name, is_dir: true, len: 0, used_bytes: 0 });
        let files = files.into_iter().map(|(name, pieces)| (name, Chain::of(pieces)));
        let files = files.filter(|(_, chain)| chain.is_there());
        let entry = |(name, chain): (String, Chain)| DirEntry {
            name,
            is_dir: false,
            len: chain.len(),
            used_bytes: chain.len(),
        };
        Ok(dirs.chain(files.map(entry)).collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        let lock = lock::take(&self.0, &self.0.key(path)?)?;
        self.0.sweep()?;
        Ok(Box::new(lock))
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        unsupported("tell how much space there is")
    }
}
