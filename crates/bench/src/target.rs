//! Which server to talk to, and as whom.
//!
//! Why:      every command takes the same options, with one precedence: flag, `MARGAY_*`, `AWS_*`, what the
//!           caller found in a data directory, default.
//! Not here: opening connections (`connection`), signing (`sign`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::BenchError;
use crate::tls;

/// Where `margay serve` listens unless it was told otherwise.
pub const ENDPOINT_DEFAULT: &str = "http://127.0.0.1:9000";
/// The region that signatures name; servers of one region accept any.
pub const REGION_DEFAULT: &str = "us-east-1";

/// A key pair.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct TargetArgs {
    /// Server to talk to [default: $MARGAY_ENDPOINT, $AWS_ENDPOINT_URL or http://127.0.0.1:9000]
    #[arg(long, value_name = "URL", global = true)]
    pub endpoint: Option<String>,
    /// Access key [default: $MARGAY_ACCESS_KEY or $AWS_ACCESS_KEY_ID]
    #[arg(long, value_name = "KEY", global = true)]
    pub access_key: Option<String>,
    /// Secret key [default: $MARGAY_SECRET_KEY or $AWS_SECRET_ACCESS_KEY; rather use those: a flag shows in `ps`]
    #[arg(long, value_name = "KEY", global = true)]
    pub secret_key: Option<String>,
    /// Region named in signatures
    #[arg(long, value_name = "NAME", default_value = REGION_DEFAULT, global = true)]
    pub region: String,
    /// PEM file of the authority that signed the server's certificate, for https [default: $AWS_CA_BUNDLE]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
}

/// A server and the identity to use there; shared by all connections of a run.
#[derive(Debug)]
pub struct Target {
    /// Host and port as the `Host` header names them.
    pub authority: String,
    pub host: String,
    pub port: u16,
    pub region: String,
    pub credentials: Credentials,
    /// Present when the endpoint is https.
    pub tls: Option<tls::Connector>,
}

impl Target {
    /// The endpoint as a URL, to name in reports and hand to other programs.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The same by plain http at another address.
    pub(crate) fn at(&self, address: SocketAddr) -> Target {
        Target {
            authority: address.to_string(),
            host: address.ip().to_string(),
            port: address.port(),
            region: self.region.clone(),
            credentials: self.credentials.clone(),
            tls: None,
        }
    }
}

fn from_environment(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

impl TargetArgs {
    /// Settles options and environment; `found` are keys that the caller knows of, used when nothing else names any.
    pub fn resolve(&self, found: Option<Credentials>) -> Result<Arc<Target>, BenchError> {
        self.resolve_as(self.credentials(found)?)
    }

    /// As [`TargetArgs::resolve`] with keys that are settled.
    pub(crate) fn resolve_as(&self, credentials: Credentials) -> Result<Arc<Target>, BenchError> {
        let url = self
            .endpoint
            .clone()
            .or_else(|| from_environment(&["MARGAY_ENDPOINT", "AWS_ENDPOINT_URL"]))
            .unwrap_or_else(|| ENDPOINT_DEFAULT.to_owned());
        let (host, port, secure, authority) = parse_endpoint(&url)?;
        let tls = if secure {
            let ca = self.ca.clone().or_else(|| from_environment(&["AWS_CA_BUNDLE"]).map(PathBuf::from));
            Some(tls::Connector::new(&host, ca.as_deref())?)
        } else {
            None
        };
        Ok(Arc::new(Target { authority, host, port, region: self.region.clone(), credentials, tls }))
    }

    fn credentials(&self, found: Option<Credentials>) -> Result<Credentials, BenchError> {
        let access_key =
            self.access_key.clone().or_else(|| from_environment(&["MARGAY_ACCESS_KEY", "AWS_ACCESS_KEY_ID"]));
        let secret_key =
            self.secret_key.clone().or_else(|| from_environment(&["MARGAY_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"]));
        match (access_key, secret_key, found) {
            (Some(access_key), Some(secret_key), _) => Ok(Credentials { access_key, secret_key }),
            (None, None, Some(found)) => Ok(found),
            (Some(_), None, _) => Err(BenchError::Usage("an access key without a secret key; set both".to_owned())),
            (None, Some(_), _) => Err(BenchError::Usage("a secret key without an access key; set both".to_owned())),
            (None, None, None) => Err(BenchError::Usage(
                "no keys: set MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY (or AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY), or give --access-key and --secret-key"
                    .to_owned(),
            )),
        }
    }
}

/// Splits `http(s)://host[:port][/]` into host, port, whether it is https, and the authority to send.
fn parse_endpoint(url: &str) -> Result<(String, u16, bool, String), BenchError> {
    let wrong = |why: &str| BenchError::Usage(format!("--endpoint {url}: {why}; give it as http://HOST:PORT"));
    let uri: http::Uri = url.parse().map_err(|_| wrong("not a URL"))?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("neither http:// nor https://")),
    };
    if uri.path().len() > 1 || uri.query().is_some() {
        return Err(wrong("a path has no place in an endpoint"));
    }
    let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("no user name goes into an endpoint"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
    Ok((host, port, secure, authority.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_split_or_refused() {
        assert_eq!(
            parse_endpoint("http://127.0.0.1:9000").unwrap(),
            ("127.0.0.1".to_owned(), 9000, false, "127.0.0.1:9000".to_owned())
        );
        assert_eq!(
            parse_endpoint("https://s3.example/").unwrap(),
            ("s3.example".to_owned(), 443, true, "s3.example".to_owned())
        );
        assert_eq!(parse_endpoint("http://[::1]:9000").unwrap().0, "::1");
        for wrong in ["127.0.0.1:9000", "ftp://a", "http://a/b", "http://u@a", "http://", ""] {
            assert!(parse_endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn half_a_key_pair_is_refused() {
        let args = TargetArgs { access_key: Some("a".to_owned()), ..TargetArgs::default() };
        let found = Some(Credentials { access_key: "x".to_owned(), secret_key: "y".to_owned() });
        if std::env::var_os("MARGAY_SECRET_KEY").is_none() && std::env::var_os("AWS_SECRET_ACCESS_KEY").is_none() {
            assert!(matches!(args.credentials(found), Err(BenchError::Usage(_))));
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        let keys = Credentials { access_key: "visible".to_owned(), secret_key: "hidden".to_owned() };
        let shown = format!("{keys:?}");
        assert!(shown.contains("visible") && !shown.contains("hidden"));
    }
}
