//! PutObject.

use http::{HeaderName, StatusCode};
use margay_volume::{PutRequest, ReadCondition, WriteCondition};

use super::sent_body::{body_length, md5};
use super::{Call, append, checksum, object_tagging};
use crate::access::new_list;
use crate::body::Want;
use crate::error::{Code, S3Error};
use crate::headers::condition::write_condition;
use crate::headers::{content, etag, lock, version};
use crate::op::encryption::WriteKey;
use crate::payload::Payload;
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
