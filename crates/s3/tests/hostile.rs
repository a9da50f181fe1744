//! Broken or hostile requests: a clear error, nothing stored, and the server continues.

mod server;

use margay_s3::auth::PayloadForm;
use server::{EXCHANGE_TIME_MAX, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn wrong_digests_store_nothing() {
    let server = Server::with_bucket().await;
    for (name, value, code) in [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==", "BadDigest"),
        ("content-md5", "short", "InvalidDigest"),
        ("x-amz-checksum-crc32c", "AAAAAA==", "BadDigest"),
        ("x-amz-checksum-crc32c", "!", "InvalidRequest"),
        ("x-amz-checksum-sha512", "AAAA", "NotImplemented"),
    ] {
        for len in [5, 3_000_000] {
            let put = server.request("PUT", "/bucket/k").header(name, value).body(vec![b'x'; len]);
            let status = if code == "NotImplemented" { 501 } else { 400 };
            put.send().await.refused(status, code);
        }
    }
    let put = server.request("PUT", "/bucket/k").form(PayloadForm::Sha256([1; 32])).body("hello");
    put.send().await.refused(400, "XAmzContentSHA256Mismatch");
    assert!(!server.has("/bucket/k").await);
}

#[tokio::test]
async fn chunked_bodies_are_checked_to_the_last_byte() {
    let server = Server::with_bucket().await;
    let put = || server.request("PUT", "/bucket/k");
    let body = vec![b'x'; 200_000];
    let trailer = [("x-amz-checksum-crc32c", "AAAAAA==")];
    for form in [PayloadForm::StreamingUnsignedTrailer, PayloadForm::StreamingSignedTrailer] {
        put().send_chunked(form, &body, &trailer).await.refused(400, "BadDigest");
    }
    assert!(!server.has("/bucket/k").await);
    put().send_chunked(PayloadForm::StreamingSigned, &body, &[]).await.expect(200);
    assert_eq!(server.get("/bucket/k").await.body, body);
    let mnemonic = [("x-amz-checksum-crc32c", "mnG7TA==")];
    put().send_chunked(PayloadForm::StreamingUnsignedTrailer, b"hello", &mnemonic).await.expect(200);
    let got = server.request("GET", "/bucket/k").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!((got.text(), got.header("x-amz-checksum-crc32c")), ("hello", "mnG7TA=="));
}

#[tokio::test]
async fn half_chunks_store_nothing() {
    let server = Server::with_bucket().await;
    let form = PayloadForm::StreamingUnsignedTrailer;
    for (wire, announced) in [
        ("5\r\nhel", 5),
        ("5\r\nhello\r\n", 5),
        ("5\r\nhello\r\n0\r\n\r\n", 6),
        ("6\r\nhello!\r\n0\r\n\r\n", 5),
        ("zz\r\nhello\r\n0\r\n\r\n", 5),
        ("5\r\nhelloXX0\r\n\r\n", 5),
        ("ffffffffffffffff\r\n", 5),
    ] {
        let put = server.request("PUT", "/bucket/k").form(form);
        let put = put.header("x-amz-decoded-content-length", &announced.to_string()).body(wire);
        assert_eq!(put.send().await.status, 400, "{wire:?}");
    }
    let lengthless = server.request("PUT", "/bucket/k").form(form).body("0\r\n\r\n").send().await;
    lengthless.refused(411, "MissingContentLength");
    assert!(!server.has("/bucket/k").await);
}

#[tokio::test]
async fn truncated_and_oversized_bodies_store_nothing() {
    let server = Server::with_bucket().await;
    let cut = server.request("PUT", "/bucket/k").header("content-length", "100").body("only this").bytes();
    assert!([0, 400].contains(&server.raw(&cut, true).await.status));
    let huge = server.request("PUT", "/bucket/k").header("content-length", &(6u64 << 30).to_string());
    huge.send().await.refused(400, "EntityTooLarge");
    // Without a length the body ends where its last chunk says so, and not with the connection.
    let endless = server.request("PUT", "/bucket/k").header("transfer-encoding", "chunked").bytes();
    let endless = [endless, b"5\r\nhello\r\n".to_vec()].concat();
    assert!([0, 400].contains(&server.raw(&endless, true).await.status));
    let silent = server.request("PUT", "/bucket/k?partNumber=1&uploadId=u").header("transfer-encoding", "chunked");
    let silent = [silent.bytes(), b"0\r\n\r\n".to_vec()].concat();
    server.raw(&silent, false).await.refused(411, "MissingContentLength");
    assert!(!server.has("/bucket/k").await);
}

#[tokio::test]
async fn a_body_of_unknown_length_is_stored_whole() {
    let server = Server::with_bucket().await;
    for len in [0, 5, 300_000] {
        let put = server.request("PUT", "/bucket/k").header("transfer-encoding", "chunked");
        let mut bytes = put.header("content-md5", &md5(&vec![b'x'; len])).bytes();
        for piece in vec![b'x'; len].chunks(70_000) {
            bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            bytes.extend(piece);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        server.raw(&bytes, false).await.expect(200);
        assert_eq!(server.get("/bucket/k").await.expect(200).body, vec![b'x'; len]);
    }
    let wrong = server.request("PUT", "/bucket/k").header("transfer-encoding", "chunked");
    let wrong = wrong.header("content-md5", &md5(b"other")).bytes();
    server.raw(&[wrong, b"1\r\ny\r\n0\r\n\r\n".to_vec()].concat(), false).await.refused(400, "BadDigest");
    assert_eq!(server.get("/bucket/k").await.expect(200).body.len(), 300_000);
}

fn md5(body: &[u8]) -> String {
    use base64::Engine as _;
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(body))
}

#[tokio::test]
async fn bad_documents_change_nothing() {
    let server = Server::with_bucket().await;
    server.put("/bucket/k", "x").await.expect(200);
    let entities = "<!DOCTYPE d [<!ENTITY a \"b\">]><Delete><Object><Key>&a;</Key></Object></Delete>";
    let deep = "<a>".repeat(100_000);
    for document in ["", "<Delete>", "<Delete><Object><Key>k</Key></Object>", "no xml", entities, &deep] {
        let post = server.request("POST", "/bucket?delete").header("content-md5", &md5(document.as_bytes()));
        let post = post.body(document);
        post.send().await.refused(400, "MalformedXML");
    }
    let long = server.request("POST", "/bucket?delete").header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    long.body(vec![b' '; 5 << 20]).send().await.refused(400, "MaxMessageLengthExceeded");
    assert!(server.has("/bucket/k").await);
}

#[tokio::test]
async fn absurd_heads_are_refused() {
    let server = Server::with_bucket().await;
    let meta = server.request("PUT", "/bucket/k").header("x-amz-meta-k", &"v".repeat(3000)).body("x");
    meta.send().await.refused(400, "MetadataTooLarge");
    server.put(&format!("/bucket/{}", "k".repeat(1025)), "x").await.refused(400, "KeyTooLongError");
    let many = server.request("GET", &format!("/bucket?{}", "a&".repeat(200))).send().await;
    many.refused(400, "InvalidURI");
    for target in ["/bucket/%ff", "/bucket/%zz", "/bucket/%", "/bucket?prefix=%ff"] {
        let bytes = format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n");
        server.raw(bytes.as_bytes(), false).await.refused(400, "InvalidURI");
    }
    let flood = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "x-a: b\r\n".repeat(100_000));
    assert!([0, 431].contains(&server.raw(flood.as_bytes(), false).await.status));
    assert!([0, 400].contains(&server.raw(b"\x16\x03\x01\x00\xa5\x01 not http\r\n\r\n", true).await.status));
    server.get("/bucket").await.expect(200);
}

