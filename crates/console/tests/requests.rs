//! What is believed to be a request of the page, what passes to the door, and how contents are shown.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use margay_console::checks::{answer_headers, cookie, cookie_name, own_request, request_headers, session_id};
use margay_console::{FILES, Refusal, Shown, TargetError, is_below, of_query, shown};

fn parts(headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri("/-/console/api/session");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

const OWN: (&str, &str) = ("x-margay-console", "1");
const HOST: (&str, &str) = ("host", "store.example:9001");

#[test]
fn only_the_own_page_is_believed() {
    let ask = |headers: &[(&str, &str)]| own_request(&parts(headers));
    assert_eq!(ask(&[HOST, OWN]), Ok(()));
    assert_eq!(ask(&[HOST, OWN, ("origin", "http://store.example:9001"), ("sec-fetch-site", "same-origin")]), Ok(()));
    assert_eq!(ask(&[HOST, OWN, ("origin", "https://STORE.example:9001")]), Ok(()), "a proxy ended TLS");
    assert_eq!(ask(&[HOST]), Err(Refusal::Header));
    assert_eq!(ask(&[HOST, OWN, ("sec-fetch-site", "same-site")]), Err(Refusal::Site));
    assert_eq!(ask(&[HOST, OWN, ("sec-fetch-site", "cross-site")]), Err(Refusal::Site));
    assert_eq!(ask(&[HOST, OWN, ("sec-fetch-site", "none")]), Err(Refusal::Site));
    for origin in
        ["http://evil.example", "http://store.example:9000", "http://store.example", "null", "", "store.example:9001/"]
    {
        assert_eq!(ask(&[HOST, OWN, ("origin", origin)]), Err(Refusal::Origin), "{origin:?}");
    }
    let same = ("origin", "http://store.example:9001");
    assert_eq!(ask(&[HOST, OWN, same, ("origin", "http://evil.example")]), Err(Refusal::Origin), "two origins");
    assert_eq!(ask(&[OWN, same]), Err(Refusal::Origin), "no host");
}

#[test]
fn the_cookie_stays_in_the_browser_and_at_the_console() {
    let line = cookie("store.example:9001", "abc", true);
    for word in ["margay-console-9001=abc;", "HttpOnly", "SameSite=Strict", "Path=/-/console/", "Secure"] {
        assert!(line.contains(word), "{line}");
    }
    assert!(!line.contains("Domain") && !cookie("store.example", "abc", false).contains("Secure"));
    assert!(cookie("store.example", "", false).contains("Max-Age=0"));
}

#[test]
fn each_port_of_a_host_has_a_cookie_of_its_own() {
    for (host, name) in [
        ("store.example:9001", "margay-console-9001"),
        ("[::1]:80", "margay-console-80"),
        ("store.example", "margay-console"),
        ("[::1]", "margay-console"),
        ("a:b", "margay-console"),
        ("", "margay-console"),
    ] {
        assert_eq!(cookie_name(host), name, "{host}");
    }
    let mut headers = HeaderMap::new();
    headers.append("host", HeaderValue::from_static("store.example:9001"));
    headers.append(
        "cookie",
        HeaderValue::from_static("margay-console-9002=two; margay-console=none; margay-console-9001=one"),
    );
    assert_eq!(session_id(&headers, &Uri::from_static("/")), Some("one"));
}

#[test]
fn one_session_id_is_read_and_two_are_none() {
    let id = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("cookie", HeaderValue::from_str(line).unwrap());
        }
        session_id(&headers, &Uri::from_static("/")).map(str::to_owned)
    };
    assert_eq!(id(&["a=b; margay-console=x; c=d"]).as_deref(), Some("x"));
    assert_eq!(id(&["a=b", "margay-console=x"]).as_deref(), Some("x"));
    for other in [&["margay-console=x; margay-console=y"][..], &["xmargay-console=x"], &["margay-console"], &[]] {
        assert_eq!(id(other), None, "{other:?}");
    }
}

#[test]
fn a_target_arrives_byte_by_byte() {
    let path = |query: &str| of_query(query).map(|(target, form)| (target.as_str().to_owned(), form));
    let is = |query: &str, target: &str| assert_eq!(path(query), Ok((target.to_owned(), None)), "{query}");
    is("t=/bucket/key", "/bucket/key");
    is("t=%2Fbucket%2Fa%2520b%3Ftagging", "/bucket/a%20b?tagging");
    is("t=/bucket/..%2F..%2Fother", "/bucket/../../other");
    is("t=/bucket/%252E%252E/key", "/bucket/%2E%2E/key");
    assert_eq!(path("t=/b/k&as=media"), Ok(("/b/k".to_owned(), Some("media".to_owned()))));
    for (query, error) in [
        ("", TargetError::Malformed),
        ("as=text", TargetError::Missing),
        ("t=/a&t=/b", TargetError::Several),
        ("t=/a&x=1", TargetError::Malformed),
        ("t=http://evil.example/a", TargetError::Malformed),
        ("t=bucket", TargetError::Malformed),
        ("t=*", TargetError::Malformed),
        ("t=/a%23b", TargetError::Malformed),
        ("t=/a%0d%0ax-evil:1", TargetError::Malformed),
        ("t=/a%20b", TargetError::Malformed),
        ("t=/%C3%A9", TargetError::Malformed),
        ("t=/a%", TargetError::Malformed),
        ("t=/a%f", TargetError::Malformed),
        ("t=/%ff", TargetError::Malformed),
    ] {
        assert_eq!(path(query), Err(error), "{query:?}");
    }
    assert_eq!(path(&format!("t=/{}", "a".repeat(20_000))), Err(TargetError::Malformed));
}

