//! Measures how long a sync takes on this disk.
//!
//! Why: every durable answer waits for a sync, so the start screen shows at once that a disk is slow.

use std::io;
use std::path::Path;
use std::time::Duration;

use margay_env::{Env, OpenMode};

/// Syncs measured, and the bytes written before each.
pub const SYNCS: usize = 20;
const BLOCK_BYTES: usize = 4096;

/// The median time of one small write with its sync; leaves no file behind.
pub fn sync_time(env: &Env, folder: &Path) -> io::Result<Duration> {
    let path = folder.join("sync-probe");
    let file = env.disk.open(&path, OpenMode::OpenOrCreate)?;
    let measured = (|| {
        let block = [0x5a; BLOCK_BYTES];
        let mut times = Vec::with_capacity(SYNCS);
        for index in 0..SYNCS {
            let begun = env.clock.monotonic();
            file.write_all_at(&block, (index * BLOCK_BYTES) as u64)?;
            file.sync_data()?;
            times.push(env.clock.monotonic().saturating_sub(begun));
        }
        times.sort_unstable();
        Ok(times[SYNCS / 2])
    })();
    env.disk.remove(&path)?;
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_takes_time_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sync_time(&Env::real(), folder.path()).unwrap() > Duration::ZERO);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
