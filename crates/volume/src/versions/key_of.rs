//! From a directory and a name to the key that S3 knows it by.
//!
//! Why:        versions are found by key, and the mount goes by numbers.
//! Invariants: in a bucket that keeps versions no directory moves (Y5), so once its versioning was read, or is asserted,
//!             the key is what it will be; a directory that is gone meanwhile is asserted by whoever makes something in it.

use margay_rows::record::DirectoryRecord;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::open::Volume;

/// Deepest directory that has a key; no key of S3 is longer than 1024 bytes, but the mount may go deeper.
const DEPTH_MAX: usize = 4096;

impl Volume {
    /// `None` when the directory is gone.
    pub(crate) fn key_of(&self, directory: Ino, name: &str) -> Result<Option<String>, Error> {
        let mut names = vec![name.to_owned()];
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            let Some(row) = self.row(&key::directory(at))?.value else { return Ok(None) };
            let record = DirectoryRecord::decode(&row.value)?;
            if record.parent == Ino(0) {
                names.reverse();
                return Ok(Some(names.concat()));
            }
            at = record.parent;
            names.push(record.sort_name);
        }
        Err(Error::KeyTooLong)
    }
}
