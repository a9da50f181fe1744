//! Buckets as websites: what visitors see, where they are sent, and what they may not see.

mod server;

use server::{Answer, Server};

const INDEX: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";
const ERROR: &str = "<ErrorDocument><Key>oops.html</Key></ErrorDocument>";

/// A bucket with an index, pages and this configuration; `actions` are what anybody may do.
async fn site(configuration: &str, actions: &str) -> Server {
    let server = Server::with_bucket().await;
    for (key, body) in
        [("index.html", "home"), ("a/index.html", "index of a"), ("a/b c", "page"), ("oops.html", "oops")]
    {
        let path = format!("/bucket/{}", key.replace(' ', "%20"));
        server.request("PUT", &path).header("content-type", "text/html").body(body).send().await.expect(200);
    }
    let website = format!("<WebsiteConfiguration>{configuration}</WebsiteConfiguration>");
    server.put("/bucket?website", website).await.expect(200);
    let policy = format!(
        r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Principal":"*","Action":[{actions}],
        "Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]}}}}"#
    );
    server.put("/bucket?policy", policy).await.expect(204);
    server
}

const READ: &str = "\"s3:GetObject\"";
const READ_AND_LIST: &str = "\"s3:GetObject\",\"s3:ListBucket\"";

async fn visit(server: &Server, path: &str) -> Answer {
    visit_with(server, "GET", path, "bucket.web.s3.test:80", &[]).await
}

async fn visit_with(server: &Server, method: &str, path: &str, host: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = server.request(method, path);
    request.headers.insert("host", host.parse().expect("a host is a header"));
    headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send_unsigned().await
}

fn moved(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.header("location"))
}

#[tokio::test]
async fn folders_show_their_index() {
    let server = site(INDEX, READ).await;
    for (path, body) in
        [("/", "home"), ("/?versionId=nonsense&acl", "home"), ("/a/", "index of a"), ("/a/b%20c", "page")]
    {
        let page = visit(&server, path).await.expect(200);
        assert_eq!((page.text(), page.header("content-type")), (body, "text/html"), "{path}");
    }
    assert_eq!(moved(&visit(&server, "/a").await), (302, "/a/"));
    let head = visit_with(&server, "HEAD", "/a/", "BUCKET.web.s3.test", &[]).await.expect(200);
    assert_eq!((head.header("content-length"), head.body.len()), ("10", 0));
    let etag = visit(&server, "/").await.header("etag").to_owned();
    let host = "bucket.web.s3.test";
    visit_with(&server, "GET", "/", host, &[("if-none-match", &etag)]).await.expect(304);
    let part = visit_with(&server, "GET", "/", host, &[("range", "bytes=1-2")]).await.expect(206);
    assert_eq!(part.text(), "om");
    // The same bucket by the other names of the server is S3's.
    assert_eq!(visit_with(&server, "GET", "/", "bucket.s3.test", &[]).await.code(), "AccessDenied");
}

