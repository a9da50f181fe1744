//! PutObject.

use http::{HeaderName, StatusCode};
use margay_volume::{ETag, PART_BYTES_MAX, PutRequest, ReadCondition, WriteCondition};

use super::{Call, append, checksum, object_tagging};
use crate::access::new_list;
use crate::body::{Computed, Want};
use crate::error::{Code, S3Error};
use crate::headers::condition::write_condition;
use crate::headers::{content, etag, lock, version};
use crate::op::encryption::WriteKey;
use crate::payload::{Length, Payload};
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>, mut payload: Payload) -> Result<Reply, S3Error> {
    let mut condition = write_condition(call.headers)?;
    if let Some(offset) = append::offset(call)? {
        match append::run(call, payload, offset).await? {
            Ok(reply) => return Ok(reply),
            Err(unread) => payload = unread,
        }
        // Nothing to append to: the first writer creates the object.
        if condition == WriteCondition::None {
            condition = WriteCondition::Absent;
        }
    }
    let mut headers = content::collect(call.headers)?;
    let mut documents = object_tagging::of_request(call)?;
    documents.extend(lock::collect(call.headers)?);
    let length = body_length(call, &payload)?;
    new_list::store(&call.ask(), &mut documents).await?;
    let write_key = WriteKey::of_request(call).await?;
    write_key.keep(&mut documents);
    let upload = write_key.begin_upload(call, length).await?;
    precheck(call, &condition).await?;
    let want = Want { md5: true, fallback: None };
    let (staged, computed) = payload.receive(call.headers, want, length, upload).await?;
    if let Some(sum) = &computed.checksum {
        checksum::store(&mut headers, sum);
    }
    let request = PutRequest {
        bucket: call.bucket(),
        key: call.key(),
        etag: write_key.etag(md5(&computed)?),
        headers,
        documents: documents.clone(),
        condition,
        is_copy: false,
    };
    let len = staged.len();
    let outcome = call.view().put_object(request, staged).await?;
    let mut reply = Reply::empty(StatusCode::OK).header(http::header::ETAG, &etag::quoted(&outcome.etag))?;
    version::give_back(version::made(outcome.version), &mut reply.headers);
    call.add_expiration(&mut reply.headers, (len, outcome.modified), &documents).await?;
    write_key.tell(&mut reply.headers);
    if let Some(sum) = &computed.checksum {
        reply = reply
            .header(HeaderName::from_static(sum.algorithm().header()), &sum.base64())?
            .header(HeaderName::from_static(checksum::TYPE), checksum::Kind::FullObject.name())?;
    }
    Ok(reply)
}

/// The length of the body, which must be within the limit.
fn body_length(call: &Call<'_>, payload: &Payload) -> Result<Length, S3Error> {
    match payload.length(call.headers)?.ok_or(Code::MissingContentLength)? {
        Length::Exactly(len) if len > PART_BYTES_MAX => Err(S3Error::from(Code::EntityTooLarge)
            .with("ProposedSize", len.to_string())
            .with("MaxSizeAllowed", PART_BYTES_MAX.to_string())),
        length => Ok(length),
    }
}

/// The length of the body, which must be announced and within the limit.
pub(super) fn body_len(call: &Call<'_>, payload: &Payload) -> Result<u64, S3Error> {
    match body_length(call, payload)? {
        Length::Exactly(len) => Ok(len),
        Length::AtMost(_) => Err(Code::MissingContentLength.into()),
    }
}

/// The ETag of a simple object or a part.
pub(super) fn md5(computed: &Computed) -> Result<ETag, S3Error> {
    let digest = computed.md5.ok_or_else(|| S3Error::internal(&"a body was received without its MD5"))?;
    Ok(ETag { digest, parts: 0 })
}

/// Refuses a write whose condition already fails, before its body is sent. The write itself evaluates it again.
async fn precheck(call: &Call<'_>, condition: &WriteCondition) -> Result<(), S3Error> {
    if *condition == WriteCondition::None {
        return Ok(());
    }
    let found = call.view().head_object(call.bucket(), call.key(), &ReadCondition::default()).await;
    let holds = match (condition, &found) {
        (WriteCondition::Absent, Ok(_)) => false,
        (WriteCondition::Matches(etags), Ok(info)) => etags.contains(&info.etag),
        (WriteCondition::Differs(etags), Ok(info)) => !etags.contains(&info.etag),
        (
            WriteCondition::Matches(_) | WriteCondition::Present,
            Err(margay_volume::Error::NoSuchKey | margay_volume::Error::Deleted(_)),
        ) => {
            return Err(Code::NoSuchKey.into());
        }
        _ => true,
    };
    if holds { Ok(()) } else { Err(Code::PreconditionFailed.into()) }
}
