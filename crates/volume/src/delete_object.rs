//! DELETE of an object, and of the implicit directories that it was the last thing in.
//!
//! Why:        S3 has no directories, so one that a PUT made on its way goes when nothing is below it.
//! Invariants: a directory is removed with its entry's version and its emptiness asserted; a directory that stays
//!             because of another entry has that entry's existence asserted. So none is lost or left empty.
//!             DELETE of `a/` is never recursive: on a directory with entries it leaves it, implicit.
//! Locking:    the directory's latch, over the reads and the commit: removals side by side would otherwise each
//!             rely on the entry that another one is about to remove.
//! Not here:   the object's data (release).

use std::ops::ControlFlow;

use margay_meta::Seq;

use crate::api::{Error, WriteCondition};
use crate::draft::Draft;
use crate::error::Refused;
use crate::key::{self, Ino};
use crate::open::Volume;
use crate::paths::{Done, Step, Walk, split};
use crate::put_object::{Current, count};
use crate::record::DirectoryEntry;
use crate::seen::Seen;

impl Volume {
    /// Fine when the key is absent (`Ok(false)`), but `NoSuchKey` when the condition wants something to be there.
    pub async fn delete_object(&self, bucket: &str, key: &str, condition: &WriteCondition) -> Result<bool, Error> {
        let done = self.delete_now(bucket, key, condition);
        self.answer(done).await
    }

    /// Several keys, one durable wait; the answers are in the order of the keys.
    pub async fn delete_objects(
        &self,
        bucket: &str,
        keys: &[(String, WriteCondition)],
    ) -> Result<Vec<Result<bool, Error>>, Error> {
        let mut seen = Seen::default();
        let exists = self.bucket_row(bucket, &mut seen).map(|_| ());
        let exists = exists.map(|()| ((), seen.seq));
        self.answer(exists).await?;
        let mut newest = Seq::default();
        let mut answers = Vec::with_capacity(keys.len());
        for (key, condition) in keys {
            answers.push(match self.delete_now(bucket, key, condition) {
                Ok((removed, seq)) => {
                    newest = newest.max(seq);
                    Ok(removed)
                }
                Err(error) => {
                    newest = self.engine.last_seq();
                    Err(error)
                }
            });
        }
        self.settle(newest).await?;
        self.tell_mounts().await;
        Ok(answers)
    }

    fn delete_now(&self, bucket: &str, key: &str, condition: &WriteCondition) -> Result<(bool, Seq), Error> {
        let (directories, name) = split(key);
        self.change(bucket, (directories, name), |walk, seen| {
            let _turn = self.latch(walk.path.directory()).lock();
            self.try_delete(walk, name, condition, seen)
        })
    }

    fn try_delete(
        &self,
        walk: &Walk<'_>,
        name: &str,
        condition: &WriteCondition,
        seen: &mut Seen,
    ) -> Result<Done<bool>, Refused> {
        let current = self.current(walk, name, seen)?;
        condition.check(current.etag(walk, name))?;
        let explicit = current.explicit(walk, name);
        if current.file.is_none() && !explicit {
            // Absent also when a directory on the way is: the walk saw that.
            return Ok(Done::Unchanged(false, self.engine.last_seq()));
        }
        let mut draft = Draft::default();
        walk.path.assert_in(&mut draft);
        self.draft_removal(&mut draft, walk, &current, name.is_empty())?;
        let seq = self.commit(draft)?;
        Ok(Done::Changed(true, seq))
    }

    fn draft_removal(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        current: &Current,
        directory_object: bool,
    ) -> Result<(), Error> {
        if let Some(located) = &current.file {
            draft.delete(current.key.clone());
            count(draft, walk.path.root, Some(&located.file), None);
            self.drop_name(draft, located)?;
        }
        let mut steps = walk.path.steps.clone();
        match steps.last_mut() {
            // The object `a/` goes, so the directory is implicit from here on.
            Some(step) if directory_object && step.entry.explicit => {
                step.entry.explicit = false;
                draft.put(step.key.clone(), step.entry.encode());
            }
            _ => {}
        }
        self.vacate(draft, walk.path.root, &steps, current.key.clone(), &[])
    }

    /// Drafts the removal of the implicit directories, from the last step upwards, in which `gone` is the last
    /// entry; directories in `kept` stay. The caller asserts the steps.
    pub(crate) fn vacate(
        &self,
        draft: &mut Draft,
        root: Ino,
        steps: &[Step],
        mut gone: Vec<u8>,
        kept: &[Ino],
    ) -> Result<(), Error> {
        let now = self.now().0.max(0) as u64;
        for (depth, step) in steps.iter().enumerate().rev() {
            let DirectoryEntry { ino, explicit, .. } = step.entry;
            if explicit || kept.contains(&ino) {
                draft.max(key::times(ino), now);
                return Ok(());
            }
            if let Some(other) = self.another_entry(ino, &gone)? {
                draft.assert_exists(other);
                draft.max(key::times(ino), now);
                return Ok(());
            }
            draft.assert_empty_but(&key::entries(ino), &gone);
            draft.delete(step.key.clone());
            let parent = if depth == 0 { root } else { steps[depth - 1].entry.ino };
            draft.add(key::subdirectories(parent), -1);
            self.release_directory(draft, &step.entry)?;
            gone.clone_from(&step.key);
        }
        draft.max(key::times(root), now);
        Ok(())
    }

    /// Some entry of a directory that is not `but`.
    fn another_entry(&self, directory: Ino, but: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (start, end) = key::entries(directory);
        let mut other = None;
        for range in [(key::after(but.to_vec()), end), (start, but.to_vec())] {
            self.scan(&range, &mut Seen::default(), |row| {
                other = Some(row.key.to_vec());
                Ok(ControlFlow::Break(()))
            })?;
            if other.is_some() {
                break;
            }
        }
        Ok(other)
    }
}
