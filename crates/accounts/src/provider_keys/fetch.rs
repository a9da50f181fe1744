//! One fetch of a provider's keys.
//!
//! Invariants: F1 an answer counts only with status 200, and its size is limited.  F2 the provider's own description
//!                gives the location of its keys, which must be within its own origin.
//! Not here:   how often keys are fetched, and how long they are valid (`provider_keys`).

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use margay_client::endpoint::Endpoint;
use margay_s3::sts::KeySet;
use serde_json::Value;

/// Time limit for both documents together.
pub(super) const FETCH_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum size of a document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Path of a provider's description after its issuer (OpenID Connect Discovery 1.0).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Location of keys.
#[derive(Clone, Debug)]
pub enum KeyLocation {
    /// A JWKS document.
    Keys(Endpoint),
    /// A description that names the JWKS document.
    Description { issuer: String, endpoint: Endpoint },
}

impl KeyLocation {
    /// The location of an issuer's description. The error says what is wrong with its URL.
    pub fn of_issuer(issuer: &str) -> Result<KeyLocation, String> {
        let endpoint = Endpoint::parse(&format!("{}{DISCOVERY}", issuer.trim_end_matches('/')))?;
        Ok(KeyLocation::Description { issuer: issuer.to_owned(), endpoint })
    }

    pub fn endpoint(&mut self) -> &mut Endpoint {
        match self {
            KeyLocation::Keys(endpoint) | KeyLocation::Description { endpoint, .. } => endpoint,
        }
    }
}

/// Fetches the keys. The error is one line.
pub(super) async fn fetch(place: &KeyLocation) -> Result<KeySet, String> {
    let keys = match place {
        KeyLocation::Keys(endpoint) => get(endpoint).await?,
        KeyLocation::Description { issuer, endpoint } => {
            let description: Value =
                serde_json::from_slice(&get(endpoint).await?).map_err(|error| error.to_string())?;
            let named = description["issuer"].as_str().unwrap_or_default();
            if named.trim_end_matches('/') != issuer.trim_end_matches('/') {
                return Err(format!("the description is of the issuer {named:?}"));
            }
            let url = description["jwks_uri"].as_str().ok_or("the description has no jwks_uri")?;
            get(&endpoint.sibling(url).map_err(|error| format!("jwks_uri: {error}; oidc.keys can name it"))?).await?
        }
    };
    KeySet::parse(&keys).map_err(|error| error.to_string())
}

async fn get(endpoint: &Endpoint) -> Result<Vec<u8>, String> {
    let wrong = |error: String| format!("{endpoint:?}: {error}");
    let mut connection = endpoint.connect().await.map_err(wrong)?;
    let request = endpoint.request(Method::GET, Vec::new()).map_err(wrong)?;
    let answer = connection.send_request(request).await.map_err(|error| wrong(error.to_string()))?;
    if answer.status() != StatusCode::OK {
        return Err(wrong(format!("answered {}", answer.status())));
    }
    let body = Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| wrong(error.to_string()))?.to_bytes().to_vec())
}
