//! Entry points of the fuzz targets: everything that a client sends, as arbitrary bytes.
//!
//! Why:        only the door is public, and a fuzzer that had to pass it would never get beyond the signature.
//! Layout:     a request is HTTP/1 text: `METHOD target`, lines `name: value`, an empty line, the body.
//! Invariants: Z1 a parser gives a value or an error, and writing the value and parsing it again gives the same value.
//!             Z2 the result does not depend on how a body is split.  Z3 the verifier accepts what the signer signs.
//! Not here:   the targets themselves and their seeds (fuzz/).

mod documents;
mod forms;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body::{Body, Frame};
use margay_env::Timestamp;

pub use self::documents::xml_document;
pub use self::forms::{form_body, form_policy};
use crate::auth::sign::{Signer, Target as SignTarget};
use crate::auth::{
    AuthError, ChunkChain, Credential, Credentials, Head, Host, PayloadForm, Secret, Verifier, hoisted, presigned, v2,
};
use crate::body::{
    BodyError, ChunkEncoder, Decoder, DecoderOptions, DigestPlan, Trailers, Want, WireError, announced_bytes,
    stored_encoding,
};
use crate::headers::range::ByteRange;
use crate::headers::{condition, content, copy_source, etag, mail_word, text};
use crate::op::{token, upload_part_copy};
use crate::query_api;
use crate::route::operation::{Method as Verb, Scope};
use crate::route::query::{Query, decode};
use crate::route::refuse::refuse;
use crate::route::target::{Target, check_bucket_name};
use crate::route::{self, policy};
pub use crate::sts::fuzzing::{identity_claims, identity_token};
use crate::xml::write::percent_encode;

const ACCESS_KEY: &str = "AKIDEXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
const DOMAIN: &str = "s3.example.com";

struct OneKey;

impl Credentials for OneKey {
    fn find(&self, access_key: &str) -> Option<Credential> {
        (access_key == ACCESS_KEY).then(|| Credential { secret: Secret::new(SECRET_KEY), session_token: None })
    }
}

static SIGNER_V2: LazyLock<v2::Signer> = LazyLock::new(|| v2::Signer::new(ACCESS_KEY, &Secret::new(SECRET_KEY)));
static SIGNER: LazyLock<Signer> = LazyLock::new(|| Signer::new(ACCESS_KEY, Secret::new(SECRET_KEY), "us-east-1"));

/// The head of a request and its body; `None` when no HTTP server would accept it.
fn request(bytes: &[u8]) -> Option<(Parts, &[u8])> {
    let mut rest = bytes;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    };
    let first = line()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let mut request = Request::builder().method(Method::from_bytes(&first[..space]).ok()?).uri(&first[space + 1..]);
    while let Some(header) = line().filter(|line| !line.is_empty()) {
        let colon = header.iter().position(|byte| *byte == b':')?;
        request = request.header(&header[..colon], header[colon + 1..].trim_ascii());
    }
    Some((request.body(()).ok()?.into_parts().0, rest))
}

fn lines(method: &str, target: &str, headers: &HeaderMap) -> Vec<u8> {
    let mut out = format!("{method} {target}\n").into_bytes();
    for (name, value) in headers {
        out.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
    }
    out.push(b'\n');
    out
}

/// A request's signature, in a header or in the query; then the same request, signed properly.
pub fn signature(bytes: &[u8]) {
    let Some((mut parts, _)) = request(bytes) else { return };
    let Ok(host) = Host::of(&parts, false) else { return };
    let verifier = Verifier::new(crate::auth::Options::default());
    let _ = verifier.verify(&Head::of(&parts, &host), &OneKey, NOW);
    for name in ["authorization", "x-amz-security-token"] {
        parts.headers.remove(name);
    }
    let target =
        SignTarget { method: &parts.method, path: parts.uri.path(), query: parts.uri.query().unwrap_or_default() };
    if SIGNER.sign(target, &mut parts.headers, PayloadForm::Unsigned, NOW).is_ok() {
        let outcome = verifier.verify(&Head::of(&parts, &host), &OneKey, NOW);
        assert!(!matches!(outcome, Err(AuthError::Mismatch(_))), "what the signer signs is believed: {outcome:?}");
    }
}

