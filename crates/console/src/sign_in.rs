//! Signing in: an access key and its secret, once, for a session.
//!
//! Invariants: I1 the answer does not tell an unknown key from a wrong secret.
//! Not here:   the limits of failures (`throttle`), cookies (`guard`).

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use margay_listener::body::RequestBody;
use serde_json::Value;

use crate::keys::Keys;
use crate::sessions::{Session, Sessions};
use crate::throttle::Throttle;

/// Maximum size of the form, in bytes; a token of a temporary key may have some kilobytes.
const FORM_BYTES_MAX: usize = 16 * 1024;

/// Why nobody was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignInError {
    Malformed,
    Wrong,
    /// Too many failures; wait so long.
    Wait(Duration),
}

/// Returns the id of a new session.
pub(crate) async fn sign_in(
    (keys, sessions, throttle): (&Keys, &Sessions, &Throttle),
    peer: Option<IpAddr>,
    body: RequestBody,
) -> Result<String, SignInError> {
    let bytes = Limited::new(body, FORM_BYTES_MAX).collect().await.map_err(|_| SignInError::Malformed)?.to_bytes();
    let form: Value = serde_json::from_slice(&bytes).map_err(|_| SignInError::Malformed)?;
    let text = |name: &str| form[name].as_str().filter(|text| !text.is_empty() && !text.contains(char::is_control));
    let (Some(access_key), Some(secret)) = (text("accessKey"), text("secretKey")) else {
        return Err(SignInError::Malformed);
    };
    let session = Session { access_key: access_key.to_owned(), token: text("token").map(str::to_owned) };
    let now = keys.env.clock.monotonic();
    throttle.check(peer, access_key, now).map_err(SignInError::Wait)?;
    // Counted before it is verified, so that many guesses at once do not all pass.
    throttle.failed(peer, access_key, now);
    if !keys.verify(&session, secret).await {
        tracing::info!(target: "margay::access", access_key, "console: a sign-in failed");
        return Err(SignInError::Wrong);
    }
    throttle.was_right(peer, access_key);
    Ok(sessions.begin(session, &*keys.env.random, keys.env.clock.monotonic()))
}
