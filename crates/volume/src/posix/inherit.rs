//! What a new entry inherits from its directory: group, permissions, access control lists.
//!
//! Why:        files, directories and special files inherit alike.
//! Invariants: I1 the directory's entry, which the commit asserts, tells whether there are lists and changes with them.
//!                The umask applies only without a default list.

use margay_rows::record::entry::MODE_RIGHTS;
use margay_rows::{Ino, key};

use crate::draft::Draft;
use crate::posix::acl::{self, Acl, RIGHTS_BITS};
use crate::posix::api::{FileKind, NewFile, PosixError};
use crate::posix::locate::LocatedDirectory;
use crate::posix::mount::Mount;

const SET_GROUP_ID: u32 = 0o2000;

#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) rights: u32,
    pub(crate) gid: u32,
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Inherited {
    pub(crate) fn has_xattrs(&self) -> bool {
        self.access.is_some() || self.default.is_some()
    }

    /// Drafts the rows of the lists of a new entry with this number.
    pub(crate) fn draft(&self, draft: &mut Draft, ino: Ino) {
        for (name, list) in [(acl::ACCESS, &self.access), (acl::DEFAULT, &self.default)] {
            if let Some(list) = list {
                draft.put(key::xattr(ino, name), list.encode());
            }
        }
    }
}

impl Mount {
    pub(crate) fn inherit(
        &self,
        new: &NewFile,
        parent: &LocatedDirectory,
        kind: FileKind,
    ) -> Result<Inherited, PosixError> {
        let group = parent.entry.mode & SET_GROUP_ID;
        let gid = if group != 0 { parent.entry.gid } else { new.gid };
        let mut rights = new.rights & MODE_RIGHTS;
        if kind == FileKind::Directory {
            rights |= group;
        }
        let list = if parent.entry.xattrs && kind != FileKind::Symlink {
            self.acl_of(parent.entry.ino, acl::DEFAULT)?
        } else {
            None
        };
        let Some(list) = list else {
            return Ok(Inherited { rights: rights & !new.umask, gid, access: None, default: None });
        };
        let access = list.inherited(rights);
        rights = rights & !RIGHTS_BITS | access.rights();
        let access = access.is_extended().then_some(access);
        let default = (kind == FileKind::Directory).then_some(list);
        Ok(Inherited { rights, gid, access, default })
    }

    /// A stored access control list; a damaged one counts as none.
    pub(crate) fn acl_of(&self, ino: Ino, name: &[u8]) -> Result<Option<Acl>, PosixError> {
        let row = self.volume.engine.get(&key::xattr(ino, name)).map_err(crate::api::Error::from)?.value;
        Ok(row.and_then(|row| Acl::decode(&row.value)))
    }
}
