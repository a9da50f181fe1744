//! Everything that a client announces of a body is compared, in every form of upload, before anything of it is visible.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use http::HeaderMap;
use margay_s3::Options;
use margay_s3::auth::PayloadForm;
use margay_s3::body::{Algorithm, DecoderOptions, DigestPlan, Trailers, Want};
use server::{Answer, Server};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const UNSIGNED_TRAILER: PayloadForm = PayloadForm::StreamingUnsignedTrailer;
const CHUNKED: [PayloadForm; 3] =
    [PayloadForm::StreamingSigned, PayloadForm::StreamingSignedTrailer, PayloadForm::StreamingUnsignedTrailer];
/// One that stays in memory until its commit, and one that goes to a segment and is hashed on another thread.
const SIZES: [usize; 2] = [1000, 300_000];

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 7) >> 2) as u8).collect()
}

/// A checksum in Base64, and one of other bytes.
fn checksum(algorithm: Algorithm, body: &[u8]) -> String {
    let want = Want { md5: false, fallback: Some(algorithm) };
    let mut digests = DigestPlan::read(&HeaderMap::new(), &PayloadForm::Unsigned, want).unwrap().digests();
    digests.update(body);
    digests.finish(&Trailers::default()).unwrap().checksum.unwrap().base64()
}

fn md5(body: &[u8]) -> String {
    use base64::Engine as _;
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(body))
}

fn sha256(body: &[u8]) -> PayloadForm {
    PayloadForm::Sha256(ring::digest::digest(&ring::digest::SHA256, body).as_ref().try_into().unwrap())
}

/// Where bodies go: an object, and a part of an upload.
struct UploadTarget {
    path: String,
    /// What shows whether anything arrived.
    look: String,
}

async fn targets(server: &Server) -> [UploadTarget; 2] {
    let created = server.request("POST", "/bucket/parts?uploads").send().await.expect(200);
    let id = created.element("UploadId").to_owned();
    [
        UploadTarget { path: "/bucket/k".to_owned(), look: "/bucket?prefix=k".to_owned() },
        UploadTarget {
            path: format!("/bucket/parts?partNumber=1&uploadId={id}"),
            look: format!("/bucket/parts?uploadId={id}"),
        },
    ]
}

impl UploadTarget {
    /// Whether something is there.
    async fn holds(&self, server: &Server) -> bool {
        let listed = server.get(&self.look).await.expect(200);
        listed.text().contains("<ETag>")
    }

    async fn put(
        &self,
        server: &Server,
        form: PayloadForm,
        headers: &[(&str, &str)],
        trailers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut put = server.request("PUT", &self.path);
        for (name, value) in headers {
            put = put.header(name, value);
        }
        match form.is_chunked() {
            true => put.send_chunked(form, body, trailers).await,
            false => put.form(form).body(body).send().await,
        }
    }
}

#[tokio::test]
async fn headers_are_compared_in_every_form() {
    let server = Server::with_bucket().await;
    for target in targets(&server).await {
        for len in SIZES {
            let body = body(len);
            let other = &body[1..];
            for form in [PayloadForm::Unsigned, sha256(&body)].into_iter().chain(CHUNKED) {
                for algorithm in Algorithm::ALL {
                    let wrong = [(algorithm.header(), &*checksum(algorithm, other))];
                    target.put(&server, form, &wrong, &[], &body).await.refused(400, "BadDigest");
                }
                let wrong = md5(other);
                target.put(&server, form, &[("content-md5", &wrong)], &[], &body).await.refused(400, "BadDigest");
                let both =
                    [("content-md5", wrong.as_str()), ("x-amz-checksum-crc32", &checksum(Algorithm::Crc32, &body))];
                target.put(&server, form, &both, &[], &body).await.refused(400, "BadDigest");
            }
            target.put(&server, sha256(other), &[], &[], &body).await.refused(400, "XAmzContentSHA256Mismatch");
        }
        assert!(!target.holds(&server).await, "{}", target.path);
        let body = body(SIZES[1]);
        for form in [PayloadForm::Unsigned, sha256(&body)].into_iter().chain(CHUNKED) {
            for algorithm in Algorithm::ALL {
                let right = checksum(algorithm, &body);
                let headers = [(algorithm.header(), right.as_str()), ("content-md5", &md5(&body))];
                let stored = target.put(&server, form, &headers, &[], &body).await.expect(200);
                assert_eq!(stored.header(algorithm.header()), right);
            }
        }
        assert!(target.holds(&server).await, "{}", target.path);
    }
}

