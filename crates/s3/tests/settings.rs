//! Tags, cross-origin rules and the other small settings, through the door.

mod server;

use server::{Answer, Server};

fn tagging(pairs: &[(&str, &str)]) -> String {
    let tag = |(key, value): &(&str, &str)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>");
    let tags: String = pairs.iter().map(tag).collect();
    format!("<Tagging><TagSet>{tags}</TagSet></Tagging>")
}

/// Keys and values of a tag set.
fn tags(answer: &Answer) -> Vec<(String, String)> {
    let texts = |name| answer.elements(name).into_iter().map(str::to_owned).collect::<Vec<_>>();
    texts("Key").into_iter().zip(texts("Value")).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn objects_have_tags() {
    let server = Server::with_bucket().await;
    server.put("/bucket/k", "body").await.expect(200);
    let before = server.get("/bucket/k").await.expect(200);
    assert!(tags(&server.get("/bucket/k?tagging").await.expect(200)).is_empty());
    server.put("/bucket/k?tagging", tagging(&[("b", "1"), ("a", "")])).await.expect(200);
    assert_eq!(tags(&server.get("/bucket/k?tagging").await.expect(200)), pairs(&[("a", ""), ("b", "1")]));
    let after = server.get("/bucket/k").await.expect(200);
    assert_eq!(after.header("x-amz-tagging-count"), "2");
    assert!(!after.headers.contains_key("x-amz-tagging"), "nobody asked for the tags themselves");
    for (method, query) in [("GET", ""), ("HEAD", ""), ("GET", "?versionId=null")] {
        let read = server.request(method, &format!("/bucket/k{query}")).header("x-amz-tagging-directive", "ACCESS");
        assert_eq!(read.send().await.expect(200).header("x-amz-tagging"), "a=&b=1", "{method} {query}");
    }
    for name in ["etag", "last-modified"] {
        assert_eq!(after.header(name), before.header(name));
    }
    server.put("/bucket/k?tagging", tagging(&[("a", "1"), ("a", "2")])).await.refused(400, "InvalidTag");
    server.put("/bucket/k?tagging", "<Tagging/>").await.refused(400, "MalformedXML");
    server.put("/bucket/absent?tagging", tagging(&[])).await.refused(404, "NoSuchKey");
    server.delete("/bucket/k?tagging").await.expect(204);
    assert!(server.get("/bucket/k?tagging").await.expect(200).elements("Key").is_empty());
    assert!(!server.get("/bucket/k").await.expect(200).headers.contains_key("x-amz-tagging-count"));
}

#[tokio::test]
async fn tags_come_with_new_objects() {
    let server = Server::with_bucket().await;
    let tagged = server.request("PUT", "/bucket/k").header("x-amz-tagging", "a=1&b").body("x");
    tagged.send().await.expect(200);
    let bad = server.request("PUT", "/bucket/bad").header("x-amz-tagging", "a=1&a=2").body("x");
    bad.send().await.refused(400, "InvalidArgument");
    assert!(!server.has("/bucket/bad").await);
    for (name, headers, expected) in [
        ("plain", &[][..], &[("a", "1"), ("b", "")][..]),
        ("copied", &[("x-amz-tagging-directive", "COPY"), ("x-amz-tagging", "c=2")], &[("a", "1"), ("b", "")]),
        ("replaced", &[("x-amz-tagging-directive", "REPLACE"), ("x-amz-tagging", "c=2")], &[("c", "2")]),
        ("emptied", &[("x-amz-tagging-directive", "REPLACE")], &[]),
    ] {
        let mut request = server.request("PUT", &format!("/bucket/{name}")).header("x-amz-copy-source", "bucket/k");
        for (header, value) in headers {
            request = request.header(header, value);
        }
        request.send().await.expect(200);
        let answer = server.get(&format!("/bucket/{name}?tagging")).await.expect(200);
        assert_eq!(tags(&answer), pairs(expected), "{name}");
    }
    let begun = server.request("POST", "/bucket/m?uploads").header("x-amz-tagging", "m=1").send().await.expect(200);
    let upload = begun.element("UploadId");
    let part = server.put(&format!("/bucket/m?partNumber=1&uploadId={upload}"), "x").await.expect(200);
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
        part.header("etag")
    );
    server.request("POST", &format!("/bucket/m?uploadId={upload}")).body(list).send().await.expect(200);
    assert_eq!(tags(&server.get("/bucket/m?tagging").await.expect(200)), pairs(&[("m", "1")]));
}

#[tokio::test]
async fn buckets_have_tags() {
    let server = Server::with_bucket().await;
    server.get("/bucket?tagging").await.refused(404, "NoSuchTagSet");
    server.put("/bucket?tagging", tagging(&[("team", "cats")])).await.expect(204);
    assert_eq!(tags(&server.get("/bucket?tagging").await.expect(200)), pairs(&[("team", "cats")]));
    server.put("/bucket?tagging", tagging(&[("aws:team", "x")])).await.refused(400, "InvalidTag");
    server.delete("/bucket?tagging").await.expect(204);
    server.get("/bucket?tagging").await.refused(404, "NoSuchTagSet");
    server.put("/absent?tagging", tagging(&[])).await.refused(404, "NoSuchBucket");
}

const RULES: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>https://*.example.com</AllowedOrigin>\
                     <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>\
                     <AllowedHeader>x-amz-*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
                     <MaxAgeSeconds>60</MaxAgeSeconds></CORSRule></CORSConfiguration>";

