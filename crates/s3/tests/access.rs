//! Users other than root: policies, access lists, public access block; and isolation between accounts.

mod server;

use margay_s3::route::table::implemented;
use server::{Answer, Server};

const EVERYTHING: &str = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}"#;

/// Two accounts: `victim` with the powerless `clerk`, `mallory` with the almighty `minion`.
async fn two_accounts() -> Server {
    let server = Server::with_users(&[
        ("victim", None, &[]),
        ("clerk", Some("victim"), &[]),
        ("mallory", None, &[]),
        ("minion", Some("mallory"), &[EVERYTHING]),
    ])
    .await;
    server.request("PUT", "/vault").send_as("victim").await.expect(200);
    server.request("PUT", "/lair").send_as("mallory").await.expect(200);
    server.request("PUT", "/vault/key").body("gold").send_as("victim").await.expect(200);
    server.request("PUT", "/lair/stone").body("stone").send_as("mallory").await.expect(200);
    server
}

type Attack = (&'static str, &'static str, String, Vec<(&'static str, &'static str)>, &'static str);

const ACL: &str = "<AccessControlPolicy><AccessControlList/></AccessControlPolicy>";
const DELETE: &str = "<Delete><Object><Key>key</Key></Object></Delete>";
const PARTS: &str =
    "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>";
const SELECT: &str =
    "<SelectObjectContentRequest><Expression>select * from s3object</Expression></SelectObjectContentRequest>";
const OWNERSHIP: &str =
    "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>";
const BLOCK: &str = "<PublicAccessBlockConfiguration/>";

/// A request of every operation for `vault` and the object `key` in it.
fn attacks(upload: &str) -> Vec<Attack> {
    let part = format!("partNumber=1&uploadId={upload}");
    [on_the_bucket(), on_its_settings(), on_the_object(&format!("uploadId={upload}"), &part), by_headers(&part)]
        .concat()
}

fn on_the_bucket() -> Vec<Attack> {
    let bucket = |name: &'static str, method: &'static str, query: &str, body: &'static str| {
        (name, method, format!("/vault?{query}"), Vec::new(), body)
    };
    vec![
        bucket("DeleteBucket", "DELETE", "", ""),
        bucket("HeadBucket", "HEAD", "", ""),
        bucket("ListObjects", "GET", "", ""),
        bucket("ListObjectsV2", "GET", "list-type=2", ""),
        bucket("ListObjectVersions", "GET", "versions", ""),
        bucket("ListMultipartUploads", "GET", "uploads", ""),
        bucket("PutBucketAccelerateConfiguration", "PUT", "accelerate", "<AccelerateConfiguration/>"),
        bucket("PutBucketCors", "PUT", "cors", "<CORSConfiguration/>"),
        bucket("PutBucketLifecycleConfiguration", "PUT", "lifecycle", "<LifecycleConfiguration/>"),
        bucket("PutBucketLogging", "PUT", "logging", "<BucketLoggingStatus/>"),
        bucket("PutBucketNotificationConfiguration", "PUT", "notification", "<NotificationConfiguration/>"),
        bucket("PutBucketRequestPayment", "PUT", "requestPayment", "<RequestPaymentConfiguration/>"),
        bucket("PutBucketEncryption", "PUT", "encryption", "<ServerSideEncryptionConfiguration/>"),
        bucket("PutBucketTagging", "PUT", "tagging", "<Tagging/>"),
        bucket("PutBucketWebsite", "PUT", "website", "<WebsiteConfiguration/>"),
        bucket("PutBucketAcl", "PUT", "acl", ACL),
        bucket("PutBucketOwnershipControls", "PUT", "ownershipControls", OWNERSHIP),
        bucket("PutBucketPolicy", "PUT", "policy", EVERYTHING),
        bucket("PutPublicAccessBlock", "PUT", "publicAccessBlock", BLOCK),
        bucket("PutBucketVersioning", "PUT", "versioning", "<VersioningConfiguration/>"),
        bucket("PutObjectLockConfiguration", "PUT", "object-lock", "<ObjectLockConfiguration/>"),
    ]
}

