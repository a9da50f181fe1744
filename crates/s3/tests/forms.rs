//! Browser's forms: what they store, what they answer, and what their policies keep out.

mod server;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use margay_s3::auth::sign::Signer;
use margay_s3::auth::{PayloadForm, Secret};
use server::{Answer, Server};

/// A form for the bucket `bucket`: fields, policy conditions beside those of the fields, file.
struct Form<'s> {
    server: &'s Server,
    fields: Vec<(String, String)>,
    conditions: Vec<String>,
    expires: &'static str,
    file: Vec<u8>,
}

impl<'s> Form<'s> {
    /// For a key, with a policy that allows whatever fields are added.
    fn new(server: &'s Server, key: &str) -> Form<'s> {
        let form = Form {
            server,
            fields: Vec::new(),
            conditions: Vec::new(),
            expires: "2100-01-01T00:00:00Z",
            file: Vec::new(),
        };
        form.field("key", key)
    }

    fn field(self, name: &str, value: &str) -> Form<'s> {
        let condition = format!("[\"starts-with\", \"${name}\", \"\"]");
        self.unnamed_field(name, value).condition(&condition)
    }

    fn unnamed_field(mut self, name: &str, value: &str) -> Form<'s> {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    fn condition(mut self, condition: &str) -> Form<'s> {
        self.conditions.push(condition.to_owned());
        self
    }

    fn expires(mut self, expires: &'static str) -> Form<'s> {
        self.expires = expires;
        self
    }

    fn file(mut self, file: impl Into<Vec<u8>>) -> Form<'s> {
        self.file = file.into();
        self
    }

    fn policy(&self) -> String {
        let conditions = self.conditions.join(",");
        let expires = self.expires;
        STANDARD.encode(format!(
            "{{\"expiration\": \"{expires}\", \"conditions\": [{{\"bucket\": \"bucket\"}}, {conditions}]}}"
        ))
    }

    fn signed(self) -> Form<'s> {
        let signer = &self.server.signer;
        self.signed_by(signer)
    }

    fn signed_by(mut self, signer: &Signer) -> Form<'s> {
        let now = self.server.env.clock.now();
        for (name, value) in signer.form_fields(now) {
            self = self.field(name, &value);
        }
        let form = self;
        let policy = form.policy();
        let signature = signer.sign_policy(&policy, now);
        form.unnamed_field("policy", &policy).unnamed_field("x-amz-signature", &signature)
    }

    fn signed_v2(self) -> Form<'s> {
        let policy = self.policy();
        let signature = self.server.signer_v2.sign_policy(&policy);
        self.unnamed_field("AWSAccessKeyId", "margaytest")
            .unnamed_field("policy", &policy)
            .unnamed_field("signature", &signature)
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, value) in &self.fields {
            let part = format!("--bound\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend_from_slice(part.as_bytes());
        }
        body.extend_from_slice(
            b"--bound\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cat.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n",
        );
        body.extend_from_slice(&self.file);
        body.extend_from_slice(b"\r\n--bound--\r\n");
        body
    }

    async fn send(self) -> Answer {
        let body = self.body();
        post(self.server, body).await
    }
}

async fn post(server: &Server, body: Vec<u8>) -> Answer {
    let post = server.request("POST", "/bucket").header("content-type", "multipart/form-data; boundary=bound");
    post.body(body).send_unsigned().await
}

#[tokio::test]
async fn files_of_every_size_come_back() {
    let server = Server::with_bucket().await;
    for len in [0, 1, 1000, 65_536, 65_537, 524_288, 524_289, 1_500_000, 17_000_000, 18_000_000] {
        let file: Vec<u8> = (0..len).map(|index: u32| ((index * 7) >> 3) as u8).collect();
        let answer = Form::new(&server, "dir/${filename}").file(file.clone()).signed().send().await.expect(204);
        assert_eq!(answer.header("location"), format!("http://{}/bucket/dir/cat.jpg", server.address));
        let got = server.get("/bucket/dir/cat.jpg").await;
        assert!(got.body == file, "{len} bytes");
        assert_eq!(got.header("etag"), answer.header("etag"));
        Form::new(&server, "v2").file(file.clone()).signed_v2().send().await.expect(204);
        assert!(server.get("/bucket/v2").await.body == file, "{len} bytes");
    }
}

