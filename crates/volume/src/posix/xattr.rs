//! Extended attributes.
//!
//! Why:        `user.*` of a file is S3's user metadata, so it is stored as headers while it fits; all else is in rows
//!             of its own.
//! Invariants: A1 a file's or directory's row changes with each change of its attributes, and tells whether there are
//!                rows; so removing the file, which asserts its row, removes them all.
//!             A2 a name is a header or a row, never both.  A3 access list and permissions are consistent (acl).
//! Locking:    the file's turn.
//! Not here:   which attributes are headers (xattr_headers).

use std::ops::ControlFlow;

use bytes::Bytes;
use margay_meta::Committed;
use margay_rows::record::{DirectoryEntry, FileEntry};
use margay_rows::{Ino, key};

use crate::api::{Error, Headers};
use crate::draft::{Draft, Seen};
use crate::entry::Located;
use crate::posix::acl::{self, Acl, RIGHTS_BITS};
use crate::posix::api::{PosixError, SetXattr, UPSTREAM_STATE, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::posix::attempt::{Attempt, Try};
use crate::posix::mount::Mount;
use crate::posix::xattr_headers;
use crate::upload::place;

/// Maximum size of a file's attribute names: the kernel lists no more.
const LIST_BYTES_MAX: usize = 64 * 1024;
/// Attempts to read a file that is replaced meanwhile.
const TRIES_MAX: usize = 64;
const USER_SPACE: &[u8] = b"user.";
const SET_GROUP_ID: u32 = 0o2000;

/// What a change does to one attribute: `None` removes it.
struct Change<'a> {
    name: &'a [u8],
    value: Option<&'a [u8]>,
    how: SetXattr,
    kill_set_group_id: bool,
}

impl Change<'_> {
    fn check(&self, is_there: bool) -> Result<(), PosixError> {
        match (self.value, self.how) {
            (None, _) | (Some(_), SetXattr::Replace) if !is_there => Err(PosixError::NoAttribute),
            (Some(_), SetXattr::Create) if is_there => Err(PosixError::Exists),
            _ => Ok(()),
        }
    }

    /// The list that it sets; `None`: it sets none, or removes it.
    fn list(&self) -> Result<Option<Acl>, PosixError> {
        let list = self.value.map(|value| Acl::decode(value).ok_or(PosixError::Invalid)).transpose()?;
        Ok(list.filter(|list| !list.is_empty()))
    }

    /// A mode after an access list was set.
    fn follow(&self, list: Option<&Acl>, mode: &mut u32) {
        if let Some(list) = list {
            *mode = *mode & !RIGHTS_BITS | list.rights();
        }
        if self.kill_set_group_id {
            *mode &= !SET_GROUP_ID;
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), PosixError> {
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(PosixError::TooLarge);
    }
    let spaces: [&[u8]; 3] = [USER_SPACE, b"trusted.", b"security."];
    let known = spaces.iter().any(|space| name.len() > space.len() && name.starts_with(space));
    if known || name == acl::ACCESS || name == acl::DEFAULT { Ok(()) } else { Err(PosixError::Unsupported) }
}

/// The value of an attribute that another store has of a file with this mode, as a mount would have stored it; `None`: no mount
/// would.
pub fn imported_xattr(name: &[u8], value: &[u8], mode: u32, is_directory: bool) -> Option<Vec<u8>> {
    check_name(name).ok().filter(|()| value.len() <= XATTR_VALUE_BYTES_MAX)?;
    if name != acl::ACCESS && name != acl::DEFAULT {
        return Some(value.to_vec());
    }
    let mut list = Acl::decode(value).filter(|list| !list.is_empty())?;
    if name == acl::DEFAULT {
        return is_directory.then(|| list.encode());
    }
    // Others change the mode alone (A3).
    list.set_rights(mode & RIGHTS_BITS);
    list.is_extended().then(|| list.encode())
}

