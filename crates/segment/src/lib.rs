//! Append-only data: runs of bytes with checksums in numbered files.
//!
//! Why:        random writes become sequential, a sealed segment never changes, space comes back file by file.
//! Layout:     `<data>/segments/<id, 16 hex digits>.{log,pack,raw}`, see docs/format/segment.md.
//! Invariants: S1 bytes that an extent names are never overwritten.  S2 a run is durable before metadata names it.
//!             S3 a segment id is never reused.
//! Not here:   which runs are live (volume::reclaim), the metadata log's records (meta::log).

pub mod id;
pub mod store;

pub use id::{CHUNK_BYTES, Extent, Run, SegmentId};
pub use store::{Kind, Options, SegmentError, SegmentInfo, Store};
