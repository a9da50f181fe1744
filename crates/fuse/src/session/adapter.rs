//! Turns fuser's requests into calls of `Operations`, and their results into replies.
//!
//! Why:        every call is timed here, once for all operations.
//! Invariants: A1 every request is answered exactly once.
//!             A2 the kernel handles file locks itself, because their FUSE capabilities are not requested, unless others must see
//!                them (locks).
//! Not here:   any decision; on which thread a call runs (work).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, TimeOrNow, WriteFlags,
};

use super::convert;
use super::locks::{UNLOCK, wish};
use super::reply::{
    at, attributes, caller, created, data, empty, entry, keep_time, new, opened, opened_file, statistics, written,
    xattr,
};
use super::waiting_locks::LockRequest;
use super::work::Adapter;
use crate::metrics::Request;
use crate::protocol::{AttributeChange, Errno, Operations, Side};

impl<O: Operations> Filesystem for Adapter<O> {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.choice.request(config);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.serve(move |work| {
            match work.measured(Request::Lookup, |operations| operations.lookup(at(parent, &name))) {
                Ok(Some(found)) => entry(reply, work.keep_time_in(parent), Ok(found)),
                Ok(None) => {
                    let keep = work.absent.keep_time(parent.0, name.as_bytes()).min(work.keep_absent_time_in(parent));
                    reply.entry_with_ttls(&Duration::ZERO, &keep, &convert::absent(), Generation(0));
                }
                Err(error) => reply.error(convert::errno(error)),
            }
        });
    }

    fn forget(&self, _: &fuser::Request, node: INodeNo, lookups: u64) {
        let _ = self.work.measured(Request::Forget, |operations| {
            operations.forget(node.0, lookups);
            Ok(())
        });
    }

    fn getattr(&self, _: &fuser::Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let get = move |operations: &O| operations.attributes(node.0);
        self.serve(move |work| {
            let answer = work.measured(Request::GetAttributes, get);
            attributes(reply, work.keep_time_of(node), answer);
        });
    }

    fn setattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let owner = uid.is_some() || gid.is_some();
        let nothing = !owner && (mode, size) == (None, None) && accessed.is_none() && modified.is_none();
        let change = AttributeChange {
            rights: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            accessed: convert::set_time(accessed),
            modified: convert::set_time(modified),
            // fuser does not pass on FATTR_KILL_SUIDGID, which says that a truncating process lacks CAP_FSETID. A
            // request without any change is chown(-1, -1).
            kill_privileges: nothing || owner || (size.is_some() && caller(request).kills_privileges()),
        };
        let set = move |operations: &O| operations.set_attributes(node.0, &change);
        self.serve(move |work| {
            let answer = work.measured(Request::SetAttributes, set);
            attributes(reply, work.keep_time_of(node), answer);
        });
    }

    fn readlink(&self, _: &fuser::Request, node: INodeNo, reply: ReplyData) {
        let read = move |operations: &O| operations.read_symlink(node.0);
        self.serve(move |work| data(reply, work.measured(Request::ReadSymlink, read)));
    }

    fn mknod(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (name, caller) = (name.to_owned(), caller(request));
        let make = move |operations: &O| operations.make_file(caller, new(parent, &name, mode, umask), device);
        self.serve(move |work| {
            let answer = work.measured(Request::MakeFile, make);
            entry(reply, work.keep_time_in(parent), answer);
        });
    }

    fn mkdir(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (name, caller) = (name.to_owned(), caller(request));
        let make = move |operations: &O| operations.make_directory(caller, new(parent, &name, mode, umask));
        self.serve(move |work| {
            let answer = work.measured(Request::MakeDirectory, make);
            entry(reply, work.keep_time_in(parent), answer);
        });
    }

    fn unlink(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let unlink = move |operations: &O| operations.unlink(at(parent, &name));
        self.serve(move |work| empty(reply, work.measured(Request::Unlink, unlink)));
    }

    fn rmdir(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let remove = move |operations: &O| operations.remove_directory(at(parent, &name));
        self.serve(move |work| empty(reply, work.measured(Request::RemoveDirectory, remove)));
    }

    fn symlink(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (name, target, caller) = (name.to_owned(), target.as_os_str().as_bytes().to_vec(), caller(request));
        let make = move |operations: &O| operations.make_symlink(caller, at(parent, &name), &target);
        self.serve(move |work| {
            let answer = work.measured(Request::MakeSymlink, make);
            entry(reply, work.keep_time_in(parent), answer);
        });
    }

    fn rename(
        &self,
        _: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let rename =
            move |operations: &O| operations.rename(at(parent, &name), at(new_parent, &new_name), flags.bits());
        self.serve(move |work| empty(reply, work.measured(Request::Rename, rename)));
    }

    fn link(&self, _: &fuser::Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        let link = move |operations: &O| operations.link(node.0, at(parent, &name));
        self.serve(move |work| {
            let answer = work.measured(Request::Link, link);
            entry(reply, work.keep_time_in(parent), answer);
        });
    }

    fn create(
        &self,
        request: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, caller) = (name.to_owned(), caller(request));
        let create = move |operations: &O| operations.create(caller, new(parent, &name, mode, umask), flags);
        self.serve(move |work| {
            let answer = work.measured(Request::Create, create);
            created(reply, work.keep_time_in(parent), answer);
        });
    }

    fn open(&self, request: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = caller(request);
        let open = move |operations: &O| operations.open(caller, node.0, flags.0);
        self.serve(move |work| opened_file(reply, work.measured(Request::Open, open)));
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = move |operations: &O| operations.read(handle.0, offset, size as usize);
        self.serve(move |work| data(reply, work.measured(Request::Read, read)));
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = crate::protocol::WriteFlags {
            kill_privileges: flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            page: flags.contains(WriteFlags::FUSE_WRITE_CACHE),
        };
        let Some(_seat) = self.work.seats.take() else {
            return self.write_later(handle.0, offset, bytes, flags, reply, false);
        };
        let mut reply = Some(reply);
        let mut taken = || written(&mut reply, bytes.len());
        let write = |operations: &O| operations.write(handle.0, offset, bytes, flags, &mut taken);
        let answer = self.work.measured(Request::Write, write);
        assert!(answer.is_err() || reply.is_none(), "a write that succeeded was answered (A1)");
        match (answer, reply) {
            (Err(Errno::NOSPC), Some(reply)) => self.write_later(handle.0, offset, bytes, flags, reply, true),
            (Err(error), Some(reply)) => reply.error(convert::errno(error)),
            _ => {}
        }
    }

    fn flush(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let unlocks = self.choice.asks_for_locks();
        let flush = move |operations: &O| {
            let flushed = operations.flush(handle.0);
            // What was written under a lock is published before.
            let unlocked = if unlocks { operations.unlock_closed(handle.0, owner.0) } else { Ok(()) };
            flushed.and(unlocked)
        };
        let seat = self.work.seats.take();
        if seat.is_none() || self.work.operations.flush_waits(handle.0) {
            return self.wait_for_room(Request::Flush, reply, flush);
        }
        match self.work.measured(Request::Flush, flush) {
            Err(Errno::NOSPC) => self.wait_for_room(Request::Flush, reply, flush),
            answer => empty(reply, answer),
        }
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let release = move |operations: &O| operations.release(handle.0);
        let seat = self.work.seats.take();
        if seat.is_none() || self.work.operations.flush_waits(handle.0) {
            self.wait(Request::Release, reply, release);
        } else {
            empty(reply, self.work.measured(Request::Release, release));
        }
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait_for_room(Request::Sync, reply, move |operations| operations.sync(handle.0));
    }

    fn opendir(&self, _: &fuser::Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let answer = self.work.measured(Request::OpenDirectory, |operations| operations.open_directory(node.0));
        opened(reply, FopenFlags::empty(), answer);
    }

    fn readdir(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        self.serve(move |work| {
            let answer = work.measured(Request::ReadDirectory, |operations| {
                operations.read_directory(handle.0, cookie, false, &mut |line| {
                    !reply.add(INodeNo(line.node), line.cookie, convert::kind(line.kind), OsStr::from_bytes(line.name))
                })
            });
            match answer {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(convert::errno(error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.serve(move |work| {
            // Once for all lines.
            let mut most = None;
            let answer = work.measured(Request::ReadDirectoryPlus, |operations| {
                operations.read_directory(handle.0, cookie, true, &mut |line| {
                    // Without attributes the number stays 0, and the kernel looks the name up when it needs it.
                    let found = line.attributes.map_or_else(convert::absent, convert::attributes);
                    let most = *most.get_or_insert_with(|| work.keep_time_in(node));
                    let keep = line.attributes.map_or(most, |found| keep_time(found, most));
                    let name = OsStr::from_bytes(line.name);
                    !reply.add(INodeNo(line.node), line.cookie, name, &keep, &found, Generation(0))
                })
            });
            match answer {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(convert::errno(error)),
            }
        });
    }

    fn releasedir(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let release = |operations: &O| {
            operations.release_directory(handle.0);
            Ok(())
        };
        empty(reply, self.work.measured(Request::ReleaseDirectory, release));
    }

    fn fsyncdir(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait(Request::SyncDirectory, reply, |operations| operations.sync_directory());
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        self.serve(move |work| {
            statistics(reply, work.measured(Request::Statistics, |operations| operations.statistics()))
        });
    }

    fn setxattr(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, name, value) = (caller(request), name.as_bytes().to_vec(), value.to_vec());
        let set = move |operations: &O| operations.set_xattr(caller, node.0, &name, &value, flags);
        self.serve(move |work| empty(reply, work.measured(Request::SetXattr, set)));
    }

    fn getxattr(&self, _: &fuser::Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes().to_vec();
        let get = move |operations: &O| operations.get_xattr(node.0, &name);
        self.serve(move |work| xattr(reply, size, work.measured(Request::GetXattr, get)));
    }

    fn listxattr(&self, request: &fuser::Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = caller(request);
        let list = move |operations: &O| operations.list_xattrs(caller, node.0);
        self.serve(move |work| xattr(reply, size, work.measured(Request::ListXattrs, list)));
    }

    fn removexattr(&self, _: &fuser::Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let remove = move |operations: &O| operations.remove_xattr(node.0, &name);
        self.serve(move |work| empty(reply, work.measured(Request::RemoveXattr, remove)));
    }

    fn getlk(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        process: u32,
        reply: ReplyLock,
    ) {
        self.locked_by(handle.0, &wish(owner, (first, last), kind, process), reply);
    }

    fn setlk(
        &self,
        request: &fuser::Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        process: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let wish = wish(owner, (first, last), kind, process);
        match kind {
            UNLOCK => self.unlock(handle.0, wish, reply),
            _ => self.lock(LockRequest { node: node.0, handle: handle.0, wish, task: request.pid(), waits }, reply),
        }
    }

    fn access(&self, _: &fuser::Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself (default_permissions) and should not ask.
        reply.ok();
    }

    fn ioctl(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(convert::errno(Errno::NOTTY));
    }

    fn fallocate(
        &self,
        request: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request);
        let allocate = move |operations: &O| operations.allocate(caller, handle.0, mode, offset, len);
        self.serve(move |work| empty(reply, work.measured(Request::Allocate, allocate)));
    }

    fn lseek(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let seek = move |operations: &O| {
            let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            let found = operations.seek(handle.0, offset, whence)?;
            i64::try_from(found).map_err(|_| Errno::OVERFLOW)
        };
        self.serve(move |work| match work.measured(Request::Seek, seek) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(convert::errno(error)),
        });
    }

    fn copy_file_range(
        &self,
        request: &fuser::Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply has 32 bits for the length.
        let len = len.min(u64::from(u32::MAX) & !0xfffff);
        let from = Side { handle: from.0, offset: from_offset };
        let to = Side { handle: to.0, offset: to_offset };
        let caller = caller(request);
        let copy = move |operations: &O| operations.copy_range(caller, from, to, len);
        self.serve(move |work| match work.measured(Request::CopyRange, copy) {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => reply.error(convert::errno(error)),
        });
    }
}
