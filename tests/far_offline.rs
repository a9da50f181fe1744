//! Mounts and gateways that begin, and go on, while their bucket does not answer: real servers, real kernel.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use margay_client::client::{Client, ListQuery};
use margay_client::connection::Connection;
use margay_client::payload::Payload;
use margay_client::{ClientError, PayloadHash};

use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::Server;
use server::far::{Far, World};
use server::proxy::Proxy;

/// What must happen by itself happens within this time.
const SOON: Duration = Duration::from_secs(120);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// As `until`; a mount that has not sent everything tells why.
fn until_sent(world: &World, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= SOON {
            let (status, keys, log) = (status(world, "cache"), world.keys("sub/"), log(world));
            panic!("not everything is sent by itself\n{status:#}\nthe bucket has:\n{keys}\nthe log:\n{log}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The command of a mount in the foreground.
fn mounting(world: &World, cache: &str, endpoint: &str) -> Command {
    let mut command = world.command();
    command.args(["mount", "s3://bucket/sub", "--foreground", "--endpoint", endpoint, "--cache"]);
    command.arg(world.folder.path().join(cache)).arg(world.folder.path().join("mount"));
    command
}

/// It must end without a mount.
fn refused(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success(), "{error}");
    let errors: Vec<&str> = error.lines().filter_map(|line| line.strip_prefix("margay: ")).collect();
    let [error] = errors.as_slice() else { panic!("one error: {error}") };
    (*error).to_owned()
}

fn status(world: &World, cache: &str) -> Value {
    let cache = world.folder.path().join(cache);
    let output = world.command().args(["status", "--json", "--cache"]).arg(cache).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn log(world: &World) -> String {
    fs::read_to_string(world.folder.path().join("log")).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl World {
    /// The server goes as by a power cut.
    fn stop_server(&mut self) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
    }

    /// It is there again, at the same address.
    fn start_server(&mut self) {
        let (data, endpoint) = (self.server.data.clone(), self.server.endpoint.clone());
        self.server = Server::at(endpoint.strip_prefix("http://").unwrap(), &data, &[]);
    }
}

/// Files that are here, and one whose bytes are not.
fn filled(world: &World, endpoint: &str) {
    world.put("far/unread", 3_000_000);
    let far = world.mount_at("cache", endpoint);
    fs::create_dir(far.path.join("d")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(far.path.join("d").join(name), name.repeat(100_000)).unwrap();
    }
    assert_eq!(names(&far.path.join("far")), ["unread"]);
    assert_eq!(far.end(), Some(0));
}

#[test]
fn a_mount_begins_without_its_bucket_and_sends_when_that_is_back() {
    if fuse::must_not_mount() {
        return;
    }
    let mut world = World::new();
    filled(&world, &world.server.endpoint.clone());
    world.stop_server();
    let far = world.mount("cache");
    let told = status(&world, "cache");
    assert!(told["connection"]["answers"] == false && told["connection"]["offline_since"].is_string(), "{told}");
    assert_eq!(log(&world).matches("going on with the cache").count(), 1, "{}", log(&world));
    let mounts = world.command().arg("mounts").output().unwrap();
    let mounts = String::from_utf8_lossy(&mounts.stdout).into_owned();
    assert!(mounts.contains("the bucket has not answered since"), "{mounts}");

    let d = far.path.join("d");
    assert_eq!(
        (names(&far.path), names(&d)),
        (vec!["d".to_owned(), "far".to_owned()], ["a", "b", "c"].map(str::to_owned).to_vec())
    );
    assert_eq!(fs::read_to_string(d.join("a")).unwrap(), "a".repeat(100_000));
    fs::write(d.join("new"), "new").unwrap();
    fs::rename(d.join("b"), d.join("moved")).unwrap();
    fs::remove_file(d.join("c")).unwrap();
    fs::create_dir(d.join("made")).unwrap();
    fs::write(d.join("made/file"), "in it").unwrap();
    let (unread, synced) = (far.path.join("far/unread"), d.join("new"));
    let reader = thread::spawn(move || fs::read(unread));
    let error = fs::File::open(&synced).unwrap().sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    assert!(reader.join().unwrap().is_err(), "its bytes are nowhere");

    world.start_server();
    until_sent(&world, || {
        let keys = world.keys("sub/d/") + &world.keys("sub/d/made/");
        ["new", "moved", "made/file"].iter().all(|name| keys.contains(&format!("sub/d/{name}")))
            && !keys.contains("sub/d/c")
    });
    until("the bucket answers", || status(&world, "cache")["connection"]["answers"] == true);
    assert_eq!(fs::read(far.path.join("far/unread")).unwrap().len(), 3_000_000);
    assert_eq!(far.end(), Some(0));
    let far = world.mount("new-cache");
    let d = far.path.join("d");
    assert_eq!(names(&d), ["a", "made", "moved", "new"]);
    assert_eq!(fs::read_to_string(d.join("moved")).unwrap(), "b".repeat(100_000));
    assert_eq!(fs::read_to_string(d.join("made/file")).unwrap(), "in it");
    assert_eq!(far.end(), Some(0));
}

#[test]
fn what_a_killed_mount_left_is_sent_by_one_that_began_at_a_silent_bucket() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    filled(&world, &world.server.endpoint.clone());
    let mut far = world.mount("cache");
    assert_eq!(names(&far.path.join("d")), ["a", "b", "c"]);
    // It accepts connections, and answers nothing.
    world.server.signal(Signal::STOP);
    fs::write(far.path.join("d/late"), "late").unwrap();
    thread::sleep(Duration::from_secs(2));
    far.kill();
    let far = world.mount("cache");
    assert_eq!(fs::read_to_string(far.path.join("d/late")).unwrap(), "late");
    assert_eq!(fs::read_to_string(far.path.join("d/b")).unwrap(), "b".repeat(100_000));
    fs::write(far.path.join("d/later"), "later").unwrap();
    assert_eq!(status(&world, "cache")["connection"]["answers"], false);
    world.server.signal(Signal::CONT);
    until_sent(&world, || {
        let keys = world.keys("sub/d/");
        keys.contains("sub/d/later") && keys.contains("sub/d/late\n")
    });
    assert_eq!(far.end(), Some(0));
}

#[test]
fn a_new_cache_and_a_bucket_that_refuses_end_with_an_error() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    filled(&world, &proxy.endpoint);
    proxy.answer("503 SlowDown");
    let error = refused(mounting(&world, "other-cache", &proxy.endpoint));
    assert!(error.contains("503"), "{error}");
    let far = world.mount_at("cache", &proxy.endpoint);
    assert_eq!(fs::read_to_string(far.path.join("d/a")).unwrap(), "a".repeat(100_000));
    assert_eq!(status(&world, "cache")["connection"]["answers"], false, "a proxy without its store");
    assert_eq!(far.end(), Some(0));
    // Keys that were withdrawn are not hidden.
    for (answer, advice) in [("403 AccessDenied", "they need"), ("404 NoSuchBucket", "make it first")] {
        proxy.answer(answer);
        let error = refused(mounting(&world, "cache", &proxy.endpoint));
        assert!(error.contains(advice), "{error}");
    }
    proxy.answer("");

    // Who gives the keys is silent.
    let closed = format!("127.0.0.1:{}", server::ports::free_port());
    let without_keys = |cache| {
        let mut command = mounting(&world, cache, &proxy.endpoint);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("HOME", world.folder.path()).env("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{closed}"));
        command
    };
    let error = refused(without_keys("other-cache"));
    assert!(error.contains("no keys were found"), "{error}");
    let mut half = without_keys("cache");
    half.env("AWS_ACCESS_KEY_ID", "half");
    assert!(refused(half).contains("AWS_SECRET_ACCESS_KEY is not"));
    let child = without_keys("cache").stderr(Stdio::null()).spawn().unwrap();
    let far = Far { child, path: world.folder.path().join("mount") };
    until("it mounts", || far.is_mounted());
    assert_eq!(fs::read_to_string(far.path.join("d/c")).unwrap(), "c".repeat(100_000));
    let told = status(&world, "cache");
    assert!(told["connection"]["error"].as_str().unwrap().contains("no keys were found"), "{told}");
    assert_eq!(far.end(), Some(0));
}