#[tokio::test]
async fn a_form_that_nobody_signed_has_the_rights_of_anybody() {
    let server = Server::with_bucket().await;
    let form = || Form::new(&server, "dir/${filename}").field("Content-Type", "text/x-margay").file("meow");
    form().send().await.refused(403, "AccessDenied");
    let tagged =
        || form().field("tagging", "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>");
    server.request("PUT", "/bucket?acl").header("x-amz-acl", "public-read-write").send().await.expect(200);
    form().send().await.expect(204);
    tagged().send().await.refused(403, "AccessDenied");
    let got = server.get("/bucket/dir/cat.jpg").await;
    assert_eq!((got.text(), got.header("content-type")), ("meow", "text/x-margay"));
    // A policy that nobody signed says nothing.
    let policy = form().policy();
    form().unnamed_field("policy", &policy).send().await.refused(400, "InvalidArgument");
    // A wrong signature is none of nobody.
    form().unnamed_field("signature", "A").unnamed_field("AWSAccessKeyId", "x").send().await.expect_error();
}

#[tokio::test]
async fn fields_become_headers() {
    let server = Server::with_bucket().await;
    let form = Form::new(&server, "k").field("Content-Type", "text/x-margay").field("x-amz-meta-name", "${filename}");
    let form =
        form.field("x-amz-checksum-crc32c", "mnG7TA==").field("acl", "private").unnamed_field("x-ignore-me", "x");
    form.file("hello").signed().send().await.expect(204);
    let got = server.request("GET", "/bucket/k").header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!((got.text(), got.header("content-type")), ("hello", "text/x-margay"));
    assert_eq!((got.header("x-amz-meta-name"), got.header("x-amz-checksum-crc32c")), ("cat.jpg", "mnG7TA=="));
}

#[tokio::test]
async fn a_form_may_carry_tags() {
    let server = Server::with_bucket().await;
    let tags = "<Tagging><TagSet><Tag><Key>a&amp;</Key><Value>1 2</Value></Tag></TagSet></Tagging>";
    let form = |tags: &str| Form::new(&server, "k").field("tagging", tags).file("x").signed();
    form(tags).send().await.refused(400, "InvalidTag");
    form("<Tagging/>").send().await.refused(400, "MalformedXML");
    form(&tags.replace("&amp;", "b")).send().await.expect(204);
    let kept = server.get("/bucket/k?tagging").await.expect(200);
    assert_eq!((kept.element("Key"), kept.element("Value")), ("ab", "1 2"));
}

#[tokio::test]
async fn answers() {
    let server = Server::with_bucket().await;
    let form = |status: &str| Form::new(&server, "a b&c").field("success_action_status", status).file("x").signed();
    assert_eq!(form("200").send().await.expect(200).body, b"");
    assert_eq!(form("404").send().await.expect(204).body, b"");
    let created = form("201").send().await.expect(201);
    assert_eq!((created.element("Bucket"), created.element("Key")), ("bucket", "a b&amp;c"));
    assert_eq!(created.element("Location"), format!("http://{}/bucket/a%20b%26c", server.address));
    assert_eq!(created.element("ETag").replace("&quot;", "\""), created.header("etag"));
    let redirect = |url: &str| Form::new(&server, "k").field("success_action_redirect", url).file("x").signed();
    let etag = "%229dd4e461268c8034f5c8564e155c67a6%22";
    let answer = redirect("http://example.com/done").send().await.expect(303);
    assert_eq!(answer.header("location"), format!("http://example.com/done?bucket=bucket&key=k&etag={etag}"));
    let answer = redirect("https://example.com/?a=b#c").send().await.expect(303);
    assert_eq!(answer.header("location"), format!("https://example.com/?a=b&bucket=bucket&key=k&etag={etag}#c"));
    for bad in ["javascript:alert(1)", "/somewhere", "not a url"] {
        redirect(bad).send().await.expect(204);
    }
}

