//! The listener against clients that are fast, slow, idle, too many, or cut off.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use margay_env::Env;
use margay_listener::answer;
use margay_listener::body::{BodyError, RequestBody, ResponseBody};
use margay_listener::tls::{Reload, Tls};
use margay_listener::{AnswerFuture, ConnectionLimits, Handler, Listener, Traffic, bind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// For what must come, however busy the machine is: it is waited for, never measured.
const PATIENCE: Duration = Duration::from_secs(100);
const LOOK_STEP: Duration = Duration::from_millis(5);

/// Requests of `/slow` that have begun.
static SLOW_BEGUN: AtomicUsize = AtomicUsize::new(0);

/// An answer that is in memory before it begins: more than the kernel takes for a client that does not read.
const WHOLE_BYTES: usize = 16 << 20;
/// Pieces of 256 KiB of one that is made as the client takes it.
const PIECES: usize = 64;
const PIECE_BYTES: usize = 256 << 10;

struct Pieces(usize);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        let more = self.0.checked_sub(1);
        self.0 = more.unwrap_or(0);
        std::task::Poll::Ready(more.map(|_| Ok(http_body::Frame::data(Bytes::from(vec![0; PIECE_BYTES])))))
    }
}

/// Answers with the length of the body, or with what is wrong with it; `/slow` takes 600 ms.
struct Echo;

impl Handler for Echo {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                SLOW_BEGUN.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(600)).await;
            }
            if request.uri().path() == "/unread" {
                return answer::plain(StatusCode::FORBIDDEN, "not you");
            }
            if request.uri().path() == "/endless" {
                return Response::new(answer::whole(vec![0; 64 << 20]));
            }
            if request.uri().path() == "/whole" {
                let body = answer::whole(vec![0; WHOLE_BYTES]).body;
                return Response::new(ResponseBody { body, in_memory: Some(WHOLE_BYTES as u64) });
            }
            if request.uri().path() == "/pieces" {
                return Response::new(ResponseBody { body: Pieces(PIECES).boxed_unsync(), in_memory: None });
            }
            match request.into_body().collect().await {
                Ok(body) => answer::plain(StatusCode::OK, &body.to_bytes().len().to_string()),
                Err(error) => answer::plain(StatusCode::REQUEST_TIMEOUT, &error.to_string()),
            }
        })
    }
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections_max: 100,
        header_bytes_max: 16 << 10,
        header_time_max: Duration::from_secs(1),
        idle_time_max: Duration::from_secs(3),
        stall_time_max: Duration::from_secs(1),
        body_rate_min: 1 << 20,
        streams_max: 16,
        unread_bytes_max: 1 << 30,
        drain_time_max: Duration::from_secs(5),
    }
}

async fn start(limits: ConnectionLimits, tls: Option<Tls>) -> (Listener, SocketAddr, Arc<Traffic>) {
    let socket = bind("127.0.0.1:0", "--address").await.unwrap();
    let traffic = Arc::new(Traffic::default());
    let listener = Listener::start_tcp(socket, tls, Arc::new(Echo), Arc::clone(&traffic), limits);
    let address = listener.address.unwrap();
    (listener, address, traffic)
}