#[tokio::test]
async fn a_refused_request_earns_no_continue() {
    let server = Server::with_bucket().await;
    let bytes = server.request("PUT", "/nowhere/k").header("expect", "100-continue").header("content-length", "5");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes.bytes()).await.unwrap();
    let mut buffer = vec![0; 4096];
    let count = tokio::time::timeout(EXCHANGE_TIME_MAX, stream.read(&mut buffer)).await.unwrap().unwrap();
    assert!(buffer[..count].starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&buffer[..count]));
    let welcome = server.request("PUT", "/bucket/k").header("expect", "100-continue").header("content-length", "5");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&welcome.bytes()).await.unwrap();
    let count = tokio::time::timeout(EXCHANGE_TIME_MAX, stream.read(&mut buffer)).await.unwrap().unwrap();
    assert!(buffer[..count].starts_with(b"HTTP/1.1 100"));
    stream.write_all(b"hello").await.unwrap();
    let count = tokio::time::timeout(EXCHANGE_TIME_MAX, stream.read(&mut buffer)).await.unwrap().unwrap();
    assert!(buffer[..count].starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_outlives_a_refused_body() {
    let server = Server::with_bucket().await;
    let refused = server.put_bytes("/nowhere/k", 1_000_000);
    let next = server.request("GET", "/bucket").header("connection", "close").bytes();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&refused).await.unwrap();
    stream.write_all(&next).await.unwrap();
    let mut answers = Vec::new();
    tokio::time::timeout(EXCHANGE_TIME_MAX, stream.read_to_end(&mut answers)).await.unwrap().unwrap();
    let answers = String::from_utf8(answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 404") && answers.contains("HTTP/1.1 200"), "{answers}");
}
