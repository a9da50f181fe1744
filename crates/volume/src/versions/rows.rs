//! The rows of versions: reading, drafting, counting.
//!
//! Invariants: R1 the version of a changed row is asserted; the null version row and the counter change with it.

use std::ops::ControlFlow;

use margay_meta::{Guard, RowVersion};
use margay_rows::key::{self, Counted};
use margay_rows::record::version::decode_sequence;
use margay_rows::record::{DeleteMarker, Version, VersionRow};

use crate::api::{Error, VersionId};
use crate::draft::{Draft, Seen};
use crate::entry::Located;
use crate::open::Volume;
use crate::versioned_key::VersionedKey;

/// A noncurrent version or a delete marker, as read.
#[derive(Clone, Debug)]
pub(crate) struct FoundVersion {
    pub(crate) row_key: Vec<u8>,
    pub(crate) row_version: RowVersion,
    pub(crate) sequence: u64,
    pub(crate) row: VersionRow,
}

impl FoundVersion {
    pub(crate) fn id(&self) -> VersionId {
        if self.row.is_null() { VersionId::Null } else { VersionId::Numbered(self.sequence) }
    }
}

impl VersionedKey<'_> {
    pub(crate) fn row(&self, sequence: u64) -> Vec<u8> {
        key::version(self.root, self.key, sequence)
    }

    /// Guards the version rows of this key: whoever adds one also asserts that it is the newest. The entry cannot guard
    /// them, as its directory may be missing; and the bucket's row would make one queue of all its keys.
    pub(crate) fn guard(&self) -> Guard {
        Guard::Key(key::null_version(self.root, self.key))
    }

    /// Y4: asserts that this sequence is the newest.
    pub(crate) fn assert_newest(&self, draft: &mut Draft, sequence: u64) {
        draft.assert_empty(key::versions_from(self.root, self.key, sequence), self.guard());
    }

    pub(crate) fn draft_marker(&self, draft: &mut Draft, sequence: u64, marker: DeleteMarker) {
        self.draft_row(draft, sequence, marker.is_null, marker.encode());
    }

    /// Drafts a new row.
    pub(crate) fn draft_row(&self, draft: &mut Draft, sequence: u64, is_null: bool, value: Vec<u8>) {
        draft.put(self.row(sequence), value);
        draft.add(key::usage(self.root, Counted::Versions), 1);
        if is_null {
            draft.put(key::null_version(self.root, self.key), sequence.to_be_bytes().to_vec());
        }
    }

    /// Drafts the removal of a row; the caller releases its file.
    pub(crate) fn draft_row_gone(&self, draft: &mut Draft, found: &FoundVersion) {
        draft.assert_version(found.row_key.clone(), found.row_version);
        draft.delete(found.row_key.clone());
        draft.add(key::usage(self.root, Counted::Versions), -1);
        if found.row.is_null() {
            draft.delete(key::null_version(self.root, self.key));
        }
    }
}

impl Volume {
    /// A new newest version of a key with this current object; the commit asserts that it is the newest.
    pub(crate) fn newest_version(
        &self,
        key: &VersionedKey<'_>,
        current: Option<&Located>,
        seen: &mut Seen,
    ) -> Result<Version, Error> {
        if !key.keeps() {
            return Ok(Version::OLD);
        }
        let newest = self.newest_row(key, seen)?.map_or(0, |newest| newest.sequence);
        let floor = current.map_or(0, |current| current.file.version.sequence).max(newest);
        Ok(key.version(self.inos.next_above(floor, &*self.engine)?.0))
    }

    /// The newest version row of a key with a smaller sequence.
    pub(crate) fn newest_below(
        &self,
        key: &VersionedKey<'_>,
        sequence: u64,
        seen: &mut Seen,
    ) -> Result<Option<FoundVersion>, Error> {
        let mut found = None;
        self.scan(&key::versions_below(key.root, key.key, sequence), seen, |row| {
            let (_, _, sequence) = key::parse_version(row.key)?;
            let (row_key, row_version, row) = (row.key.to_vec(), row.version, VersionRow::decode(row.value)?);
            found = Some(FoundVersion { row_key, row_version, sequence, row });
            Ok(ControlFlow::Break(()))
        })?;
        if let Some(found) = &found {
            seen.in_range(&found.row_key, found.row_version);
        }
        Ok(found)
    }

    /// The newest version row of a key.
    pub(crate) fn newest_row(&self, key: &VersionedKey<'_>, seen: &mut Seen) -> Result<Option<FoundVersion>, Error> {
        self.newest_below(key, u64::MAX, seen)
    }

    /// The version row with this id.
    pub(crate) fn version_row(
        &self,
        key: &VersionedKey<'_>,
        id: VersionId,
        seen: &mut Seen,
    ) -> Result<Option<FoundVersion>, Error> {
        let sequence = match id {
            VersionId::Numbered(sequence) => sequence,
            VersionId::Null => match self.get(&key::null_version(key.root, key.key), seen)? {
                Some(row) => decode_sequence(&row.value)?,
                None => return Ok(None),
            },
        };
        let row_key = key.row(sequence);
        let Some(row) = self.get(&row_key, seen)? else { return Ok(None) };
        let found = FoundVersion { row_key, row_version: row.version, sequence, row: VersionRow::decode(&row.value)? };
        // A null version has a sequence too, but not as its id.
        Ok((found.id() == id).then_some(found))
    }
}