/// As `signature`, with Version 2; the bucket `b` is named by the host when the target begins with two slashes.
pub fn signature_version_2(bytes: &[u8]) {
    let Some((mut parts, _)) = request(bytes) else { return };
    let Ok(host) = Host::of(&parts, false) else { return };
    let host_bucket = parts.uri.path().starts_with("//").then_some("b");
    let verifier = Verifier::new(crate::auth::Options::default());
    let verify = |parts: &Parts| verifier.verify(&Head::of(parts, &host).with_host_bucket(host_bucket), &OneKey, NOW);
    let _ = verify(&parts);
    let query = parts.uri.query().unwrap_or_default();
    let _ = hoisted::join(query, presigned::version(query), &parts.headers);
    for name in ["authorization", "x-amz-date", "x-amz-security-token"] {
        parts.headers.remove(name);
    }
    let uri = parts.uri.clone();
    let query = uri.query().unwrap_or_default();
    let target = SignTarget { method: &parts.method, path: uri.path(), query };
    let url = SIGNER_V2.presign(target, host_bucket, &parts.headers, NOW.seconds());
    if SIGNER_V2.sign(target, host_bucket, &mut parts.headers, NOW).is_ok() {
        let outcome = verify(&parts);
        assert!(!matches!(outcome, Err(AuthError::Mismatch(_))), "what the signer signs is believed: {outcome:?}");
    }
    parts.headers.remove("authorization");
    // Beside a Version 4 signature the other one is ignored.
    if let Some(url) = url.ok().filter(|url| !url.contains("X-Amz-")) {
        let head = Head { query: &url, ..Head::of(&parts, &host).with_host_bucket(host_bucket) };
        let outcome = verifier.verify(&head, &OneKey, NOW);
        assert!(!matches!(outcome, Err(AuthError::Mismatch(_))), "what the signer signs is believed: {outcome:?}");
    }
}

/// A body in pieces, each ready at once.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// The same as it comes from a connection.
struct WirePieces(Pieces);

impl Body for WirePieces {
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        Poll::Ready(self.get_mut().0.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// A payload form, with the chain of its signatures if it is signed.
fn form(number: u8) -> (PayloadForm, HeaderMap, Option<ChunkChain>) {
    let forms =
        [PayloadForm::StreamingUnsignedTrailer, PayloadForm::StreamingSigned, PayloadForm::StreamingSignedTrailer];
    let form = forms[usize::from(number % 3)];
    let mut headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static(DOMAIN))]);
    let target = SignTarget { method: &Method::PUT, path: "/b/k", query: "" };
    let chain = SIGNER.sign(target, &mut headers, form, NOW).expect("the request has a host");
    (form, headers, chain)
}

fn unwrap_body(kind: u8, announced: u16, wire: &[u8], piece_bytes: usize) -> (Vec<u8>, Result<Trailers, BodyError>) {
    let (form, mut headers, chain) = form(kind);
    headers.insert("x-amz-decoded-content-length", announced.into());
    let pieces = Pieces(wire.chunks(piece_bytes).map(Bytes::copy_from_slice).collect());
    let options = DecoderOptions { chunk_verification: kind & 0x80 == 0 };
    let mut decoder = Decoder::new(pieces, &headers, &form, chain, options).expect("the length is announced");
    let mut payload = Vec::new();
    loop {
        let next = pin!(decoder.next()).poll(&mut Context::from_waker(Waker::noop()));
        match next {
            Poll::Ready(Ok(Some(piece))) => payload.extend_from_slice(&piece),
            Poll::Ready(Ok(None)) => return (payload, decoder.finish()),
            Poll::Ready(Err(error)) => return (payload, Err(error)),
            Poll::Pending => unreachable!("every piece is ready"),
        }
        assert!(payload.len() <= usize::from(announced), "no more payload leaves than was announced");
    }
}

/// An aws-chunked body: a byte for its form (the top bit: unverified), one for the size of pieces, two for the
/// announced length, then what comes over the wire.
pub fn chunked_body(bytes: &[u8]) {
    let [kind, piece, low, high, wire @ ..] = bytes else { return };
    let announced = u16::from_le_bytes([*low, *high]);
    let whole = unwrap_body(*kind, announced, wire, wire.len().max(1));
    let pieces = unwrap_body(*kind, announced, wire, usize::from(*piece) + 1);
    match (whole, pieces) {
        ((payload, Ok(trailers)), (same, Ok(same_trailers))) => {
            assert_eq!(payload.len(), usize::from(announced));
            assert!(payload == same && trailers == same_trailers);
        }
        ((_, Err(_)), (_, Err(_))) => {}
        (whole, pieces) => panic!("pieces matter: {:?} and {:?}", whole.1, pieces.1),
    }
}

