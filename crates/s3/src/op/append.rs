//! PutObject with `x-amz-write-offset-bytes`: appends to an object.
//!
//! Source: "Appending data to objects in directory buckets" of the S3 user guide. Here it works in every bucket that
//!         never had versioning; others answer `InvalidBucketState`. The object keeps its headers and documents; those
//!         of the request apply to a new object.

use http::{HeaderName, StatusCode};
use margay_volume::{AppendRequest, Document, Error, ReadCondition, Versioning};

use super::sent_body::{body_len, md5};
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

/// The requested offset; `None`: not an append.
pub(super) fn offset(call: &Call<'_>) -> Result<Option<u64>, S3Error> {
    let Some(value) = text(call.headers, OFFSET)? else { return Ok(None) };
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let offset = value.parse::<u64>().ok().filter(|_| digits);
    offset.map(Some).ok_or_else(|| S3Error::argument(OFFSET, value, "a number of bytes is expected"))
}

/// Appends. `Err` returns the payload when the object does not exist and the offset is 0: it must be created.
pub(super) async fn run(call: &Call<'_>, payload: Payload, offset: u64) -> Result<Result<Reply, Payload>, S3Error> {
    let condition = write_condition(call.headers)?;
    // Even when the object does not exist.
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
        // Deleted since it was read.
        Error::NoSuchKey => Error::WrongOffset(0),
        other => other,
    })?;
    let mut reply = Reply::empty(StatusCode::OK)
        .header(http::header::ETAG, &etag::quoted(&outcome.etag))?
        .header(HeaderName::from_static(SIZE), &outcome.size.to_string())?;
    // Checksum of the appended bytes.
    if let Some(sum) = &computed.checksum {
        reply = reply
            .header(HeaderName::from_static(sum.algorithm().header()), &sum.base64())?
            .header(HeaderName::from_static(checksum::TYPE), checksum::Kind::FullObject.name())?;
    }
    call.add_expiration(&mut reply.headers, (outcome.size, outcome.modified), &info.documents).await?;
    write_key.tell(&mut reply.headers);
    Ok(Ok(reply))
}
