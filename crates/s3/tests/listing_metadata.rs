//! A page of a listing with `metadata=true` says of each object what HEAD says of it, to those who may ask.

mod server;

use std::collections::BTreeMap;

use server::{Answer, Server};

/// What a page says of each key: names of headers in small letters, with values; `None`: nothing.
fn described(page: &Answer) -> BTreeMap<String, Option<BTreeMap<String, String>>> {
    let contents = page.elements("Contents").into_iter();
    let of = |one: &str| {
        let (_, inner) = one.split_once("<UserMetadata>")?;
        let (mut rest, _) = inner.split_once("</UserMetadata>").expect("it ends");
        let mut pairs = BTreeMap::new();
        while let Some((name, after)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
            let (value, after) = after.split_once(&format!("</{name}>")).expect("it ends");
            pairs.insert(name.to_lowercase(), value.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
            rest = after;
        }
        assert_eq!(rest, "");
        Some(pairs)
    };
    contents.map(|one| (element(one, "Key").to_owned(), of(one))).collect()
}

fn element<'a>(xml: &'a str, name: &str) -> &'a str {
    let inside = xml.split_once(&format!("<{name}>")).and_then(|(_, after)| after.split_once(&format!("</{name}>")));
    inside.map_or("", |(inner, _)| inner)
}

/// What HEAD says of a key, as `described` has it.
async fn head(server: &Server, key: &str) -> BTreeMap<String, String> {
    let head = server.request("HEAD", &format!("/bucket/{key}")).send().await.expect(200);
    let is_stored = |name: &str| {
        name.starts_with("x-amz-meta-")
            || ["cache-control", "content-disposition", "content-encoding", "content-type", "expires"].contains(&name)
    };
    let stored = head.headers.iter().filter(|(name, _)| is_stored(name.as_str()));
    stored.map(|(name, value)| (name.as_str().to_owned(), value.to_str().expect("it is ASCII").to_owned())).collect()
}

#[tokio::test]
async fn a_page_says_what_head_says() {
    let server = Server::with_bucket().await;
    let put = |key: &str| server.request("PUT", &format!("/bucket/{key}")).body("content");
    put("plain").send().await.expect(200);
    put("mode").header("x-amz-meta-mode", "0100644").header("x-amz-meta-mtime", "1.5").send().await.expect(200);
    let typed = put("typed").header("content-type", "text/html").header("cache-control", "max-age=<&>");
    typed.header("content-encoding", "gzip").header("x-amz-meta-none", "").send().await.expect(200);
    put("large").header("x-amz-meta-long", &"l".repeat(1500)).send().await.expect(200);
    put("word").header("x-amz-meta-name", "=?UTF-8?B?w7w=?=").send().await.expect(200);
    put("tagged").header("x-amz-tagging", "a=1&b=x%20y").header("x-amz-meta-k", "v").send().await.expect(200);
    put("made/").header("x-amz-meta-mode", "040700").send().await.expect(200);
    put("made/below").header("x-amz-meta-x", "y").send().await.expect(200);
    put("odd").header("x-amz-meta-a!b", "not a name of XML").send().await.expect(200);
    let page = server.get("/bucket?list-type=2&metadata=true").await.expect(200);
    let found = described(&page);
    assert_eq!(found.len(), 9);
    for (key, said) in &found {
        let (expected, is_odd) = (head(&server, key).await, key == "odd");
        assert_eq!(*said, (!is_odd).then_some(expected), "{key}");
    }
    assert_eq!(found["plain"].as_ref().unwrap()["content-type"], "binary/octet-stream");
    assert!(page.text().contains("<X-Amz-Meta-Mode>0100644</X-Amz-Meta-Mode>"), "as clients of MinIO compare it");
    assert_eq!(page.elements("UserTags"), ["a=1&amp;b=x%20y"]);
    for query in ["list-type=2", "list-type=2&metadata=false"] {
        let plain = server.get(&format!("/bucket?{query}")).await.expect(200);
        assert!(!plain.text().contains("UserMetadata") && plain.elements("Key").len() == 9, "{query}");
    }
    server.get("/bucket?list-type=2&metadata=some").await.refused(501, "NotImplemented");
    let none = server.get("/bucket?list-type=2&metadata=true&max-keys=0").await.expect(200);
    assert_eq!(none.element("KeyCount"), "0");
}

