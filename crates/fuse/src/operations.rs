//! The kernel's requests, answered by the volume; one file per group.
//!
//! Not here: decisions about the tree (volume), the wire format (session).

mod attributes;
mod directories;
mod files;
mod locks;
mod names;
mod space;

use std::time::Duration;

use bytes::Bytes;
use margay_volume::posix::{Name, NewFile, PosixError};

use crate::door::Door;
use crate::errno::errno;
use crate::names::{NameError, stored};
use crate::protocol::{
    Answer, At, AttributeChange, Attributes, Caller, Errno, LockWish, NewNode, Node, Opened, Operations, Side,
    Statistics, TakeLine, WriteFlags,
};

/// How long the kernel may keep names and attributes where it is told of changes: correctness needs no limit.
const KEEP_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Turns the volume's error into an error number.
fn answer<T>(result: Result<T, PosixError>) -> Answer<T> {
    result.map_err(|error| errno(&error))
}

fn name(bytes: &[u8]) -> Answer<Name> {
    stored(bytes).map_err(|error| match error {
        NameError::TooLong => Errno::NAMETOOLONG,
        NameError::Invalid => Errno::INVAL,
    })
}

impl Door {
    fn new_file(&self, caller: Caller, mode: u32, umask: u32) -> NewFile {
        NewFile {
            rights: mode & 0o7777,
            umask,
            uid: self.ownership.uid.unwrap_or(caller.uid),
            gid: self.ownership.gid.unwrap_or(caller.gid),
        }
    }
}

impl Operations for Door {
    fn lookup(&self, at: At<'_>) -> Answer<Option<Attributes>> {
        self.do_lookup(at)
    }
    fn forget(&self, node: Node, lookups: u64) {
        if node != crate::protocol::ROOT {
            self.mount.forget(self.ino(node), lookups);
        }
    }
    fn attributes(&self, node: Node) -> Answer<Attributes> {
        self.do_attributes(node)
    }
    fn keep_time_in(&self, directory: Node) -> Duration {
        self.mount.keeps_names_for(self.ino(directory)).unwrap_or(KEEP_TIME_MAX)
    }
    fn keep_absent_time_in(&self, directory: Node) -> Duration {
        self.mount.keeps_absences_for(self.ino(directory)).unwrap_or(KEEP_TIME_MAX)
    }
    fn keep_time_of(&self, node: Node) -> Duration {
        self.mount.keeps_attributes_for(self.ino(node)).unwrap_or(KEEP_TIME_MAX)
    }
    fn set_attributes(&self, node: Node, change: &AttributeChange) -> Answer<Attributes> {
        self.do_set_attributes(node, change)
    }
    fn read_symlink(&self, node: Node) -> Answer<Bytes> {
        answer(self.mount.read_symlink(self.ino(node)))
    }

    fn make_file(&self, caller: Caller, new: NewNode<'_>, device: u32) -> Answer<Attributes> {
        self.do_make_file(caller, new, device)
    }
    fn make_directory(&self, caller: Caller, new: NewNode<'_>) -> Answer<Attributes> {
        let what = self.new_file(caller, new.mode, new.umask);
        let made = self.mount.make_directory(self.ino(new.parent), &name(new.name)?, &what);
        answer(made).map(|made| self.shown(made))
    }
    fn make_symlink(&self, caller: Caller, at: At<'_>, target: &[u8]) -> Answer<Attributes> {
        let what = self.new_file(caller, 0o777, 0);
        let made = self.mount.make_symlink(self.ino(at.parent), &name(at.name)?, target, &what);
        answer(made).map(|made| self.shown(made))
    }
    fn link(&self, node: Node, at: At<'_>) -> Answer<Attributes> {
        let made = self.mount.link(self.ino(node), self.ino(at.parent), &name(at.name)?);
        answer(made).map(|made| self.shown(made))
    }
    fn unlink(&self, at: At<'_>) -> Answer<()> {
        answer(self.mount.unlink(self.ino(at.parent), &name(at.name)?))
    }
    fn remove_directory(&self, at: At<'_>) -> Answer<()> {
        answer(self.mount.remove_directory(self.ino(at.parent), &name(at.name)?))
    }
    fn rename(&self, from: At<'_>, to: At<'_>, flags: u32) -> Answer<()> {
        self.do_rename(from, to, flags)
    }

