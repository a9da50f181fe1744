//! Renames a file or a directory, with or without replacement, and exchanges two.
//!
//! Why:        a directory moves by its entry and its record, whatever is below it.
//! Invariants: R1 both names are asserted with both of their entries.
//!             R2 a directory that changes its parent asserts the identity of every directory above its new location,
//!                so no cycle can form: of two renames that would create one, the later one conflicts.
//!             R3 a file's location is updated under its turn, before anybody can ask for it under the old name (N1).
//! Locking:    the turns of the moved file and of the replaced or exchanged one.
//! Not here:   S3's rename, by keys (crate::object::rename).

use margay_env::Timestamp;
use margay_meta::Committed;
use margay_rows::record::{DirectoryEntry, DirectoryRecord};
use margay_rows::{Ino, key};

use crate::draft::Draft;
use crate::posix::api::{FileKind, Name, PosixError, RenameMode};
use crate::posix::attempt::{Attempt, Try};
use crate::posix::locate::{Located, LocatedDirectory};
use crate::posix::mount::Mount;
use crate::posix::resolve::{Found, Resolved, Subdirectory};

/// One side of a rename: a directory and a name in it.
struct Side {
    directory: std::sync::Arc<LocatedDirectory>,
    name: Resolved,
}

impl Side {
    fn ino(&self) -> Ino {
        self.directory.entry.ino
    }

    /// The entry for something of this kind.
    fn key(&self, kind: FileKind) -> Vec<u8> {
        if kind == FileKind::Directory { self.name.directory_key(self.ino()) } else { self.name.file_key(self.ino()) }
    }
}

fn kind_of(found: &Found) -> FileKind {
    if matches!(found, Found::Directory(_)) { FileKind::Directory } else { FileKind::Regular }
}

impl Mount {
    pub fn rename(
        &self,
        parent: Ino,
        name: &Name,
        new_parent: Ino,
        new_name: &Name,
        mode: RenameMode,
    ) -> Result<(), PosixError> {
        self.change(|one| {
            self.look_at(&[(parent, name), (new_parent, new_name)], one)?;
            let from =
                Side { name: self.resolve(parent, name, &mut one.seen)?, directory: self.directory(parent, one)? };
            let Some(source) = from.name.found.as_ref() else { return Err(PosixError::NotFound.into()) };
            let to_name = self.resolve(new_parent, new_name, &mut one.seen)?;
            let to = Side { name: to_name, directory: self.directory(new_parent, one)? };
            let done = match (&to.name.found, mode) {
                (Some(target), RenameMode::Replace | RenameMode::Exchange)
                    if target.entry_key() == source.entry_key() =>
                {
                    None
                }
                (Some(_), RenameMode::NoReplace) => return Err(PosixError::Exists.into()),
                (None, RenameMode::Exchange) => return Err(PosixError::NotFound.into()),
                (Some(target), RenameMode::Exchange) => self.exchange((&from, source), (&to, target), one)?,
                (target, _) => self.move_to((&from, source), &to, target.as_ref(), one)?,
            };
            Ok(((), done))
        })
    }

    fn move_to(
        &self,
        (from, source): (&Side, &Found),
        to: &Side,
        target: Option<&Found>,
        one: &mut Try,
    ) -> Result<Option<Committed>, Attempt> {
        let now = self.volume.now();
        let mut draft = Draft::default();
        from.name.assert_kept(&mut draft, from.ino(), one);
        to.name.assert_kept(&mut draft, to.ino(), one);
        self.draft_change_in(&mut draft, &from.directory, now.0);
        if from.ino() != to.ino() {
            self.draft_change_in(&mut draft, &to.directory, now.0);
        }
        match (source, target) {
            (Found::File(moved), Some(Found::File(other))) if moved.file.ino == other.file.ino => Ok(None),
            (Found::File(_), Some(Found::Directory(_))) => Err(PosixError::IsDirectory.into()),
            (Found::Directory(_), Some(Found::File(_))) => Err(PosixError::NotDirectory.into()),
            (Found::File(located), target) => {
                let _turns = self.volume.known.turns(located.file.ino, target.map_or(located.file.ino, Found::ino));
                let (key, replaced) = match target {
                    Some(Found::File(replaced)) => (replaced.entry_key.clone(), Some(replaced)),
                    _ => (to.name.draft_free(&mut draft, &to.directory, FileKind::Regular)?, None),
                };
                let (left, taken) = ((from.ino(), from.name.name.as_str()), (to.ino(), to.name.name.as_str()));
                let there = self.draft_moved_name(&mut draft, (left, located), (taken, replaced), one)?;
                self.volume.move_name(&mut draft, located, key, &there)?;
                let done = self.commit(draft)?;
                self.volume.known.moved(located.file.ino, to.ino(), &to.name.name);
                Ok(Some(done))
            }
            (Found::Directory(moved), target) => {
                self.refuse_versions(&mut draft)?;
                self.assert_no_circle(&mut draft, (from, moved), to, one)?;
                source.assert_in(&mut draft);
                let key = match target {
                    Some(Found::Directory(replaced)) => {
                        draft.assert_version(replaced.entry_key.clone(), replaced.version);
                        draft.add(key::subdirectories(to.ino()), -1);
                        self.draft_end_of_directory(&mut draft, replaced, one)?;
                        self.directories.forget(replaced.entry.ino);
                        replaced.entry_key.clone()
                    }
                    _ => to.name.draft_free(&mut draft, &to.directory, FileKind::Directory)?,
                };
                draft.delete(moved.entry_key.clone());
                draft.move_subdirectories(from.ino(), to.ino(), 1);
                self.draft_place(&mut draft, moved, to, key, now);
                let done = self.commit(draft)?;
                if let Some(Found::Directory(replaced)) = target {
                    self.keep_removed(&replaced.entry);
                }
                self.left_its_name(from.ino(), &from.name.name);
                Ok(Some(done))
            }
        }
    }

