//! CopyObject: a new entry for the same bytes.

use bytes::BytesMut;
use margay_volume::{CopyRequest, Document, ETagMatch, Error, Headers, ObjectInfo, PutOutcome, ReadCondition};

use super::{Call, checksum, object_tagging};
use crate::access::new_list;
use crate::error::S3Error;
use crate::headers::condition::{read_condition, write_condition};
use crate::headers::copy_source::{CopySource, parse_copy_source};
use crate::headers::{content, etag, lock, text, version};
use crate::reply::Reply;
use crate::route::target::check_bucket_name;
use crate::time::iso;
use crate::xml::write::Writer;

/// How often a copy is tried again when its source changes meanwhile.
const ATTEMPTS_MAX: u32 = 8;
const SOURCE: &str = "x-amz-copy-source";

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let source = parse_copy_source(SOURCE, text(call.headers, SOURCE)?.unwrap_or_default())?;
    check_bucket_name(&source.bucket)?;
    let replaces = text(call.headers, "x-amz-metadata-directive")?
        .is_some_and(|directive| directive.eq_ignore_ascii_case("REPLACE"));
    let own = content::collect(call.headers)?;
    let onto_itself = source.bucket == call.bucket() && source.key == call.key() && source.version.is_none();
    if onto_itself && !replaces {
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
        ..CopyRequest::default()
    };
    if text(call.headers, "x-amz-tagging-directive")?.is_some_and(|own| own.eq_ignore_ascii_case("REPLACE")) {
        request.documents.extend(object_tagging::of_request(call)?);
    } else {
        request.documents_kept = [Document::Tags].into_iter().collect();
    }
    if !replaces {
        let outcome = call.volume.copy_object(request).await.map_err(source_error)?;
        return Ok(reply(&outcome, &source, None));
    }
    // New metadata keeps the checksum of the bytes, so it is read first and the copy pinned to what was read.
    for _ in 0..ATTEMPTS_MAX {
        let asked = read_condition(call.headers, "x-amz-copy-source-")?;
        let info = head(call, &source, &asked).await.map_err(source_error)?;
        let mut headers = own.clone();
        keep_checksum(&info.headers, &mut headers);
        request.headers = Some(headers);
        request.source_condition = pinned(asked, info.etag);
        match call.volume.copy_object(request.clone()).await {
            // Whose condition failed: the pin's, or the client's own? Reading again tells.
            Err(Error::PreconditionFailed) if call_again(call, &source, &info.etag).await => {}
            outcome => return Ok(reply(&outcome.map_err(source_error)?, &source, Some(&info.headers))),
        }
    }
    Err(Error::Busy.into())
}

pub(super) async fn head(call: &Call<'_>, source: &CopySource, condition: &ReadCondition) -> Result<ObjectInfo, Error> {
    call.volume.head_version(&source.bucket, &source.key, source.version, condition).await
}

async fn call_again(call: &Call<'_>, source: &CopySource, seen: &margay_volume::ETag) -> bool {
    let now = head(call, source, &ReadCondition::default()).await;
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

fn reply(outcome: &PutOutcome, source: &CopySource, checksums: Option<&Headers>) -> Reply {
    let mut out = BytesMut::with_capacity(320);
    let mut writer = Writer::new(&mut out);
    writer.root("CopyObjectResult");
    writer.text("LastModified", &iso(outcome.modified));
    writer.text("ETag", &etag::quoted(&outcome.etag));
    if let Some(checksums) = checksums {
        checksum::write(checksums, &mut writer);
    }
    writer.close("CopyObjectResult");
    let mut reply = Reply::xml(out);
    version::give_back(version::made(outcome.version), &mut reply.headers);
    version::tell_source(source.version, &mut reply.headers);
    reply
}
