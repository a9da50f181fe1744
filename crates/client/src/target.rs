//! A server and the keys for it.
//!
//! Not here: opening connections (`connection`), signing (`sign`), where keys come from (`credentials`), options of commands.

use std::net::{IpAddr, SocketAddr};

use crate::REGION_DEFAULT;
use crate::credentials::KeyChain;
use crate::error::ClientError;
use crate::tls;

/// Where a request names its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// First in the path, as every store understands it.
    #[default]
    Path,
    /// First in the host, as AWS wants it: such a target is for one bucket.
    Virtual,
}

impl Addressing {
    /// `way` is `path`, `virtual` or `auto`: that is virtual at AWS, if the bucket's name can be part of a host there.
    pub fn choose(way: &str, endpoint: &str, bucket: &str) -> Result<Addressing, ClientError> {
        let (host, _, secure, _) = parse_endpoint(endpoint)?;
        let is_label = |name: &str| {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !name.is_empty() && name.bytes().all(is_plain) && !name.starts_with('-') && !name.ends_with('-')
        };
        // A certificate covers one name below the store's, so no bucket with dots.
        let fits = if secure { is_label(bucket) } else { bucket.split('.').all(is_label) };
        let is_aws = || host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
        let is_address = || host.parse::<IpAddr>().is_ok();
        match way {
            "path" => Ok(Addressing::Path),
            "auto" => Ok(if fits && is_aws() { Addressing::Virtual } else { Addressing::Path }),
            "virtual" if fits && !is_address() => Ok(Addressing::Virtual),
            "virtual" => Err(ClientError::Usage(format!(
                "--addressing virtual: the bucket {bucket} cannot be named in a host name below {host}; use path"
            ))),
            _ => Err(ClientError::Usage(format!("--addressing {way}: write path, virtual or auto"))),
        }
    }
}

/// A server and the credentials for it; shared by all connections of a run.
#[derive(Debug)]
pub struct Target {
    /// Host and port as the `Host` header names them.
    pub authority: String,
    pub host: String,
    pub port: u16,
    pub region: String,
    pub credentials: KeyChain,
    /// Present when the endpoint is https.
    pub tls: Option<tls::Connector>,
    pub addressing: Addressing,
}

impl Target {
    /// The endpoint as a URL, for reports and other programs.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Whether nobody between here and the server can change what is sent: TLS, or no network.
    pub fn is_protected(&self) -> bool {
        let is_here =
            || self.host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.tls.is_some() || self.host == "localhost" || is_here()
    }

    /// A server over plain http.
    pub fn plain(address: SocketAddr, credentials: KeyChain) -> Target {
        Target {
            authority: address.to_string(),
            host: address.ip().to_string(),
            port: address.port(),
            region: REGION_DEFAULT.to_owned(),
            credentials,
            tls: None,
            addressing: Addressing::Path,
        }
    }

    /// The same target over plain http at another address.
    pub fn at(&self, address: SocketAddr) -> Target {
        Target { region: self.region.clone(), ..Target::plain(address, self.credentials.clone()) }
    }
}

/// Splits `http(s)://host[:port][/]` into host, port, whether it is https, and the authority to send.
pub fn parse_endpoint(url: &str) -> Result<(String, u16, bool, String), ClientError> {
    let wrong = |why: &str| ClientError::Usage(format!("--endpoint {url}: {why}; give it as http://HOST:PORT"));
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

/// An endpoint in its only form: two that name the same server are equal.
pub fn plain_endpoint(url: &str) -> Result<String, ClientError> {
    let (host, port, secure, _) = parse_endpoint(url)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host }.to_ascii_lowercase();
    let (scheme, usual) = if secure { ("https", 443) } else { ("http", 80) };
    let port = if port == usual { String::new() } else { format!(":{port}") };
    Ok(format!("{scheme}://{host}{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;

    #[test]
    fn a_bucket_is_in_the_host_at_aws_and_where_it_is_wished() {
        let choose = |way: &str, endpoint: &str, bucket: &str| Addressing::choose(way, endpoint, bucket).ok();
        let (path, host) = (Some(Addressing::Path), Some(Addressing::Virtual));
        let aws = "https://s3.eu-north-1.amazonaws.com";
        assert_eq!((choose("auto", aws, "photos"), choose("auto", "https://s3.example", "photos")), (host, path));
        assert_eq!((choose("path", aws, "photos"), choose("virtual", "https://s3.example", "photos")), (path, host));
        // No certificate has such a name, and no host.
        assert_eq!((choose("auto", aws, "my.photos"), choose("auto", aws, "Photos")), (path, path));
        assert_eq!(choose("auto", "https://amazonaws.com.example", "photos"), path);
        for (way, endpoint, bucket) in
            [("virtual", aws, "my.photos"), ("virtual", "http://127.0.0.1:9000", "photos"), ("host", aws, "photos")]
        {
            assert_eq!(choose(way, endpoint, bucket), None, "{way} {endpoint} {bucket}");
        }
        assert_eq!(choose("virtual", "http://localhost:9000", "my.photos"), host);
    }

    #[test]
    fn tls_and_loopback_protect_what_is_sent() {
        let protected = |host: &str| {
            let pair = Credentials { access_key: "a".to_owned(), secret_key: "s".to_owned() };
            let plain = Target::plain(SocketAddr::from(([10, 0, 0, 1], 9000)), pair.into());
            Target { host: host.to_owned(), ..plain }.is_protected()
        };
        assert_eq!(["127.0.0.1", "localhost", "[::1]", "::1"].map(protected), [true; 4]);
        assert_eq!(["10.0.0.1", "localhost.example", "store", ""].map(protected), [false; 4]);
    }

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
        for (written, plain) in [
            ("http://H/", "http://h"),
            ("http://h:80", "http://h"),
            ("HTTPS://h:443/", "https://h"),
            ("http://h:443", "http://h:443"),
            ("http://[::1]:9000/", "http://[::1]:9000"),
        ] {
            assert_eq!(plain_endpoint(written).unwrap(), plain);
        }
        for wrong in ["127.0.0.1:9000", "ftp://a", "http://a/b", "http://u@a", "http://", ""] {
            assert!(parse_endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
