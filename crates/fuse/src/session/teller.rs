//! Sends notifications to the kernel through the session's device.
//!
//! Layout:     a notification is a header (length; the code in the field of a reply's error number; 0 in the field of a
//!             reply's request id) and the payload of its code. fuser writes the codes that it knows; newer ones are
//!             written here, to the same device.
//! Not here:   what is sent, and when (notifier, pruner).

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::protocol::{Answer, Errno, Kernel, Node};

/// FUSE_NOTIFY_PRUNE: inodes to forget; since protocol 7.45 (Linux 6.18).
const CODE_PRUNE: u32 = 9;
/// Size of a notification's header, in bytes.
const HEADER_BYTES: usize = 16;
/// Bytes before the inode numbers: their count, and padding.
const PRUNE_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Teller {
    pub(super) notifier: fuser::Notifier,
    pub(super) device: Arc<OwnedFd>,
}

impl Kernel for Teller {
    fn forget_name(&self, parent: Node, name: &[u8]) {
        // An error means that the kernel does not know the name or that the mount is gone; either is fine.
        let _ = self.notifier.inval_entry(fuser::INodeNo(parent), OsStr::from_bytes(name));
    }

    fn forget_file(&self, node: Node, pages: bool) {
        let _ = self.notifier.inval_inode(fuser::INodeNo(node), if pages { 0 } else { -1 }, 0);
    }

    fn prune(&self, nodes: &[Node]) -> Answer<()> {
        let message = prune_message(nodes)?;
        // The kernel takes the message whole or refuses it.
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
    assert_eq!(message.len(), len, "a message is as long as its header says");
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
