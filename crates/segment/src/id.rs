//! References to stored bytes and to their stores: store numbers, segment ids, runs and extents.
//!
//! Why:        metadata refers to data by these values and never the reverse, so they are separate from the store.
//! Invariants: I1 `skip + len <= run.len`.  I2 a run's checksum covers the whole run, whatever part is referenced.

use std::fmt;

/// Bits of an id within one store; the bits above are the store's number.
pub const STORE_ID_BITS: u32 = 40;
/// Payload bytes under one checksum, in bytes.
pub const CHUNK_BYTES: u64 = 64 * 1024;
/// Maximum length of a run, in bytes; its checksum table has 4 MiB.
pub const RUN_BYTES_MAX: u64 = 64 << 30;

/// Number of a segment file; allocated once, from 1 upwards. Zero is never valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl fmt::Debug for SegmentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// A store's number in its volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreNumber(pub u16);

impl StoreNumber {
    /// The ids of this store: from the first up to, but not including, the second.
    pub fn ids(self) -> (SegmentId, SegmentId) {
        let first = u64::from(self.0) << STORE_ID_BITS;
        // Id 0 is never valid.
        (SegmentId(first.max(1)), SegmentId(first + (1 << STORE_ID_BITS)))
    }
}

impl SegmentId {
    /// The store that created the segment. An id above the format's limit belongs to nobody; it counts as the last
    /// store's.
    pub fn made_by(self) -> StoreNumber {
        StoreNumber(u16::try_from(self.0 >> STORE_ID_BITS).unwrap_or(u16::MAX))
    }
}

/// A random number that distinguishes folders.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreIdentity(pub [u8; 16]);

impl fmt::Debug for StoreIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The name of a folder, as stored in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreName {
    pub identity: StoreIdentity,
    pub number: StoreNumber,
    /// Number of times that it was attached to its volume; 0: never.
    pub generation: u64,
}

/// Payload bytes written in one piece: the unit of checksums, sharing and reclaim.
///
/// `offset` is where the payload begins in the file. A run of at most [`CHUNK_BYTES`] has `crc` = CRC-32C of
/// its payload. A longer run is followed, at `offset + len`, by a table of one little-endian CRC-32C per chunk,
/// and `crc` is the CRC-32C of that table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub segment: SegmentId,
    pub offset: u64,
    pub len: u64,
    pub crc: u32,
}

impl Run {
    /// The run checksum of a payload of at most [`CHUNK_BYTES`].
    pub fn crc_of(payload: &[u8]) -> u32 {
        assert!(payload.len() as u64 <= CHUNK_BYTES, "a longer payload is summed chunk by chunk");
        crc32c::crc32c(payload)
    }

    /// Bytes of the checksum table behind the payload; 0 when the run has none.
    pub fn table_bytes(&self) -> u64 {
        table_bytes(self.len)
    }
}

/// Bytes of the checksum table of a run of `len` payload bytes.
pub(crate) fn table_bytes(len: u64) -> u64 {
    if len <= CHUNK_BYTES { 0 } else { len.div_ceil(CHUNK_BYTES) * 4 }
}

/// A part of a run, as one file uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    pub run: Run,
    /// Bytes of the run before the part.
    pub skip: u64,
    /// Bytes of the part.
    pub len: u64,
}

impl Extent {
    /// The whole of a run.
    pub fn whole(run: Run) -> Extent {
        Extent { run, skip: 0, len: run.len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_store() {
        let (first, end) = StoreNumber(0).ids();
        assert_eq!((first, end), (SegmentId(1), SegmentId(1 << 40)));
        let (first, end) = StoreNumber(3).ids();
        assert_eq!((first.made_by(), SegmentId(end.0 - 1).made_by()), (StoreNumber(3), StoreNumber(3)));
        assert_eq!(SegmentId(u64::MAX).made_by(), StoreNumber(u16::MAX));
    }
}
