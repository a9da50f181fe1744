//! The console of a real server, asked by HTTP: who gets in, what a session may do, what other sites cannot.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

mod server;

use server::Server;

/// An answer: its status, its head in small letters, and its body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// The console at an address, maybe signed in.
struct Browser {
    address: String,
    cookie: String,
}

const OWN: &str = "x-margay-console: 1\r\n";

impl Browser {
    fn of(server: &Server) -> Browser {
        let line = server.screen.lines().find(|line| line.trim_start().starts_with("console ")).unwrap();
        let url = line.split_whitespace().nth(1).unwrap();
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/-/console/").unwrap().to_owned();
        Browser { address, cookie: String::new() }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let cookie = if self.cookie.is_empty() { String::new() } else { format!("cookie: {}\r\n", self.cookie) };
        let (host, length) = (&self.address, body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n");
        stream.write_all(format!("{head}{cookie}{headers}\r\n{body}").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let lines = head.lines().map(|line| {
            line.split_once(": ").map_or(line.to_owned(), |(name, value)| format!("{}: {value}", name.to_lowercase()))
        });
        Answer { status, head: lines.collect::<Vec<_>>().join("\n"), body: body.to_owned() }
    }

    /// As the page asks.
    fn call(&self, method: &str, call: &str, body: &str) -> Answer {
        self.send(method, &format!("/-/console/api/{call}"), OWN, body)
    }

    fn s3(&self, method: &str, target: &str, body: &str) -> Answer {
        self.call(method, &format!("s3?t={}", target.replace('%', "%25").replace('?', "%3F").replace('&', "%26")), body)
    }

    fn sign_in(&mut self, access_key: &str, secret_key: &str) -> u16 {
        let form = json!({ "accessKey": access_key, "secretKey": secret_key }).to_string();
        let answer = self.call("POST", "sign-in", &form);
        if let Some(line) = answer.header("set-cookie") {
            assert!(line.contains("HttpOnly") && line.contains("SameSite=Strict"), "{line}");
            assert!(!answer.body.contains(secret_key) && !line.contains(access_key));
            self.cookie = line.split(';').next().unwrap().to_owned();
        }
        answer.status
    }

    fn signed_in(server: &Server) -> Browser {
        let (mut browser, keys) = (Browser::of(server), server.keys());
        assert_eq!(browser.sign_in(&keys.access_key, &keys.secret_key), 200);
        browser
    }
}

#[test]
fn signing_in_again_ends_the_session_that_the_browser_had() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let keys = server.keys();
    let mut browser = Browser::signed_in(&server);
    let other = Browser::signed_in(&server);
    let before = Browser { address: browser.address.clone(), cookie: browser.cookie.clone() };
    assert_eq!(browser.sign_in(&keys.access_key, "a wrong secret"), 403);
    assert_eq!(before.call("GET", "session", "").status, 200, "who fails to sign in ends nothing");
    assert_eq!(browser.sign_in(&keys.access_key, &keys.secret_key), 200);
    assert_ne!(browser.cookie, before.cookie);
    assert_eq!(browser.call("GET", "session", "").status, 200);
    assert_eq!(before.call("GET", "session", "").status, 401, "the session before");
    assert_eq!(other.call("GET", "session", "").status, 200, "that of another browser");
}

#[test]
fn a_session_does_what_its_key_can_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let mut browser = Browser::of(&server);
    assert_eq!(browser.call("GET", "session", "").status, 401);
    assert_eq!(browser.sign_in(&server.keys().access_key, "a wrong secret"), 403);
    assert_eq!(browser.sign_in("nobody", "a wrong secret"), 403);
    browser = Browser::signed_in(&server);
    let session: Value = serde_json::from_str(&browser.call("GET", "session", "").body).unwrap();
    assert_eq!(session["root"], true);
    assert!(!session.to_string().contains(&server.keys().secret_key));

