//! A key of a bucket, and whether the bucket keeps versions.
//!
//! Why:      paths lead to it, and everything about versions begins with it.
//! Not here: what is done with it (versions).

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
    /// What is a version of the key that becomes the newest now, with this sequence.
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
