//! Versions of an object: which one a file is, and the rows of those that are not current.
//!
//! Layout:     version row: a file's entry as it was | 1, kind 4 = delete marker: flags (1: its id is `null`), modified
//!             null version row: sequence, 8 bytes big-endian
//! Invariants: a version row's sequence is in its key; that of a file is in its entry too, and is the same.

use margay_env::Timestamp;

use super::entry::{Entry, FileEntry};
use super::wire::{Damaged, Reader, Writer};
use crate::values::VersionId;

const LAYOUT: u8 = 1;
const KIND_MARKER: u8 = 4;
const FLAG_NULL: u8 = 1;

/// The version that a file is of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Newer ones have larger numbers; 0 is older than the bucket's versioning.
    pub sequence: u64,
    /// Its id is `null`: made while versioning was off or suspended.
    pub is_null: bool,
}

impl Version {
    /// The version of every object in a bucket that never had versioning.
    pub const OLD: Version = Version { sequence: 0, is_null: true };

    pub fn id(self) -> VersionId {
        if self.is_null { VersionId::Null } else { VersionId::Numbered(self.sequence) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteMarker {
    pub is_null: bool,
    pub modified: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionRow {
    File(FileEntry),
    Marker(DeleteMarker),
}

impl DeleteMarker {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(16);
        writer.raw(&[LAYOUT, KIND_MARKER, if self.is_null { FLAG_NULL } else { 0 }]);
        writer.time(self.modified);
        writer.finish()
    }
}

impl VersionRow {
    pub fn decode(value: &[u8]) -> Result<VersionRow, Damaged> {
        if value.get(1) != Some(&KIND_MARKER) {
            let file = Entry::decode(value)?.file().ok_or(Damaged("a version is neither a file nor a marker"))?;
            return Ok(VersionRow::File(file));
        }
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        reader.byte()?;
        let is_null = reader.byte()? & FLAG_NULL != 0;
        let modified = reader.time()?;
        reader.end()?;
        Ok(VersionRow::Marker(DeleteMarker { is_null, modified }))
    }

    pub fn is_null(&self) -> bool {
        match self {
            VersionRow::File(file) => file.version.is_null,
            VersionRow::Marker(marker) => marker.is_null,
        }
    }

    pub fn modified(&self) -> Timestamp {
        match self {
            VersionRow::File(file) => file.modified,
            VersionRow::Marker(marker) => marker.modified,
        }
    }

    pub fn file(self) -> Option<FileEntry> {
        match self {
            VersionRow::File(file) => Some(file),
            VersionRow::Marker(_) => None,
        }
    }
}

/// The value of a null version row.
pub fn decode_sequence(value: &[u8]) -> Result<u64, Damaged> {
    Ok(u64::from_be_bytes(value.try_into().map_err(|_| Damaged("a sequence is not eight bytes"))?))
}

/// The file in an entry, an inode record or a version row, if it holds one.
pub fn file_of_row(value: &[u8]) -> Result<Option<FileEntry>, Damaged> {
    match value.get(1) {
        Some(&KIND_MARKER) => VersionRow::decode(value).map(VersionRow::file),
        _ => Entry::decode(value).map(Entry::file),
    }
}
