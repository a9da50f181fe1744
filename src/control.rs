//! The control socket: commands of this machine to the running server, over HTTP on a Unix socket.
//!
//! Why:        `margay status` and other commands must work while the server holds the directory. File permissions
//!             control access, so no password is sent.
//! Invariants: R1 the socket is readable and writable by its owner only.
//! Not here:   what the commands do (`works`), the commands to a far mount (`far_mount`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use margay_accounts::identities::{ORDER_BYTES_MAX, ORDER_PATH};
use margay_env::Env;
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};

use crate::admin;
use crate::backup::{self, BackupWish};
use crate::buckets::{self, QuotaChange};
use crate::disks;
use crate::dump::{self, DumpWish};
use crate::exit::Failure;
use crate::fsck;
use crate::inventory;
use crate::mounts::MountWish;
use crate::mounts::options::MountChoice;
use crate::places;
use crate::recover;
use crate::server::Server;
use crate::wiring::Storage;
use crate::works::Work;

/// Maximum size of a command's body, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Name of the socket in the data directory.
pub const NAME: &str = "control";
/// Linux takes no longer path of a socket, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Answers the commands, and everything that the admin port answers.
#[derive(Debug)]
pub struct Control(pub Arc<Server>);

impl Handler for Control {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            let path = request.uri().path();
            match (request.method(), path) {
                (&Method::GET, "/status") => return answer::json(StatusCode::OK, &server.status()),
                (&Method::GET, "/buckets") => {
                    let listed = buckets::list(&server.storage.volume).await;
                    return done(listed.map_err(|error| error.to_string()));
                }
                (&Method::POST, "/backup") => return done(backup(&server.storage, request).await),
                (&Method::POST, "/dump") => {
                    return match wish(request).await {
                        Ok(wish) => dump::answer(&server.storage, DumpWish::from_json(&wish)),
                        Err(error) => done(Err(error)),
                    };
                }
                (&Method::POST, "/disk") => return done(disk(&server, request).await),
                (&Method::POST, "/quota") => return done(quota(&server, request).await),
                (&Method::POST, "/fsck") => return done(fsck_of(&server.storage, request).await),
                (&Method::POST, "/where") => return done(places_of(&server.storage, request).await),
                (&Method::POST, "/recover") => return done(recover_object(&server, request).await),
                (&Method::POST, "/inventory") => return done(inventory_page(&server, request).await),
                (&Method::GET, "/clock") => return answer::json(StatusCode::OK, &server.expiry.clock.status()),
                (&Method::POST, "/clock/confirm") => {
                    return answer::json(StatusCode::OK, &server.expiry.clock.confirm());
                }
                (&Method::GET, "/mounts") => return answer::json(StatusCode::OK, &server.mounts.status()),
                (&Method::POST, ORDER_PATH) => {
                    return done(identities(&server, request).await);
                }
                (&Method::POST, "/mount" | "/unmount") => {
                    return done(mounts(&server, request).await);
                }
                _ => {}
            }
            let named = Work::ALL.into_iter().find(|work| path.strip_prefix('/') == Some(work.name()));
            let (Some(work), &Method::POST) = (named, request.method()) else {
                return admin::page(&server, request.method(), path);
            };
            done(work.run(Arc::clone(&server.storage), Some(server.scrub_rate_max)).await)
        })
    }
}

/// Executes an order about identities.
async fn identities(server: &Server, request: Request<RequestBody>) -> Result<Value, String> {
    let body = Limited::new(request.into_body(), ORDER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("the request cannot be read: {error}"))?.to_bytes();
    server.identities.answer_json(&body).await
}

pub(crate) fn done(outcome: Result<Value, String>) -> Response<ResponseBody> {
    match outcome {
        Ok(value) => answer::json(StatusCode::OK, &value),
        Err(error) => answer::json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": error })),
    }
}

/// The JSON body of a command.
pub(crate) async fn wish(request: Request<RequestBody>) -> Result<Value, String> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("the request cannot be read: {error}"))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| format!("the request is no JSON: {error}"))
}

/// Changes the quota of a bucket.
async fn quota(server: &Server, request: Request<RequestBody>) -> Result<Value, String> {
    let (bucket, change) = QuotaChange::from_json(&wish(request).await?)?;
    let changed = buckets::change_quota(&server.storage.volume, &bucket, change).await;
    changed.map_err(|error| error.to_string())
}

/// Adds or removes a disk.
async fn disk(server: &Arc<Server>, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = wish(request).await?;
    let server = Arc::clone(server);
    let change = move || disks::change(server.storage.disks(), &wish);
    tokio::task::spawn_blocking(change).await.map_err(|error| format!("it broke off: {error}"))?
}

pub(crate) async fn backup(storage: &Arc<Storage>, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = BackupWish::from_json(&wish(request).await?)?;
    backup::make_of_running(Arc::clone(storage), wish).await
}

/// A check while requests go on.
pub(crate) async fn fsck_of(storage: &Arc<Storage>, request: Request<RequestBody>) -> Result<Value, String> {
    let shown_max = wish(request).await?["show"].as_u64().unwrap_or_default();
    let (storage, shown_max) = (Arc::clone(storage), usize::try_from(shown_max).unwrap_or(usize::MAX));
    let checked = tokio::task::spawn_blocking(move || fsck::check(&storage, shown_max));
    checked.await.map_err(|error| format!("it broke off: {error}"))?
}

