//! A bucket of a server, served by another process with a cache of its own: real requests at both ends, real kernel.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use margay_client::client::ListQuery;
use margay_client::upstream::{Grid, StateOf, Upstream, Wanted};
use margay_client::{ClientError, Condition};
use rustix::process::Signal;
use tokio::runtime::Runtime;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::far::{Body, PART_BYTES, World, upstream_of};
use server::proxy::Proxy;
use server::{Server, metric};

/// A client of one server.
struct Client {
    upstream: Upstream,
    runtime: Runtime,
    /// What begins its keys.
    prefix: &'static str,
}

impl Client {
    fn of(server: &Server, prefix: &'static str) -> Client {
        Client { upstream: upstream_of(server), runtime: Runtime::new().unwrap(), prefix }
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn put(&self, name: &str, body: &[u8]) {
        self.run(self.upstream.put(&self.key(name), Bytes::copy_from_slice(body), Condition::Always)).unwrap();
    }

    fn range(&self, name: &str, range: Range<u64>) -> Result<Bytes, ClientError> {
        self.run(self.upstream.get(&self.key(name), range, Wanted::Any)).map(|found| found.unwrap().bytes)
    }

    /// The whole object; `None` if it is not there.
    fn get(&self, name: &str) -> Option<Bytes> {
        let size = self.run(self.upstream.describe(&self.key(name))).unwrap()?.size;
        Some(if size == 0 { Bytes::new() } else { self.range(name, 0..size).unwrap() })
    }

    fn delete(&self, name: &str) {
        self.run(self.upstream.delete(&self.key(name))).unwrap();
    }

    fn copy(&self, from: &str, to: &str) {
        let (from, to) = (self.key(from), self.key(to));
        let etag = self.run(self.upstream.describe(&from)).unwrap().unwrap().etag;
        let source = StateOf { key: &from, etag: &etag };
        self.run(self.upstream.copy_object(source, &to, Condition::Always, None)).unwrap();
    }

    /// Names below a name, without what begins its keys.
    fn list(&self, below: &str) -> Vec<String> {
        let (prefix, mut names, mut token) = (self.key(below), Vec::new(), None);
        loop {
            let query = ListQuery { prefix: &prefix, token: token.as_deref(), keys_max: 7, ..ListQuery::default() };
            let page = self.run(self.upstream.list(&query)).unwrap();
            names.extend(page.entries.iter().map(|entry| entry.key.strip_prefix(self.prefix).unwrap().to_owned()));
            match page.next_token {
                Some(next) => token = Some(next),
                None => return names,
            }
        }
    }
}

fn sync(world: &World, cache: &str) {
    let mut child = world.command().args(["sync", "--cache"]).arg(world.folder.path().join(cache)).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > Duration::from_secs(100) => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success(), "not everything is sent: {status}");
}

fn content(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * (number + 3) % 251) as u8).collect()
}

#[test]
fn objects_go_both_ways() {
    let world = World::new();
    let direct = Client::of(&world.server, "sub/");
    for number in 0..20 {
        direct.put(&format!("there/{}/{number}", number % 3), &content(number, 1000));
    }
    direct.put("there/large", &content(1, 5 << 20));
    let gateway = world.serve("cache", &world.server.endpoint, &[]);
    let client = Client::of(&gateway, "");
    assert_eq!(client.list(""), direct.list(""), "what is there, page by page");
    assert_eq!(client.range("there/large", 3_000_000..3_000_100).unwrap(), content(1, 5 << 20)[3_000_000..3_000_100]);
    assert_eq!(client.get("there/1/4").unwrap(), content(4, 1000));
    assert!(client.get("there/none").is_none() && client.get("nowhere/at/all").is_none());

    let hidden = client.upstream.put(".margay-tmp/mine", Bytes::from_static(b"lost"), Condition::Always);
    assert_eq!(client.run(hidden).unwrap_err().status(), Some(403), "the next process would remove it");

    client.put("new/one", &content(7, 100_000));
    client.put("there/0/3", b"replaced");
    client.delete("there/2/5");
    client.copy("there/large", "copies/large");
    client.copy("new/one", "copies/one");
    let large = Bytes::from(content(9, 20 << 20));
    let grid = Grid::of_parts(large.len() as u64, PART_BYTES);
    let colour = vec![(HeaderName::from_static("x-amz-meta-colour"), HeaderValue::from_static("red"))];
    let sent = client.upstream.upload("parts/large", grid, Body(large.clone()), Condition::Always, &colour);
    client.run(sent).unwrap();
    // The source of the copy is another object by now: the copy has what was copied.
    direct.put("there/large", b"other");
    sync(&world, "cache");
    for (name, expected) in [
        ("new/one", &content(7, 100_000)[..]),
        ("there/0/3", b"replaced"),
        ("copies/large", &content(1, 5 << 20)),
        ("copies/one", &content(7, 100_000)),
        ("parts/large", &large),
    ] {
        assert!(direct.get(name).unwrap() == expected, "{name} in the far bucket");
        assert!(client.get(name).unwrap() == expected, "{name} here");
    }
    assert!(direct.get("there/2/5").is_none() && client.get("there/2/5").is_none());
    let there = direct.run(direct.upstream.describe("sub/parts/large")).unwrap().unwrap();
    assert_eq!(there.headers["x-amz-meta-colour"], "red");
    assert_eq!(client.list("there/"), direct.list("there/"));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.code(), Some(0));
}