    fn create(&self, caller: Caller, new: NewNode<'_>, flags: i32) -> Answer<(Attributes, u64)> {
        self.do_create(caller, new, flags)
    }
    fn open(&self, caller: Caller, node: Node, flags: i32) -> Answer<Opened> {
        self.do_open(caller, node, flags)
    }
    fn read(&self, handle: u64, offset: u64, len: usize) -> Answer<Bytes> {
        answer(self.mount.read(&self.file(handle)?.handle, offset, len))
    }
    fn write(&self, handle: u64, offset: u64, bytes: &[u8], flags: WriteFlags, taken: &mut dyn FnMut()) -> Answer<()> {
        self.do_write(handle, offset, bytes, flags, taken)
    }
    fn make_room(&self) -> bool {
        self.mount.volume().make_room()
    }
    fn flush(&self, handle: u64) -> Answer<()> {
        self.do_flush(handle)
    }
    fn flush_waits(&self, handle: u64) -> bool {
        self.do_flush_waits(handle)
    }
    fn sync(&self, handle: u64) -> Answer<()> {
        answer(self.mount.sync(&self.file(handle)?.handle))
    }
    fn release(&self, handle: u64) -> Answer<()> {
        self.do_release(handle)
    }
    fn allocate(&self, caller: Caller, handle: u64, mode: i32, offset: u64, len: u64) -> Answer<()> {
        self.do_allocate(caller, handle, mode, offset, len)
    }
    fn seek(&self, handle: u64, offset: u64, whence: i32) -> Answer<u64> {
        self.do_seek(handle, offset, whence)
    }
    fn copy_range(&self, caller: Caller, from: Side, to: Side, len: u64) -> Answer<u64> {
        self.do_copy_range(caller, from, to, len)
    }

    fn lock(&self, node: Node, handle: u64, wish: &LockWish) -> Answer<()> {
        self.do_lock(node, handle, wish)
    }
    fn unlock(&self, handle: u64, wish: &LockWish) -> Answer<()> {
        self.do_unlock(handle, wish)
    }
    fn unlock_closed(&self, handle: u64, owner: u64) -> Answer<()> {
        self.do_unlock_closed(handle, owner)
    }
    fn locked_by(&self, handle: u64, wish: &LockWish) -> Answer<Option<LockWish>> {
        answer(self.mount.locked_by(&self.file(handle)?.handle, wish))
    }

    fn open_directory(&self, node: Node) -> Answer<u64> {
        self.do_open_directory(node)
    }
    fn read_directory(&self, handle: u64, cookie: u64, with_attributes: bool, take: &mut TakeLine<'_>) -> Answer<()> {
        self.do_read_directory(handle, cookie, with_attributes, take)
    }
    fn release_directory(&self, handle: u64) {
        self.directories.remove(handle);
    }
    fn sync_directory(&self) -> Answer<()> {
        answer(self.mount.sync_directory())
    }

    fn get_xattr(&self, node: Node, name: &[u8]) -> Answer<Bytes> {
        answer(self.mount.get_xattr(self.ino(node), name))
    }
    fn set_xattr(&self, caller: Caller, node: Node, name: &[u8], value: &[u8], flags: i32) -> Answer<()> {
        self.do_set_xattr(caller, node, name, value, flags)
    }
    fn list_xattrs(&self, caller: Caller, node: Node) -> Answer<Vec<u8>> {
        self.do_list_xattrs(caller, node)
    }
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Answer<()> {
        answer(self.mount.remove_xattr(self.ino(node), name))
    }
    fn statistics(&self) -> Answer<Statistics> {
        answer(self.mount.statistics())
    }
}
