//! Turns fuser's requests into calls of `Operations`, and their results into replies.
//!
//! Why:        every call is timed here, once for all operations; calls that wait for a disk move to other threads.
//! Invariants: A1 every request is answered exactly once.
//!             A2 the kernel handles file locks itself, because their FUSE capabilities are not requested.
//! Not here:   any decision.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    TimeOrNow, WriteFlags,
};
use margay_env::{Clock, Env};

use super::reply::{at, attributes, caller, data, empty, entry, keep_time, new, opened, written, xattr};
use super::{BACKGROUND_MAX, KEEP_TIME_MAX, READ_AHEAD_BYTES, REQUEST_BYTES_MAX, SessionOptions, convert};
use crate::absent::AbsentNames;
use crate::metrics::{Metrics, Request};
use crate::protocol::{Answer, AttributeChange, Errno, Operations, Side};
use crate::waiters::Waiters;

/// Longest name that `statfs` reports, in bytes.
const NAME_BYTES_MAX: u32 = 255;
/// Block size that `statfs` reports, in bytes.
const STATISTICS_BLOCK_BYTES: u32 = 4096;
/// Capabilities that are requested if the kernel has them. Not FUSE_ASYNC_DIO: after an asynchronous direct write the
/// kernel keeps the pages that were cached before it, and every later read returns them.
const WANTED: [InitFlags; 13] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    // A file is found by its name: a file handle could not be opened once the kernel has forgotten the inode.
    InitFlags::FUSE_NO_EXPORT_SUPPORT,
];

#[derive(Debug)]
pub(super) struct Adapter<O> {
    pub(super) work: Arc<Work<O>>,
    pub(super) waiters: Waiters,
    writeback: bool,
    suid: bool,
    absent: Arc<AbsentNames>,
}

/// State that work on other threads needs too.
#[derive(Debug)]
pub(super) struct Work<O> {
    pub(super) operations: Arc<O>,
    /// Bytes of writes that wait for space.
    pub(super) waiting_bytes: AtomicU64,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
}

impl<O: Operations> Work<O> {
    pub(super) fn measured<T>(&self, request: Request, call: impl FnOnce(&O) -> Answer<T>) -> Answer<T> {
        let begun = self.clock.monotonic();
        let answer = call(&self.operations);
        self.metrics.record(request, self.clock.monotonic().saturating_sub(begun), answer.is_err());
        answer
    }
}

impl<O: Operations> Adapter<O> {
    pub(super) fn new(
        operations: Arc<O>,
        metrics: Arc<Metrics>,
        options: &SessionOptions,
        absent: Arc<AbsentNames>,
        env: &Env,
    ) -> Adapter<O> {
        let (clock, waiting_bytes) = (Arc::clone(&env.clock), AtomicU64::default());
        let work = Work { operations, waiting_bytes, metrics, clock };
        let (writeback, suid) = (options.writeback, options.suid);
        Adapter { work: Arc::new(work), waiters: Waiters::default(), writeback, suid, absent }
    }

    fn call<T>(&self, request: Request, call: impl FnOnce(&O) -> Answer<T>) -> Answer<T> {
        self.work.measured(request, call)
    }
}

impl<O: Operations> Filesystem for Adapter<O> {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wanted in WANTED {
            // An older kernel falls back for capabilities that it lacks.
            let _ = config.add_capabilities(wanted);
        }
        if self.writeback {
            let _ = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        // With this capability the kernel leaves clearing set-id bits to the server and shows the old mode meanwhile,
        // so a program that was just overwritten could run with them. Without it the kernel clears them before the
        // first byte changes, but asks for file capabilities on each write: so only mounts that honour these bits go
        // without.
        if !self.suid {
            let _ = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(READ_AHEAD_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.call(Request::Lookup, |operations| operations.lookup(at(parent, name))) {
            Ok(Some(found)) => entry(reply, Ok(found)),
            Ok(None) => {
                let keep = self.absent.keep_time(parent.0, name.as_bytes());
                reply.entry_with_ttls(&Duration::ZERO, &keep, &convert::absent(), Generation(0));
            }
            Err(error) => reply.error(convert::errno(error)),
        }
    }

    fn forget(&self, _: &fuser::Request, node: INodeNo, lookups: u64) {
        let _ = self.call(Request::Forget, |operations| {
            operations.forget(node.0, lookups);
            Ok(())
        });
    }

    fn getattr(&self, _: &fuser::Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply, self.call(Request::GetAttributes, |operations| operations.attributes(node.0)));
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
        attributes(reply, self.call(Request::SetAttributes, |operations| operations.set_attributes(node.0, &change)));
    }

    fn readlink(&self, _: &fuser::Request, node: INodeNo, reply: ReplyData) {
        data(reply, self.call(Request::ReadSymlink, |operations| operations.read_symlink(node.0)));
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
        let new = new(parent, name, mode, umask);
        entry(reply, self.call(Request::MakeFile, |operations| operations.make_file(caller(request), new, device)));
    }

    fn mkdir(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = new(parent, name, mode, umask);
        entry(reply, self.call(Request::MakeDirectory, |operations| operations.make_directory(caller(request), new)));
    }

    fn unlink(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.call(Request::Unlink, |operations| operations.unlink(at(parent, name))));
    }

