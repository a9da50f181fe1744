//! A door over an in-memory volume, on a real port, and a client that sends exactly the given bytes.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod users;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use hyper_util::rt::{TokioExecutor, TokioIo};
use margay_env::Env;
use margay_meta::Engine;
use margay_meta::counted::CountedEngine;
use margay_meta::memory::Memory;
use margay_s3::auth::sign::{Signer, Target, announce_chunks};
use margay_s3::auth::{ChunkChain, Credential, Credentials, PayloadForm, Secret, v2};
use margay_s3::body::ChunkEncoder;
use margay_s3::{Options, S3Door};
use margay_segment::Store;
use margay_volume::{MASTER_KEY_BYTES, MasterKeys, Volume};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub use users::Users;

const ACCESS_KEY: &str = "margaytest";
const SECRET_KEY: &str = "margaysecret";
/// Longest time that any exchange of a test may take.
pub const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(120);

struct OneKey;

impl Credentials for OneKey {
    fn find(&self, access_key: &str) -> Option<Credential> {
        (access_key == ACCESS_KEY).then(|| Credential { secret: Secret::new(SECRET_KEY), session_token: None })
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub volume: Arc<Volume>,
    /// The engine below it.
    pub engine: Arc<CountedEngine>,
    pub env: Env,
    pub signer: Signer,
    pub signer_v2: v2::Signer,
    _folder: tempfile::TempDir,
}

impl Server {
    pub async fn start() -> Server {
        Server::start_with(Options { customer_keys: true, ..Options::default() }).await
    }

    pub async fn start_with(options: Options) -> Server {
        Server::start_for(options, None, |engine, _| engine).await
    }

    /// With users besides root.
    pub async fn with_users(users: &[(&str, Option<&str>, &[&str])]) -> Server {
        Server::start_for(Options::default(), Some(Users::new(users)), |engine, _| engine).await
    }

    /// With an engine above the one that counts.
    pub async fn start_over(above: impl FnOnce(Arc<CountedEngine>, &Env) -> Arc<dyn Engine>) -> Server {
        Server::start_for(Options::default(), None, above).await
    }

    async fn start_for(
        options: Options,
        users: Option<Users>,
        above: impl FnOnce(Arc<CountedEngine>, &Env) -> Arc<dyn Engine>,
    ) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let mut segments = margay_segment::Options::new(folder.path());
        segments.reserve_bytes = 0;
        let store = Store::open(env.clone(), segments).unwrap();
        let engine = Arc::new(CountedEngine::new(Arc::new(Memory::with_payloads(Arc::clone(&store), 64 << 10))));
        let over = above(Arc::clone(&engine), &env);
        let named = ["key-1", "key-2"].map(|name| (name.to_owned(), [name.as_bytes()[4]; MASTER_KEY_BYTES]));
        let master_keys = MasterKeys::new(&[[7; MASTER_KEY_BYTES]]).with_named(&named);
        let volume_options = margay_volume::Options { master_keys, ..margay_volume::Options::default() };
        let volume = Volume::open(env.clone(), over, store, volume_options).unwrap();
        let options = Options {
            domains: vec!["s3.test".to_owned()],
            website_domains: vec!["web.s3.test".to_owned()],
            notification_targets: vec!["orders".to_owned()],
            ..options
        };
        let mut door = S3Door::new(Arc::clone(&volume), Arc::new(OneKey), options, env.clone());
        if let Some(users) = users {
            door = door.with_identities(Arc::new(users));
        }
        let door = Arc::new(door);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let door = Arc::clone(&door);
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let door = Arc::clone(&door);
                        async move { Ok::<_, std::convert::Infallible>(door.handle(request, peer).await) }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET_KEY), "us-east-1");
        let signer_v2 = v2::Signer::new(ACCESS_KEY, &Secret::new(SECRET_KEY));
        Server { address, volume, engine, env, signer, signer_v2, _folder: folder }
    }

    /// With a bucket named `bucket`.
    pub async fn with_bucket() -> Server {
        let server = Server::start().await;
        server.volume.create_bucket("bucket").await.unwrap();
        server
    }

    pub fn request(&self, method: &str, path: &str) -> Request<'_> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_str(&self.address.to_string()).unwrap());
        Request {
            server: self,
            method: method.parse().unwrap(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            form: PayloadForm::Unsigned,
            body: Vec::new(),
            signer: None,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).send().await
    }

    pub async fn put(&self, path: &str, body: impl Into<Vec<u8>>) -> Answer {
        self.request("PUT", path).body(body).send().await
    }

    /// A PUT of this many bytes as it goes over the wire.
    pub fn put_bytes(&self, path: &str, len: usize) -> Vec<u8> {
        self.request("PUT", path).body(vec![b'x'; len]).bytes()
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.request("DELETE", path).send().await
    }

    /// Whether an object can be read.
    pub async fn has(&self, path: &str) -> bool {
        self.request("HEAD", path).send().await.status == 200
    }

    /// Sends bytes on a connection of their own; the client stops sending after them.
    pub async fn raw(&self, bytes: &[u8], ends: bool) -> Answer {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // The server may answer and close before it has all.
            let _ = stream.write_all(bytes).await;
            if ends {
                let _ = stream.shutdown().await;
            }
            Answer::read(&mut stream, bytes.starts_with(b"HEAD ")).await
        };
        tokio::time::timeout(EXCHANGE_TIME_MAX, exchange).await.expect("an exchange hangs")
    }
}

