//! One request to a server that gives keys.
//!
//! Why:        these servers are asked once an hour, so each request has a connection of its own.
//! Invariants: H1 a request ends within its time, whatever the server does.
//!             H2 redirections are not followed: a token must not be sent elsewhere.
//! Not here:   signed requests (`client`).

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Missing;
use crate::tls;

/// Bytes of an answer that are read at most.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// A request.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
    /// Authorities for https; those of the system unless named.
    pub(super) ca: Option<&'a Path>,
    pub(super) time_max: Duration,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Reply {
    /// The body of a success; the error is the status.
    pub(super) fn success(self) -> Result<Bytes, Missing> {
        let is_late = self.is_late();
        if self.status == 200 {
            Ok(self.body)
        } else {
            Err(Missing { why: format!("it answered {}", self.status), is_late })
        }
    }

    /// It may answer otherwise the next time.
    pub(super) fn is_late(&self) -> bool {
        self.status == 429 || self.status >= 500
    }
}

impl Question<'_> {
    /// A GET.
    pub(super) fn get(url: String, time_max: Duration) -> Self {
        Question { method: Method::GET, url, headers: Vec::new(), body: String::new(), ca: None, time_max }
    }

    /// The error says why there is no answer.
    pub(super) async fn ask(self) -> Result<Reply, Missing> {
        let time_max = self.time_max;
        let late = |_| Missing::late(format!("no answer within {} s", time_max.as_secs()));
        let asked = tokio::time::timeout(time_max, self.ask_for_ever());
        asked.await.map_err(late)?.map_err(Missing::late)
    }

    async fn ask_for_ever(self) -> Result<Reply, String> {
        let uri: Uri = self.url.parse().map_err(|_| format!("{} is no URL", self.url))?;
        let authority = uri.authority().ok_or_else(|| format!("{} names no host", self.url))?;
        let host = authority.host().trim_matches(['[', ']']);
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("{} is neither http:// nor https://", self.url)),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(self.method).uri(path).header(HOST, authority.as_str());
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(self.body))).map_err(|error| error.to_string())?;
        let port = authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        if !is_secure {
            return send(stream, request).await;
        }
        let connector = tls::Connector::new(host, self.ca).map_err(|error| error.to_string())?;
        send(connector.connect(stream).await.map_err(|error| error.to_string())?, request).await
    }
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Reply, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with the connection; its error reaches the request.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(Reply { status, body: body.map_err(|error| error.to_string())?.to_bytes() })
}
