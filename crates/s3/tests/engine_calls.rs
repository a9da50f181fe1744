//! The number of engine calls of a request, by root and by a user whose rights are looked up, at any depth.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use server::Server;

const EVERYTHING: &str = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}"#;
const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>d/</Prefix></Filter>\
    <Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>";

/// Sends a request as `who`, twice, and returns the reads and commits of the second one, whose caches are warm.
async fn calls(server: &Server, who: Option<&str>, method: &str, path: &str) -> (u64, u64) {
    let mut counted = (0, 0);
    for _ in 0..2 {
        let before = server.engine.calls();
        let request = server.request(method, path).body(if method == "PUT" { "body" } else { "" });
        let answer = match who {
            Some(who) => request.send_as(who).await,
            None => request.send().await,
        };
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.status);
        let after = server.engine.calls();
        counted = (after.0 - before.0, after.1 - before.1);
    }
    counted
}

/// What the engine is asked while this request is answered.
async fn calls_of(server: &Server, who: Option<&str>, request: server::Request<'_>) -> (u64, u64) {
    answered(server, who, request).await.0
}

/// As `calls_of`, and the answer.
async fn answered(server: &Server, who: Option<&str>, request: server::Request<'_>) -> ((u64, u64), server::Answer) {
    let before = server.engine.calls();
    let answer = match who {
        Some(who) => request.send_as(who).await,
        None => request.send().await,
    };
    assert!((200..300).contains(&answer.status), "{}: {}", answer.status, answer.text());
    let after = server.engine.calls();
    ((after.0 - before.0, after.1 - before.1), answer)
}

#[tokio::test]
async fn a_request_asks_the_engine_once_whoever_sends_it() {
    let server = Server::with_users(&[("alice", None, &[]), ("bob", Some("alice"), &[EVERYTHING])]).await;
    server.request("PUT", "/bucket").send_as("alice").await.expect(200);
    server.request("PUT", "/bucket?lifecycle").body(LIFECYCLE).send_as("alice").await.expect(200);
    for directories in ["", "d/e/f/"] {
        for number in 0..9 {
            server
                .request("PUT", &format!("/bucket/{directories}k{number}"))
                .body("body")
                .send_as("alice")
                .await
                .expect(200);
        }
        for who in [None, Some("alice"), Some("bob")] {
            let path = format!("/bucket/{directories}k1");
            let list = format!("/bucket?list-type=2&delimiter=/&prefix={directories}");
            let told = format!("{who:?} below {directories:?}");
            assert_eq!(calls(&server, who, "PUT", &path).await, (1, 1), "PUT by {told}");
            assert_eq!(calls(&server, who, "GET", &path).await, (1, 0), "GET by {told}");
            assert_eq!(calls(&server, who, "HEAD", &path).await, (1, 0), "HEAD by {told}");
            assert!(calls(&server, who, "GET", &list).await.0 <= 2, "a page by {told}");
            let before = server.engine.calls();
            let gone = server.request("DELETE", &path);
            let gone = match who {
                Some(who) => gone.send_as(who).await,
                None => gone.send().await,
            };
            gone.expect(204);
            let after = server.engine.calls();
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "DELETE by {told}");
        }
    }
}