#[tokio::test]
async fn policies_keep_out() {
    let server = Server::with_bucket().await;
    let form = |key: &str| Form::new(&server, key).file("hello");
    form("k").expires("2001-01-01T00:00:00Z").signed().send().await.refused(403, "AccessDenied");
    form("k").condition("{\"key\": \"other\"}").signed().send().await.refused(403, "AccessDenied");
    form("k").unnamed_field("x-amz-meta-a", "b").signed().send().await.refused(403, "AccessDenied");
    form("k").condition("{}").signed().send().await.refused(400, "InvalidPolicyDocument");
    form("k").condition("[\"content-length-range\", 0, 4]").signed().send().await.refused(400, "EntityTooLarge");
    form("k").condition("[\"content-length-range\", 6, 9]").signed().send().await.refused(400, "EntityTooSmall");
    form("k").condition("{\"bucket\": \"other\"}").signed().send().await.refused(403, "AccessDenied");
    form("").signed().send().await.refused(400, "UserKeyMustBeSpecified");
    form(&"k".repeat(1025)).signed().send().await.refused(400, "KeyTooLongError");
    form("k").field("x-amz-server-side-encryption-customer-algorithm", "ROT13").signed().send().await.expect_error();
    let mut unsigned = form("k").signed();
    unsigned.fields.retain(|(name, _)| name != "x-amz-signature");
    unsigned.send().await.refused(400, "InvalidArgument");
    let mut altered = form("k").signed();
    altered.fields.iter_mut().for_each(|(name, value)| {
        if name == "x-amz-signature" {
            *value = "0".repeat(64)
        }
    });
    altered.send().await.refused(403, "SignatureDoesNotMatch");
    form("k").send().await.refused(403, "AccessDenied");
    assert!(!server.has("/bucket/k").await);
    form("k").condition("[\"content-length-range\", 5, 5]").signed().send().await.expect(204);
}

