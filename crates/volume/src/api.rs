//! The values that operations take and give: the contract with the doors.
//!
//! Why:   doors and operations were built side by side; this page is what both sides rely on.
//! Not here: the operations (one file each, as `impl Volume` blocks).

use bytes::Bytes;
use margay_env::Timestamp;
use margay_rows::kinds::{DocumentSet, Documents, Settings};

use crate::encryption::{CustomerKey, WrappingKey};

pub use margay_rows::values::{BucketInfo, ETag, Headers, NoVersionId, PART_NUMBER_MAX, VersionId, Versioning};

/// Longest S3 key accepted by a PUT, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = margay_rows::key::OBJECT_KEY_BYTES_MAX;
/// Largest object, in bytes (50 TiB is AWS's limit since December 2025; 5 TiB before).
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Largest single PUT or part, in bytes.
pub const PART_BYTES_MAX: u64 = 5 << 30;
/// Smallest part but the last, in bytes.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// What a bucket has from the moment it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewBucket {
    /// Empty: the root account.
    pub owner: String,
    pub settings: Settings,
    /// Turns object lock and versioning on.
    pub object_lock: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Current ones.
    pub objects: u64,
    /// Of all versions.
    pub bytes: u64,
    /// Versions that are not current, and delete markers.
    pub versions: u64,
}

/// A bucket, a key and perhaps a version of it.
pub type ObjectName<'a> = (&'a str, &'a str, Option<VersionId>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    pub size: u64,
    pub etag: ETag,
    pub modified: Timestamp,
    pub headers: Headers,
    /// Sizes of the parts of a multipart object, in order; empty for a simple one.
    pub part_sizes: Vec<u64>,
    pub documents: Documents,
    /// `None` in a bucket that never kept versions.
    pub version: Option<VersionId>,
}

/// Conditional writes (`If-Match`, `If-None-Match`), checked in the same step as the write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WriteCondition {
    #[default]
    None,
    /// `If-None-Match: *`: nothing at the key.
    Absent,
    /// `If-Match: <etag>` (one of them): the current object has it.
    Matches(Vec<ETag>),
    /// `If-Match: *`
    Present,
    /// `If-None-Match: <etag>` (one of them): nothing at the key, or something that has none of these.
    Differs(Vec<ETag>),
}

#[derive(Clone, Debug, Default)]
pub struct PutRequest<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    pub etag: ETag,
    pub headers: Headers,
    pub documents: Documents,
    pub condition: WriteCondition,
    /// The bytes are those of another object: its event is that of a copy.
    pub is_copy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    pub etag: ETag,
    pub modified: Timestamp,
    /// `None` in a bucket that never kept versions.
    pub version: Option<VersionId>,
    /// The object is stored encrypted.
    pub encrypted: bool,
}

/// One key to delete, or one version of it.
#[derive(Clone, Debug)]
pub struct DeleteRequest<'a> {
    pub key: &'a str,
    /// `None`: the key, which in a bucket that keeps versions gets a delete marker.
    pub version: Option<VersionId>,
    /// On the current object, or on the named version.
    pub condition: WriteCondition,
    /// Its sender may delete a version that governance retains, and wants to.
    pub bypass_governance: bool,
}

