//! DeleteObjects: deletes many keys in one batch, instead of a read and a commit per key.
//!
//! Why:        a client that empties a prefix sends a thousand keys in one request.
//! Invariants: M1 a batch asserts what it decided on for each key, and is applied as a whole or not at all. If it
//!                conflicts, or one key is refused, each of its keys is deleted separately.
//!             M2 a directory that a batch empties is removed with it: once all keys are drafted, other entries in the
//!                directory are looked up.
//! Locking:    none, unlike for single keys: a concurrent removal causes a conflict.
//! Not here:   single keys, versions and conditions (delete_object).

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use margay_meta::{Ask, Cursor, Guard};
use margay_rows::key::{self, Counted};
use margay_rows::record::Version;
use margay_rows::{Ino, event::EventKind};

use crate::api::{DeleteRequest, Deleted, ETag, Error, WriteCondition};
use crate::cache::{PathCache, Step, split};
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::entry::{Walk, check_key};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;

/// Maximum number of keys in a batch: as many rows as one read returns, and a commit that delays no others.
const BATCH_KEYS_MAX: usize = 100;

/// The directories on the way to deleted entries.
#[derive(Default)]
struct Ways {
    /// By depth and number.
    directories: BTreeMap<(usize, Ino), Emptied>,
    /// The bucket's root directory loses an entry.
    root_changes: bool,
}

/// A directory that may lose entries in a batch.
struct Emptied {
    step: Step,
    parent: Ino,
    gone: Vec<Vec<u8>>,
}

/// The result of one request in a batch.
type Outcome = Result<Deleted, Error>;

