//! Parameters and results of operations: the interface to the doors.
//!
//! Why:      doors and operations depend only on these types, not on each other.
//! Not here: the operations (one file each, as `impl Volume` blocks).

use bytes::Bytes;
use margay_env::Timestamp;
use margay_rows::kinds::{DocumentSet, Documents, Settings};

use crate::encryption::{CustomerKey, WrappingKey};
use crate::file_headers::FileHeaders;

pub use margay_rows::values::{BucketInfo, ETag, Headers, NoVersionId, PART_NUMBER_MAX, VersionId, Versioning};

/// Longest S3 key accepted by a PUT, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = margay_rows::key::OBJECT_KEY_BYTES_MAX;
/// Largest object, in bytes (50 TiB is AWS's limit since December 2025; 5 TiB before).
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Largest single PUT or part, in bytes.
pub const PART_BYTES_MAX: u64 = 5 << 30;
/// Smallest part but the last, in bytes.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// Settings that a bucket has from its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewBucket {
    /// Empty: the root account.
    pub owner: String,
    pub settings: Settings,
    /// Enables object lock and versioning.
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

/// A bucket, a key and optionally a version id.
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
    /// `None` in a bucket that never had versioning.
    pub version: Option<VersionId>,
}

/// Conditional writes (`If-Match`, `If-None-Match`), evaluated atomically with the write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WriteCondition {
    #[default]
    None,
    /// `If-None-Match: *`: the key has no object.
    Absent,
    /// `If-Match: <etag>`: the current object has one of these ETags.
    Matches(Vec<ETag>),
    /// `If-Match: *`
    Present,
    /// `If-None-Match: <etag>`: the key has no object, or one with none of these ETags.
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
    /// The bytes come from another object: the event is that of a copy.
    pub is_copy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    pub etag: ETag,
    pub modified: Timestamp,
    /// `None` in a bucket that never had versioning.
    pub version: Option<VersionId>,
    /// The object is stored encrypted.
    pub encrypted: bool,
}

/// A key, or one version of it, to delete.
#[derive(Clone, Debug)]
pub struct DeleteRequest<'a> {
    pub key: &'a str,
    /// `None`: the key itself; with versioning it gets a delete marker.
    pub version: Option<VersionId>,
    /// Applies to the current object, or to the named version.
    pub condition: WriteCondition,
    /// The caller may, and wants to, delete a version under governance retention.
    pub bypass_governance: bool,
}

impl<'a> DeleteRequest<'a> {
    /// Deletes the key unconditionally.
    pub fn of(key: &'a str) -> DeleteRequest<'a> {
        DeleteRequest { key, version: None, condition: WriteCondition::None, bypass_governance: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// There was something to delete.
    pub removed: bool,
    /// The deleted version, or the new delete marker; `None` in a bucket that never had versioning.
    pub version: Option<VersionId>,
    /// `version` is a delete marker.
    pub marker: bool,
}

#[derive(Clone, Debug)]
pub struct AppendRequest<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    /// The object's current size in bytes.
    pub offset: u64,
    /// Of the appended bytes.
    pub etag: ETag,
    /// The object's document with its data key, under which the appended bytes are encrypted.
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
    /// `None`: the current version.
    pub source_version: Option<VersionId>,
    pub bucket: &'a str,
    pub key: &'a str,
    /// `None`: copy the source's headers (`x-amz-metadata-directive: COPY`).
    pub headers: Option<Headers>,
    /// Documents to copy from the source, if present.
    pub documents_kept: DocumentSet,
    /// Further documents, which override those of the source.
    pub documents: Documents,
    pub encryption: CopyEncryption,
    pub condition: WriteCondition,
    /// Evaluated on the source inside the operation.
    pub source_condition: ReadCondition,
}

/// Encryption keys of a copy and its source.
#[derive(Clone, Debug, Default)]
pub struct CopyEncryption {
    /// The source's customer key, if it has one.
    pub source: Option<CustomerKey>,
    /// The key under which the copy's data key is encrypted. Without one, the copy of an encrypted source uses the
    /// server's key.
    pub target: Option<WrappingKey>,
}

/// Conditional reads, evaluated in HTTP's order of precedence (RFC 9110, section 13.2.2).
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
    /// Well formed, but no object can have this ETag.
    Never,
}

#[derive(Clone, Debug)]
pub struct ListRequest<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Any non-empty string.
    pub delimiter: Option<&'a str>,
    /// Only keys after this one, in byte order. If it is itself a common prefix, everything below it is skipped (a V1
    /// marker, or a continuation token taken from [`ListOutcome::next`], needs that).
    pub after: Option<&'a str>,
    /// With `after`: also skip keys with this prefix (set when `after` was a common prefix).
    pub after_is_prefix: bool,
    /// Maximum number of items (objects and prefixes together).
    pub max: usize,
}

