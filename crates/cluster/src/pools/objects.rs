//! The objects of one pool: a segment is one object.
//!
//! Layout:     `[PREFIX/]margay/FOLDER/ID`, the id in 16 hexadecimal digits; headers tell the kind and the CRC-32C of the whole segment.
//! Invariants: O1 an object that was put counts only after it was read back as a whole (B2).
//!             O2 no request waits longer than its time.
//! Not here:   which objects there are to be (copies), verified reads (store).

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use margay_client::client::ListQuery;
use margay_client::upstream::{Grid, Metadata, Source, Upstream, WRITE_ID, Wanted};
use margay_client::{ClientError, Condition};
use margay_segment::{Kind, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::Pool;
use tokio::time::timeout;

/// Objects up to this size are one request.
const ONE_REQUEST_BYTES_MAX: u64 = 8 << 20;
/// Bytes that are read back at a time.
const READ_BACK_BYTES: u64 = 8 << 20;
/// A read that somebody waits for takes so long at most, with all that is tried again, and as long as its bytes take at the slowest rate.
const READ_TIME_MAX: Duration = Duration::from_secs(5);
const READ_BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// A request that nobody waits for.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);
/// Objects in a page of a listing.
const PAGE_OBJECTS: u32 = 1000;

const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-meta-margay-crc32c");
const KIND: HeaderName = HeaderName::from_static("x-amz-meta-margay-kind");

/// Why something of a pool is not there, or not done.
#[derive(Debug)]
pub(crate) enum PoolError {
    /// There is no such object.
    Missing,
    /// The store did not answer, or refused, and why.
    Unreachable(String),
    /// The own file could not be read.
    Own(SegmentError),
    /// What was read back is not what was sent.
    Damaged(&'static str),
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PoolError::Missing => out.write_str("there is no such object"),
            PoolError::Unreachable(why) => out.write_str(why),
            PoolError::Own(error) => write!(out, "the own file: {error}"),
            PoolError::Damaged(what) => write!(out, "read back after it was put, it is damaged: {what}"),
        }
    }
}

impl From<ClientError> for PoolError {
    fn from(error: ClientError) -> PoolError {
        // The object is missing, not the bucket (B4).
        let is_missing = error.is_not_found() && error.code() != Some("NoSuchBucket");
        if is_missing { PoolError::Missing } else { PoolError::Unreachable(error.to_string()) }
    }
}

/// Reads a range of the own file; may block.
pub(crate) type ReadOwn = Arc<dyn Fn(Range<u64>) -> Result<Vec<u8>, SegmentError> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct PoolObjects {
    pub(crate) number: StoreNumber,
    pub(crate) name: String,
    upstream: Upstream,
    /// Ends with `/`.
    folder: String,
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: SegmentId,
    /// When it was put, as the store says; only compared.
    pub(crate) modified: String,
}

struct OwnFile(ReadOwn);

impl Source for OwnFile {
    async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        read_own(&self.0, range).await.map(Bytes::from).map_err(io::Error::other)
    }
}

async fn read_own(own: &ReadOwn, range: Range<u64>) -> Result<Vec<u8>, SegmentError> {
    let own = Arc::clone(own);
    let read = tokio::task::spawn_blocking(move || own(range)).await;
    read.unwrap_or_else(|error| Err(SegmentError::Io(io::Error::other(error))))
}

impl PoolObjects {
    pub(crate) fn new(number: StoreNumber, upstream: Upstream, pool: &Pool) -> PoolObjects {
        let slash = if pool.prefix.is_empty() { "" } else { "/" };
        let folder = format!("{}{slash}margay/{}/", pool.prefix, pool.folder);
        PoolObjects { number, name: pool.name.clone(), upstream, folder }
    }

    fn key(&self, id: SegmentId) -> String {
        format!("{}{:016x}", self.folder, id.0)
    }

    /// Puts a whole segment, and reads it back.
    pub(crate) async fn put(&self, info: SegmentInfo, own: ReadOwn) -> Result<(), PoolError> {
        let crc = checksum(info.len, |range| {
            let own = &own;
            async move { read_own(own, range).await.map(Bytes::from).map_err(PoolError::Own) }
        })
        .await?;
        // By it a request whose answer was lost knows its object; what is there is read back in any case.
        let write_id = format!("{:016x}-{crc:08x}", info.id.0);
        let write_id = HeaderValue::from_str(&write_id).map_err(|error| PoolError::Unreachable(error.to_string()))?;
        let kind = HeaderValue::from_static(kind_name(info.kind));
        let metadata = vec![(WRITE_ID, write_id), (CHECKSUM, HeaderValue::from(crc)), (KIND, kind)];
        self.put_bytes(&info, &own, &metadata).await?;
        // O1.
        let there = checksum(info.len, |range| async move { self.read_within(info.id, range, REQUEST_TIME_MAX).await });
        match there.await {
            Ok(there) if there == crc => Ok(()),
            Ok(_) => Err(PoolError::Damaged("other bytes")),
            Err(PoolError::Missing) => Err(PoolError::Damaged("it is not there")),
            Err(error) => Err(error),
        }
    }

