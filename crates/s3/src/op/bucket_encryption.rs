//! GetBucketEncryption, PutBucketEncryption. Encrypted objects stay encrypted when the setting is removed.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::{Code, S3Error};
use crate::op::encryption::configuration::Configuration;
use crate::payload::Payload;
use crate::reply::Reply;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.setting(Setting::Encryption, Code::ServerSideEncryptionConfigurationNotFoundError).await?;
    let mut out = BytesMut::with_capacity(320);
    Configuration::from_stored(&stored)?.write(&mut out);
    Ok(Reply::xml(out))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let wanted = Configuration::parse(&payload.document(call.headers, true).await?)?;
    call.volume.set_bucket_setting(call.bucket(), Setting::Encryption, &wanted.to_stored()).await?;
    Ok(Reply::empty(StatusCode::OK))
}
