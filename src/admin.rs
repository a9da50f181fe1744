//! The admin port: health and metrics for everybody who can reach it, orders about users for the holder of the root
//! keys.
//!
//! Invariants: A1 without a signature a request changes nothing and shows no names or contents of stored data.
//!             A2 an order needs a signature of the root keys that covers its body.
//! Not here:   what an order does (margay-accounts), other commands (`control`).

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use margay_accounts::identities::{ORDER_BYTES_MAX, ORDER_PATH};
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use margay_s3::auth::{Head, Host, PayloadForm, Verifier};
use margay_s3::identities::identify;
use serde_json::json;

use crate::server::Server;

/// Answers `/health`, `/metrics` and `/identities`.
#[derive(Debug)]
pub struct Admin {
    server: Arc<Server>,
    verifier: Arc<Verifier>,
}

impl Admin {
    pub fn new(server: &Arc<Server>) -> Admin {
        Admin { server: Arc::clone(server), verifier: Arc::new(Verifier::new(margay_s3::auth::Options::default())) }
    }
}

impl Handler for Admin {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let (server, verifier) = (Arc::clone(&self.server), Arc::clone(&self.verifier));
        Box::pin(async move {
            if request.method() == Method::POST && request.uri().path() == ORDER_PATH {
                return order(&server, &verifier, request).await;
            }
            page(&server, request.method(), request.uri().path())
        })
    }
}

/// Executes an order that the root keys signed.
async fn order(server: &Server, verifier: &Verifier, request: Request<RequestBody>) -> Response<ResponseBody> {
    let refuse = |status, error: &str| answer::json(status, &json!({ "error": error }));
    let (parts, body) = request.into_parts();
    let identities: &dyn margay_s3::identities::Identities = &*server.identities;
    let token = parts.headers.get("x-amz-security-token").and_then(|token| token.to_str().ok());
    let host = match Host::of(&parts, false) {
        Ok(host) => host,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let head = Head::of(&parts, &host);
    let (verified, identity) = match identify(verifier, &head, identities, token, server.env.clock.now()).await {
        Ok(identified) => identified,
        Err(error) => return refuse(StatusCode::FORBIDDEN, &error.to_string()),
    };
    if !identity.as_ref().is_some_and(|identity| identity.is_root()) {
        let who = identity.map_or_else(|| "anonymous".to_owned(), |identity| identity.caller().arn());
        tracing::info!(target: "margay::access", who, "denied: the admin port takes orders under the root keys only");
        return refuse(
            StatusCode::FORBIDDEN,
            "orders must be signed with the root keys (AWS Signature Version 4, service s3)",
        );
    }
    let PayloadForm::Sha256(promised) = verified.payload else {
        return refuse(
            StatusCode::FORBIDDEN,
            "the signature must cover the body: x-amz-content-sha256 must be its SHA-256",
        );
    };
    let body = match Limited::new(body, ORDER_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("the order cannot be read: {error}")),
    };
    if ring::digest::digest(&ring::digest::SHA256, &body).as_ref() != promised {
        return refuse(StatusCode::FORBIDDEN, "the body is not the one that was signed");
    }
    match server.identities.answer_json(&body).await {
        Ok(value) => answer::json(StatusCode::OK, &value),
        Err(error) => refuse(StatusCode::BAD_REQUEST, &error),
    }
}

/// The pages that need no authentication.
pub fn page(server: &Server, method: &Method, path: &str) -> Response<ResponseBody> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return answer::plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    match path {
        "/health" => health(server),
        "/metrics" => answer::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", server.metrics()),
        _ => answer::plain(StatusCode::NOT_FOUND, "there are /health and /metrics"),
    }
}

/// A process that can tell whether it works.
pub trait Healthy: Send + Sync + std::fmt::Debug {
    /// `Err` says what does not.
    fn health(&self) -> Result<(), String>;
}

impl Healthy for Server {
    fn health(&self) -> Result<(), String> {
        Server::health(self)
    }
}

/// 200 while everything can be read and written, else 503 with the reason.
pub fn health(process: &dyn Healthy) -> Response<ResponseBody> {
    match process.health() {
        Ok(()) => answer::plain(StatusCode::OK, "ok"),
        Err(reason) => answer::plain(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}
