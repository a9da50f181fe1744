//! What a power loss leaves of a simulated disk.
//!
//! Why:        a program is crash-safe only if it survives every choice of unsynced changes, so each is chosen
//!             independently.
//! Invariants: Z1, Z2 (see sim).
//!             Z4 kept changes are applied in their order: an older write never covers a newer kept one, nor a synced
//!                one.

use super::content::{Change, Content};
use super::disk::SimDisk;
use super::random::SimRandom;
use super::tree::Tree;

/// A device writes a sector whole or not at all; in bytes.
const SECTOR_BYTES: u64 = 512;

impl SimDisk {
    /// The disk after a power loss at this moment; this disk goes on unharmed. Locks and faults are gone.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let random = SimRandom::new(seed);
        let tree = self.state.lock().tree.clone();
        // Some crashes lose nearly all changes, some nearly none.
        let keep_percent = [0, 5, 50, 50, 95, 100][random.below(6) as usize];
        SimDisk::with_tree(after_crash(tree, &random, keep_percent), random.below(u64::MAX))
    }

    /// The disk as the next process finds it after this one was killed now: nothing is lost, but unsynced changes are
    /// still not safe. This disk goes on unharmed. Locks and faults are gone. If `fail_after` has stopped the machine,
    /// it lost its power: then this is a crash.
    pub fn kill(&self, seed: u64) -> SimDisk {
        let (mut tree, without_power) = {
            let state = self.state.lock();
            (state.tree.clone(), state.stopped && !state.only_killed)
        };
        if without_power {
            return self.crash(seed);
        }
        for file in tree.files.values_mut() {
            if file.handles > 0 && !file.named {
                tree.used_pages -= file.current.pages();
            }
            file.handles = 0;
        }
        SimDisk::with_tree(tree, seed)
    }
}

fn after_crash(mut tree: Tree, random: &SimRandom, keep_percent: u64) -> Tree {
    for change in std::mem::take(&mut tree.pending) {
        if random.chance(keep_percent) {
            tree.make_durable(change);
        }
    }
    for dir in tree.dirs.values_mut() {
        dir.current = dir.durable.clone();
    }
    let mut used_pages = 0;
    let named: std::collections::BTreeSet<u64> =
        tree.dirs.values().flat_map(|dir| dir.durable.values().copied()).collect();
    tree.files.retain(|node, _| named.contains(node));
    for file in tree.files.values_mut() {
        let pending = std::mem::take(&mut file.pending);
        keep_some(&mut file.durable, &pending, random, keep_percent);
        file.current = file.durable.clone();
        (file.handles, file.named) = (0, true);
        used_pages += file.current.pages();
    }
    tree.used_pages = used_pages;
    tree
}

/// Applies a random choice of changes, and parts of writes, to the durable content.
pub(super) fn keep_some(durable: &mut Content, pending: &[Change], random: &SimRandom, keep_percent: u64) {
    for change in pending {
        match change {
            Change::Write { offset, bytes } if random.chance(25) => {
                keep_sectors(durable, *offset, bytes, random, keep_percent);
            }
            change if random.chance(keep_percent) => durable.apply(change),
            _ => {}
        }
    }
    durable.trim();
}

/// A torn write: each sector arrives or not.
fn keep_sectors(durable: &mut Content, offset: u64, bytes: &[u8], random: &SimRandom, keep_percent: u64) {
    let end = offset + bytes.len() as u64;
    let mut at = offset;
    while at < end {
        let next = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
        if random.chance(keep_percent) {
            durable.write(at, &bytes[(at - offset) as usize..(next - offset) as usize]);
        }
        at = next;
    }
}
