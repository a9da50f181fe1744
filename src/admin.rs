//! The admin port: health and metrics for machines, readable by everybody who can reach it.
//!
//! Invariants: A1 it changes nothing and shows no names or contents of stored data.
//! Not here:   commands that change something (`control`).

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};

use crate::answer;
use crate::listener::body::{RequestBody, ResponseBody};
use crate::listener::{AnswerFuture, Handler};
use crate::server::Server;

/// Answers `/health` and `/metrics`.
#[derive(Debug)]
pub struct Admin(pub Arc<Server>);

impl Handler for Admin {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let server = Arc::clone(&self.0);
        Box::pin(async move { page(&server, request.method(), request.uri().path()) })
    }
}

/// The pages that need no rights.
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

/// 200 while everything can be read and written, else 503 with the reason.
pub fn health(server: &Server) -> Response<ResponseBody> {
    match server.health() {
        Ok(()) => answer::plain(StatusCode::OK, "ok"),
        Err(reason) => answer::plain(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}
