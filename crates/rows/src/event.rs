//! Events: changes of objects.
//!
//! Not here:   the row (record), the queue and the choice of targets (margay-volume).

use margay_env::Timestamp;

use crate::values::ETag;

/// What happened to an object. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    Put = 1,
    Copy = 2,
    CompleteMultipartUpload = 3,
    Delete = 4,
    DeleteMarkerCreated = 5,
    /// Deleted by the lifecycle.
    Expired = 6,
    /// The lifecycle created a delete marker.
    ExpiredToMarker = 7,
    TaggingPut = 8,
    TaggingDelete = 9,
}

impl EventKind {
    pub const ALL: [EventKind; 9] = [
        EventKind::Put,
        EventKind::Copy,
        EventKind::CompleteMultipartUpload,
        EventKind::Delete,
        EventKind::DeleteMarkerCreated,
        EventKind::Expired,
        EventKind::ExpiredToMarker,
        EventKind::TaggingPut,
        EventKind::TaggingDelete,
    ];
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub at: Timestamp,
    pub bucket: String,
    pub key: String,
    /// In bytes; 0 for a deleted object.
    pub size: u64,
    pub etag: ETag,
    /// Empty in a bucket that never had versioning.
    pub version: String,
}
