//! `chmod`, `chown`, `utimens`, and truncation by name.
//!
//! Why:        one call changes any of them in one commit.
//! Invariants: S1 asserts the row with the attributes. An open, written file is changed in memory, and published with
//!                its next publish. The change time never goes back. An access control list follows the permissions.
//! Locking:    the file's turn.
//! Not here:   the size of a file (resize).

use margay_env::Timestamp;
use margay_meta::Committed;
use margay_rows::record::entry::MODE_RIGHTS;
use margay_rows::record::{DirectoryEntry, FileEntry};
use margay_rows::{Ino, key};

use crate::draft::Draft;
use crate::entry::Located;
use crate::posix::acl::{self, RIGHTS_BITS};
use crate::posix::api::{AttributeChange, Attributes, PosixError, SetTime};
use crate::posix::attempt::Attempt;
use crate::posix::mount::Mount;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

fn time(set: SetTime, now: Timestamp) -> Timestamp {
    match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}

/// The mode after the change; file type bits stay.
fn new_mode(mode: u32, change: &AttributeChange) -> u32 {
    let mut mode = change.rights.map_or(mode, |rights| mode & !MODE_RIGHTS | rights & MODE_RIGHTS);
    if change.kill_privileges {
        mode &= !SET_USER_ID;
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GROUP_ID;
        }
    }
    mode
}

fn apply(file: &mut FileEntry, change: &AttributeChange, now: Timestamp) {
    file.mode = new_mode(file.mode, change);
    file.uid = change.uid.unwrap_or(file.uid);
    file.gid = change.gid.unwrap_or(file.gid);
    if let Some(accessed) = change.accessed {
        file.accessed = Some(time(accessed, now));
    }
    if let Some(modified) = change.modified {
        file.accessed.get_or_insert(file.modified);
        file.modified = time(modified, now);
    }
    file.changed = file.changed.max(now);
}

impl Mount {
    /// Also works on open files without a name.
    pub fn set_attributes(&self, ino: Ino, change: &AttributeChange) -> Result<Attributes, PosixError> {
        if self.options.read_only {
            return Err(PosixError::ReadOnlyMount);
        }
        if self.is_directory(ino)? {
            if change.size.is_some() {
                return Err(PosixError::IsDirectory);
            }
            return match self.set_directory_attributes(ino, change) {
                Err(PosixError::NotFound) => self.change_removed(ino, change).ok_or(PosixError::NotFound),
                other => other.and_then(|()| self.attributes(ino)),
            };
        }
        let resized = change.size.map(|size| self.set_size(ino, size, change.kill_privileges)).transpose()?;
        let rest = AttributeChange { size: None, ..*change };
        let nothing = AttributeChange { kill_privileges: rest.kill_privileges, ..AttributeChange::default() };
        let changed =
            if change.size.is_none() || rest != nothing { self.set_file_attributes(ino, &rest)? } else { None };
        match (changed.map_or_else(|| self.attributes(ino), Ok), resized) {
            // Another process moved the file after it got its size.
            (Err(PosixError::NotFound | PosixError::Stale), Some(resized)) if rest == nothing => Ok(resized),
            (answer, _) => answer,
        }
    }

    /// The file's row afterwards; `None` if the change was made in the open file.
    fn set_file_attributes(&self, ino: Ino, change: &AttributeChange) -> Result<Option<Attributes>, PosixError> {
        let _turn = self.volume.known.turn(ino);
        self.change(|_| {
            let now = self.volume.now();
            let opened = self.opened(ino);
            let located = self.locate_file(ino)?;
            if let Some(located) = &located {
                self.check_unlocked(&located.file)?;
            }
            let differs = opened.as_ref().is_some_and(|opened| opened.differs);
            let Some(located) = located.as_ref().filter(|_| !differs) else {
                let Some(opened) = opened else { return Err(PosixError::Stale.into()) };
                let done = match &located {
                    Some(located) if change.rights.is_some() && located.file.xattrs => {
                        Some(self.list_follows(located, new_mode(opened.file.mode, change))?)
                    }
                    _ => None,
                };
                self.change_opened(ino, |file| apply(file, change, now));
                return Ok((None, done));
            };
            let mut file = located.file.clone();
            apply(&mut file, change, now);
            let mut draft = Draft::default();
            draft.assert_version(located.row_key.clone(), located.version);
            if change.rights.is_some() && file.xattrs {
                self.draft_list(&mut draft, ino, file.mode)?;
            }
            draft.put(located.row_key.clone(), file.encode().value);
            let done = self.commit(draft)?;
            self.row_changed(&file, done.version);
            // Not read again: another process may have moved the file since.
            Ok((Some(self.file_attributes(&file)), Some(done)))
        })
    }

    /// The access list of an open file that gets this mode when it is published: the row has both at once.
    fn list_follows(&self, located: &Located, mode: u32) -> Result<Committed, Attempt> {
        let mut file = located.file.clone();
        file.mode = file.mode & !RIGHTS_BITS | mode & RIGHTS_BITS;
        let mut draft = Draft::default();
        draft.assert_version(located.row_key.clone(), located.version);
        self.draft_list(&mut draft, file.ino, file.mode)?;
        draft.put(located.row_key.clone(), file.encode().value);
        let done = self.commit(draft)?;
        self.row_changed(&file, done.version);
        Ok(done)
    }

    /// Drafts that the access list of a file follows its mode. The row with the mode changes whenever the list does, so
    /// asserting that row is enough.
    fn draft_list(&self, draft: &mut Draft, ino: Ino, mode: u32) -> Result<(), Attempt> {
        if let Some(mut list) = self.acl_of(ino, acl::ACCESS)? {
            list.set_rights(mode & RIGHTS_BITS);
            draft.put(key::xattr(ino, acl::ACCESS), list.encode());
        }
        Ok(())
    }

    fn set_directory_attributes(&self, ino: Ino, change: &AttributeChange) -> Result<(), PosixError> {
        self.change(|one| {
            let directory = self.directory(ino, one)?;
            let now = self.volume.now();
            let mut entry = DirectoryEntry { explicit: true, changed: Some(now), ..directory.entry };
            // A directory's set-group-id gives no privileges, so changing the owner does not clear it.
            entry.mode = new_mode(entry.mode, &AttributeChange { kill_privileges: false, ..*change });
            entry.uid = change.uid.unwrap_or(entry.uid);
            entry.gid = change.gid.unwrap_or(entry.gid);
            let mut draft = Draft::default();
            directory.assert_in(&mut draft);
            if let Some(accessed) = change.accessed {
                entry.accessed = Some(time(accessed, now));
            }
            if let Some(modified) = change.modified {
                if entry.accessed.is_none() {
                    entry.accessed = Some(self.volume.modified(ino, &mut one.seen)?);
                }
                let modified = u64::try_from(time(modified, now).0).unwrap_or(0);
                draft.set(key::times(ino), modified.to_le_bytes());
            }
            if change.rights.is_some() && entry.xattrs {
                self.draft_list(&mut draft, ino, entry.mode)?;
            }
            draft.put(directory.row_key.clone(), entry.encode());
            self.directories.forget(ino);
            Ok(((), Some(self.commit(draft)?)))
        })
    }
}