    async fn put_bytes(&self, info: &SegmentInfo, own: &ReadOwn, metadata: &Metadata) -> Result<(), PoolError> {
        let key = self.key(info.id);
        if info.len <= ONE_REQUEST_BYTES_MAX {
            let body = Bytes::from(read_own(own, 0..info.len).await.map_err(PoolError::Own)?);
            let put = self.upstream.put_object(&key, body, Condition::Always, metadata);
            return within(REQUEST_TIME_MAX, put).await.map(drop);
        }
        let (grid, source) = (Grid::of(info.len), OwnFile(Arc::clone(own)));
        // Each of its requests has a time of its own.
        let put = self.upstream.upload(&key, grid, source, Condition::Always, metadata).await;
        Ok(put.map(drop)?)
    }

    /// Bytes of an object; fewer at its end.
    pub(crate) async fn read(&self, id: SegmentId, range: Range<u64>) -> Result<Bytes, PoolError> {
        let for_bytes = Duration::from_secs(range.end.saturating_sub(range.start) / READ_BYTES_PER_SECOND_MIN);
        self.read_within(id, range, READ_TIME_MAX + for_bytes).await
    }

    async fn read_within(&self, id: SegmentId, range: Range<u64>, time_max: Duration) -> Result<Bytes, PoolError> {
        let key = self.key(id);
        let fetched = within(time_max, self.upstream.get(&key, range, Wanted::Any)).await?;
        fetched.map(|fetched| fetched.bytes).ok_or(PoolError::Missing)
    }

    /// What the store says of a segment; `None`: it has none.
    pub(crate) async fn state(&self, id: SegmentId) -> Result<Option<SegmentInfo>, PoolError> {
        let Some(there) = within(READ_TIME_MAX, self.upstream.describe(&self.key(id))).await? else {
            // An answer to HEAD does not tell a bucket that is gone from an object that is.
            return match self.read(id, 0..1).await {
                Err(PoolError::Missing) => Ok(None),
                Err(error) => Err(error),
                Ok(_) => Err(PoolError::Unreachable("it tells of an object that is there that it is not".to_owned())),
            };
        };
        let is_raw = there.headers.get(KIND).is_some_and(|kind| kind == kind_name(Kind::Raw));
        let kind = if is_raw { Kind::Raw } else { Kind::Pack };
        Ok(Some(SegmentInfo { id, kind, len: there.size, open: false }))
    }

    /// Succeeds if there is no such object.
    pub(crate) async fn remove(&self, id: SegmentId) -> Result<(), PoolError> {
        within(REQUEST_TIME_MAX, self.upstream.delete(&self.key(id))).await
    }

    /// All segments that have an object, ascending; an error once `is_over`.
    pub(crate) async fn list_all(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Listed>, PoolError> {
        let mut all: Vec<Listed> = Vec::new();
        loop {
            if is_over() {
                return Err(PoolError::Unreachable("the process ends".to_owned()));
            }
            let after = all.last().map(|listed| listed.id);
            let page = self.list(after).await?;
            if page.is_empty() {
                return Ok(all);
            }
            let ids = || after.into_iter().chain(page.iter().map(|listed| listed.id));
            // Else it may give the same page for good.
            if !ids().is_sorted_by(|one, next| one < next) {
                return Err(PoolError::Unreachable("the keys of its listing do not ascend".to_owned()));
            }
            all.extend(page);
        }
    }

    /// Those behind this one; empty at the end.
    async fn list(&self, after: Option<SegmentId>) -> Result<Vec<Listed>, PoolError> {
        let after = after.map(|id| self.key(id));
        let query = ListQuery {
            prefix: &self.folder,
            start_after: after.as_deref(),
            keys_max: PAGE_OBJECTS,
            ..ListQuery::default()
        };
        let page = within(REQUEST_TIME_MAX, self.upstream.list(&query)).await?;
        let listed = page.entries.into_iter().filter_map(|entry| {
            let digits = entry.key.strip_prefix(&self.folder).filter(|digits| digits.len() == 16)?;
            let id = u64::from_str_radix(digits, 16).ok().map(SegmentId)?;
            Some(Listed { id, modified: entry.modified })
        });
        Ok(listed.collect())
    }
}

/// CRC-32C of `len` bytes that are read piece by piece.
async fn checksum<F>(len: u64, read: impl Fn(Range<u64>) -> F) -> Result<u32, PoolError>
where
    F: Future<Output = Result<Bytes, PoolError>>,
{
    let (mut crc, mut at) = (0, 0);
    while at < len {
        let end = (at + READ_BACK_BYTES).min(len);
        let bytes = read(at..end).await?;
        if bytes.len() as u64 != end - at {
            return Err(PoolError::Damaged("it is shorter"));
        }
        crc = crc32c::crc32c_append(crc, &bytes);
        at = end;
    }
    Ok(crc)
}

async fn within<T>(time_max: Duration, request: impl Future<Output = Result<T, ClientError>>) -> Result<T, PoolError> {
    match timeout(time_max, request).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(PoolError::Unreachable(format!("no answer within {} s", time_max.as_secs()))),
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Log => "log",
        Kind::Pack => "pack",
        Kind::Raw => "raw",
    }
}
