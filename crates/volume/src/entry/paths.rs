//! Walks from a key to the directory that holds its entry.
//!
//! Why:        a key is resolved directory by directory, each one row. Paths are cached: a change may trust a cached
//!             path, because its commit asserts every step; a read prefetches its rows and compares their versions.
//! Invariants: P1 a commit that used a path asserts the bucket's row and each step's row, so a stale path can only
//!                conflict; a read that used one has read each of those rows.
//!             P2 a path that led to a conflict, or to no commit, is dropped before the retry.
//! Not here:   what happens at the end of the path (the operations).

use std::sync::Arc;

use margay_meta::Cursor;
use margay_rows::record::{DirectoryEntry, DirectoryRecord, Entry};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::cache::{Path, PathCache, Step};
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;

/// Paths with more steps are not cached.
const STEPS_KEPT_MAX: usize = 32;

/// A path, and the remaining directories, which do not exist.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) path: Arc<Path>,
    pub(crate) missing: &'a str,
    /// From the cache: only a commit can confirm it.
    remembered: bool,
}

impl Walk<'_> {
    pub(crate) fn complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Asserts that the first missing directory is still missing.
    pub(crate) fn assert_missing(&self, draft: &mut Draft) {
        if let Some(name) = self.missing.split_inclusive('/').next() {
            draft.assert_absent(key::entry(self.path.directory(), name.as_bytes()));
        }
    }
}

impl Volume {
    /// Walks the directories as far as they exist.
    pub(crate) fn walk<'a>(&self, bucket: &str, directories: &'a str, seen: &mut Seen) -> Result<Walk<'a>, Error> {
        let name = PathCache::name(bucket, directories);
        let kept = self.paths.get(&name);
        if let Some(path) = &kept
            && seen.is_ahead()
            && self.leads_on(path, seen)?
        {
            return Ok(Walk { path: Arc::clone(path), missing: "", remembered: false });
        }
        let walk = self.walk_anew(bucket, directories, seen)?;
        if walk.complete() && walk.path.steps.len() <= STEPS_KEPT_MAX {
            self.paths.keep(name, Arc::clone(&walk.path));
        }
        self.keep_root(bucket, &walk.path);
        Ok(walk)
    }

    /// The path without steps tells the root to requests whose own path is not cached (ahead).
    fn keep_root(&self, bucket: &str, path: &Path) {
        let name = PathCache::name(bucket, "");
        if self.paths.get(&name).is_none_or(|kept| kept.bucket.version != path.bucket.version) {
            self.paths.keep(name, Arc::new(Path { bucket: Arc::clone(&path.bucket), steps: Vec::new() }));
        }
    }

    /// Reads the rows of a cached path; true when it is still valid.
    fn leads_on(&self, path: &Path, seen: &mut Seen) -> Result<bool, Error> {
        let steps = path.steps.iter().map(|step| (&step.key, step.version));
        for (key, version) in std::iter::once((&path.bucket.row_key, path.bucket.version)).chain(steps) {
            if self.get(key, seen)?.is_none_or(|row| row.version != version) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn walk_anew<'a>(&self, bucket: &str, directories: &'a str, seen: &mut Seen) -> Result<Walk<'a>, Error> {
        let (row, version) = self.bucket_row(bucket, seen)?;
        let mut path = Path { bucket: self.state_under(bucket, &row, version, seen)?, steps: Vec::new() };
        let mut missing = directories;
        for name in directories.split_inclusive('/') {
            let key = key::entry(path.directory(), name.as_bytes());
            let Some(row) = self.get(&key, seen)? else { break };
            match Entry::decode(&row.value)? {
                Entry::Directory(entry) => path.steps.push(Step { key, version: row.version, entry }),
                Entry::File(_) | Entry::Link(_) => {
                    return Err(Error::Corrupt("a file has the name of a directory".to_owned()));
                }
            }
            missing = &missing[name.len()..];
        }
        Ok(Walk { path: Arc::new(path), missing, remembered: false })
    }

    /// Runs a change at the end of a path until it commits or is refused definitively. An answer without a commit is
    /// not accepted from a cached path: the path is walked again.
    pub(crate) async fn change<T>(
        &self,
        bucket: &str,
        key: (&str, &str),
        attempt: impl FnMut(&Walk<'_>, &mut Seen) -> Result<Decided<T>, Refused>,
    ) -> Result<(T, Cursor), Error> {
        self.change_from(Seen::default(), bucket, key, attempt).await
    }

    /// As `change`; the first attempt uses these rows.
    pub(crate) async fn change_from<T>(
        &self,
        rows: Seen,
        bucket: &str,
        (directories, name): (&str, &str),
        mut attempt: impl FnMut(&Walk<'_>, &mut Seen) -> Result<Decided<T>, Refused>,
    ) -> Result<(T, Cursor), Error> {
        let (mut handed_over, mut anew) = (false, false);
        self.decide(rows, |seen| {
            if std::mem::take(&mut handed_over) {
                // It led to a conflict (P2).
                self.paths.forget(bucket, directories);
            }
            let _turn = self.turn_at_key(bucket, directories, name);
            let kept = self.paths.get(&PathCache::name(bucket, directories));
            let walk = match kept.filter(|_| !anew && !seen.is_ahead()) {
                Some(path) => Walk { path, missing: "", remembered: true },
                None => {
                    // Also when it runs again with more rows: the path that it has cached meanwhile is no older.
                    anew = true;
                    self.walk(bucket, directories, seen)?
                }
            };
            match attempt(&walk, seen) {
                Err(Refused::Error(Error::Unread)) => Err(Error::Unread.into()),
                Ok(Decided::Nothing(_)) | Err(Refused::Error(_)) if walk.remembered => {
                    anew = true;
                    self.paths.forget(bucket, directories);
                    Err(Refused::Conflict)
                }
                Err(Refused::Conflict) => {
                    anew = false;
                    self.paths.forget(bucket, directories);
                    Err(Refused::Conflict)
                }
                decided => {
                    handed_over = matches!(decided, Ok(Decided::Commit(..)));
                    decided
                }
            }
        })
        .await
    }

    /// Creates the missing directories of a walk and returns the last one.
    pub(crate) fn make_directories(&self, walk: &Walk<'_>, draft: &mut Draft) -> Result<Ino, Error> {
        let mut parent = walk.path.directory();
        for (depth, name) in walk.missing.split_inclusive('/').enumerate() {
            let key = key::entry(parent, name.as_bytes());
            let entry = DirectoryEntry::implicit(self.new_ino()?);
            if depth == 0 {
                draft.assert_absent(key.clone());
                draft.max(key::times(parent), self.now().0.max(0) as u64);
            }
            let record = DirectoryRecord { parent, sort_name: name.to_owned() };
            draft.add(key::subdirectories(parent), 1);
            draft.put(key, entry.encode());
            draft.put(key::directory(entry.ino), record.encode());
            parent = entry.ino;
        }
        Ok(parent)
    }
}
