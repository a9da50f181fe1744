//! GetObject.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use margay_env::Timestamp;
use margay_volume::{Documents, ETag, Headers, ObjectInfo, ReadCondition};

use super::Call;
use crate::error::S3Error;
use crate::headers::condition::read_condition;
use crate::headers::version;
use crate::op::encryption;
use crate::op::encryption::customer::{self, Customer};
use crate::op::object_tagging;
use crate::reply::Reply;
use crate::stream::{ObjectPieces, S3Body};

mod describe;

pub(crate) use self::describe::{add_part_checksum, describe, select};

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let (condition, version) = (read_condition(call.headers, "")?, version::asked(call.query)?);
    encryption::refuse_on_read(call.headers)?;
    let given = Customer::of(call, customer::OWN)?;
    let mut reader = match call.view().get_version(call.bucket(), call.key(), version, &condition).await {
        Ok(reader) => reader,
        Err(error) => return Err(not_modified(call, error).await),
    };
    let encryption = encryption::unlock(&mut reader, given)?;
    let selection = select(call, reader.info())?;
    let (status, mut headers) = describe(call, reader.info(), &selection)?;
    add_part_checksum(call, reader.info(), &selection, &mut headers).await?;
    encryption::tell(encryption.as_ref(), &mut headers);
    let info = reader.info();
    object_tagging::tell(call, &info.documents, &mut headers).await?;
    call.add_expiration(&mut headers, (info.size, info.modified), &info.documents).await?;
    let pieces = ObjectPieces::open(reader, selection.bytes).await?;
    Ok(Reply { status, headers, body: S3Body::object(pieces) })
}

/// Returns fixed bytes in the form of an object.
pub(crate) fn run_fixed(call: &Call<'_>, object: &Bytes) -> Result<Reply, S3Error> {
    read_condition(call.headers, "")?;
    let info = ObjectInfo {
        size: object.len() as u64,
        etag: ETag { digest: [0; 16], parts: 0 },
        modified: Timestamp(0),
        headers: Headers::new(),
        part_sizes: Vec::new(),
        documents: Documents::new(),
        version: None,
    };
    let selection = select(call, &info)?;
    let (status, headers) = describe(call, &info, &selection)?;
    let bytes = selection.bytes.start as usize..selection.bytes.end as usize;
    Ok(Reply { status, headers, body: S3Body::full(object.slice(bytes)) })
}

/// A 304 contains the ETag and time of the client's copy.
pub(super) async fn not_modified(call: &Call<'_>, error: margay_volume::Error) -> S3Error {
    if !matches!(error, margay_volume::Error::NotModified) {
        return with_key(call, error.into());
    }
    let mut refusal = S3Error::from(error);
    if let Ok(version) = version::asked(call.query)
        && let Ok(info) = call.view().head_version(call.bucket(), call.key(), version, &ReadCondition::default()).await
    {
        refusal = refusal
            .header(http::header::ETAG, crate::headers::etag::quoted(&info.etag))
            .header(http::header::LAST_MODIFIED, crate::time::http_date(info.modified));
    }
    refusal
}

fn with_key(call: &Call<'_>, error: S3Error) -> S3Error {
    if error.code == crate::error::Code::NoSuchKey { error.with("Key", call.key()) } else { error }
}

/// The number of parts as a header; none for a simple object.
pub(super) fn parts_header(info: &ObjectInfo) -> Option<(HeaderName, HeaderValue)> {
    let count = info.part_sizes.len();
    (count > 0).then(|| (HeaderName::from_static("x-amz-mp-parts-count"), HeaderValue::from(count)))
}

/// The status of a response with part or all of an object.
pub(super) fn status(partial: bool) -> StatusCode {
    if partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }
}
