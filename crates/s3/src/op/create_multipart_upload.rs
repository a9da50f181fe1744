//! CreateMultipartUpload.

use bytes::BytesMut;
use http::HeaderName;

use super::{Call, checksum, object_tagging};
use crate::access::new_list;
use crate::body::Algorithm;
use crate::error::S3Error;
use crate::headers::{content, lock, text};
use crate::op::encryption::WriteKey;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let mut headers = content::collect(call.headers)?;
    let mut documents = object_tagging::of_request(call)?;
    documents.extend(lock::collect(call.headers)?);
    // `route::policy` admits only known names.
    let algorithm = text(call.headers, checksum::ALGORITHM)?.and_then(Algorithm::from_name);
    let asked = text(call.headers, checksum::TYPE)?.and_then(checksum::Kind::from_name);
    let promised = match (algorithm, asked) {
        (Some(algorithm), asked) => Some((algorithm, checksum::Kind::of_upload(algorithm, asked)?)),
        (None, None) => None,
        (None, Some(_)) => {
            let message = "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.";
            return Err(S3Error::invalid_request(message));
        }
    };
    if let Some((algorithm, kind)) = promised {
        headers.insert(checksum::ALGORITHM.to_owned(), algorithm.name().to_owned());
        headers.insert(checksum::TYPE.to_owned(), kind.name().to_owned());
    }
    new_list::store(&call.ask(), &mut documents).await?;
    let write_key = WriteKey::of_request(call).await?;
    write_key.keep(&mut documents);
    let upload = call.view().create_multipart(call.bucket(), call.key(), headers, documents).await?;
    let mut out = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut out);
    writer.root("InitiateMultipartUploadResult");
    writer.text("Bucket", call.bucket());
    writer.text("Key", call.key());
    writer.text("UploadId", &upload.upload);
    writer.close("InitiateMultipartUploadResult");
    let mut reply = Reply::xml(out);
    write_key.tell(&mut reply.headers);
    if let Some((algorithm, kind)) = promised {
        reply = reply
            .header(HeaderName::from_static(checksum::ALGORITHM), algorithm.name())?
            .header(HeaderName::from_static(checksum::TYPE), kind.name())?;
    }
    Ok(reply)
}
