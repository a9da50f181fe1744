//! Passes a request of the page to the S3 door, signed with the key of its session.
//!
//! Why:        every operation of S3 and of the other services at its port is available without code here, with exactly the rights
//!             of the key, and is logged and counted like any other request.
//! Invariants: D1 the door sees a request that the key signed, and nothing else of the browser's request than the allowed headers.
//! Not here:   who sent it (`guard`, `sessions`), what becomes of the answer (`console`, `raw`).

use std::net::SocketAddr;

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{Handler, answer};
use margay_s3::auth::PayloadForm;
use margay_s3::auth::sign::Target;

use crate::headers::request_headers;
use crate::keys::{HOST_HERE, Key, Service};
use crate::sessions::Session;

/// A request of a session, as it came.
#[derive(Debug)]
pub(crate) struct Came {
    pub parts: Parts,
    pub body: RequestBody,
    pub peer: Option<SocketAddr>,
}

/// Passes it on as a request for `target`.
pub(crate) async fn pass(
    door: &dyn Handler,
    (session, key): (&Session, Key),
    (service, now): (Service, margay_env::Timestamp),
    target: PathAndQuery,
    came: Came,
) -> Response<ResponseBody> {
    let refuse = |why: &str| answer::plain(StatusCode::BAD_REQUEST, why);
    let method = came.parts.method.clone();
    if !matches!(method, Method::GET | Method::HEAD | Method::PUT | Method::POST | Method::DELETE) {
        return answer::plain(StatusCode::METHOD_NOT_ALLOWED, "the console passes GET, HEAD, PUT, POST and DELETE");
    }
    let mut headers = request_headers(&came.parts.headers);
    headers.insert(HOST, HeaderValue::from_static(HOST_HERE));
    if let Some(token) = &session.token {
        let Ok(token) = HeaderValue::from_str(token) else { return refuse("the session's token is malformed") };
        headers.insert("x-amz-security-token", token);
    }
    // A service that wants its body covered gets the digest that the page computed, and verifies it.
    let digest = came.parts.headers.get("x-amz-content-sha256").and_then(|digest| digest.to_str().ok());
    let form = match digest.map(PayloadForm::parse) {
        None | Some(Ok(PayloadForm::Unsigned)) => PayloadForm::Unsigned,
        Some(Ok(form @ PayloadForm::Sha256(_))) => form,
        Some(_) => return refuse("x-amz-content-sha256 must be a SHA-256"),
    };
    let signer = match service {
        Service::S3 => key.signer,
        Service::Iam => key.signer.for_service("iam"),
    };
    let signed = Target { method: &method, path: target.path(), query: target.query().unwrap_or("") };
    if let Err(error) = signer.sign(signed, &mut headers, form, now) {
        return refuse(&format!("the request cannot be signed: {error}"));
    }
    let mut request = Request::new(came.body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target);
    *request.headers_mut() = headers;
    door.handle(request, came.peer).await
}
