//! A server of a shared volume that keeps copies for the others and has no clients: its pages and its commands.
//!
//! Why:        a machine with disks alone needs no S3 door, no mount, no root keys, and none of the jobs that belong to clients.
//! Invariants: E1 it has no key that encrypts content, and reads no content.
//!             E2 what needs clients, their keys or the tree is refused by name, with who does it.
//! Not here:   sending and keeping copies (margay-cluster), how it is started (`cli::serve`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use margay_env::Env;
use margay_jobs::reclaimer::Reclaimer;
use margay_jobs::session_keeper::SessionKeeper;
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler, Traffic};
use margay_metrics::Exposition;
use serde_json::{Value, json};

use crate::admin::{self, Healthy};
use crate::backup::{self, BackupWish};
use crate::control::{self, done, wish};
use crate::dump::{self, DumpWish};
use crate::server::{write_head, write_memory, write_reclaim};
use crate::wiring::Storage;
use crate::works::Work;

const NO_KEYS: &str =
    "this server is an endpoint and has no keys: make the backup or dump without keys, and keep those of a gateway";

/// What the pages and commands of an endpoint read.
#[derive(Debug)]
pub struct Endpoint {
    pub env: Env,
    pub data: PathBuf,
    pub storage: Arc<Storage>,
    pub reclaimer: Reclaimer,
    pub session: SessionKeeper,
    /// Read rate of a scrub, in bytes per second.
    pub scrub_rate_max: u64,
    /// Of the other servers.
    pub traffic: Arc<Traffic>,
    /// Start of the server, on the monotonic clock.
    pub begun: Duration,
    /// What the other servers are told.
    pub address: String,
    pub admin: Option<SocketAddr>,
}

/// The admin port: health and metrics.
#[derive(Debug)]
pub struct EndpointPage(pub Arc<Endpoint>);

/// Answers the commands that an endpoint has, and everything that its admin port answers.
#[derive(Debug)]
pub struct EndpointControl(pub Arc<Endpoint>);

impl Healthy for Endpoint {
    fn health(&self) -> Result<(), String> {
        self.storage.health()
    }
}

impl Endpoint {
    /// Stops the background jobs and prevents new ones.
    pub fn stop_background(&self) {
        self.storage.stop_works();
        self.reclaimer.stop();
    }

    fn uptime(&self) -> Duration {
        self.env.clock.monotonic().saturating_sub(self.begun)
    }

    fn metrics(&self) -> String {
        let mut out = Exposition::default();
        write_head(self.health().is_ok(), self.uptime(), &mut out);
        self.traffic.write(&mut out);
        self.storage.write_metrics(&mut out);
        write_reclaim(&self.reclaimer, &self.storage, &mut out);
        write_memory(&self.env, &mut out);
        out.finish()
    }

    /// The content of `margay status`.
    fn status(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "data": self.data.display().to_string(),
            "role": "endpoint",
            "store": self.storage.segments.name().number.0,
            "store_address": self.address,
            "admin_address": self.admin.map(|address| address.to_string()),
            "health": self.health().err().unwrap_or_else(|| "ok".to_owned()),
            "uptime_seconds": self.uptime().as_secs(),
            "connections": self.traffic.open(),
            "storage": self.storage.status(),
            "quarantine": self.reclaimer.quarantine_status(&self.storage.segments),
            "check": self.reclaimer.check_status(),
        })
    }

    fn page(&self, method: &Method, path: &str) -> Response<ResponseBody> {
        match (method, path) {
            (&Method::GET | &Method::HEAD, "/health") => admin::health(self),
            (&Method::GET | &Method::HEAD, "/metrics") => {
                answer::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
            }
            _ => answer::plain(StatusCode::NOT_FOUND, "there are /health and /metrics"),
        }
    }

    async fn backup(&self, request: Request<RequestBody>) -> Result<Value, String> {
        let wish = BackupWish::from_json(&wish(request).await?)?;
        if wish.with_keys {
            return Err(NO_KEYS.to_owned());
        }
        backup::make_of_running(Arc::clone(&self.storage), wish).await
    }

    async fn dump(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, String> {
        let wish = DumpWish::from_json(&wish(request).await?);
        if wish.with_keys {
            return Err(NO_KEYS.to_owned());
        }
        Ok(dump::answer(&self.storage, wish))
    }

    async fn command(&self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if matches!(method, Method::GET | Method::HEAD) && matches!(path.as_str(), "/health" | "/metrics") {
            return self.page(&method, &path);
        }
        let work = Work::ALL.into_iter().find(|work| path.strip_prefix('/') == Some(work.name()));
        match (method, path.as_str(), work) {
            (Method::GET, "/status", _) => answer::json(StatusCode::OK, &self.status()),
            (Method::POST, "/fsck", _) => done(control::fsck_of(&self.storage, request).await),
            (Method::POST, "/where", _) => done(control::places_of(&self.storage, request).await),
            (Method::POST, "/backup", _) => done(self.backup(request).await),
            (Method::POST, "/dump", _) => self.dump(request).await.unwrap_or_else(|error| done(Err(error))),
            (Method::POST, _, Some(work)) => done(work.run(Arc::clone(&self.storage), Some(self.scrub_rate_max)).await),
            // E2.
            (_, path, _) => {
                let what = path.trim_start_matches('/');
                done(Err(format!(
                    "this server is an endpoint, it keeps copies and has no clients: ask a server that serves S3 ({what})"
                )))
            }
        }
    }
}

impl Handler for EndpointPage {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let endpoint = Arc::clone(&self.0);
        Box::pin(async move { endpoint.page(request.method(), request.uri().path()) })
    }
}

impl Handler for EndpointControl {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let endpoint = Arc::clone(&self.0);
        Box::pin(async move { endpoint.command(request).await })
    }
}
