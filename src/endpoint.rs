//! A server of a shared volume that keeps copies for the others and has no clients: its pages and its commands.
//!
//! Why:        a machine with disks alone needs no S3 door, no mount, no root keys, and none of the jobs that belong to clients.
//! Invariants: E1 it has no key that encrypts content, and reads no content.
//!             E2 what needs clients, their keys or the tree is refused by name, with who does it.
//! Not here:   sending and keeping copies (margay-cluster), how it is started (`cli::serve`).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
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
use crate::administration::{
    self, AdminWork, Administered, Doing, NotDone, PREFIX, Remote, TopView, WorkAnswer, bad_wish,
};
use crate::audit::Audit;
use crate::backup::{self, BackupWish};
use crate::checks::Checks;
use crate::dump::{self, DumpWish};
use crate::process;
use crate::server::{write_head, write_reclaim};
use crate::spans::Spans;
use crate::trace::Trace;
use crate::watching;
use crate::wiring::{self, Storage};
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
    pub checks: Arc<Checks>,
    pub audit: Audit,
    pub spans: Arc<Spans>,
    /// Of those who watch: it has no requests of its own.
    pub trace: Arc<Trace>,
    /// Of the other servers.
    pub traffic: Arc<Traffic>,
    /// Start of the server, on the monotonic clock.
    pub begun: Duration,
    /// What the other servers are told.
    pub address: String,
    pub admin: Option<SocketAddr>,
}

/// The admin port: health and metrics, and administration by signed requests.
#[derive(Debug)]
pub struct EndpointPage {
    pub endpoint: Arc<Endpoint>,
    pub remote: Arc<Remote>,
}

/// Answers the commands that an endpoint has, and everything that its admin port answers.
#[derive(Debug)]
pub struct EndpointControl(pub Arc<Endpoint>);

impl Healthy for Endpoint {
    fn health(&self) -> Result<(), String> {
        Administered::health(self)
    }

    fn ready(&self) -> Result<(), String> {
        self.storage.health()?;
        self.session.ready()
    }
}

impl Endpoint {
    /// Stops the background jobs and prevents new ones.
    pub fn stop_background(&self) {
        self.trace.close();
        self.storage.stop_works();
        self.reclaimer.stop();
    }

    fn uptime(&self) -> Duration {
        self.env.clock.monotonic().saturating_sub(self.begun)
    }