    assert_eq!(browser.s3("PUT", "/first", "").status, 200);
    for key in ["a/../b", "..", "x/./y", "plain"] {
        let target = format!("/first/{}", key.replace('.', "%2E"));
        assert_eq!(browser.s3("PUT", &target, key).status, 200, "{key}");
        assert_eq!(browser.s3("GET", &target, "").body, key);
    }
    assert_eq!(browser.s3("PUT", "/second", "").status, 200);
    assert_eq!(browser.s3("PUT", "/second/b", "kept").status, 200);
    assert_eq!(browser.s3("DELETE", "/first/../second/b", "").status, 204, "a key of the first bucket with dots");
    assert_eq!(browser.s3("GET", "/second/b", "").body, "kept", "dots lead nowhere");

    assert!(browser.call("GET", "metrics", "").body.contains("margay_requests_total{operation=\"PutObject\""));
    assert_eq!(browser.call("POST", "sign-out", "").status, 200);
    assert_eq!(browser.call("GET", "session", "").status, 401, "the id is worth nothing any more");
}

#[test]
fn a_user_has_the_rights_of_its_key_until_it_is_disabled() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let data = server.data.to_str().unwrap().to_owned();
    let root = Browser::signed_in(&server);
    root.s3("PUT", "/first", "");
    root.s3("PUT", "/first/secret", "content");
    let text = server::ends(0, &["user", "create", "alice", "--data", &data, "--json"]);
    let key: Value = serde_json::from_str(&text).unwrap();
    let id = key["access_key"].as_str().unwrap().to_owned();
    let mut alice = Browser::of(&server);
    assert_eq!(alice.sign_in(&id, key["secret_key"].as_str().unwrap()), 200);
    let session: Value = serde_json::from_str(&alice.call("GET", "session", "").body).unwrap();
    assert_eq!(session["root"], false);
    for (method, target) in
        [("GET", "/first/secret"), ("GET", "/first?list-type=2"), ("DELETE", "/first/secret"), ("PUT", "/first/x")]
    {
        let answer = alice.s3(method, target, "");
        assert_eq!(answer.status, 403, "{method} {target}: {}", answer.body);
        assert!(!answer.body.contains("content"));
    }
    for call in ["metrics", "status"] {
        assert_eq!(alice.call("GET", call, "").status, 403, "{call}");
    }
    assert_eq!(alice.send("GET", "/-/console/raw?t=/first/secret&as=text", "", "").status, 403);
    server::ends(0, &["key", "disable", &id, "--data", &data]);
    assert_eq!(alice.call("GET", "session", "").status, 401, "the session ends with its key");
}

#[test]
fn requests_of_other_sites_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let browser = Browser::signed_in(&server);
    let target = "/-/console/api/s3?t=/stolen";
    for headers in [
        String::new(),
        "origin: http://evil.example\r\n".to_owned(),
        format!("{OWN}origin: http://evil.example\r\n"),
        format!("{OWN}origin: null\r\n"),
        format!("{OWN}sec-fetch-site: cross-site\r\n"),
        format!("{OWN}sec-fetch-site: same-site\r\n"),
    ] {
        assert_eq!(browser.send("PUT", target, &headers, "").status, 403, "{headers}");
    }
    assert_eq!(browser.s3("HEAD", "/stolen", "").status, 404, "nothing was done");
    let preflight =
        browser.send("OPTIONS", target, "origin: http://evil.example\r\naccess-control-request-method: PUT\r\n", "");
    assert!(preflight.status >= 400 && preflight.header("access-control-allow-origin").is_none());
    let raw = browser.send("GET", "/-/console/raw?t=/a/b&as=text", "sec-fetch-site: cross-site\r\n", "");
    assert_eq!(raw.status, 403);
}

