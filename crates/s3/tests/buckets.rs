//! Buckets, and what clients ask about them before they go on.

mod server;

use margay_s3::Options;
use server::Server;

#[tokio::test]
async fn a_bucket_lives_and_dies() {
    let server = Server::start().await;
    server.request("HEAD", "/photos").send().await.expect(404);
    server.get("/photos").await.refused(404, "NoSuchBucket");
    let body =
        "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    let made = server.put("/photos", body).await.expect(200);
    assert_eq!(made.header("location"), "/photos");
    server.put("/archive", "").await.expect(200);
    let listed = server.get("/").await.expect(200);
    assert_eq!(listed.elements("Name"), ["archive", "photos"]);
    let page = server.get("/?max-buckets=1").await.expect(200);
    assert_eq!(page.elements("Name"), ["archive"]);
    let token = page.element("ContinuationToken");
    assert_eq!(server.get(&format!("/?continuation-token={token}")).await.elements("Name"), ["photos"]);
    assert_eq!(server.request("HEAD", "/photos").send().await.header("x-amz-bucket-region"), "us-east-1");
    server.put("/photos/a", "x").await.expect(200);
    server.delete("/photos").await.refused(409, "BucketNotEmpty");
    server.delete("/photos/a").await.expect(204);
    server.delete("/photos").await.expect(204);
    server.request("HEAD", "/photos").send().await.expect(404);
}

#[tokio::test]
async fn a_bucket_is_made_again_as_its_region_says() {
    let server = Server::start().await;
    let make = async |name: &str, value: &str| server.request("PUT", "/photos").header(name, value).send().await;
    server.put("/photos", "").await.expect(200);
    server.put("/photos/kept", "x").await.expect(200);
    server.put("/photos", "").await.expect(200);
    assert!(server.has("/photos/kept").await);
    make("x-amz-acl", "private").await.expect(200);
    // Nothing of what is set changes that way.
    make("x-amz-acl", "public-read").await.refused(409, "BucketAlreadyExists");
    make("x-amz-object-ownership", "BucketOwnerEnforced").await.refused(409, "BucketAlreadyOwnedByYou");
    make("x-amz-bucket-object-lock-enabled", "true").await.refused(409, "BucketAlreadyOwnedByYou");
    server.request("PUT", "/photos?acl").header("x-amz-acl", "public-read").send().await.expect(200);
    server.put("/photos", "").await.refused(409, "BucketAlreadyExists");
    make("x-amz-acl", "public-read").await.expect(200);
    let elsewhere = Server::start_with(Options { region: "eu-central-1".to_owned(), ..Options::default() }).await;
    elsewhere.put("/photos", "").await.expect(200);
    elsewhere.put("/photos", "").await.refused(409, "BucketAlreadyOwnedByYou");
}

#[tokio::test]
async fn names_keep_the_rules() {
    let server = Server::start().await;
    for name in ["ab", "Photos", "a..b", "192.168.1.1", "-ab"] {
        server.put(&format!("/{name}"), "").await.refused(400, "InvalidBucketName");
    }
}

#[tokio::test]
async fn what_was_never_set_has_its_own_answer() {
    let server = Server::with_bucket().await;
    server.put("/bucket/key", "x").await.expect(200);
    for (query, code) in [
        ("policy", "NoSuchBucketPolicy"),
        ("lifecycle", "NoSuchLifecycleConfiguration"),
        ("cors", "NoSuchCORSConfiguration"),
        ("tagging", "NoSuchTagSet"),
        ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
        ("object-lock", "ObjectLockConfigurationNotFoundError"),
        ("website", "NoSuchWebsiteConfiguration"),
        ("publicAccessBlock", "NoSuchPublicAccessBlockConfiguration"),
        ("ownershipControls", "OwnershipControlsNotFoundError"),
        ("replication", "ReplicationConfigurationNotFoundError"),
    ] {
        server.get(&format!("/bucket?{query}")).await.refused(404, code);
        server.get(&format!("/nowhere?{query}")).await.refused(404, "NoSuchBucket");
    }
    for (path, root) in [
        ("/bucket?location", "LocationConstraint"),
        ("/bucket?versioning", "VersioningConfiguration"),
        ("/bucket?requestPayment", "RequestPaymentConfiguration"),
        ("/bucket?logging", "BucketLoggingStatus"),
        ("/bucket?notification", "NotificationConfiguration"),
        ("/bucket?accelerate", "AccelerateConfiguration"),
        ("/bucket?acl", "AccessControlPolicy"),
        ("/bucket/key?acl", "AccessControlPolicy"),
        ("/bucket/key?tagging", "Tagging"),
    ] {
        assert!(server.get(path).await.expect(200).text().contains(&format!("<{root} ")), "{path}");
    }
    server.delete("/bucket?policy").await.expect(204);
    server.get("/bucket/nothing?tagging").await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn what_is_not_implemented_is_named() {
    let server = Server::with_bucket().await;
    let refusal = server.put("/bucket?replication", "{}").await.refused(501, "NotImplemented");
    assert!(refusal.text().contains("PutBucketReplication"));
    let refusal = server.request("PUT", "/bucket/k").header("x-amz-server-side-encryption", "aws:kms:dsse").body("x");
    let refusal = refusal.send().await.refused(501, "NotImplemented");
    assert!(refusal.text().contains("x-amz-server-side-encryption"));
    assert!(!server.has("/bucket/k").await);
    server.request("POST", "/bucket").body("form").send().await.refused(412, "PreconditionFailed");
    server.request("PATCH", "/bucket/k").send().await.refused(405, "MethodNotAllowed");
    server.request("OPTIONS", "/bucket/k").send().await.refused(400, "BadRequest");
}

#[tokio::test]
async fn strangers_are_refused() {
    let server = Server::with_bucket().await;
    server.put("/bucket/k", "x").await.expect(200);
    server.request("GET", "/bucket/k").send_unsigned().await.refused(403, "AccessDenied");
    server.request("PUT", "/bucket/k2").body("x").send_unsigned().await.refused(403, "AccessDenied");
    let owned = server.request("GET", "/bucket/k").header("x-amz-expected-bucket-owner", "111122223333");
    owned.send().await.refused(403, "AccessDenied");
    let owned = server.request("GET", "/bucket/k").header("x-amz-expected-bucket-owner", "000000000000");
    owned.send().await.expect(200);
}

#[tokio::test]
async fn a_bucket_may_be_a_host() {
    let server = Server::with_bucket().await;
    let mut request = server.request("PUT", "/k").body("x");
    request.headers.insert("host", "bucket.s3.test".parse().unwrap());
    request.send().await.expect(200);
    assert!(server.has("/bucket/k").await);
}
