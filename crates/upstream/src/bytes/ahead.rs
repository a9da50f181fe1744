//! How far ahead of a sequential reader blocks are fetched.
//!
//! Why:        a store that is far away needs many requests in progress to be read at its rate, and who reads here and there
//!             should fetch nothing in vain.
//! Invariants: A1 the window is at most twice what was read in one run, at most `WINDOW_MAX`, and all readers together have at
//!                most `WINDOWS_MAX`: what is fetched ahead stays in memory until it is read.
//! Locking:    one short mutex.

use std::collections::HashMap;

use margay_segment::SegmentId;
use parking_lot::Mutex;

/// Blocks that are fetched ahead of one reader, and of all.
const WINDOW_MAX: u64 = 64;
const WINDOWS_MAX: u64 = 96;
/// The kernel reads ahead with many requests at once, which arrive in any order: as many blocks may be missing or come again.
const DISORDER_BLOCKS: u64 = 16;
/// Readers that are remembered.
const READERS_MAX: usize = 256;
/// A reader that did not read while others read so often has ended.
const READS_MAX: u64 = 256;

/// Blocks that were read one after the other.
#[derive(Debug)]
struct Run {
    start: u64,
    end: u64,
    /// The number of the last read.
    read: u64,
}

#[derive(Debug, Default)]
struct Readers {
    runs: HashMap<SegmentId, Run>,
    reads: u64,
}

#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<Readers>);

impl Windows {
    /// Blocks up to and with `last` are read, from `first` on; returns how many of those behind it should be fetched too.
    pub(super) fn read(&self, id: SegmentId, first: u64, last: u64) -> u64 {
        let mut readers = self.0.lock();
        readers.reads += 1;
        let now = readers.reads;
        if readers.runs.len() >= READERS_MAX {
            readers.runs.retain(|_, run| run.read + READS_MAX > now);
        }
        if readers.runs.len() >= READERS_MAX {
            readers.runs.clear();
        }
        let run = readers.runs.entry(id).or_insert(Run { start: first, end: first, read: now });
        let is_near = first <= run.end + DISORDER_BLOCKS && run.end <= last + 1 + DISORDER_BLOCKS;
        if !is_near {
            (run.start, run.end) = (first, first);
        }
        (run.end, run.read) = (run.end.max(last + 1), now);
        // One block tells nothing.
        let len = Some(run.end - run.start).filter(|len| *len > 1).unwrap_or(0);
        let active = readers.runs.values().filter(|run| run.read + READS_MAX > now).count() as u64;
        (2 * len).min(WINDOW_MAX).min(WINDOWS_MAX / active.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_with_what_is_read_and_shrinks_with_readers() {
        let (windows, id) = (Windows::default(), SegmentId(7));
        let read: Vec<u64> = (0..5).map(|block| windows.read(id, block, block)).collect();
        assert_eq!(read, [0, 4, 6, 8, 10]);
        assert_eq!(
            (windows.read(id, 9, 9), windows.read(id, 6, 6)),
            (20, 20),
            "the kernel's requests overtake each other"
        );
        assert_eq!(windows.read(id, 40, 41), WINDOW_MAX.min(4), "somewhere else");
        assert_eq!((40..100).map(|block| windows.read(id, block, block)).max(), Some(WINDOW_MAX));
        for other in 0..4 {
            windows.read(SegmentId(8 + other), 0, 0);
        }
        assert_eq!(windows.read(id, 100, 100), WINDOWS_MAX / 5);
        for block in 0..2 * READS_MAX {
            windows.read(id, block, block);
        }
        assert_eq!(windows.read(id, 512, 512), WINDOW_MAX, "the others have ended");
        for other in 0..2 * READERS_MAX as u64 {
            windows.read(SegmentId(1000 + other), 5, 5);
        }
        assert!(windows.0.lock().runs.len() <= READERS_MAX);
    }
}
