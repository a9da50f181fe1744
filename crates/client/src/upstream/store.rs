//! Which program answers as the store, as far as its answers and its address tell it.
//!
//! Why:        people want to know what they have before them, and what is known of it.
//! Invariants: T1 a name decides nothing that can be found out by asking. It decides whether more is asked for, never whether less.
//! Not here:   what a store honours (margay-upstream's probe).

use http::HeaderMap;
use http::header::SERVER;

/// Longest text of a `Server` header that is kept, in bytes.
const SERVER_BYTES_MAX: usize = 80;
/// Where an S3 store says which request it answers.
const REQUEST_ID: &str = "x-amz-request-id";
/// Garage takes signatures for its own region alone, and this one unless it is told another.
const GARAGE_REGION: &str = "garage";

/// What a store says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreName {
    /// `None`: its answers do not tell.
    pub name: Option<&'static str>,
    /// Its `Server` header.
    pub server: Option<String>,
}

/// Beginnings of `Server` headers.
const SERVERS: [(&str, &str); 8] = [
    ("AmazonS3", "AWS S3"),
    ("MinIO", "MinIO"),
    ("Garage", "Garage"),
    ("Ceph Object Gateway", "Ceph"),
    ("Tigris", "Tigris"),
    ("SeaweedFS", "SeaweedFS"),
    ("LeoFS", "LeoFS"),
    ("margay", "margay"),
];

/// Ends of host names.
const HOSTS: [(&str, &str); 5] = [
    (".amazonaws.com", "AWS S3"),
    (".amazonaws.com.cn", "AWS S3"),
    (".r2.cloudflarestorage.com", "Cloudflare R2"),
    (".tigris.dev", "Tigris"),
    ("t3.storage.dev", "Tigris"),
];

impl StoreName {
    /// Whether it lists directories in which there is nothing: MinIO does while an object comes or goes, and for good where a write
    /// was broken off.
    pub fn lists_empty_directories(&self) -> bool {
        self.name == Some("MinIO")
    }

    /// By an answer with success of this host, to a request that is signed for this region.
    pub(super) fn told(headers: &HeaderMap, (host, region): (&str, &str)) -> StoreName {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let server = text(SERVER.as_str()).filter(|server| !server.is_empty());
        // The host counts first: R2 calls itself as the network before it does, and that is before other stores too.
        let by_host = found(&HOSTS, |end| host.ends_with(end));
        let by_server = || server.and_then(|server| found(&SERVERS, |begin| server.starts_with(begin)));
        // Ceph had no header of its own for long, and a proxy may replace it.
        let by_id = || text(REQUEST_ID).filter(|id| id.starts_with("tx000000")).map(|_| "Ceph");
        let by_region = || (region == GARAGE_REGION && server.is_none()).then_some("Garage");
        let name = by_host.or_else(by_server).or_else(by_id).or_else(by_region);
        StoreName { name, server: server.map(shortened) }
    }
}

fn found(table: &[(&str, &'static str)], is_it: impl Fn(&str) -> bool) -> Option<&'static str> {
    table.iter().find(|(mark, _)| is_it(mark)).map(|(_, name)| *name)
}

/// A header's text is ASCII.
fn shortened(server: &str) -> String {
    server.chars().take(SERVER_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn told(host: &str, region: &str, headers: &[(&'static str, &'static str)]) -> StoreName {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        StoreName::told(&headers.iter().map(pair).collect(), (host, region))
    }

    #[test]
    fn stores_are_known_by_what_they_answer() {
        for (host, region, headers, name) in [
            ("h", "us-east-1", &[("server", "MinIO")][..], Some("MinIO")),
            ("h", "us-east-1", &[("server", "margay")], Some("margay")),
            ("h", "us-east-1", &[("server", "SeaweedFS 3.80")], Some("SeaweedFS")),
            ("h", "us-east-1", &[("server", "Ceph Object Gateway (squid)")], Some("Ceph")),
            (
                "h",
                "us-east-1",
                &[("server", "nginx"), ("x-amz-request-id", "tx000000000a1-0065-10-default")],
                Some("Ceph"),
            ),
            ("h", "us-east-1", &[("server", "nginx"), ("x-amz-request-id", "17BC")], None),
            ("s3.eu-west-1.amazonaws.com", "eu-west-1", &[("server", "AmazonS3")], Some("AWS S3")),
            ("a.r2.cloudflarestorage.com", "auto", &[("server", "cloudflare")], Some("Cloudflare R2")),
            ("h", "auto", &[("server", "cloudflare")], None),
            ("t3.storage.dev", "auto", &[("server", "Tigris OS")], Some("Tigris")),
            ("h", "garage", &[], Some("Garage")),
            ("h", "garage", &[("server", "nginx")], None),
            ("h", "us-east-1", &[], None),
        ] {
            assert_eq!(told(host, region, headers).name, name, "{host} {region} {headers:?}");
        }
        assert_eq!(told("h", "r", &[("server", "nginx")]).server.as_deref(), Some("nginx"));
    }
}
