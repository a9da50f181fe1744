//! GetObjectTagging, PutObjectTagging, DeleteObjectTagging.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use margay_volume::{Document, Documents, ReadCondition};

use super::Call;
use crate::error::S3Error;
use crate::headers::{text, version};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::tags::{Tagged, Tags};

const HEADER: &str = "x-amz-tagging";
/// MinIO's: `ACCESS` asks for the tags in an answer.
const DIRECTIVE: &str = "x-amz-tagging-directive";

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let version = version::asked(call.query)?;
    let info = call.view().head_version(call.bucket(), call.key(), version, &ReadCondition::default()).await?;
    let mut out = BytesMut::with_capacity(256);
    of(&info.documents).write(&mut out);
    let mut reply = Reply::xml(out);
    version::give_back(info.version, &mut reply.headers);
    Ok(reply)
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let tags = Tags::from_xml(&payload.document(call.headers, true).await?, Tagged::Object)?;
    set(call, tags, StatusCode::OK).await
}

pub(crate) async fn delete(call: &Call<'_>) -> Result<Reply, S3Error> {
    set(call, Tags::default(), StatusCode::NO_CONTENT).await
}

async fn set(call: &Call<'_>, tags: Tags, status: StatusCode) -> Result<Reply, S3Error> {
    let version = version::asked(call.query)?;
    let tags = document(tags);
    let decide = |mut documents: Documents| {
        documents.remove(&Document::Tags);
        documents.extend(tags.clone());
        Ok(documents)
    };
    call.volume.change_documents_of((call.bucket(), call.key(), version), decide).await?;
    let mut reply = Reply::empty(status);
    version::give_back(version, &mut reply.headers);
    Ok(reply)
}

/// The tags in an object's documents.
pub(super) fn of(documents: &Documents) -> Tags {
    documents.get(&Document::Tags).map(|stored| Tags::from_stored(stored)).unwrap_or_default()
}

/// Adds the tags themselves to an answer to GET or HEAD, where the request asks for them and its caller may read them.
pub(super) async fn tell(call: &Call<'_>, documents: &Documents, headers: &mut HeaderMap) -> Result<(), S3Error> {
    let asked = text(call.headers, DIRECTIVE)?.is_some_and(|own| own.eq_ignore_ascii_case("ACCESS"));
    let Some(tags) = documents.get(&Document::Tags).filter(|_| asked) else { return Ok(()) };
    let of_version = version::asked(call.query)?.is_some();
    let action = if of_version { "s3:GetObjectVersionTagging" } else { "s3:GetObjectTagging" };
    if call.access.permits(&call.ask(), (action, None), (call.key(), documents)).await? {
        let value = HeaderValue::from_bytes(tags).map_err(|error| S3Error::internal(&error))?;
        headers.insert(HeaderName::from_static(HEADER), value);
    }
    Ok(())
}

/// The tags of a new object, from the request's header, as a document.
pub(super) fn of_request(call: &Call<'_>) -> Result<Documents, S3Error> {
    Ok(document(text(call.headers, HEADER)?.map_or_else(|| Ok(Tags::default()), Tags::from_header)?))
}

/// An object without tags has no such document.
fn document(tags: Tags) -> Documents {
    let stored = (!tags.is_empty()).then(|| (Document::Tags, tags.to_stored().into()));
    stored.into_iter().collect()
}
