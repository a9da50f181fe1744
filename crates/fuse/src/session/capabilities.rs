//! What is asked of the kernel at the beginning of a session.
//!
//! Not here: the requests that follow (adapter).

use fuser::{InitFlags, KernelConfig};

use super::{BACKGROUND_MAX, READ_AHEAD_BYTES, REQUEST_BYTES_MAX, SessionOptions};

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

/// The options on which that depends; see [`SessionOptions`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    writeback: bool,
    suid: bool,
    is_of_several: bool,
    asks_for_locks: bool,
}

impl Choice {
    pub(super) fn new(options: &SessionOptions) -> Choice {
        let SessionOptions { writeback, suid, is_of_several, asks_for_locks, .. } = *options;
        Choice { writeback, suid, is_of_several, asks_for_locks }
    }

    pub(super) fn asks_for_locks(self) -> bool {
        self.asks_for_locks
    }

    pub(super) fn request(self, config: &mut KernelConfig) {
        // What others publish changes sizes: then the kernel itself drops pages, of which the last one ends with zeros.
        let others = |wanted: &InitFlags| self.is_of_several && *wanted == InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        for wanted in WANTED.into_iter().filter(|wanted| !others(wanted)) {
            // An older kernel falls back for capabilities that it lacks.
            let _ = config.add_capabilities(wanted);
        }
        if self.asks_for_locks {
            for locks in [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS] {
                let _ = config.add_capabilities(locks);
            }
        }
        if self.is_of_several {
            // A file that others change while it is open here has new pages with its new attributes.
            let _ = config.add_capabilities(InitFlags::FUSE_AUTO_INVAL_DATA);
            if self.writeback {
                tracing::warn!(
                    "writeback is left out: the kernel would keep its own size of a file that others change"
                );
            }
        }
        if self.writeback && !self.is_of_several {
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
    }
}
