//! The admin port: health and metrics for everybody who can reach it, orders about users for the holder of the root
//! keys.
//!
//! Invariants: A1 without a signature a request changes nothing and shows no names or contents of stored data.
//!             A2 an order needs a signature of the root keys that covers its body.
//! Not here:   what an order does (margay-accounts), who signed it (`administration`), other commands (`control`).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use margay_accounts::identities::ORDER_PATH;
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};

use crate::administration::Remote;
use crate::server::Server;

/// Says that the process answers.
const MINIO_LIVE: &str = "/minio/health/live";
/// Where the S3 address has `/health`, for `margay health --endpoint`.
pub const HEALTH: &str = "/-/health";
/// Where the S3 address has `/ready`, for load balancers.
pub const READY: &str = "/-/ready";

/// Answers `/health`, `/ready`, `/metrics` and `/identities`.
#[derive(Debug)]
pub struct Admin {
    server: Arc<Server>,
    remote: Arc<Remote>,
}

impl Admin {
    pub fn new(server: &Arc<Server>, region: &str) -> Admin {
        Admin { server: Arc::clone(server), remote: Arc::new(Remote::new(server, region, false)) }
    }
}

impl Handler for Admin {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        let (server, remote) = (Arc::clone(&self.server), Arc::clone(&self.remote));
        let peer = peer.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        Box::pin(async move {
            if request.method() == Method::POST && request.uri().path() == ORDER_PATH {
                return remote.answer_at(request, ORDER_PATH, peer, true).await;
            }
            page(&server, request.method(), request.uri().path()).await
        })
    }
}

/// The pages that need no authentication.
pub async fn page(server: &Server, method: &Method, path: &str) -> Response<ResponseBody> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return answer::plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    match path {
        path if is_probe(path) => probe(server, path),
        "/metrics" => answer::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", server.metrics().await),
        _ => answer::plain(StatusCode::NOT_FOUND, "there are /health, /ready and /metrics"),
    }
}

/// A process that can tell whether it works.
pub trait Healthy: Send + Sync + std::fmt::Debug {
    /// `Err` says what does not.
    fn health(&self) -> Result<(), String>;

    /// `Err` says why requests would not be served now. It may work again without a restart.
    fn ready(&self) -> Result<(), String> {
        self.health()
    }
}

impl Healthy for Server {
    fn health(&self) -> Result<(), String> {
        Server::health(self)
    }

    fn ready(&self) -> Result<(), String> {
        Server::ready(self)
    }
}

/// A page that says whether the process works, on the admin address.
pub fn is_probe(path: &str) -> bool {
    matches!(path, "/health" | "/ready" | HEALTH | READY) || is_minio_health(path)
}

/// Where MinIO answers probes, which its users have in their configurations.
pub fn is_minio_health(path: &str) -> bool {
    path == MINIO_LIVE || matches!(path, "/minio/health/ready" | "/minio/health/cluster" | "/minio/health/cluster/read")
}

/// The page at one of the paths of probes: 200, or 503 with the reason.
pub fn probe(process: &dyn Healthy, path: &str) -> Response<ResponseBody> {
    let found = match path {
        // A restart would not help a server whose disk takes no writes; who is not ready gets no requests.
        MINIO_LIVE => Ok(()),
        "/health" | HEALTH => process.health(),
        _ => process.ready(),
    };
    match found {
        Ok(()) => answer::plain(StatusCode::OK, "ok"),
        Err(reason) => answer::plain(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}