#[tokio::test]
async fn trailers_are_compared_in_every_form() {
    let server = Server::with_bucket().await;
    for target in targets(&server).await {
        for (len, form) in SIZES.into_iter().flat_map(|len| CHUNKED[1..].iter().map(move |form| (len, *form))) {
            let body = body(len);
            for algorithm in Algorithm::ALL {
                let name = algorithm.header();
                let wrong = checksum(algorithm, &body[1..]);
                target.put(&server, form, &[], &[(name, &wrong)], &body).await.refused(400, "BadDigest");
                target.put(&server, form, &[], &[(name, "?")], &body).await.refused(400, "InvalidRequest");
                let missing = [("x-amz-trailer", name)];
                target.put(&server, form, &missing, &[], &body).await.refused(400, "MalformedTrailerError");
                let two = [(name, wrong.as_str()), ("x-amz-more", "1")];
                target.put(&server, form, &[], &two, &body).await.refused(400, "MalformedTrailerError");
            }
        }
        assert!(!target.holds(&server).await, "{}", target.path);
        for form in &CHUNKED[1..] {
            for algorithm in Algorithm::ALL {
                let body = body(SIZES[1]);
                let right = checksum(algorithm, &body);
                let stored = target.put(&server, *form, &[], &[(algorithm.header(), &right)], &body).await.expect(200);
                assert_eq!(stored.header(algorithm.header()), right);
            }
        }
    }
}

/// What a request with altered payload comes to.
async fn altered(server: &Server, form: PayloadForm, headers: &[(&str, &str)]) -> Answer {
    let body = body(SIZES[1]);
    let mut put = server.request("PUT", "/bucket/k");
    for (name, value) in headers {
        put = put.header(name, value);
    }
    let mut wire = match form.is_chunked() {
        true => put.chunked_bytes(form, &body, &[]),
        false => put.form(form).body(body).bytes(),
    };
    let last = wire.len() - 1000;
    wire[last] ^= 1;
    server.raw(&wire, false).await
}

#[tokio::test]
async fn signed_payloads_cannot_be_altered() {
    let server = Server::with_bucket().await;
    altered(&server, sha256(&body(SIZES[1])), &[]).await.refused(400, "XAmzContentSHA256Mismatch");
    for form in &CHUNKED[..2] {
        altered(&server, *form, &[]).await.refused(403, "SignatureDoesNotMatch");
    }
    assert!(!server.has("/bucket/k").await);
}

#[tokio::test]
async fn without_chunk_verification_only_the_hash_of_the_signature_goes() {
    let decoder = DecoderOptions { chunk_verification: false };
    let server = Server::start_with(Options { decoder, ..Options::default() }).await;
    server.volume.create_bucket("bucket").await.unwrap();
    let right = md5(&body(SIZES[1]));
    for form in [sha256(&body(SIZES[1])), CHUNKED[0], CHUNKED[1]] {
        altered(&server, form, &[]).await.expect(200);
        altered(&server, form, &[("content-md5", &right)]).await.refused(400, "BadDigest");
        for algorithm in Algorithm::ALL {
            let sum = checksum(algorithm, &body(SIZES[1]));
            altered(&server, form, &[(algorithm.header(), &sum)]).await.refused(400, "BadDigest");
        }
    }
    server.delete("/bucket/k").await.expect(204);
    // The framing and the announced length hold all the same, and so do trailers.
    for (wire, announced) in [("6\r\nhello!\r\n0\r\n\r\n", 5), ("5\r\nhello\r\n", 5), ("5\r\nhelloXX0\r\n\r\n", 5)] {
        let put = server.request("PUT", "/bucket/k").form(UNSIGNED_TRAILER);
        let put = put.header("x-amz-decoded-content-length", &announced.to_string()).body(wire);
        assert_eq!(put.send().await.status, 400, "{wire:?}");
    }
    let wrong = [("x-amz-checksum-crc32c", "AAAAAA==")];
    for form in &CHUNKED[1..] {
        let put = server.request("PUT", "/bucket/k").send_chunked(*form, &body(1000), &wrong).await;
        put.refused(400, "BadDigest");
    }
    // Documents are verified always.
    let document = "<Delete><Object><Key>k</Key></Object></Delete>";
    let delete = server.request("POST", "/bucket?delete").header("content-md5", &md5(document.as_bytes()));
    delete.form(PayloadForm::Sha256([1; 32])).body(document).send().await.refused(400, "XAmzContentSHA256Mismatch");
    assert!(!server.has("/bucket/k").await);
}