fn on_the_object(upload: &str, part: &str) -> Vec<Attack> {
    let object = |name: &'static str, method: &'static str, query: &str, body: &'static str| {
        (name, method, format!("/vault/key?{query}"), Vec::new(), body)
    };
    vec![
        object("PutObjectTagging", "PUT", "tagging", "<Tagging/>"),
        object("AbortMultipartUpload", "DELETE", upload, ""),
        object("CompleteMultipartUpload", "POST", upload, PARTS),
        object("CreateMultipartUpload", "POST", "uploads", ""),
        object("DeleteObject", "DELETE", "", ""),
        object("DeleteObjectTagging", "DELETE", "tagging", ""),
        object("GetObject", "GET", "", ""),
        object("GetObjectAcl", "GET", "acl", ""),
        object("GetObjectLegalHold", "GET", "legal-hold", ""),
        object("GetObjectRetention", "GET", "retention", ""),
        object("GetObjectTagging", "GET", "tagging", ""),
        object("HeadObject", "HEAD", "", ""),
        object("ListParts", "GET", upload, ""),
        object("PutObject", "PUT", "", "lead"),
        object("PutObjectAcl", "PUT", "acl", ACL),
        object("PutObjectLegalHold", "PUT", "legal-hold", "<LegalHold><Status>ON</Status></LegalHold>"),
        object("PutObjectRetention", "PUT", "retention", "<Retention/>"),
        object("GetObject", "GET", "versionId=null", ""),
        object("HeadObject", "HEAD", "versionId=null", ""),
        object("DeleteObject", "DELETE", "versionId=null", ""),
        object("GetObjectTagging", "GET", "tagging&versionId=null", ""),
        object("PutObjectAcl", "PUT", "acl&versionId=null", ACL),
        object("SelectObjectContent", "POST", "select&select-type=2", SELECT),
        object("UploadPart", "PUT", part, "lead"),
    ]
}

fn on_its_settings() -> Vec<Attack> {
    let mut all = Vec::new();
    for (name, query) in [
        ("BucketAccelerateConfiguration", "accelerate"),
        ("BucketAcl", "acl"),
        ("BucketLocation", "location"),
        ("BucketLogging", "logging"),
        ("BucketNotificationConfiguration", "notification"),
        ("BucketPolicyStatus", "policyStatus"),
        ("BucketRequestPayment", "requestPayment"),
        ("BucketVersioning", "versioning"),
        ("ObjectLockConfiguration", "object-lock"),
    ] {
        all.push((leak(&format!("Get{name}")), "GET", format!("/vault?{query}"), Vec::new(), ""));
    }
    for (name, query) in [
        ("BucketCors", "cors"),
        ("BucketEncryption", "encryption"),
        ("BucketLifecycle", "lifecycle"),
        ("BucketOwnershipControls", "ownershipControls"),
        ("BucketPolicy", "policy"),
        ("BucketReplication", "replication"),
        ("BucketTagging", "tagging"),
        ("BucketWebsite", "website"),
        ("PublicAccessBlock", "publicAccessBlock"),
    ] {
        let read = if name == "BucketLifecycle" { "BucketLifecycleConfiguration" } else { name };
        all.push((leak(&format!("Get{read}")), "GET", format!("/vault?{query}"), Vec::new(), ""));
        all.push((leak(&format!("Delete{name}")), "DELETE", format!("/vault?{query}"), Vec::new(), ""));
    }
    all
}

