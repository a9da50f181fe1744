//! Server-side encryption in requests: SSE-S3 (`AES256`), SSE-KMS with keys of the key file, the bucket's default, and
//! SSE-C.
//!
//! Why:        several operations take and return the same headers, with the same errors.
//! Layout:     `customer` a client's key, `configuration` the default of a bucket, `write_key` the key of new data.
//! Invariants: E1 a customer's key goes only to the volume's cipher; it is never stored or logged.
//! Not here:   the cipher and key storage (volume).

pub(crate) mod configuration;
pub(crate) mod customer;
mod write_key;

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_volume::{Document, Documents, Error, ObjectInfo, Protection, Reader, Setting, UploadInfo, WrappingKey};

use crate::error::S3Error;
use crate::headers::text;
use crate::op::{Call, checksum};
use configuration::Configuration;
use customer::Customer;
pub(crate) use write_key::WriteKey;

const HEADER: &str = "x-amz-server-side-encryption";
const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const KMS: &str = "aws:kms";
/// The name of the key that AWS creates by itself; it works if the key file has it.
const DEFAULT_KMS_KEY: &str = "aws/s3";
/// The only cipher of SSE-S3 and SSE-C.
pub(crate) const ALGORITHM: &str = "AES256";

/// The kind of encryption of an object.
#[derive(Clone, Debug)]
pub(crate) enum Encryption {
    Master,
    /// With a key of the server that the request or the bucket names (SSE-KMS).
    Named(String),
    Customer(Customer),
}

impl Encryption {
    /// The encryption that a write requests, or else the bucket's default.
    pub(crate) async fn wanted(call: &Call<'_>) -> Result<Option<Encryption>, S3Error> {
        if let Some(asked) = asked(call.headers, Customer::of(call, customer::OWN)?)? {
            return Ok(Some(asked));
        }
        let default = call.view().bucket_setting(call.bucket(), Setting::Encryption).await?;
        default.map(|stored| Ok(Configuration::from_stored(&stored)?.encryption())).transpose()
    }

    /// The encryption of an object; verifies the key of the request.
    pub(crate) fn of_object(
        call: &Call<'_>,
        info: &ObjectInfo,
        given: Option<Customer>,
    ) -> Result<Option<Encryption>, S3Error> {
        let found = of_documents(&info.documents, given)?;
        if let (Some(Encryption::Customer(customer)), Some(document)) =
            (&found, info.documents.get(&Document::Encryption))
        {
            call.volume.open_data_key(document, Some(&customer.key))?;
        }
        Ok(found)
    }

    pub(crate) fn wrapping_key(&self) -> WrappingKey {
        match self {
            Encryption::Master => WrappingKey::Master,
            Encryption::Named(name) => WrappingKey::Named(name.clone()),
            Encryption::Customer(customer) => WrappingKey::Customer(customer.key.clone()),
        }
    }

    pub(crate) fn customer(&self) -> Option<&Customer> {
        match self {
            Encryption::Master | Encryption::Named(_) => None,
            Encryption::Customer(customer) => Some(customer),
        }
    }

    /// The response headers.
    pub(crate) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let method = HeaderName::from_static(HEADER);
        match self {
            Encryption::Master => vec![(method, HeaderValue::from_static(ALGORITHM))],
            Encryption::Named(name) => {
                let mut headers = vec![(method, HeaderValue::from_static(KMS))];
                // A name in the key file is visible ASCII.
                headers.extend(HeaderValue::from_str(name).ok().map(|name| (HeaderName::from_static(KMS_KEY), name)));
                headers
            }
            Encryption::Customer(customer) => customer.headers().into(),
        }
    }
}