pub struct Request<'s> {
    server: &'s Server,
    method: Method,
    path: String,
    query: String,
    pub headers: HeaderMap,
    pub form: PayloadForm,
    body: Vec<u8>,
    /// Somebody else than root.
    signer: Option<Signer>,
}

impl Request<'_> {
    /// Signed by a user of `Server::with_users`; by nobody when the name is empty.
    pub async fn send_as(mut self, user: &str) -> Answer {
        if user.is_empty() {
            return self.send_unsigned().await;
        }
        self.signer = Some(Signer::new(user, Secret::new(&format!("secret-of-{user}")), "us-east-1"));
        self.send().await
    }

    /// Signed for IAM or STS, as by `send_as`; `root` is the holder of the root keys.
    pub async fn send_to(mut self, service: &'static str, user: &str) -> Answer {
        if user.is_empty() {
            return self.send_unsigned().await;
        }
        let signer = match user {
            "root" => Signer::new(ACCESS_KEY, Secret::new(SECRET_KEY), "us-east-1"),
            _ => Signer::new(user, Secret::new(&format!("secret-of-{user}")), "us-east-1"),
        };
        self.signer = Some(signer.for_service(service));
        self.send().await
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let len = HeaderValue::from(self.body.len());
        self.headers.entry("content-length").or_insert(len);
        self
    }

    pub fn form(mut self, form: PayloadForm) -> Self {
        self.form = form;
        self
    }

    /// A body in chunks, as SDKs send it.
    pub async fn send_chunked(self, form: PayloadForm, body: &[u8], trailers: &[(&str, &str)]) -> Answer {
        let server = self.server;
        server.raw(&self.chunked_bytes(form, body, trailers), false).await
    }

    /// The same as it goes over the wire.
    pub fn chunked_bytes(mut self, form: PayloadForm, body: &[u8], trailers: &[(&str, &str)]) -> Vec<u8> {
        let trailer = trailers.first().map(|(name, _)| HeaderName::from_bytes(name.as_bytes()).unwrap());
        announce_chunks(&mut self.headers, body.len() as u64, trailer.as_ref());
        self.form = form;
        let chain = self.sign();
        let mut encoder = ChunkEncoder::new(form, chain);
        let mut wire = Vec::new();
        for chunk in body.chunks(70_000) {
            encoder.chunk(chunk, &mut wire);
        }
        encoder.finish(trailers, &mut wire);
        self.headers.insert("content-length", HeaderValue::from(wire.len()));
        let mut bytes = self.head();
        bytes.extend_from_slice(&wire);
        bytes
    }

    fn sign(&mut self) -> Option<ChunkChain> {
        let target = Target { method: &self.method, path: &self.path, query: &self.query };
        self.signer
            .as_ref()
            .unwrap_or(&self.server.signer)
            .sign(target, &mut self.headers, self.form, self.server.env.clock.now())
            .unwrap()
    }

    fn head(&self) -> Vec<u8> {
        let mark = if self.query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {}{mark}{} HTTP/1.1\r\n", self.method, self.path, self.query).into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// Signed with Version 2.
    pub async fn send_v2(mut self) -> Answer {
        let target = Target { method: &self.method, path: &self.path, query: &self.query };
        self.server.signer_v2.sign(target, None, &mut self.headers, self.server.env.clock.now()).unwrap();
        self.send_unsigned().await
    }

    /// By a URL signed with Version 2 that is valid for so many seconds more.
    pub async fn send_presigned_v2(mut self, seconds: i64) -> Answer {
        let target = Target { method: &self.method, path: &self.path, query: &self.query };
        let end = self.server.env.clock.now().seconds() + seconds;
        self.query = self.server.signer_v2.presign(target, None, &self.headers, end).unwrap();
        self.send_unsigned().await
    }

    /// By a URL signed with Version 4 that is valid for so many seconds.
    pub async fn send_presigned(mut self, seconds: u64) -> Answer {
        let target = Target { method: &self.method, path: &self.path, query: &self.query };
        let signed: HeaderMap =
            self.headers.iter().filter(|(name, _)| *name == "host").map(|(n, v)| (n.clone(), v.clone())).collect();
        self.query = self.server.signer.presign(target, &signed, seconds, self.server.env.clock.now()).unwrap();
        self.send_unsigned().await
    }

    /// The signed request as it goes over the wire.
    pub fn bytes(mut self) -> Vec<u8> {
        self.sign();
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub async fn send(self) -> Answer {
        let server = self.server;
        server.raw(&self.bytes(), false).await
    }

    pub async fn send_unsigned(self) -> Answer {
        let server = self.server;
        server.raw(&self.unsigned_bytes(), false).await
    }

    /// The request without a signature as it goes over the wire.
    pub fn unsigned_bytes(self) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// The body of an answer whose length was not told; what is cut off is missing in it.
async fn unchunked(stream: &mut TcpStream, mut wire: Vec<u8>) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = wire.windows(2).position(|two| two == b"\r\n");
        let size = line.map(|end| usize::from_str_radix(std::str::from_utf8(&wire[..end]).unwrap(), 16).unwrap());
        if let (Some(line), Some(size)) = (line, size)
            && wire.len() >= line + 2 + size + 2
        {
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&wire[line + 2..line + 2 + size]);
            wire.drain(..line + 2 + size + 2);
            continue;
        }
        let mut buffer = vec![0; 64 << 10];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return body,
            Ok(count) => wire.extend_from_slice(&buffer[..count]),
        }
    }
}