impl<'a> DeleteRequest<'a> {
    /// The key, whatever is there.
    pub fn of(key: &'a str) -> DeleteRequest<'a> {
        DeleteRequest { key, version: None, condition: WriteCondition::None, bypass_governance: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// There was something to delete.
    pub removed: bool,
    /// The version that is gone, or the delete marker that was made; `None` in a bucket that never kept versions.
    pub version: Option<VersionId>,
    /// `version` is a delete marker.
    pub marker: bool,
}

#[derive(Clone, Debug)]
pub struct AppendRequest<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    /// Bytes that the object has.
    pub offset: u64,
    /// Of the bytes that are added.
    pub etag: ETag,
    /// The object's document of its data key, with which the bytes that are added are encrypted.
    pub encryption: Option<Bytes>,
    pub condition: WriteCondition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    pub etag: ETag,
    pub modified: Timestamp,
    /// Bytes of the whole object.
    pub size: u64,
}

#[derive(Clone, Debug, Default)]
pub struct CopyRequest<'a> {
    pub source_bucket: &'a str,
    pub source_key: &'a str,
    /// `None`: the current one.
    pub source_version: Option<VersionId>,
    pub bucket: &'a str,
    pub key: &'a str,
    /// `None`: take the source's headers (`x-amz-metadata-directive: COPY`).
    pub headers: Option<Headers>,
    /// Documents that are taken from the source, as far as it has them.
    pub documents_kept: DocumentSet,
    /// Documents besides, and in the place of those of the source.
    pub documents: Documents,
    pub encryption: CopyEncryption,
    pub condition: WriteCondition,
    /// Decided on the source inside the operation.
    pub source_condition: ReadCondition,
}

/// Keys of a copy and of its source.
#[derive(Clone, Debug, Default)]
pub struct CopyEncryption {
    /// What the source is encrypted under, if it is under a customer's key.
    pub source: Option<CustomerKey>,
    /// What the copy's data key is to be under. Without one the copy of an encrypted source is under the server's.
    pub target: Option<WrappingKey>,
}

/// Conditional reads, decided in HTTP's order of precedence (RFC 9110, section 13.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCondition {
    pub if_match: Option<Vec<ETagMatch>>,
    pub if_none_match: Option<Vec<ETagMatch>>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ETagMatch {
    Any,
    Exact(ETag),
    /// Well formed, but no object can have it.
    Never,
}

#[derive(Clone, Debug)]
pub struct ListRequest<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Any non-empty string.
    pub delimiter: Option<&'a str>,
    /// Only keys after this one, in byte order. When it is itself a common prefix, everything below it is skipped
    /// (that is what a V1 marker or a continuation token taken from [`ListOutcome::next`] needs).
    pub after: Option<&'a str>,
    /// With `after`: skip everything that begins with it too (set when `after` came from a common prefix).
    pub after_is_prefix: bool,
    /// Most items (objects and prefixes together).
    pub max: usize,
}

/// One line of a listing, in byte order; borrowed from the scan.
#[derive(Clone, Copy, Debug)]
pub enum ListItem<'a> {
    Object { key: &'a str, size: u64, etag: ETag, modified: Timestamp },
    Prefix(&'a str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOutcome {
    /// The last item given, when more follow: its key or prefix, and whether it was a prefix.
    pub next: Option<(String, bool)>,
}

#[derive(Clone, Debug)]
pub struct ListVersionsRequest<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Any non-empty string.
    pub delimiter: Option<&'a str>,
    pub after: Option<VersionsAfter<'a>>,
    /// Most items (versions, delete markers and prefixes together).
    pub max: usize,
}