/// Where the bytes of an object are.
pub(crate) async fn places_of(storage: &Arc<Storage>, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = wish(request).await?;
    let text = |name: &str| wish[name].as_str().map(str::to_owned).ok_or_else(|| format!("the request lacks {name}"));
    let (bucket, name, engine) = (text("bucket")?, text("key")?, storage.rows.engine());
    let found = tokio::task::spawn_blocking(move || {
        places::find(&*engine, &bucket, &name).map_err(|error| format!("{bucket}/{name}: {error}"))
    });
    found.await.map_err(|error| format!("it broke off: {error}"))?
}

/// The copies of an object, checked and mended.
async fn recover_object(server: &Server, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = wish(request).await?;
    let text = |name: &str| wish[name].as_str().map(str::to_owned).ok_or_else(|| format!("the request lacks {name}"));
    let (bucket, name, storage) = (text("bucket")?, text("key")?, Arc::clone(&server.storage));
    let done = tokio::task::spawn_blocking(move || {
        recover::object(&storage, &bucket, &name).map_err(|error| format!("{bucket}/{name}: {error}"))
    });
    done.await.map_err(|error| format!("it broke off: {error}"))?
}

/// One page of a bucket's objects.
async fn inventory_page(server: &Server, request: Request<RequestBody>) -> Result<Value, String> {
    let wish = wish(request).await?;
    let bucket = wish["bucket"].as_str().ok_or("the request lacks bucket")?;
    let prefix = wish["prefix"].as_str().unwrap_or_default();
    let page = inventory::page(&server.storage.volume, bucket, prefix, wish["after"].as_str()).await;
    page.map_err(|error| error.to_string())
}

/// Mounts or unmounts.
async fn mounts(server: &Arc<Server>, request: Request<RequestBody>) -> Result<Value, String> {
    let mount = request.uri().path() == "/mount";
    let wish = wish(request).await?;
    let text = |name: &str| wish[name].as_str().ok_or_else(|| format!("the request lacks {name}"));
    let path = text("path")?.to_owned();
    if mount {
        let choice = MountChoice::parse(text("options")?)?;
        let wish = MountWish::new(text("bucket")?, Path::new(&path), choice)?;
        server.mount(wish).await?;
        return Ok(json!({ "mounted": path }));
    }
    let wait = Duration::from_secs(wish["seconds"].as_u64().unwrap_or(0));
    let server = Arc::clone(server);
    let work = tokio::task::spawn_blocking(move || server.mounts.unmount(Path::new(&path), wait));
    let calm = work.await.map_err(|error| format!("unmounting broke off: {error}"))??;
    Ok(json!({ "calm": calm }))
}

/// Creates the socket; replaces one left by a dead server (the caller holds the directory's lock).
pub fn bind(env: &Env, data: &Path) -> io::Result<UnixListener> {
    match env.disk.remove(&data.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (path, _directory) = socket_path(data)?;
    UnixListener::bind(path)
}

/// The path of the socket, and what keeps it valid. A long one leads over the number of the open directory.
fn socket_path(data: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let path = data.join(NAME);
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path, None));
    }
    let directory = rustix::fs::open(data, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(NAME), Some(directory)))
}

/// Sends a request to the server of `data`; `Ok(None)` when none runs.
pub async fn ask(data: &Path, method: Method, path: &str) -> Result<Option<Value>, Failure> {
    ask_with(data, method, path, None).await
}

/// As `ask`, with a body.
pub async fn ask_with(data: &Path, method: Method, path: &str, body: Option<&Value>) -> Result<Option<Value>, Failure> {
    let Some(response) = send(data, method, path, body).await? else { return Ok(None) };
    answered(data, response).await.map(Some)
}

/// Sends a request whose response is a stream of bytes.
pub async fn ask_for_stream(data: &Path, path: &str, body: &Value) -> Result<Option<Incoming>, Failure> {
    match send(data, Method::POST, path, Some(body)).await? {
        None => Ok(None),
        Some(response) if response.status().is_success() => Ok(Some(response.into_body())),
        Some(response) => Err(match answered(data, response).await {
            Ok(_) => no_answer(data, &"it is of another version"),
            Err(failure) => failure,
        }),
    }
}

fn no_answer(data: &Path, what: &dyn std::fmt::Display) -> Failure {
    let socket = data.join(NAME);
    Failure::failed(format!("the server at {} does not answer: {what}; look at its log", socket.display()))
}

async fn send(
    data: &Path,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Option<Response<Incoming>>, Failure> {
    let fail = |what: &dyn std::fmt::Display| no_answer(data, what);
    let connected = match socket_path(data) {
        Ok((path, _directory)) => UnixStream::connect(path).await,
        Err(error) => Err(error),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(fail(&error)),
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| fail(&error))?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "margay")
        .body(Full::new(body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()))))
        .map_err(|error| fail(&error))?;
    sender.send_request(request).await.map(Some).map_err(|error| fail(&error))
}

async fn answered(data: &Path, response: Response<Incoming>) -> Result<Value, Failure> {
    let fail = |what: &dyn std::fmt::Display| no_answer(data, what);
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| fail(&error))?.to_bytes();
    let value: Value = serde_json::from_slice(&body).map_err(|error| fail(&error))?;
    match (status.is_success(), value.get("error").and_then(Value::as_str)) {
        (true, _) => Ok(value),
        (false, Some(error)) => Err(Failure::failed(error.to_owned())),
        (false, None) => Err(fail(&status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_has_a_socket_too() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("long".repeat(40));
        let env = Env::real();
        env.disk.create_dir_all(&data).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = bind(&env, &data).unwrap();
            let (path, _directory) = socket_path(&data).unwrap();
            let (asked, answered) = tokio::join!(UnixStream::connect(path), socket.accept());
            assert!(asked.is_ok() && answered.is_ok());
        });
        assert!(env.disk.exists(&data.join(NAME)).unwrap());
    }
}
