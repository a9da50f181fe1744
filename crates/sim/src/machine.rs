//! A simulated machine: one disk, the fault that will strike it, and what its power cuts leave.
//!
//! Why:        all layers are broken in the same ways, so the ways are described once.
//! Invariants: P1 the end of a life takes its picture of the disk while everything runs, and only then stops it; so
//!             what was acknowledged before must be in it.  P2 an error is excused only by the fault that was armed.
//!             P3 after a failed sync the next life may come with or without a power cut; without one it reads from a
//!             cache that shows what the disk does not hold.
//! Not here:   what runs on the machine (engine, volume, server).

use std::path::Path;
use std::sync::Arc;

use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Disk, Env};

use crate::Failure;

/// What strikes during one life of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power is cut when the workload ends.
    Quiet,
    /// The power is cut after so many changes of the disk.
    PowerAfter(u64),
    /// The program is killed after so many changes of the disk.
    KilledAfter(u64),
    /// The call of `sync_data` with this number fails.
    SyncFails(u64),
    /// The call of `sync_dir` with this number fails.
    NameSyncFails(u64),
    /// So many bytes are left on the disk.
    Full(u64),
    /// Everything is closed in order before the power goes.
    Closed,
}

impl Fault {
    /// A choice; `changes` is how many changes of the disk a life makes, roughly.
    pub fn draw(random: &SimRandom, changes: u64) -> Fault {
        match random.below(100) {
            0..25 => Fault::Quiet,
            // Early ones strike during recovery.
            25..40 => Fault::PowerAfter(random.below(40)),
            40..65 => Fault::PowerAfter(random.below(changes)),
            65..75 => Fault::KilledAfter(random.below(changes)),
            75..83 => Fault::SyncFails(1 + random.below(changes / 8 + 1)),
            83..87 => Fault::NameSyncFails(1 + random.below(12)),
            87..94 => Fault::Full((16 << 20) + random.below(24 << 20)),
            _ => Fault::Closed,
        }
    }

    /// Whether this fault explains an error with these words.
    pub fn explains(self, error: &str) -> bool {
        match self {
            Fault::Quiet | Fault::Closed => false,
            Fault::PowerAfter(_) | Fault::KilledAfter(_) => {
                error.contains("simulated machine has stopped") || error.contains(TREE_FAILED_BEFORE)
            }
            Fault::SyncFails(_) | Fault::NameSyncFails(_) => {
                error.contains("injected failure") || error.contains(TREE_FAILED_BEFORE)
            }
            Fault::Full(_) => {
                ["full", "no space", "storage space"].iter().any(|words| error.to_lowercase().contains(words))
            }
        }
    }
}

/// What the tree's store says once another thread of it, a fold, has met the fault.
const TREE_FAILED_BEFORE: &str = "Previous I/O error occurred";

/// Which syncs do nothing, to show that the checkers notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    pub bytes: bool,
    pub names: bool,
    /// Not a sync: the note that one failed is lost with the process.
    pub notes: bool,
}

/// Says that a sync failed; where the program's data directory has it.
pub(crate) const NOTE: &str = "/data/sync-failed";
/// Share of lives that end with the program only, in percent.
const KILLS_PERCENT: u64 = 25;

#[derive(Debug)]
pub struct Machine {
    pub disk: SimDisk,
    pub random: SimRandom,
    lies: Lies,
}

impl Machine {
    /// A machine with an empty disk.
    pub fn new(seed: u64, lies: Lies) -> Machine {
        let random = SimRandom::new(seed);
        let disk = SimDisk::new(random.below(u64::MAX));
        disk.set_lying(lies.bytes, lies.names);
        Machine { disk, random, lies }
    }

    /// The ports of what runs here. Time is real: timers of the code under test then need nobody to move them.
    pub fn env(&self) -> Env {
        Env {
            disk: Arc::new(self.disk.clone()),
            clock: Arc::new(RealClock::new()),
            random: Arc::new(SimRandom::new(self.random.below(u64::MAX))),
        }
    }

    /// Lives through up to `lives_max` lives, each with a fault of its own (as [`Fault::draw`] takes `changes`); what
    /// one leaves behind is handed to the next.
    pub fn lives<T>(
        &mut self,
        lives_max: u64,
        changes: u64,
        mut state: T,
        mut live: impl FnMut(&mut Machine, Fault, T) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        for life in 0..1 + self.random.below(lives_max) {
            let fault = Fault::draw(&self.random, changes);
            self.arm(fault);
            state =
                live(self, fault, state).map_err(|failure| Failure(format!("life {life}, {fault:?}: {failure}")))?;
        }
        Ok(state)
    }

    /// Arms the fault of the life that begins.
    pub fn arm(&self, fault: Fault) {
        match fault {
            Fault::Quiet | Fault::Closed => {}
            Fault::PowerAfter(changes) => self.disk.fail_after(changes),
            Fault::KilledAfter(changes) => self.disk.kill_after(changes),
            Fault::SyncFails(call) => self.disk.fail_sync_at(call),
            Fault::NameSyncFails(call) => self.disk.fail_sync_dir_at(call),
            Fault::Full(left) => {
                let space = self.disk.space(Path::new("/")).expect("the machine runs");
                self.disk.set_capacity(space.total_bytes - space.free_bytes + left);
            }
        }
    }

    pub fn has_stopped(&self) -> bool {
        self.disk.space(Path::new("/")).is_err()
    }

    /// Ends this life: the power is cut, or only the program is killed. The picture is taken at once, then everything
    /// that still runs fails. Drop it afterwards.
    pub fn end_life(&mut self, fault: Fault) {
        let seed = self.random.below(u64::MAX);
        let killed = match fault {
            Fault::KilledAfter(_) => true,
            // The sooner the next process comes, the more it is shown that is not on the disk.
            Fault::SyncFails(_) | Fault::NameSyncFails(_) => self.random.chance(70),
            _ => self.random.chance(KILLS_PERCENT),
        };
        let after = if killed { self.disk.kill(seed) } else { self.disk.crash(seed) };
        self.disk.fail_after(0);
        // The next call notices.
        let _ = self.disk.sync_dir(Path::new("/"));
        if self.lies.notes {
            // Absent unless a sync failed.
            let _ = after.remove(Path::new(NOTE));
        }
        after.set_capacity(1 << 40);
        after.set_lying(self.lies.bytes, self.lies.names);
        self.disk = after;
    }
}
