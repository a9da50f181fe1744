//! Kinds of segments, and entries of the segment list.
//!
//! Not here:   the content of the files (format).

use std::sync::Arc;

use margay_env::File;

use crate::SegmentId;

/// What a segment file holds; its file name's ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of the metadata log with small payloads between them; written by `meta`.
    Log,
    /// Many small runs.
    Pack,
    /// One large run whose payload begins at offset 0.
    Raw,
}

#[derive(Clone, Copy, Debug)]
pub struct SegmentInfo {
    pub id: SegmentId,
    pub kind: Kind,
    /// Length of the file in bytes.
    pub len: u64,
    /// Whether it may still be written to, or is pinned.
    pub open: bool,
}

/// A segment's file as it is now.
#[derive(Debug)]
pub struct SegmentCopy {
    /// The name for a copy of it.
    pub name: String,
    pub kind: Kind,
    pub file: Arc<dyn File>,
}
