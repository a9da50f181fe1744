//! CreateBucket.

use http::StatusCode;
use margay_volume::NewBucket;

use super::Call;
use crate::error::{Code, S3Error};
use crate::headers::text;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::walk;

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let document = payload.document(call.headers, true).await?;
    if !document.is_empty() {
        check(&document)?;
    }
    let object_lock =
        text(call.headers, "x-amz-bucket-object-lock-enabled")?.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let new = NewBucket { object_lock, ..NewBucket::default() };
    call.volume.create_bucket_with(call.bucket(), &new).await.map_err(|error| match error {
        margay_volume::Error::BucketExists => {
            S3Error::from(Code::BucketAlreadyOwnedByYou).with("BucketName", call.bucket())
        }
        other => other.into(),
    })?;
    Reply::empty(StatusCode::OK).header(http::header::LOCATION, &format!("/{}", call.bucket()))
}

/// One server is every region to its clients, so any location is taken; what else a bucket can be made with is not.
pub(crate) fn check(document: &[u8]) -> Result<(), S3Error> {
    let mut unknown = None;
    let mut root = false;
    walk(document, &mut |path, _| {
        match path {
            "CreateBucketConfiguration" => root = true,
            "CreateBucketConfiguration/LocationConstraint" => {}
            other => {
                unknown.get_or_insert_with(|| other.to_owned());
            }
        }
        Ok(())
    })?;
    match (root, unknown) {
        (true, None) => Ok(()),
        (true, Some(element)) => Err(S3Error::not_implemented(&format!("element {element}"))),
        (false, _) => Err(Code::MalformedXML.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_location_is_taken() {
        let document = |inside: &str| format!("<CreateBucketConfiguration>{inside}</CreateBucketConfiguration>");
        let code = |text: &str| check(text.as_bytes()).map_err(|error| error.code);
        assert_eq!(code(&document("<LocationConstraint>eu-west-1</LocationConstraint>")), Ok(()));
        assert_eq!(code(&document("")), Ok(()));
        assert_eq!(code(&document("<Bucket><Type>Directory</Type></Bucket>")), Err(Code::NotImplemented));
        assert_eq!(code("<Other/>"), Err(Code::MalformedXML));
        assert_eq!(code("<CreateBucketConfiguration>"), Err(Code::MalformedXML));
    }
}
