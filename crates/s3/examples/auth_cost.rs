//! Measures the cost of signatures and digests on this machine: microseconds per request, megabytes per second.
//!
//! Why: a request signed with Version 4 may cost at most 6 us more than an unsigned one, with Version 2 at most 4 us.
//!      This shows where the time goes, in the verifier alone and in a whole request (without sockets and HTTP/1) for
//!      an object of 1 KiB; all forms alternate within each round.
//!
//! Run: `cargo run --release -p margay-s3 --example auth_cost`; exits with 4 when a form exceeds its limit.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a benchmark measures time and stops at an error")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hint::black_box;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body::{Body, Frame};
use margay_env::{Clock, Env, Timestamp};
use margay_meta::memory::Memory;
use margay_s3::S3Door;
use margay_s3::auth::sign::{Signer, Target, announce_chunks};
use margay_s3::auth::{ChunkChain, Credential, Credentials, Head, Options, PayloadForm, Secret, Verifier, v2};
use margay_s3::body::{Algorithm, ChunkEncoder, Decoder, DecoderOptions, DigestPlan, Want};
use margay_segment::Store;
use margay_volume::Volume;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const ROUNDS: usize = 5;
/// Rounds of all forms of a whole request, and requests of each form in a round.
const WHOLE: (usize, usize) = (200, 500);
/// What a signature may cost, in microseconds.
const GOALS: [(&str, f64); 2] = [("V4", 6.0), ("V2", 4.0)];
const MIB: usize = 1 << 20;

struct OneKey(Secret);

impl Credentials for OneKey {
    fn find(&self, access_key: &str) -> Option<Credential> {
        (access_key == "access").then(|| Credential { secret: self.0.clone(), session_token: None })
    }
}

/// The best of some rounds, in seconds for one call.
fn best(calls: usize, mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / calls as f64
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

struct Request {
    method: Method,
    path: &'static str,
    query: String,
    headers: HeaderMap,
}

impl Request {
    fn head(&self) -> Head<'_> {
        let Request { method, path, query, headers } = self;
        Head { method, path, query, headers, host: "margay.test", host_bucket: None, body_sha256: None }
    }
}

