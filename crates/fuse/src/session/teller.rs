//! Tells the kernel through the session's device.
//!
//! Layout:     a notification is a header (its length, its code where an answer has an error number, 0 where an answer
//!             has the number of its request) and what the code says. fuser writes those that it knows; the newest are
//!             written here, to the same device.
//! Not here:   what is told, and when (notifier, pruner).

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::protocol::{Answer, Errno, Kernel, Node};

/// FUSE_NOTIFY_PRUNE: numbers to forget; of protocol 7.45 (Linux 6.18).
const CODE_PRUNE: u32 = 9;
/// Bytes of the header of a notification.
const HEADER_BYTES: usize = 16;
/// Bytes before the numbers: how many they are, and room.
const PRUNE_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Teller {
    pub(super) notifier: fuser::Notifier,
    pub(super) device: Arc<OwnedFd>,
}

impl Kernel for Teller {
    fn forget_name(&self, parent: Node, name: &[u8]) {
        // An error means that the kernel knows no such name or that the mount is gone; both are what was wanted.
        let _ = self.notifier.inval_entry(fuser::INodeNo(parent), OsStr::from_bytes(name));
    }

    fn forget_file(&self, node: Node, pages: bool) {
        let _ = self.notifier.inval_inode(fuser::INodeNo(node), if pages { 0 } else { -1 }, 0);
    }

    fn prune(&self, nodes: &[Node]) -> Answer<()> {
        let message = prune_message(nodes)?;
        // It is taken whole or refused.
        rustix::io::write(&self.device, &message).map(drop)
    }
}

fn prune_message(nodes: &[Node]) -> Answer<Vec<u8>> {
    let len = HEADER_BYTES + PRUNE_BYTES + size_of_val(nodes);
    let fits = |count: usize| u32::try_from(count).map_err(|_| Errno::MSGSIZE);
    let mut message = Vec::with_capacity(len);
    message.extend(fits(len)?.to_ne_bytes());
    message.extend(CODE_PRUNE.to_ne_bytes());
    message.extend(0_u64.to_ne_bytes());
    message.extend(fits(nodes.len())?.to_ne_bytes());
    message.resize(HEADER_BYTES + PRUNE_BYTES, 0);
    nodes.iter().for_each(|node| message.extend(node.to_ne_bytes()));
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_to_forget_are_laid_out_as_the_kernel_reads_them() {
        let message = prune_message(&[7, u64::MAX]).unwrap();
        let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().unwrap());
        assert_eq!((message.len(), word(0), word(4), long(8)), (48, 48, 9, 0));
        assert_eq!((word(16), word(20), long(24)), (2, 0, 0));
        assert_eq!((long(32), long(40)), (7, u64::MAX));
    }
}
