//! Backups in a bucket of another server: made, continued, read back, pruned, kept apart, found damaged.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

#[path = "backup_s3/disk.rs"]
mod disk;
#[path = "backup_s3/upstream.rs"]
mod upstream;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const ACCESS_KEY: &str = "backup-test";
const SECRET_KEY: &str = "backup-test-secret";

fn margay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MARGAY_") || name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY).stdin(Stdio::null());
    command
}

/// Exit code, and what was said: stdout when it went well, else stderr.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = margay().args(arguments).output().unwrap();
    let said = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code(), String::from_utf8_lossy(said).into_owned())
}

/// A command that must end with this code; gives what it said.
fn ends(code: i32, arguments: &[&str]) -> String {
    let (ended, said) = run(arguments);
    assert_eq!(ended, Some(code), "{arguments:?}\n{said}");
    said
}

struct Server {
    child: Child,
    endpoint: String,
}

impl Server {
    fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    fn start_with(data: &Path, more: &[&str]) -> Server {
        let mut child = margay()
            .args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data"])
            .arg(data)
            .args(more)
            .env("MARGAY_ACCESS_KEY", ACCESS_KEY)
            .env("MARGAY_SECRET_KEY", SECRET_KEY)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let endpoint = loop {
            let line = lines.next().expect("the start screen ends early").unwrap();
            if line.trim_start().starts_with("S3 ") {
                break line.split_whitespace().nth(1).unwrap().to_owned();
            }
        };
        // Nobody reads the rest: it is short.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, endpoint }
    }

    fn client(&self, arguments: &[&str]) -> String {
        ends(0, &[&["client", "--endpoint", &self.endpoint], arguments].concat())
    }

    /// The keys of the bucket below a prefix.
    fn keys(&self, prefix: &str) -> Vec<String> {
        let listed = self.client(&["ls", "--recursive", "--json", &format!("s3://copies/{prefix}")]);
        let key = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["key"].as_str().unwrap().to_owned()
        };
        listed.lines().map(key).collect()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two servers in a folder: one whose objects are backed up, and the store.
struct World {
    folder: tempfile::TempDir,
    server: Server,
    store: Server,
}

const PLACE: &str = "s3://copies/of/a";

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let (server, store) = (Server::start(&folder.path().join("data")), Server::start(&folder.path().join("store")));
        server.client(&["mb", "s3://bucket"]);
        store.client(&["mb", "s3://copies"]);
        World { folder, server, store }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn put(&self, key: &str, bytes: usize, seed: usize) -> PathBuf {
        let path = self.folder.path().join(key.replace('/', "-"));
        let content: Vec<u8> = (0..bytes).map(|index| (index * 7 + seed + index / 251) as u8).collect();
        fs::write(&path, content).unwrap();
        self.server.client(&["put", path.to_str().unwrap(), &format!("s3://bucket/{key}")]);
        path
    }

    /// `margay backup PLACE ...` of the server's directory; gives what it said.
    fn backup(&self, code: i32, more: &[&str]) -> String {
        let data = self.path("data");
        let all = [&["backup", PLACE, "--endpoint", &self.store.endpoint, "--data", &data, "--json"], more].concat();
        ends(code, &all)
    }

    fn made(&self, more: &[&str]) -> Value {
        serde_json::from_str(&self.backup(0, more)).unwrap()
    }

    fn restore(&self, code: i32, to: &str, more: &[&str]) -> String {
        let to = self.path(to);
        ends(code, &[&["restore", PLACE, "--endpoint", &self.store.endpoint, "--data", &to], more].concat())
    }

    fn moments(&self) -> usize {
        ends(0, &["restore", PLACE, "--endpoint", &self.store.endpoint, "--list"]).lines().count()
    }

    /// Serves a restored directory and compares objects with files.
    fn compare(&self, data: &str, objects: &[(&str, &Path)]) {
        let made = self.path(data);
        if !Path::new(&made).join("encryption-keys").exists() {
            // Of a backup without key files; the root keys are given.
            ends(0, &["secrets", "forget", "encryption", "identity", "root", "--data", &made]);
        }
        let restored = Server::start(self.path(data).as_ref());
        for (key, file) in objects {
            let got = self.path("got");
            restored.client(&["get", &format!("s3://bucket/{key}"), &got]);
            assert!(fs::read(&got).unwrap() == fs::read(file).unwrap(), "{key}");
            fs::remove_file(got).unwrap();
        }
    }