#[tokio::test]
async fn an_object_with_documents_costs_no_call_more() {
    let server = Server::with_users(&[("alice", None, &[]), ("bob", Some("alice"), &[EVERYTHING])]).await;
    server
        .request("PUT", "/bucket")
        .header("x-amz-object-ownership", "ObjectWriter")
        .send_as("alice")
        .await
        .expect(200);
    let locked = server.request("PUT", "/locked").header("x-amz-bucket-object-lock-enabled", "true");
    locked.send_as("alice").await.expect(200);
    let (tags, long) = (("x-amz-tagging", "a=b&c=d"), "l".repeat(1900));
    let until = "2099-01-01T00:00:00Z";
    let retention = [tags, ("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", until)];
    let kinds: [(&str, &[(&str, &str)]); 4] = [
        ("/bucket", &[tags]),
        ("/bucket", &[("x-amz-acl", "public-read"), tags]),
        ("/bucket", &[("x-amz-meta-long", &long)]),
        ("/locked", &retention),
    ];
    for (bucket, headers) in kinds {
        for directories in ["", "d/e/f/"] {
            for who in [None, Some("alice"), Some("bob")] {
                let path = format!("{bucket}/{directories}k");
                let put = || {
                    let put = server.request("PUT", &path).body("body");
                    headers.iter().fold(put, |put, (name, value)| put.header(name, value))
                };
                // A neighbour keeps the directories, and the third request finds what the second one has left.
                server
                    .request("PUT", &format!("{bucket}/{directories}beside"))
                    .body("")
                    .send_as("alice")
                    .await
                    .expect(200);
                let told = format!("{path} with {headers:?} by {who:?}");
                let mut calls = (0, 0);
                for _ in 0..3 {
                    calls = calls_of(&server, who, put()).await;
                }
                assert_eq!(calls, (1, 1), "PUT of {told}");
                for method in ["GET", "HEAD"] {
                    let calls = calls_of(&server, who, server.request(method, &path)).await;
                    assert_eq!(calls, (1, 0), "{method} of {told}");
                }
                let calls = calls_of(&server, who, server.request("DELETE", &path)).await;
                assert_eq!(calls, (1, 1), "DELETE of {told}");
            }
        }
    }
}

#[tokio::test]
async fn rules_of_cors_come_with_the_rows_of_the_request() {
    let server = Server::with_bucket().await;
    let cors = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
        <AllowedMethod>PUT</AllowedMethod><AllowedMethod>DELETE</AllowedMethod></CORSRule></CORSConfiguration>";
    server.request("PUT", "/bucket?cors").body(cors).send().await.expect(200);
    let asked = |method, path| {
        let request = server.request(method, path).header("origin", "http://page.test");
        request.body(if method == "PUT" { "body" } else { "" })
    };
    for _ in 0..2 {
        asked("PUT", "/bucket/d/k").send().await.expect(200);
        asked("GET", "/bucket/d/k").send().await.expect(200);
        asked("GET", "/bucket?list-type=2&delimiter=/").send().await.expect(200);
    }
    for (method, path, each) in [
        ("PUT", "/bucket/d/k", (1, 1)),
        ("GET", "/bucket/d/k", (1, 0)),
        ("GET", "/bucket?list-type=2&delimiter=/", (2, 0)),
        ("DELETE", "/bucket/d/k", (1, 1)),
    ] {
        let before = server.engine.calls();
        let answer = asked(method, path).send().await;
        let after = server.engine.calls();
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{method} {path}: {}", answer.text());
        assert_eq!((after.0 - before.0, after.1 - before.1), each, "{method} {path}");
    }
    // A request that changes the rules is answered by the new ones.
    let removed = server.request("DELETE", "/bucket?cors").header("origin", "http://page.test").send().await;
    assert_eq!((removed.status, removed.header("access-control-allow-origin")), (204, ""));
}

#[tokio::test]
async fn a_listing_by_root_reads_nothing_but_its_page() {
    let server = Server::with_bucket().await;
    for key in ["a", "d/b", "d/e/c"] {
        server.request("PUT", &format!("/bucket/{key}")).body("body").send().await.expect(200);
    }
    for (prefix, reads) in [("", 1), ("d/", 1), ("d/e/", 1)] {
        let path = format!("/bucket?list-type=2&delimiter=/&prefix={prefix}");
        assert_eq!(calls(&server, None, "GET", &path).await, (reads, 0), "below {prefix:?}");
    }
}