    fn rmdir(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.call(Request::RemoveDirectory, |operations| operations.remove_directory(at(parent, name))));
    }

    fn symlink(&self, request: &fuser::Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let make = |operations: &O| operations.make_symlink(caller(request), at(parent, name), target);
        entry(reply, self.call(Request::MakeSymlink, make));
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
        let (from, to) = (at(parent, name), at(new_parent, new_name));
        empty(reply, self.call(Request::Rename, |operations| operations.rename(from, to, flags.bits())));
    }

    fn link(&self, _: &fuser::Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.call(Request::Link, |operations| operations.link(node.0, at(parent, name))));
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
        let new = new(parent, name, mode, umask);
        match self.call(Request::Create, |operations| operations.create(caller(request), new, flags)) {
            Ok((made, handle)) => reply.created(
                &keep_time(&made),
                &convert::attributes(&made),
                Generation(0),
                FileHandle(handle),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(convert::errno(error)),
        }
    }

    fn open(&self, request: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let answer = self.call(Request::Open, |operations| operations.open(caller(request), node.0, flags.0));
        opened(reply, FopenFlags::FOPEN_KEEP_CACHE, answer);
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
        data(reply, self.call(Request::Read, |operations| operations.read(handle.0, offset, size as usize)));
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
        let mut reply = Some(reply);
        let mut taken = || written(&mut reply, bytes.len());
        let answer =
            self.call(Request::Write, |operations| operations.write(handle.0, offset, bytes, flags, &mut taken));
        match (answer, reply) {
            (Err(Errno::NOSPC), Some(reply)) => self.write_later(handle.0, offset, bytes, flags, reply),
            (Err(error), Some(reply)) => reply.error(convert::errno(error)),
            _ => {}
        }
    }

    fn flush(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if self.work.operations.flush_waits(handle.0) {
            return self.wait_for_room(Request::Flush, reply, move |operations| operations.flush(handle.0));
        }
        match self.call(Request::Flush, |operations| operations.flush(handle.0)) {
            Err(Errno::NOSPC) => {
                self.wait_for_room(Request::Flush, reply, move |operations| operations.flush(handle.0))
            }
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
        if self.work.operations.flush_waits(handle.0) {
            self.wait(Request::Release, reply, move |operations| operations.release(handle.0));
        } else {
            empty(reply, self.call(Request::Release, |operations| operations.release(handle.0)));
        }
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait_for_room(Request::Sync, reply, move |operations| operations.sync(handle.0));
    }

    fn opendir(&self, _: &fuser::Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let answer = self.call(Request::OpenDirectory, |operations| operations.open_directory(node.0));
        opened(reply, FopenFlags::empty(), answer);
    }

    fn readdir(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        let answer = self.call(Request::ReadDirectory, |operations| {
            operations.read_directory(handle.0, cookie, false, &mut |line| {
                !reply.add(INodeNo(line.node), line.cookie, convert::kind(line.kind), OsStr::from_bytes(line.name))
            })
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(convert::errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let answer = self.call(Request::ReadDirectoryPlus, |operations| {
            operations.read_directory(handle.0, cookie, true, &mut |line| {
                // Without attributes the number stays 0, and the kernel looks the name up when it needs it.
                let found = line.attributes.map_or_else(convert::absent, convert::attributes);
                let keep = line.attributes.map_or(KEEP_TIME_MAX, keep_time);
                let name = OsStr::from_bytes(line.name);
                !reply.add(INodeNo(line.node), line.cookie, name, &keep, &found, Generation(0))
            })
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(convert::errno(error)),
        }
    }

    fn releasedir(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let release = |operations: &O| {
            operations.release_directory(handle.0);
            Ok(())
        };
        empty(reply, self.call(Request::ReleaseDirectory, release));
    }

    fn fsyncdir(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait(Request::SyncDirectory, reply, |operations| operations.sync_directory());
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        match self.call(Request::Statistics, |operations| operations.statistics()) {
            Ok(found) => {
                let blocks = |bytes: u64| bytes / u64::from(STATISTICS_BLOCK_BYTES);
                let (free, available) = (blocks(found.free_bytes), blocks(found.available_bytes));
                // Files need no reserved inodes: as many more fit as there are free blocks.
                let files = found.files.saturating_add(available);
                let size = STATISTICS_BLOCK_BYTES;
                reply.statfs(blocks(found.total_bytes), free, available, files, available, size, NAME_BYTES_MAX, size);
            }
            Err(error) => reply.error(convert::errno(error)),
        }
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
        let set = |operations: &O| operations.set_xattr(caller(request), node.0, name.as_bytes(), value, flags);
        empty(reply, self.call(Request::SetXattr, set));
    }

    fn getxattr(&self, _: &fuser::Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let answer = self.call(Request::GetXattr, |operations| operations.get_xattr(node.0, name.as_bytes()));
        xattr(reply, size, answer);
    }

    fn listxattr(&self, request: &fuser::Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let answer = self.call(Request::ListXattrs, |operations| operations.list_xattrs(caller(request), node.0));
        xattr(reply, size, answer);
    }

    fn removexattr(&self, _: &fuser::Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |operations: &O| operations.remove_xattr(node.0, name.as_bytes());
        empty(reply, self.call(Request::RemoveXattr, remove));
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
        let allocate = |operations: &O| operations.allocate(caller(request), handle.0, mode, offset, len);
        empty(reply, self.call(Request::Allocate, allocate));
    }

    fn lseek(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let seek = |operations: &O| {
            let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            let found = operations.seek(handle.0, offset, whence)?;
            i64::try_from(found).map_err(|_| Errno::OVERFLOW)
        };
        match self.call(Request::Seek, seek) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(convert::errno(error)),
        }
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
        match self.call(Request::CopyRange, |operations| operations.copy_range(caller(request), from, to, len)) {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => reply.error(convert::errno(error)),
        }
    }
}
