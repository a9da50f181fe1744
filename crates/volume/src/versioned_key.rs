//! A key of a bucket, and the bucket's versioning state.
//!
//! Why:      paths lead to it, and all version operations start with it.
//! Not here: operations on it (versions).

use margay_meta::KEY_BYTES_MAX;
use margay_rows::record::Version;
use margay_rows::values::Versioning;
use margay_rows::{Ino, key};

use crate::api::Error;

#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionedKey<'a> {
    pub(crate) root: Ino,
    pub(crate) key: &'a str,
    pub(crate) versioning: Versioning,
}

impl VersionedKey<'_> {
    /// A version of the key that becomes the newest, with this sequence.
    pub(crate) fn version(&self, sequence: u64) -> Version {
        match self.versioning {
            Versioning::Never => Version::OLD,
            Versioning::Enabled => Version { sequence, is_null: false },
            Versioning::Suspended => Version { sequence, is_null: true },
        }
    }

    /// Refuses a name whose versions would have rows with keys that are too long. A mount may go that deep; files that
    /// were there before the bucket kept versions, or before this limit, stay what they are.
    pub(crate) fn check_length(&self) -> Result<(), Error> {
        let is_short = key::version(self.root, self.key, 0).len() <= KEY_BYTES_MAX;
        if is_short { Ok(()) } else { Err(Error::KeyTooLong) }
    }

    pub(crate) fn keeps(&self) -> bool {
        self.versioning != Versioning::Never
    }
}
