//! A run's checksum table, verified and cached.
//!
//! Why:        the folder caches tables of runs being read, so a small read needs only one chunk from the device.
//! Not here:   its bytes (format), reading and verifying it (reader).

use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct ChecksumTable {
    /// The checksum of the table itself, as in the run.
    pub(crate) crc: u32,
    /// One per chunk.
    pub(crate) sums: Arc<[u32]>,
}