#[tokio::test]
async fn wrong_checksums_store_nothing() {
    let server = Server::with_bucket().await;
    for (name, value) in [
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-checksum-crc32c", "AAAAAA=="),
        ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
        ("x-amz-checksum-sha1", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("x-amz-checksum-sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ] {
        for len in [5, 3_000_000] {
            let form = Form::new(&server, "k").field(name, value).file(vec![b'x'; len]);
            form.signed().send().await.refused(400, "BadDigest");
        }
    }
    assert!(!server.has("/bucket/k").await);
}

#[tokio::test]
async fn broken_bodies_store_nothing() {
    let server = Server::with_bucket().await;
    let whole = Form::new(&server, "k").file("hello").signed().body();
    let at = |text: &str| whole.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    for len in [0, 10, at("hello"), at("hello") + 5, whole.len() - 6] {
        post(&server, whole[..len].to_vec()).await.refused(400, "IncompleteBody");
    }
    let no_file = whole[..at("--bound\r\nContent-Disposition: form-data; name=\"file\"")].to_vec();
    post(&server, [no_file, b"--bound--\r\n".to_vec()].concat())
        .await
        .refused(400, "IncorrectNumberOfFilesInPostRequest");
    let long = Form::new(&server, "k").field("x-amz-meta-a", &"v".repeat(21_000)).file("x").signed();
    long.send().await.refused(400, "MaxPostPreDataLengthExceededError");
    let post = server.request("POST", "/bucket").body(whole.clone());
    post.send_unsigned().await.refused(412, "PreconditionFailed");
    // The client goes away in the middle of the file.
    let cut = server.request("POST", "/bucket").header("content-type", "multipart/form-data; boundary=bound");
    let cut = cut.header("content-length", "1000000").body(whole.clone()).unsigned_bytes();
    assert!([0, 400].contains(&server.raw(&cut, true).await.status));
    assert!(!server.has("/bucket/k").await);
}

#[tokio::test]
async fn a_form_without_a_length_is_taken() {
    let server = Server::with_bucket().await;
    let body = Form::new(&server, "k").file("hello").signed().body();
    let post = server.request("POST", "/bucket").header("content-type", "multipart/form-data; boundary=bound");
    let mut bytes = post.header("transfer-encoding", "chunked").unsigned_bytes();
    for chunk in body.chunks(100) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    server.raw(&bytes, false).await.expect(204);
    assert_eq!(server.get("/bucket/k").await.text(), "hello");
}

#[tokio::test]
async fn version_2_and_urls_with_headers() {
    let server = Server::with_bucket().await;
    let put = || server.request("PUT", "/bucket/dir/k%20+").body("hello");
    put().header("content-type", "text/x-margay").header("x-amz-meta-a", "1").send_v2().await.expect(200);
    let got = server.request("GET", "/bucket/dir/k%20+?response-content-type=text%2Fother").send_v2().await.expect(200);
    assert_eq!((got.text(), got.header("content-type"), got.header("x-amz-meta-a")), ("hello", "text/other", "1"));
    let listed = server.request("GET", "/bucket?list-type=2&prefix=dir%2F").send_v2().await.expect(200);
    assert_eq!(listed.element("KeyCount"), "1");
    server.request("GET", "/bucket/dir/k%20+").send_presigned_v2(10).await.expect(200);
    server.request("GET", "/bucket/dir/k%20+").send_presigned_v2(-10).await.refused(403, "AccessDenied");
    // Headers that whoever made the URL asked for.
    let query = "content-type=text%2Fplain&x-amz-meta-a=b%20c";
    let put = server.request("PUT", &format!("/bucket/url?{query}")).body("x").send_presigned_v2(10).await;
    put.expect(200);
    let got = server.get("/bucket/url").await;
    assert_eq!((got.header("content-type"), got.header("x-amz-meta-a")), ("text/plain", "b c"));
    let query = "x-amz-meta-a=d&x-amz-checksum-crc32c=mnG7TA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32C";
    let put = |body: &'static str| server.request("PUT", &format!("/bucket/url?{query}")).body(body);
    put("other").send_presigned_v2(10).await.refused(400, "BadDigest");
    put("hello").send_presigned_v2(10).await.expect(200);
    // A URL of Version 4 is made before there is a body.
    put("other").send_presigned(10).await.expect(200);
    let path = format!("/bucket/url?{query}&X-Amz-Checksum-Sha256=none");
    server.request("PUT", &path).body("hello").send_presigned(10).await.expect(200);
    assert_eq!(server.get("/bucket/url").await.header("x-amz-meta-a"), "d");
    // A copy by URL.
    let query = "x-amz-copy-source=%2Fbucket%2Furl";
    server
        .request("PUT", &format!("/bucket/copy?{query}"))
        .header("content-length", "0")
        .send_presigned(10)
        .await
        .expect(200);
    assert_eq!(server.get("/bucket/copy").await.text(), "hello");
}

#[tokio::test]
async fn chunks_that_version_2_clients_announce_by_encoding_alone() {
    let server = Server::with_bucket().await;
    let put = server.request("PUT", "/bucket/k").header("content-encoding", "aws-chunked");
    let put = put.header("x-amz-decoded-content-length", "5").header("x-amz-trailer", "x-amz-checksum-crc32c");
    let put = put.body("5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:mnG7TA==\r\n\r\n");
    assert_eq!(put.form, PayloadForm::Unsigned);
    put.send_v2().await.expect(200);
    assert_eq!(server.get("/bucket/k").await.text(), "hello");
}

#[tokio::test]
async fn a_form_has_the_rights_of_who_signed_it() {
    let server = Server::with_users(&[("clerk", None, &[])]).await;
    server.volume.create_bucket("bucket").await.unwrap();
    let clerk = Signer::new("clerk", Secret::new("secret-of-clerk"), "us-east-1");
    let allow = async |principal: &str, auth_type: &str| {
        let condition = format!(r#""Condition":{{"StringEquals":{{"s3:authType":"{auth_type}"}}}}"#);
        let statement = format!(r#""Effect":"Allow","Principal":{principal},"Action":"s3:PutObject""#);
        let text = format!(
            r#"{{"Version":"2012-10-17","Statement":{{{statement},"Resource":"arn:aws:s3:::bucket/in/*",{condition}}}}}"#
        );
        server.put("/bucket?policy", text).await.expect(204);
    };
    let by_clerk = async |key: &str| Form::new(&server, key).file("x").signed_by(&clerk).send().await;
    let by_nobody = async || Form::new(&server, "in/b").file("x").send().await;
    by_clerk("in/a").await.refused(403, "AccessDenied");
    by_nobody().await.refused(403, "AccessDenied");
    allow(r#"{"AWS":"111111111111"}"#, "REST-HEADER").await;
    by_clerk("in/a").await.refused(403, "AccessDenied");
    allow(r#"{"AWS":"111111111111"}"#, "POST").await;
    by_clerk("in/a").await.expect(204);
    by_clerk("out/a").await.refused(403, "AccessDenied");
    by_nobody().await.refused(403, "AccessDenied");
    let public = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/in/*"}}"#;
    server.put("/bucket?policy", public).await.expect(204);
    by_nobody().await.expect(204);
    assert_eq!(server.get("/bucket?list-type=2").await.elements("Key"), ["in/a", "in/b"]);
}