/// Where a listing of versions goes on.
#[derive(Clone, Copy, Debug)]
pub enum VersionsAfter<'a> {
    /// Behind all versions of this key.
    Key(&'a str),
    /// Behind this version of this key.
    Version(&'a str, VersionId),
    /// Behind all keys that begin with this.
    Prefix(&'a str),
}

/// One line of a listing of versions: by key in byte order, of one key the newest first.
#[derive(Clone, Copy, Debug)]
pub enum VersionItem<'a> {
    Version { key: &'a str, version: VersionId, is_latest: bool, size: u64, etag: ETag, modified: Timestamp },
    DeleteMarker { key: &'a str, version: VersionId, is_latest: bool, modified: Timestamp },
    Prefix(&'a str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListVersionsOutcome {
    /// The last item given, when more follow: its key and version, or a prefix.
    pub next: Option<(String, Option<VersionId>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    pub key: String,
    pub upload: String,
    pub initiated: Timestamp,
    pub headers: Headers,
    pub documents: Documents,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    pub number: u16,
    pub etag: ETag,
    pub size: u64,
    pub modified: Timestamp,
    /// `x-amz-checksum-*` of the part.
    pub headers: Headers,
}

/// A part as the client names it in CompleteMultipartUpload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartChoice {
    pub number: u16,
    pub etag: ETag,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the bucket does not exist")]
    NoSuchBucket,
    #[error("the bucket exists")]
    BucketExists,
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    #[error("the object does not exist")]
    NoSuchKey,
    /// What is newest at the key says that it was deleted.
    #[error("the newest version of the object is a delete marker")]
    Deleted(VersionId),
    #[error("the version does not exist")]
    NoSuchVersion,
    /// The version that was asked for holds no object.
    #[error("the version is a delete marker")]
    DeleteMarker { version: VersionId, modified: Timestamp },
    #[error("the bucket keeps versions, or has object lock, which needs them")]
    KeepsVersions,
    #[error("the bucket does not keep versions")]
    KeepsNoVersions,
    #[error("the bucket has no object lock")]
    NoObjectLock,
    /// A legal hold or a retention keeps the version as it is.
    #[error("the version is locked")]
    Locked,
    #[error("the retain until date is not in the future")]
    RetentionOver,
    #[error("the upload does not exist")]
    NoSuchUpload,
    #[error("part {0} was not uploaded or has another ETag")]
    InvalidPart(u16),
    #[error("parts are not in ascending order")]
    InvalidPartOrder,
    #[error("part {0} is smaller than {PART_BYTES_MIN} bytes and not the last")]
    PartTooSmall(u16),
    #[error("the key is longer than {KEY_BYTES_MAX} bytes")]
    KeyTooLong,
    #[error("the object would be larger than the limit")]
    TooLarge,
    #[error("a condition of the request does not hold")]
    PreconditionFailed,
    /// The reader's copy is current (If-None-Match, If-Modified-Since).
    #[error("not modified")]
    NotModified,
    #[error("fewer or more bytes came than were announced")]
    WrongLength,
    /// An append began elsewhere than at the object's end.
    #[error("the object has {0} bytes")]
    WrongOffset(u64),
    #[error("the object has {PART_NUMBER_MAX} parts already")]
    TooManyParts,
    #[error("the range lies outside the object")]
    InvalidRange,
    #[error("the bucket would hold more than its quota")]
    QuotaExceeded,
    #[error("the disk is full")]
    Full,
    #[error("the volume is read-only after a storage fault: {0}")]
    ReadOnly(String),
    /// Too many concurrent changes to the same names; try again.
    #[error("too much contention on this name")]
    Busy,
    /// Another process took this one for dead: it has to begin a new session.
    #[error("another process took this one for dead")]
    Fenced,
    /// Another process does now what a lease allowed this one.
    #[error("the lease was taken by another process")]
    LeaseLost,
    /// The metadata gave no answer in time; nothing was done.
    #[error("metadata is unavailable: {0}")]
    Unavailable(String),
    /// Whether the change was made is not known, and could not be found out in time.
    #[error("the outcome of the change is unknown")]
    OutcomeUnknown,
    /// Ends an attempt whose rows are not at hand yet; it runs again with them, so no caller sees this.
    #[error("rows are not read yet")]
    Unread,
    /// The object is encrypted under a customer's key, and none was given.
    #[error("the object is encrypted under a customer's key, which was not given")]
    KeyRequired,
    #[error("the object is encrypted under another key than the one given")]
    WrongKey,
    #[error("the object is not encrypted under a customer's key, but one was given")]
    KeyNotApplicable,
    /// A copy cannot share the source's bytes, since one of both is encrypted and the other is not, or under a key of
    /// another kind: read and write them.
    #[error("the bytes of the source cannot be shared")]
    NotShareable,
    #[error("the server has no key for this: see the key file of the data directory")]
    NoMasterKey,
    /// A request names a key that is not in the server's key file.
    #[error("the server's key file has no key of that name")]
    NoNamedKey,
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    #[error("storage: {0}")]
    Io(#[from] std::io::Error),
}
