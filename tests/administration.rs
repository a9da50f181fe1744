//! Administration of a server from elsewhere: signed requests, rights, streams, exit codes, the audit log.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that it does not expect"
)]

#[path = "server/mod.rs"]
mod server;
#[path = "administration/world.rs"]
mod world;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use server::{Server, ends, margay};
use world::{Caller, World};

#[test]
fn every_command_works_from_elsewhere_with_the_root_keys() {
    let world = World::new();
    let root = &world.root;
    world.server.client(&["mb", "s3://photos"]);
    let body = server::body(world.folder.path(), "one", 5000);
    world.server.client(&["put", body.to_str().unwrap(), "s3://photos/one"]);

    let status = root.json(&["status", "--json"]);
    assert_eq!((status["health"].as_str(), status["process"].is_u64()), (Some("ok"), true));
    assert!(status["space"]["total_bytes"].as_u64() > status["space"]["free_bytes"].as_u64());
    let people = root.ends(0, &["status"]);
    assert!(people.lines().any(|line| line.starts_with("space.free_bytes") && line.ends_with("iB")), "{people}");

    let row = &root.json(&["bucket", "ls", "--json"])["buckets"][0];
    assert_eq!((row["bucket"].as_str(), row["bytes"].as_u64()), (Some("photos"), Some(5000)));
    root.ends(0, &["bucket", "quota", "photos", "--bytes", "1MiB"]);
    assert_eq!(root.json(&["du", "--json"])["buckets"][0]["bytes_max"], 1 << 20);
    assert!(root.ends(0, &["bucket", "inventory", "photos"]).contains("one"));
    assert_eq!(root.json(&["mounts", "--json"]), json!([]));
    assert_eq!(root.json(&["scrub", "--json"])["damaged"], 0);
    root.ends(0, &["compact"]);
    let report = root.json(&["fsck", "--json"]);
    assert_eq!((report["clean"].as_bool(), report["files"].as_u64()), (Some(true), Some(1)), "{report}");
    assert!(root.ends(2, &["fsck", "--repair"]).contains("stop it"));
    let found = root.json(&["object", "where", "photos/one", "--json"]);
    assert_eq!(found["bytes"], 5000, "{found}");
    assert_eq!(root.json(&["object", "recover", "photos/one", "--json"])["left_bad"], 0);
    assert!(root.ends(1, &["object", "where", "photos/none"]).contains("photos/none"));
    let both = ["fsck", "--endpoint", &root.endpoint, "--metadata", "postgres://db/margay"];
    assert!(root.ends(2, &both).contains("name one of them"));
    assert!(root.ends(0, &["clock"]).contains("believed"));

    root.ends(0, &["user", "create", "ann"]);
    root.ends(0, &["group", "create", "readers"]);
    root.ends(0, &["group", "join", "readers", "ann"]);
    let table = root.ends(0, &["user", "list"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((words[0], words[4]), ("ann", "readers"), "{table}");
    let key = root.json(&["key", "create", "ann", "--json"])["access_key"].as_str().unwrap().to_owned();
    root.ends(0, &["key", "disable", &key]);
    assert!(root.ends(0, &["key", "list", "ann"]).contains(&key));
    root.ends(0, &["user", "delete", "ann"]);
    // The same by the socket: one dispatcher.
    let data = world.server.data.to_str().unwrap();
    assert_eq!(ends(0, &["user", "list", "--json", "--data", data]).trim(), "[]");
}

#[test]
fn exit_codes_say_what_kind_of_failure_it_is() {
    let world = World::new();
    let root = &world.root;
    // Nobody answers.
    let nobody = Caller { endpoint: "http://127.0.0.1:9".to_owned(), ..Caller::root(&world.server) };
    assert!(nobody.ends(3, &["status"]).contains("cannot connect"));
    // Wrong keys.
    let stranger = Caller { secret_key: "wrong".repeat(8), ..Caller::root(&world.server) };
    stranger.ends(3, &["status"]);
    // It fails on the way.
    assert!(root.ends(1, &["bucket", "quota", "nosuchbucket", "--bytes", "1"]).contains("bucket"));
    root.ends(1, &["user", "delete", "nobody"]);
    // A wrong word.
    root.ends(2, &["top", "--seconds", "0"]);
    Caller { endpoint: "ftp://x".to_owned(), ..Caller::root(&world.server) }.ends(2, &["status"]);
    // A directory that is named counts more than the variable.
    let data = world.server.data.to_str().unwrap();
    nobody.ends(0, &["status", "--data", data]);
    // And `--endpoint` more than both, with the keys of the directory.
    let mut command = margay();
    command.args(["status", "--data", data, "--endpoint", &world.server.endpoint, "--json"]);
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_key_may_do_what_its_policies_say_and_nothing_else() {
    let world = World::new();
    world.server.client(&["mb", "s3://photos"]);
    world.server.client(&["mb", "s3://other"]);
    let watcher = world.user(
        "watcher",
        &json!({ "Effect": "Allow", "Action": ["admin:Status", "admin:Top", "admin:List*"], "Resource": "*" }),
    );
    watcher.ends(0, &["status"]);
    watcher.ends(0, &["user", "list"]);
    watcher.ends(0, &["bucket", "ls"]);
    for words in [
        &["user", "create", "eve"][..],
        &["key", "create", "watcher"],
        &["bucket", "quota", "photos", "--bytes", "1"],
        &["scrub"],
        &["fsck"],
        &["object", "where", "photos/one"],
        &["object", "recover", "photos/one"],
        &["trace"],
        &["policy", "get", "watcher"],
        &["clock", "confirm"],
    ] {
        let said = watcher.ends(3, words);
        assert!(said.contains("may not do admin:"), "{words:?}: {said}");
    }
    // One bucket, and a deny that wins.
    let quotas = world
        .user("quotas", &json!({ "Effect": "Allow", "Action": "admin:SetQuota", "Resource": "arn:aws:s3:::photos" }));
    quotas.ends(0, &["bucket", "quota", "photos", "--bytes", "1GiB"]);
    quotas.ends(3, &["bucket", "quota", "other", "--bytes", "1GiB"]);
    // Rights to data are no rights to the server; without a policy there are none.
    let data = world.user("data", &json!({ "Effect": "Allow", "Action": "s3:*", "Resource": "*" }));
    data.ends(3, &["status"]);
    let bare = Caller::of(&world.server, &world.root.json(&["user", "create", "bare", "--json"]));
    bare.ends(3, &["status"]);
    // An address in a condition.
    let from = json!({ "Effect": "Allow", "Action": "admin:*", "Resource": "*",
        "Condition": { "IpAddress": { "aws:SourceIp": "192.0.2.0/24" } } });
    world.user("elsewhere", &from).ends(3, &["status"]);
    let from = json!({ "Effect": "Allow", "Action": "admin:*", "Resource": "*",
        "Condition": { "IpAddress": { "aws:SourceIp": "127.0.0.0/8" } } });
    world.user("near", &from).ends(0, &["status"]);
    // What was refused is denied in the log, under its name.
    let denied: Vec<Value> = world.audit().into_iter().filter(|line| line["outcome"] == "denied").collect();
    let of = |who: &str| denied.iter().filter(|line| line["who"].as_str().unwrap().ends_with(who)).count();
    assert_eq!((of(":user/watcher"), of(":user/quotas"), of(":user/bare")), (10, 1, 1), "{denied:#?}");
}

#[test]
fn another_account_has_no_rights_here_whatever_its_policies_say() {
    let world = World::new();
    let shop = Caller::of(&world.server, &world.root.json(&["user", "create", "shop", "--account", "--json"]));
    shop.ends(3, &["status"]);
    // Who owns an account gives its users what he likes.
    let till = Caller::of(&world.server, &world.root.json(&["user", "create", "till", "--of", "shop", "--json"]));
    world.root.ends(0, &["policy", "attach", "arn:aws:iam::aws:policy/AdministratorAccess", "--user", "till"]);
    world.root.ends(0, &["policy", "attach", "arn:aws:iam::aws:policy/AdministratorAccess", "--user", "shop"]);
    for caller in [&shop, &till] {
        caller.ends(3, &["status"]);
        caller.ends(3, &["user", "list"]);
    }
    // In the account of root the same policy is enough.
    let ann = Caller::of(&world.server, &world.root.json(&["user", "create", "ann", "--json"]));
    ann.ends(3, &["status"]);
    world.root.ends(0, &["policy", "attach", "arn:aws:iam::aws:policy/AdministratorAccess", "--user", "ann"]);
    ann.ends(0, &["status"]);
    world.root.ends(0, &["user", "disable", "ann"]);
    ann.ends(3, &["status"]);
}

#[test]
fn requests_that_nobody_signed_do_nothing() {
    let world = World::new();
    let root = &world.root;
    let order = br#"{"order":"create-user","name":"eve"}"#;
    let sha = "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n";
    for (head, more, body) in [
        ("GET /-/admin/v1/status", "", &b""[..]),
        ("GET /-/admin/v1/status", sha, b""),
        ("POST /-/admin/v1/identities", "", order),
        ("POST /-/admin/v1/identities?X-Amz-Algorithm=AWS4-HMAC-SHA256", "", order),
        ("POST /-/admin/v1/identities", "authorization: AWS a:b\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n", order),
        ("POST /-/admin/v1/identities", "authorization: Bearer x\r\n", order),
        ("GET /-/admin/v1/../v1/status", "", b""),
        ("GET /-/admin/v1", "", b""),
        ("DELETE /-/admin/v2/status", "", b""),
    ] {
        let (status, body) = root.raw(head, more, body);
        assert!((400..404).contains(&status), "{head}: {status} {body}");
        assert!(!body.contains("health") && !body.contains("eve"), "{head}: {body}");
    }
    assert_eq!(root.json(&["user", "list", "--json"]), json!([]));
    // The page of health needs nobody still.
    assert_eq!(root.raw("GET /-/health", "", b"").0, 200);
    assert!(world.audit().iter().filter(|line| line["outcome"] == "unknown").count() >= 8);
}

/// Headers that sign a request with this body, though another one is sent.
fn signed(caller: &Caller, method: http::Method, path: &str, body: &[u8]) -> String {
    use margay_s3::auth::sign::{Signer, Target};
    use margay_s3::auth::{PayloadForm, Secret};
    let signer = Signer::new(&caller.access_key, Secret::new(&caller.secret_key), "us-east-1");
    let mut headers = http::HeaderMap::new();
    headers.insert("host", caller.endpoint.strip_prefix("http://").unwrap().parse().unwrap());
    let digest: [u8; 32] = ring::digest::digest(&ring::digest::SHA256, body).as_ref().try_into().unwrap();
    let now = margay_env::Env::real().clock.now();
    let target = Target { method: &method, path, query: "" };
    signer.sign(target, &mut headers, PayloadForm::Sha256(digest), now).unwrap();
    headers.remove("host");
    let line =
        |(name, value): (&http::HeaderName, &http::HeaderValue)| format!("{name}: {}\r\n", value.to_str().unwrap());
    headers.iter().map(line).collect()
}

#[test]
fn a_body_that_is_not_the_signed_one_or_too_large_or_no_json_does_nothing() {
    let world = World::new();
    let root = &world.root;
    let (post, path) = (http::Method::POST, "/-/admin/v1/identities");
    let order = br#"{"order":"create-user","name":"eve"}"#;
    let head = format!("POST {path}");
    let other = br#"{"order":"create-user","name":"bob"}"#;
    assert_eq!(root.raw(&head, &signed(root, post.clone(), path, other), order).0, 403);
    let large = vec![b' '; 64 * 1024 + 1];
    assert_eq!(root.raw(&head, &signed(root, post.clone(), path, &large), &large).0, 400);
    for bad in [
        &b"{"[..],
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        br#"{"order":"rule-the-world"}"#,
        br#"{"order":7}"#,
        br#"{"order":["list-users"]}"#,
    ] {
        let (status, body) = root.raw(&head, &signed(root, post.clone(), path, bad), bad);
        assert_eq!(status, 400, "{} {body}", String::from_utf8_lossy(bad));
        assert!(serde_json::from_str::<Value>(&body).unwrap()["error"].is_string(), "{body}");
    }
    let deep = "[".repeat(60_000);
    assert_eq!(root.raw(&head, &signed(root, post.clone(), path, deep.as_bytes()), deep.as_bytes()).0, 400);
    // A query that is not signed, and a path that is not there.
    let (status, _) = root.raw(&format!("{head}?x=1"), &signed(root, post.clone(), path, order), order);
    assert_eq!(status, 403);
    let gone = "/-/admin/v1/nothing";
    assert_eq!(root.raw(&format!("POST {gone}"), &signed(root, post.clone(), gone, b""), b"").0, 404);
    // What names files of the server's machine is not done from elsewhere, for root neither.
    for name in ["mount", "disk", "backup", "dump"] {
        let path = format!("/-/admin/v1/{name}");
        let (status, body) = root.raw(&format!("POST {path}"), &signed(root, post.clone(), &path, b"{}"), b"{}");
        assert_eq!(status, 403, "{name}: {body}");
    }
    assert_eq!(root.json(&["user", "list", "--json"]), json!([]));
    assert_eq!(root.raw(&head, &signed(root, post, path, order), order).0, 200);
    assert_eq!(root.json(&["user", "list", "--json"])[0]["user"], "eve");
}

#[test]
fn what_somebody_may_do_is_said_as_it_is_decided() {
    let world = World::new();
    let (root, server) = (&world.root, &world.server);
    server.client(&["mb", "s3://photos"]);
    let ann = world.user(
        "ann",
        &json!({ "Sid": "Reads", "Effect": "Allow", "Action": "s3:Get*", "Resource": "arn:aws:s3:::photos/*",
                 "Condition": { "IpAddress": { "aws:SourceIp": "127.0.0.0/8" } } }),
    );
    let may = |words: &[&str]| root.ends(0, &[&["policy", "may"], words].concat());
    let object = "photos/2026/cat.jpg";
    // She may not list, so she may not learn that it is absent.
    assert!(may(&["ann", "s3:GetObject", object]).contains("denied: there is no such object"));
    let file = world.folder.path().join("cat.jpg");
    fs::write(&file, "miau").unwrap();
    server.client(&["put", file.to_str().unwrap(), &format!("s3://{object}")]);
    let allowed = may(&["ann", "s3:GetObject", object]);
    assert!(allowed.contains("allowed: statement Reads of ann"), "{allowed}");
    assert!(may(&["ann", "s3:getobject", &format!("arn:aws:s3:::{object}")]).contains("allowed"));
    assert!(may(&[&ann.access_key, "s3:GetObject", object]).contains("allowed"));
    assert!(may(&["ann", "s3:GetObject", object, "--source-ip", "192.0.2.7"]).contains("denied: no statement"));
    for (who, action, resource, wanted) in [
        ("ann", "s3:PutObject", object, "denied: no statement of the caller's policies allows it"),
        ("ann", "s3:GetObject", "absent/x", "denied: there is no bucket absent"),
        ("ann", "s3:GetObject", "photos", "denied: s3:GetObject is about an object"),
        ("ann", "s3:ListBucket", object, "denied: s3:ListBucket is about a bucket"),
        ("ann", "s3:RestoreObject", object, "denied: no request to this server needs"),
        ("ann", "s3:CreateBucket", "new-bucket", "denied: no statement"),
        ("ann", "admin:Status", "arn:aws:margay:::server", "denied: no statement"),
        ("ann", "iam:CreateUser", "arn:aws:iam::000000000000:user/x", "denied: no statement"),
        ("ann", "ec2:RunInstances", "*", "denied: ec2:RunInstances is no action"),
        ("*", "s3:GetObject", object, "denied: no statement of the bucket's policy"),
        ("*", "admin:Status", "arn:aws:margay:::server", "denied: the request is not signed"),
        ("root", "s3:DeleteBucket", "photos", "allowed: the root keys"),
    ] {
        let told = may(&[who, action, resource]);
        assert!(told.starts_with(wanted), "{who} {action} {resource}: {told}");
    }
    for who in ["ann", "root"] {
        assert!(
            root.ends(2, &["policy", "may", who, "s3:GetObjet", object]).contains("s3:GetObjet is no action of S3")
        );
    }
    assert!(root.ends(1, &["policy", "may", "nobody", "s3:GetObject", object]).contains("nobody"));
    root.ends(0, &["user", "disable", "ann"]);
    assert!(root.ends(1, &["policy", "may", "ann", "s3:GetObject", object]).contains("disabled"));
    root.ends(0, &["user", "enable", "ann"]);
    // Who may ask: ann not, and whoever has the action.
    assert!(ann.ends(3, &["policy", "may", "ann", "s3:GetObject", object]).contains("admin:SimulatePolicy"));
    let asker = world.user(
        "asker",
        &json!({ "Effect": "Allow", "Action": "admin:SimulatePolicy", "Resource": "arn:aws:margay:::server" }),
    );
    assert!(asker.ends(0, &["policy", "may", "ann", "s3:GetObject", object]).starts_with("allowed"));
    for (path, bad) in [
        ("simulate", json!({})),
        ("simulate", json!({ "who": "ann" })),
        ("simulate", json!({ "who": "ann", "questions": [{}] })),
        ("quota", json!({})),
        ("where", json!({ "bucket": "photos" })),
        ("top", json!({ "seconds": 0 })),
        ("top", json!({ "seconds": -1 })),
        ("identities", json!({ "order": "create-user" })),
        ("fsck", json!({ "show": "x" })),
        ("quota", json!({ "bucket": "photos", "bytes": 7 })),
        ("trace", json!({ "bucket": ["photos"] })),
        ("scrub", json!({ "now": true })),
        ("unmount", json!({ "path": "/mnt", "seconds": 1.5 })),
    ] {
        assert_eq!(posted(root, path, &bad), 400, "{path} {bad}");
    }
    for (path, absent) in [
        ("quota", json!({ "bucket": "nothing" })),
        ("inventory", json!({ "bucket": "nothing" })),
        ("where", json!({ "bucket": "photos", "key": "nothing" })),
        ("simulate", json!({ "who": "nobody", "questions": [] })),
        ("identities", json!({ "order": "delete-user", "name": "nobody" })),
    ] {
        assert_eq!(posted(root, path, &absent), 404, "{path} {absent}");
    }
    assert_eq!(posted(root, "identities", &json!({ "order": "create-user", "name": "ann" })), 409);
    assert!(root.ends(2, &["user", "create", "root"]).contains("choose another name"));
}

/// The status of a signed request for a work.
fn posted(caller: &Caller, work: &str, wish: &Value) -> u16 {
    let (path, body) = (format!("/-/admin/v1/{work}"), wish.to_string());
    let signature = signed(caller, http::Method::POST, &path, body.as_bytes());
    caller.raw(&format!("POST {path}"), &signature, body.as_bytes()).0
}

#[test]
fn the_audit_log_has_who_what_from_where_and_no_secret() {
    let world = World::new();
    let data = world.server.data.to_str().unwrap();
    let created = world.root.json(&["user", "create", "ann", "--json"]);
    let secret_file = world.folder.path().join("secret");
    fs::write(&secret_file, "a-secret-that-is-long-enough-for-it").unwrap();
    let secret = secret_file.to_str().unwrap();
    world.root.ends(0, &["key", "create", "ann", "--access-key", "ANNANNANNANNANNANNAN", "--secret-file", secret]);
    ends(0, &["user", "disable", "ann", "--data", data]);
    world.root.ends(1, &["user", "delete", "nobody"]);
    world.root.ends(0, &["status"]);
    let lines = world.audit();
    let find =
        |action: &str| lines.iter().find(|line| line["action"] == action).unwrap_or_else(|| panic!("{lines:#?}"));
    let line = find("admin:CreateUser");
    assert_eq!((line["wish"]["name"].as_str(), line["outcome"].as_str()), (Some("ann"), Some("done")));
    assert_eq!(line["who"], "arn:aws:iam::000000000000:root");
    assert_eq!(
        (line["from"].as_str(), line["access_key"].as_str()),
        (Some("127.0.0.1"), Some(&*world.root.access_key))
    );
    assert_eq!(find("admin:CreateKey")["wish"]["access_key"], "ANNANNANNANNANNANNAN");
    let local = find("admin:DisableUser");
    assert_eq!((local["who"].as_str(), local["from"].as_str()), (Some("local"), Some("socket")));
    let failed = find("admin:DeleteUser");
    assert!(failed["outcome"] == "failed" && failed["error"].as_str().unwrap().contains("nobody"), "{failed}");
    assert_eq!(find("admin:Status")["outcome"], "done");
    let text = fs::read_to_string(world.folder.path().join("audit.log")).unwrap();
    for secret in [created["secret_key"].as_str().unwrap(), "a-secret-that", &world.root.secret_key] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn top_and_trace_stream_until_the_reader_or_the_server_ends() {
    let mut world = World::new();
    world.server.client(&["mb", "s3://photos"]);
    let top = world.root.ends(0, &["top", "--seconds", "1", "--count", "1", "--json"]);
    let line: Value = serde_json::from_str(top.trim()).unwrap();
    assert_eq!((line["health"].as_str(), line["operations"].is_array()), (Some("ok"), true));
    let data = world.server.data.to_str().unwrap().to_owned();
    assert!(ends(0, &["top", "--seconds", "1", "--count", "1", "--data", &data]).contains("OPERATION"));

    let watch = |words: &[&str]| {
        let mut child = world.root.command(words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    };
    let (mut errors, mut shown) = watch(&["trace", "--json", "--errors", "--bucket", "photos", "--count", "1"]);
    let (mut all, every) = watch(&["trace"]);
    let (sender, first) = std::sync::mpsc::channel();
    std::thread::spawn(move || every.for_each(|line| drop(sender.send(line.unwrap()))));
    // Until they watch, requests are not shown; so ask until one has ended and the other, whose pipe is read on, has shown something.
    let (mut ended, mut any) = (None, None);
    while ended.is_none() || any.is_none() {
        let missing = world.folder.path().join("missing");
        let mut get = margay();
        get.args(["client", "--data", &data, "--endpoint", &world.server.endpoint]);
        get.args(["get", "s3://photos/none"]).arg(&missing);
        get.output().unwrap();
        ended = errors.try_wait().unwrap();
        any = any.or_else(|| first.try_recv().ok());
    }
    assert!(ended.unwrap().success());
    let line: Value = serde_json::from_str(&shown.next().unwrap().unwrap()).unwrap();
    assert_eq!((line["status"].as_u64(), line["operation"].as_str()), (Some(404), Some("GetObject")), "{line}");
    assert_eq!((line["bucket"].as_str(), line["key"].as_str()), (Some("photos"), Some("none")), "{line}");
    assert_eq!(line["requester"].as_str(), Some(&*world.root.access_key));
    assert!(any.unwrap().contains("GetObject"));
    // A watcher does not keep the server from stopping.
    world.server.signal(Signal::TERM);
    assert!(world.server.child.wait().unwrap().success());
    assert_eq!(all.wait().unwrap().code(), Some(1), "who watches is told that it ended");
}

/// A bucket's own host keeps all of its keys.
#[test]
fn where_the_host_names_a_bucket_the_path_is_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(&folder.path().join("data"), &["--domain", "s3.test"]);
    let root = Caller::root(&server);
    server.client(&["mb", "s3://photos"]);
    let port = server.endpoint.rsplit_once(':').unwrap().1;
    let host = format!("photos.s3.test:{port}");
    for path in ["/-/admin/v1/status", "/-/health", "/-/ready"] {
        let mut stream = TcpStream::connect(root.endpoint.strip_prefix("http://").unwrap()).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("<Code>AccessDenied</Code>"), "{path} {answer}");
    }
}
