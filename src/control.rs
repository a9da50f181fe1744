//! The control socket: commands of this machine to the running server, over HTTP on a Unix socket.
//!
//! Why:        `margay status` and other commands must work while the server holds the directory. File permissions
//!             control access, so no password is sent.
//! Invariants: R1 the socket is readable and writable by its owner only.
//! Not here:   what the commands do (`administration`), the commands to a far mount (`far_mount`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use margay_env::Env;
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};

use crate::admin;
use crate::administration::{self, Administered, BODY_BYTES_MAX};
use crate::exit::Failure;
use crate::server::Server;

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
        let process = Arc::clone(&self.0) as Arc<dyn Administered>;
        Box::pin(async move {
            match administration::answer_local(&process, request).await {
                Ok(response) => response,
                Err(request) => admin::page(&server, request.method(), request.uri().path()).await,
            }
        })
    }
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
        (false, Some(error)) if status == StatusCode::NOT_IMPLEMENTED => Err(Failure::refused(error.to_owned())),
        (false, Some(error)) if status == StatusCode::BAD_REQUEST => Err(Failure::usage(error.to_owned())),
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