impl Volume {
    /// Deletes several keys with one wait for durability; results are in the order of the requests.
    pub async fn delete_objects(&self, bucket: &str, requests: &[DeleteRequest<'_>]) -> Result<Vec<Outcome>, Error> {
        let mut newest = Cursor::default();
        let mut answers = Vec::with_capacity(requests.len());
        for batch in batches(requests) {
            let (outcomes, seq) = self.delete_batch(bucket, batch).await;
            newest = newest.max(seq);
            answers.extend(outcomes);
        }
        self.settle(newest).await?;
        self.tell_mounts().await;
        let lacks_bucket = |answer: &Outcome| matches!(answer, Err(Error::NoSuchBucket));
        if !requests.is_empty() && answers.iter().all(lacks_bucket) { Err(Error::NoSuchBucket) } else { Ok(answers) }
    }

    /// Returns the newest commit that the results depend on.
    async fn delete_batch(&self, bucket: &str, requests: &[DeleteRequest<'_>]) -> (Vec<Outcome>, Cursor) {
        if requests.len() > 1
            && let Ok((deleted, seq)) = self.try_delete_batch(bucket, requests).await
        {
            return (deleted.into_iter().map(Ok).collect(), seq);
        }
        let mut newest = Cursor::default();
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(match self.delete_now(Seen::default(), bucket, request).await {
                Ok((deleted, seq)) => {
                    newest = newest.max(seq);
                    Ok(deleted)
                }
                Err(error) => {
                    newest = self.engine.last_cursor();
                    Err(error)
                }
            });
        }
        (outcomes, newest)
    }

    async fn try_delete_batch(
        &self,
        bucket: &str,
        requests: &[DeleteRequest<'_>],
    ) -> Result<(Vec<Deleted>, Cursor), Refused> {
        let mut seen = Seen::default();
        self.fetch(self.asks_of_batch(bucket, requests), &mut seen).await?;
        let (deleted, done) = self.decide_once(&mut seen, |seen| self.draft_batch(bucket, requests, seen)).await?;
        Ok((deleted, self.place_of(done)))
    }

    fn draft_batch(
        &self,
        bucket: &str,
        requests: &[DeleteRequest<'_>],
        seen: &mut Seen,
    ) -> Result<Decided<Vec<Deleted>>, Refused> {
        let mut draft = Draft::default();
        let mut ways = Ways::default();
        let mut deleted = Vec::with_capacity(requests.len());
        let mut root = Ino(0);
        for request in requests {
            let walk = self.walk(bucket, split(request.key).0, seen)?;
            root = walk.path.bucket.root;
            deleted.push(self.draft_deletion(&mut draft, &walk, request.key, &mut ways, seen)?);
        }
        self.draft_emptied(&mut draft, root, ways, seen)?;
        // Empty when none of the keys existed.
        if draft.is_empty() { Ok(Decided::Nothing(deleted)) } else { self.finish(draft, deleted) }
    }

    /// Drafts the deletion of one object, if it exists.
    fn draft_deletion(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        name: &str,
        ways: &mut Ways,
        seen: &mut Seen,
    ) -> Result<Deleted, Refused> {
        let current = self.current(walk, name, seen)?;
        if current.explicit(walk) {
            // Its directory changes with it.
            return Err(Refused::Conflict);
        }
        walk.path.assert_in(draft);
        let (key, removed) = (current.object, current.file.is_some());
        if !removed && !key.keeps() {
            self.check_absent(walk.path.directory())?;
            current.assert_in(draft, walk);
            return Ok(Deleted::default());
        }
        let version = if key.keeps() {
            check_key(name)?;
            self.check_room()?;
            current.assert_in(draft, walk);
            Some(self.draft_delete_marker(draft, &key, current.file.as_ref(), seen)?)
        } else {
            self.draft_displaced(draft, &key, current.file.as_ref(), Version::OLD, seen)?;
            None
        };
        if removed {
            draft.add(key::usage(key.root, Counted::Objects), -1);
            draft.delete(current.entry_key.clone());
            ways.lose(walk, current.entry_key);
        }
        let kind = if version.is_some() { EventKind::DeleteMarkerCreated } else { EventKind::Delete };
        self.draft_event(draft, &walk.path, &Told { kind, key: name, size: 0, etag: ETag::default(), version })?;
        Ok(Deleted { removed, version, marker: version.is_some() })
    }

    /// Drafts the removal of implicit directories that became empty, deepest first (M2).
    fn draft_emptied(&self, draft: &mut Draft, root: Ino, ways: Ways, seen: &mut Seen) -> Result<(), Error> {
        let now = self.now().0.max(0) as u64;
        let Ways { mut directories, mut root_changes } = ways;
        while let Some((at, directory)) = directories.pop_last() {
            let Emptied { step, parent, mut gone } = directory;
            let ino = step.entry.ino;
            if gone.is_empty() {
                continue;
            }
            let stays = step.entry.explicit || {
                let other = self.entry_that_stays(draft, ino, seen)?;
                other.is_some_and(|other| {
                    draft.assert_exists(other);
                    true
                })
            };
            if stays {
                draft.max(key::times(ino), now);
                continue;
            }
            gone.sort_unstable();
            draft.assert_only(&key::entries(ino), gone, Guard::Key(step.key.clone()));
            draft.delete(step.key.clone());
            draft.add(key::subdirectories(parent), -1);
            self.release_directory(draft, &step.entry)?;
            match at.0.checked_sub(1) {
                Some(above) => {
                    let above = directories.get_mut(&(above, parent)).expect("the way to a directory is noted");
                    above.gone.push(step.key);
                }
                None => root_changes = true,
            }
        }
        if root_changes {
            draft.max(key::times(root), now);
        }
        Ok(())
    }

    /// An entry of a directory that the draft does not remove.
    fn entry_that_stays(&self, draft: &Draft, directory: Ino, seen: &mut Seen) -> Result<Option<Vec<u8>>, Error> {
        let mut other = None;
        self.scan(&key::entries(directory), seen, |row| {
            if draft.deletes(row.key) {
                return Ok(ControlFlow::Continue(()));
            }
            other = Some(row.key.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(other)
    }

    /// The rows that a batch needs, as far as the paths to its keys are cached.
    fn asks_of_batch(&self, bucket: &str, requests: &[DeleteRequest<'_>]) -> Vec<Ask> {
        let mut rows = HashSet::from([key::bucket(bucket)]);
        let (mut directories, mut asks) = (HashSet::new(), Vec::new());
        for request in requests {
            let (folders, name) = split(request.key);
            let Some(path) = self.paths.get(&PathCache::name(bucket, folders)) else { continue };
            rows.extend(path.steps.iter().map(|step| step.key.clone()));
            rows.insert(key::entry(path.directory(), name.as_bytes()));
            directories.extend(path.steps.iter().filter(|step| !step.entry.explicit).map(|step| step.entry.ino));
            if path.versioned(request.key).keeps() {
                let (start, end) = key::versions_below(path.bucket.root, request.key, u64::MAX);
                asks.push(Ask::Scan { start, end, rows_max: 1, keys_only: false });
            }
        }
        // One row more than the batch can remove proves that an entry stays.
        let rows_max = requests.len() + 1;
        asks.extend(directories.into_iter().map(|ino| {
            let (start, end) = key::entries(ino);
            Ask::Scan { start, end, rows_max, keys_only: true }
        }));
        asks.extend(rows.into_iter().map(|key| Ask::Get { key }));
        asks
    }
}

impl Ways {
    /// Records the removal of an entry from the last directory of a walk; directories above are recorded too, since
    /// that one may be removed.
    fn lose(&mut self, walk: &Walk<'_>, entry_key: Vec<u8>) {
        let mut parent = walk.path.bucket.root;
        for (depth, step) in walk.path.steps.iter().enumerate() {
            let ino = step.entry.ino;
            let new = || Emptied { step: step.clone(), parent, gone: Vec::new() };
            self.directories.entry((depth, ino)).or_insert_with(new);
            parent = ino;
        }
        let depth = walk.path.steps.len().checked_sub(1);
        match depth.and_then(|depth| self.directories.get_mut(&(depth, parent))) {
            Some(last) => last.gone.push(entry_key),
            None => self.root_changes = true,
        }
    }
}

/// Splits requests into batches: no key twice, and only plain deletions in batches of more than one.
fn batches<'r, 'k>(requests: &'r [DeleteRequest<'k>]) -> impl Iterator<Item = &'r [DeleteRequest<'k>]> {
    let mut rest = requests;
    std::iter::from_fn(move || {
        let mut keys = HashSet::new();
        let fits = |request: &DeleteRequest<'_>| request.version.is_none() && request.condition == WriteCondition::None;
        let plain = rest.iter().take(BATCH_KEYS_MAX).take_while(|one| fits(one) && keys.insert(one.key)).count();
        let (batch, after) = rest.split_at_checked(plain.max(1))?;
        rest = after;
        Some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_no_key_twice_and_conditions_stand_alone() {
        let conditional = DeleteRequest { condition: WriteCondition::Present, ..DeleteRequest::of("c") };
        let requests = [
            DeleteRequest::of("a"),
            DeleteRequest::of("b"),
            DeleteRequest::of("a"),
            conditional,
            DeleteRequest::of("d"),
        ];
        let sizes: Vec<usize> = batches(&requests).map(<[_]>::len).collect();
        assert_eq!(sizes, [2, 1, 1, 1]);
        let keys: Vec<String> = (0..250).map(|number| number.to_string()).collect();
        let many: Vec<DeleteRequest<'_>> = keys.iter().map(|key| DeleteRequest::of(key)).collect();
        assert_eq!(batches(&many).map(<[_]>::len).collect::<Vec<_>>(), [100, 100, 50]);
        assert_eq!(batches(&[]).count(), 0);
    }
}
