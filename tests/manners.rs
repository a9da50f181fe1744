//! The binary as its users meet it: what it prints where, what it ends with, and what it leaves when it refuses.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use fuse::must_not_mount;
use server::{Server, body, ends, margay, run};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn output_that_nobody_takes_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    server.client(&["mb", "s3://bucket"]);
    let file = body(folder.path(), "file", 10);
    server.client(&["put", text(&file), "s3://bucket/file"]);
    let (data, endpoint) = (text(&data), server.endpoint.as_str());
    let commands: [&[&str]; 8] = [
        &["config"],
        &["--help"],
        &["status", "--data", data],
        &["bucket", "ls", "--data", data],
        &["bucket", "inventory", "bucket", "--data", data],
        &["client", "ls", "s3://bucket", "--data", data, "--endpoint", endpoint],
        &["client", "get", "s3://bucket/file", "-", "--data", data, "--endpoint", endpoint],
        &["bench", "rivals"],
    ];
    for words in commands {
        let closed = {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            writer
        };
        let ended = margay().args(words).stdout(closed).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), told.as_str()), (Some(0), ""), "{words:?}: the reader had enough");

        let full = || File::options().write(true).open("/dev/full").unwrap();
        let ended = margay().args(words).stdout(full()).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.starts_with("margay: ") && told.trim().lines().count() == 1, "{words:?}: {told}");
        // Nor is an error that cannot be told.
        let ended = margay().args(["status", "--data", "/nowhere"]).stderr(full()).output().unwrap();
        assert_eq!(ended.status.code(), Some(3));
    }
    // A server whose screen and log cannot be written serves.
    let other = folder.path().join("other");
    let mut quiet = margay();
    quiet.args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--log-level", "debug", "--data"]);
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut quiet = quiet.arg(&other).stdout(full()).stderr(full()).spawn().unwrap();
    while run(&["status", "--data", text(&other)]).status.code() != Some(0) {
        assert!(quiet.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    kill_process(Pid::from_raw(quiet.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(quiet.wait().unwrap().code(), Some(0));
}

#[test]
fn a_refused_start_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let broken = folder.path().join("broken.pem");
    fs::write(&broken, "{").unwrap();
    let (broken, absent) = (text(&broken).to_owned(), text(&folder.path().join("absent.pem")).to_owned());
    let (authorities, keys) = (format!("notify_ca={broken}"), format!("oidc.keys={broken}"));
    let oidc = ["--set", "oidc.issuer=https://i", "--set", "oidc.audience=a", "--set", &keys];
    let refusals: [(i32, &[&str], &str); 8] = [
        (
            2,
            &["--address", "127.0.0.1:0", "--set", &authorities, "--set", "notify=x=https://127.0.0.1:9/"],
            "notify_ca",
        ),
        (2, &[&["--address", "127.0.0.1:0"], &oidc[..]].concat(), "oidc.keys"),
        (3, &["--address", &taken], "--address"),
        (3, &["--address", "127.0.0.1:0", "--admin-address", &taken], "--admin-address"),
        (2, &["--address", "127.0.0.1:0", "--tls-certificate", &broken, "--tls-key", &broken], &broken),
        (2, &["--address", "127.0.0.1:0", "--tls-certificate", &absent, "--tls-key", &broken], &absent),
        (2, &["--address", "127.0.0.1:0", "--log-level", "inof"], "\"inof\" is no level; write error, warn, info"),
        (2, &["--address", "127.0.0.1:0", "--bucket", "No_Bucket"], "\"No_Bucket\" is no name of a bucket"),
    ];
    for (code, words, named) in refusals {
        let mut all = vec!["serve", "--data", text(&data)];
        all.extend(words);
        let line = ends(code, &all);
        assert!(line.contains(named) && line.trim().lines().count() == 1, "{line}");
        assert!(!data.exists(), "{words:?} left {:?}", names(&data));
    }
    let mut half = margay();
    half.args(["serve", "--data", text(&data), "--address", "127.0.0.1:0"]).env("MARGAY_ACCESS_KEY", "me");
    assert_eq!(half.output().unwrap().status.code(), Some(2));
    assert!(!data.exists());
    // Nor does a mount of a far bucket begin again and again.
    let cache = folder.path().join("cache");
    let far = [
        "mount",
        "s3://bucket",
        "mnt",
        "--foreground",
        "--endpoint",
        "https://127.0.0.1:9",
        "--ca",
        &broken,
        "--cache",
    ];
    let far = margay()
        .args(far)
        .arg(&cache)
        .env("AWS_ACCESS_KEY_ID", "me")
        .env("AWS_SECRET_ACCESS_KEY", "a-secret")
        .output()
        .unwrap();
    assert_eq!(far.status.code(), Some(2), "{}", String::from_utf8_lossy(&far.stderr));
    // Who starts a server twice is told that, not that an address is taken.
    let server = Server::start(&data);
    let address = server.endpoint.strip_prefix("http://").unwrap();
    let line = ends(3, &["serve", "--data", text(&data), "--address", address, "--admin-address", "off"]);
    assert!(line.contains(&format!("in use by another margay (process {})", server.child.id())), "{line}");
}

#[test]
fn keys_cannot_write_on_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    server.client(&["mb", "s3://bucket"]);
    let file = body(folder.path(), "file", 3);
    for key in ["a\x1b]0;owned\x07", "b\nfolder/c\x7f", "plain\\key"] {
        server.client(&["put", text(&file), &format!("s3://bucket/{key}")]);
    }
    let level = server.client(&["ls", "s3://bucket"]);
    assert!(level.contains("s3://bucket/a\\x1b]0;owned\\x07\n"), "{level:?}");
    assert!(level.contains("s3://bucket/b\\nfolder/\n") && level.contains("s3://bucket/plain\\key\n"), "{level:?}");
    assert_eq!(level.lines().count(), 3, "one line for each: {level:?}");
    let all = server.client(&["ls", "-r", "s3://bucket"]);
    assert!(all.contains("s3://bucket/b\\nfolder/c\\x7f\n"), "{all:?}");
    let inventory = ends(0, &["bucket", "inventory", "bucket", "--data", text(&data)]);
    assert!(inventory.contains("  a\\x1b]0;owned\\x07\n") && inventory.lines().count() == 3, "{inventory:?}");
    for shown in [&level, &all, &inventory] {
        assert!(!shown.contains(|character: char| character.is_control() && character != '\n'), "{shown:?}");
    }
    // Programs get them as they are.
    let json = server.client(&["ls", "-r", "--json", "s3://bucket"]);
    let keys: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(keys[1]["key"], "b\nfolder/c\x7f");
    assert!(ends(0, &["bucket", "inventory", "bucket", "--csv", "--data", text(&data)]).contains("a\x1b]0;owned\x07"));
}

#[test]
fn a_directory_is_no_object_and_its_line_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    server.client(&["mb", "s3://bucket"]);
    let mut words = vec!["client", "--data", text(&data), "--endpoint", &server.endpoint, "put"];
    words.extend([text(folder.path()), "s3://bucket/folder"]);
    let line = ends(2, &words);
    assert!(line.contains("is no file") && !line.contains("connection"), "{line}");
    words[6] = "/nowhere/at/all";
    assert!(ends(1, &words).contains("/nowhere/at/all: No such file"));
}

