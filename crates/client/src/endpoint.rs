//! An HTTP endpoint named by a setting, and connections to it.
//!
//! Why:        delivery of events and of spans, fetching of an identity provider's keys and `margay health` share this code.
//! Invariants: E1 https requires a certificate signed by the configured authorities.
//!             E2 a password is never shown.
//! Not here:   the requests and their timeouts (`notify`, `provider_keys`).

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::ClientError;
use crate::tls::{Connector, told};

/// An endpoint from the settings.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
    authorization: Option<HeaderValue>,
    tls: Option<Connector>,
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

    /// Whether it uses https and so needs certificate authorities.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Whether a user and a password are sent.
    pub fn has_password(&self) -> bool {
        self.authorization.is_some()
    }

    /// Trusts certificates signed by these authorities (PEM).
    pub fn trust(&mut self, authorities: &[u8]) -> Result<(), String> {
        self.tls = Some(Connector::of_pem(&self.host, authorities).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Trusts certificates signed by the authorities of a PEM file, or by the operating system's.
    pub fn trust_authorities(&mut self, ca: Option<&Path>) -> Result<(), ClientError> {
        self.tls = Some(Connector::new(&self.host, ca)?);
        Ok(())
    }

    /// Another URL of the same origin (scheme, host and port), with its authorities; other origins are refused.
    pub fn sibling(&self, url: &str) -> Result<Endpoint, String> {
        let other = Endpoint::parse(url)?;
        let same_host = other.host.eq_ignore_ascii_case(&self.host);
        if !same_host || (other.port, other.secure) != (self.port, self.secure) || other.authorization.is_some() {
            return Err(format!("{other:?} has another origin than {self:?}"));
        }
        Ok(Endpoint { path: other.path, ..self.clone() })
    }

    /// A request to it; the body is JSON.
    pub fn request(&self, method: Method, body: Vec<u8>) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(&self.path)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(USER_AGENT, concat!("margay/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.body(Full::new(body.into())).map_err(|error| error.to_string())
    }

    /// A new connection.
    pub async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        // Without Nagle's algorithm; a failure only makes small messages slower.
        let _ = stream.set_nodelay(true);
        if !self.secure {
            return shake_hands(stream).await;
        }
        let connector = self.tls.as_ref().ok_or("https needs a list of authorities")?;
        let secured = connector.connect(stream).await.map_err(|error| told(error).to_string())?;
        shake_hands(secured).await
    }
}

/// `Authorization: Basic` for `USER:PASSWORD`.
fn basic(user: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(user)))
        .map_err(|_| "its user and password cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

async fn shake_hands<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}
