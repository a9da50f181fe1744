//! The control socket and the page of metrics of a far mount.
//!
//! Why:        the cache is held by one process, so other commands ask it.
//! Invariants: C1 the socket is of the owner only, as a server's (control); the page of metrics changes nothing and names no file.
//! Not here:   what is told (running), who asks (cli).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, ConnectionLimits, Handler, Listener, Traffic};
use margay_upstream::Backlog;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::running::Running;
use crate::admin;
use crate::administration::{self, Administered};
use crate::control;

/// Connections at once on each of the two.
const CONNECTIONS_MAX: usize = 64;
/// Who was told the end reads it in this time.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

struct Commands(Arc<Running>);

/// `/metrics` and the pages for probes only.
struct Page(Arc<Running>);

impl Handler for Commands {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let running = Arc::clone(&self.0);
        Box::pin(async move {
            match (request.method(), request.uri().path()) {
                (&Method::GET, "/status") => {
                    let names = request.uri().query() == Some("names");
                    let work = tokio::task::spawn_blocking(move || running.status(names));
                    control::done(work.await.map_err(|error| error.to_string()))
                }
                (&Method::GET, "/waiting") => {
                    let directory = request.uri().query().and_then(|query| query.parse().ok());
                    let work = tokio::task::spawn_blocking(move || running.waiting_below(directory));
                    control::done(work.await.map_err(|error| error.to_string()))
                }
                (&Method::POST, "/sync") => control::done(sync(&running, request).await),
                (&Method::POST, "/unmount") => control::done(unmount(&running, request).await),
                (&Method::GET | &Method::HEAD, path @ ("/health" | "/ready" | "/metrics")) => {
                    page(&running, request.method(), path)
                }
                _ => administer(&running, request).await,
            }
        })
    }
}

/// A work of administration, or a line that says where it is done.
async fn administer(running: &Arc<Running>, request: Request<RequestBody>) -> Response<ResponseBody> {
    let process = Arc::clone(running) as Arc<dyn Administered>;
    match administration::answer_local(&process, request).await {
        Ok(response) => response,
        Err(request) => {
            let error = running.elsewhere(request.uri().path());
            answer::json(StatusCode::NOT_IMPLEMENTED, &json!({ "error": error }))
        }
    }
}

impl Handler for Page {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let running = Arc::clone(&self.0);
        Box::pin(async move { page(&running, request.method(), request.uri().path()) })
    }
}

fn page(running: &Running, method: &Method, path: &str) -> Response<ResponseBody> {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            answer::text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", running.metrics())
        }
        (&Method::GET | &Method::HEAD, path) if admin::is_probe(path) => admin::probe(running, path),
        _ => answer::plain(StatusCode::NOT_FOUND, "there are /health, /ready and /metrics"),
    }
}

/// Sets its flag when the one who waits is gone.
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Answers when the bucket has the file, what is below the directory, or everything.
async fn sync(running: &Arc<Running>, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = control::wish(request).await?;
    let (file, directory) = (wish["file"].as_u64(), wish["directory"].as_u64());
    let (far, waits) = (Arc::clone(&running.far), Waits(Arc::default()));
    let gone = Arc::clone(&waits.0);
    let work = tokio::task::spawn_blocking(move || {
        let goes_on = &mut |_: &Backlog| !gone.load(Ordering::SeqCst);
        match directory.filter(|directory| !far.is_top(*directory)) {
            Some(directory) => far.send_below(directory, goes_on),
            None => far.send(file, goes_on),
        }
    });
    let sent = work.await.map_err(|error| format!("sending broke off: {error}"))?;
    drop(waits);
    sent.map(|()| json!({ "sent": true })).map_err(|error| error.to_string())
}

/// Answers when everything is sent or left in the cache, which is closed then.
async fn unmount(running: &Arc<Running>, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = control::wish(request).await?;
    let wait = Duration::from_secs(wish["seconds"].as_u64().unwrap_or(0));
    if let Some(path) = running.path.clone().filter(|_| running.served.is_some()) {
        return unmount_beside(running, path, wait, wish["now"] == true).await;
    }
    Ok(running.ending.ask(wait, wish["now"] == true).await)
}

/// Ends the mount of a process that goes on to serve S3; answers when everything is sent, or now.
async fn unmount_beside(running: &Arc<Running>, path: PathBuf, wait: Duration, now: bool) -> Result<Value, String> {
    let (own, waits) = (Arc::clone(running), Waits(Arc::default()));
    let gone = Arc::clone(&waits.0);
    let work = tokio::task::spawn_blocking(move || {
        own.mounts.unmount(&path, wait)?;
        let sent = own.far.send(None, &mut |_| !now && !gone.load(Ordering::SeqCst));
        Ok::<_, String>(sent.err().map(|error| error.to_string()))
    });
    let error = work.await.map_err(|error| format!("unmounting broke off: {error}"))??;
    drop(waits);
    Ok(running.ended(error, true))
}

/// The open sockets of a far mount.
pub(super) struct Doors {
    commands: Option<Listener>,
    page: Option<Listener>,
}

impl Doors {
    pub(super) fn open(running: &Arc<Running>, page: Option<TcpListener>, limits: ConnectionLimits) -> Doors {
        let limits = ConnectionLimits { connections_max: CONNECTIONS_MAX, ..limits };
        let (unseen, own) = (|| Arc::new(Traffic::default()), || Arc::clone(running));
        let page = page.map(|socket| Listener::start_tcp(socket, None, Arc::new(Page(own())), unseen(), limits));
        let commands = control::bind(&running.env, &running.cache).map_err(|error| {
            tracing::warn!(%error, "no control socket: `margay status` and `margay sync` will not find this mount");
        });
        let commands = commands.ok();
        let commands = commands.map(|socket| Listener::start_unix(socket, Arc::new(Commands(own())), unseen(), limits));
        if let Some(address) = page.as_ref().and_then(|page| page.address) {
            tracing::info!(%address, "metrics");
        }
        Doors { commands, page }
    }

    pub(super) async fn close(self, running: &Running) {
        for one in [self.commands, self.page].into_iter().flatten() {
            one.stop(DRAIN_TIME_MAX).await;
        }
        // One that is left does no harm: the next process replaces it.
        let _ = running.env.disk.remove(&running.cache.join(control::NAME));
    }
}