#[test]
fn what_was_acknowledged_arrives_after_a_kill() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    let direct = Client::of(&world.server, "sub/");
    direct.put("old/removed", b"old");
    let mut gateway = world.serve("cache", &proxy.endpoint, &[]);
    let client = Client::of(&gateway, "");
    assert_eq!(client.list(""), ["old/removed"]);
    for number in 0..10 {
        client.put(&format!("early/{number}"), &content(number, 10_000));
    }
    // The far bucket gets nothing of this from the process that is killed.
    proxy.cut();
    for number in 0..30 {
        client.put(&format!("kept/{}/{number}", number % 4), &content(number, 1000 * number));
    }
    client.delete("old/removed");
    client.copy("kept/1/5", "kept/copy");
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    assert!(direct.list("kept/").is_empty());
    proxy.mend();
    let gateway = world.serve("cache", &proxy.endpoint, &[]);
    let client = Client::of(&gateway, "");
    sync(&world, "cache");
    for number in 0..30 {
        let (name, expected) = (format!("kept/{}/{number}", number % 4), content(number, 1000 * number));
        assert!(direct.get(&name).unwrap() == expected && client.get(&name).unwrap() == expected, "{name}");
    }
    assert_eq!(direct.get("kept/copy").unwrap(), content(5, 5000));
    assert_eq!(direct.list(""), client.list(""));
    assert!(direct.get("old/removed").is_none());
    // Without the bucket the end says what is left, and a second signal waits for nothing.
    proxy.cut();
    client.put("late", b"late");
    gateway.signal(Signal::TERM);
    let log = || fs::read_to_string(world.folder.path().join("log")).unwrap();
    let begun = Instant::now();
    while !log().contains("sending: 1 file") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.code(), Some(1));
    assert!(log().contains("1 change (4 bytes) is not in the bucket yet"), "{}", log());
    proxy.mend();
    sync(&world, "cache");
    assert_eq!(direct.get("late").unwrap(), "late");
}

/// More requests than threads wait for directories that were never listed, and others are answered.
#[test]
fn requests_that_wait_for_listings_hold_up_nobody() {
    const DIRECTORIES: usize = 40;
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    let direct = Client::of(&world.server, "sub/");
    direct.put("near/file", b"near");
    for number in 0..DIRECTORIES {
        direct.put(&format!("far/{number}/file"), &content(number, 100));
    }
    let gateway = world.serve("cache", &proxy.endpoint, &[]);
    let client = Client::of(&gateway, "");
    assert_eq!(client.get("near/file").unwrap(), "near");
    assert!(client.get("far/none").is_none());
    proxy.hold();
    let asked = (0..DIRECTORIES).map(|number| {
        let (upstream, key) = (client.upstream.clone(), format!("far/{number}/file"));
        let put = format!("far/{number}/new");
        client.runtime.spawn(async move {
            // Half of them write.
            match number % 2 {
                0 => upstream.get(&key, 0..100, Wanted::Any).await.map(|found| found.unwrap().bytes),
                _ => upstream.put(&put, Bytes::from_static(b"new"), Condition::Always).await.map(|_| Bytes::new()),
            }
        })
    });
    let asked: Vec<_> = asked.collect();
    let begun = Instant::now();
    while metric(&gateway.data, "margay_requests_running") < DIRECTORIES as u64 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the requests do not arrive");
        std::thread::sleep(Duration::from_millis(20));
    }
    let own = client.upstream.clone();
    let others = client.runtime.spawn(async move {
        for number in 0..20 {
            assert_eq!(own.get("near/file", 0..4, Wanted::Any).await.unwrap().unwrap().bytes, "near");
            own.put(&format!("near/{number}"), Bytes::from_static(b"other"), Condition::Always).await.unwrap();
        }
    });
    client.run(async { tokio::time::timeout(Duration::from_secs(50), others).await }).expect("others wait").unwrap();
    assert!(asked.iter().all(|one| !one.is_finished()), "nothing is known of those directories");
    proxy.let_go();
    for (number, one) in asked.into_iter().enumerate() {
        let expected = if number % 2 == 0 { content(number, 100) } else { Vec::new() };
        assert_eq!(client.run(one).unwrap().unwrap(), expected);
    }
    sync(&world, "cache");
    assert_eq!(direct.list(""), client.list(""));
    assert_eq!(direct.list("far/").len(), DIRECTORIES + DIRECTORIES / 2);
}

