//! The checksum table of a run, verified and kept in memory.
//!
//! Why:        the folder keeps the tables of runs that are being read; a small read then needs one chunk of the device.
//! Not here:   its bytes (format), reading and verifying it (reader).

use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct ChecksumTable {
    /// Of the table itself, as the run names it.
    pub(crate) crc: u32,
    /// One per chunk.
    pub(crate) sums: Arc<[u32]>,
}
