//! Encryption as clients ask for it: headers, defaults of buckets, copies, parts, and the refusals.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use margay_s3::Options;
use md5::{Digest, Md5};
use server::{Request, Server};

const SSE: &str = "x-amz-server-side-encryption";
const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CONFIGURATION: &str = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>\
    <SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";

trait Keyed {
    fn keyed(self, number: u8) -> Self;
    fn keyed_source(self, number: u8) -> Self;
}

fn with_key<'s>(request: Request<'s>, prefix: &str, number: u8) -> Request<'s> {
    let key = [number; 32];
    request
        .header(&format!("{prefix}server-side-encryption-customer-algorithm"), "AES256")
        .header(&format!("{prefix}server-side-encryption-customer-key"), &BASE64_STANDARD.encode(key))
        .header(&format!("{prefix}server-side-encryption-customer-key-MD5"), &BASE64_STANDARD.encode(Md5::digest(key)))
}

impl Keyed for Request<'_> {
    fn keyed(self, number: u8) -> Self {
        with_key(self, "x-amz-", number)
    }

    fn keyed_source(self, number: u8) -> Self {
        with_key(self, "x-amz-copy-source-", number)
    }
}

/// With the key of a customer, or as it is.
fn asked(request: Request<'_>, customer: bool) -> Request<'_> {
    if customer { request.keyed(1) } else { request }
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn quoted_md5(body: &[u8]) -> String {
    let digits: String = Md5::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

#[tokio::test]
async fn under_the_servers_key_everything_is_as_without() {
    let server = Server::with_bucket().await;
    for len in [0, 1, 100, 70_000, 300_001] {
        let body = body(len);
        let put = server.request("PUT", "/bucket/k").header(SSE, "AES256").body(body.clone()).send().await.expect(200);
        assert_eq!((put.header(SSE), put.header("etag")), ("AES256", quoted_md5(&body).as_str()));
        let got = server.get("/bucket/k").await.expect(200);
        assert_eq!(got.header(SSE), "AES256");
        assert!(got.body == body, "{len} bytes");
        if len > 66_000 {
            let part = server.request("GET", "/bucket/k").header("range", "bytes=65530-65999").send().await.expect(206);
            assert!(part.body == body[65_530..66_000]);
        }
        let head = server.request("HEAD", "/bucket/k").send().await.expect(200);
        assert_eq!((head.header(SSE), head.header("content-length")), ("AES256", len.to_string().as_str()));
    }
    let listed = server.get("/bucket?list-type=2").await.expect(200);
    assert_eq!(listed.element("Size"), "300001");
    server.request("GET", "/bucket/k").keyed(1).send().await.refused(400, "InvalidRequest");
    let dsse = server.request("PUT", "/bucket/k").header(SSE, "aws:kms:dsse").body("x").send().await;
    assert!(dsse.refused(501, "NotImplemented").text().contains("aws:kms:dsse"));
    for (name, value) in [(SSE, "AES192"), (SSE, "aes:kms"), (KMS_KEY, "a-key")] {
        server.request("PUT", "/bucket/k").header(name, value).body("x").send().await.refused(400, "InvalidArgument");
    }
    for method in ["AES256", "aws:kms"] {
        let both = server.request("PUT", "/bucket/k").header(SSE, method).keyed(1).body("x").send().await;
        both.refused(400, "InvalidArgument");
    }
}

#[tokio::test]
async fn a_bucket_has_a_default() {
    let server = Server::with_bucket().await;
    server.get("/bucket?encryption").await.refused(404, "ServerSideEncryptionConfigurationNotFoundError");
    server.put("/bucket/before", "plain").await.expect(200);
    server.put("/bucket?encryption", CONFIGURATION).await.expect(200);
    let shown = server.get("/bucket?encryption").await.expect(200);
    assert_eq!(shown.element("SSEAlgorithm"), "AES256");
    assert_eq!(server.put("/bucket/k", "body").await.expect(200).header(SSE), "AES256");
    assert_eq!(server.get("/bucket/k").await.expect(200).header(SSE), "AES256");
    assert_eq!(server.get("/bucket/before").await.expect(200).header(SSE), "");
    let copied = server.request("PUT", "/bucket/copy").header("x-amz-copy-source", "/bucket/before").send().await;
    assert_eq!(copied.expect(200).header(SSE), "AES256");
    let got = server.get("/bucket/copy").await.expect(200);
    assert_eq!((got.header(SSE), got.text()), ("AES256", "plain"));
    let dsse = CONFIGURATION.replace("AES256", "aws:kms:dsse");
    server.put("/bucket?encryption", dsse).await.refused(501, "NotImplemented");
    server.delete("/bucket?encryption").await.expect(204);
    server.get("/bucket?encryption").await.refused(404, "ServerSideEncryptionConfigurationNotFoundError");
    assert_eq!(server.put("/bucket/k", "body").await.expect(200).header(SSE), "");
}

fn under<'s>(request: Request<'s>, key: &str) -> Request<'s> {
    request.header(SSE, "aws:kms").header(KMS_KEY, key)
}

#[tokio::test]
async fn a_key_of_the_key_file_is_asked_for_by_its_id() {
    let server = Server::with_bucket().await;
    let body = body(70_000);
    let put = under(server.request("PUT", "/bucket/k"), "key-1").body(body.clone()).send().await.expect(200);
    assert_eq!((put.header(SSE), put.header(KMS_KEY)), ("aws:kms", "key-1"));
    for method in ["GET", "HEAD"] {
        let read = server.request(method, "/bucket/k").send().await.expect(200);
        assert_eq!((read.header(SSE), read.header(KMS_KEY)), ("aws:kms", "key-1"));
        assert_eq!(under(server.request(method, "/bucket/k"), "key-1").send().await.status, 400);
    }
    assert!(server.get("/bucket/k").await.expect(200).body == body);
    under(server.request("PUT", "/bucket/x"), "key-3").body("x").send().await.refused(400, "InvalidArgument");
    // There is no key `aws/s3` in the file.
    server.request("PUT", "/bucket/x").header(SSE, "aws:kms").body("x").send().await.refused(400, "InvalidArgument");
    let copy = server.request("PUT", "/bucket/copy").header("x-amz-copy-source", "/bucket/k");
    let copied = under(copy, "key-2").send().await.expect(200);
    assert_eq!(copied.header(KMS_KEY), "key-2");
    let got = server.get("/bucket/copy").await.expect(200);
    assert!(got.header(KMS_KEY) == "key-2" && got.body == body);
    let default =
        CONFIGURATION.replace("AES256</SSEAlgorithm>", "aws:kms</SSEAlgorithm><KMSMasterKeyID>key-2</KMSMasterKeyID>");
    server.put("/bucket?encryption", default).await.expect(200);
    assert_eq!(server.get("/bucket?encryption").await.expect(200).element("KMSMasterKeyID"), "key-2");
    assert_eq!(server.put("/bucket/d", "x").await.expect(200).header(KMS_KEY), "key-2");
    assert_eq!(server.get("/bucket/d").await.expect(200).text(), "x");
}

#[tokio::test]
async fn a_customers_key_is_needed_each_time() {
    let server = Server::with_bucket().await;
    let body = body(200_000);
    let put = server.request("PUT", "/bucket/k").keyed(1).body(body.clone()).send().await.expect(200);
    assert_eq!(put.header("x-amz-server-side-encryption-customer-algorithm"), "AES256");
    let md5 = BASE64_STANDARD.encode(Md5::digest([1; 32]));
    assert_eq!(put.header("x-amz-server-side-encryption-customer-key-md5"), md5);
    assert_ne!(put.header("etag"), quoted_md5(&body), "the ETag tells nothing of the content");
    assert!(put.headers.get("x-amz-server-side-encryption-customer-key").is_none());
    for method in ["GET", "HEAD"] {
        let request = || server.request(method, "/bucket/k");
        assert_eq!(request().send().await.status, 400, "{method}");
        assert_eq!(request().keyed(2).send().await.status, 403, "{method}");
        request().keyed(1).send().await.expect(200);
    }
    server.get("/bucket/k").await.refused(400, "InvalidRequest");
    server.request("GET", "/bucket/k").keyed(2).send().await.refused(403, "AccessDenied");
    assert!(server.request("GET", "/bucket/k").keyed(1).send().await.expect(200).body == body);
    let range = server.request("GET", "/bucket/k").keyed(1).header("range", "bytes=-10").send().await.expect(206);
    assert!(range.body == body[199_990..]);
    server.put("/bucket/plain", "x").await.expect(200);
    server.request("GET", "/bucket/plain").keyed(1).send().await.refused(400, "InvalidRequest");
    server.delete("/bucket/k").await.expect(204);
}

#[tokio::test]
async fn copies_change_keys() {
    let server = Server::with_bucket().await;
    let body = body(150_000);
    server.request("PUT", "/bucket/k").keyed(1).body(body.clone()).send().await.expect(200);
    let copy = |to: &str| server.request("PUT", &format!("/bucket/{to}")).header("x-amz-copy-source", "/bucket/k");
    copy("x").send().await.refused(400, "InvalidRequest");
    copy("x").keyed_source(2).send().await.refused(403, "AccessDenied");
    copy("other").keyed_source(1).keyed(3).send().await.expect(200);
    copy("server").keyed_source(1).header(SSE, "AES256").send().await.expect(200);
    // Nothing was said of the copy: it is not made plain by that.
    copy("silent").keyed_source(1).send().await.expect(200);
    assert!(server.request("GET", "/bucket/other").keyed(3).send().await.expect(200).body == body);
    for key in ["server", "silent"] {
        let got = server.get(&format!("/bucket/{key}")).await.expect(200);
        assert!(got.header(SSE) == "AES256" && got.body == body);
    }
    // Onto itself, with another key.
    copy("k").keyed_source(1).keyed(4).send().await.expect(200);
    assert!(server.request("GET", "/bucket/k").keyed(4).send().await.expect(200).body == body);
    server.put("/bucket/plain", body.clone()).await.expect(200);
    let from_plain = server.request("PUT", "/bucket/moved").header("x-amz-copy-source", "/bucket/plain");
    from_plain.keyed(5).send().await.expect(200);
    assert!(server.request("GET", "/bucket/moved").keyed(5).send().await.expect(200).body == body);
}

#[tokio::test]
async fn a_copy_onto_itself_encrypts_in_place() {
    let server = Server::with_bucket().await;
    let body = body(150_000);
    let put = server.request("PUT", "/bucket/k").header("x-amz-meta-name", "cat").header("x-amz-tagging", "a=b");
    put.body(body.clone()).send().await.expect(200);
    let onto = || server.request("PUT", "/bucket/k").header("x-amz-copy-source", "/bucket/k");
    onto().send().await.refused(400, "InvalidRequest");
    assert_eq!(onto().header(SSE, "AES256").send().await.expect(200).header(SSE), "AES256");
    onto().keyed(1).send().await.expect(200);
    let got = server.request("GET", "/bucket/k").keyed(1).send().await.expect(200);
    assert!(got.body == body);
    assert_eq!((got.header("x-amz-meta-name"), got.header("x-amz-tagging-count")), ("cat", "1"));
    assert_ne!(got.header("etag"), quoted_md5(&body), "nor does that of a copy");
    let report = server.volume.fsck(margay_volume::FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

#[tokio::test]
async fn a_copy_onto_itself_leaves_a_customers_key() {
    let server = Server::with_bucket().await;
    let body = body(150_000);
    server.request("PUT", "/bucket/k").keyed(1).body(body.clone()).send().await.expect(200);
    let onto = || server.request("PUT", "/bucket/k").header("x-amz-copy-source", "/bucket/k");
    assert_eq!(onto().keyed_source(2).send().await.status, 403);
    assert_eq!(onto().keyed_source(1).send().await.expect(200).header(SSE), "AES256");
    assert!(server.get("/bucket/k").await.expect(200).body == body);
}

/// As those of UploadPart.
#[tokio::test]
async fn copied_parts_may_repeat_what_their_upload_says() {
    let server = Server::with_bucket().await;
    server.put("/bucket/source", "x").await.expect(200);
    let begun = server.request("POST", "/bucket/k?uploads").header(SSE, "AES256").send().await.expect(200);
    let part = format!("/bucket/k?partNumber=1&uploadId={}", begun.element("UploadId"));
    let copy = |value| {
        let part = server.request("PUT", &part).header("x-amz-copy-source", "/bucket/source");
        part.header(SSE, value)
    };
    copy("AES256").send().await.expect(200);
    assert_eq!(copy("aws:kms").send().await.status, 400);
}

#[tokio::test]
async fn versions_are_read_with_their_own_key() {
    let server = Server::with_bucket().await;
    let document = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    server.put("/bucket?versioning", document).await.expect(200);
    let put = |number| server.request("PUT", "/bucket/k").keyed(number).body("x".repeat(number.into()));
    let first = put(1).send().await.expect(200).header("x-amz-version-id").to_owned();
    put(2).send().await.expect(200);
    let old = format!("/bucket/k?versionId={first}");
    for method in ["GET", "HEAD"] {
        assert_eq!(server.request(method, &old).send().await.status, 400);
        assert_eq!(server.request(method, &old).keyed(2).send().await.status, 403);
        assert_eq!(server.request(method, &old).keyed(1).send().await.expect(200).header("content-length"), "1");
    }
    let back = server.request("PUT", "/bucket/k").header("x-amz-copy-source", &old).keyed_source(1).keyed(3);
    back.send().await.expect(200);
    assert_eq!(server.request("GET", "/bucket/k").keyed(3).send().await.expect(200).text(), "x");
}

#[tokio::test]
async fn without_tls_no_key_is_taken() {
    let server = Server::start_with(Options::default()).await;
    server.volume.create_bucket("bucket").await.unwrap();
    let refused = server.request("PUT", "/bucket/k").keyed(1).body("x").send().await;
    assert!(refused.refused(400, "InvalidRequest").text().contains("secure connection"));
}

#[tokio::test]
async fn parts_may_repeat_what_their_upload_says_and_nothing_else() {
    let server = Server::with_bucket().await;
    let begun = server.request("POST", "/bucket/k?uploads").header(SSE, "AES256").send().await.expect(200);
    let path = format!("/bucket/k?partNumber=1&uploadId={}", begun.element("UploadId"));
    let part = || server.request("PUT", &path).body("x");
    part().header(SSE, "AES256").send().await.expect(200);
    part().header(SSE, "aws:kms").send().await.refused(400, "InvalidArgument");
    part().header(SSE, "aws:kms").header(KMS_KEY, "other").send().await.refused(400, "InvalidArgument");
    part().header(KMS_KEY, "other").send().await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn parts_take_the_key_of_their_upload() {
    let server = Server::with_bucket().await;
    let (first, last) = (body(5 << 20), body(70_000));
    server.request("PUT", "/bucket/source").keyed(2).body(last.clone()).send().await.expect(200);
    for customer in [false, true] {
        let begin = server.request("POST", "/bucket/k?uploads=");
        let begin = if customer { begin.keyed(1) } else { begin.header(SSE, "AES256") };
        let upload = begin.send().await.expect(200).element("UploadId").to_owned();
        let path = |number: u8| format!("/bucket/k?partNumber={number}&uploadId={upload}");
        let one = asked(server.request("PUT", &path(1)), customer).body(first.clone()).send().await.expect(200);
        if customer {
            let part = server.request("PUT", &path(2));
            part.body("x").send().await.refused(400, "InvalidRequest");
            server.request("PUT", &path(2)).keyed(2).body("x").send().await.refused(400, "InvalidRequest");
        }
        let copied = server.request("PUT", &path(2)).header("x-amz-copy-source", "/bucket/source").keyed_source(2);
        let copied = asked(copied, customer).send().await.expect(200);
        let part =
            |number: u8, etag: &str| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        let list = part(1, one.header("etag")) + &part(2, copied.element("ETag"));
        let document = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
        let path = format!("/bucket/k?uploadId={upload}");
        if customer {
            let wrong = server.request("POST", &path).keyed(2).body(document.clone()).send().await;
            wrong.refused(400, "InvalidRequest");
            for (name, value) in [(SSE, "AES256"), (KMS_KEY, "key-1")] {
                let other = server.request("POST", &path).header(name, value).body(document.clone()).send().await;
                other.refused(400, "InvalidRequest");
            }
        }
        server.request("POST", &path).body(document).send().await.expect(200);
        let got = asked(server.request("GET", "/bucket/k"), customer).send().await.expect(200);
        assert!(got.body == [first.clone(), last.clone()].concat());
        let second = asked(server.request("GET", "/bucket/k?partNumber=2"), customer).send().await.expect(206);
        assert!(second.body == last);
    }
}
