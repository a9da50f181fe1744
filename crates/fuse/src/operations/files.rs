//! Requests about open files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_volume::posix::{self, Kept, OpenFlags};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::{answer, name};
use crate::door::{Door, OpenFile};
use crate::protocol::{Answer, Attributes, Caller, Errno, NewNode, Node, Opened, Side, WriteFlags};

/// A close waits for the disk when more bytes than this were written since the last one: up to this size, data travels
/// in the log.
const FLUSH_BYTES_QUICK: u64 = 1 << 20;
/// Writes that may be answered before they finish, at once. While such a write goes on, the next write to the same file
/// may block a second thread, and other requests need threads too.
const EARLY_ANSWERS_MAX: usize = 2;

impl Door {
    pub(super) fn file(&self, handle: u64) -> Answer<Arc<OpenFile>> {
        self.files.get(handle).ok_or(Errno::BADF)
    }

    fn opened(&self, handle: margay_volume::posix::Handle) -> u64 {
        let (number, written) = (self.opened.fetch_add(1, Ordering::Relaxed), AtomicU64::new(0));
        self.files.insert(OpenFile { handle, number, written, lock_owners: Mutex::default() })
    }

    fn open_flags(&self, caller: Caller, flags: i32) -> OpenFlags {
        let flags = OFlags::from_bits_retain(flags as u32);
        let way = flags & OFlags::ACCMODE;
        let truncate = flags.contains(OFlags::TRUNC);
        OpenFlags {
            // With the writeback cache the kernel reads pages even of files opened for writing only, and tracks the end
            // of the file itself.
            read: way != OFlags::WRONLY || self.writeback,
            write: way == OFlags::WRONLY || way == OFlags::RDWR,
            append: flags.contains(OFlags::APPEND) && !self.writeback,
            truncate,
            exclusive: flags.contains(OFlags::EXCL),
            // fuser does not pass on FUSE_OPEN_KILL_SUIDGID.
            kill_privileges: truncate && caller.kills_privileges(),
        }
    }

    pub(super) fn do_create(&self, caller: Caller, new: NewNode<'_>, flags: i32) -> Answer<(Attributes, u64)> {
        let what = self.new_file(caller, new.mode, new.umask);
        let flags = self.open_flags(caller, flags);
        let made = self.mount.create(self.ino(new.parent), &name(new.name)?, &what, flags);
        let (made, handle) = answer(made)?;
        Ok((self.shown(made), self.opened(handle)))
    }

    pub(super) fn do_open(&self, caller: Caller, node: Node, flags: i32) -> Answer<Opened> {
        let handle = answer(self.mount.open_file(self.ino(node), self.open_flags(caller, flags)))?;
        let kept = self.mount.kept_at_open(&handle);
        if kept != Kept::All {
            // Pages are dropped by the answer.
            self.forget_attributes(node);
        }
        Ok(Opened { handle: self.opened(handle), keeps_pages: kept != Kept::Nothing })
    }

    pub(super) fn do_write(
        &self,
        handle: u64,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        taken: &mut dyn FnMut(),
    ) -> Answer<()> {
        let file = self.file(handle)?;
        let mut early = false;
        let counted = || {
            // Counted before the answer: a close that follows it reads the sum.
            file.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            early = self.begin_early_answer();
            if early {
                taken();
            }
        };
        let WriteFlags { kill_privileges, page } = flags;
        let flags = posix::WriteFlags { kill_privileges, page };
        let done = answer(self.mount.write_taken(&file.handle, offset, bytes, flags, counted));
        if early {
            let before = self.early_answers.fetch_sub(1, Ordering::Relaxed);
            assert!((1..=EARLY_ANSWERS_MAX).contains(&before), "a write that was answered early is counted once");
        } else if done.is_ok() {
            taken();
        }
        done
    }

    /// False when enough threads are busy with writes that were already answered.
    fn begin_early_answer(&self) -> bool {
        let one_more = |now| (now < EARLY_ANSWERS_MAX).then_some(now + 1);
        self.early_answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub(super) fn do_flush(&self, handle: u64) -> Answer<()> {
        let file = self.file(handle)?;
        file.written.store(0, Ordering::Relaxed);
        answer(self.mount.flush(&file.handle))
    }

    pub(super) fn do_flush_waits(&self, handle: u64) -> bool {
        self.files.get(handle).is_some_and(|file| file.written.load(Ordering::Relaxed) > FLUSH_BYTES_QUICK)
    }

    pub(super) fn do_release(&self, handle: u64) -> Answer<()> {
        let file = self.files.remove(handle).ok_or(Errno::BADF)?;
        let (ino, number, owners) = (file.handle.ino(), file.number, std::mem::take(&mut *file.lock_owners.lock()));
        let released = match Arc::try_unwrap(file) {
            Ok(file) => answer(self.mount.release(file.handle)),
            // A request still holds the handle; dropping it releases the file too.
            Err(_) => Ok(()),
        };
        released.and(self.unlock_owners(ino, number, owners))
    }

    pub(super) fn do_copy_range(&self, caller: Caller, from: Side, to: Side, len: u64) -> Answer<u64> {
        let (source, target) = (self.file(from.handle)?, self.file(to.handle)?);
        let kill = caller.kills_privileges();
        let copied = self.mount.copy_range(&source.handle, from.offset, &target.handle, to.offset, len, kill);
        answer(copied)
    }
}
