//! Append-only storage: runs of bytes with checksums in numbered files.
//!
//! Why:        random writes become sequential, a sealed segment never changes, and space is reclaimed file by file.
//! Layout:     `<data>/segments/<id, 16 hex digits>.{log,pack,raw}`, see docs/format/segment.md.
//! Invariants: S1 referenced bytes are never overwritten.  S2 a run is durable before metadata refers to it.
//!             S3 a segment id is never reused, and begins with the number of its store.
//!             S4 bytes are removed by two proofs only (quarantine).
//! Not here:   which runs are live (volume::reclaim), the metadata log's records (meta::log).

mod buffers;
mod cache;
mod checksum_table;
mod copy;
mod elsewhere;
pub mod error;
mod folder;
pub mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod id;
mod identity;
pub mod kind;
mod local;
mod names;
mod open_pack;
pub mod options;
mod pack;
mod pin;
mod punch;
pub mod quarantine;
mod raw;
mod read_only;
mod reader;
mod remade;
mod scrub;
mod segment;
mod segments;
mod space;
pub mod store;
mod sync;
mod walk;
mod writer;

pub use buffers::IDLE_BUFFER_BYTES_MAX;
pub use elsewhere::read_run_in;
pub use error::SegmentError;
pub use folder::{OPEN_FILES_MAX, TABLE_CACHE_BYTES_MAX};
pub use id::{
    CHUNK_BYTES, Extent, RUN_BYTES_MAX, Run, STORE_ID_BITS, SegmentId, StoreIdentity, StoreName, StoreNumber,
};
pub use kind::{Kind, SegmentCopy, SegmentInfo};
pub use names::{mark_name, segment_name, segment_of_name};
pub use options::Options;
pub use pin::{Hold, SegmentPin};
pub use quarantine::{Proof, QuarantineHold, Quarantined, Walk};
pub use read_only::{OtherStore, ReadOnly};
pub use remade::Remade;
pub use scrub::{SCRUB_PIECE_BYTES, verify_run_in};
pub use segments::{Holes, InQuarantine, RunLength, RunWriter, Segments, StoreSpace, SyncFuture};
pub use store::Store;
pub use sync::SYNC_THREADS;
pub use walk::WalkedRun;
pub use writer::{FolderRun, WRITE_BUFFER_BYTES, add_checksums};
