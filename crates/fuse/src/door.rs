//! State that the operations of one mount share.
//!
//! Invariants: D2 of the crate: the volume's inode number of the mount's root never reaches the kernel.
//! Not here:   the operations (one file per group), starting and ending a mount (mounted).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use margay_env::Env;
use margay_volume::Ino;
use margay_volume::posix::{DirectoryHandle, Handle, Mount};
use parking_lot::Mutex;

use crate::handles::Handles;
use crate::protocol::{Attributes, Kernel, Node, ROOT};

/// Owner and permissions that the mount shows instead of the stored ones, as other FUSE file systems allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Permissions become `0777 & !umask`.
    pub umask: Option<u32>,
}

/// An open file, and what decides whether closing it waits for a sync.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: Handle,
    /// Never used again, unlike the number that the kernel knows.
    pub(crate) number: u64,
    /// Bytes written since the last flush.
    pub(crate) written: AtomicU64,
    /// Who took locks through this handle and has not closed it since.
    pub(crate) lock_owners: Mutex<BTreeSet<u64>>,
}

/// Answers the kernel's requests through the volume.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) mount: Arc<Mount>,
    pub(crate) ownership: Ownership,
    pub(crate) writeback: bool,
    pub(crate) env: Env,
    pub(crate) files: Handles<OpenFile>,
    /// How many files were opened.
    pub(crate) opened: AtomicU64,
    /// The thread that gives back locks which could not be given back is there.
    pub(crate) gives_back: Arc<AtomicBool>,
    /// Writes that were answered before they finished.
    pub(crate) early_answers: AtomicUsize,
    pub(crate) directories: Handles<OpenDirectory>,
    /// Since the session began.
    kernel: OnceLock<Mutex<Box<dyn Kernel>>>,
}

#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) handle: DirectoryHandle,
    pub(crate) node: Node,
}

impl Door {
    pub(crate) fn new(mount: Arc<Mount>, ownership: Ownership, writeback: bool, env: Env) -> Door {
        let (files, directories, early_answers) = (Handles::default(), Handles::default(), AtomicUsize::new(0));
        let (kernel, opened, gives_back) = (OnceLock::new(), AtomicU64::default(), Arc::default());
        Door { mount, ownership, writeback, env, files, opened, gives_back, early_answers, directories, kernel }
    }

    pub(crate) fn begin(&self, kernel: Box<dyn Kernel>) {
        // Once for each mount; a second session would be told as well as the first.
        let _ = self.kernel.set(Mutex::new(kernel));
    }

    /// The kernel asks for a file's attributes when it needs them next. May be called inside a request: only pages have locks that
    /// the kernel may hold meanwhile. Before the session has begun there is nothing to forget.
    pub(crate) fn forget_attributes(&self, node: Node) {
        if let Some(kernel) = self.kernel.get() {
            kernel.lock().forget_file(node, false);
        }
    }

    /// The kernel drops a file's pages and attributes. Only inside a request that holds none of the file's pages, on a thread that
    /// may wait: reads that are under way are waited for.
    pub(crate) fn forget_content(&self, node: Node) {
        if let Some(kernel) = self.kernel.get() {
            kernel.lock().forget_file(node, true);
        }
    }

    pub(crate) fn ino(&self, node: Node) -> Ino {
        if node == ROOT { self.mount.root() } else { Ino(node) }
    }

    pub(crate) fn node(&self, ino: Ino) -> Node {
        if ino == self.mount.root() { ROOT } else { ino.0 }
    }

    /// Called after an unmount: the kernel has closed and forgotten everything, but may not have sent RELEASE and
    /// FORGET.
    pub(crate) fn kernel_left(&self) {
        self.files.clear();
        self.directories.clear();
        self.mount.kernel_left();
    }

    /// Attributes as this mount shows them.
    pub(crate) fn shown(&self, mut found: Attributes) -> Attributes {
        found.ino = Ino(self.node(found.ino));
        found.uid = self.ownership.uid.unwrap_or(found.uid);
        found.gid = self.ownership.gid.unwrap_or(found.gid);
        if let Some(umask) = self.ownership.umask {
            found.rights = 0o777 & !umask;
        }
        found
    }
}