/// The encryption that the headers of a write request, besides its customer's key.
fn asked(headers: &HeaderMap, customer: Option<Customer>) -> Result<Option<Encryption>, S3Error> {
    let refuse = |name, value: &str, why: &'static str| Err(S3Error::argument(name, value, why));
    let (method, kms_key) = (text(headers, HEADER)?, text(headers, KMS_KEY)?);
    match (method, kms_key, customer) {
        (Some(value), _, Some(_)) | (None, Some(value), Some(_)) => refuse(
            HEADER,
            value,
            "Server Side Encryption with Customer provided key is incompatible with the encryption method specified",
        ),
        (None, None, customer) => Ok(customer.map(Encryption::Customer)),
        (Some(ALGORITHM), None, None) => Ok(Some(Encryption::Master)),
        (Some(KMS), key, None) => Ok(Some(Encryption::Named(key.unwrap_or(DEFAULT_KMS_KEY).to_owned()))),
        (Some("aws:kms:dsse"), ..) => {
            Err(S3Error::not_implemented(&format!("header {HEADER} with the value aws:kms:dsse")))
        }
        (Some(ALGORITHM) | None, Some(key), None) => {
            refuse(KMS_KEY, key, "A key id is for the encryption method aws:kms only")
        }
        (Some(other), ..) => refuse(HEADER, other, "The encryption method specified is not supported"),
    }
}

/// Refuses headers of a part that differ from its upload; AWS refuses them even when they repeat it.
fn refuse_other(headers: &HeaderMap, upload: Option<&Encryption>) -> Result<(), S3Error> {
    let Some(method) = text(headers, HEADER)?.or(text(headers, KMS_KEY)?) else { return Ok(()) };
    match (asked(headers, None)?, upload) {
        (Some(Encryption::Master), Some(Encryption::Master)) => Ok(()),
        (Some(Encryption::Named(asked)), Some(Encryption::Named(own))) if asked == *own => Ok(()),
        _ => Err(S3Error::argument(HEADER, method, "A part is encrypted as its upload is, and not otherwise")),
    }
}

/// Refuses headers that only apply to writes.
pub(crate) fn refuse_on_read(headers: &HeaderMap) -> Result<(), S3Error> {
    for name in [HEADER, KMS_KEY] {
        if let Some(value) = text(headers, name)? {
            return Err(S3Error::argument(name, value, "The header is not supported for this operation"));
        }
    }
    Ok(())
}

/// Adds the headers that describe an object's encryption.
pub(crate) fn tell(encryption: Option<&Encryption>, headers: &mut HeaderMap) {
    headers.extend(encryption.map(Encryption::headers).unwrap_or_default());
}

/// The encryption of an object or upload with these documents; refuses a missing or superfluous key.
pub(crate) fn of_documents(documents: &Documents, given: Option<Customer>) -> Result<Option<Encryption>, S3Error> {
    match (Protection::of(documents), given) {
        (None, None) => Ok(None),
        (Some(Protection::Master), None) => Ok(Some(Encryption::Master)),
        (Some(Protection::Named(name)), None) => Ok(Some(Encryption::Named(name))),
        (Some(Protection::Customer), Some(customer)) => Ok(Some(Encryption::Customer(customer))),
        (Some(Protection::Customer), None) => Err(Error::KeyRequired.into()),
        (None | Some(Protection::Master | Protection::Named(_)), Some(_)) => Err(Error::KeyNotApplicable.into()),
    }
}

/// The encryption of an upload to be completed. As at AWS, its customer's key is required only if checksums were
/// promised; if present it is verified.
pub(crate) fn of_completion(call: &Call<'_>, info: &UploadInfo) -> Result<Option<Encryption>, S3Error> {
    let needs_key = Protection::of(&info.documents) == Some(Protection::Customer);
    let comes = customer::comes(call.headers);
    let asks = [HEADER, KMS_KEY].iter().any(|name| call.headers.contains_key(*name));
    if needs_key && !comes && !asks && !info.headers.contains_key(checksum::ALGORITHM) {
        return Ok(None);
    }
    Ok(WriteKey::of_part(call, &info.documents)?.encryption().cloned())
}

/// Unlocks an object for reading, with the key of the request.
pub(crate) fn unlock(reader: &mut Reader, given: Option<Customer>) -> Result<Option<Encryption>, S3Error> {
    let found = of_documents(&reader.info().documents, given)?;
    if let Some(Encryption::Customer(customer)) = &found {
        reader.unlock_with(&customer.key)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
