//! The values of rows: one file per kind, each with its layout.
//!
//! Why:        bytes on disk are defined by hand, so that no library upgrade can change them.
//! Invariants: the first byte of a value names its layout; decoding is total on any bytes.
//! Not here:   keys (`key`).

pub mod back;
pub mod bucket;
mod copies;
pub mod data;
pub mod directory;
pub mod entry;
pub mod event;
mod file_locks;
pub mod fingerprint;
pub mod headers;
pub mod multipart;
pub mod orphan;
mod pool;
pub mod segment;
pub mod session;
pub mod upstream;
pub mod version;
pub mod wire;

#[cfg(test)]
mod tests;

pub use back::BackRow;
pub use bucket::Bucket;
pub use copies::{CopiesRecord, POOLS_MAX, RACK_BYTES_MAX, Role, is_rack};
pub use data::Data;
pub use directory::DirectoryRecord;
pub use entry::{DirectoryEntry, Entry, FileEntry, Line, Summary};
pub use file_locks::{FILE_LOCKS_MAX, FileLock, FileLocksRecord};
pub use fingerprint::{Fingerprints, KeyFile};
pub use multipart::{PartRecord, UploadRecord};
pub use orphan::Orphan;
pub use pool::Pool;
pub use segment::{SegmentRecord, SegmentState, StoreRecord};
pub use session::{KnownIdentitiesRecord, LeaseRecord, MountLeaseRecord, SessionRecord};
pub use upstream::{UpstreamDirty, UpstreamKept, UpstreamLeftover, UpstreamObject, UpstreamUpload};
pub use version::{DeleteMarker, Version, VersionRow, file_of_row};
pub use wire::Damaged;