fn requests(signer: &Signer) -> Vec<(&'static str, Request)> {
    let headers = |pairs: &[(&'static str, &'static str)]| {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    };
    let host = ("host", "127.0.0.1:9000");
    let agent = ("user-agent", "Boto3/1.43 md/Botocore#1.43 ua/2.1 os/linux md/arch#x86_64 lang/python");
    let get: HeaderMap = headers(&[host, agent, ("accept-encoding", "identity")]);
    let put: HeaderMap = headers(&[
        host,
        agent,
        ("content-length", "1024"),
        ("content-type", "application/octet-stream"),
        ("x-amz-sdk-checksum-algorithm", "CRC32"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-meta-owner", "somebody"),
    ]);
    let key = "/bucket/some/folder/object-000123.bin";
    let list = "list-type=2&prefix=some%2Ffolder%2F&delimiter=%2F&max-keys=1000&encoding-type=url";
    let mut requests = vec![
        (
            "V4 GET, 3 signed headers",
            Request { method: Method::GET, path: key, query: String::new(), headers: get.clone() },
        ),
        ("V4 PUT, 9 signed headers", Request { method: Method::PUT, path: key, query: String::new(), headers: put }),
        (
            "V4 list, 5 parameters",
            Request { method: Method::GET, path: "/bucket", query: list.into(), headers: get.clone() },
        ),
    ];
    for (_, request) in &mut requests {
        let target = Target { method: &request.method, path: request.path, query: &request.query };
        signer.sign(target, &mut request.headers, PayloadForm::Unsigned, NOW).unwrap();
    }
    let target = Target { method: &Method::GET, path: key, query: "" };
    let only_host: HeaderMap = headers(&[host]);
    let query = signer.presign(target, &only_host, 3600, NOW).unwrap();
    requests.push(("V4 presigned GET", Request { method: Method::GET, path: key, query, headers: only_host.clone() }));
    let signer_v2 = v2::Signer::new("access", &Secret::new(SECRET));
    let mut signed = get.clone();
    signer_v2.sign(target, None, &mut signed, NOW).unwrap();
    requests.push(("V2 GET", Request { method: Method::GET, path: key, query: String::new(), headers: signed }));
    let query = signer_v2.presign(target, None, &only_host, NOW.seconds() + 3600).unwrap();
    requests.push(("V2 presigned GET", Request { method: Method::GET, path: key, query, headers: only_host }));
    requests.push(("anonymous GET", Request { method: Method::GET, path: key, query: String::new(), headers: get }));
    requests
}

struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// Reads a body to its end without waiting.
fn drain(wire: &Bytes, headers: &HeaderMap, form: PayloadForm, chain: Option<ChunkChain>, verify: bool) {
    const RECEIVED_AT_ONCE: usize = 256 * 1024;
    let pieces =
        (0..wire.len()).step_by(RECEIVED_AT_ONCE).map(|at| wire.slice(at..(at + RECEIVED_AT_ONCE).min(wire.len())));
    let options = DecoderOptions { chunk_verification: verify };
    let mut decoder = Decoder::new(Pieces(pieces.collect()), headers, &form, chain, options).unwrap();
    let read = async {
        while let Some(piece) = decoder.next().await.unwrap() {
            black_box(&piece);
        }
    };
    assert!(pin!(read).poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

fn bodies(signer: &Signer, payload: &[u8]) {
    for (name, form, chunk, verify) in [
        ("decode signed chunks of 64 KiB", PayloadForm::StreamingSigned, 64 * 1024, true),
        ("decode signed chunks, unverified", PayloadForm::StreamingSigned, 64 * 1024, false),
        ("decode signed chunks of 8 MiB", PayloadForm::StreamingSigned, 8 * MIB, true),
        ("decode unsigned chunks of 64 KiB", PayloadForm::StreamingUnsignedTrailer, 64 * 1024, true),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("h"));
        announce_chunks(&mut headers, payload.len() as u64, None);
        let target = Target { method: &Method::PUT, path: "/b/k", query: "" };
        let chain = signer.sign(target, &mut headers, form, NOW).unwrap();
        let mut encoder = ChunkEncoder::new(form, chain.clone());
        let mut wire = Vec::new();
        payload.chunks(chunk).for_each(|piece| encoder.chunk(piece, &mut wire));
        encoder.finish(&[], &mut wire);
        let wire = Bytes::from(wire);
        let seconds = best(2, || drain(&wire, &headers, form, chain.clone(), verify));
        println!(
            "{name:34} {:8.0} MB/s {:8.1} us/MiB",
            payload.len() as f64 / seconds / 1e6,
            per_mib(payload, seconds)
        );
    }
}

/// A clock that stands still, so that signatures stay valid.
#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}

/// A door that answers every GET with the same 1 KiB.
fn door(folder: &Path) -> S3Door {
    let env = Env { clock: Arc::new(Standing), ..Env::real() };
    let store = Store::open(env.clone(), margay_segment::Options::new(folder)).unwrap();
    let engine = Arc::new(Memory::with_payloads(Arc::clone(&store), 64 << 10));
    let volume = Volume::open(env.clone(), engine, store, margay_volume::Options::default()).unwrap();
    let keys = Arc::new(OneKey(Secret::new(SECRET)));
    let door = S3Door::new(volume, keys, margay_s3::Options::default(), env);
    door.with_fixed_object(Bytes::from(vec![b'x'; 1024]))
}

/// Times whole requests for an object of 1 KiB; true when a goal was missed.
fn whole_requests(signer: &Signer) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let door = door(folder.path());
    let peer = "127.0.0.1:1".parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let of_object = |request: &Request| request.path != "/bucket" && request.method == Method::GET;
    let gets: Vec<_> = requests(signer).into_iter().filter(|(_, request)| of_object(request)).collect();
    let mut least = vec![f64::MAX; gets.len()];
    for _ in 0..WHOLE.0 {
        for ((_, get), least) in gets.iter().zip(&mut least) {
            let mark = if get.query.is_empty() { "" } else { "?" };
            let target = format!("{}{mark}{}", get.path, get.query);
            let start = Instant::now();
            for _ in 0..WHOLE.1 {
                let mut request = http::Request::new(http_body_util::Empty::<Bytes>::new());
                *request.uri_mut() = target.parse().unwrap();
                *request.headers_mut() = get.headers.clone();
                let answer = runtime.block_on(door.handle(request, peer));
                assert!(answer.status().is_success(), "{}", answer.status());
                black_box(answer);
            }
            *least = least.min(start.elapsed().as_secs_f64() / WHOLE.1 as f64 * 1e6);
        }
    }
    let times = || gets.iter().map(|(name, _)| *name).zip(least.iter().copied());
    let unsigned = times().find(|(name, _)| name.starts_with("anonymous")).map_or(0.0, |(_, time)| time);
    let mut missed = false;
    for (name, time) in times() {
        let goal = GOALS.iter().find(|(version, _)| name.starts_with(version)).map_or(f64::MAX, |(_, goal)| *goal);
        let over = time - unsigned > goal;
        missed |= over;
        println!("whole {name:28} {time:8.2} us {:+8.2} us {}", time - unsigned, if over { "MISSED" } else { "" });
    }
    missed
}

fn per_mib(payload: &[u8], seconds: f64) -> f64 {
    seconds * 1e6 * MIB as f64 / payload.len() as f64
}

fn digests(payload: &[u8]) {
    let plain = |md5, fallback| Want { md5, fallback };
    for (name, want, form) in [
        ("MD5", plain(true, None), PayloadForm::Unsigned),
        ("SHA-256 (payload)", plain(false, None), PayloadForm::Sha256([0; 32])),
        ("SHA-1", plain(false, Some(Algorithm::Sha1)), PayloadForm::Unsigned),
        ("CRC32", plain(false, Some(Algorithm::Crc32)), PayloadForm::Unsigned),
        ("CRC32C", plain(false, Some(Algorithm::Crc32c)), PayloadForm::Unsigned),
        ("CRC64NVME", plain(false, Some(Algorithm::Crc64Nvme)), PayloadForm::Unsigned),
        ("MD5 + CRC64NVME", plain(true, Some(Algorithm::Crc64Nvme)), PayloadForm::Unsigned),
        ("MD5 + SHA-256", plain(true, None), PayloadForm::Sha256([0; 32])),
    ] {
        let plan = DigestPlan::read(&HeaderMap::new(), &form, want).unwrap();
        let seconds = best(2, || {
            let mut digests = plan.clone().digests();
            digests.update(payload);
            black_box(&digests);
        });
        println!(
            "{name:34} {:8.0} MB/s {:8.1} us/MiB",
            payload.len() as f64 / seconds / 1e6,
            per_mib(payload, seconds)
        );
    }
}

fn main() {
    let secret = Secret::new(SECRET);
    let signer = Signer::new("access", secret.clone(), "us-east-1");
    let keys = OneKey(secret);
    let verifier = Verifier::new(Options::default());
    for (name, request) in requests(&signer) {
        let seconds = best(20_000, || {
            black_box(verifier.verify(&request.head(), &keys, NOW).unwrap());
        });
        println!("verify {name:27} {:8.2} us", seconds * 1e6);
    }
    let (_, request) = requests(&signer).swap_remove(0);
    let seconds = best(20_000, || {
        let mut headers = request.headers.clone();
        let target = Target { method: &request.method, path: request.path, query: &request.query };
        signer.sign(target, &mut headers, PayloadForm::Unsigned, NOW).unwrap();
        black_box(headers);
    });
    println!("{:34} {:8.2} us", "sign a V4 GET", seconds * 1e6);
    let missed = whole_requests(&signer);
    let payload: Vec<u8> = (0..16 * MIB).map(|index| ((index * 31) >> 3) as u8).collect();
    bodies(&signer, &payload);
    digests(&payload);
    if missed {
        std::process::exit(4);
    }
}
