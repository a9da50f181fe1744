//! Requests about names: lookup, create, link, rename, remove.

use margay_volume::posix::{FileKind, PosixError, RenameMode};
use rustix::fs::{FileType, RenameFlags};

use super::{answer, name};
use crate::door::Door;
use crate::errno::errno;
use crate::names::{NameError, stored};
use crate::protocol::{Answer, At, Attributes, Caller, Errno, NewNode};

impl Door {
    pub(super) fn do_lookup(&self, at: At<'_>) -> Answer<Option<Attributes>> {
        let name = match stored(at.name) {
            Ok(name) => name,
            Err(NameError::TooLong) => return Err(Errno::NAMETOOLONG),
            // No file can be stored under such a name, so it does not exist.
            Err(NameError::Invalid) => return Ok(None),
        };
        match self.mount.lookup(self.ino(at.parent), &name) {
            Ok(found) => Ok(Some(self.shown(found))),
            Err(PosixError::NotFound) => Ok(None),
            Err(error) => Err(errno(&error)),
        }
    }

    pub(super) fn do_make_file(&self, caller: Caller, new: NewNode<'_>, device: u32) -> Answer<Attributes> {
        let kind = match FileType::from_raw_mode(new.mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice => FileKind::CharDevice,
            FileType::BlockDevice => FileKind::BlockDevice,
            _ if new.mode & 0o170_000 == 0 => FileKind::Regular,
            _ => return Err(Errno::INVAL),
        };
        let what = self.new_file(caller, new.mode, new.umask);
        let made = self.mount.make_file(self.ino(new.parent), &name(new.name)?, &what, kind, device);
        answer(made).map(|made| self.shown(made))
    }

    pub(super) fn do_rename(&self, from: At<'_>, to: At<'_>, flags: u32) -> Answer<()> {
        let mode = match RenameFlags::from_bits(flags) {
            Some(flags) if flags.is_empty() => RenameMode::Replace,
            Some(flags) if flags == RenameFlags::NOREPLACE => RenameMode::NoReplace,
            Some(flags) if flags == RenameFlags::EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let (old, new) = (name(from.name)?, name(to.name)?);
        answer(self.mount.rename(self.ino(from.parent), &old, self.ino(to.parent), &new, mode))
    }
}
