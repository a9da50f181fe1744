//! A key of a bucket, and the bucket's versioning state.
//!
//! Why:      paths lead to it, and all version operations start with it.
//! Not here: operations on it (versions).

use margay_rows::Ino;
use margay_rows::record::Version;
use margay_rows::values::Versioning;

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

    pub(crate) fn keeps(&self) -> bool {
        self.versioning != Versioning::Never
    }
}
