//! The host that a request names.
//!
//! Why:        a request can name its host three times: in an absolute target, in `:authority` and in `Host`. In
//!             virtual-host style the host contains the bucket. If signing used one and routing another, a signature
//!             for one bucket would open another.
//! Invariants: H1 all of them name the same host, ignoring case and the scheme's default port.
//!             H2 the host is determined once, before anything else; signature, routing, websites, CORS, access log and
//!                links use it.
//! Not here:   which bucket it names (`route::target`).

use http::header::HOST;
use http::request::Parts;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As the client wrote it, and so as it signed it.
    written: String,
    scheme: &'static str,
}

/// Why a request has no valid host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("The request must name its host in one Host header, and no other")]
    Absent,
    #[error("The request has more than one Host header")]
    Several,
    #[error("The host of the request is malformed")]
    Malformed,
    #[error("The host of the request's target and its Host header are not the same")]
    Contradicted,
    #[error("The target of the request has a scheme other than http and https")]
    Scheme,
}

impl Host {
    /// `secure` is the connection's scheme, used when the request does not name one.
    pub fn of(parts: &Parts, secure: bool) -> Result<Host, HostError> {
        let scheme = match parts.uri.scheme_str() {
            None => ["http", "https"][usize::from(secure)],
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => "http",
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => "https",
            Some(_) => return Err(HostError::Scheme),
        };
        let mut lines = parts.headers.get_all(HOST).iter();
        let line = lines.next();
        if lines.next().is_some() {
            return Err(HostError::Several);
        }
        let line = line.map(|value| value.to_str().map(str::trim).map_err(|_| HostError::Malformed)).transpose()?;
        let of_target = parts.uri.authority().map(|authority| authority.as_str());
        let written = match (line, of_target) {
            (Some(line), Some(of_target)) if !same(line, of_target, scheme)? => return Err(HostError::Contradicted),
            (Some(line), _) => line,
            // Only HTTP/2 may name the host there alone.
            (None, Some(of_target)) if parts.version > http::Version::HTTP_11 => of_target,
            (None, _) => return Err(HostError::Absent),
        };
        split(written)?;
        Ok(Host { written: written.to_owned(), scheme })
    }

    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// Scheme and host as the client wrote them, for links in responses.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.written)
    }
}

/// Whether both name the same host and port.
fn same(left: &str, right: &str, scheme: &str) -> Result<bool, HostError> {
    let own_port = if scheme == "https" { "443" } else { "80" };
    let ((left, left_port), (right, right_port)) = (split(left)?, split(right)?);
    let port = |port: Option<&'_ str>| port.filter(|port| !port.is_empty() && *port != own_port).map(str::to_owned);
    Ok(left.eq_ignore_ascii_case(right) && port(left_port) == port(right_port))
}

/// A host's name and port. The name may have only the characters of DNS names and addresses: no user, no list, no
/// escapes.
fn split(host: &str) -> Result<(&str, Option<&str>), HostError> {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let fits = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            if address.is_empty() || !address.bytes().all(fits) {
                return Err(HostError::Malformed);
            }
            match rest {
                "" => (address, None),
                rest => (address, Some(rest.strip_prefix(':').ok_or(HostError::Malformed)?)),
            }
        }
        None => {
            let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
            match (name, name.bytes().all(fits)) {
                ("", _) => return Err(HostError::Absent),
                (_, false) => return Err(HostError::Malformed),
                (name, true) => (name, port),
            }
        }
    };
    match port.unwrap_or_default().bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok((name, port)),
        false => Err(HostError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Version};

    use super::*;

    fn host(target: &str, lines: &[&str], version: Version) -> Result<String, HostError> {
        let mut request = Request::builder().uri(target).version(version);
        for line in lines {
            request = request.header(HOST, *line);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Host::of(&parts, false).map(|host| host.written)
    }

    #[test]
    fn every_name_must_be_the_same() {
        let ok = |target, line: &str| assert_eq!(host(target, &[line], Version::HTTP_11).as_deref(), Ok(line));
        ok("/a", "b1.s3.test");
        ok("/a", "b1.s3.test:9000");
        ok("/a", "[::1]:9000");
        ok("http://b1.s3.test/a", "B1.S3.test");
        ok("http://b1.s3.test:80/a", "b1.s3.test");
        ok("https://b1.s3.test/a", "b1.s3.test:443");
        ok("http://b1.s3.test:9000/a", "b1.s3.test:9000");
        let refused =
            |target, line, why| assert_eq!(host(target, &[line], Version::HTTP_11), Err(why), "{target} {line}");
        refused("http://b2.s3.test/a", "b1.s3.test", HostError::Contradicted);
        refused("http://b1.s3.test:81/a", "b1.s3.test", HostError::Contradicted);
        refused("http://b1.s3.test:443/a", "b1.s3.test", HostError::Contradicted);
        refused("http://b1.s3.test./a", "b1.s3.test", HostError::Contradicted);
        refused("ftp://b1.s3.test/a", "b1.s3.test", HostError::Scheme);
        refused("http://me@b1.s3.test/a", "b1.s3.test", HostError::Malformed);
        for line in ["a, b", "a b", "me@a", "a/b", "a:b", "a:1:2", "%61", "[::1", "[x]", "ä", "a\\b"] {
            refused("/a", line, HostError::Malformed);
        }
        for line in ["", ":9000"] {
            refused("/a", line, HostError::Absent);
        }
    }

    #[test]
    fn there_is_one_line_and_http2_may_do_without() {
        for (target, lines, outcome) in [
            ("/a", &[][..], Err(HostError::Absent)),
            ("/a", &["x", "x"], Err(HostError::Several)),
            ("http://x/a", &["x", "y"], Err(HostError::Several)),
        ] {
            assert_eq!(host(target, lines, Version::HTTP_2), outcome);
            assert_eq!(host(target, lines, Version::HTTP_11), outcome);
        }
        assert_eq!(host("http://x/a", &[], Version::HTTP_11), Err(HostError::Absent));
        assert_eq!(host("/a", &[], Version::HTTP_10), Err(HostError::Absent));
        assert_eq!(host("http://x/a", &[], Version::HTTP_2).as_deref(), Ok("x"));
        assert_eq!(host("http://x/a", &["y"], Version::HTTP_2), Err(HostError::Contradicted));
    }
}