#[test]
fn contents_are_shown_without_power() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let browser = Browser::signed_in(&server);
    browser.s3("PUT", "/first", "");
    let put = |key: &str, kind: &str| {
        let headers = format!("{OWN}content-type: {kind}\r\nx-amz-meta-x: <script>\r\n");
        let path = format!("/-/console/api/s3?t=/first/{key}");
        assert_eq!(browser.send("PUT", &path, &headers, "<script>alert(1)</script>").status, 200);
    };
    put("evil.html", "text/html");
    put("picture", "image/svg+xml");
    let raw = |key: &str, form: &str| browser.send("GET", &format!("/-/console/raw?t=/first/{key}&as={form}"), "", "");
    let policy = |answer: &Answer| answer.header("content-security-policy").unwrap().to_owned();
    for form in ["media", "save", "inline", ""] {
        let answer = raw("evil.html", form);
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"), "{form}");
        assert!(answer.header("content-disposition").unwrap().starts_with("attachment"), "{form}");
    }
    let text = raw("evil.html", "text");
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    let picture = raw("picture", "media");
    assert_eq!(picture.header("content-type"), Some("image/svg+xml"));
    for answer in [&text, &picture, &raw("missing", "media"), &browser.s3("GET", "/first/evil.html", "")] {
        assert!(policy(answer).contains("sandbox") && policy(answer).contains("default-src 'none'"), "{}", answer.head);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
    }
    let page = browser.send("GET", "/-/console/", "", "");
    assert!(policy(&page).contains("frame-ancestors 'none'") && policy(&page).contains("script-src 'self';"));
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
    for path in ["../settings.rs", "%2e%2e/x", "js/../../x", "js", "js/", "api", "nothing.js"] {
        assert_eq!(browser.send("GET", &format!("/-/console/{path}"), "", "").status, 404, "{path}");
    }
}

#[test]
fn guesses_are_slowed_down() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let mut browser = Browser::of(&server);
    let keys = server.keys();
    let statuses: Vec<u16> =
        (0..12).map(|index| browser.sign_in(&keys.access_key, &format!("guess {index}"))).collect();
    assert_eq!(statuses, [vec![403; 10], vec![429; 2]].concat());
    assert_eq!(browser.sign_in(&keys.access_key, &keys.secret_key), 429, "also the right one waits");
}

#[test]
fn each_service_has_its_own_way_in() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let browser = Browser::signed_in(&server);
    for call in [
        "s3?t=/-/health",
        "s3?t=/-/admin/users",
        "iam?t=/bucket",
        "admin?t=/bucket",
        "admin?t=/-/console/api/session",
        "s3",
        "s3?t=/a&t=/b",
        "x?t=/",
    ] {
        let status = browser.call("GET", call, "").status;
        assert!(status == 400 || status == 404, "{call}: {status}");
    }
    assert_eq!(browser.call("GET", "s3?t=/", "").status, 200);
}

/// The SHA-256 of no bytes, which administration wants to see signed.
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn administration_is_reached_with_the_rights_of_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let status = |browser: &Browser, digest: &str| {
        let headers = format!("{OWN}x-amz-content-sha256: {digest}\r\n");
        browser.send("GET", "/-/console/api/admin?t=/-/admin/v1/status", &headers, "")
    };
    let root = Browser::signed_in(&server);
    let answer = status(&root, NOTHING);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap()["health"], "ok");
    assert_eq!(status(&root, &NOTHING.replace('e', "f")).status, 403, "the body is not the one that the page names");
    let data = server.data.to_str().unwrap().to_owned();
    let text = server::ends(0, &["user", "create", "alice", "--data", &data, "--json"]);
    let key: Value = serde_json::from_str(&text).unwrap();
    let mut alice = Browser::of(&server);
    assert_eq!(alice.sign_in(key["access_key"].as_str().unwrap(), key["secret_key"].as_str().unwrap()), 200);
    let answer = status(&alice, NOTHING);
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("admin:Status") && !answer.body.contains("health"), "{}", answer.body);
}

