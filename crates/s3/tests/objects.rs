//! Objects: what is put is given back, whole, in part, under conditions.

mod server;

use server::Server;

const HELLO_MD5: &str = "\"5d41402abc4b2a76b9719d911017c592\"";

#[tokio::test]
async fn an_object_comes_back_as_it_was_put() {
    let server = Server::with_bucket().await;
    let put = server.request("PUT", "/bucket/a%20dir/key+%C3%BC");
    let put = put.header("content-type", "text/x-cat").header("x-amz-meta-name", "=?UTF-8?B?w7w=?=");
    let put = put.header("cache-control", "no-store").body("hello").send().await.expect(200);
    assert_eq!(put.header("etag"), HELLO_MD5);
    assert_eq!(put.header("x-amz-request-id").len(), 16);
    let got = server.get("/bucket/a%20dir/key+%C3%BC").await.expect(200);
    assert_eq!(got.body, b"hello");
    assert_eq!(got.header("etag"), HELLO_MD5);
    assert_eq!(got.header("content-type"), "text/x-cat");
    assert_eq!(got.header("cache-control"), "no-store");
    assert_eq!(got.header("x-amz-meta-name"), "=?UTF-8?B?w7w=?=");
    assert_eq!(got.header("accept-ranges"), "bytes");
    assert!(got.header("last-modified").ends_with(" GMT"));
    let head = server.request("HEAD", "/bucket/a%20dir/key+%C3%BC").send().await.expect(200);
    assert_eq!(head.header("content-length"), "5");
    assert!(head.body.is_empty());
    let over = server.get("/bucket/a%20dir/key+%C3%BC?response-content-type=a%2Fb&response-expires=never").await;
    assert_eq!((over.header("content-type"), over.header("expires")), ("a/b", "never"));
    server.get("/bucket/none").await.refused(404, "NoSuchKey");
    assert_eq!(server.request("HEAD", "/bucket/none").send().await.expect(404).body, b"");
    server.put("/nowhere/k", "x").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn large_objects_stream_both_ways() {
    let server = Server::with_bucket().await;
    let body: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    server.put("/bucket/large", body.clone()).await.expect(200);
    let got = server.get("/bucket/large").await.expect(200);
    assert!(got.body == body);
    let range =
        server.request("GET", "/bucket/large").header("range", "bytes=1000000-3999999").send().await.expect(206);
    assert!(range.body == body[1_000_000..4_000_000]);
    assert_eq!(range.header("content-range"), "bytes 1000000-3999999/5000000");
}

#[tokio::test]
async fn ranges() {
    let server = Server::with_bucket().await;
    server.put("/bucket/k", "0123456789").await.expect(200);
    let of = async |range: &str| server.request("GET", "/bucket/k").header("range", range).send().await;
    for (range, body, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=5-500", "56789", "bytes 5-9/10"),
        ("bytes=-500", "0123456789", "bytes 0-9/10"),
    ] {
        let got = of(range).await.expect(206);
        assert_eq!((got.text(), got.header("content-range")), (body, content_range));
    }
    for ignored in ["bytes=0-1,4-5", "lines=1-2", "bytes=5-4"] {
        assert_eq!(of(ignored).await.expect(200).text(), "0123456789");
    }
    for outside in ["bytes=10-", "bytes=-0"] {
        assert_eq!(of(outside).await.refused(416, "InvalidRange").header("content-range"), "bytes */10");
    }
    let stale = server.request("GET", "/bucket/k").header("range", "bytes=0-0").header("if-range", HELLO_MD5);
    stale.send().await.expect(200);
    assert_eq!(server.get("/bucket/k?partNumber=1").await.expect(206).text(), "0123456789");
    server.get("/bucket/k?partNumber=2").await.refused(416, "InvalidPartNumber");
}

#[tokio::test]
async fn conditions() {
    let server = Server::with_bucket().await;
    let put = async |name: &str, value: &str| {
        server.request("PUT", "/bucket/k").header(name, value).body("hello").send().await
    };
    put("if-match", HELLO_MD5).await.refused(404, "NoSuchKey");
    put("if-none-match", "*").await.expect(200);
    put("if-none-match", "*").await.refused(412, "PreconditionFailed");
    put("if-none-match", HELLO_MD5).await.refused(412, "PreconditionFailed");
    put("if-none-match", "\"00000000000000000000000000000000\"").await.expect(200);
    put("if-match", HELLO_MD5).await.expect(200);
    put("if-match", "\"00000000000000000000000000000000\"").await.refused(412, "PreconditionFailed");
    let get = async |name: &str, value: &str| server.request("GET", "/bucket/k").header(name, value).send().await;
    get("if-match", HELLO_MD5).await.expect(200);
    get("if-match", "\"x\"").await.refused(412, "PreconditionFailed");
    let same = get("if-none-match", HELLO_MD5).await.expect(304);
    assert_eq!(same.header("etag"), HELLO_MD5);
    get("if-modified-since", "Wed, 01 Jan 2200 00:00:00 GMT").await.expect(304);
    get("if-modified-since", "Wed, 01 Jan 2020 00:00:00 GMT").await.expect(200);
    get("if-unmodified-since", "Wed, 01 Jan 2020 00:00:00 GMT").await.refused(412, "PreconditionFailed");
    let delete = server.request("DELETE", "/bucket/k").header("if-match", "\"x\"").send().await;
    delete.refused(412, "PreconditionFailed");
    server.request("DELETE", "/bucket/k").header("if-match", HELLO_MD5).send().await.expect(204);
    for etag in ["*", HELLO_MD5] {
        let gone = server.request("DELETE", "/bucket/k").header("if-match", etag).send().await;
        gone.refused(404, "NoSuchKey");
    }
    server.delete("/bucket/k").await.expect(204);
}

#[tokio::test]
async fn copies() {
    let server = Server::with_bucket().await;
    let put = server.request("PUT", "/bucket/from").header("x-amz-meta-cat", "margay");
    put.header("x-amz-checksum-crc32c", "mnG7TA==").body("hello").send().await.expect(200);
    let copy = async |to: &str, headers: &[(&str, &str)]| {
        let mut request = server.request("PUT", to).header("x-amz-copy-source", "/bucket/from");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send().await
    };
    let done = copy("/bucket/to", &[]).await.expect(200);
    assert_eq!(done.element("ETag").replace("&quot;", "\""), HELLO_MD5);
    let got = server.request("GET", "/bucket/to").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!((got.text(), got.header("x-amz-meta-cat")), ("hello", "margay"));
    assert_eq!(got.header("x-amz-checksum-crc32c"), "mnG7TA==");
    let replace = ("x-amz-metadata-directive", "REPLACE");
    copy("/bucket/new", &[replace, ("x-amz-meta-cat", "ocelot")]).await.expect(200);
    let got = server.request("GET", "/bucket/new").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!((got.header("x-amz-meta-cat"), got.header("x-amz-checksum-crc32c")), ("ocelot", "mnG7TA=="));
    copy("/bucket/from", &[]).await.refused(400, "InvalidRequest");
    copy("/bucket/from", &[replace, ("x-amz-meta-cat", "jaguar")]).await.expect(200);
    assert_eq!(server.get("/bucket/from").await.header("x-amz-meta-cat"), "jaguar");
    let none_match = ("x-amz-copy-source-if-none-match", HELLO_MD5);
    copy("/bucket/other", &[none_match]).await.refused(412, "PreconditionFailed");
    copy("/bucket/other", &[none_match, replace]).await.refused(412, "PreconditionFailed");
    let absent = server.request("PUT", "/bucket/x").header("x-amz-copy-source", "bucket/none").send().await;
    absent.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn renames() {
    let server = Server::with_bucket().await;
    for key in ["dir/a", "dir/b/c", "file"] {
        server.put(&format!("/bucket/{key}"), key).await.expect(200);
    }
    let rename = async |to: &str, from: &str, token: &str| {
        let request = server.request("PUT", &format!("/bucket/{to}?renameObject"));
        request.header("x-amz-rename-source", from).header("x-amz-client-token", token).send().await
    };
    rename("moved", "/bucket/file", "t1").await.expect(200);
    rename("moved", "/bucket/file", "t1").await.expect(200);
    rename("moved", "/bucket/file", "t2").await.refused(404, "NoSuchKey");
    rename("other/", "dir/", "t3").await.expect(200);
    assert_eq!(server.get("/bucket/other/b/c").await.expect(200).text(), "dir/b/c");
    assert!(!server.has("/bucket/dir/a").await && !server.has("/bucket/file").await);
    rename("x/", "moved", "t4").await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn many_are_deleted_at_once() {
    let server = Server::with_bucket().await;
    for key in ["a", "b", "c%26d"] {
        server.put(&format!("/bucket/{key}"), "x").await.expect(200);
    }
    let body = "<Delete><Object><Key>a</Key></Object><Object><Key>c&amp;d</Key></Object>\
                <Object><Key>never</Key></Object></Delete>";
    let md5 = |body: &str| {
        use base64::Engine as _;
        use md5::Digest as _;
        base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(body))
    };
    let request = server.request("POST", "/bucket?delete").body(body);
    request.send().await.refused(400, "InvalidRequest");
    let request = server.request("POST", "/bucket?delete").header("content-md5", &md5(body)).body(body);
    assert_eq!(request.send().await.expect(200).elements("Key"), ["a", "c&amp;d", "never"]);
    assert!(!server.has("/bucket/a").await && server.has("/bucket/b").await);
    let quiet = "<Delete><Quiet>true</Quiet><Object><Key>b</Key></Object></Delete>";
    let request = server.request("POST", "/bucket?delete").header("content-md5", &md5(quiet)).body(quiet);
    assert!(request.send().await.expect(200).elements("Key").is_empty());
    let wrong = server.request("POST", "/bucket?delete").header("content-md5", &md5("other")).body(quiet);
    wrong.send().await.refused(400, "BadDigest");
}

#[tokio::test]
async fn attributes() {
    let server = Server::with_bucket().await;
    let put = server.request("PUT", "/bucket/k").header("x-amz-checksum-crc32c", "mnG7TA==").body("hello");
    put.send().await.expect(200);
    let ask = async |names: &str| {
        server.request("GET", "/bucket/k?attributes").header("x-amz-object-attributes", names).send().await
    };
    let all = ask("ETag,Checksum,ObjectParts,StorageClass,ObjectSize").await.expect(200);
    assert_eq!((all.element("ObjectSize"), all.element("ChecksumCRC32C")), ("5", "mnG7TA=="));
    assert_eq!(all.element("ChecksumType"), "FULL_OBJECT");
    ask("Colour").await.refused(400, "InvalidArgument");
}

/// Headers as SDKs were seen to send them; what they ask for is nothing here.
#[tokio::test]
async fn what_clients_send_unasked_does_not_disturb() {
    let server = Server::with_bucket().await;
    let unasked = [("x-amz-api-version", "2006-03-01"), ("x-amz-acl", ""), ("x-amz-storage-class", "")];
    for (method, path) in
        [("PUT", "/bucket/k?Version=2006-03-01"), ("GET", "/bucket/k"), ("GET", "/bucket?Version=2006-03-01")]
    {
        let mut request = server.request(method, path);
        for (name, value) in unasked {
            request = request.header(name, value);
        }
        if method == "PUT" {
            request = request.body("hello");
        }
        request.send().await.expect(200);
    }
    let java = server.request("GET", "/bucket/k").header("x-amz-te", "append-md5");
    let got = java.header("x-amz-checksum-crc32", "AAAAAA==").send().await.expect(200);
    assert_eq!((got.text(), got.header("x-amz-transfer-encoding")), ("hello", ""));
    let copy = server.request("PUT", "/bucket/copy").header("x-amz-copy-source", "/bucket/k").header("x-amz-acl", "");
    copy.header("x-amz-storage-class", "").send().await.expect(200);
    let other = server.request("GET", "/bucket/k").header("x-amz-api-version", "2030-01-01").send().await;
    assert!(other.refused(501, "NotImplemented").text().contains("x-amz-api-version"));
}
