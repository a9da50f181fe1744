//! Invalidates the kernel's caches when another door changes a file.
//!
//! Why:        the kernel caches names and attributes for a day. An invalidation takes locks that the kernel also holds
//!             during requests, so a thread of its own sends it, never a request.
//! Invariants: F1 a notice is finished when the kernel has dropped all names and files that it lists.
//!             F2 a change of `a` or of `a/` invalidates both names.
//!             F3 a notice for everything (after an overflow) drops all names below the root that this mount has shown,
//!                with everything below them. Negative entries of the root itself expire by their own short time.
//! Not here:   which changes create notices (volume).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_volume::Ino;
use margay_volume::posix::{Notice, Watcher};

use crate::door::Door;
use crate::metrics::Metrics;
use crate::names;
use crate::protocol::{Kernel, ROOT};

pub(crate) fn start(
    door: Arc<Door>,
    watcher: Arc<Watcher>,
    kernel: Box<dyn Kernel>,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    let run = move || {
        while let Some(notice) = watcher.next() {
            act(&door, &*kernel, &notice);
            metrics.notices.fetch_add(1, Ordering::Relaxed);
            watcher.done(notice.ticket);
        }
    };
    std::thread::Builder::new().name("fuse-notify".to_owned()).spawn(run).map(drop)
}

fn act(door: &Door, kernel: &dyn Kernel, notice: &Notice) {
    if notice.everything {
        everything(door, kernel);
        return;
    }
    let mut name = Vec::new();
    let mut last = None;
    for (directory, sort_name) in &notice.entries {
        let parent = door.node(*directory);
        let plain = sort_name.strip_suffix('/').unwrap_or(sort_name);
        for beside in [false, true] {
            name.clear();
            names::shown(plain, beside, &mut name);
            kernel.forget_name(parent, &name);
        }
        // The directory's times changed, whether or not the kernel knew the name.
        if last != Some(parent) {
            kernel.forget_file(parent, false);
            last = Some(parent);
        }
    }
    for file in &notice.files {
        kernel.forget_file(door.node(*file), true);
    }
}

/// Drops everything: invalidating a directory's name also drops what the kernel caches below it.
fn everything(door: &Door, kernel: &dyn Kernel) {
    let mut children = Vec::new();
    let mut nodes = Vec::new();
    let root = door.mount.root();
    door.mount.visit_known(&mut |ino: Ino, parent: Ino, sort_name: &str| {
        nodes.push(door.node(ino));
        if parent == root {
            children.push(sort_name.to_owned());
        }
    });
    tracing::warn!(names = children.len(), "the kernel fell behind other doors' changes; it forgets everything");
    let mut name = Vec::new();
    for sort_name in children {
        let plain = sort_name.strip_suffix('/').unwrap_or(&sort_name);
        for beside in [false, true] {
            name.clear();
            names::shown(plain, beside, &mut name);
            kernel.forget_name(ROOT, &name);
        }
    }
    for node in nodes {
        kernel.forget_file(node, false);
    }
    kernel.forget_file(ROOT, false);
}