#[test]
fn nothing_else_is_below_the_console() {
    assert!(is_below("/-/console") && is_below("/-/console/") && is_below("/-/console/api/s3"));
    for other in ["/", "/-/consoles", "/-/health", "/bucket/-/console/", "//-/console/"] {
        assert!(!is_below(other), "{other}");
    }
}

#[test]
fn the_door_sees_nothing_of_the_session() {
    let mut given = HeaderMap::new();
    for (name, value) in [
        ("cookie", "margay-console=x"),
        ("authorization", "AWS4-HMAC-SHA256 ..."),
        ("origin", "http://here"),
        ("referer", "http://here/-/console/"),
        ("x-forwarded-for", "1.2.3.4"),
        ("connection", "keep-alive, x-amz-meta-a"),
        ("transfer-encoding", "chunked"),
        ("expect", "100-continue"),
        ("x-margay-console", "1"),
        ("x-amz-date", "20200101T000000Z"),
        ("x-amz-security-token", "another"),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ("x-amz-meta-a", "kept"),
        ("content-type", "text/plain"),
        ("range", "bytes=0-1"),
        ("if-match", "*"),
    ] {
        given.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let mut passed: Vec<String> = request_headers(&given).keys().map(|name| name.to_string()).collect();
    passed.sort();
    assert_eq!(passed, ["content-type", "if-match", "range", "x-amz-meta-a"]);
}

#[test]
fn no_answer_can_run_or_be_framed() {
    let mut headers = HeaderMap::new();
    for name in ["set-cookie", "access-control-allow-origin", "access-control-allow-credentials", "refresh", "link"] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
    }
    headers.insert("content-type", HeaderValue::from_static("text/html"));
    answer_headers(&mut headers);
    assert!(headers.keys().all(|name| !name.as_str().starts_with("access-control")), "{headers:?}");
    assert!(!headers.contains_key("set-cookie") && !headers.contains_key("refresh") && !headers.contains_key("link"));
    assert!(headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["x-frame-options"], "DENY");
    assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
}

#[test]
fn only_what_cannot_run_is_shown() {
    let media = |kind: &str, path: &str| shown(Some("media"), kind, path);
    assert_eq!(media("image/png", "/b/x"), Shown::As("image/png"));
    assert_eq!(media("Image/PNG; charset=x", "/b/x"), Shown::As("image/png"));
    assert_eq!(media("application/octet-stream", "/b/x.PDF"), Shown::As("application/pdf"));
    for kind in
        ["text/html", "application/xhtml+xml", "text/xml", "application/javascript", "text/html,image/png", "*/*"]
    {
        assert_eq!(media(kind, "/b/x.png"), Shown::Saved, "{kind}");
    }
    assert_eq!(media("", "/b/x.html"), Shown::Saved);
    assert_eq!(shown(Some("text"), "text/html", "/b/x.html"), Shown::As("text/plain; charset=utf-8"));
    assert_eq!(shown(None, "image/png", "/b/x.png"), Shown::Saved);
    assert_eq!(shown(Some("inline"), "image/png", "/b/x.png"), Shown::Saved);
}

#[test]
fn the_whole_page_is_in_the_binary_and_small() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut found = Vec::new();
    for (folder, before) in [(folder.clone(), ""), (folder.join("js"), "js/")] {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                found.push(format!("{before}{}", entry.file_name().to_str().unwrap()));
            }
        }
    }
    let mut served: Vec<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    found.sort();
    served.sort();
    assert_eq!(found, served);
    let bytes: usize = FILES.iter().map(margay_console::File::compressed_len).sum();
    assert!(bytes > 10_000 && bytes < 300_000, "{bytes} bytes compressed");
}

/// Names of formats and groups, and examples in forms: nothing is fetched from there.
const NAMES: [&str; 4] =
    ["http://www.w3.org/", "http://acs.amazonaws.com/groups/", "https://app.example", "https://id.example.com/"];

#[test]
fn no_file_of_the_page_writes_markup() {
    for file in &FILES {
        let text = std::str::from_utf8(file.bytes).unwrap();
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
        ] {
            let known = match word {
                "http://" | "https://" => NAMES.iter().map(|name| text.matches(name).count()).sum(),
                _ => 0,
            };
            let count = text.matches(word).count();
            assert!(count == 0 || (word.starts_with("http") && count <= known), "{} has {word}", file.name);
        }
    }
}