#[tokio::test]
async fn cross_origin_rules_are_kept() {
    let server = Server::with_bucket().await;
    server.get("/bucket?cors").await.refused(404, "NoSuchCORSConfiguration");
    server.put("/bucket?cors", RULES).await.expect(200);
    let stored = server.get("/bucket?cors").await.expect(200);
    assert_eq!(stored.elements("AllowedMethod"), ["GET", "PUT"]);
    let patch = RULES.replace("PUT", "PATCH");
    server.put("/bucket?cors", patch).await.refused(400, "InvalidRequest");
    server.delete("/bucket?cors").await.expect(204);
    server.get("/bucket?cors").await.refused(404, "NoSuchCORSConfiguration");
}

#[tokio::test]
async fn browsers_are_told_what_pages_may_see() {
    let server = Server::with_bucket().await;
    let preflight = async |path: &str, origin: &str, method: &str, headers: &str| {
        let request = server.request("OPTIONS", path).header("origin", origin);
        let request = request.header("access-control-request-method", method);
        request.header("access-control-request-headers", headers).send_unsigned().await
    };
    let page = "https://cats.example.com";
    preflight("/bucket/k", page, "GET", "").await.refused(403, "AccessForbidden");
    preflight("/absent/k", page, "GET", "").await.refused(403, "AccessForbidden");
    server.put("/bucket?cors", RULES).await.expect(200);
    let told = preflight("/bucket/k", page, "PUT", "X-Amz-Date, x-amz-acl").await.expect(200);
    for (name, value) in [
        ("access-control-allow-origin", page),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "x-amz-date, x-amz-acl"),
        ("access-control-expose-headers", "ETag"),
        ("access-control-max-age", "60"),
    ] {
        assert_eq!(told.header(name), value, "{name}");
    }
    preflight("/bucket/k", page, "DELETE", "").await.refused(403, "AccessForbidden");
    preflight("/bucket/k", page, "GET", "authorization").await.refused(403, "AccessForbidden");
    preflight("/bucket/k", "https://other.com", "GET", "").await.refused(403, "AccessForbidden");
    preflight("/bucket/k", page, "PATCH", "").await.refused(400, "BadRequest");
    server.request("OPTIONS", "/bucket/k").send_unsigned().await.refused(400, "BadRequest");
    server.put("/bucket/k", "x").await.expect(200);
    let get = async |path: &str, origin: &str| server.request("GET", path).header("origin", origin).send().await;
    assert_eq!(get("/bucket/k", page).await.expect(200).header("access-control-allow-origin"), page);
    assert!(!get("/bucket/k", "null").await.expect(200).headers.contains_key("access-control-allow-origin"));
    // A client may ask about another method than its own.
    let asking = server.request("GET", "/bucket/k").header("origin", page);
    let told = asking.header("access-control-request-method", "DELETE").send().await.expect(200);
    assert!(!told.headers.contains_key("access-control-allow-origin"));
    let refused = server.request("GET", "/bucket/k").header("origin", page).send_unsigned().await;
    assert_eq!(refused.refused(403, "AccessDenied").header("access-control-allow-origin"), page);
}

#[tokio::test]
async fn websites_and_payment_are_kept() {
    let server = Server::with_bucket().await;
    server.get("/bucket?website").await.refused(404, "NoSuchWebsiteConfiguration");
    let website =
        "<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument></WebsiteConfiguration>";
    server.put("/bucket?website", website).await.expect(200);
    assert_eq!(server.get("/bucket?website").await.expect(200).element("Suffix"), "index.html");
    server.put("/bucket?website", "<WebsiteConfiguration/>").await.refused(400, "InvalidArgument");
    server.delete("/bucket?website").await.expect(204);
    server.get("/bucket?website").await.refused(404, "NoSuchWebsiteConfiguration");
    for payer in ["Requester", "BucketOwner"] {
        let document = format!("<RequestPaymentConfiguration><Payer>{payer}</Payer></RequestPaymentConfiguration>");
        server.put("/bucket?requestPayment", document).await.expect(200);
        assert_eq!(server.get("/bucket?requestPayment").await.expect(200).element("Payer"), payer);
    }
    server.put("/bucket?requestPayment", "<Payer>me</Payer>").await.refused(400, "MalformedXML");
    for (status, code) in [("Suspended", 200), ("Enabled", 501), ("Maybe", 400)] {
        let document = format!("<AccelerateConfiguration><Status>{status}</Status></AccelerateConfiguration>");
        assert_eq!(server.put("/bucket?accelerate", document).await.status, code, "{status}");
    }
}

#[tokio::test]
async fn a_policy_may_ask_for_the_tags_of_the_bucket() {
    let server = Server::with_users(&[("victim", None, &[]), ("clerk", Some("victim"), &[])]).await;
    server.request("PUT", "/vault").send_as("victim").await.expect(200);
    for key in ["s3:BucketTag/team", "aws:ResourceTag/team", "s3:ResourceTag/team"] {
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Principal":"*","Action":"s3:PutObject",
            "Resource":"arn:aws:s3:::vault/*","Condition":{{"StringEquals":{{"{key}":"till"}}}}}}}}"#
        );
        server.request("PUT", "/vault?policy").body(policy).send_as("victim").await.expect(204);
        for (value, status) in [("shop", 403), ("till", 200)] {
            let tags = server.request("PUT", "/vault?tagging").body(tagging(&[("team", value)]));
            tags.send_as("victim").await.expect(204);
            server.request("PUT", "/vault/new").body("x").send_as("clerk").await.expect(status);
        }
    }
}