#[test]
fn an_interrupted_get_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("copy"), "before").unwrap();
    fs::write(at("copy.partial"), "somebody else's").unwrap();
    // A server that stops in the middle of an object.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stalled = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\netag: \"e\"\r\n\r\nthe beginning").unwrap();
        stream
    });
    let mut get = margay();
    get.args(["client", "get", "s3://bucket/key", text(&at("copy")), "--endpoint", &format!("http://{address}")]);
    get.env("MARGAY_ACCESS_KEY", "me").env("MARGAY_SECRET_KEY", "a-long-secret").stderr(Stdio::null());
    let mut get = get.spawn().unwrap();
    // It has begun, in a file of its own, or over one that is there.
    let has_begun = || {
        names(folder.path()).len() > 2
            || fs::read_to_string(at("copy.partial")).unwrap_or_default() != "somebody else's"
    };
    while !has_begun() {
        assert!(get.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill_process(Pid::from_raw(get.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(get.wait().unwrap().code(), Some(130));
    drop(stalled.join().unwrap());
    assert_eq!(names(folder.path()), ["copy", "copy.partial"]);
    assert_eq!(fs::read_to_string(at("copy")).unwrap(), "before");
    assert_eq!(fs::read_to_string(at("copy.partial")).unwrap(), "somebody else's");
}

#[test]
fn where_no_server_runs_every_command_ends_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(Server::start(&data));
    let at = folder.path().join("mnt");
    let commands: [&[&str]; 7] = [
        &["status"],
        &["clock"],
        &["clock", "confirm"],
        &["disk", "ls"],
        &["disk", "add", "/d1"],
        &["mounts"],
        &["mount", "bucket", text(&at)],
    ];
    for words in commands {
        let mut all = words.to_vec();
        all.extend(["--data", text(&data)]);
        let line = ends(3, &all);
        assert!(line.contains("no server runs on") && line.contains("margay serve"), "{words:?}: {line}");
    }
    let free = server::ports::free_port();
    ends(3, &["client", "--data", text(&data), "--endpoint", &format!("http://127.0.0.1:{free}"), "ls"]);
}

#[test]
fn buckets_of_the_settings_are_made_and_listed_with_their_date_and_quota() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let start = || {
        let mut command = margay();
        command.args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data"]).arg(&data);
        command.env("MARGAY_BUCKETS", "photos,logs").stderr(Stdio::null());
        Server::started(command, &data)
    };
    let server = start();
    let listed = server.client(&["ls"]);
    assert!(listed.contains("s3://logs") && listed.contains("s3://photos"), "{listed}");
    server.client(&["rb", "s3://logs"]);
    let file = body(folder.path(), "file", 3);
    server.client(&["put", text(&file), "s3://photos/file"]);
    drop(server);
    let server = start();
    assert!(server.client(&["ls"]).contains("s3://logs"), "a bucket that is gone is made again");
    assert!(server.client(&["ls", "s3://photos"]).contains("s3://photos/file"), "one that is there stays");

    let rows = ends(0, &["bucket", "ls", "--data", text(&data)]);
    let year = server.client(&["ls"]).trim().get(..10).unwrap().to_owned();
    assert!(rows.starts_with("CREATED") && rows.lines().count() == 3, "{rows}");
    assert!(rows.lines().skip(1).all(|row| row.starts_with(&year)), "{rows}");
    let line = ends(2, &["bucket", "quota", "photos", "--bytes", "1XB", "--data", text(&data)]);
    assert!(["--bytes", "1XB", "GiB", "MB", "none"].iter().all(|word| line.contains(word)), "{line}");
}

/// The status line and body of a plain GET.
fn get(address: &str, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{more}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn probes_of_minio_are_answered_on_both_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let address = server.endpoint.strip_prefix("http://").unwrap();
    let admin = server.screen.split_whitespace().find(|word| word.ends_with("/health")).unwrap();
    let admin = admin.strip_prefix("http://").unwrap().strip_suffix("/health").unwrap();
    for address in [address, admin] {
        for path in ["live", "ready", "cluster", "cluster/read"] {
            let answer = get(address, &format!("/minio/health/{path}"), "");
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.trim_end().ends_with("\r\n\r\nok"),
                "{path}: {answer}"
            );
        }
    }
    // A bucket of that name is served to those who sign.
    server.client(&["mb", "s3://minio"]);
    let file = body(folder.path(), "file", 3);
    server.client(&["put", text(&file), "s3://minio/health/live"]);
    let copy = folder.path().join("copy");
    server.client(&["get", "s3://minio/health/live", text(&copy)]);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&file).unwrap());
    assert!(get(address, "/minio/health/other", "").starts_with("HTTP/1.1 403 "));
}

