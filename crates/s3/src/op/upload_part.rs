//! UploadPart.

use http::{HeaderName, StatusCode};
use margay_volume::Headers;

use super::sent_body::{body_len, md5};
use super::{Call, checksum};
use crate::body::{Algorithm, DigestPlan, Want};
use crate::error::S3Error;
use crate::headers::etag;
use crate::op::encryption::WriteKey;
use crate::payload::{Length, Payload};
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let number = call.part_number()?;
    let upload_id = call.required("uploadId")?;
    let len = body_len(call, &payload)?;
    let info = call.view().head_multipart(call.bucket(), call.key(), upload_id).await?;
    let promised = promised_algorithm(&info.headers);
    let want = Want { md5: true, fallback: promised };
    let chosen = DigestPlan::read(call.headers, &payload.form, want)?.chosen();
    if let (Some(promised), Some(chosen)) = (promised, chosen)
        && promised != chosen
    {
        return Err(S3Error::invalid_request(format!(
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
            promised.name().to_lowercase(),
            chosen.name().to_lowercase()
        )));
    }
    let write_key = WriteKey::of_part(call, &info.documents)?;
    let upload = write_key.begin_upload(call, Length::Exactly(len)).await?;
    let (staged, computed) = payload.receive(call.headers, want, Length::Exactly(len), upload).await?;
    let mut headers = Headers::new();
    if let Some(sum) = &computed.checksum {
        checksum::store(&mut headers, sum);
    }
    let etag = write_key.etag(md5(&computed)?);
    let part = call.view().put_part(call.bucket(), call.key(), upload_id, number, etag, headers, staged).await?;
    let mut reply = Reply::empty(StatusCode::OK).header(http::header::ETAG, &etag::quoted(&part.etag))?;
    if let Some(sum) = &computed.checksum {
        reply = reply.header(HeaderName::from_static(sum.algorithm().header()), &sum.base64())?;
    }
    write_key.tell(&mut reply.headers);
    Ok(reply)
}

/// The checksum algorithm that all parts of an upload must have.
pub(super) fn promised_algorithm(upload: &Headers) -> Option<Algorithm> {
    upload.get(checksum::ALGORITHM).and_then(|name| Algorithm::from_name(name))
}