#[tokio::test]
async fn a_page_says_it_as_tigris_does() {
    let server = Server::with_bucket().await;
    let put = server.request("PUT", "/bucket/a").header("x-amz-meta-mode", "0100600").header("x-amz-tagging", "t=1");
    put.body("x").send().await.expect(200);
    server.put("/bucket/b", "x").await.expect(200);
    let asked = |query: &str| server.request("GET", &format!("/bucket?list-type=2{query}"));
    let page = asked("").header("x-tigris-list-metadata", "true").send().await.expect(200);
    assert_eq!(page.elements("Metadata"), ["<Name>mode</Name><Value>0100600</Value>"]);
    assert!(!page.text().contains("UserMetadata") && !page.text().contains("UserTags"));
    let both = asked("&metadata=true").header("x-tigris-list-metadata", "true").send().await.expect(200);
    assert_eq!((both.elements("Metadata").len(), both.elements("UserMetadata").len()), (1, 2));
    let none = asked("").header("x-tigris-list-metadata", "false").send().await.expect(200);
    assert!(!none.text().contains("Metadata"));
}

/// Pages, prefixes and owners are as without it.
#[tokio::test]
async fn the_rest_of_a_page_is_as_without() {
    let server = Server::with_bucket().await;
    for number in 0..7 {
        server.put(&format!("/bucket/a/{number}"), "x").await.expect(200);
        server.put(&format!("/bucket/{number}/b"), "x").await.expect(200);
    }
    for query in ["", "&delimiter=/", "&max-keys=3", "&max-keys=3&delimiter=/", "&fetch-owner=true", "&start-after=a/3"]
    {
        let plain = server.get(&format!("/bucket?list-type=2{query}")).await.expect(200);
        let with = server.get(&format!("/bucket?list-type=2&metadata=true{query}")).await.expect(200);
        let metadata = "<UserMetadata><content-type>binary/octet-stream</content-type></UserMetadata>";
        assert_eq!(with.text().replace(metadata, ""), plain.text(), "{query}");
    }
}

/// Engine calls do not grow with the objects of a page.
#[tokio::test]
async fn metadata_costs_few_reads() {
    let server = Server::with_bucket().await;
    for number in 0..100 {
        let put = server.request("PUT", &format!("/bucket/{number}")).body("x");
        put.header("x-amz-meta-mode", "0100600").send().await.expect(200);
    }
    let mut costs = Vec::new();
    for query in ["list-type=2", "list-type=2&metadata=true"] {
        let before = server.engine.calls().0;
        server.get(&format!("/bucket?{query}")).await.expect(200);
        costs.push(server.engine.calls().0 - before);
    }
    assert_eq!(costs[0], costs[1], "what is listed has it");
}

#[tokio::test]
async fn who_may_not_read_an_object_is_not_told_its_metadata() {
    let lists = r#"{"Statement":[{"Effect":"Allow","Action":"s3:ListBucket","Resource":"*"},
        {"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::vault/open/*"}]}"#;
    let reads = r#"{"Statement":[{"Effect":"Allow","Action":["s3:ListBucket","s3:GetObject"],"Resource":"*"}]}"#;
    let tags = r#"{"Statement":[{"Effect":"Allow","Action":["s3:ListBucket","s3:GetObjectTagging"],"Resource":"*"}]}"#;
    let owner = [("owner", None, &[][..])];
    let others = [("lister", lists), ("reader", reads), ("tagger", tags)];
    let others = others.iter().map(|(name, policy)| (*name, Some("owner"), std::slice::from_ref(policy)));
    let users: Vec<_> = owner.into_iter().chain(others).collect();
    let server = Server::with_users(&users).await;
    server.request("PUT", "/vault").send_as("owner").await.expect(200);
    for key in ["open/a", "secret"] {
        let put = server.request("PUT", &format!("/vault/{key}")).body("x").header("x-amz-meta-color", "red");
        put.header("x-amz-tagging", "k=v").send_as("owner").await.expect(200);
    }
    for (user, metadata, tags) in [("owner", 2, 2), ("lister", 1, 0), ("reader", 2, 0), ("tagger", 0, 2)] {
        let page = server.request("GET", "/vault?list-type=2&metadata=true").send_as(user).await.expect(200);
        let told = described(&page);
        assert_eq!(told.values().flatten().count(), metadata, "{user}");
        assert_eq!((told.len(), page.elements("UserTags").len()), (2, tags), "{user}");
        assert!(told["secret"].is_none() || user != "lister");
        for method in ["GET", "HEAD"] {
            let read = server.request(method, "/vault/open/a").header("x-amz-tagging-directive", "ACCESS");
            let answer = read.send_as(user).await;
            let wanted = if metadata == 0 { None } else { (tags > 0).then_some("k=v") };
            assert_eq!(
                answer.headers.get("x-amz-tagging").map(|own| own.to_str().unwrap()),
                wanted,
                "{method} by {user}"
            );
        }
    }
}