/// Sends each request once.
struct Once {
    client: Client,
    runtime: Runtime,
}

impl Once {
    fn of(server: &Server) -> Once {
        Once { client: Client::new(Connection::new(Arc::new(server.target()))), runtime: Runtime::new().unwrap() }
    }

    fn put(&mut self, key: &str, body: &'static [u8]) {
        let payload = Payload::Whole(Bytes::from_static(body));
        let hash = PayloadHash::of(body);
        self.runtime.block_on(self.client.put("bucket", key, payload, hash, None)).unwrap();
    }

    fn head(&mut self, key: &str) -> Result<u64, ClientError> {
        self.runtime.block_on(self.client.head("bucket", key)).map(|found| found.size)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>, ClientError> {
        let hash = PayloadHash::of(b"");
        self.runtime.block_on(async {
            let (_, mut body) = self.client.get("bucket", key, hash).await?;
            let mut bytes = Vec::new();
            while let Some(more) = self.client.next_chunk(&mut body).await? {
                bytes.extend_from_slice(&more);
            }
            Ok(bytes)
        })
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<String>, ClientError> {
        let query = ListQuery { prefix, keys_max: 100, ..ListQuery::default() };
        let page = self.runtime.block_on(self.client.list("bucket", &query))?;
        Ok(page.entries.into_iter().map(|entry| entry.key).collect())
    }

    fn delete(&mut self, key: &str) -> Result<(), ClientError> {
        self.runtime.block_on(self.client.delete("bucket", key))
    }
}

/// 503, with a message that names the bucket.
fn is_not_known<T: std::fmt::Debug>(answer: Result<T, ClientError>) {
    let ClientError::Refused(refusal) = answer.unwrap_err() else { panic!("no answer") };
    assert_eq!((refusal.status, refusal.code.as_str()), (503, "ServiceUnavailable"), "{refusal:?}");
    assert!(refusal.message.contains("the bucket bucket at http://"), "{refusal:?}");
    assert!(refusal.message.contains("has not answered for"), "{refusal:?}");
}

#[test]
fn a_gateway_without_its_bucket_says_only_what_it_knows() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    let mut direct = Once::of(&world.server);
    for key in ["sub/known/a", "sub/known/b", "sub/other/c"] {
        direct.put(key, b"far");
    }
    let gateway = world.serve("cache", &proxy.endpoint, &[]);
    let mut client = Once::of(&gateway);
    assert_eq!(client.get("known/a").unwrap(), b"far");
    assert_eq!(client.list("").unwrap(), ["known/a", "known/b", "other/c"]);
    until("what was read is kept", || status(&world, "cache")["fetched_bytes"].as_u64().unwrap() > 0);
    drop(gateway);

    proxy.cut();
    let gateway = world.serve("cache", &proxy.endpoint, &[]);
    let mut client = Once::of(&gateway);
    assert_eq!((client.get("known/a").unwrap(), client.head("known/b").unwrap()), (b"far".to_vec(), 3));
    assert_eq!(client.list("known/").unwrap(), ["known/a", "known/b"]);
    // Its bytes are not here.
    is_not_known(client.get("other/c"));
    is_not_known(client.get("known/none"));
    is_not_known(client.get("nowhere/none"));
    is_not_known(client.list("nowhere/"));
    is_not_known(client.list("known/n"));
    is_not_known(client.delete("known/none"));
    assert_eq!(client.head("known/none").unwrap_err().status(), Some(503));
    let many = client.runtime.block_on(client.client.delete_many("bucket", &["known/b", "known/none"]));
    assert!(many.unwrap_err().to_string().contains("known/none was not deleted: ServiceUnavailable"));
    client.put("known/new", b"new");
    client.put("made/new", b"new");
    assert_eq!(client.get("known/new").unwrap(), b"new");
    assert_eq!(client.list("known/").unwrap(), ["known/a", "known/new"]);
    assert!(direct.head("sub/known/b").is_ok());

    proxy.mend();
    until("everything is sent by itself", || {
        direct.head("sub/made/new").is_ok() && direct.head("sub/known/b").is_err()
    });
    until("names are known again", || client.get("known/none").unwrap_err().status() == Some(404));
    until("and those at the top", || client.list("nowhere/").is_ok_and(|names| names.is_empty()));
    client.delete("known/none").unwrap();
    // A listing that counts still answers; then nothing is known.
    proxy.cut();
    until("an old listing counts", || client.get("known/none").unwrap_err().status() == Some(503));
    until("and that of the top", || client.list("nowhere/").is_err());
    is_not_known(client.list("nowhere/"));
    assert_eq!(client.get("known/a").unwrap(), b"far");
}

#[test]
fn a_listing_of_a_silent_bucket_ends_and_names_it() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    let mut direct = Once::of(&world.server);
    direct.put("sub/unlisted/a", b"far");
    direct.put("sub/b", b"far");
    let gateway = world.serve("cache", &proxy.endpoint, &[]);
    let mut client = Once::of(&gateway);
    assert_eq!(client.get("b").unwrap(), b"far");
    proxy.hold();
    let begun = Instant::now();
    is_not_known(client.list(""));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    proxy.let_go();
    until("it answers", || client.list("").is_ok_and(|names| names == ["b", "unlisted/a"]));
}