impl Mount {
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes, PosixError> {
        check_name(name)?;
        if let Some(upstream) = self.options.upstream.as_ref().filter(|_| name == UPSTREAM_STATE) {
            // What is not published yet, the upstream does not know.
            let open = self.volume.open_files.get(ino).filter(|file| file.state.read().dirty());
            let unpublished = open.map(|file| format!("dirty {} bytes", file.entry().0.size));
            return Ok(unpublished.unwrap_or_else(|| upstream.state(ino)).into());
        }
        if let Some(header) = xattr_headers::header_of(name)
            && !self.is_directory(ino)?
            && let Some(value) = self.headers(ino)?.remove(&header)
        {
            return Ok(value.into());
        }
        let row = self.volume.engine.get(&key::xattr(ino, name)).map_err(Error::from)?.value;
        row.map(|row| row.value).ok_or(PosixError::NoAttribute)
    }

    /// Names, each followed by a zero byte, as `listxattr` returns them.
    pub fn list_xattrs(&self, ino: Ino) -> Result<Vec<u8>, PosixError> {
        let (mut names, is_directory) = (Vec::new(), self.is_directory(ino)?);
        // Of a link or a device the kernel reads no `user.*`, so S3's metadata of it is none here.
        let is_special = !is_directory && self.locate_file(ino)?.is_some_and(|located| located.file.kind() != 0);
        if !is_directory && !is_special {
            for (header, value) in &self.headers(ino)? {
                // Programs that copy attributes would set what nobody has set.
                if self.options.upstream.is_some() && xattr_headers::is_default(header, value) {
                    continue;
                }
                if let Some(name) = xattr_headers::name_of(header) {
                    names.extend_from_slice(name.as_bytes());
                    names.push(0);
                }
            }
        }
        self.volume.scan(&key::xattrs(ino), &mut Seen::default(), |row| {
            let name = key::parse_ino(row.key)?.1;
            if !is_special || !name.starts_with(USER_SPACE) {
                names.extend_from_slice(name);
                names.push(0);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(names)
    }

    /// `kill_set_group_id`: the kernel decided that setting this ACL clears the bit.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        kill_set_group_id: bool,
    ) -> Result<(), PosixError> {
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(PosixError::TooLarge);
        }
        self.volume.check_room()?;
        self.change_xattr(ino, &Change { name, value: Some(value), how, kill_set_group_id })
    }

    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), PosixError> {
        self.change_xattr(ino, &Change { name, value: None, how: SetXattr::Any, kill_set_group_id: false })
    }

    /// All headers of a file; none for one without a name.
    fn headers(&self, ino: Ino) -> Result<Headers, PosixError> {
        for _ in 0..TRIES_MAX {
            let Some(located) = self.locate_file(ino)? else { return Ok(Headers::new()) };
            if let Some(headers) = self.headers_of(&located)? {
                return Ok(headers);
            }
        }
        Err(Error::Busy.into())
    }

    /// `None` if the file was replaced meanwhile.
    fn headers_of(&self, located: &Located) -> Result<Option<Headers>, Error> {
        self.volume.while_unchanged(located, |seen| Ok(self.volume.info(located, seen)?.headers))
    }

    fn change_xattr(&self, ino: Ino, change: &Change<'_>) -> Result<(), PosixError> {
        check_name(change.name)?;
        if self.options.upstream.is_some() && change.name == UPSTREAM_STATE {
            return Err(PosixError::NotPermitted);
        }
        if self.is_directory(ino)? {
            return self.change(|one| Ok(((), Some(self.change_of_directory(ino, change, one)?))));
        }
        let _turn = self.volume.known.turn(ino);
        self.change(|one| {
            // Attributes of a file without a name would have no owner when it is closed.
            let located = self.locate_file(ino)?.ok_or(PosixError::Unsupported)?;
            self.check_unlocked(&located.file)?;
            let (file, done) = self.change_of_file(&located, change, one)?;
            self.row_changed(&file, done.version);
            self.opened_follows(ino, change, &file)?;
            Ok(((), Some(done)))
        })
    }

    /// A file with unpublished changes has a mode of its own, which the next publish puts into the row (A3).
    fn opened_follows(&self, ino: Ino, change: &Change<'_>, row: &FileEntry) -> Result<(), PosixError> {
        if change.name != acl::ACCESS || !self.opened(ino).is_some_and(|opened| opened.differs) {
            return Ok(());
        }
        let list = change.list()?;
        self.change_opened(ino, |file| {
            change.follow(list.as_ref(), &mut file.mode);
            file.changed = file.changed.max(row.changed);
        });
        Ok(())
    }