/// The headers of a request: ranges, conditions, checksums, copy sources, metadata.
pub fn request_headers(bytes: &[u8]) {
    let Some((Parts { headers, .. }, _)) = request(bytes) else { return };
    let _ = condition::read_condition(&headers, "");
    let _ = condition::read_condition(&headers, "x-amz-copy-source-");
    let _ = condition::write_condition(&headers);
    let content = content::collect(&headers);
    for kind in 0..3 {
        let _ = DigestPlan::read(&headers, &form(kind).0, Want::default());
    }
    let _ = DigestPlan::read(&headers, &PayloadForm::Unsigned, Want { md5: true, fallback: None });
    let _ = announced_bytes(&headers, &PayloadForm::Unsigned);
    for name in headers.keys().map(HeaderName::as_str) {
        let Ok(Some(value)) = text(&headers, name) else { continue };
        let _ = stored_encoding(value);
        range(value);
        entity_tag(value);
        sources(value);
        let word = mail_word::encode(value);
        assert!(word.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        assert!(value.is_ascii() || mail_word::decode(&word) == value);
        let _ = mail_word::decode(value);
    }
    if let Ok(stored) = content {
        content::give_back(&stored, &mut HeaderMap::new());
    }
}

fn range(value: &str) {
    if let Ok(range) = upload_part_copy::parse_range(value) {
        assert!(range.start < range.end);
    }
    let Some(range) = ByteRange::parse(value) else { return };
    for size in [0, 1, 1000, u64::MAX] {
        if let Some(bytes) = range.within(size) {
            assert!(bytes.start < bytes.end && bytes.end <= size);
        }
    }
}

fn entity_tag(value: &str) {
    if let Some(tag) = etag::parse(value) {
        assert_eq!(tag.to_string(), value.trim_matches('"').trim().to_lowercase(), "an ETag that nobody was given");
    }
    let _ = etag::parse_list("if-match", value);
}

fn sources(value: &str) {
    if let Ok(source) = copy_source::parse_copy_source("x-amz-copy-source", value) {
        let mut again = BytesMut::new();
        percent_encode(&mut again, &format!("/{}/{}", source.bucket, source.key));
        if let Some(version) = source.version {
            again.extend_from_slice(format!("?versionId={version}").as_bytes());
        }
        let again = std::str::from_utf8(&again).expect("percent escapes are ASCII");
        assert!(copy_source::parse_copy_source("", again).is_ok_and(|same| same == source));
    }
    if let Ok(key) = copy_source::parse_rename_source("bucket", value) {
        assert!(!key.is_empty());
    }
}

/// The target of a request: address, query, operation, refusals, continuation tokens.
pub fn request_target(bytes: &[u8]) {
    let Some((parts, body)) = request(bytes) else { return };
    if let Ok(form) = query_api::read(body) {
        assert!(form.pairs().count() <= query_api::FORM_FIELDS_MAX);
        for (name, _) in form.pairs() {
            let field = name.split(".member.").next().unwrap_or_default();
            assert!(query_api::members(&form, field).len() <= query_api::FORM_FIELDS_MAX);
        }
        let _ = query_api::required(&form, "Action");
    }
    if let Ok(text) = std::str::from_utf8(body) {
        page_token(text);
        if let Ok(plain) = decode(text, false) {
            let mut again = BytesMut::new();
            percent_encode(&mut again, &plain);
            let again = std::str::from_utf8(&again).expect("percent escapes are ASCII");
            assert!(decode(again, false).is_ok_and(|same| same == plain));
        }
    }
    let Ok(host) = Host::of(&parts, false) else { return };
    let Ok(target) = Target::parse(host.as_written(), parts.uri.path(), &[DOMAIN.to_owned()]) else { return };
    assert_eq!(target.key.is_empty(), target.scope() != Scope::Object);
    let _ = check_bucket_name(&target.bucket);
    let Ok(query) = Query::parse(parts.uri.query().unwrap_or_default()) else { return };
    for (name, value) in query.pairs() {
        page_token(value);
        let _ = query.number(name, 1);
    }
    let Some(verb) = Verb::of(&parts.method) else { return };
    if let Ok(operation) = route::find(verb, target.scope(), &query, &parts.headers)
        && let Some(policy) = policy::policy(operation)
    {
        let _ = refuse(operation, policy, &query, &parts.headers);
    }
}

/// The text as a token, and as the content of a token.
fn page_token(text: &str) {
    if let Ok((name, is_prefix)) = token::decode(text) {
        assert_eq!(token::encode(&name, is_prefix), text);
    }
    let token = token::encode(text, true);
    assert!(token::decode(&token).is_ok_and(|same| same == (text.to_owned(), true)));
}

fn signed_request(target: &str, payload: PayloadForm, more: &[(&'static str, &'static str)]) -> Vec<u8> {
    let pairs = more.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let mut headers: HeaderMap = pairs.collect();
    headers.insert(http::header::HOST, HeaderValue::from_static(DOMAIN));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let sign_target = SignTarget { method: &Method::GET, path, query };
    SIGNER.sign(sign_target, &mut headers, payload, NOW).expect("the request has a host");
    lines("GET", target, &headers)
}

fn presigned_request() -> Vec<u8> {
    let headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static(DOMAIN))]);
    let target = SignTarget { method: &Method::GET, path: "/b/a%20key", query: "versionId=null" };
    let query = SIGNER.presign(target, &headers, 3600, NOW).expect("an hour is not too long");
    lines("GET", &format!("/b/a%20key?{query}"), &headers)
}