/// The old object is there until the last byte of the new one has been judged.
#[tokio::test]
async fn nothing_is_visible_before_the_last_check() {
    let server = Server::with_bucket().await;
    for (len, form) in SIZES.into_iter().flat_map(|len| CHUNKED[1..].iter().map(move |form| (len, *form))) {
        server.put("/bucket/k", "old").await.expect(200);
        for right in [false, true] {
            let body = body(len);
            let sum = if right { checksum(Algorithm::Crc64Nvme, &body) } else { "AAAAAAAAAAA=".to_owned() };
            let trailer = [(Algorithm::Crc64Nvme.header(), sum.as_str())];
            let wire = server.request("PUT", "/bucket/k").chunked_bytes(form, &body, &trailer);
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let (first, last) = wire.split_at(wire.len() - 1);
            for piece in first.chunks(100_000) {
                stream.write_all(piece).await.unwrap();
                assert_eq!(server.get("/bucket/k").await.text(), "old");
            }
            stream.write_all(last).await.unwrap();
            let answer = Answer::read(&mut stream, false).await;
            assert_eq!(answer.status, if right { 200 } else { 400 });
            assert_eq!(server.get("/bucket/k").await.body == body, right);
        }
    }
}

/// What minio-go names so is checked where a value comes with it, and computed where none does.
#[tokio::test]
async fn an_algorithm_that_is_asked_for_is_computed() {
    let server = Server::with_bucket().await;
    let body = body(300_000);
    let (name, sum) = (Algorithm::Sha256.header(), checksum(Algorithm::Sha256, &body));
    let mut all = targets(&server).await.map(|target| target.path).to_vec();
    all.push("/bucket/copy".to_owned());
    for path in &all {
        let put = || server.request("PUT", path).header("x-amz-checksum-algorithm", "SHA256");
        if path == "/bucket/copy" {
            let copied = put().header("x-amz-copy-source", "/bucket/k").send().await.expect(200);
            assert_eq!(copied.element("ChecksumSHA256"), sum);
            continue;
        }
        assert_eq!(put().body(body.clone()).send().await.expect(200).header(name), sum);
        put().header(name, &sum).body(body.clone()).send().await.expect(200);
        let other = put().header("x-amz-checksum-crc32", &checksum(Algorithm::Crc32, &body)).body(body.clone());
        other.send().await.refused(400, "InvalidRequest");
    }
    for key in ["k", "copy"] {
        let got = server.request("GET", &format!("/bucket/{key}")).header("x-amz-checksum-mode", "ENABLED");
        let got = got.send().await.expect(200);
        assert!(got.body == body && got.header(name) == sum, "{key}");
    }
    // Onto itself, another checksum replaces the first.
    let onto = server.request("PUT", "/bucket/k").header("x-amz-copy-source", "/bucket/k");
    onto.header("x-amz-checksum-algorithm", "CRC32").send().await.expect(200);
    let got = server.request("HEAD", "/bucket/k").header("x-amz-checksum-mode", "ENABLED").send().await.expect(200);
    assert_eq!(got.header("x-amz-checksum-crc32"), checksum(Algorithm::Crc32, &body));
    assert_eq!(got.header(name), "");
}

/// minio-go says of a body in one piece that its checksum is that of the whole object.
#[tokio::test]
async fn the_checksum_of_a_put_may_be_called_that_of_the_full_object() {
    let server = Server::with_bucket().await;
    let body = body(1000);
    let sum = checksum(Algorithm::Crc64Nvme, &body);
    let put = |kind: &str| {
        let put = server.request("PUT", "/bucket/k").header("x-amz-checksum-crc64nvme", &sum);
        put.header("x-amz-checksum-type", kind).body(body.clone())
    };
    put("FULL_OBJECT").send().await.expect(200);
    let got = server.request("HEAD", "/bucket/k").header("x-amz-checksum-mode", "ENABLED").send().await.expect(200);
    assert_eq!(got.header("x-amz-checksum-type"), "FULL_OBJECT");
    put("COMPOSITE").send().await.refused(501, "NotImplemented");
}