    /// Writes other bytes over an object of the backup, as many of them.
    fn damage(&self, key: &str) {
        let path = self.path("damaged-piece");
        self.store.client(&["get", &format!("s3://copies/{key}"), &path]);
        let mut bytes = fs::read(&path).unwrap();
        // Past the header, which names the segment.
        bytes.iter_mut().skip(100).for_each(|byte| *byte ^= 0x5a);
        fs::write(&path, bytes).unwrap();
        self.store.client(&["put", &path, &format!("s3://copies/{key}")]);
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap()
}

#[test]
fn a_backup_in_a_bucket_goes_on_and_is_restored_whole_and_in_part() {
    let world = World::new();
    let sizes =
        [("a/empty", 0), ("a/small", 700), ("a/some", 90_000), ("b/large", 5_000_000), ("b/larger", 20_000_000)];
    let mut files: Vec<(&str, PathBuf)> = sizes.iter().map(|(key, size)| (*key, world.put(key, *size, 1))).collect();
    let first = world.made(&[]);
    assert!(number(&first, "copied_bytes") > 25_000_000 && number(&first, "verified_bytes") > 25_000_000, "{first}");
    files.push(("c/new", world.put("c/new", 300_000, 2)));
    let second = world.made(&["--with-keys"]);
    let copied = number(&second, "copied_bytes");
    assert!((300_000..3_000_000).contains(&copied), "{second}");
    assert!(number(&second, "verified_bytes") >= number(&first, "verified_bytes"), "{second}");
    world.server.client(&["rm", "s3://bucket/b/larger"]);
    let larger = files.remove(4);
    let third = world.made(&[]);
    assert_eq!(world.moments(), 3);

    let said = world.restore(0, "last", &[]);
    assert!(said.contains("5 files") && said.contains("0 findings"), "{said}");
    let all: Vec<(&str, &Path)> = files.iter().map(|(key, file)| (*key, file.as_path())).collect();
    world.compare("last", &all);
    let said = world.restore(
        0,
        "part",
        &["--moment", first["moment"].as_str().unwrap(), "--bucket", "bucket", "--prefix", "b/"],
    );
    assert!(said.contains("2 files"), "{said}");
    world.compare("part", &[("b/large", all[3].1), ("b/larger", &larger.1)]);

    let prune = |more: &[&str]| {
        let all = [&["backup", "prune", PLACE, "--endpoint", &world.store.endpoint, "--keep", "1"], more].concat();
        ends(0, &all)
    };
    assert!(prune(&["--dry-run"]).contains("would be removed"));
    assert_eq!(world.moments(), 3);
    assert!(prune(&[]).contains("removed"));
    assert_eq!(world.moments(), 1);
    let left = world.store.keys("of/a/moments/");
    assert!(
        left.iter().all(|key| key.contains(third["moment"].as_str().unwrap()) || key.ends_with("moments/.directory")),
        "{left:?}"
    );
    assert!(!left.is_empty() && !world.store.keys("of/a/").iter().any(|key| key.ends_with("/lock")));
    world.restore(0, "pruned", &[]);
    world.compare("pruned", &all);
    // At rest too, and with its own keys it is no secret what is in it: neither status nor log shows the store's.
    let World { server: mut gone, store, folder } = world;
    gone.kill();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    ends(0, &["backup", PLACE, "--endpoint", &store.endpoint, "--data", &data, "--keep", "1"]);
}

#[test]
fn a_store_behind_tls_is_known_by_its_authority() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let file = |name: &str| fixtures.join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (file("first.pem"), file("first.key.pem"));
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let store = Server::start_with(&store, &["--tls-certificate", &certificate, "--tls-key", &key]);
    assert!(store.endpoint.starts_with("https://"), "{}", store.endpoint);
    let world = World { server: Server::start(&folder.path().join("data")), store, folder };
    world.server.client(&["mb", "s3://bucket"]);
    let large = world.put("large", 9_000_000, 3);
    let (endpoint, data) = (world.store.endpoint.clone(), world.path("data"));
    ends(0, &["client", "--endpoint", &endpoint, "--ca", &certificate, "mb", "s3://copies"]);
    let (ended, said) = run(&["backup", PLACE, "--endpoint", &endpoint, "--data", &data]);
    assert!(ended != Some(0) && said.contains("certificate"), "{said}");
    let made = world.made(&["--ca", &certificate]);
    assert!(number(&made, "verified_bytes") >= 9_000_000, "{made}");
    world.restore(0, "restored", &["--ca", &certificate]);
    world.compare("restored", &[("large", &large)]);
}

