//! Customer-provided keys (SSE-C): three headers, all or none, and only over a secure connection.
//!
//! Source: "Specifying server-side encryption with customer-provided keys" of the S3 user guide; messages are AWS's,
//!         since tools compare them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use margay_volume::{CustomerKey, MASTER_KEY_BYTES};
use md5::{Digest, Md5};

use super::ALGORITHM;
use crate::error::{Code, S3Error};
use crate::headers::text;
use crate::op::Call;

/// The three headers of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    algorithm: &'static str,
    key: &'static str,
    md5: &'static str,
}

/// For the requested object.
pub(crate) const OWN: Names = Names {
    algorithm: "x-amz-server-side-encryption-customer-algorithm",
    key: "x-amz-server-side-encryption-customer-key",
    md5: "x-amz-server-side-encryption-customer-key-md5",
};
/// For the source of a copy.
pub(crate) const SOURCE: Names = Names {
    algorithm: "x-amz-copy-source-server-side-encryption-customer-algorithm",
    key: "x-amz-copy-source-server-side-encryption-customer-key",
    md5: "x-amz-copy-source-server-side-encryption-customer-key-md5",
};

/// A client's key, and its MD5, which responses repeat.
#[derive(Clone, Debug)]
pub(crate) struct Customer {
    pub key: CustomerKey,
    md5: String,
}

impl Customer {
    /// The key of a request; `None` when it has none of the headers.
    pub(crate) fn of(call: &Call<'_>, names: Names) -> Result<Option<Customer>, S3Error> {
        let customer = read(call.headers, names)?;
        if customer.is_some() && !call.options.customer_keys {
            return Err(S3Error::invalid_request(
                "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure \
                 connection.",
            ));
        }
        Ok(customer)
    }

    pub(super) fn headers(&self) -> [(HeaderName, HeaderValue); 2] {
        let md5 = HeaderValue::from_str(&self.md5).expect("base64 is plain ASCII");
        [
            (HeaderName::from_static(OWN.algorithm), HeaderValue::from_static(ALGORITHM)),
            (HeaderName::from_static(OWN.md5), md5),
        ]
    }
}

/// Whether any of the headers is present.
pub(super) fn comes(headers: &HeaderMap) -> bool {
    [OWN.algorithm, OWN.key, OWN.md5].iter().any(|name| headers.contains_key(*name))
}

pub(super) fn read(headers: &HeaderMap, names: Names) -> Result<Option<Customer>, S3Error> {
    let (algorithm, key, md5) = (text(headers, names.algorithm)?, text(headers, names.key)?, text(headers, names.md5)?);
    let missing = |what: &str| {
        let message =
            format!("Requests specifying Server Side Encryption with Customer provided keys must provide {what}.");
        Err(S3Error::new(Code::InvalidArgument, message))
    };
    let Some(algorithm) = algorithm else {
        return if key.is_none() && md5.is_none() { Ok(None) } else { missing("a valid encryption algorithm") };
    };
    if algorithm != ALGORITHM {
        let message = "The encryption request you specified is not valid. The valid value is AES256.";
        return Err(S3Error::new(Code::InvalidEncryptionAlgorithmError, message));
    }
    let Some(key) = key else { return missing("an appropriate secret key") };
    let Some(md5) = md5 else { return missing("the client calculated MD5 of the secret key") };
    // The message does not contain the key.
    let wrong = || S3Error::argument(names.key, "", "The secret key was invalid for the specified algorithm.");
    let key = BASE64_STANDARD.decode(key).map_err(|_| wrong())?;
    let key: [u8; MASTER_KEY_BYTES] = key.try_into().map_err(|_| wrong())?;
    let own = BASE64_STANDARD.encode(Md5::digest(key));
    if own != md5 {
        let message = "The calculated MD5 hash of the key did not match the hash that was provided.";
        return Err(S3Error::argument(names.md5, md5, message));
    }
    Ok(Some(Customer { key: CustomerKey::new(key), md5: own }))
}