#[tokio::test]
async fn errors_have_pages() {
    let server = site(INDEX, READ_AND_LIST).await;
    let absent = visit(&server, "/none%3C").await.expect(404);
    assert_eq!(absent.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(absent.header("x-amz-error-code"), "NoSuchKey");
    assert!(absent.text().contains("<li>Code: NoSuchKey</li>") && absent.text().contains("<li>Key: none&lt;</li>"));
    for (method, path, host, status, code) in [
        ("PUT", "/x", "bucket.web.s3.test", 405, "MethodNotAllowed"),
        ("POST", "/", "bucket.web.s3.test", 405, "MethodNotAllowed"),
        ("GET", "/", "nobody.web.s3.test", 404, "NoSuchBucket"),
        ("GET", "/", "b_d.web.s3.test", 400, "InvalidBucketName"),
        ("GET", "/%ff", "bucket.web.s3.test", 400, "InvalidURI"),
        ("GET", &format!("/{}/", "k".repeat(1020)), "bucket.web.s3.test", 400, "KeyTooLongError"),
    ] {
        let answer = visit_with(&server, method, path, host, &[]).await.expect(status);
        assert_eq!(answer.header("x-amz-error-code"), code, "{method} {host}{path}");
        assert!(answer.text().starts_with("<html>"), "{}", answer.text());
    }
    server
        .put("/bucket?website", format!("<WebsiteConfiguration>{INDEX}{ERROR}</WebsiteConfiguration>"))
        .await
        .expect(200);
    let own = visit_with(&server, "GET", "/none", "bucket.web.s3.test", &[("range", "bytes=0-1")]).await.expect(404);
    assert_eq!((own.text(), own.header("content-type")), ("oops", "text/html"));
    assert_eq!(own.header("x-amz-error-code"), "NoSuchKey");
    server.delete("/bucket/oops.html").await.expect(204);
    let neither = visit(&server, "/none").await.expect(404);
    assert!(neither.text().contains("Custom Error Document</h3>\n<ul>\n<li>Code: NoSuchKey</li>"));
    let long = format!("<ErrorDocument><Key>{}</Key></ErrorDocument>", "k".repeat(128 << 10));
    let long =
        server.put("/bucket?website", format!("<WebsiteConfiguration>{INDEX}{long}</WebsiteConfiguration>")).await;
    long.refused(400, "MalformedXML");
    server.delete("/bucket?website").await.expect(204);
    assert_eq!(visit(&server, "/").await.expect(404).header("x-amz-error-code"), "NoSuchWebsiteConfiguration");
}

#[tokio::test]
async fn visitors_see_what_anybody_may_read() {
    let server = site(&format!("{INDEX}{ERROR}"), READ).await;
    // Who may not list does not learn what is not there, but the folder that he may read opens.
    assert_eq!(visit(&server, "/none").await.expect(403).text(), "oops");
    assert_eq!(moved(&visit(&server, "/a").await), (302, "/a/"));
    // A signature changes nothing.
    let mut signed = server.request("GET", "/none");
    signed.headers.insert("host", "bucket.web.s3.test".parse().unwrap());
    signed.send().await.expect(403);
    server.delete("/bucket?policy").await.expect(204);
    for path in ["/", "/a", "/a/", "/none", "/oops.html"] {
        let denied = visit(&server, path).await.expect(403);
        assert!(denied.text().contains("<li>Code: AccessDenied</li>") && !denied.text().contains("oops\n"), "{path}");
    }
    server
        .request("PUT", "/bucket/index.html")
        .header("x-amz-acl", "public-read")
        .body("open")
        .send()
        .await
        .expect(200);
    assert_eq!(visit(&server, "/").await.expect(200).text(), "open");
}

#[tokio::test]
async fn rules_and_objects_send_visitors_elsewhere() {
    let rules = "<RoutingRules>\
        <RoutingRule><Condition><KeyPrefixEquals>old/</KeyPrefixEquals></Condition>\
        <Redirect><ReplaceKeyPrefixWith>a/</ReplaceKeyPrefixWith></Redirect></RoutingRule>\
        <RoutingRule><Condition><HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals></Condition>\
        <Redirect><HostName>example.com</HostName><HttpRedirectCode>307</HttpRedirectCode></Redirect></RoutingRule>\
        </RoutingRules>";
    let server = site(&format!("{INDEX}{ERROR}{rules}"), READ_AND_LIST).await;
    assert_eq!(moved(&visit(&server, "/old/b%20c").await), (301, "http://bucket.web.s3.test:80/a/b%20c"));
    assert_eq!(moved(&visit(&server, "/none%0A").await), (307, "http://example.com/none%0A"));
    assert_eq!(visit(&server, "/a/b%20c").await.expect(200).text(), "page");
    // What is no port does not get into an address.
    let odd = visit_with(&server, "GET", "/old/x", "bucket.web.s3.test:@evil", &[]).await;
    assert_eq!(moved(&odd), (400, ""));
    let header = "x-amz-website-redirect-location";
    server.request("PUT", "/bucket/gone").header(header, "/a/?x#y").body("never").send().await.expect(200);
    let sent = visit(&server, "/gone").await;
    assert_eq!((moved(&sent), sent.body.len()), ((301, "/a/?x#y"), 0));
    let all = "<RedirectAllRequestsTo><HostName>example.com</HostName></RedirectAllRequestsTo>";
    server.put("/bucket?website", format!("<WebsiteConfiguration>{all}</WebsiteConfiguration>")).await.expect(200);
    assert_eq!(moved(&visit(&server, "/a/b%20c").await), (301, "http://example.com/a/b%20c"));
}

#[tokio::test]
async fn pages_of_other_origins_may_read() {
    let server = site(INDEX, READ).await;
    let rules = "<CORSConfiguration><CORSRule><AllowedOrigin>http://a</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";
    server.put("/bucket?cors", rules).await.expect(200);
    let host = "bucket.web.s3.test";
    let answer = visit_with(&server, "GET", "/", host, &[("origin", "http://a")]).await.expect(200);
    assert_eq!(answer.header("access-control-allow-origin"), "http://a");
    let asked = [("origin", "http://a"), ("access-control-request-method", "GET")];
    visit_with(&server, "OPTIONS", "/", host, &asked).await.expect(200);
}
