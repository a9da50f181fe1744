//! Counters: what batches add up, and modification times of directories, which batches raise. See [`margay_meta::kind`].
//!
//! Not here:   writing them (draft).

use margay_env::Timestamp;
use margay_meta::Row;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;

impl Volume {
    pub(crate) fn counter(&self, key: &[u8], seen: &mut Seen) -> Result<u64, Error> {
        count_of(self.get(key, seen)?.as_ref())
    }

    /// When the content of a directory last changed.
    pub(crate) fn modified(&self, directory: Ino, seen: &mut Seen) -> Result<Timestamp, Error> {
        time_of(self.get(&key::times(directory), seen)?.as_ref())
    }
}

/// The time in a directory's row of times; the minimum without a row.
pub(crate) fn time_of(row: Option<&Row>) -> Result<Timestamp, Error> {
    let Some(row) = row else { return Ok(Timestamp(0)) };
    let bytes = row.value.as_ref().try_into().map_err(|_| Error::Corrupt("a time is not eight bytes".to_owned()))?;
    Ok(Timestamp(i64::try_from(u64::from_le_bytes(bytes)).unwrap_or(i64::MAX)))
}

/// The count in the row of a counter.
pub(crate) fn count_of(row: Option<&Row>) -> Result<u64, Error> {
    match row {
        None => Ok(0),
        // A wrong counter is reported by fsck; it must not fail a request.
        Some(row) => Ok(decode_counter(&row.value)?.max(0) as u64),
    }
}

/// The value of a row that `Add` writes.
pub(crate) fn decode_counter(value: &[u8]) -> Result<i64, Error> {
    Ok(i64::from_le_bytes(eight_bytes(value)?))
}

/// The value of any counter.
pub(crate) fn eight_bytes(value: &[u8]) -> Result<[u8; 8], Error> {
    value.try_into().map_err(|_| Error::Corrupt("a counter is not eight bytes".to_owned()))
}
