//! GetBucketRequestPayment, PutBucketRequestPayment.
//!
//! Why: the setting is stored for clients that read it; nobody is charged, so no request is refused for it.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::S3Error;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

const OWNER: &str = "BucketOwner";
const REQUESTER: &str = "Requester";

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let set = call.volume.bucket_setting(call.bucket(), Setting::RequestPayment).await?;
    let mut out = BytesMut::with_capacity(256);
    let mut writer = Writer::new(&mut out);
    writer.root("RequestPaymentConfiguration");
    writer.text("Payer", if set.is_some() { REQUESTER } else { OWNER });
    writer.close("RequestPaymentConfiguration");
    Ok(Reply::xml(out))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    if requester_pays(&payload.document(call.headers, true).await?)? {
        call.volume.set_bucket_setting(call.bucket(), Setting::RequestPayment, b"").await?;
    } else {
        call.volume.remove_bucket_setting(call.bucket(), Setting::RequestPayment).await?;
    }
    Ok(Reply::empty(StatusCode::OK))
}

pub(crate) fn requester_pays(document: &[u8]) -> Result<bool, Malformed> {
    let mut payer = None;
    walk(document, &mut |path, text| match (path, text.trim()) {
        ("RequestPaymentConfiguration", _) => Ok(()),
        ("RequestPaymentConfiguration/Payer", OWNER) => {
            payer = Some(false);
            Ok(())
        }
        ("RequestPaymentConfiguration/Payer", REQUESTER) => {
            payer = Some(true);
            Ok(())
        }
        _ => Err(Malformed::because("neither BucketOwner nor Requester")),
    })?;
    payer.ok_or_else(|| Malformed::because("no Payer"))
}
