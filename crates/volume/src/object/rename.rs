//! Renames one object, or a directory with everything below it, in one batch.
//!
//! Why:        entries below a directory refer to its number, so only its entry and its record move.
//! Invariants: N1 both paths are asserted, so of two renames that would put directories into each other one conflicts.
//!             N2 an object is replaced as by PUT unless the condition forbids it; a directory replaces only an empty
//!                explicit directory, anything else fails with `PreconditionFailed`.
//!             N3 implicit directories that become empty are removed, as after DELETE.
//!             N4 with versioning the object is a new version at its new key, and its old key keeps the old version
//!                below a delete marker; directories are not renamed.
//! Locking:    the file's turn, since mounts record its location; then the latch of the source's directory. Where the
//!             engine waits, a claim instead of both, which goes with the draft; who finds the file claimed begins again.

use margay_meta::Guard;
use margay_rows::event::EventKind;
use margay_rows::record::{DirectoryRecord, Entry};
use margay_rows::{Ino, key};

use crate::api::{Error, Versioning, WriteCondition};
use crate::cache::{Path, split};
use crate::draft::{Draft, Seen, at_hand};
use crate::driver::{Decided, Purpose, View};
use crate::entry::{Walk, check_key};
use crate::error::Refused;
use crate::event::Told;
use crate::known::{Claim, Turns};
use crate::object::put_object::count;
use crate::open::Volume;

/// The new location of the moved object.
#[derive(Debug)]
struct Moved {
    ino: Ino,
    directory: Ino,
    name: String,
    /// Held until the mounts know the new location.
    _claim: Option<Claim>,
}

impl View<'_> {
    /// Renames one object, or with keys that end in `/` a whole directory; O(1).
    pub async fn rename(self, bucket: &str, from: &str, to: &str, condition: &WriteCondition) -> Result<(), Error> {
        let rows = self.take_for_change(bucket);
        self.volume.rename_from(rows, (bucket, from, to), condition).await
    }
}

impl Volume {
    /// Renames one object, or with keys that end in `/` a whole directory; O(1).
    pub async fn rename(&self, bucket: &str, from: &str, to: &str, condition: &WriteCondition) -> Result<(), Error> {
        let rows = self.look(bucket, Purpose::RenameObject { from, to }).await?;
        self.view(&rows).rename(bucket, from, to, condition).await
    }

    /// The first attempt uses these rows.
    async fn rename_from(
        &self,
        rows: Seen,
        (bucket, from, to): (&str, &str, &str),
        condition: &WriteCondition,
    ) -> Result<(), Error> {
        check_key(to)?;
        let done = self.decide(rows, |seen| match (from.ends_with('/'), to.ends_with('/')) {
            (false, false) => self.try_rename_file(bucket, from, to, condition, seen),
            (true, true) => self.try_rename_directory(bucket, from, to, condition, seen),
            _ => Err(Error::PreconditionFailed.into()),
        });
        let done = done.await.map(|(moved, seq)| {
            if let Some(moved) = moved {
                self.note_move(&moved);
            }
            ((), seq)
        });
        self.answer(done).await
    }

    /// The turn of what is moved. Where the engine waits, this thread must not wait for those who do.
    fn turn_to_move(&self, ino: Ino) -> Result<(Option<Turns<'_>>, Option<Claim>), Refused> {
        if !at_hand::is_running() {
            return Ok((Some(self.known.turn(ino)), None));
        }
        Ok((None, Some(self.known.claim(ino).ok_or(Refused::Conflict)?)))
    }

    /// Tells the mounts the file's location while its turn is held. If the draft is handed to the driver, they are told
    /// after the commit, and the claim goes with it.
    fn finish_move(&self, draft: Draft, moved: Moved) -> Result<Decided<Option<Moved>>, Refused> {
        match self.finish(draft, ())? {
            Decided::Commit(draft, ()) => Ok(Decided::Commit(draft, Some(moved))),
            Decided::Committed((), seq) => {
                self.note_move(&moved);
                Ok(Decided::Committed(None, seq))
            }
            Decided::Nothing(()) => Ok(Decided::Nothing(None)),
        }
    }

    fn note_move(&self, moved: &Moved) {
        self.known.moved(moved.ino, moved.directory, &moved.name);
    }

