//! PutObject at a write offset: an object that grows.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use margay_volume::FsckOptions;
use server::{Answer, Server};

async fn append(server: &Server, path: &str, offset: usize, body: &[u8]) -> Answer {
    let request = server.request("PUT", path).header("x-amz-write-offset-bytes", &offset.to_string());
    request.body(body.to_vec()).send().await
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 13) as u8).collect()
}

#[track_caller]
fn clean(server: &Server) {
    let report = server.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

#[tokio::test]
async fn an_object_grows_whatever_its_form() {
    let server = Server::with_bucket().await;
    // Inline, in one payload, in a run; extents in the entry, then in rows.
    let lens = [0, 5, 100, 90, 3000, 65_536, 65_500, 200_000, 17, 300_000, 1, 70_000];
    for encrypted in [false, true] {
        let path = if encrypted { "/bucket/encrypted" } else { "/bucket/plain" };
        let first = server.request("PUT", path).header("x-amz-meta-name", "cat");
        let first = if encrypted { first.header("x-amz-server-side-encryption", "AES256") } else { first };
        let mut whole = bytes(99, 50);
        first.body(whole.clone()).send().await.expect(200);
        for (number, len) in lens.into_iter().enumerate().filter(|(_, len)| *len > 0) {
            let more = bytes(number, len);
            let answer = append(&server, path, whole.len(), &more).await.expect(200);
            whole.extend_from_slice(&more);
            assert_eq!(answer.header("x-amz-object-size"), whole.len().to_string());
            let got = server.get(path).await.expect(200);
            assert!(got.body == whole, "after {number}");
            assert_eq!((got.header("etag"), got.header("x-amz-meta-name")), (answer.header("etag"), "cat"));
        }
        let last = server.request("GET", path).header("range", "bytes=-70005").send().await.expect(206);
        assert!(last.body == whole[whole.len() - 70_005..]);
        let listed = server.get("/bucket?list-type=2").await.expect(200);
        assert!(listed.elements("Size").contains(&whole.len().to_string().as_str()));
        clean(&server);
    }
}

#[tokio::test]
async fn an_append_is_where_the_object_ends_or_not_at_all() {
    let server = Server::with_bucket().await;
    append(&server, "/bucket/k", 1, b"x").await.refused(400, "InvalidWriteOffset");
    append(&server, "/bucket/k", 0, b"hello").await.expect(200);
    append(&server, "/bucket/k", 0, b"x").await.refused(400, "InvalidWriteOffset");
    append(&server, "/bucket/k", 4, b"x").await.refused(400, "InvalidWriteOffset");
    append(&server, "/bucket/k", 6, b"x").await.refused(400, "InvalidWriteOffset");
    let negative = server.request("PUT", "/bucket/k").header("x-amz-write-offset-bytes", "-1");
    negative.body("x").send().await.refused(400, "InvalidArgument");
    let conditional = |tag: &str| {
        server.request("PUT", "/bucket/k").header("x-amz-write-offset-bytes", "5").header("if-match", tag).body("!")
    };
    conditional("\"00000000000000000000000000000000\"").send().await.refused(412, "PreconditionFailed");
    conditional("\"5d41402abc4b2a76b9719d911017c592\"").send().await.expect(200);
    assert_eq!(server.get("/bucket/k").await.expect(200).text(), "hello!");
    let wrong = server.request("PUT", "/bucket/k").header("x-amz-write-offset-bytes", "6");
    wrong.header("content-md5", "XUFAKrxLKna5cZ2REBfFkg==").body("x").send().await.refused(400, "BadDigest");
    assert_eq!(server.get("/bucket/k").await.expect(200).text(), "hello!");
}

#[tokio::test]
async fn where_versions_are_kept_nothing_grows() {
    let server = Server::with_bucket().await;
    server.put("/bucket/k", "hello").await.expect(200);
    for status in ["Enabled", "Suspended"] {
        let document = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        server.put("/bucket?versioning", document).await.expect(200);
        append(&server, "/bucket/k", 5, b"x").await.refused(409, "InvalidBucketState");
        append(&server, "/bucket/new", 0, b"x").await.refused(409, "InvalidBucketState");
    }
    assert_eq!(server.get("/bucket/k").await.expect(200).text(), "hello");
}

#[tokio::test]
async fn a_copy_does_not_grow_with_its_source() {
    let server = Server::with_bucket().await;
    let body = bytes(1, 200_000);
    server.put("/bucket/k", body.clone()).await.expect(200);
    let copy = server.request("PUT", "/bucket/copy").header("x-amz-copy-source", "/bucket/k");
    copy.send().await.expect(200);
    for number in 0..8 {
        append(&server, "/bucket/k", 200_000 + number, b"x").await.expect(200);
    }
    assert!(server.get("/bucket/copy").await.expect(200).body == body);
    append(&server, "/bucket/copy", 200_000, b"yy").await.expect(200);
    assert!(server.get("/bucket/k").await.expect(200).body == [&body[..], b"xxxxxxxx"].concat());
    clean(&server);
    server.delete("/bucket/k").await.expect(204);
    assert!(server.get("/bucket/copy").await.expect(200).body == [&body[..], b"yy"].concat());
    server.delete("/bucket/copy").await.expect(204);
    clean(&server);
}
