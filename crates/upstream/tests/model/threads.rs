//! Whether the threads of this process sleep, as the kernel tells it.
//!
//! Why:        between two decisions of a seed nothing may happen. Asking is most of what a seed costs, so the thread that was awake last
//!             is asked first, and one that waits for the time of the simulation not at all.
//! Invariants: A thread that wakes another one and sleeps afterwards is counted: between the first and the last question no thread
//!             went to sleep, and none was made or ended.
//! Not here:   who waits for what (sim).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::sys::resource::{UsageWho, getrusage};

/// All threads of this process.
const TASKS: &str = "/proc/self/task";
/// A directory has two links besides those of the directories in it.
const LINKS: u64 = 2;
/// Where in the kernel a thread is that sleeps until another one or a timer wakes it; its functions have these in their names.
const SLEEPS: [&str; 3] = ["futex", "ep_poll", "nanosleep"];

struct Thread {
    id: u32,
    /// Where it sleeps; 0 if it does not, or is being woken. Cheaper than its state.
    place: File,
    state: File,
}

pub(crate) struct Threads {
    tasks: File,
    /// Those that were awake last come first.
    known: Vec<Thread>,
}

impl Thread {
    /// `None`: it has ended.
    #[allow(clippy::disallowed_methods, reason = "the threads of this process are told by the kernel")]
    fn open(id: u32) -> Option<Thread> {
        let open = |name: &str| File::open(format!("{TASKS}/{id}/{name}")).ok();
        Some(Thread { id, place: open("wchan")?, state: open("stat")? })
    }

    fn sleeps(&self) -> bool {
        let mut told = [0; 128];
        let Ok(len) = self.place.read_at(&mut told, 0) else { return false };
        let place = String::from_utf8_lossy(&told[..len]);
        if SLEEPS.iter().any(|name| place.contains(name)) {
            return true;
        }
        // The kernel may not tell the place.
        let Ok(len) = self.state.read_at(&mut told, 0) else { return false };
        let state = told[..len].iter().rposition(|byte| *byte == b')').and_then(|at| told.get(at + 2));
        state == Some(&b'S')
    }
}

impl Default for Threads {
    #[allow(clippy::disallowed_methods, reason = "the threads of this process are told by the kernel")]
    fn default() -> Threads {
        Threads { tasks: File::open(TASKS).unwrap(), known: Vec::new() }
    }
}

impl Threads {
    /// Whether all sleep, apart from the caller; `sleepers` are known to.
    pub(crate) fn all_sleep(&mut self, sleepers: &BTreeSet<u32>) -> bool {
        let before = (switches(), self.count());
        if self.known.len() as u64 + 1 != before.1 && !self.find() {
            return false;
        }
        let awake = self.known.iter().position(|thread| !sleepers.contains(&thread.id) && !thread.sleeps());
        if let Some(at) = awake {
            let thread = self.known.remove(at);
            // One that has ended is not known any more.
            self.known.splice(0..0, Thread::open(thread.id));
            return false;
        }
        (switches(), self.count()) == before
    }

    /// Of all threads.
    fn count(&self) -> u64 {
        self.tasks.metadata().unwrap().nlink().saturating_sub(LINKS)
    }

    #[allow(clippy::disallowed_methods, reason = "the threads of this process are told by the kernel")]
    fn find(&mut self) -> bool {
        let Ok(tasks) = std::fs::read_dir(TASKS) else { return false };
        let numbers = tasks.map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let Some(mut living) = numbers.collect::<Option<BTreeSet<u32>>>() else { return false };
        living.remove(&own_thread());
        self.known.retain(|thread| living.remove(&thread.id));
        self.known.extend(living.into_iter().filter_map(Thread::open));
        true
    }
}

/// How often threads of this process went to sleep.
fn switches() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).unwrap().voluntary_context_switches()
}

pub(crate) fn own_thread() -> u32 {
    nix::unistd::gettid().as_raw().cast_unsigned()
}
