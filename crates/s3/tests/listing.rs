//! Listings: every form, page by page, with names that hurt.

mod server;

use server::Server;

async fn with_keys(keys: &[&str]) -> Server {
    let server = Server::with_bucket().await;
    for key in keys {
        server.put(&format!("/bucket/{key}"), "x").await.expect(200);
    }
    server
}

#[tokio::test]
async fn both_versions_give_objects_and_prefixes_in_byte_order() {
    let server = with_keys(&["a", "a-b", "a/x", "a/y", "a0", "b/c/d", "%C3%BC"]).await;
    for query in ["", "?list-type=2"] {
        let all = server.get(&format!("/bucket{query}")).await.expect(200);
        assert_eq!(all.elements("Key"), ["a", "a-b", "a/x", "a/y", "a0", "b/c/d", "ü"]);
        assert_eq!(all.element("IsTruncated"), "false");
        assert_eq!(all.header("content-type"), "application/xml");
    }
    let rolled = server.get("/bucket?list-type=2&delimiter=/").await.expect(200);
    assert_eq!(rolled.elements("Key"), ["a", "a-b", "a0", "ü"]);
    assert_eq!(rolled.elements("Prefix"), ["", "a/", "b/"]);
    assert_eq!(rolled.element("KeyCount"), "6");
    let inside = server.get("/bucket?prefix=a/&delimiter=/").await.expect(200);
    assert_eq!(inside.elements("Key"), ["a/x", "a/y"]);
    let after = server.get("/bucket?list-type=2&start-after=a/x&fetch-owner=true").await.expect(200);
    assert_eq!(after.elements("Key"), ["a/y", "a0", "b/c/d", "ü"]);
    assert_eq!(after.elements("DisplayName").len(), 4);
    server.get("/nowhere?list-type=2&max-keys=0").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn pages_of_every_size_give_the_same_whole() {
    let server = with_keys(&["a", "b/1", "b/2", "c", "d/1", "d/2/3", "e"]).await;
    for delimiter in ["", "&delimiter=/"] {
        let whole = server.get(&format!("/bucket?list-type=2{delimiter}")).await;
        let (keys, prefixes) = (whole.elements("Key"), whole.elements("Prefix"));
        for max in 1..5 {
            let (mut paged, mut paged_prefixes) = (Vec::new(), Vec::new());
            let mut token = String::new();
            loop {
                let page =
                    server.get(&format!("/bucket?list-type=2&max-keys={max}{delimiter}{token}")).await.expect(200);
                paged.extend(page.elements("Key").iter().map(|key| key.to_string()));
                paged_prefixes.extend(page.elements("Prefix").iter().skip(1).map(|prefix| prefix.to_string()));
                if page.element("IsTruncated") == "false" {
                    assert_eq!(page.element("NextContinuationToken"), "");
                    break;
                }
                token = format!("&continuation-token={}", page.element("NextContinuationToken"));
            }
            assert_eq!(
                (paged, paged_prefixes.len()),
                (keys.iter().map(|key| key.to_string()).collect(), prefixes.len() - 1)
            );
        }
        for max in 1..5 {
            let (mut paged, mut marker) = (0, String::new());
            loop {
                let page = server.get(&format!("/bucket?max-keys={max}{delimiter}{marker}")).await.expect(200);
                paged += page.elements("Key").len() + page.elements("Prefix").len() - 1;
                assert_eq!(
                    page.element("NextMarker").is_empty(),
                    delimiter.is_empty() || page.element("IsTruncated") == "false"
                );
                if page.element("IsTruncated") == "false" {
                    break;
                }
                let next = match page.element("NextMarker") {
                    "" => page.elements("Key").last().unwrap().to_string(),
                    next => next.to_owned(),
                };
                marker = format!("&marker={next}");
            }
            assert_eq!(paged, keys.len() + prefixes.len() - 1);
        }
    }
}

#[tokio::test]
async fn names_that_hurt() {
    let server =
        with_keys(&["a%26b%3Cc%3E%22", "line%0D%0Abreak", "%7F", "a%20b+c", "//", "..", "%F0%9F%90%88/x"]).await;
    let plain = server.get("/bucket").await.expect(200);
    assert_eq!(
        plain.elements("Key"),
        ["..", "//", "a b+c", "a&amp;b&lt;c&gt;&quot;", "line&#xD;&#xA;break", "&#x7F;", "🐈/x"]
    );
    let encoded = server.get("/bucket?encoding-type=url").await.expect(200);
    assert_eq!(
        encoded.elements("Key"),
        ["..", "//", "a%20b%2Bc", "a%26b%3Cc%3E%22", "line%0D%0Abreak", "%7F", "%F0%9F%90%88/x"]
    );
    assert_eq!(encoded.element("EncodingType"), "url");
}

/// What XML 1.0 cannot hold comes in URL encoding, asked for or not; the rest of the bucket is as ever.
#[tokio::test]
async fn names_that_xml_cannot_hold() {
    for odd in ["nul%00", "one%01", "end%EF%BF%BF"] {
        let server = with_keys(&["a%20b", odd, "z"]).await;
        assert_eq!(server.get(&format!("/bucket/{odd}")).await.expect(200).text(), "x");
        server.request("POST", &format!("/bucket/{odd}?uploads")).send().await.expect(200);
        for query in ["", "?list-type=2", "?versions", "?uploads"] {
            let page = server.get(&format!("/bucket{query}")).await.expect(200);
            assert_eq!(page.element("EncodingType"), "url", "{query}");
            let keys = if query == "?uploads" { vec![odd] } else { vec!["a%20b", odd, "z"] };
            assert_eq!(page.elements("Key"), keys, "{query}");
            assert!(!page.text().contains("&#x"), "{query}");
        }
        let next = server.get("/bucket?max-keys=1").await.expect(200);
        assert_eq!((next.element("Key"), next.element("EncodingType")), ("a b", ""));
        for query in [format!("prefix={odd}"), format!("marker={odd}"), format!("list-type=2&start-after={odd}")] {
            let page = server.get(&format!("/bucket?{query}")).await.expect(200);
            assert_eq!(page.element("EncodingType"), "url", "{query}");
        }
        let folders = server.get(&format!("/bucket?delimiter={}", &odd[3..])).await.expect(200);
        assert_eq!(folders.element("EncodingType"), "url");
        server.delete(&format!("/bucket/{odd}")).await.expect(204);
        assert_eq!(server.get("/bucket").await.expect(200).elements("Key"), ["a b", "z"]);
    }
}

#[tokio::test]
async fn bad_parameters_are_refused() {
    let server = with_keys(&["a"]).await;
    for query in
        ["max-keys=-1", "max-keys=many", "list-type=2&continuation-token=made-up", "list-type=2&max-keys=99999999999"]
    {
        server.get(&format!("/bucket?{query}")).await.refused(400, "InvalidArgument");
    }
    let first = server.get("/bucket?list-type=2&continuation-token=").await.expect(200);
    assert_eq!((first.elements("Key"), first.element("ContinuationToken")), (vec!["a"], ""));
    // Where a form's redirect leads when it names the bucket.
    let redirected = server.get("/bucket?bucket=bucket&key=a&etag=%22x%22").await.expect(200);
    assert_eq!(redirected.elements("Key"), ["a"]);
    server.get("/bucket?encoding-type=base64").await.refused(501, "NotImplemented");
    server.get("/bucket?list-type=3").await.refused(501, "NotImplemented");
    assert_eq!(server.get("/bucket?max-keys=5000").await.expect(200).element("MaxKeys"), "1000");
    let none = server.get("/bucket?max-keys=0").await.expect(200);
    assert_eq!((none.element("IsTruncated"), none.elements("Key").len()), ("false", 0));
}

#[tokio::test]
async fn objects_are_their_own_only_version() {
    let server = with_keys(&["a", "b"]).await;
    let page = server.get("/bucket?versions&max-keys=1").await.expect(200);
    assert_eq!((page.element("Key"), page.element("VersionId"), page.element("NextKeyMarker")), ("a", "null", "a"));
    let page = server.get("/bucket?versions&key-marker=a&version-id-marker=null").await.expect(200);
    assert_eq!((page.elements("Key"), page.element("IsTruncated")), (vec!["b"], "false"));
    assert_eq!(server.get("/bucket/a?versionId=null").await.expect(200).text(), "x");
    server.get("/bucket/a?versionId=other").await.refused(400, "InvalidArgument");
}
