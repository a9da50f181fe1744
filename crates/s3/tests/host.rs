//! A signature for one bucket opens no other, however a request names its host.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use margay_s3::auth::PayloadForm;
use margay_s3::auth::sign::Target;
use server::{Answer, Server};
use tokio::net::TcpStream;

/// A server with two buckets; both hold the key `k`, the second one what nobody may see.
async fn start() -> Server {
    let server = Server::start().await;
    for (bucket, body) in [("one", "open"), ("two", "secret")] {
        server.volume.create_bucket(bucket).await.unwrap();
        server.put(&format!("/{bucket}/k"), body).await.expect(200);
        // What path style would name in the wrong bucket.
        server.put(&format!("/{bucket}/one/k"), body).await.expect(200);
    }
    server
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Signature {
    Header4,
    Url4,
    Header2,
    Url2,
}

const SIGNATURES: [Signature; 4] = [Signature::Header4, Signature::Url4, Signature::Header2, Signature::Url2];

/// A request that is signed for the bucket `one`: its host, its path with the query, and its other headers.
struct Signed {
    method: Method,
    host: &'static str,
    target: String,
    headers: HeaderMap,
}

fn signed(server: &Server, signature: Signature, method: &Method, virtual_host: bool) -> Signed {
    let (host, path, host_bucket) = match virtual_host {
        true => ("one.s3.test", "/k", Some("one")),
        false => ("s3.test", "/one/k", None),
    };
    let mut headers = HeaderMap::new();
    headers.insert("host", host.parse().unwrap());
    let (now, target) = (server.env.clock.now(), Target { method, path, query: "" });
    let query = match signature {
        Signature::Header4 => {
            server.signer.sign(target, &mut headers, PayloadForm::Unsigned, now).unwrap();
            String::new()
        }
        Signature::Header2 => {
            server.signer_v2.sign(target, host_bucket, &mut headers, now).unwrap();
            String::new()
        }
        Signature::Url4 => server.signer.presign(target, &headers, 600, now).unwrap(),
        Signature::Url2 => server.signer_v2.presign(target, host_bucket, &headers, now.seconds() + 600).unwrap(),
    };
    headers.remove("host");
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Signed { method: method.clone(), host, target, headers }
}

impl Signed {
    fn body(&self) -> &'static str {
        if self.method == Method::PUT { "changed" } else { "" }
    }

    /// As HTTP/1.1, with this before the path and these lines of `Host`.
    async fn send(&self, server: &Server, before: &str, hosts: &[&str]) -> Answer {
        let mut wire = format!("{} {before}{} HTTP/1.1\r\n", self.method, self.target);
        for host in hosts {
            wire.push_str(&format!("host: {host}\r\n"));
        }
        for (name, value) in &self.headers {
            wire.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        wire.push_str(&format!("content-length: {}\r\n\r\n{}", self.body().len(), self.body()));
        server.raw(wire.as_bytes(), false).await
    }

    /// As HTTP/2.
    async fn send_2(&self, server: &Server, authority: &str, host: Option<&str>) -> (StatusCode, Bytes) {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let uri = format!("http://{authority}{}", self.target);
        let mut request = http::Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let request = request.body(Full::new(Bytes::from_static(self.body().as_bytes()))).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
    }
}

#[tokio::test]
async fn a_signature_for_one_bucket_opens_no_other() {
    let server = start().await;
    let cases = [Method::GET, Method::PUT].into_iter().flat_map(|method| {
        SIGNATURES.into_iter().flat_map(move |how| [true, false].map(|style| (method.clone(), how, style)))
    });
    for (method, how, virtual_host) in cases {
        let case = format!("{method} {how:?} {virtual_host}");
        let signed = signed(&server, how, &method, virtual_host);
        let (own, other) = (signed.host, "two.s3.test");
        for (before, hosts) in [
            ("http://two.s3.test", &[own][..]),
            ("https://two.s3.test", &[own]),
            ("HTTP://TWO.s3.test:80", &[own]),
            ("http://two.s3.test", &[]),
            ("http://two.s3.test", &[own, other]),
            ("", &[own, other]),
            ("", &[other, own]),
            ("", &[own, own]),
            ("", &["one.s3.test, two.s3.test"]),
            ("", &[]),
        ] {
            let answer = signed.send(&server, before, hosts).await;
            assert_eq!(answer.status, 400, "{case} {before} {hosts:?}: {answer:?}");
            assert!(!answer.text().contains("secret"), "{case} {before} {hosts:?}");
        }
        for (authority, host) in [(other, own), (own, other)] {
            let (status, body) = signed.send_2(&server, authority, Some(host)).await;
            assert_eq!(status, 400, "{case} {authority} {host}: {body:?}");
        }
        // The other host alone is not what was signed. In Version 2 and path style no host is, so it needs a bucket.
        let answer = signed.send(&server, "", &[other]).await;
        assert_eq!(answer.status, 403, "{case}: {answer:?}");
        let (status, _) = signed.send_2(&server, other, None).await;
        assert_eq!(status, 403, "{case}");
    }
    for key in ["k", "one/k"] {
        assert_eq!(server.get(&format!("/two/{key}")).await.expect(200).text(), "secret");
        assert_eq!(server.get(&format!("/one/{key}")).await.expect(200).text(), "open");
    }
}

#[tokio::test]
async fn the_same_host_may_be_named_in_every_way() {
    let server = start().await;
    for how in SIGNATURES {
        for virtual_host in [true, false] {
            let signed = signed(&server, how, &Method::GET, virtual_host);
            let own = signed.host;
            for before in ["", "http://", "http://:80"] {
                let before = match before {
                    "" => String::new(),
                    "http://" => format!("http://{}", own.to_uppercase()),
                    _ => format!("http://{own}:80"),
                };
                let answer = signed.send(&server, &before, &[own]).await;
                assert_eq!(answer.expect(200).text(), "open", "{how:?} {before}");
            }
            for host in [None, Some(own)] {
                let (status, body) = signed.send_2(&server, own, host).await;
                assert_eq!((status.as_u16(), &body[..]), (200, &b"open"[..]), "{how:?} {host:?}");
            }
        }
    }
}

/// Whoever looks at one site sees no other, and CORS speaks for the bucket that is asked.
#[tokio::test]
async fn websites_and_origins_follow_the_same_host() {
    let server = start().await;
    let read = |bucket| {
        format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",
            "Resource":"arn:aws:s3:::{bucket}/*"}}}}"#
        )
    };
    let cors = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>http://a.test\
                </AllowedOrigin></CORSRule></CORSConfiguration>";
    let website = "<WebsiteConfiguration><IndexDocument><Suffix>k</Suffix></IndexDocument></WebsiteConfiguration>";
    for bucket in ["one", "two"] {
        server.put(&format!("/{bucket}?website"), website).await.expect(200);
        server.put(&format!("/{bucket}?policy"), read(bucket)).await.expect(204);
    }
    server.put("/two?cors", cors).await.expect(200);
    let ask = async |target: &str, host: &str, method: &str| {
        let wire = format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\norigin: http://a.test\r\n\
             access-control-request-method: GET\r\n\r\n"
        );
        server.raw(wire.as_bytes(), false).await
    };
    assert_eq!(ask("http://one.web.s3.test/", "one.web.s3.test", "GET").await.expect(200).text(), "open");
    for (target, host) in [
        ("http://two.web.s3.test/", "one.web.s3.test"),
        ("http://two.web.s3.test/k", "s3.test"),
        ("http://two.s3.test/k", "two.web.s3.test"),
        ("http://two.s3.test/k", "one.s3.test"),
    ] {
        for method in ["GET", "OPTIONS"] {
            let answer = ask(target, host, method).await;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (400, ""), "{target} {host}");
        }
    }
    let told = ask("/k", "two.s3.test", "GET").await.expect(200);
    assert_eq!(told.header("access-control-allow-origin"), "http://a.test");
}
