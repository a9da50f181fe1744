//! The entry at a key, as a change has read it.
//!
//! Why:        PUT, DELETE, copies and versions decide on it and assert it.
//! Not here:   what replaces it (put_object, delete_object, versions).

use margay_rows::key;
use margay_rows::record::FileEntry;
use margay_rows::record::entry::EMPTY_ETAG;

use crate::api::{ETag, Error, KEY_BYTES_MAX, PutOutcome, VersionId};
use crate::cache::split;
use crate::draft::{Draft, Seen};
use crate::entry::names::Located;
use crate::entry::paths::Walk;
use crate::open::Volume;
use crate::versioned_key::VersionedKey;

pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    match key.len() {
        0 => Err(Error::NoSuchKey),
        len if len > KEY_BYTES_MAX => Err(Error::KeyTooLong),
        _ => Ok(()),
    }
}

/// The entry at a key, as a change has read it.
#[derive(Debug)]
pub(crate) struct Current<'k> {
    pub(crate) object: VersionedKey<'k>,
    /// The last part of the key, after its directories.
    pub(crate) name: &'k str,
    pub(crate) entry_key: Vec<u8>,
    pub(crate) file: Option<Located>,
}

impl Current<'_> {
    /// The ETag that S3 shows at the key; an explicit directory is an empty object.
    pub(crate) fn etag(&self, walk: &Walk<'_>) -> Option<ETag> {
        match &self.file {
            Some(old) => Some(old.file.etag),
            None => self.explicit(walk).then_some(EMPTY_ETAG),
        }
    }

    /// The version id that S3 shows at the key.
    pub(crate) fn id(&self, walk: &Walk<'_>) -> Option<VersionId> {
        match &self.file {
            Some(file) => Some(file.file.version.id()),
            None => self.explicit(walk).then_some(VersionId::Null),
        }
    }

    /// The key is `x/`, and x is an explicit directory without a body of its own.
    pub(crate) fn explicit(&self, walk: &Walk<'_>) -> bool {
        self.file.is_none()
            && self.name.is_empty()
            && walk.complete()
            && walk.path.steps.last().is_some_and(|step| step.entry.explicit)
    }

    /// Asserts that the entry is as it was read, or still absent.
    pub(crate) fn assert_in(&self, draft: &mut Draft, walk: &Walk<'_>) {
        match &self.file {
            Some(file) => file.assert_in(draft),
            None if walk.complete() => draft.assert_absent(self.entry_key.clone()),
            None => walk.assert_missing(draft),
        }
    }

    /// The outcome of replacing it by `file`.
    pub(crate) fn outcome(&self, file: &FileEntry) -> PutOutcome {
        let version = self.object.keeps().then_some(file.version.id());
        PutOutcome { etag: file.etag, modified: file.modified, version, encrypted: file.is_encrypted() }
    }
}

impl Volume {
    /// Reads the file at the end of a walk over the directories of this key.
    pub(crate) fn current<'k>(&self, walk: &Walk<'_>, key: &'k str, seen: &mut Seen) -> Result<Current<'k>, Error> {
        let (object, name) = (walk.path.versioned(key), split(key).1);
        let entry_key = key::entry(walk.path.directory(), name.as_bytes());
        let file = match walk.complete() {
            true => self.file_at(walk.path.directory(), name.as_bytes(), seen)?,
            false => None,
        };
        Ok(Current { object, name, entry_key, file })
    }
}