#[test]
fn mounts_name_what_is_missing_and_who_is_in_the_way() {
    if must_not_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (data, first, second) = (root.join("data"), root.join("first"), root.join("second"));
    let mut command = margay();
    command.args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--bucket", "photos", "--data"]);
    let log = root.join("log");
    command.arg(&data).args(["--set", "limits.drain_seconds_max=2"]).stderr(File::create(&log).unwrap());
    let server = Server::started(command, &data);
    let mount = |code: i32, words: &[&str]| {
        let mut all = vec!["mount"];
        all.extend(words);
        all.extend(["--data", text(&data)]);
        ends(code, &all)
    };
    // A misspelt bucket is not made.
    let line = mount(1, &["fotos", text(&first)]);
    assert!(line.contains("there is no bucket fotos") && line.contains("--create"), "{line}");
    assert!(!server.client(&["ls"]).contains("fotos"));
    let line = mount(1, &["photos/nowhere", text(&first)]);
    assert!(line.contains("there is no directory photos/nowhere"), "{line}");
    mount(0, &["photos", text(&first)]);
    let line = mount(1, &["photos/nowhere", text(&second)]);
    assert!(line.contains("there is no directory photos/nowhere"), "{line}");
    mount(0, &["new-one", text(&second), "--create"]);
    assert!(server.client(&["ls"]).contains("s3://new-one"));
    ends(0, &["unmount", text(&second), "--data", text(&data)]);
    mount(0, &["newer", text(&second), "-o", "create,ro"]);
    ends(0, &["unmount", text(&second), "--data", text(&data)]);

    // Who is in it is named, by the command and by a server that stops.
    let sleep = || Command::new("sleep").arg("1000").current_dir(&first).stdin(Stdio::null()).spawn().unwrap();
    let mut user = sleep();
    let named = format!("sleep (process {}, {})", user.id(), first.display());
    let line = ends(1, &["unmount", text(&first), "--wait", "0", "--data", text(&data)]);
    assert!(line.contains("still in use") && line.contains(&named), "{line}");
    user.kill().unwrap();
    user.wait().unwrap();
    mount(0, &["photos", text(&first)]);
    let mut user = sleep();
    let named = format!("sleep (process {}, {})", user.id(), first.display());
    server.signal(Signal::INT);
    assert_eq!(server.code(), Some(0));
    user.kill().unwrap();
    user.wait().unwrap();
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("it is in use: waiting") && log.contains(&named), "{log}");
}

#[test]
fn a_log_of_requests_that_cannot_be_written_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (data, absent) = (folder.path().join("data"), folder.path().join("absent/log"));
    for setting in ["audit_log", "access_log"] {
        let wish = format!("{setting}={}", absent.display());
        let said = ends(2, &["serve", "--data", text(&data), "--address", "127.0.0.1:0", "--set", &wish]);
        assert!(said.contains(setting) && said.contains("cannot be written"), "{said}");
        assert!(!data.exists(), "nothing was made");
    }
}

#[test]
fn a_plain_server_that_is_asked_by_https_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let endpoint = server.endpoint.replace("http://", "https://");
    let keys = ["--data", text(&server.data), "ls"];
    assert!(ends(3, &[&["client", "--endpoint", &endpoint], &keys[..]].concat()).contains("does not speak TLS"));
    assert!(ends(1, &["health", "--endpoint", &endpoint]).contains("does not speak TLS"));
}
