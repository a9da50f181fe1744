//! The encryption of new data: its data key, the document to store, the response headers.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use margay_volume::{DataKey, Document, Documents, ETag, Error, NewKey, Upload};

use super::customer::{Customer, OWN};
use super::{Encryption, of_documents};
use crate::error::S3Error;
use crate::op::Call;
use crate::payload::Length;

/// Empty: unencrypted.
#[derive(Debug, Default)]
pub(crate) struct WriteKey {
    encryption: Option<Encryption>,
    key: Option<DataKey>,
    /// Stored with a new object or upload.
    document: Option<Bytes>,
}

impl WriteKey {
    /// A new key, if the request or its bucket wants encryption.
    pub(crate) async fn of_request(call: &Call<'_>) -> Result<WriteKey, S3Error> {
        WriteKey::new(call, Encryption::wanted(call).await?)
    }

    /// A new key, if encryption is wanted.
    pub(crate) fn new(call: &Call<'_>, encryption: Option<Encryption>) -> Result<WriteKey, S3Error> {
        let Some(encryption) = encryption else { return Ok(WriteKey::default()) };
        let NewKey { key, document } = call.volume.new_data_key(&encryption.wrapping_key())?;
        Ok(WriteKey { encryption: Some(encryption), key: Some(key), document: Some(document) })
    }

    /// The key of an upload with these documents, for one of its parts.
    pub(crate) fn of_part(call: &Call<'_>, documents: &Documents) -> Result<WriteKey, S3Error> {
        let encryption = of_documents(documents, Customer::of(call, OWN)?)?;
        super::refuse_other(call.headers, encryption.as_ref())?;
        let customer = encryption.as_ref().and_then(Encryption::customer).map(|customer| &customer.key);
        let document = documents.get(&Document::Encryption);
        let key = document.map(|document| call.volume.open_data_key(document, customer)).transpose();
        let key = key.map_err(|error| match error {
            Error::WrongKey => {
                S3Error::invalid_request("The provided encryption parameters did not match the ones used originally.")
            }
            other => other.into(),
        })?;
        Ok(WriteKey { encryption, key, document: None })
    }

    pub(crate) fn encryption(&self) -> Option<&Encryption> {
        self.encryption.as_ref()
    }

    /// Starts to receive bytes.
    pub(crate) async fn begin_upload(&self, call: &Call<'_>, length: Length) -> Result<Upload, S3Error> {
        let (volume, bucket, key) = (call.volume, call.bucket(), self.key.as_ref());
        if let Length::Exactly(len) = length
            && volume.lacks_room(len)
        {
            let volume = Arc::clone(volume);
            // If no space is freed, the upload fails as soon as it finds none.
            let _ = tokio::task::spawn_blocking(move || volume.make_room()).await;
        }
        Ok(match (length, key) {
            (Length::Exactly(len), key) => call.view().begin_upload(bucket, len, key).await?,
            (Length::AtMost(len_max), key) => call.view().begin_growing_upload(bucket, len_max, key).await?,
        })
    }

    /// Adds the key's document to those of a new object or upload.
    pub(crate) fn keep(&self, documents: &mut Documents) {
        documents.extend(self.document.clone().map(|document| (Document::Encryption, document)));
    }

    /// The ETag to return: under a customer's key it is unrelated to the content.
    pub(crate) fn etag(&self, md5: ETag) -> ETag {
        match (&self.encryption, &self.key) {
            (Some(Encryption::Customer(_)), Some(key)) => ETag { digest: key.hide(md5.digest), ..md5 },
            _ => md5,
        }
    }

    /// Adds the headers that describe the encryption.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        super::tell(self.encryption.as_ref(), headers);
    }
}
