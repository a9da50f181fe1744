//! Converts between the values of `protocol` and those of fuser.
//!
//! Not here: what they mean.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use margay_env::Timestamp;
use margay_volume::posix::SetTime;

use crate::protocol::{Attributes, Errno, FileKind};

/// The preferred I/O size that `stat` reports, in bytes.
const BLOCK_BYTES: u32 = 4096;

pub(super) fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn attributes(from: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(from.ino.0),
        size: from.size,
        blocks: from.stored.div_ceil(512),
        atime: time(from.accessed),
        mtime: time(from.modified),
        ctime: time(from.changed),
        crtime: UNIX_EPOCH,
        kind: kind(from.kind),
        perm: (from.rights & 0o7777) as u16,
        nlink: from.links,
        uid: from.uid,
        gid: from.gid,
        rdev: from.device,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// The answer to a lookup of a name that does not exist, so that the kernel caches a negative entry.
pub(super) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn time(at: Timestamp) -> SystemTime {
    let length = Duration::from_nanos(at.0.unsigned_abs());
    if at.0 >= 0 { UNIX_EPOCH + length } else { UNIX_EPOCH - length }
}

/// fuser subtracts the nanoseconds of a time before 1970 where the kernel means to add them.
fn timestamp(at: SystemTime) -> Timestamp {
    let nanoseconds = match at.duration_since(UNIX_EPOCH) {
        Ok(length) => i128::from(length.as_secs()) * 1_000_000_000 + i128::from(length.subsec_nanos()),
        Err(before) => {
            let length = before.duration();
            -i128::from(length.as_secs()) * 1_000_000_000 + i128::from(length.subsec_nanos())
        }
    };
    let clamped = nanoseconds.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Timestamp(clamped as i64)
}

pub(super) fn set_time(time: Option<TimeOrNow>) -> Option<SetTime> {
    time.map(|time| match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(timestamp(at)),
    })
}

pub(super) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        assert_eq!(time(Timestamp(-1)), UNIX_EPOCH - Duration::from_nanos(1));
        // The kernel's (-2 s, 1 ns), as fuser passes it on.
        let from_fuser = UNIX_EPOCH - Duration::new(2, 1);
        assert_eq!(timestamp(from_fuser), Timestamp(-1_999_999_999));
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(3, 5)), Timestamp(3_000_000_005));
    }
}
