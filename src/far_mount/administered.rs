//! Administration of a far mount and of the gateway to a far bucket: what both tell, and what is done elsewhere.
//!
//! Why:        who watches servers wants to watch these, too: `status`, `top`, `trace` and `mounts`, by the control socket, and of a gateway
//!             also by signed requests to its address.
//! Invariants: F1 what would change the bucket's users, rights or quotas, or would read all data, is refused by name: the store that has
//!                the bucket does that.
//! Not here:   commands that only a far mount has (`commands`), who may ask (`administration`).

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_listener::Traffic;
use margay_metrics::{Exposition, Requests};
use serde_json::Value;

use super::running::Running;
use crate::administration::{AdminWork, Administered, Doing, NotDone, TopView, WorkAnswer, show_requests};
use crate::audit::Audit;
use crate::exit::Failure;
use crate::settings::Settings;
use crate::spans::Spans;
use crate::trace::Trace;

/// What is kept of requests over S3 and of administration.
#[derive(Clone, Debug)]
pub struct Seen {
    pub requests: Arc<Requests>,
    pub traffic: Arc<Traffic>,
    pub trace: Arc<Trace>,
    pub audit: Arc<Audit>,
    pub spans: Arc<Spans>,
}

impl Seen {
    /// Of a mount without an S3 door.
    pub(super) fn bare(env: &Env) -> Seen {
        Seen {
            requests: Arc::default(),
            traffic: Arc::default(),
            trace: Arc::default(),
            audit: Arc::new(Audit::new(env, None)),
            spans: Arc::default(),
        }
    }

    /// Of a gateway.
    pub(super) fn of(env: &Env, settings: &Settings) -> Result<Seen, Failure> {
        let audit = Arc::new(Audit::new(env, settings.audit_log.clone()));
        let spans = Spans::start(env, settings.otlp.as_ref())?;
        Ok(Seen { audit, spans, ..Seen::bare(env) })
    }

    pub(super) fn write_metrics(&self, out: &mut Exposition) {
        self.requests.write(out);
        self.traffic.write(out);
        self.audit.write_metrics(out);
        self.spans.write_metrics(out);
    }
}

impl Running {
    /// What a work that is not done here is told by.
    pub(super) fn elsewhere(&self, path: &str) -> String {
        let what = path.trim_start_matches('/');
        let source = &self.source;
        format!(
            "this process has the cache of {source}: status, top, trace and mounts are here, the store of the bucket does the rest ({what})"
        )
    }

    async fn answer(self: Arc<Self>, path: &'static str, wish: Value) -> Result<WorkAnswer, NotDone> {
        match path {
            "/status" => {
                let told = tokio::task::spawn_blocking(move || self.status(false)).await;
                Ok(WorkAnswer::Value(told.map_err(|error| format!("it broke off: {error}"))?))
            }
            "/mounts" => Ok(WorkAnswer::Value(self.mounts.status())),
            "/top" => {
                let Seen { requests, traffic, trace, .. } = self.seen.clone();
                let view = TopView { process: self, requests, traffic, trace };
                view.stream(&wish)
            }
            "/trace" if self.served.is_none() => {
                let what = "this is a mount without an S3 door, so there are no requests to show; margay top shows what it does";
                Err(NotDone::Elsewhere(what.to_owned()))
            }
            "/trace" => show_requests(&self.seen.trace, &wish),
            // F1.
            path => Err(NotDone::Elsewhere(self.elsewhere(path))),
        }
    }
}

impl Administered for Running {
    fn env(&self) -> &Env {
        &self.env
    }

    fn data(&self) -> &Path {
        &self.cache
    }

    fn health(&self) -> Result<(), String> {
        Running::health(self)
    }

    fn audit(&self) -> &Audit {
        &self.seen.audit
    }

    fn spans(&self) -> &Spans {
        &self.seen.spans
    }

    fn run(self: Arc<Self>, work: &'static AdminWork, wish: Value) -> Doing {
        Box::pin(self.answer(work.path, wish))
    }
}
