//! The file system: one file per operation; the meanings of S3 and POSIX meet only here.
//!
//! Why:        both doors show one tree, so one crate decides what an object, a directory and a rename mean.
//! Layout:     rows in `meta` (docs/format/keys.md), payload in `segment`.
//! Invariants: V1 a directory entry is one row at (directory, sort name); the sort name of a directory ends in `/`.
//!             V2 data is durable before metadata refers to it.  V3 what S3 is answered is durable first. What each
//!                operation asserts: docs/preconditions.md.
//! Not here:   HTTP, XML, signatures (s3), FUSE (fuse), storage (meta, segment).

pub mod api;
mod blocking;
mod bucket;
mod cache;
mod changes;
mod condition;
mod draft;
mod driver;
mod effects;
mod encryption;
mod entry;
mod error;
mod event;
mod file_headers;
mod follower;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod keys;
mod known;
mod lock_time;
mod object;
mod open;
mod open_files;
pub mod posix;
mod reader;
mod rests;
mod session_state;
mod sessions;
mod stores;
mod trails;
mod upgrade;
mod upkeep;
mod upload;
mod versioned_key;
mod versions;
mod watch;

pub use api::*;
pub use blocking::{Blocking, OnThisThread};
pub use cache::BucketFact;
pub use cache::Quota;
pub use driver::Purpose;
pub use driver::{RequestRows, View};
pub use encryption::{
    CustomerKey, DataKey, EncryptionError, KEY_NAME_BYTES_MAX, MASTER_KEY_BYTES, MasterKeys, Protection, WrappingKey,
};
pub use entry::NewKey;
pub use event::{EventRouter, EventRules, QueuedEvent, Route};
pub use file_headers::FileHeaders;
pub use follower::{FOLLOW_EVERY_MAX, Followed};
pub use keys::{IDENTITY_CHANGES_MAX, Identities, IdentityChange, IdentityRow};
pub use keys::{KnownFingerprints, stored_key_fingerprints};
pub use margay_rows::Ino;
pub use margay_rows::event::{Event, EventKind};
pub use margay_rows::key::EventNumber;
pub use margay_rows::key::is_of_process;
pub use margay_rows::kinds::{
    DOCUMENT_BYTES_MAX, Document, DocumentSet, Documents, SETTING_BYTES_MAX, Setting, SettingSet, Settings,
};
pub use margay_rows::numbered::{Numbered, SetOf};
pub use margay_rows::object_lock::{
    DefaultRetention, RETENTION_DAYS_MAX, RETENTION_YEARS_MAX, Retention, RetentionMode, RetentionPeriod,
    encode_legal_hold, legal_hold_is_on,
};
pub use margay_rows::record::{CopiesRecord, Fingerprints, KeyFile, Pool, Role, SegmentRecord, SegmentState, is_rack};
pub use object::{Imported, ImportedBytes, ImportedKind, NamedFile};
pub use object::{ObjectPlaces, ObjectSegment, object_places};
pub use open::{Options, Volume};
pub use reader::{READ_BYTES_MAX, Reader};
pub use session_state::{Beat, STILL_BEATS_MAX, SessionName};
pub use sessions::{BehindSession, Lease, MountHolder};
pub use stores::{Absences, Copies, Evict, Peers, Processes, StorePlace, store_identity, store_place};
pub use stores::{
    KnownSegment, KnownStore, add_pool, change_copies, forget_segment, is_named, is_referenced, known_stores,
    named_runs, oldest_read, read_copies, read_segment, rename_stores, visit_segments_made_by,
};
pub use upgrade::{FORMAT_VERSION, OpenError, stored_format};
pub use upkeep::{
    BackupError, BackupReport, Ends, Part, PartName, Pruned, Putting, RESTORED_ROWS_PER_BATCH, moments, named_segments,
    prune, restore_rows, segments_of,
};
pub use upkeep::{
    DUMP_HEADER_BYTES, DumpHeader, DumpReport, DumpRequest, DumpSink, PIECE_BYTES_MAX, PiecePlace, decode_dump_header,
    read_dump, read_dump_header,
};
pub use upkeep::{DamagedData, ScrubReport};
pub use upkeep::{Finding, FindingKind, FsckOptions, FsckReport};
pub use upkeep::{KeepLogs, LogRelease, ReclaimBudget, Reclaimed, SealedLogs};
pub use upload::{Staged, Upload};
pub use versions::DueVersion;
