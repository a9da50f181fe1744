//! Object lock over HTTP: what is locked stays, and the exact refusals.

mod server;

use server::{Answer, Server};

const ID: &str = "x-amz-version-id";
const UNTIL: &str = "2140-01-01T00:00:00Z";

async fn locked_bucket() -> Server {
    let server = Server::start().await;
    let create = server.request("PUT", "/bucket").header("x-amz-bucket-object-lock-enabled", "true");
    create.send().await.expect(200);
    server
}

fn retention(mode: &str, until: &str) -> String {
    format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>")
}

async fn put(server: &Server) -> String {
    server.put("/bucket/k", "x").await.expect(200).header(ID).to_owned()
}

async fn delete(server: &Server, id: &str, bypass: bool) -> Answer {
    let request = server.request("DELETE", &format!("/bucket/k?versionId={id}"));
    if bypass { request.header("x-amz-bypass-governance-retention", "true").send().await } else { request.send().await }
}

#[tokio::test]
async fn a_bucket_gets_object_lock_and_keeps_it() {
    let server = Server::with_bucket().await;
    let rule = "<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>";
    let document = format!(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</ObjectLockConfiguration>"
    );
    server.get("/bucket?object-lock").await.refused(404, "ObjectLockConfigurationNotFoundError");
    server.put("/bucket?object-lock", document.clone()).await.refused(409, "InvalidBucketState");
    server.put("/bucket/k", "x").await.expect(200);
    server
        .put("/bucket/k?legal-hold", "<LegalHold><Status>ON</Status></LegalHold>")
        .await
        .refused(400, "InvalidRequest");
    server.get("/bucket/k?retention").await.refused(400, "InvalidRequest");
    let early = server.request("PUT", "/bucket/k").header("x-amz-object-lock-legal-hold", "ON").body("x").send();
    early.await.refused(400, "InvalidRequest");

    let versioning =
        |status: &str| format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
    server.put("/bucket?versioning", versioning("Enabled")).await.expect(200);
    server.put("/bucket?object-lock", document).await.expect(200);
    let told = server.get("/bucket?object-lock").await.expect(200);
    assert_eq!((told.element("Mode"), told.element("Days")), ("GOVERNANCE", "1"));
    server.put("/bucket?versioning", versioning("Suspended")).await.refused(409, "InvalidBucketState");

    let id = put(&server).await;
    let head = server.request("HEAD", "/bucket/k").send().await.expect(200);
    assert_eq!(head.header("x-amz-object-lock-mode"), "GOVERNANCE");
    assert!(head.header("x-amz-object-lock-retain-until-date").ends_with('Z'));
    delete(&server, &id, false).await.refused(403, "AccessDenied");
    delete(&server, &id, true).await.expect(204);
}

#[tokio::test]
async fn retention_grows_and_governance_yields() {
    let server = locked_bucket().await;
    let id = put(&server).await;
    server.get("/bucket/k?retention").await.refused(404, "NoSuchObjectLockConfiguration");
    let set = async |mode: &str, until: &str, bypass: &str| {
        let request = server.request("PUT", "/bucket/k?retention").header("x-amz-bypass-governance-retention", bypass);
        request.body(retention(mode, until)).send().await
    };
    set("governance", UNTIL, "false").await.refused(400, "MalformedXML");
    set("GOVERNANCE", "2001-01-01T00:00:00Z", "false").await.refused(400, "InvalidArgument");
    set("GOVERNANCE", UNTIL, "false").await.expect(200);
    set("GOVERNANCE", "2141-01-01T00:00:00Z", "false").await.expect(200);
    set("GOVERNANCE", UNTIL, "false").await.refused(403, "AccessDenied");
    set("COMPLIANCE", "2142-01-01T00:00:00Z", "false").await.refused(403, "AccessDenied");
    set("GOVERNANCE", UNTIL, "true").await.expect(200);
    assert_eq!(
        server.get("/bucket/k?retention").await.expect(200).element("RetainUntilDate"),
        "2140-01-01T00:00:00.000Z"
    );
    set("COMPLIANCE", UNTIL, "true").await.expect(200);
    set("GOVERNANCE", UNTIL, "true").await.refused(403, "AccessDenied");
    delete(&server, &id, true).await.refused(403, "AccessDenied");

    // What comes above it does not touch it.
    let newer = put(&server).await;
    server.delete("/bucket/k").await.expect(204);
    delete(&server, &newer, false).await.expect(204);
    assert_eq!(server.get(&format!("/bucket/k?versionId={id}")).await.expect(200).text(), "x");
    let rename = server.request("PUT", "/bucket/new?renameObject").header("x-amz-rename-source", "k");
    rename.send().await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn a_legal_hold_holds_until_it_is_off() {
    let server = locked_bucket().await;
    let hold = async |status: &str| {
        server.put("/bucket/k?legal-hold", format!("<LegalHold><Status>{status}</Status></LegalHold>")).await
    };
    let create = server.request("PUT", "/bucket/k").header("x-amz-object-lock-legal-hold", "ON").body("x").send().await;
    let id = create.expect(200).header(ID).to_owned();
    assert_eq!(server.get("/bucket/k?legal-hold").await.expect(200).element("Status"), "ON");
    delete(&server, &id, true).await.refused(403, "AccessDenied");
    let rename = server.request("PUT", "/bucket/new?renameObject").header("x-amz-rename-source", "k").send().await;
    rename.refused(403, "AccessDenied");
    hold("maybe").await.refused(400, "MalformedXML");
    hold("OFF").await.expect(200);
    assert_eq!(
        server.request("HEAD", "/bucket/k").send().await.expect(200).header("x-amz-object-lock-legal-hold"),
        "OFF"
    );
    delete(&server, &id, false).await.expect(204);
    server.delete("/bucket").await.expect(204);
}

#[tokio::test]
async fn an_upload_locks_what_comes_of_it() {
    let server = locked_bucket().await;
    let mode = "x-amz-object-lock-mode";
    let half = server.request("POST", "/bucket/k?uploads").header(mode, "GOVERNANCE").send().await;
    half.refused(400, "InvalidArgument");
    let create = server.request("POST", "/bucket/k?uploads").header(mode, "GOVERNANCE");
    let create = create.header("x-amz-object-lock-retain-until-date", UNTIL).send().await.expect(200);
    let upload = create.element("UploadId");
    let part = server.put(&format!("/bucket/k?partNumber=1&uploadId={upload}"), "abc").await.expect(200);
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
        part.header("etag").replace('"', "&quot;")
    );
    let complete = server.request("POST", &format!("/bucket/k?uploadId={upload}")).body(list).send().await.expect(200);
    let id = complete.header(ID).to_owned();
    delete(&server, &id, false).await.refused(403, "AccessDenied");
    delete(&server, &id, true).await.expect(204);
}