/// Copies, renames and multipart uploads: the rows of both keys, of the upload and of its parts come with the request's look.
#[tokio::test]
async fn requests_that_name_two_keys_or_an_upload_ask_once_too() {
    let server = Server::with_users(&[("alice", None, &[]), ("bob", Some("alice"), &[EVERYTHING])]).await;
    for bucket in ["/bucket", "/source"] {
        server.request("PUT", bucket).send_as("alice").await.expect(200);
    }
    for directories in ["", "d/e/f/"] {
        for who in [None, Some("alice"), Some("bob")] {
            let told = format!("by {who:?} below {directories:?}");
            let path = format!("/bucket/{directories}k");
            let from = format!("/source/{directories}k");
            for path in [&path, &from, &format!("/bucket/{directories}beside"), &format!("/source/{directories}beside")]
            {
                server.request("PUT", path).body("body").send_as("alice").await.expect(200);
            }
            let copy = || server.request("PUT", &path).header("x-amz-copy-source", &from);
            for _ in 0..2 {
                assert_eq!(calls_of(&server, who, copy()).await, (1, 1), "CopyObject {told}");
            }
            let replaces = copy().header("x-amz-metadata-directive", "REPLACE");
            assert_eq!(calls_of(&server, who, replaces).await, (1, 1), "CopyObject with new metadata {told}");
            let renamed = format!("/bucket/{directories}renamed?renameObject");
            let rename = server.request("PUT", &renamed).header("x-amz-rename-source", &path);
            assert_eq!(calls_of(&server, who, rename).await, (1, 1), "RenameObject {told}");

            let create = server.request("POST", &format!("{path}?uploads"));
            let (calls, answer) = answered(&server, who, create).await;
            assert_eq!(calls, (1, 1), "CreateMultipartUpload {told}");
            let upload = answer.element("UploadId").to_owned();
            let part = |number: u32| format!("{path}?partNumber={number}&uploadId={upload}");
            let mut etag = String::new();
            for _ in 0..2 {
                let (calls, answer) = answered(&server, who, server.request("PUT", &part(1)).body("part")).await;
                assert_eq!(calls, (1, 1), "UploadPart {told}");
                etag = answer.header("etag").to_owned();
            }
            let shared = server.request("PUT", &part(2)).header("x-amz-copy-source", &from);
            let calls = calls_of(&server, who, shared).await;
            // A small body is read, and stored in a part of its own.
            assert!(calls.0 <= 4 && calls.1 == 1, "UploadPartCopy {told}: {calls:?}");
            let parts = format!("{path}?uploadId={upload}");
            let listed = server.request("GET", &parts);
            assert!(calls_of(&server, who, listed).await.0 <= 2, "ListParts {told}");
            let aborted = server.request("DELETE", &parts);
            assert!(calls_of(&server, who, aborted).await.0 <= 3, "AbortMultipartUpload {told}");

            let upload = server.request("POST", &format!("{path}?uploads")).send_as("alice").await.expect(200);
            let upload = upload.element("UploadId").to_owned();
            let part = format!("{path}?partNumber=1&uploadId={upload}");
            server.request("PUT", &part).body("part").send_as("alice").await.expect(200);
            let document = format!(
                "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>\
                 </CompleteMultipartUpload>"
            );
            let complete = server.request("POST", &format!("{path}?uploadId={upload}")).body(document);
            assert_eq!(calls_of(&server, who, complete).await, (1, 1), "CompleteMultipartUpload {told}");
            server.request("GET", &path).send_as("alice").await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_version_or_a_quota_costs_no_call_more() {
    let server = Server::with_users(&[("alice", None, &[]), ("bob", Some("alice"), &[EVERYTHING])]).await;
    server.request("PUT", "/bucket").send_as("alice").await.expect(200);
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    server.request("PUT", "/bucket?versioning").body(versioning).send_as("alice").await.expect(200);
    server.volume.set_quota("bucket", margay_volume::Quota { objects: Some(100), bytes: Some(1 << 20) }).await.unwrap();
    for directories in ["", "d/e/f/"] {
        for who in [None, Some("alice"), Some("bob")] {
            let (path, told) = (format!("/bucket/{directories}k"), format!("by {who:?} below {directories:?}"));
            server.request("PUT", &path).body("body").send_as("alice").await.expect(200);
            let put = server.request("PUT", &path).header("x-amz-tagging", "a=b").body("body").send_as("alice").await;
            let old = put.expect(200).header("x-amz-version-id").to_owned();
            // An old version with documents is known once it was read.
            assert_eq!(calls(&server, who, "PUT", &path).await, (1, 1), "PUT {told}");
            for method in ["GET", "HEAD"] {
                let of_old = format!("{path}?versionId={old}");
                assert_eq!(calls(&server, who, method, &of_old).await, (1, 0), "{method} of a version {told}");
            }
            let copy = server.request("PUT", &path).header("x-amz-copy-source", &format!("{path}?versionId={old}"));
            assert_eq!(calls_of(&server, who, copy).await, (1, 1), "CopyObject of a version {told}");
            let delete = server.request("DELETE", &format!("{path}?versionId={old}"));
            assert_eq!(calls_of(&server, who, delete).await, (1, 1), "DELETE of a version {told}");
        }
    }
}
