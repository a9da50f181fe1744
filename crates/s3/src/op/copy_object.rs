//! CopyObject: a new entry that shares the source's bytes.

use bytes::BytesMut;
use margay_volume::{
    CopyEncryption, CopyRequest, Document, ETagMatch, Error, Headers, ObjectInfo, PART_BYTES_MAX, PutOutcome,
    PutRequest, ReadCondition, WriteCondition,
};

use super::move_bytes::move_bytes;
use super::sent_body::md5;
use super::{Call, checksum, object_tagging};
use crate::access::new_list;
use crate::body::{Algorithm, Checksum};
use crate::error::{Code, S3Error};
use crate::headers::condition::{read_condition, write_condition};
use crate::headers::copy_source::{CopySource, parse_copy_source};
use crate::headers::{content, etag, lock, text, version};
use crate::op::encryption::customer::{self, Customer};
use crate::op::encryption::{self, Encryption, WriteKey};
use crate::reply::Reply;
use crate::route::target::check_bucket_name;
use crate::time::iso;
use crate::xml::write::Writer;

/// Attempts of a copy whose source changes meanwhile.
const ATTEMPTS_MAX: u32 = 8;
const SOURCE: &str = "x-amz-copy-source";

/// Encryption of the source, and the wanted properties of the copy.
struct Wish {
    source: Option<Customer>,
    target: Option<Encryption>,
    /// The copy needs a checksum of this algorithm, so its bytes are read.
    checksum: Option<Algorithm>,
}

/// The result of a copy.
struct Copied {
    outcome: PutOutcome,
    /// Computed while copying.
    checksum: Option<Checksum>,
}

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let source = parse_copy_source(SOURCE, text(call.headers, SOURCE)?.unwrap_or_default())?;
    check_bucket_name(&source.bucket)?;
    let replaces = text(call.headers, "x-amz-metadata-directive")?
        .is_some_and(|directive| directive.eq_ignore_ascii_case("REPLACE"));
    let own = content::collect(call.headers)?;
    let onto_itself = source.bucket == call.bucket() && source.key == call.key() && source.version.is_none();
    let wish = Wish {
        source: Customer::of(call, customer::SOURCE)?,
        target: Encryption::wanted(call).await?,
        checksum: text(call.headers, checksum::ALGORITHM)?.and_then(Algorithm::from_name),
    };
    // If only the source has a customer's key, the copy drops that key.
    let changes = replaces || wish.target.is_some() || wish.source.is_some() || wish.checksum.is_some();
    if onto_itself && !changes {
        return Err(S3Error::invalid_request(
            "This copy request is illegal because it is trying to copy an object to itself without changing the \
             object's metadata, storage class, website redirect location or encryption attributes.",
        ));
    }
    let mut documents = lock::collect(call.headers)?;
    new_list::store(&call.ask(), &mut documents).await?;
    let mut request = CopyRequest {
        source_bucket: &source.bucket,
        source_key: &source.key,
        source_version: source.version,
        bucket: call.bucket(),
        key: call.key(),
        documents,
        condition: write_condition(call.headers)?,
        source_condition: read_condition(call.headers, "x-amz-copy-source-")?,
        encryption: CopyEncryption {
            source: wish.source.as_ref().map(|customer| customer.key.clone()),
            target: wish.target.as_ref().map(Encryption::wrapping_key),
        },
        ..CopyRequest::default()
    };
    if text(call.headers, "x-amz-tagging-directive")?.is_some_and(|own| own.eq_ignore_ascii_case("REPLACE")) {
        request.documents.extend(object_tagging::of_request(call)?);
    } else {
        request.documents_kept = [Document::Tags].into_iter().collect();
    }
    if !replaces {
        let copied = copy(call, &request, &wish).await?;
        return Ok(reply(&copied, &source, None, &wish));
    }
    // New metadata keeps the checksum of the bytes. So the source is read first, and the copy made conditional on it.
    for attempt in 0..ATTEMPTS_MAX {
        let asked = read_condition(call.headers, "x-amz-copy-source-")?;
        // The rows of the request are from before the attempt that failed.
        let info =
            if attempt == 0 { head(call, &source, &asked).await } else { head_anew(call, &source, &asked).await };
        let info = info.map_err(source_error)?;
        let mut headers = own.clone();
        keep_checksum(&info.headers, &mut headers);
        request.headers = Some(headers);
        request.source_condition = pinned(asked, info.etag);
        match copy(call, &request, &wish).await {
            // Either the added condition or the client's own has failed; reading again tells which.
            Err(error) if error.code == Code::PreconditionFailed && call_again(call, &source, &info.etag).await => {}
            outcome => return Ok(reply(&outcome?, &source, Some(&info.headers), &wish)),
        }
    }
    Err(Error::Busy.into())
}

