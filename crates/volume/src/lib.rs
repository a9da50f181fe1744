//! The file system: one file per operation; the meanings of S3 and POSIX meet only here.
//!
//! Why:        both doors show one tree, so one crate decides what an object, a directory and a rename mean.
//! Layout:     rows in `meta` (docs/format/keys.md), payload in `segment`.
//! Invariants: V1 a directory entry is one row at (directory, sort name); the sort name of a directory ends in `/`.
//!             V2 data is durable before metadata refers to it.  V3 what S3 is answered is durable first. What each
//!                operation asserts: docs/preconditions.md.
//! Not here:   HTTP, XML, signatures (s3), FUSE (fuse), storage (meta, segment).

mod ahead;
pub mod api;
mod append_object;
mod at_hand;
mod back_rows;
mod backup;
mod blocking;
mod bucket;
mod bucket_facts;
mod bucket_object_lock;
mod bucket_quota;
mod bucket_row;
mod bucket_settings;
mod bucket_states;
mod bucket_versioning;
mod change_documents;
mod change_locks;
mod changes;
mod condition;
mod copy_object;
mod counters;
mod current;
mod delete_object;
mod delete_objects;
mod documents;
mod draft;
mod driver;
mod dump;
mod effects;
mod encryption;
mod entry_hints;
mod error;
mod event;
mod event_queue;
mod events;
mod followed;
mod follower;
mod fresh;
mod fsck;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod get_object;
mod identities;
mod implicit_directories;
mod inos;
mod kept_rows;
mod key_fingerprints;
mod known;
mod list;
mod lock;
mod lock_time;
mod make_directory;
mod multipart;
mod names;
mod object_keys;
mod open;
mod open_files;
mod orphan;
mod path;
mod paths;
mod place;
pub mod posix;
mod put_object;
mod quota;
mod reader;
mod reclaim;
mod release;
mod rename;
mod request;
mod rests;
mod scrub;
mod seen;
mod segment_rows;
mod session_state;
mod sessions;
mod stores;
mod trails;
mod tree;
mod tree_ahead;
mod upgrade;
mod upload;
mod versioned_key;
mod versions;
mod watch;

pub use ahead::Purpose;
pub use api::*;
pub use backup::{
    BackupError, BackupReport, Ends, Part, PartName, Pruned, Putting, RESTORED_ROWS_PER_BATCH, moments, named_segments,
    prune, restore_rows, segments_of,
};
pub use blocking::{Blocking, OnThisThread};
pub use bucket_facts::BucketFact;
pub use dump::{
    DUMP_HEADER_BYTES, DumpHeader, DumpReport, DumpRequest, DumpSink, PIECE_BYTES_MAX, PiecePlace, decode_dump_header,
    read_dump, read_dump_header,
};
pub use encryption::{
    CustomerKey, DataKey, EncryptionError, KEY_NAME_BYTES_MAX, MASTER_KEY_BYTES, MasterKeys, Protection, WrappingKey,
};
pub use event::{EventRouter, EventRules, QueuedEvent, Route};
pub use follower::{FOLLOW_EVERY_MAX, Followed};
pub use fsck::{Finding, FindingKind, FsckOptions, FsckReport};
pub use identities::{IDENTITY_CHANGES_MAX, Identities, IdentityChange, IdentityRow};
pub use key_fingerprints::{KnownFingerprints, stored_key_fingerprints};
pub use margay_rows::Ino;
pub use margay_rows::event::{Event, EventKind};
pub use margay_rows::key::EventNumber;
pub use margay_rows::kinds::{
    DOCUMENT_BYTES_MAX, Document, DocumentSet, Documents, SETTING_BYTES_MAX, Setting, SettingSet, Settings,
};
pub use margay_rows::numbered::{Numbered, SetOf};
pub use margay_rows::object_lock::{
    DefaultRetention, RETENTION_DAYS_MAX, RETENTION_YEARS_MAX, Retention, RetentionMode, RetentionPeriod,
    encode_legal_hold, legal_hold_is_on,
};
pub use margay_rows::record::{Fingerprints, KeyFile};
pub use object_keys::NewKey;
pub use open::{Options, Volume};
pub use quota::Quota;
pub use reader::{READ_BYTES_MAX, Reader};
pub use reclaim::{KeepLogs, LogRelease, ReclaimBudget, Reclaimed, SealedLogs};
pub use request::{RequestRows, View};
pub use scrub::{DamagedData, ScrubReport};
pub use session_state::{Beat, STILL_BEATS_MAX, SessionName};
pub use sessions::Lease;
pub use stores::{Peers, Processes};
pub use upgrade::{FORMAT_VERSION, OpenError};
pub use upload::{Staged, Upload};
pub use versions::DueVersion;
