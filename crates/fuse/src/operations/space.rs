//! Requests about space: fallocate, and finding holes (lseek).

use margay_volume::posix::{Allocate, SeekTo};
use rustix::fs::FallocateFlags;

use super::answer;
use crate::door::Door;
use crate::protocol::{Answer, Caller, Errno};

/// `whence` of lseek.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

impl Door {
    pub(super) fn do_allocate(&self, caller: Caller, handle: u64, mode: i32, offset: u64, len: u64) -> Answer<()> {
        let keep = FallocateFlags::KEEP_SIZE;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let keep_size = mode.contains(keep);
        let how = match mode - keep {
            rest if rest.is_empty() => Allocate::Reserve { keep_size },
            FallocateFlags::PUNCH_HOLE if keep_size => Allocate::PunchHole,
            FallocateFlags::ZERO_RANGE => Allocate::ZeroRange { keep_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        answer(self.mount.allocate(&self.file(handle)?.handle, how, offset, len, caller.kills_privileges()))
    }

    pub(super) fn do_seek(&self, handle: u64, offset: u64, whence: i32) -> Answer<u64> {
        let to = match whence {
            SEEK_DATA => SeekTo::Data,
            SEEK_HOLE => SeekTo::Hole,
            _ => return Err(Errno::INVAL),
        };
        answer(self.mount.seek(&self.file(handle)?.handle, offset, to))
    }
}