/// Sends bytes and reads until the answer's end: `marker`, or the end of the connection.
async fn talk(stream: &mut TcpStream, send: &str, marker: &str) -> String {
    stream.write_all(send.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&text).contains(marker) {
        match timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8(text).unwrap()
}

/// Waits until the server ends the connection.
async fn until_closed(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while !matches!(timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap(), Ok(0) | Err(_)) {}
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(LOOK_STEP).await;
    }
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn a_parked_connection_serves_again_and_ends_when_idle() {
    let long = ConnectionLimits { idle_time_max: PATIENCE, stall_time_max: PATIENCE, ..limits() };
    let (_listener, address, _) = start(long, None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        assert!(talk(&mut stream, GET, "\r\n\r\n0\n").await.starts_with("HTTP/1.1 200"));
        // Longer than the time after which it is parked, and than a head may take.
        sleep(Duration::from_millis(1200)).await;
    }
    // The body is read by itself, behind the head.
    for _ in 0..2 {
        stream.write_all(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n").await.unwrap();
        sleep(Duration::from_millis(100)).await;
        assert!(talk(&mut stream, "12345", "\r\n\r\n5\n").await.starts_with("HTTP/1.1 200"));
        sleep(Duration::from_millis(1200)).await;
    }
    // A head that begins while parked and does not go on; then one that does, and two requests in one piece.
    talk(&mut stream, "GE", "never").await;
    drop(stream);
    let (_listener, address, traffic) = start(ConnectionLimits { header_time_max: PATIENCE, ..limits() }, None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GE").await.unwrap();
    sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let both = talk(&mut stream, &format!("{}{GET}", &GET[2..]), "0\nHTTP").await;
    assert!(both.starts_with("HTTP/1.1 200"), "{both}");
    until_closed(&mut stream).await;
    assert!(begun.elapsed() >= limits().idle_time_max, "it was closed after {:?}", begun.elapsed());
    until("the connection is counted no more", || traffic.open() == 0).await;
}

#[tokio::test]
async fn the_answer_to_an_empty_body_that_expects_100_ends_its_connection() {
    let long = ConnectionLimits { idle_time_max: PATIENCE, stall_time_max: PATIENCE, ..limits() };
    let (_listener, address, _) = start(long, None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        |length: u32| format!("PUT / HTTP/1.1\r\nhost: x\r\nexpect: 100-Continue\r\ncontent-length: {length}\r\n\r\n");
    // With a body the connection goes on.
    talk(&mut stream, &head(5), "HTTP/1.1 100 Continue\r\n\r\n").await;
    let answer = talk(&mut stream, "12345", "\r\n\r\n5\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("connection: close"), "{answer}");
    let answer = talk(&mut stream, &head(0), "\r\n\r\n0\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    until_closed(&mut stream).await;
}

#[tokio::test]
async fn silence_and_half_a_head_end_the_connection() {
    let (_listener, address, _) = start(limits(), None).await;
    for beginning in ["", "G", "PRI", "GET / HTTP/1.1\r\nhost: x\r\n", "PRI * HTTP/2.0\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        until_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn a_head_over_the_limit_is_told_so() {
    let (_listener, address, _) = start(limits(), None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "a".repeat(20 << 10));
    let answer = talk(&mut stream, &long, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn stalled_and_crawling_bodies_are_given_up() {
    let (_listener, address, _) = start(limits(), None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let answer = talk(&mut stream, "PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345", "body").await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("sent nothing for 1s"), "{answer}");

    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n").await.unwrap();
    let begun = Instant::now();
    while stream.write_all(b"x").await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "a body of 10 bytes a second goes on");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn an_answer_survives_the_body_that_nobody_read() {
    let (_listener, address, _) = start(limits(), None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "PUT /unread HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![0; 500_000]).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    let answer = talk(&mut stream, "", "not you").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("not you"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_is_dropped() {
    let (_listener, address, traffic) = start(limits(), None).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    until("it is open", || traffic.open() == 1).await;
    until("it is dropped", || traffic.open() == 0).await;
}

/// Clients that ask and do not read hold what the limit says together; whoever reads is served beside them.
#[tokio::test]
async fn unread_answers_have_a_bound_together() {
    const MAX: u64 = 24 << 20;
    let limits = ConnectionLimits { stall_time_max: PATIENCE, unread_bytes_max: MAX, ..limits() };
    let (listener, address, traffic) = start(limits, None).await;
    let mut idle = Vec::new();
    for path in ["/whole", "/pieces"].into_iter().cycle().take(24) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        idle.push(stream);
    }
    for path in ["/pieces", "/whole"] {
        let mut reader = TcpStream::connect(address).await.unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        reader.write_all(ask.as_bytes()).await.unwrap();
        let (mut taken, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            // What was there when the limit was reached, and one answer or piece for each that begins at once.
            assert!(traffic.unread() <= MAX + 24 * WHOLE_BYTES as u64);
            match timeout(PATIENCE, reader.read(&mut buffer)).await.unwrap().unwrap() {
                0 => break,
                count => taken += count,
            }
        }
        assert!(taken > WHOLE_BYTES, "{path}: only {taken} bytes");
    }
    until("the slow ones are closed", || traffic.unread() < MAX).await;
    assert!(traffic.closed_unread() > 0);
    drop(idle);
    until("nothing is unread", || traffic.unread() == 0).await;
    assert!(listener.stop(PATIENCE).await);
}

#[tokio::test]
async fn one_connection_too_many_is_told_to_slow_down() {
    let busy = ConnectionLimits { connections_max: 1, stall_time_max: 2 * PATIENCE, body_rate_min: 0, ..limits() };
    let (_listener, address, traffic) = start(busy, None).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n1").await.unwrap();
    until("the first request is under way", || traffic.running() == 1).await;
    let mut second = TcpStream::connect(address).await.unwrap();
    let answer = talk(&mut second, GET, "</Error>").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("<Code>SlowDown</Code>"), "{answer}");
    drop(first);
    let begun = Instant::now();
    loop {
        let mut third = TcpStream::connect(address).await.unwrap();
        // An answer of either kind ends with a body.
        let answer = talk(&mut third, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "never").await;
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer}");
        sleep(LOOK_STEP).await;
    }
}

#[tokio::test]
async fn a_connection_that_waits_gives_its_place_to_a_new_one() {
    let few =
        ConnectionLimits { connections_max: 3, idle_time_max: 4 * PATIENCE, header_time_max: 4 * PATIENCE, ..limits() };
    let (listener, address, traffic) = start(few, None).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        talk(&mut stream, GET, "\r\n\r\n0\n").await;
        waiting.push(stream);
    }
    // Longer than the time after which a connection is parked.
    sleep(Duration::from_millis(500)).await;
    let mut fourth = TcpStream::connect(address).await.unwrap();
    let answer = talk(&mut fourth, GET, "\r\n\r\n0\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    until_closed(&mut waiting[0]).await;
    assert!(talk(&mut waiting[1], GET, "\r\n\r\n0\n").await.starts_with("HTTP/1.1 200"), "only the oldest ended");
    assert_eq!(traffic.open(), 3);
    drop((waiting, fourth));
    until("all have ended", || traffic.open() == 0).await;
    // Those that have never asked do so, too.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    until("all are served", || traffic.open() == 3).await;
    sleep(Duration::from_millis(200)).await;
    let mut asking = TcpStream::connect(address).await.unwrap();
    assert!(talk(&mut asking, GET, "\r\n\r\n0\n").await.starts_with("HTTP/1.1 200"));
    until_closed(&mut silent[0]).await;
    drop((silent, asking));
    assert!(listener.stop(PATIENCE).await);
}

#[tokio::test]
async fn stopping_finishes_what_runs_and_closes_what_rests() {
    let (listener, address, _) = start(ConnectionLimits { idle_time_max: 2 * PATIENCE, ..limits() }, None).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    talk(&mut idle, GET, "\r\n\r\n0\n").await;
    let mut busy = TcpStream::connect(address).await.unwrap();
    let slow =
        tokio::spawn(async move { talk(&mut busy, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n", "\r\n\r\n0\n").await });
    until("the slow request begins", || SLOW_BEGUN.load(Ordering::Relaxed) == 1).await;
    // All have ended, though the idle one might rest for longer.
    assert!(listener.stop(PATIENCE).await);
    assert!(slow.await.unwrap().starts_with("HTTP/1.1 200"));
    until_closed(&mut idle).await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn http2_without_tls_is_understood() {
    let (listener, address, _) = start(limits(), None).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = Request::put(format!("http://{address}/")).body(Full::new(Bytes::from_static(b"12345"))).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "5\n");
    assert!(listener.stop(PATIENCE).await);
    driver.await.unwrap().unwrap();
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tls").join(name)).unwrap()
}

/// A client that trusts exactly this certificate.
fn trusting(certificate: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fixture(certificate)).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[tokio::test]
async fn a_certificate_is_replaced_under_open_connections() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    let put = |name: &str| {
        std::fs::write(&certificate, fixture(&format!("{name}.pem"))).unwrap();
        std::fs::write(&key, fixture(&format!("{name}.key.pem"))).unwrap();
    };
    put("first");
    let tls = Tls::load(&Env::real(), certificate.clone(), key.clone()).unwrap();
    // The first connection rests while others are made.
    let long = ConnectionLimits { header_time_max: PATIENCE, idle_time_max: PATIENCE, ..limits() };
    let (_listener, address, _) = start(long, Some(tls.clone())).await;
    let connect = async |trusted: &str| {
        let stream = TcpStream::connect(address).await.unwrap();
        trusting(trusted).connect(ServerName::try_from("localhost").unwrap(), stream).await
    };
    let mut old = connect("first.pem").await.unwrap();
    assert!(connect("second.pem").await.is_err());

    // A key that does not fit leaves the old pair in use; the same files are not judged twice.
    std::fs::write(&key, fixture("second.key.pem")).unwrap();
    assert!(tls.reload().unwrap_err().contains("do not fit"));
    assert_eq!(tls.reload(), Ok(Reload::Unchanged));
    connect("first.pem").await.unwrap();

    put("second");
    assert_eq!(tls.reload(), Ok(Reload::Replaced));
    connect("second.pem").await.unwrap();
    old.write_all(GET.as_bytes()).await.unwrap();
    let mut buffer = [0; 12];
    old.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_request_in_one_piece_with_the_end_of_the_handshake_is_answered() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tls");
    let tls = Tls::load(&Env::real(), fixtures.join("first.pem"), fixtures.join("first.key.pem")).unwrap();
    let long = ConnectionLimits { header_time_max: PATIENCE, idle_time_max: PATIENCE, ..limits() };
    let (_listener, address, _) = start(long, Some(tls)).await;
    let config = Arc::clone(trusting("first.pem").config());
    let talk = move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = tokio_rustls::rustls::ClientConnection::new(config, name).unwrap();
        // Held back by the library until the handshake ends, and sent together with its last message.
        client.writer().write_all(GET.as_bytes()).unwrap();
        let mut answer = [0; 12];
        tokio_rustls::rustls::Stream::new(&mut client, &mut stream).read_exact(&mut answer).unwrap();
        answer
    };
    for _ in 0..5 {
        let answer = tokio::task::spawn_blocking(talk.clone()).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
}

#[test]
fn bad_tls_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    let load = || Tls::load(&Env::real(), certificate.clone(), key.clone()).unwrap_err().to_string();
    assert!(load().contains("chain.pem cannot be read"), "{}", load());
    std::fs::write(&certificate, b"nothing").unwrap();
    std::fs::write(&key, b"nothing").unwrap();
    assert!(load().contains("holds no certificate"), "{}", load());
    std::fs::write(&certificate, fixture("first.pem")).unwrap();
    assert!(load().contains("holds no private key"), "{}", load());
    std::fs::write(&key, fixture("second.key.pem")).unwrap();
    assert!(load().contains("do not fit"), "{}", load());
}
