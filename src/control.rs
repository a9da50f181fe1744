//! The control socket: commands of this machine to the running server, over HTTP on a Unix socket.
//!
//! Why:        `margay status` and its like must work while the server holds the directory; file rights say who
//!             may, so no password travels.
//! Invariants: R1 the socket is readable and writable by its owner only.
//! Not here:   what the commands do (`maintenance`).

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use margay_env::Env;
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};

use crate::admin;
use crate::answer;
use crate::exit::Failure;
use crate::listener::body::RequestBody;
use crate::listener::{AnswerFuture, Handler};
use crate::maintenance::Work;
use crate::server::Server;

/// Name of the socket in the data directory.
pub const NAME: &str = "control";

/// Answers the commands; besides, what the admin port answers.
#[derive(Debug)]
pub struct Control(pub Arc<Server>);

impl Handler for Control {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            let path = request.uri().path();
            if (request.method(), path) == (&Method::GET, "/status") {
                return answer::json(StatusCode::OK, &server.status());
            }
            let named = Work::ALL.into_iter().find(|work| path.strip_prefix('/') == Some(work.name()));
            let (Some(work), &Method::POST) = (named, request.method()) else {
                return admin::page(&server, request.method(), path);
            };
            match work.run(Arc::clone(&server.storage), Some(server.scrub_rate_max)).await {
                Ok(value) => answer::json(StatusCode::OK, &value),
                Err(error) => answer::json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": error })),
            }
        })
    }
}

/// Makes the socket; one that a dead server left behind is replaced (the caller holds the directory's lock).
pub fn bind(env: &Env, data: &Path) -> io::Result<UnixListener> {
    let path = data.join(NAME);
    match env.disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Asks the server that holds `data`; `Ok(None)` when there is none.
pub async fn ask(data: &Path, method: Method, path: &str) -> Result<Option<Value>, Failure> {
    let socket = data.join(NAME);
    let fail = |what: &dyn std::fmt::Display| {
        Failure::failed(format!("the server at {} does not answer: {what}; look at its log", socket.display()))
    };
    let stream = match UnixStream::connect(&socket).await {
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
        .body(Empty::<Bytes>::new())
        .map_err(|error| fail(&error))?;
    let response = sender.send_request(request).await.map_err(|error| fail(&error))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| fail(&error))?.to_bytes();
    let value: Value = serde_json::from_slice(&body).map_err(|error| fail(&error))?;
    match (status.is_success(), value.get("error").and_then(Value::as_str)) {
        (true, _) => Ok(Some(value)),
        (false, Some(error)) => Err(Failure::failed(error.to_owned())),
        (false, None) => Err(fail(&status)),
    }
}
