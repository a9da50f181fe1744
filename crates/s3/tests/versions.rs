//! Versions over HTTP: ids and delete markers in headers and documents, and what is refused.

mod server;

use server::{Answer, Server};

const ID: &str = "x-amz-version-id";
const MARKER: &str = "x-amz-delete-marker";

async fn set(server: &Server, status: &str) {
    let document = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
    server.put("/bucket?versioning", document).await.expect(200);
}

async fn put(server: &Server, path: &str, body: &str) -> String {
    server.put(path, body).await.expect(200).header(ID).to_owned()
}

async fn versioned() -> Server {
    let server = Server::with_bucket().await;
    set(&server, "Enabled").await;
    server
}

fn listed(answer: &Answer) -> Vec<(String, String, String)> {
    let names = ["Key", "VersionId", "IsLatest"].map(|name| answer.elements(name));
    let line = |index: usize| (names[0][index].to_owned(), names[1][index].to_owned(), names[2][index].to_owned());
    (0..names[0].len()).map(line).collect()
}

fn line(key: &str, id: &str, is_latest: bool) -> (String, String, String) {
    (key.to_owned(), id.to_owned(), is_latest.to_string())
}

#[tokio::test]
async fn versioning_is_told_and_set() {
    let server = Server::with_bucket().await;
    let state = server.get("/bucket?versioning").await.expect(200);
    assert!(state.elements("Status").is_empty());
    assert_eq!(put(&server, "/bucket/k", "1").await, "");
    assert_eq!(server.get("/bucket/k").await.expect(200).header(ID), "");
    for status in ["Suspended", "Enabled"] {
        set(&server, status).await;
        assert_eq!(server.get("/bucket?versioning").await.expect(200).element("Status"), status);
    }
    assert_eq!(server.get("/bucket/k").await.expect(200).header(ID), "null");
    let bad = "<VersioningConfiguration><Status>On</Status></VersioningConfiguration>";
    server.put("/bucket?versioning", bad).await.refused(400, "MalformedXML");
    server.get("/nowhere?versioning").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn a_deleted_object_comes_back() {
    let server = versioned().await;
    let first = put(&server, "/bucket/a/k", "one").await;
    let second = put(&server, "/bucket/a/k", "two").await;
    assert!(first < second && first.len() == 16);
    assert_eq!(server.get(&format!("/bucket/a/k?versionId={first}")).await.expect(200).text(), "one");
    let gone = server.delete("/bucket/a/k").await.expect(204);
    let marker = gone.header(ID).to_owned();
    assert_eq!(gone.header(MARKER), "true");
    let missing = server.get("/bucket/a/k").await.refused(404, "NoSuchKey");
    assert_eq!((missing.header(MARKER), missing.header(ID)), ("true", marker.as_str()));
    let missing = server.get(&format!("/bucket/a/k?versionId={marker}")).await.refused(405, "MethodNotAllowed");
    assert_eq!((missing.header(MARKER), missing.header("allow")), ("true", "DELETE"));
    assert!(
        server
            .get("/bucket?list-type=2&delimiter=/")
            .await
            .expect(200)
            .elements("Prefix")
            .iter()
            .all(|one| one.is_empty())
    );
    let all = server.get("/bucket?versions").await.expect(200);
    let wanted = [line("a/k", &marker, true), line("a/k", &second, false), line("a/k", &first, false)];
    assert_eq!(listed(&all), wanted);
    assert_eq!((all.elements("DeleteMarker").len(), all.elements("Version").len()), (1, 2));

    let undone = server.delete(&format!("/bucket/a/k?versionId={marker}")).await.expect(204);
    assert_eq!((undone.header(MARKER), undone.header(ID)), ("true", marker.as_str()));
    assert_eq!(server.get("/bucket/a/k").await.expect(200).text(), "two");
    let source = format!("/bucket/a/k?versionId={first}");
    let copy = server.request("PUT", "/bucket/a/k").header("x-amz-copy-source", &source).send().await.expect(200);
    assert_eq!(copy.header("x-amz-copy-source-version-id"), first);
    assert!(copy.header(ID) > second.as_str());
    assert_eq!(server.get("/bucket/a/k").await.expect(200).text(), "one");
}

#[tokio::test]
async fn versions_are_listed_by_pages() {
    let server = versioned().await;
    let mut wanted = Vec::new();
    for key in ["a", "b/c", "d"] {
        let first = put(&server, &format!("/bucket/{key}"), "1").await;
        let second = put(&server, &format!("/bucket/{key}"), "2").await;
        wanted.extend([line(key, &second, true), line(key, &first, false)]);
    }
    let (mut seen, mut marker) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/bucket?versions&max-keys=2{marker}")).await.expect(200);
        seen.extend(listed(&page));
        if page.element("IsTruncated") == "false" {
            break;
        }
        let (key, id) = (page.element("NextKeyMarker"), page.element("NextVersionIdMarker"));
        marker = format!("&key-marker={key}&version-id-marker={id}");
    }
    assert_eq!(seen, wanted);
    let cut = server.get("/bucket?versions&delimiter=/&key-marker=a").await.expect(200);
    assert_eq!((listed(&cut), cut.elements("CommonPrefixes").len()), (wanted[4..].to_vec(), 1));
    server.get("/bucket?versions&version-id-marker=null").await.refused(400, "InvalidArgument");
    server.get("/bucket?versions&key-marker=a&version-id-marker=x").await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn many_versions_are_deleted_at_once() {
    let server = versioned().await;
    let id = put(&server, "/bucket/k", "1").await;
    let delete = async |inside: &str| {
        let document = format!("<Delete>{inside}</Delete>");
        let md5 = "content-md5";
        let digest = base64_md5(document.as_bytes());
        server.request("POST", "/bucket?delete").header(md5, &digest).body(document).send().await.expect(200)
    };
    let marked = delete("<Object><Key>k</Key></Object>").await;
    assert_eq!(marked.element("DeleteMarker"), "true");
    let marker = marked.element("DeleteMarkerVersionId").to_owned();
    let both = format!(
        "<Object><Key>k</Key><VersionId>{id}</VersionId></Object>\
         <Object><Key>k</Key><VersionId>{marker}</VersionId></Object>\
         <Object><Key>k</Key><VersionId>nonsense</VersionId></Object>"
    );
    let gone = delete(&both).await;
    assert_eq!((gone.elements("Deleted").len(), gone.elements("Error").len()), (2, 1));
    assert!(listed(&server.get("/bucket?versions").await.expect(200)).is_empty());
    server.delete("/bucket").await.expect(204);
}

#[tokio::test]
async fn suspended_writes_are_null() {
    let server = versioned().await;
    let kept = put(&server, "/bucket/k", "1").await;
    set(&server, "Suspended").await;
    assert_eq!(put(&server, "/bucket/k", "2").await, "");
    assert_eq!(put(&server, "/bucket/k", "3").await, "");
    let all = listed(&server.get("/bucket?versions").await.expect(200));
    assert_eq!(all, [line("k", "null", true), line("k", &kept, false)]);
    assert_eq!(server.get("/bucket/k?versionId=null").await.expect(200).text(), "3");
    let marker = server.delete("/bucket/k").await.expect(204);
    assert_eq!((marker.header(ID), marker.header(MARKER)), ("null", "true"));
    server.delete("/bucket/k?versionId=null").await.expect(204);
    assert_eq!(server.get("/bucket/k").await.expect(200).text(), "1");
    server.get("/bucket/k?versionId=00000000ffffffff").await.refused(404, "NoSuchVersion");
    server.get("/bucket/k?versionId=abc").await.refused(400, "InvalidArgument");
    server.delete("/bucket/k?versionId=00000000ffffffff").await.expect(204);
}

fn base64_md5(bytes: &[u8]) -> String {
    use base64::Engine as _;
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(bytes))
}