fn by_headers(part: &str) -> Vec<Attack> {
    let with = |name, method, path: &str, headers: &[(&'static str, &'static str)], body| {
        (name, method, path.to_owned(), headers.to_vec(), body)
    };
    vec![
        with("GetObjectAttributes", "GET", "/vault/key?attributes", &[("x-amz-object-attributes", "ETag")], ""),
        // Into the vault, and out of it.
        with("CopyObject", "PUT", "/vault/key", &[("x-amz-copy-source", "/lair/stone")], ""),
        with("CopyObject", "PUT", "/lair/loot", &[("x-amz-copy-source", "/vault/key")], ""),
        with("CopyObject", "PUT", "/lair/loot", &[("x-amz-copy-source", "vault%2Fkey")], ""),
        with("CopyObject", "PUT", "/lair/loot", &[("x-amz-copy-source", "/vault/key?versionId=null")], ""),
        with("UploadPartCopy", "PUT", &format!("/vault/key?{part}"), &[("x-amz-copy-source", "/lair/stone")], ""),
        with("PutObject", "PUT", "/vault/key", &[("x-amz-write-offset-bytes", "0")], "lead"),
        with("RenameObject", "PUT", "/vault/new?renameObject", &[("x-amz-rename-source", "/vault/key")], ""),
        // The path decides, whatever the source names.
        with("RenameObject", "PUT", "/vault/key?renameObject", &[("x-amz-rename-source", "/lair/stone")], ""),
        // The bucket of the path decides, not the text of a key that looks like a path.
        with("GetObject", "GET", "/vault/../lair/stone", &[], ""),
        with("DeleteObjects", "POST", "/vault?delete", &[("content-md5", "unused")], DELETE),
    ]
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// Operations that need more than rights on one bucket; each has a test of its own below.
const ELSEWHERE: &[&str] = &["CreateBucket", "ListBuckets"];

#[tokio::test]
async fn no_way_from_one_users_key_to_anothers_bucket() {
    let server = two_accounts().await;
    let made = server.request("POST", "/vault/key?uploads").send_as("victim").await.expect(200);
    let upload = made.element("UploadId").to_owned();
    let attacks = attacks(&upload);
    let missing: Vec<_> = implemented()
        .into_iter()
        .filter(|name| !ELSEWHERE.contains(name) && !attacks.iter().any(|(own, ..)| own == name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "operations that nobody has attacked");
    for who in ["mallory", "minion", "clerk", ""] {
        for (name, method, path, headers, body) in &attacks {
            let mut request = server.request(method, path);
            for (header, value) in headers {
                match *header {
                    "content-md5" => request = request.header(header, &md5(body)),
                    _ => request = request.header(header, value),
                }
            }
            if !body.is_empty() {
                request = request.body(*body);
            }
            let answer = request.send_as(who).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if *name == "DeleteObjects" {
                // The document is answered; each of its keys is refused.
                assert!(
                    text.contains("<Code>AccessDenied</Code>") && !text.contains("<Deleted>"),
                    "{who} {name}: {text}"
                );
            } else {
                assert_eq!(answer.status, 403, "{who}: {name} {path} {text}");
                assert!(*method == "HEAD" || text.contains("<Code>AccessDenied</Code>"), "{who} {name}: {text}");
            }
            assert!(!text.contains("gold"), "{who} {name}");
        }
    }
    // Nothing has changed.
    let kept = server.request("GET", "/vault/key").send_as("victim").await.expect(200);
    assert_eq!(kept.text(), "gold");
    let listed = server.request("GET", "/vault").send_as("victim").await.expect(200);
    assert_eq!(listed.elements("Key"), ["key"]);
    let uploads = server.request("GET", "/vault?uploads").send_as("victim").await.expect(200);
    assert_eq!(uploads.elements("UploadId"), [upload.as_str()]);
    let own = server.request("GET", "/lair").send_as("mallory").await.expect(200);
    assert_eq!(own.elements("Key"), ["stone"]);
}

fn md5(body: &str) -> String {
    use base64::Engine as _;
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(body))
}

#[tokio::test]
async fn everybody_sees_his_own_buckets() {
    let server = two_accounts().await;
    let names = async |who: &str| -> Vec<String> {
        let answer = server.request("GET", "/").send_as(who).await.expect(200);
        answer.elements("Name").into_iter().map(str::to_owned).collect()
    };
    assert_eq!(names("victim").await, ["vault"]);
    assert_eq!(names("mallory").await, ["lair"]);
    assert_eq!(names("minion").await, ["lair"]);
    server.request("GET", "/").send_as("clerk").await.refused(403, "AccessDenied");
    server.request("GET", "/").send_as("").await.refused(403, "AccessDenied");
    assert_eq!(server.get("/").await.expect(200).elements("Name"), ["lair", "vault"]);
    server.request("PUT", "/vault").send_as("mallory").await.refused(409, "BucketAlreadyExists");
    server.request("PUT", "/vault").send_as("victim").await.expect(200);
    server.request("PUT", "/other").send_as("clerk").await.refused(403, "AccessDenied");
    server.request("PUT", "/other").send_as("").await.refused(403, "AccessDenied");
    // Root may do everything.
    assert_eq!(server.get("/vault/key").await.expect(200).text(), "gold");
    let owner = server.request("GET", "/vault?acl").send_as("victim").await.expect(200);
    assert_eq!(owner.element("ID"), "canonical-victim");
}

/// A policy of one statement for `vault`.
fn policy(principal: &str, action: &str, resource: &str, more: &str) -> String {
    format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Sid":"one","Effect":"Allow","Principal":{principal},"Action":"{action}","Resource":"arn:aws:s3:::{resource}"{more}}}]}}"#
    )
}

