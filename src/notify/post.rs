//! One HTTP connection to a target, kept while it works.
//!
//! Invariants: P1 a message has left well only when the target answered 2xx; everything else is an error in one line.
//!             P2 connecting and answering are bounded in time, an answer's body in size.
//! Not here:   which message is next, trying again (`notify`).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// From the first byte of a message to the end of its answer, a new connection included.
const POST_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest body of an answer, in bytes; it is read so that the connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where a target listens.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
    authorization: Option<HeaderValue>,
    tls: Option<Arc<ClientConfig>>,
    secure: bool,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the authorization.
        write!(formatter, "{}:{}{}", self.host, self.port, self.path)
    }
}

impl Endpoint {
    /// Reads `http[s]://[USER:PASSWORD@]HOST[:PORT][/PATH]`.
    pub fn parse(url: &str) -> Result<Endpoint, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it begins with http:// or https://".to_owned()),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let authorization = match authority.as_str().rsplit_once('@') {
            None => None,
            Some((user, _)) => Some(basic(user)?),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Endpoint { host, port, path, authorization, tls: None, secure })
    }

    /// Whether it needs the list of authorities.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Believes certificates that these authorities (PEM) signed.
    pub fn trust(&mut self, authorities: &[u8]) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(authorities) {
            // A bundle may hold an authority that this library does not understand; the others still count.
            let _ = roots.add(certificate.map_err(|error| error.to_string())?);
        }
        if roots.is_empty() {
            return Err("no usable certificate inside".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        self.tls = Some(Arc::new(config));
        Ok(())
    }

    fn request(&self, message: Vec<u8>) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(USER_AGENT, concat!("margay/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(message.into())).map_err(|error| error.to_string())
    }
}

/// `Authorization: Basic` for `USER:PASSWORD`.
fn basic(user: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(user)))
        .map_err(|_| "its user and password cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// A connection, opened when it is first needed and again after every failure.
#[derive(Debug)]
pub(super) struct Lane {
    endpoint: Endpoint,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Lane {
    pub(super) fn new(endpoint: Endpoint) -> Lane {
        Lane { endpoint, open: None }
    }

    /// Delivers one message.
    pub(super) async fn post(&mut self, message: Vec<u8>) -> Result<(), String> {
        let exchanged = tokio::time::timeout(POST_TIME_MAX, self.exchange(message)).await;
        let outcome = exchanged.unwrap_or_else(|_| Err(format!("no answer within {} s", POST_TIME_MAX.as_secs())));
        if outcome.is_err() {
            self.open = None;
        }
        outcome.map_err(|error| format!("{:?}: {error}", self.endpoint))
    }

    async fn exchange(&mut self, message: Vec<u8>) -> Result<(), String> {
        // A kept connection may have been closed since: that is no failure of the target.
        if let Some(sender) = self.open.take().filter(SendRequest::is_ready)
            && let Ok(()) = self.send(sender, message.clone()).await
        {
            return Ok(());
        }
        let sender = connect(&self.endpoint).await?;
        self.send(sender, message).await
    }

    async fn send(&mut self, mut sender: SendRequest<Full<Bytes>>, message: Vec<u8>) -> Result<(), String> {
        let request = self.endpoint.request(message)?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        if !status.is_success() {
            return Err(format!("answered {status}"));
        }
        // The message is delivered whatever the body was; only the connection is of no use then.
        self.open = body.is_ok().then_some(sender);
        Ok(())
    }
}

async fn connect(endpoint: &Endpoint) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream =
        TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(|error| error.to_string())?;
    // Small messages go at once; without it they are only slower.
    let _ = stream.set_nodelay(true);
    if !endpoint.secure {
        return shake_hands(stream).await;
    }
    let config = endpoint.tls.clone().ok_or("https needs notify_ca")?;
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| error.to_string())?;
    let secured = TlsConnector::from(config).connect(name, stream).await.map_err(|error| error.to_string())?;
    shake_hands(secured).await
}

async fn shake_hands<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}
