//! The file system itself: one file per operation; S3 and POSIX meanings meet only here.
//!
//! Why:        one tree has two doors, so what an object, a directory and a rename mean is decided in one place.
//! Layout:     rows in `meta` (docs/format/keys.md), payload in `segment`.
//! Invariants: V1 a directory entry is one row at (directory, sort name); the sort name of a directory ends in `/`.
//!             V2 data is durable before metadata names it.  V3 what S3 is shown or answered is durable first.
//! Not here:   HTTP, XML, signatures (s3), FUSE (fuse), storage (meta, segment).

pub mod api;
pub use api::*;
