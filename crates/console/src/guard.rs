//! Tells requests of the own page from those that other sites make a browser send.
//!
//! Why:        a cookie travels with requests that any page causes. A header of an own name cannot be sent across origins
//!             without permission, which is never given here.
//! Invariants: G1 a request of the page has the header `HEADER`, and names no origin other than the host that it asks.
//!             G2 the cookie is HttpOnly, SameSite=Strict and sent to the console's path only.
//! Not here:   sessions (`sessions`), what may be shown without the header (`raw`).

use http::header::{COOKIE as COOKIE_HEADER, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Uri};

use crate::PATH;

/// The header that every request of the page has.
pub const HEADER: HeaderName = HeaderName::from_static("x-margay-console");
/// The cookie with the id of the session; behind it, the port: cookies do not know ports, and two servers of one host would sign each
/// other out.
pub const COOKIE: &str = "margay-console";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is not believed to come from the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The own header is missing.
    Header,
    /// It names another origin, or an unclear one.
    Origin,
    /// The browser says that another site caused it.
    Site,
}

impl Refusal {
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Header => "the request is not one of the console's page: its header is missing",
            Refusal::Origin => "the request comes from a page of another origin",
            Refusal::Site => "the request was caused by another site",
        }
    }
}

/// Accepts requests of the own page: with its header, and from the same origin.
pub fn own_request(parts: &Parts) -> Result<(), Refusal> {
    if !parts.headers.contains_key(HEADER) {
        return Err(Refusal::Header);
    }
    same_site(&parts.headers, false)?;
    same_origin(parts)
}

/// Accepts what the browser fetches for the own page without its header (pictures, downloads). Browsers tell the site only over TLS
/// and to this machine; elsewhere Cross-Origin-Resource-Policy of the answer protects it.
pub(crate) fn own_resource(parts: &Parts) -> Result<(), Refusal> {
    same_site(&parts.headers, true)?;
    same_origin(parts)
}

fn same_site(headers: &HeaderMap, typed: bool) -> Result<(), Refusal> {
    match headers.get(FETCH_SITE).map(|value| value.as_bytes()) {
        None | Some(b"same-origin") => Ok(()),
        Some(b"none") if typed => Ok(()),
        Some(_) => Err(Refusal::Site),
    }
}

/// An origin, if one is named, is that of the host that is asked. Its scheme is that of the browser's connection, which a proxy may
/// have ended, so only host and port count.
fn same_origin(parts: &Parts) -> Result<(), Refusal> {
    let mut origins = parts.headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let named = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let named = named.as_ref().and_then(Uri::authority).map(|authority| authority.as_str());
    let asked = host(&parts.headers, &parts.uri);
    match (named, asked, origins.next()) {
        (Some(named), Some(asked), None) if named.eq_ignore_ascii_case(asked) => Ok(()),
        _ => Err(Refusal::Origin),
    }
}

/// The host that a request asks, with its port.
pub(crate) fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let line = headers.get(HOST).and_then(|host| host.to_str().ok());
    line.or_else(|| uri.authority().map(|authority| authority.as_str()))
}

/// Whether the browser's connection is encrypted, here or at a proxy.
pub(crate) fn is_secure(parts: &Parts, tls: bool) -> bool {
    tls || parts.headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// The name of the cookie at this host, as the browser names it.
pub fn cookie_name(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{COOKIE}-{port}")
        }
        _ => COOKIE.to_owned(),
    }
}

/// The session's id in the cookies of a request; none if there are several.
pub fn session_id<'h>(headers: &'h HeaderMap, uri: &Uri) -> Option<&'h str> {
    let own = cookie_name(host(headers, uri).unwrap_or_default());
    let lines = headers.get_all(COOKIE_HEADER).iter().filter_map(|line| line.to_str().ok());
    let mut ids = lines.flat_map(|line| line.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == own).then_some(value)
    });
    let id = ids.next()?;
    ids.next().is_none().then_some(id)
}

/// The line that gives the browser its id; an empty one takes it away.
pub fn cookie(host: &str, id: &str, is_secure: bool) -> String {
    let name = cookie_name(host);
    let secure = if is_secure { "; Secure" } else { "" };
    let age = if id.is_empty() { "; Max-Age=0" } else { "" };
    format!("{name}={id}; Path={PATH}/; HttpOnly; SameSite=Strict{secure}{age}")
}