    /// Asserts that a moved directory does not come below itself.
    fn assert_no_circle(
        &self,
        draft: &mut Draft,
        (from, moved): (&Side, &Subdirectory),
        to: &Side,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        if from.ino() == to.ino() {
            return Ok(());
        }
        self.assert_not_below(draft, to.ino(), moved.entry.ino, one)
    }

    /// Drafts a directory at its new location.
    fn draft_place(&self, draft: &mut Draft, moved: &Subdirectory, to: &Side, key: Vec<u8>, now: Timestamp) {
        let ino = moved.entry.ino;
        self.directories.forget(ino);
        let record = DirectoryRecord { parent: to.ino(), sort_name: to.name.sort_name(FileKind::Directory) };
        draft.put(key, DirectoryEntry { changed: Some(now), ..moved.entry }.encode());
        draft.put(key::directory(ino), record.encode());
    }

    fn exchange(
        &self,
        (from, source): (&Side, &Found),
        (to, target): (&Side, &Found),
        one: &mut Try,
    ) -> Result<Option<Committed>, Attempt> {
        let now = self.volume.now();
        let mut draft = Draft::default();
        from.name.assert_kept(&mut draft, from.ino(), one);
        to.name.assert_kept(&mut draft, to.ino(), one);
        self.draft_change_in(&mut draft, &from.directory, now.0);
        if from.ino() != to.ino() {
            self.draft_change_in(&mut draft, &to.directory, now.0);
        }
        let is_directory = |found: &Found| matches!(found, Found::Directory(_));
        if from.name.beside && is_directory(target) || to.name.beside && is_directory(source) {
            return Err(PosixError::Invalid.into());
        }
        if source.ino() == target.ino() {
            return Ok(None);
        }
        self.refuse_versions(&mut draft)?;
        let turns = self.volume.known.turns(source.ino(), target.ino());
        // Old entries are removed first, so that a key with a new entry ends up with that.
        for found in [source, target] {
            found.assert_in(&mut draft);
            draft.delete(found.entry_key().to_vec());
        }
        let moved = i64::from(is_directory(source)) - i64::from(is_directory(target));
        draft.move_subdirectories(from.ino(), to.ino(), moved);
        self.draft_arrival(&mut draft, (from, source), (to, target), now, one)?;
        self.draft_arrival(&mut draft, (to, target), (from, source), now, one)?;
        let done = self.commit(draft)?;
        for (found, side) in [(source, to), (target, from)] {
            if let Found::File(located) = found {
                self.volume.known.moved(located.file.ino, side.ino(), &side.name.name);
            }
        }
        drop(turns);
        Ok(Some(done))
    }

    /// Drafts that `moved` replaces `left`.
    fn draft_arrival(
        &self,
        draft: &mut Draft,
        (from, moved): (&Side, &Found),
        (to, left): (&Side, &Found),
        now: Timestamp,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        let key = to.key(kind_of(moved));
        if key != left.entry_key() {
            // The other entry of the name: a file beside the directory that is moved away.
            if self.volume.get(&key, &mut one.seen)?.is_some() {
                return Err(PosixError::Exists.into());
            }
            draft.assert_absent(key.clone());
        }
        match moved {
            Found::Directory(directory) => {
                self.assert_no_circle(draft, (from, directory), to, one)?;
                self.draft_place(draft, directory, to, key, now);
            }
            Found::File(located) => self.draft_file_at(draft, located, key, now),
        }
        Ok(())
    }

    fn draft_file_at(&self, draft: &mut Draft, located: &Located, key: Vec<u8>, now: Timestamp) {
        let mut file = located.file.clone();
        file.changed = file.changed.max(now);
        if located.linked() {
            draft.assert_version(located.row_key.clone(), located.version);
            draft.put(key, margay_rows::record::entry::encode_link(file.ino));
            draft.put(located.row_key.clone(), file.encode().value);
        } else {
            draft.relocate_file(&file, &key);
            draft.put(key, file.encode().value);
        }
    }
}
