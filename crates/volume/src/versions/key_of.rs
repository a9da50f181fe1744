//! Finds the S3 key of a name in a directory.
//!
//! Why:        versions are found by key, while the mount uses numbers.
//! Invariants: K1 with versioning no directory moves (Y5), so once the versioning state was read, or is asserted, the
//!                key stays valid; a change in the directory asserts that the directory still exists.

use margay_rows::record::DirectoryRecord;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::open::Volume;

/// Maximum depth of a directory with a key; S3 keys have at most 1024 bytes, but the mount may go deeper.
const DEPTH_MAX: usize = 4096;

impl Volume {
    /// `None` if the directory was removed.
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