fn signed_v2_request(target: &str) -> Vec<u8> {
    let mut headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static(DOMAIN))]);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let sign_target = SignTarget { method: &Method::GET, path, query };
    SIGNER_V2.sign(sign_target, None, &mut headers, NOW).expect("the request can be signed");
    lines("GET", target, &headers)
}

fn presigned_v2_request() -> Vec<u8> {
    let headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static(DOMAIN))]);
    let target = SignTarget { method: &Method::GET, path: "/b/a%20key", query: "versionId=null&x-amz-meta-a=b" };
    let query = SIGNER_V2.presign(target, None, &headers, NOW.seconds() + 3600).expect("the request can be signed");
    lines("GET", &format!("/b/a%20key?{query}"), &headers)
}

fn chunked_seed(kind: u8) -> Vec<u8> {
    let (form, _, chain) = form(kind);
    let mut encoder = ChunkEncoder::new(form, chain);
    let mut body = vec![kind, 6, 13, 0];
    encoder.chunk(b"some bytes", &mut body);
    encoder.chunk(b"end", &mut body);
    let trailers: &[(&str, &str)] = if form.has_trailer() { &[("x-amz-checksum-crc32", "AAAAAA==")] } else { &[] };
    encoder.finish(trailers, &mut body);
    body
}

/// Real encodings to begin with: target, name, bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let meta = [("x-amz-meta-a", "two  spaces"), ("x-amz-date", "now")];
    let page = format!("GET /?continuation-token={}\nhost: b.{DOMAIN}\n\n", token::encode("a/b", true));
    let mut seeds = forms::seeds();
    seeds.extend([
        ("signature_version_2", "header", signed_v2_request("/b/k%2F+?acl&prefix=%20")),
        ("signature_version_2", "presigned", presigned_v2_request()),
        ("signature", "header", signed_request("/b/k%2F+?a=1&b=%20", PayloadForm::Unsigned, &meta)),
        ("signature", "header_digest", signed_request("/", PayloadForm::Sha256([7; 32]), &[])),
        ("signature", "presigned", presigned_request()),
        ("chunked_body", "unsigned", chunked_seed(0)),
        ("chunked_body", "signed", chunked_seed(1)),
        ("chunked_body", "signed_trailer", chunked_seed(2)),
        ("chunked_body", "unverified", chunked_seed(0x82)),
        ("request_target", "token", page.into_bytes()),
    ]);
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        for (target, name, bytes) in seeds() {
            match target {
                "form_policy" | "form_body" => {}
                "signature" | "signature_version_2" => {
                    signature(&bytes);
                    signature_version_2(&bytes);
                    let (parts, _) = request(&bytes).unwrap();
                    let verifier = Verifier::new(crate::auth::Options::default());
                    let host = Host::of(&parts, false).unwrap();
                    let outcome = verifier.verify(&Head::of(&parts, &host), &OneKey, NOW);
                    assert!(outcome.is_ok(), "{name}: {outcome:?}");
                }
                "chunked_body" => {
                    chunked_body(&bytes);
                    assert!(unwrap_body(bytes[0], 13, &bytes[4..], 7).1.is_ok(), "{name}");
                }
                _ => request_target(&bytes),
            }
        }
    }
}