    fn change_of_directory(&self, ino: Ino, change: &Change<'_>, one: &mut Try) -> Result<Committed, Attempt> {
        let directory = self.directory(ino, one)?;
        let mut entry =
            DirectoryEntry { explicit: true, changed: Some(self.volume.now()), xattrs: true, ..directory.entry };
        let mut draft = Draft::default();
        directory.assert_in(&mut draft);
        self.draft_row(&mut draft, ino, change, &mut entry.mode, one)?;
        draft.put(directory.row_key.clone(), entry.encode());
        self.directories.forget(ino);
        self.commit(draft)
    }

    fn change_of_file(
        &self,
        located: &Located,
        change: &Change<'_>,
        one: &mut Try,
    ) -> Result<(FileEntry, Committed), Attempt> {
        let ino = located.file.ino;
        if change.name == acl::DEFAULT {
            // Only a directory has one; removing a missing one succeeds.
            return Err(if change.value.is_none() { PosixError::NoAttribute } else { PosixError::NotPermitted }.into());
        }
        let mut headers = self.headers_of(located)?.ok_or(Attempt::Conflict)?;
        let mut file = located.file.clone();
        let mut draft = Draft::default();
        draft.assert_version(located.row_key.clone(), located.version);
        let header = xattr_headers::header_of(change.name);
        let old = header.as_ref().and_then(|header| headers.remove(header));
        let fits = change.value.zip(header).and_then(|(value, header)| xattr_headers::fit(&headers, header, value));
        match fits {
            Some((header, value)) => {
                let row = key::xattr(ino, change.name);
                let in_row = file.xattrs && self.volume.get(&row, &mut one.seen)?.is_some();
                change.check(old.is_some() || in_row)?;
                if in_row {
                    draft.delete(row);
                }
                headers.insert(header, value);
            }
            None if change.value.is_none() && old.is_some() => {}
            None => {
                // A header whose new value does not fit does exist.
                let how = if old.is_some() && change.how == SetXattr::Replace { SetXattr::Any } else { change.how };
                if old.is_some() {
                    change.check(true)?;
                }
                file.xattrs = true;
                self.draft_row(&mut draft, ino, &Change { how, ..*change }, &mut file.mode, one)?;
            }
        }
        if file.header_rows {
            self.volume.delete_rows(&mut draft, &key::headers(ino))?;
        }
        file.headers = headers;
        file.changed = file.changed.max(self.volume.now());
        place::put_file(&mut draft, located.row_key.clone(), file.clone())?;
        let done = self.commit(draft)?;
        Ok((file, done))
    }

    /// Drafts the change of a row. The caller asserts and writes the row that tells that there are some.
    fn draft_row(
        &self,
        draft: &mut Draft,
        ino: Ino,
        change: &Change<'_>,
        mode: &mut u32,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        let row = key::xattr(ino, change.name);
        let is_there = self.volume.get(&row, &mut one.seen)?.is_some();
        let mut kept = change.value.map(<[u8]>::to_vec);
        if change.name == acl::ACCESS || change.name == acl::DEFAULT {
            let list = change.list()?;
            if change.name == acl::ACCESS {
                change.follow(list.as_ref(), mode);
            }
            kept = list.filter(|list| change.name == acl::DEFAULT || list.is_extended()).map(|list| list.encode());
        } else {
            change.check(is_there)?;
        }
        match kept {
            Some(value) => {
                if !is_there && self.names_bytes(ino)? + change.name.len() + 1 > LIST_BYTES_MAX {
                    return Err(PosixError::TooLarge.into());
                }
                draft.put(row, value);
            }
            None if is_there => draft.delete(row),
            None if change.value.is_none() => return Err(PosixError::NoAttribute.into()),
            None => {}
        }
        Ok(())
    }

    fn names_bytes(&self, ino: Ino) -> Result<usize, Error> {
        let mut bytes = 0;
        self.volume.scan(&key::xattrs(ino), &mut Seen::default(), |row| {
            bytes += row.key.len();
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(bytes)
    }
}
