//! `statfs`, and durability of everything so far.
//!
//! Why:        neither is about one file.
//! Not here:   where the numbers come from (env's disk, the engine's counters).

use crate::api::Error;
use crate::posix::api::{PosixError, Statistics};
use crate::posix::mount::Mount;
use crate::seen::Seen;

impl Mount {
    pub fn statistics(&self) -> Result<Statistics, PosixError> {
        let space = self.volume.store.space().map_err(Error::from)?;
        let files = self.volume.objects(self.bucket_root, &mut Seen::default())?;
        // Bytes in quarantine leave when they are needed.
        let free_bytes = space.free_bytes.saturating_add(self.volume.store.quarantined_bytes()).min(space.total_bytes);
        Ok(Statistics { total_bytes: space.total_bytes, free_bytes, files })
    }

    /// `fsync` of a directory: all changes so far are durable.
    pub fn sync_directory(&self) -> Result<(), PosixError> {
        let engine = &self.volume.engine;
        Ok(engine.wait_durable(engine.last_seq()).map_err(Error::from)?)
    }
}
