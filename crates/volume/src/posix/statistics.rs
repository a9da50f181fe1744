//! `statfs`, and durability of everything so far.
//!
//! Why:        neither concerns a single file.
//! Not here:   the source of the numbers (env's disk, the engine's counters).

use crate::api::Error;
use crate::draft::Seen;
use crate::posix::api::{PosixError, Statistics};
use crate::posix::mount::Mount;

impl Mount {
    pub fn statistics(&self) -> Result<Statistics, PosixError> {
        let space = self.volume.store.space().map_err(Error::from)?;
        let files = self.volume.objects(self.bucket_root, &mut Seen::default())?;
        // Bytes in quarantine leave when they are needed.
        let quarantined = space.quarantined_bytes;
        let free_bytes = space.free_bytes.saturating_add(quarantined).min(space.total_bytes);
        // Never more than what is free: both were asked for, one after the other.
        let available_bytes = space.available_bytes.saturating_add(quarantined).min(free_bytes);
        Ok(Statistics { total_bytes: space.total_bytes, free_bytes, available_bytes, files })
    }

    /// `fsync` of a directory: all changes so far are durable.
    pub fn sync_directory(&self) -> Result<(), PosixError> {
        let engine = &self.volume.engine;
        engine.wait_durable(engine.last_cursor()).map_err(Error::from)?;
        self.sync_upstream(None)
    }
}