    fn try_rename_file(
        &self,
        bucket: &str,
        from: &str,
        to: &str,
        condition: &WriteCondition,
        seen: &mut Seen,
    ) -> Result<Decided<Option<Moved>>, Refused> {
        let ((from_dirs, _), (to_dirs, to_name)) = (split(from), split(to));
        let source_walk = self.walk(bucket, from_dirs, seen)?;
        let Some(file) = self.current(&source_walk, from, seen)?.file else {
            self.check_absent(source_walk.path.directory())?;
            return Err(Error::NoSuchKey.into());
        };
        let ino = file.file.ino;
        let ((_turn, claim), _latch) = (self.turn_to_move(ino)?, self.turn_in(source_walk.path.directory()));
        let source = self.current(&source_walk, from, seen)?;
        let moved = source.file.as_ref().filter(|moved| moved.file.ino == ino).ok_or(Refused::Conflict)?;
        let walk = self.walk(bucket, to_dirs, seen)?;
        let current = self.current(&walk, to, seen)?;
        condition.check(current.etag(&walk))?;
        if current.entry_key == source.entry_key && walk.complete() {
            return Ok(Decided::Nothing(None));
        }
        let mut draft = Draft::default();
        source_walk.path.assert_in(&mut draft);
        // It would leave a locked version behind, and be one itself.
        self.check_unlocked(&moved.file, false, seen)?;
        let left = self.draft_left(&mut draft, &source.object, moved, seen)?;
        let mut file = moved.file.clone();
        if source.object.keeps() {
            self.draft_locks_left(&mut draft, &mut file);
        }
        let target = self.replace(&walk, &current, &mut file, &mut draft, seen)?;
        let directory = key::parse_entry(&target)?.0;
        draft.max(key::times(directory), self.now().0.max(0) as u64);
        // The moved file was counted as new.
        count(&mut draft, walk.path.bucket.root, Some(&moved.file), None);
        self.move_name(&mut draft, moved, target, &file)?;
        let steps = &source_walk.path.steps;
        self.vacate(
            &mut draft,
            source_walk.path.bucket.root,
            steps,
            (source.entry_key.clone(), &directories_of(&walk.path)),
            seen,
        )?;
        let (size, etag, version) = (file.size, file.etag, current.outcome(&file).version);
        self.draft_event(&mut draft, &walk.path, &Told { kind: EventKind::Copy, key: to, size, etag, version })?;
        let kind = if left.is_some() { EventKind::DeleteMarkerCreated } else { EventKind::Delete };
        self.draft_event(&mut draft, &walk.path, &Told { kind, key: from, size, etag, version: left })?;
        self.finish_move(draft, Moved { ino, directory, name: to_name.to_owned(), _claim: claim })
    }

    fn try_rename_directory(
        &self,
        bucket: &str,
        from: &str,
        to: &str,
        condition: &WriteCondition,
        seen: &mut Seen,
    ) -> Result<Decided<Option<Moved>>, Refused> {
        let source_walk = self.walk(bucket, from, seen)?;
        if source_walk.path.bucket.versioning != Versioning::Never {
            return Err(Error::KeepsVersions.into());
        }
        let [above @ .., moved] = source_walk.path.steps.as_slice() else { return Err(Error::NoSuchKey.into()) };
        if !source_walk.complete() {
            return Err(Error::NoSuchKey.into());
        }
        let parent = above.last().map_or(source_walk.path.bucket.root, |step| step.entry.ino);
        let ((_turn, claim), _latch) = (self.turn_to_move(moved.entry.ino)?, self.turn_in(parent));
        let (to_dirs, to_name) = to.split_at(to[..to.len() - 1].rfind('/').map_or(0, |slash| slash + 1));
        let walk = self.walk(bucket, to_dirs, seen)?;
        if from == to {
            return Ok(Decided::Nothing(None));
        }
        if walk.path.passes(moved.entry.ino) {
            return Err(Error::PreconditionFailed.into());
        }
        let mut draft = Draft::default();
        source_walk.path.assert_in(&mut draft);
        walk.path.assert_in(&mut draft);
        let target_parent = self.make_directories(&walk, &mut draft)?;
        let target = key::entry(target_parent, to_name.as_bytes());
        self.draft_target(&mut draft, &walk, &target, condition, seen)?;
        draft.delete(moved.key.clone());
        draft.move_subdirectories(parent, target_parent, 1);
        draft.put(target, moved.entry.encode());
        let record = DirectoryRecord { parent: target_parent, sort_name: to_name.to_owned() };
        draft.put(key::directory(moved.entry.ino), record.encode());
        draft.max(key::times(target_parent), self.now().0.max(0) as u64);
        let kept = directories_of(&walk.path);
        self.vacate(&mut draft, source_walk.path.bucket.root, above, (moved.key.clone(), &kept), seen)?;
        let (ino, name) = (moved.entry.ino, to_name.to_owned());
        self.finish_move(draft, Moved { ino, directory: target_parent, name, _claim: claim })
    }

    /// Decides whether a directory may be moved here, and drafts the removal of an empty one.
    fn draft_target(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        target: &[u8],
        condition: &WriteCondition,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let row = if walk.complete() { self.get(target, seen)? } else { None };
        let Some(row) = row else {
            if walk.complete() {
                draft.assert_absent(target.to_vec());
            }
            return condition.check(None);
        };
        let Entry::Directory(replaced) = Entry::decode(&row.value)? else {
            return Err(Error::Corrupt("a file has the name of a directory".to_owned()));
        };
        let ino = replaced.ino;
        let mut empty = true;
        self.scan(&key::entries(ino), &mut Seen::default(), |_| {
            empty = false;
            Ok(std::ops::ControlFlow::Break(()))
        })?;
        if !empty || !matches!(condition, WriteCondition::None | WriteCondition::Present) {
            return Err(Error::PreconditionFailed);
        }
        draft.assert_version(target.to_vec(), row.version);
        draft.assert_empty(key::entries(ino), Guard::Key(target.to_vec()));
        draft.add(key::subdirectories(key::parse_entry(target)?.0), -1);
        self.release_directory(draft, &replaced)
    }
}

fn directories_of(path: &Path) -> Vec<Ino> {
    path.steps.iter().map(|step| step.entry.ino).collect()
}
