//! The values of rows: one file per kind, each with its layout.
//!
//! Why:        bytes on disk are defined by hand, so that no library upgrade can change them.
//! Invariants: the first byte of a value names its layout; decoding is total on any bytes.
//! Not here:   keys (`key`).

pub(crate) mod bucket;
pub(crate) mod data;
pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod event;
pub(crate) mod headers;
pub(crate) mod multipart;
pub(crate) mod orphan;
pub(crate) mod version;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

pub(crate) use bucket::Bucket;
pub(crate) use data::Data;
pub(crate) use directory::DirectoryRecord;
pub(crate) use entry::{DirectoryEntry, Entry, FileEntry, Line, Summary};
pub(crate) use multipart::{PartRecord, UploadRecord};
pub(crate) use orphan::Orphan;
pub(crate) use version::{DeleteMarker, Version, VersionRow, file_of_row};
pub(crate) use wire::Damaged;