/// Shares the source's bytes, or copies them if the target's key does not permit sharing.
async fn copy(call: &Call<'_>, request: &CopyRequest<'_>, wish: &Wish) -> Result<Copied, S3Error> {
    if wish.checksum.is_none() {
        match call.view().copy_object(request.clone()).await {
            Err(Error::NotShareable) => {}
            outcome => return Ok(Copied { outcome: outcome.map_err(source_error)?, checksum: None }),
        }
    }
    let (bucket, key, version) = (request.source_bucket, request.source_key, request.source_version);
    // A copy onto itself must not overwrite what is written meanwhile.
    let onto_itself = (bucket, key, version) == (request.bucket, request.key, None);
    let pins = onto_itself && request.condition == WriteCondition::None;
    for _ in 0..ATTEMPTS_MAX {
        let reader = call.volume.get_version(bucket, key, version, &request.source_condition).await;
        let mut reader = reader.map_err(source_error)?;
        let found = encryption::unlock(&mut reader, wish.source.clone())?;
        let info = reader.info().clone();
        if info.size > PART_BYTES_MAX {
            let message = "The specified copy source is larger than the maximum allowable size for a copy source";
            return Err(S3Error::invalid_request(message));
        }
        // The copy of an encrypted object is never unencrypted.
        let target = wish.target.clone().or(found.map(|_| Encryption::Master));
        let write_key = WriteKey::new(call, target)?;
        let (staged, computed) = move_bytes(call, &reader, 0..info.size, &write_key, wish.checksum).await?;
        let mut documents = info.documents;
        documents.retain(|kind, _| request.documents_kept.contains(*kind));
        documents.extend(request.documents.clone());
        write_key.keep(&mut documents);
        let mut headers = request.headers.clone().unwrap_or(info.headers);
        if let Some(sum) = &computed.checksum {
            checksum::replace(&mut headers, sum);
        }
        let put = PutRequest {
            bucket: request.bucket,
            key: request.key,
            etag: write_key.etag(md5(&computed)?),
            headers,
            documents,
            condition: if pins { WriteCondition::Matches(vec![info.etag]) } else { request.condition.clone() },
            is_copy: true,
        };
        match call.volume.put_object(put, staged).await {
            Err(Error::PreconditionFailed | Error::NoSuchKey) if pins => {}
            outcome => return Ok(Copied { outcome: outcome?, checksum: computed.checksum }),
        }
    }
    Err(Error::Busy.into())
}

pub(super) async fn head(call: &Call<'_>, source: &CopySource, condition: &ReadCondition) -> Result<ObjectInfo, Error> {
    call.view().head_version(&source.bucket, &source.key, source.version, condition).await
}

async fn head_anew(call: &Call<'_>, source: &CopySource, condition: &ReadCondition) -> Result<ObjectInfo, Error> {
    call.volume.head_version(&source.bucket, &source.key, source.version, condition).await
}

async fn call_again(call: &Call<'_>, source: &CopySource, seen: &margay_volume::ETag) -> bool {
    let now = head_anew(call, source, &ReadCondition::default()).await;
    now.is_ok_and(|info| info.etag != *seen)
}

fn pinned(asked: ReadCondition, etag: margay_volume::ETag) -> ReadCondition {
    ReadCondition { if_match: Some(vec![ETagMatch::Exact(etag)]), ..asked }
}

fn keep_checksum(source: &Headers, headers: &mut Headers) {
    let Some((algorithm, value)) = checksum::stored(source) else { return };
    headers.insert(algorithm.header().to_owned(), value.to_owned());
    if let Some(kind) = source.get(checksum::TYPE) {
        headers.insert(checksum::TYPE.to_owned(), kind.clone());
    }
}

/// A copy has no "not modified": the condition failed.
pub(super) fn source_error(error: Error) -> S3Error {
    match error {
        Error::NotModified => Error::PreconditionFailed.into(),
        other => other.into(),
    }
}

fn reply(copied: &Copied, source: &CopySource, checksums: Option<&Headers>, wish: &Wish) -> Reply {
    let Copied { outcome, checksum } = copied;
    let mut out = BytesMut::with_capacity(320);
    let mut writer = Writer::new(&mut out);
    writer.root("CopyObjectResult");
    writer.text("LastModified", &iso(outcome.modified));
    writer.text("ETag", &etag::quoted(&outcome.etag));
    match (checksum, checksums) {
        (Some(sum), _) => writer.text(checksum::element(sum.algorithm()), &sum.base64()),
        (None, Some(checksums)) => checksum::write(checksums, &mut writer),
        (None, None) => {}
    }
    writer.close("CopyObjectResult");
    let mut reply = Reply::xml(out);
    version::give_back(version::made(outcome.version), &mut reply.headers);
    version::tell_source(source.version, &mut reply.headers);
    let unasked = outcome.encrypted.then_some(Encryption::Master);
    encryption::tell(wish.target.as_ref().or(unasked.as_ref()), &mut reply.headers);
    reply
}