async fn set_policy(server: &Server, text: &str) -> Answer {
    server.request("PUT", "/vault?policy").body(text).send_as("victim").await
}

#[tokio::test]
async fn a_bucket_policy_opens_what_it_says() {
    let server = two_accounts().await;
    set_policy(&server, &policy("\"*\"", "s3:GetObject", "vault/*", "")).await.expect(204);
    let kept = server.request("GET", "/vault?policy").send_as("victim").await.expect(200);
    assert!(kept.text().contains("\"Sid\":\"one\""));
    for who in ["", "mallory", "minion", "clerk"] {
        assert_eq!(server.request("GET", "/vault/key").send_as(who).await.expect(200).text(), "gold");
        server.request("PUT", "/vault/key").body("x").send_as(who).await.refused(403, "AccessDenied");
        server.request("GET", "/vault").send_as(who).await.refused(403, "AccessDenied");
        // Who may not list may not know what is not there.
        server.request("GET", "/vault/nothing").send_as(who).await.refused(403, "AccessDenied");
    }
    let status = server.request("GET", "/vault?policyStatus").send_as("victim").await.expect(200);
    assert_eq!(status.element("IsPublic"), "true");
    // A public policy that is restricted is for the account alone.
    let block = "<PublicAccessBlockConfiguration><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>";
    server.request("PUT", "/vault?publicAccessBlock").body(block).send_as("victim").await.expect(200);
    server.request("GET", "/vault/key").send_as("").await.refused(403, "AccessDenied");
    server.request("GET", "/vault/key").send_as("mallory").await.refused(403, "AccessDenied");
    server.request("GET", "/vault/key").send_as("clerk").await.expect(200);
    server.request("DELETE", "/vault?publicAccessBlock").send_as("victim").await.expect(204);
    server.request("GET", "/vault/key").send_as("").await.expect(200);
    server.request("DELETE", "/vault?policy").send_as("victim").await.expect(204);
    server.request("GET", "/vault/key").send_as("").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn conditions_see_the_request() {
    let server = two_accounts().await;
    let listed = policy("\"*\"", "s3:ListBucket", "vault", r#","Condition":{"StringEquals":{"s3:prefix":"k"}}"#);
    set_policy(&server, &listed).await.expect(204);
    server.request("GET", "/vault?prefix=k").send_as("").await.expect(200);
    server.request("GET", "/vault?prefix=x").send_as("").await.refused(403, "AccessDenied");
    server.request("GET", "/vault").send_as("").await.refused(403, "AccessDenied");
    let near =
        policy("\"*\"", "s3:GetObject", "vault/*", r#","Condition":{"IpAddress":{"aws:SourceIp":"127.0.0.0/8"}}"#);
    set_policy(&server, &near).await.expect(204);
    server.request("GET", "/vault/key").send_as("").await.expect(200);
    let status = server.request("GET", "/vault?policyStatus").send_as("victim").await.expect(200);
    assert_eq!(status.element("IsPublic"), "false");
    let far = policy("\"*\"", "s3:GetObject", "vault/*", r#","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#);
    set_policy(&server, &far).await.expect(204);
    server.request("GET", "/vault/key").send_as("").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn what_is_no_policy_is_refused() {
    let server = two_accounts().await;
    for bad in [
        "",
        "{}",
        "no json",
        EVERYTHING,
        &policy("\"*\"", "s3:GetObjekt", "vault/*", ""),
        &policy("\"mallory\"", "s3:GetObject", "vault/*", ""),
        &policy("\"*\"", "s3:GetObject", "vault/*", r#","Condition":{"StringResembles":{"s3:prefix":"k"}}"#),
        &policy("\"*\"", "s3:GetObject", "vault/*", r#","Sid":"two""#),
    ] {
        set_policy(&server, bad).await.refused(400, "MalformedPolicy");
    }
    let block = "<PublicAccessBlockConfiguration><BlockPublicPolicy>true</BlockPublicPolicy><BlockPublicAcls>true</BlockPublicAcls></PublicAccessBlockConfiguration>";
    server.request("PUT", "/vault?publicAccessBlock").body(block).send_as("victim").await.expect(200);
    set_policy(&server, &policy("\"*\"", "s3:GetObject", "vault/*", "")).await.refused(403, "AccessDenied");
    set_policy(&server, &policy("{\"AWS\":\"111111111113\"}", "s3:GetObject", "vault/*", "")).await.expect(204);
    let public = |path| server.request("PUT", path).header("x-amz-acl", "public-read");
    public("/vault?acl").send_as("victim").await.refused(403, "AccessDenied");
    public("/vault/key").body("x").send_as("victim").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn access_lists_of_buckets_and_objects() {
    let server = two_accounts().await;
    let canned = |path, name| server.request("PUT", path).header("x-amz-acl", name);
    canned("/vault/key?acl", "public-read").send_as("victim").await.expect(200);
    assert_eq!(server.request("GET", "/vault/key").send_as("").await.expect(200).text(), "gold");
    server.request("GET", "/vault").send_as("").await.refused(403, "AccessDenied");
    canned("/vault?acl", "public-read-write").send_as("victim").await.expect(200);
    server.request("GET", "/vault").send_as("").await.expect(200);
    // Who may list may know what is not there.
    server.request("GET", "/vault/nothing").send_as("").await.refused(404, "NoSuchKey");
    // What another account writes is its own, and even the bucket's owner may not read it.
    server.request("PUT", "/vault/foreign").body("coal").send_as("mallory").await.expect(200);
    server.request("GET", "/vault/foreign").send_as("victim").await.refused(403, "AccessDenied");
    let owner = server.request("GET", "/vault/foreign?acl").send_as("mallory").await.expect(200);
    assert_eq!(owner.element("ID"), "canonical-mallory");
    canned("/vault/shared", "bucket-owner-full-control").body("coal").send_as("mallory").await.expect(200);
    server.request("GET", "/vault/shared").send_as("victim").await.expect(200);
    // The owner of the bucket may remove it all the same.
    server.request("DELETE", "/vault/foreign").send_as("victim").await.expect(204);
    let grant = r#"id="canonical-mallory""#;
    server
        .request("PUT", "/vault/gift")
        .header("x-amz-grant-read", grant)
        .body("gem")
        .send_as("victim")
        .await
        .expect(200);
    assert_eq!(server.request("GET", "/vault/gift").send_as("mallory").await.expect(200).text(), "gem");
    server.request("GET", "/vault/gift").send_as("").await.refused(403, "AccessDenied");
    let nobody = r#"id="nobody""#;
    server
        .request("PUT", "/vault/gift")
        .header("x-amz-grant-read", nobody)
        .body("gem")
        .send_as("victim")
        .await
        .refused(400, "InvalidArgument");
    let mail = r#"emailAddress="nobody@example.com""#;
    let request = server.request("PUT", "/vault/gift?acl").header("x-amz-grant-read", mail);
    request.send_as("victim").await.refused(400, "UnresolvableGrantByEmailAddress");
}

#[tokio::test]
async fn absence_is_told_to_who_may_list_the_name() {
    let server = two_accounts().await;
    let condition = r#","Condition":{"StringLike":{"s3:prefix":"public/*"}}"#;
    let allowed = policy(r#""*""#, "s3:ListBucket", "vault", condition);
    server.request("PUT", "/vault?policy").body(allowed).send_as("victim").await.expect(204);
    server.request("GET", "/vault/public/nothing").send_as("mallory").await.refused(404, "NoSuchKey");
    server.request("GET", "/vault/private/nothing").send_as("mallory").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn where_the_bucket_owner_is_enforced_no_list_counts() {
    let server = two_accounts().await;
    server.request("PUT", "/vault/key?acl").header("x-amz-acl", "public-read").send_as("victim").await.expect(200);
    let controls =
        "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    server.request("PUT", "/vault?ownershipControls").body(controls).send_as("victim").await.expect(200);
    server.request("GET", "/vault/key").send_as("").await.refused(403, "AccessDenied");
    for path in ["/vault?acl", "/vault/key?acl", "/vault/key"] {
        let request = server.request("PUT", path).header("x-amz-acl", "public-read").body("");
        request.send_as("victim").await.refused(400, "AccessControlListNotSupported");
    }
    // What changes nothing is taken, unless it names a list.
    let say =
        async |path: &str, name: &str| server.request("PUT", path).header("x-amz-acl", name).send_as("victim").await;
    say("/vault/key?acl", "bucket-owner-full-control").await.expect(200);
    say("/vault/key?acl", "private").await.refused(400, "AccessControlListNotSupported");
    say("/vault?acl", "private").await.refused(400, "AccessControlListNotSupported");
    let full = server.request("PUT", "/vault/key").header("x-amz-acl", "bucket-owner-full-control").body("gold");
    full.send_as("victim").await.expect(200);
    let list = server.request("GET", "/vault/key?acl").send_as("victim").await.expect(200);
    assert_eq!(list.elements("Permission"), ["FULL_CONTROL"]);
}

#[tokio::test]
async fn a_version_has_rights_and_a_list_of_its_own() {
    let server = two_accounts().await;
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    server.request("PUT", "/vault?versioning").body(versioning).send_as("victim").await.expect(200);
    let open = server.request("PUT", "/vault/key").header("x-amz-acl", "public-read").body("brass");
    let open = open.send_as("victim").await.expect(200).header("x-amz-version-id").to_owned();
    let shut = server.request("PUT", "/vault/key").body("silver").send_as("victim").await.expect(200);
    let shut = shut.header("x-amz-version-id").to_owned();
    // The list of the version that is asked for counts, not that of another one.
    let of = |version: &str| format!("/vault/key?versionId={version}");
    assert_eq!(server.request("GET", &of(&open)).send_as("").await.expect(200).text(), "brass");
    server.request("GET", "/vault/key").send_as("").await.refused(403, "AccessDenied");
    server.request("GET", &of(&shut)).send_as("mallory").await.refused(403, "AccessDenied");
    let list = format!("/vault/key?acl&versionId={open}");
    server.request("PUT", &list).header("x-amz-acl", "private").send_as("victim").await.expect(200);
    server.request("GET", &of(&open)).send_as("").await.refused(403, "AccessDenied");
    // A version that is not there is not told from one that is.
    server.request("GET", &of("00000000000000ff")).send_as("").await.refused(403, "AccessDenied");
    // Reading the object is not reading its versions, nor is deleting it deleting them.
    set_policy(&server, &policy("\"*\"", "s3:*Object", "vault/*", "")).await.expect(204);
    assert_eq!(server.request("GET", "/vault/key").send_as("").await.expect(200).text(), "silver");
    server.request("GET", &of(&shut)).send_as("").await.refused(403, "AccessDenied");
    server.request("DELETE", "/vault/key").send_as("").await.expect(204);
    server.request("DELETE", &of(&shut)).send_as("").await.refused(403, "AccessDenied");
    set_policy(&server, &policy("\"*\"", "s3:*ObjectVersion", "vault/*", "")).await.expect(204);
    assert_eq!(server.request("GET", &of(&shut)).send_as("").await.expect(200).text(), "silver");
    server.request("DELETE", &of(&shut)).send_as("").await.expect(204);
}

#[tokio::test]
async fn locks_have_rights_of_their_own() {
    let server = two_accounts().await;
    let locked = server.request("PUT", "/safe").header("x-amz-bucket-object-lock-enabled", "true");
    locked.send_as("victim").await.expect(200);
    let allow = async |actions: &str| {
        let text = format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Principal":"*","Action":[{actions}],"Resource":"arn:aws:s3:::safe/*"}}}}"#
        );
        server.request("PUT", "/safe?policy").body(text).send_as("victim").await.expect(204);
    };
    let put = || {
        let request = server.request("PUT", "/safe/key").header("x-amz-object-lock-mode", "GOVERNANCE");
        request.header("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z").body("gold")
    };
    allow(r#""s3:PutObject""#).await;
    put().send_as("clerk").await.refused(403, "AccessDenied");
    allow(r#""s3:PutObject","s3:PutObjectRetention","s3:DeleteObjectVersion""#).await;
    let version = put().send_as("clerk").await.expect(200).header("x-amz-version-id").to_owned();
    let path = format!("/safe/key?versionId={version}");
    let bypass = || server.request("DELETE", &path).header("x-amz-bypass-governance-retention", "true");
    bypass().send_as("clerk").await.refused(403, "AccessDenied");
    let document = format!("<Delete><Object><Key>key</Key><VersionId>{version}</VersionId></Object></Delete>");
    let many = || {
        let request = server.request("POST", "/safe?delete").header("content-md5", &md5(&document));
        request.header("x-amz-bypass-governance-retention", "true").body(document.as_str())
    };
    assert!(many().send_as("clerk").await.expect(200).text().contains("<Code>AccessDenied</Code>"));
    allow(r#""s3:BypassGovernanceRetention","s3:DeleteObjectVersion""#).await;
    server.request("DELETE", &path).send_as("clerk").await.refused(403, "AccessDenied");
    assert!(many().send_as("clerk").await.expect(200).text().contains("<Deleted>"));
}

#[tokio::test]
async fn tags_of_a_new_object_have_a_right_of_their_own() {
    let server = two_accounts().await;
    let put = |path: &str| server.request("PUT", path).header("x-amz-tagging", "a=b");
    for (actions, status) in [("s3:PutObject", 403), ("s3:PutObject*", 200)] {
        set_policy(&server, &policy("\"*\"", actions, "vault/*", "")).await.expect(204);
        server.request("PUT", "/vault/new").body("x").send_as("clerk").await.expect(200);
        put("/vault/new").body("x").send_as("clerk").await.expect(status);
        server.request("POST", "/vault/parts?uploads").header("x-amz-tagging", "a=b").send_as("").await.expect(status);
    }
}

#[tokio::test]
async fn a_delete_marker_may_go_like_any_version() {
    let server = two_accounts().await;
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    server.request("PUT", "/vault?versioning").body(enabled).send_as("victim").await.expect(200);
    let deleted = server.request("DELETE", "/vault/key").send_as("victim").await.expect(204);
    let marker = deleted.header("x-amz-version-id").to_owned();
    let path = format!("/vault/key?versionId={marker}");
    server.request("GET", &path).send_as("victim").await.refused(405, "MethodNotAllowed");
    server.request("GET", &path).send_as("mallory").await.refused(403, "AccessDenied");
    let document = format!("<Delete><Object><Key>key</Key><VersionId>{marker}</VersionId></Object></Delete>");
    let bypass = |who| {
        let request = server.request("POST", "/vault?delete").header("content-md5", &md5(&document));
        request.header("x-amz-bypass-governance-retention", "true").body(document.as_str()).send_as(who)
    };
    assert!(bypass("mallory").await.expect(200).text().contains("<Code>AccessDenied</Code>"));
    assert!(bypass("victim").await.expect(200).text().contains("<DeleteMarker>true</DeleteMarker>"));
    assert_eq!(server.request("GET", "/vault/key").send_as("victim").await.expect(200).text(), "gold");
}