    fn metrics(&self) -> String {
        let mut out = Exposition::default();
        write_head(self.storage.health().is_ok(), Healthy::ready(self).is_ok(), self.uptime(), &mut out);
        self.traffic.write(&mut out);
        self.storage.write_metrics(&mut out);
        write_reclaim(&self.reclaimer, &self.storage, &mut out);
        watching::write_space(&self.env, &self.data, &mut out);
        self.checks.write_metrics(&mut out);
        self.audit.write_metrics(&mut out);
        self.spans.write_metrics(&mut out);
        process::write(&self.env, self.uptime(), &mut out);
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
            "health": wiring::told(self.storage.health()),
            "ready": wiring::told(Healthy::ready(self)),
            "uptime_seconds": self.uptime().as_secs(),
            "connections": self.traffic.open(),
            "storage": self.storage.status(),
            "quarantine": self.reclaimer.quarantine_status(&self.storage.segments),
            "check": self.reclaimer.check_status(),
            "checks": self.checks.status(),
        })
    }

    fn page(&self, method: &Method, path: &str) -> Response<ResponseBody> {
        match (method, path) {
            (&Method::GET | &Method::HEAD, path) if admin::is_probe(path) => admin::probe(self, path),
            (&Method::GET | &Method::HEAD, "/metrics") => {
                answer::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
            }
            _ => answer::plain(StatusCode::NOT_FOUND, "there are /health and /metrics"),
        }
    }

    async fn backup(&self, wish: &Value) -> Result<Value, NotDone> {
        let wish = BackupWish::from_json(wish).map_err(bad_wish)?;
        if wish.with_keys {
            return Err(bad_wish(NO_KEYS));
        }
        Ok(backup::make_of_running(Arc::clone(&self.storage), wish).await?)
    }

    fn dump(&self, wish: &Value) -> Result<WorkAnswer, NotDone> {
        let wish = DumpWish::from_json(wish);
        if wish.with_keys {
            return Err(bad_wish(NO_KEYS));
        }
        Ok(WorkAnswer::Stream(dump::answer(&self.storage, wish)))
    }

    fn top(self: &Arc<Self>, wish: &Value) -> Result<WorkAnswer, NotDone> {
        let (process, trace) = (Arc::clone(self) as Arc<dyn Administered>, Arc::clone(&self.trace));
        let view = TopView { process, requests: Arc::default(), traffic: Arc::clone(&self.traffic), trace };
        view.stream(wish)
    }

    /// A task of an operator; the result of a check is kept.
    async fn work(&self, work: Work) -> Result<Value, String> {
        let done = work.run(Arc::clone(&self.storage), Some(self.scrub_rate_max)).await?;
        if work == Work::Scrub {
            return self.keep(done, Checks::scrubbed).await;
        }
        Ok(done)
    }

    async fn fsck(&self, wish: &Value) -> Result<Value, String> {
        let report = administration::fsck_of(&self.storage, wish).await?;
        self.keep(report, Checks::checked).await
    }

    async fn keep(&self, done: Value, note: fn(&Checks, &Value)) -> Result<Value, String> {
        let checks = Arc::clone(&self.checks);
        let kept = tokio::task::spawn_blocking(move || {
            note(&checks, &done);
            done
        });
        kept.await.map_err(|error| format!("it broke off: {error}"))
    }

    async fn answer(self: Arc<Self>, path: &'static str, wish: Value) -> Result<WorkAnswer, NotDone> {
        let value = |value| Ok(WorkAnswer::Value(value));
        let work = Work::ALL.into_iter().find(|work| path.strip_prefix('/') == Some(work.name()));
        match (path, work) {
            ("/status", _) => value(self.status()),
            ("/top", _) => self.top(&wish),
            ("/fsck", _) => value(self.fsck(&wish).await?),
            ("/where", _) => value(administration::places_of(&self.storage, &wish).await?),
            ("/backup", _) => value(self.backup(&wish).await?),
            ("/dump", _) => self.dump(&wish),
            (_, Some(work)) => value(self.work(work).await?),
            // E2.
            (path, None) => Err(NotDone::Elsewhere(refused(path))),
        }
    }
}

fn refused(path: &str) -> String {
    let what = path.trim_start_matches('/');
    format!("this server is an endpoint, it keeps copies and has no clients: ask a server that serves S3 ({what})")
}

impl Administered for Endpoint {
    fn env(&self) -> &Env {
        &self.env
    }

    fn data(&self) -> &Path {
        &self.data
    }

    fn health(&self) -> Result<(), String> {
        self.storage.health()
    }

    fn audit(&self) -> &Audit {
        &self.audit
    }

    fn spans(&self) -> &Spans {
        &self.spans
    }

    fn run(self: Arc<Self>, work: &'static AdminWork, wish: Value) -> Doing {
        Box::pin(self.answer(work.path, wish))
    }
}

impl Handler for EndpointPage {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        let (endpoint, remote) = (Arc::clone(&self.endpoint), Arc::clone(&self.remote));
        let peer = peer.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        Box::pin(async move {
            match request.uri().path().starts_with(PREFIX) {
                true => remote.answer(request, peer).await,
                false => endpoint.page(request.method(), request.uri().path()),
            }
        })
    }
}

impl Handler for EndpointControl {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let endpoint = Arc::clone(&self.0);
        let process = Arc::clone(&self.0) as Arc<dyn Administered>;
        Box::pin(async move {
            match administration::answer_local(&process, request).await {
                Ok(response) => response,
                Err(request) => match (request.method(), request.uri().path()) {
                    (&Method::GET | &Method::HEAD, path @ ("/health" | "/ready" | "/metrics")) => {
                        endpoint.page(request.method(), path)
                    }
                    // E2.
                    (_, path) => answer::json(StatusCode::NOT_IMPLEMENTED, &json!({ "error": refused(path) })),
                },
            }
        })
    }
}
