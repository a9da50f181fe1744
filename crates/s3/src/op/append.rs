//! PutObject with `x-amz-write-offset-bytes`: more bytes behind those of an object.
//!
//! Source: "Appending data to objects in directory buckets" of the S3 user guide; here it works in every bucket that never
//!         kept versions, in others it is `InvalidBucketState`. Headers and documents of the object stay; those of the
//!         request are for a new one.

use http::{HeaderName, StatusCode};
use margay_volume::{AppendRequest, Document, Error, ReadCondition, Versioning};

use super::put_object::{body_len, md5};
use super::{Call, checksum};
use crate::body::Want;
use crate::error::{Code, S3Error};
use crate::headers::condition::write_condition;
use crate::headers::{etag, text};
use crate::op::encryption::WriteKey;
use crate::payload::{Length, Payload};
use crate::reply::Reply;

const OFFSET: &str = "x-amz-write-offset-bytes";
const SIZE: &str = "x-amz-object-size";

/// Where the request wants its bytes; `None`: it is no append.
pub(super) fn offset(call: &Call<'_>) -> Result<Option<u64>, S3Error> {
    let Some(value) = text(call.headers, OFFSET)? else { return Ok(None) };
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let offset = value.parse::<u64>().ok().filter(|_| digits);
    offset.map(Some).ok_or_else(|| S3Error::argument(OFFSET, value, "a number of bytes is expected"))
}

/// Appends; `Err` gives the payload back when there is no object yet, and the offset is that of a new one.
pub(super) async fn run(call: &Call<'_>, payload: Payload, offset: u64) -> Result<Result<Reply, Payload>, S3Error> {
    let condition = write_condition(call.headers)?;
    // Also where there is nothing to append to.
    if call.view().versioning(call.bucket()).await? != Versioning::Never {
        return Err(Error::KeepsVersions.into());
    }
    let info = match call.view().head_object(call.bucket(), call.key(), &ReadCondition::default()).await {
        Err(Error::NoSuchKey) if offset == 0 => return Ok(Err(payload)),
        Err(Error::NoSuchKey) => return Err(Error::WrongOffset(0).into()),
        info => info?,
    };
    if info.size != offset {
        return Err(Error::WrongOffset(info.size).into());
    }
    let len = body_len(call, &payload)?;
    if len == 0 {
        return Err(S3Error::from(Code::EntityTooSmall).with("MinSizeAllowed", "1"));
    }
    let write_key = WriteKey::of_part(call, &info.documents)?;
    let length = Length::Exactly(len);
    let upload = write_key.begin_upload(call, length).await?;
    let want = Want { md5: true, fallback: None };
    let (staged, computed) = payload.receive(call.headers, want, length, upload).await?;
    let etag = write_key.etag(md5(&computed)?);
    let encryption = info.documents.get(&Document::Encryption).cloned();
    let request = AppendRequest { bucket: call.bucket(), key: call.key(), offset, etag, encryption, condition };
    let outcome = call.volume.append_object(request, staged).await.map_err(|error| match error {
        // Removed since it was looked at.
        Error::NoSuchKey => Error::WrongOffset(0),
        other => other,
    })?;
    let mut reply = Reply::empty(StatusCode::OK)
        .header(http::header::ETAG, &etag::quoted(&outcome.etag))?
        .header(HeaderName::from_static(SIZE), &outcome.size.to_string())?;
    // Of the bytes that came.
    if let Some(sum) = &computed.checksum {
        reply = reply
            .header(HeaderName::from_static(sum.algorithm().header()), &sum.base64())?
            .header(HeaderName::from_static(checksum::TYPE), checksum::Kind::FullObject.name())?;
    }
    call.add_expiration(&mut reply.headers, (outcome.size, outcome.modified), &info.documents).await?;
    write_key.tell(&mut reply.headers);
    Ok(Ok(reply))
}
