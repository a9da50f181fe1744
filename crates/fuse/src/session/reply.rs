//! Converts parts of fuser's requests, and answers to fuser's replies.
//!
//! Not here: which request needs which reply (adapter).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};

use super::convert;
use crate::protocol::{Answer, At, Attributes, Caller, Errno, FileKind, NewNode, Opened, Statistics};

/// Longest name that `statfs` reports, in bytes.
const NAME_BYTES_MAX: u32 = 255;
/// Block size that `statfs` reports, in bytes.
const STATISTICS_BLOCK_BYTES: u32 = 4096;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

pub(super) fn caller(request: &fuser::Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), process: request.pid() }
}

pub(super) fn at(parent: INodeNo, name: &OsStr) -> At<'_> {
    At { parent: parent.0, name: name.as_bytes() }
}

pub(super) fn new(parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> NewNode<'_> {
    NewNode { parent: parent.0, name: name.as_bytes(), mode, umask }
}

/// How long the kernel may cache attributes, up to `most`: not at all for a file with set-id bits, because a write clears
/// them and its reply cannot say so.
pub(super) fn keep_time(found: &Attributes, most: Duration) -> Duration {
    let set_id = found.kind == FileKind::Regular && found.rights & (SET_USER_ID | SET_GROUP_ID) != 0;
    if set_id { Duration::ZERO } else { most }
}

pub(super) fn empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(convert::errno(error)),
    }
}

/// Answers a write unless it was already answered.
pub(super) fn written(reply: &mut Option<ReplyWrite>, len: usize) {
    if let Some(reply) = reply.take() {
        reply.written(u32::try_from(len).unwrap_or(u32::MAX));
    }
}

pub(super) fn entry(reply: ReplyEntry, keep: Duration, answer: Answer<Attributes>) {
    match answer {
        Ok(found) => {
            reply.entry_with_ttls(&keep_time(&found, keep), &keep, &convert::attributes(&found), Generation(0))
        }
        Err(error) => reply.error(convert::errno(error)),
    }
}

pub(super) fn attributes(reply: ReplyAttr, keep: Duration, answer: Answer<Attributes>) {
    match answer {
        Ok(found) => reply.attr(&keep_time(&found, keep), &convert::attributes(&found)),
        Err(error) => reply.error(convert::errno(error)),
    }
}

pub(super) fn data(reply: ReplyData, answer: Answer<bytes::Bytes>) {
    match answer {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(convert::errno(error)),
    }
}

/// `size` 0 asks for the size only.
pub(super) fn xattr(reply: ReplyXattr, size: u32, answer: Answer<impl AsRef<[u8]>>) {
    match answer {
        Ok(bytes) => match u32::try_from(bytes.as_ref().len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(bytes.as_ref()),
            _ => reply.error(convert::errno(Errno::RANGE)),
        },
        Err(error) => reply.error(convert::errno(error)),
    }
}

pub(super) fn opened_file(reply: ReplyOpen, answer: Answer<Opened>) {
    let keeps = answer.is_ok_and(|opened| opened.keeps_pages);
    let flags = if keeps { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
    opened(reply, flags, answer.map(|opened| opened.handle));
}

pub(super) fn opened(reply: ReplyOpen, flags: FopenFlags, answer: Answer<u64>) {
    match answer {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(error) => reply.error(convert::errno(error)),
    }
}

pub(super) fn created(reply: ReplyCreate, keep: Duration, answer: Answer<(Attributes, u64)>) {
    match answer {
        Ok((made, handle)) => reply.created(
            &keep_time(&made, keep),
            &convert::attributes(&made),
            Generation(0),
            FileHandle(handle),
            FopenFlags::FOPEN_KEEP_CACHE,
        ),
        Err(error) => reply.error(convert::errno(error)),
    }
}

pub(super) fn statistics(reply: ReplyStatfs, answer: Answer<Statistics>) {
    match answer {
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