impl Answer {
    pub async fn read(stream: &mut TcpStream, of_head: bool) -> Answer {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                // Not the answer yet.
                if bytes.starts_with(b"HTTP/1.1 100") {
                    bytes.drain(..at + 4);
                    continue;
                }
                break at;
            }
            let mut buffer = vec![0; 64 << 10];
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return Answer { status: 0, headers: HeaderMap::new(), body: bytes },
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        };
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let mut body = bytes[end + 4..].to_vec();
        if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            return Answer { status, headers, body: unchunked(stream, body).await };
        }
        let len = headers.get("content-length").and_then(|len| len.to_str().ok()?.parse::<usize>().ok());
        let len = if of_head || status == 304 || status == 204 { 0 } else { len.unwrap_or(0) };
        while body.len() < len {
            let mut buffer = vec![0; len - body.len()];
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => body.extend_from_slice(&buffer[..count]),
            }
        }
        Answer { status, headers, body }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The text of the first element with this name.
    pub fn element(&self, name: &str) -> &str {
        elements(self.text(), name).first().copied().unwrap_or("")
    }

    /// The texts of all elements with this name.
    pub fn elements(&self, name: &str) -> Vec<&str> {
        elements(self.text(), name)
    }

    pub fn code(&self) -> &str {
        self.element("Code")
    }

    /// Fails with the answer's text unless it has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    /// Fails unless it is an error of some kind.
    #[track_caller]
    pub fn expect_error(self) -> Answer {
        assert!(self.status >= 400, "{}", self.status);
        self
    }

    /// Fails unless it is this error.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Answer {
        assert_eq!((self.status, self.code()), (status, code), "{}", self.text());
        self
    }
}

fn elements<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(&open) {
        rest = &rest[at + open.len()..];
        let end = rest.find(&close).unwrap_or(rest.len());
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}