/// One item of a listing, in byte order; borrowed from the scan.
#[derive(Clone, Copy, Debug)]
pub enum ListItem<'a> {
    Object { key: &'a str, size: u64, etag: ETag, modified: Timestamp, row: ListedRow<'a> },
    Prefix(&'a str),
}

/// What the scan has of an object besides its line; read only by who asks for more than the line.
#[derive(Clone, Copy, Debug)]
pub struct ListedRow<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) file_headers: Option<&'a dyn FileHeaders>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOutcome {
    /// When more follow: the last item's key or prefix, and whether it was a prefix.
    pub next: Option<(String, bool)>,
}

#[derive(Clone, Debug)]
pub struct ListVersionsRequest<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Any non-empty string.
    pub delimiter: Option<&'a str>,
    pub after: Option<VersionsAfter<'a>>,
    /// Maximum number of items (versions, delete markers and prefixes together).
    pub max: usize,
}

/// Where a listing of versions continues.
#[derive(Clone, Copy, Debug)]
pub enum VersionsAfter<'a> {
    /// After all versions of this key.
    Key(&'a str),
    /// After this version of this key.
    Version(&'a str, VersionId),
    /// After all keys with this prefix.
    Prefix(&'a str),
}

/// One item of a listing of versions: by key in byte order, the newest version of a key first.
#[derive(Clone, Copy, Debug)]
pub enum VersionItem<'a> {
    Version { key: &'a str, version: VersionId, is_latest: bool, size: u64, etag: ETag, modified: Timestamp },
    DeleteMarker { key: &'a str, version: VersionId, is_latest: bool, modified: Timestamp },
    Prefix(&'a str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListVersionsOutcome {
    /// When more follow: the last item's key and version, or its prefix.
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
    /// The newest version of the key is a delete marker.
    #[error("the newest version of the object is a delete marker")]
    Deleted(VersionId),
    #[error("the version does not exist")]
    NoSuchVersion,
    /// The requested version is a delete marker.
    #[error("the version is a delete marker")]
    DeleteMarker { version: VersionId, modified: Timestamp },
    #[error("the bucket keeps versions, or has object lock, which needs them")]
    KeepsVersions,
    #[error("the bucket does not keep versions")]
    KeepsNoVersions,
    #[error("the bucket has no object lock")]
    NoObjectLock,
    /// A legal hold or a retention protects the version.
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
    /// The reader's copy is still valid (If-None-Match, If-Modified-Since).
    #[error("not modified")]
    NotModified,
    #[error("fewer or more bytes came than were announced")]
    WrongLength,
    /// The offset of an append is not the object's size.
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
    /// Too many concurrent changes to the same names; retry.
    #[error("too much contention on this name")]
    Busy,
    /// Another process declared this one dead: it must open a new session.
    #[error("another process took this one for dead")]
    Fenced,
    /// Another process has taken over the lease.
    #[error("the lease was taken by another process")]
    LeaseLost,
    /// The metadata gave no answer in time; nothing was done.
    #[error("metadata is unavailable: {0}")]
    Unavailable(String),
    /// Bytes are in stores that do not answer, or too few stores could take them; nothing was changed.
    #[error("stores are unavailable: {0}")]
    StoreUnavailable(String),
    /// Whether the change was made is not known, and could not be found out in time.
    #[error("the outcome of the change is unknown")]
    OutcomeUnknown,
    /// Ends an attempt that lacks rows; the driver runs it again with them, so no caller sees this.
    #[error("rows are not read yet")]
    Unread,
    /// The object is encrypted under a customer's key, and none was given.
    #[error("the object is encrypted under a customer's key, which was not given")]
    KeyRequired,
    #[error("the object is encrypted under another key than the one given")]
    WrongKey,
    #[error("the object is not encrypted under a customer's key, but one was given")]
    KeyNotApplicable,
    /// A copy cannot share the source's bytes, because only one of both is encrypted, or they use different kinds of
    /// keys: read and write them.
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
