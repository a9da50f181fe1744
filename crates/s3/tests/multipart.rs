//! Multipart uploads from beginning to end, and what goes wrong in between.

mod server;

use server::{Answer, Server};

const PART: usize = 5 << 20;

async fn create(server: &Server, headers: &[(&str, &str)]) -> String {
    let mut request = server.request("POST", "/bucket/big?uploads");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send().await.expect(200).element("UploadId").to_owned()
}

async fn part(server: &Server, upload: &str, number: u32, body: Vec<u8>) -> String {
    let answer = server.put(&format!("/bucket/big?partNumber={number}&uploadId={upload}"), body).await.expect(200);
    answer.header("etag").to_owned()
}

async fn complete(server: &Server, upload: &str, parts: &[(u32, &str)], headers: &[(&str, &str)]) -> Answer {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let mut request = server.request("POST", &format!("/bucket/big?uploadId={upload}")).body(body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send().await
}

#[tokio::test]
async fn parts_become_one_object() {
    let server = Server::with_bucket().await;
    let upload = create(&server, &[("content-type", "a/b"), ("x-amz-meta-k", "v")]).await;
    let first = part(&server, &upload, 3, vec![b'a'; PART]).await;
    let last = part(&server, &upload, 7, b"end".to_vec()).await;
    assert!(!server.has("/bucket/big").await);
    let listed = server.get(&format!("/bucket/big?uploadId={upload}&max-parts=1")).await.expect(200);
    assert_eq!((listed.elements("Size"), listed.element("IsTruncated")), (vec!["5242880"], "true"));
    assert_eq!(listed.element("NextPartNumberMarker"), "3");
    complete(&server, &upload, &[(7, &last), (3, &first)], &[]).await.refused(400, "InvalidPartOrder");
    complete(&server, &upload, &[(3, &last)], &[]).await.refused(400, "InvalidPart");
    complete(&server, &upload, &[(4, &first)], &[]).await.refused(400, "InvalidPart");
    complete(&server, &upload, &[], &[]).await.refused(400, "MalformedXML");
    let size = ("x-amz-mp-object-size", "7");
    complete(&server, &upload, &[(3, &first), (7, &last)], &[size]).await.refused(400, "InvalidRequest");
    let done = complete(&server, &upload, &[(3, &first), (7, &last)], &[]).await.expect(200);
    assert!(done.element("ETag").ends_with("-2&quot;"));
    assert!(done.element("Location").ends_with("/bucket/big"));
    let got = server.get("/bucket/big?partNumber=2").await.expect(206);
    assert_eq!((got.text(), got.header("x-amz-mp-parts-count")), ("end", "2"));
    assert_eq!(got.header("content-range"), "bytes 5242880-5242882/5242883");
    let head = server.request("HEAD", "/bucket/big").send().await.expect(200);
    assert_eq!((head.header("content-type"), head.header("x-amz-meta-k")), ("a/b", "v"));
    let again = complete(&server, &upload, &[(3, &first), (7, &last)], &[]).await.expect(200);
    assert_eq!(again.text(), done.text());
    complete(&server, &upload, &[(3, &first)], &[]).await.refused(404, "NoSuchUpload");
    complete(&server, &upload, &[(3, "1234")], &[]).await.refused(404, "NoSuchUpload");
    // A client that did not see the answer asks again.
    let again = complete(&server, &upload, &[(3, &first), (7, &last)], &[]).await.expect(200);
    assert_eq!(again.element("ETag"), done.element("ETag"));
    let attributes = server.request("GET", "/bucket/big?attributes").header("x-amz-object-attributes", "ObjectParts");
    assert_eq!(attributes.send().await.expect(200).elements("Size"), ["5242880", "3"]);
}

#[tokio::test]
async fn small_parts_and_aborted_uploads() {
    let server = Server::with_bucket().await;
    let upload = create(&server, &[]).await;
    let first = part(&server, &upload, 1, b"small".to_vec()).await;
    let second = part(&server, &upload, 2, b"small".to_vec()).await;
    complete(&server, &upload, &[(1, &first), (2, &second)], &[]).await.refused(400, "EntityTooSmall");
    server.delete(&format!("/bucket/big?uploadId={upload}")).await.expect(204);
    server.delete(&format!("/bucket/big?uploadId={upload}")).await.refused(404, "NoSuchUpload");
    let late = server.put(&format!("/bucket/big?partNumber=1&uploadId={upload}"), "x").await;
    late.refused(404, "NoSuchUpload");
    for number in ["0", "10001", "one"] {
        let answer = server.put(&format!("/bucket/big?partNumber={number}&uploadId={upload}"), "x").await;
        answer.refused(400, "InvalidArgument");
    }
}

#[tokio::test]
async fn parts_are_copied() {
    let server = Server::with_bucket().await;
    server.put("/bucket/from", "0123456789").await.expect(200);
    for headers in [&[][..], &[("x-amz-checksum-algorithm", "SHA256")]] {
        let upload = create(&server, headers).await;
        let copy = async |range: &str| {
            let request = server.request("PUT", &format!("/bucket/big?partNumber=1&uploadId={upload}"));
            let request = request.header("x-amz-copy-source", "bucket/from");
            request.header("x-amz-copy-source-range", range).send().await
        };
        copy("bytes=0-10").await.refused(416, "InvalidRange");
        copy("bytes=5-").await.refused(400, "InvalidArgument");
        let copied = copy("bytes=2-5").await.expect(200);
        assert_eq!(copied.element("ChecksumSHA256").is_empty(), headers.is_empty());
        let etag = copied.element("ETag").to_owned();
        complete(&server, &upload, &[(1, &etag)], &[]).await.expect(200);
        assert_eq!(server.get("/bucket/big").await.expect(200).text(), "2345");
    }
}

#[tokio::test]
async fn checksums_of_parts_combine() {
    let server = Server::with_bucket().await;
    for (kind, algorithm, ends) in
        [("COMPOSITE", "CRC32", "-2"), ("FULL_OBJECT", "CRC32C", "=="), ("FULL_OBJECT", "CRC64NVME", "=")]
    {
        let headers = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
        let upload = create(&server, &headers).await;
        let first = part(&server, &upload, 1, vec![b'a'; PART]).await;
        let last = part(&server, &upload, 2, b"end".to_vec()).await;
        let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let parts = [(1, first.as_str()), (2, last.as_str())];
        let wrong = if algorithm == "CRC64NVME" { "AAAAAAAAAAA=" } else { "AAAAAA==" };
        complete(&server, &upload, &parts, &[(&header, wrong)]).await.refused(400, "BadDigest");
        let done = complete(&server, &upload, &parts, &[]).await.expect(200);
        let sum = done.element(&format!("Checksum{algorithm}")).to_owned();
        assert!(sum.ends_with(ends), "{sum}");
        let got = server.request("HEAD", "/bucket/big").header("x-amz-checksum-mode", "ENABLED").send().await;
        assert_eq!((got.header(&header), got.header("x-amz-checksum-type")), (sum.as_str(), kind));
        let element = format!("Checksum{algorithm}");
        let attributes = server.request("GET", "/bucket/big?attributes");
        let attributes = attributes.header("x-amz-object-attributes", "ObjectParts").send().await.expect(200);
        assert_eq!((attributes.element("PartsCount"), attributes.elements(&element).len()), ("2", 2));
        let second = server.request("GET", "/bucket/big?partNumber=2").header("x-amz-checksum-mode", "ENABLED");
        let second = second.send().await.expect(206);
        assert_eq!(second.header(&header), attributes.elements(&element)[1]);
        assert_eq!(second.header("x-amz-checksum-type"), kind);
        if kind == "FULL_OBJECT" {
            // The same bytes in one piece have the same checksum.
            let whole = [vec![b'a'; PART], b"end".to_vec()].concat();
            let put = server.request("PUT", "/bucket/whole").header(&header, &sum).body(whole);
            put.send().await.expect(200);
        }
    }
    let mismatch = create(&server, &[("x-amz-checksum-algorithm", "CRC32")]).await;
    let request = server.request("PUT", &format!("/bucket/big?partNumber=1&uploadId={mismatch}"));
    request.header("x-amz-checksum-crc32c", "mnG7TA==").body("hello").send().await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn uploads_are_listed() {
    let server = Server::with_bucket().await;
    for key in ["a/1", "a/2", "b", "b", "c/1"] {
        server.request("POST", &format!("/bucket/{key}?uploads")).send().await.expect(200);
    }
    let all = server.get("/bucket?uploads").await.expect(200);
    assert_eq!(all.elements("Key"), ["a/1", "a/2", "b", "b", "c/1"]);
    let rolled = server.get("/bucket?uploads&delimiter=/").await.expect(200);
    assert_eq!((rolled.elements("Key"), rolled.elements("Prefix")), (vec!["b", "b"], vec!["", "a/", "c/"]));
    for (delimiter, total) in [("", 5), ("&delimiter=/", 4)] {
        let (mut seen, mut marker) = (0, String::new());
        loop {
            let page = server.get(&format!("/bucket?uploads&max-uploads=1{delimiter}{marker}")).await.expect(200);
            seen += page.elements("Key").len() + page.elements("Prefix").len() - 1;
            if page.element("IsTruncated") == "false" {
                break;
            }
            let (key, upload) = (page.element("NextKeyMarker"), page.element("NextUploadIdMarker"));
            marker = format!("&key-marker={key}&upload-id-marker={upload}");
        }
        assert_eq!(seen, total);
    }
}

#[tokio::test]
async fn a_bucket_goes_with_its_unfinished_uploads_but_not_with_an_object() {
    let server = Server::with_bucket().await;
    server.put("/bucket/kept", "x").await.expect(200);
    let upload = create(&server, &[]).await;
    part(&server, &upload, 1, b"part".to_vec()).await;
    server.delete("/bucket").await.refused(409, "BucketNotEmpty");
    server.get(&format!("/bucket/big?uploadId={upload}")).await.expect(200);
    server.delete("/bucket/kept").await.expect(204);
    server.delete("/bucket").await.expect(204);
    server.put("/bucket", "").await.expect(200);
    assert_eq!(server.get("/bucket?uploads").await.expect(200).elements("UploadId").len(), 0);
}