#[test]
fn a_damaged_backup_is_told_and_mended() {
    let world = World::new();
    let file = world.put("a/file", 3_000_000, 1);
    world.made(&[]);
    let segments = world.store.keys("of/a/segments/");
    let largest = |keys: &[String]| {
        let size = |key: &String| key.rsplit_once('-').map_or(0, |(_, len)| u64::from_str_radix(len, 16).unwrap_or(0));
        keys.iter().max_by_key(|key| size(key)).unwrap().clone()
    };
    world.damage(&largest(&segments));
    let said = world.restore(4, "damaged", &[]);
    assert!(said.contains("does not fit"), "{said}");
    let again = world.made(&[]);
    assert!(number(&again, "copied_bytes") >= 3_000_000, "the damaged copy is made anew: {again}");
    world.restore(0, "mended", &[]);
    world.compare("mended", &[("a/file", &file)]);
    // A piece that is gone.
    world.store.client(&["rm", &format!("s3://copies/{}", largest(&world.store.keys("of/a/segments/")))]);
    world.restore(1, "gone", &[]);
    world.made(&[]);
    world.restore(0, "whole", &[]);
    world.compare("whole", &[("a/file", &file)]);
    // Rows.
    let moments = world.store.keys("of/a/moments/");
    let rows: Vec<&String> = moments.iter().filter(|key| key.contains("/rows/")).collect();
    world.damage(rows.last().unwrap());
    let said = world.restore(1, "rows", &[]);
    assert!(said.contains("rows are damaged"), "{said}");
}

#[test]
fn two_at_once_are_kept_apart_and_a_killed_one_leaves_nothing_that_is_shown() {
    let mut world = World::new();
    let file = world.put("a/file", 30_000_000, 1);
    world.made(&[]);
    let moments = world.moments();
    // The lock of another, as a killed one leaves it.
    let lock = world.path("lock-of-another");
    fs::write(&lock, "another").unwrap();
    world.store.client(&["put", &lock, "s3://copies/of/a/lock"]);
    let said = world.backup(1, &[]);
    assert!(said.contains("another backup to it"), "{said}");
    world.store.client(&["rm", "s3://copies/of/a/lock"]);

    // Killed while it writes: whatever it had done, the next one is whole.
    world.put("a/second", 60_000_000, 2);
    let data = world.path("data");
    let mut backup = margay()
        .args(["backup", PLACE, "--endpoint", &world.store.endpoint, "--data", &data])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let before = world.store.keys("of/a/segments/").len();
    while world.store.keys("of/a/segments/").len() == before && backup.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    world.server.kill();
    let done = backup.wait().unwrap().success();
    // One that was whole, and killed before it could say so, is shown.
    let shown = world.moments();
    assert!(shown == moments + 1 || shown == moments && !done, "{shown} after {moments}, done: {done}");
    world.server = Server::start(data.as_ref());
    if !done {
        world.store.client(&["rm", "s3://copies/of/a/lock"]);
    }
    world.made(&["--keep", "1"]);
    let unfinished = world.store.keys("of/a/moments/").into_iter().find(|key| key.contains("unfinished"));
    assert_eq!(unfinished, None);
    world.restore(0, "whole", &[]);
    world.compare("whole", &[("a/file", &file), ("a/second", world.path("a-second").as_ref())]);
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let world = World::new();
    world.put("a/file", 1000, 1);
    let data = world.path("data");
    let backup = |place: &str, endpoint: &str| run(&["backup", place, "--endpoint", endpoint, "--data", &data]);
    let refused = |place: &str, endpoint: &str, why: &str| {
        let (code, said) = backup(place, endpoint);
        assert!(code != Some(0) && said.contains(why) && !said.contains(SECRET_KEY), "{code:?} {said}");
    };
    refused("s3://none/x", &world.store.endpoint, "make it first");
    refused("s3://bucket/x", &world.server.endpoint, "this very server");
    refused("s3://copies/x", "http://127.0.0.1:1", "cannot be reached");
    refused("s3://", &world.store.endpoint, "names no bucket");
    refused(&world.path("directory"), &world.store.endpoint, "not to a directory");
    assert!(world.store.keys("").is_empty());
    let wrong = margay()
        .args(["backup", PLACE, "--endpoint", &world.store.endpoint, "--data", &data])
        .env("AWS_SECRET_ACCESS_KEY", "wrong")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("check AWS_ACCESS_KEY_ID"));
    assert!(ends(1, &["restore", PLACE, "--endpoint", &world.store.endpoint, "--list"]).contains("holds no backup"));
    assert!(!ends(0, &["status", "--data", &data, "--json"]).contains(SECRET_KEY));
}