#[test]
fn a_session_is_told_what_its_key_may_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let root = Browser::signed_in(&server);
    root.s3("PUT", "/first", "");
    let data = server.data.to_str().unwrap().to_owned();
    let text = server::ends(0, &["user", "create", "alice", "--data", &data, "--json"]);
    let key: Value = serde_json::from_str(&text).unwrap();
    let file = folder.path().join("policy.json");
    let statement = json!({ "Effect": "Allow", "Action": ["s3:PutObject", "admin:Status"], "Resource": "*" });
    std::fs::write(&file, json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string()).unwrap();
    server::ends(0, &["policy", "put", "p", "--file", file.to_str().unwrap(), "--data", &data]);
    server::ends(0, &["policy", "attach", "p", "--user", "alice", "--data", &data]);
    let mut alice = Browser::of(&server);
    assert_eq!(alice.sign_in(key["access_key"].as_str().unwrap(), key["secret_key"].as_str().unwrap()), 200);
    let asked: Vec<Value> = [
        ("s3:PutObject", "first/x"),
        ("s3:GetObject", "first/x"),
        ("s3:PutObject", "absent/x"),
        ("admin:Status", "arn:aws:margay:::server"),
        ("admin:Scrub", "arn:aws:margay:::server"),
        ("iam:ListUsers", "arn:aws:iam::000000000000:user/"),
    ]
    .iter()
    .map(|(action, resource)| json!({ "action": action, "resource": resource }))
    .collect();
    let answer = alice.call("POST", "may", &json!(asked).to_string());
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told, json!({ "allowed": [true, false, false, true, false, false] }), "only yes and no");
    let all = root.call("POST", "may", &json!(asked).to_string());
    assert!(!all.body.contains("false"), "root may everything: {}", all.body);
    assert_eq!(alice.call("GET", "metrics", "").status, 200, "who may see the state of the server does");
    for bad in ["", "{}", "[7]", "nothing", &format!("[{}]", "{},".repeat(30_000))] {
        assert_eq!(alice.call("POST", "may", bad).status, 400);
    }
    assert_eq!(Browser::of(&server).call("POST", "may", "[]").status, 401);
}

#[test]
fn a_link_opens_one_object_for_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let browser = Browser::signed_in(&server);
    browser.s3("PUT", "/first", "");
    browser.s3("PUT", "/first/a%20b", "shared");
    let order = |seconds: u64, origin: &str| {
        json!({ "origin": origin, "target": "/first/a%20b", "seconds": seconds }).to_string()
    };
    let answer = browser.call("POST", "share", &order(60, &server.endpoint));
    let link: Value = serde_json::from_str(&answer.body).unwrap();
    let path = link["url"].as_str().unwrap().strip_prefix(&server.endpoint).unwrap();
    let door = Browser { address: server.endpoint.strip_prefix("http://").unwrap().to_owned(), cookie: String::new() };
    assert_eq!(door.send("GET", path, "", "").body, "shared");
    assert_eq!(door.send("GET", &path.replace("/a%20b", "/other"), "", "").status, 403);
    for wrong in [
        order(0, &server.endpoint),
        order(700_000, &server.endpoint),
        order(60, "javascript:alert(1)"),
        order(60, "http://a b"),
        order(60, "http://a/b"),
    ] {
        assert_eq!(browser.call("POST", "share", &wrong).status, 400, "{wrong}");
    }
}

#[test]
fn the_console_is_where_the_settings_say() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(&folder.path().join("a"), &["--console", "s3"]);
    let browser = Browser::signed_in(&server);
    assert_eq!(format!("http://{}", browser.address), server.endpoint);
    assert_eq!(browser.s3("PUT", "/first", "").status, 200);
    let object = browser.send("GET", "/first/page.html", "", "");
    assert_eq!(object.header("content-security-policy"), Some("sandbox"), "objects share the origin: {}", object.head);
    drop(server);
    let server = Server::start_with(&folder.path().join("b"), &["--console", "off"]);
    assert!(!server.screen.contains("console"), "{}", server.screen);
    let at = |address: &str| {
        Browser { address: address.to_owned(), cookie: String::new() }.send("GET", "/-/console/", "", "").status
    };
    assert!(at(server.endpoint.strip_prefix("http://").unwrap()) >= 400);
    server::ends(2, &["serve", "--console", "everywhere"]);
}