#[test]
fn both_doors_show_the_same() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let direct = Client::of(&world.server, "sub/");
    direct.put("there/file", b"far");
    let mounted = world.folder.path().join("mounted");
    let words = ["--mount", mounted.to_str().unwrap(), "--name", "other-name"];
    let gateway = world.serve("cache", &world.server.endpoint, &words);
    assert!(gateway.screen.contains("other-name"), "{}", gateway.screen);
    drop(gateway);
    std::process::Command::new("umount").arg("-l").arg(&mounted).stderr(Stdio::null()).status().unwrap();
    // The name is another one the next time, over the same cache.
    let gateway = world.serve("cache", &world.server.endpoint, &words[..2]);
    let client = Client::of(&gateway, "");
    assert_eq!(fs::read(mounted.join("there/file")).unwrap(), b"far");
    fs::create_dir(mounted.join("made")).unwrap();
    fs::write(mounted.join("made/file"), "by the mount").unwrap();
    assert_eq!(client.get("made/file").unwrap(), "by the mount");
    client.put("made/object", b"by S3");
    client.put("made/file", b"replaced");
    assert_eq!(fs::read(mounted.join("made/object")).unwrap(), b"by S3");
    assert_eq!(fs::read(mounted.join("made/file")).unwrap(), b"replaced");
    fs::rename(mounted.join("made"), mounted.join("moved")).unwrap();
    assert_eq!(client.list("m"), ["moved/", "moved/file", "moved/object"]);
    fs::File::open(&mounted).unwrap().sync_all().unwrap();
    assert_eq!(direct.list("m"), client.list("m"));

    second_process_is_refused(&world, &gateway.data);
    let told = |arguments: &[&str]| {
        let output = world.command().args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), output.stderr)
    };
    let place = mounted.to_str().unwrap();
    let (_, status, _) = told(&["status", place]);
    assert!(status.contains(&gateway.endpoint) && status.contains(place), "{status}");
    let (_, mounts, _) = told(&["mounts"]);
    assert!(mounts.contains(&format!("s3://bucket/sub on {place}")) && mounts.contains(&gateway.endpoint), "{mounts}");
    // The mount goes, and S3 stays.
    let (code, _, error) = told(&["unmount", place]);
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&error));
    assert!(!mounted.join("moved").exists());
    client.put("after", b"after");
    let (_, mounts, _) = told(&["mounts"]);
    assert!(mounts.contains(&gateway.endpoint) && !mounts.contains(place), "{mounts}");
    gateway.signal(Signal::INT);
    assert_eq!(gateway.code(), Some(0));
    assert_eq!(direct.get("after").unwrap(), "after");
}

fn second_process_is_refused(world: &World, cache: &Path) {
    let mount = ["mount", "s3://bucket/sub", "--endpoint", &world.server.endpoint, "--cache"];
    let mut mount_too = world.command();
    mount_too.args(mount).arg(cache).arg(world.folder.path().join("second")).stderr(Stdio::piped());
    for mut second in [world.serving(cache, &world.server.endpoint, &[], Stdio::piped()), mount_too] {
        let output = second.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("is in use") && error.contains("--cache DIR"), "{error}");
        assert_ne!(output.status.code(), Some(0));
    }
}
