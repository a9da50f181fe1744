//! Finds a version of a key for reading.

use margay_rows::Ino;
use margay_rows::record::VersionRow;

use crate::api::{Error, VersionId};
use crate::draft::Seen;
use crate::entry::Located;
use crate::open::Volume;
use crate::versioned_key::VersionedKey;

impl Volume {
    /// The version with this id, given the current object.
    pub(crate) fn find_version(
        &self,
        key: &VersionedKey<'_>,
        current: Option<Located>,
        id: VersionId,
        seen: &mut Seen,
    ) -> Result<Located, Error> {
        if let Some(current) = current.filter(|current| current.file.version.id() == id) {
            return Ok(current);
        }
        let found = if key.keeps() { self.version_row(key, id, seen)? } else { None };
        let found = found.ok_or(Error::NoSuchVersion)?;
        match found.row {
            VersionRow::File(file) => {
                self.entry_hints.note(&found.row_key, &file, false);
                Ok(Located::of_version(found.row_key, found.row_version, seen.cursor, file))
            }
            VersionRow::Marker(marker) => Err(Error::DeleteMarker { version: id, modified: marker.modified }),
        }
    }

    /// The error for a key without a current object, whose path ends in this directory.
    pub(crate) fn why_absent(&self, key: &VersionedKey<'_>, directory: Ino, seen: &mut Seen) -> Error {
        if let Err(error) = self.check_absent(directory) {
            return error;
        }
        let newest = if key.keeps() { self.newest_row(key, seen) } else { Ok(None) };
        match newest {
            Ok(None) => Error::NoSuchKey,
            Ok(Some(marker)) => Error::Deleted(marker.id()),
            Err(error) => error,
        }
    }
}
