//! The binary from outside: what it refuses, what it says, how it stops, what survives.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

mod server;

use server::{Server, body, ends, margay, metric, run};

#[test]
fn what_was_stored_survives_a_stop_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let small = body(folder.path(), "small", 1000);
    let large = body(folder.path(), "large", 3 << 20);
    let server = Server::start(&data);
    assert!(server.screen.contains("fsync") && server.screen.contains("keys"), "{}", server.screen);
    server.client(&["mb", "s3://bucket"]);
    let calls = metric(&data, "margay_metadata_calls_total");
    server.client(&["put", small.to_str().unwrap(), "s3://bucket/a/small"]);
    assert!(metric(&data, "margay_metadata_calls_total") >= calls + 2, "a PUT reads and commits");
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));

    let server = Server::start(&data);
    server.client(&["put", large.to_str().unwrap(), "s3://bucket/a/large"]);
    server.signal(Signal::KILL);
    assert_eq!(server.code(), None);

    let server = Server::start(&data);
    for (key, file) in [("small", &small), ("large", &large)] {
        let copy = folder.path().join("copy");
        server.client(&["get", &format!("s3://bucket/a/{key}"), copy.to_str().unwrap()]);
        assert!(fs::read(&copy).unwrap() == fs::read(file).unwrap(), "{key}");
    }
    let shown = data.to_str().unwrap();
    let status: Value = serde_json::from_str(&ends(0, &["status", "--data", shown, "--json"])).unwrap();
    assert_eq!(status["health"], "ok");
    let usage: Value = serde_json::from_str(&ends(0, &["du", "--data", shown, "--json"])).unwrap();
    assert_eq!(usage["buckets"][0]["objects"], 2);
    assert_eq!(usage["buckets"][0]["bytes"], 1000 + (3 << 20));
    let live = metric(&data, "margay_segment_live_bytes");
    assert_eq!(live, 1000 + (3 << 20));
    assert!(metric(&data, "margay_segment_used_bytes") >= live);
    let checkpoints = metric(&data, "margay_checkpoint_seconds_bucket");
    assert!(checkpoints >= metric(&data, "margay_checkpoint_seconds_count"), "each is in one bucket at least");
    assert!(ends(0, &["scrub", "--data", shown]).contains(" 0 damaged"));
    ends(0, &["compact", "--data", shown]);
    // The server checks; a repair wants the directory for itself.
    assert!(ends(0, &["fsck", "--data", shown]).contains("0 findings"));
    let refused = ends(3, &["fsck", "--repair", "--data", shown]);
    assert!(refused.contains("stop it before --repair") && refused.trim().lines().count() == 1, "{refused}");
    server.signal(Signal::INT);
    assert_eq!(server.code(), Some(0));
    assert!(ends(0, &["fsck", "--data", shown]).contains("0 findings"));
    assert!(ends(3, &["status", "--data", shown]).contains("no server runs"));
    // Results of checks are there after a restart, also of one that ran without a server.
    let server = Server::start(&data);
    let status: Value = serde_json::from_str(&ends(0, &["status", "--data", shown, "--json"])).unwrap();
    let checks = &status["checks"];
    assert_eq!((&checks["scrub"]["damaged"], &checks["fsck"]["findings"]), (&0.into(), &0.into()), "{status:#}");
    assert!(checks["scrub"]["last_seconds"].as_i64() > Some(1_600_000_000), "{checks:#}");
    assert_eq!((metric(&data, "margay_scrub_complete"), metric(&data, "margay_fsck_findings")), (1, 0));
    drop(server);
}

#[test]
fn a_scrub_names_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    server.client(&["mb", "s3://bucket"]);
    let file = body(folder.path(), "file", 1 << 20);
    for key in ["deep/er/good", "deep/er/bad"] {
        server.client(&["put", file.to_str().unwrap(), &format!("s3://bucket/{key}")]);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    // The last object's bytes are the last of the pack.
    let pack = fs::read_dir(data.join("segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "pack"))
        .unwrap();
    let content = fs::read(&file).unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let last = bytes.windows(4096).rposition(|window| window == &content[content.len() - 4096..]).unwrap();
    bytes[last] ^= 1;
    fs::write(&pack, bytes).unwrap();

    let shown = data.to_str().unwrap();
    let output = run(&["scrub", "--data", shown]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("damaged: bucket/deep/er/bad: ") && text.contains(" 1 damaged"), "{text}");
}

#[test]
fn secrets_stay_in_a_private_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let keys = fs::read_to_string(data.join("keys")).unwrap();
    let secret = keys.lines().find_map(|line| line.strip_prefix("aws_secret_access_key = ")).unwrap();
    assert_eq!(secret.len(), 40);
    assert!(!server.screen.contains(secret), "the secret is shown although stdout is no terminal");
    assert!(server.screen.contains("data/keys"));
    for name in ["keys", "format", "lock", "control", "segments", "tree"] {
        let mode = fs::metadata(data.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is open to others: {mode:o}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    // The same keys after a restart.
    let server = Server::start(&data);
    assert_eq!(fs::read_to_string(data.join("keys")).unwrap(), keys);
    drop(server);
}

#[test]
fn a_second_server_a_taken_port_and_a_foreign_directory_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data);
    let shown = data.to_str().unwrap();
    let line = ends(3, &["serve", "--data", shown, "--address", "127.0.0.1:0", "--admin-address", "off"]);
    assert!(line.contains(&format!("(process {})", server.child.id())) && line.trim().lines().count() == 1, "{line}");
    drop(server);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = ends(3, &["serve", "--data", shown, "--address", &address]);
    assert!(line.contains(&address) && line.contains("--address") && line.trim().lines().count() == 1, "{line}");

    let foreign = folder.path().join("foreign");
    fs::create_dir_all(foreign.join("music")).unwrap();
    let line = ends(3, &["serve", "--data", foreign.to_str().unwrap(), "--address", "127.0.0.1:0"]);
    assert!(line.contains("\"music\"") && line.trim().lines().count() == 1, "{line}");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);

    let newer = folder.path().join("newer");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("format"), "margay data directory, format 99\n").unwrap();
    let line = ends(3, &["serve", "--data", newer.to_str().unwrap(), "--address", "127.0.0.1:0"]);
    assert!(line.contains("format 99") && line.contains("newer margay"), "{line}");
    ends(3, &["fsck", "--data", folder.path().join("absent").to_str().unwrap()]);
}

#[test]
fn wrong_settings_name_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("margay.toml");
    fs::write(&file, "address = \"127.0.0.1:1\"\n\n[limits]\nconections_max = 5\n").unwrap();
    let shown = file.to_str().unwrap();
    let line = ends(2, &["serve", "--config", shown]);
    assert!(line.contains("line 4") && line.contains("did you mean \"limits.connections_max\"?"), "{line}");
    fs::write(&file, "address = \"127.0.0.1:1\"\n").unwrap();
    let values: Value =
        serde_json::from_str(&ends(0, &["config", "--config", shown, "--region", "moon", "--json"])).unwrap();
    let row = |name: &str| values.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!(row("address")["source"], format!("file {shown}, line 1"));
    assert_eq!((row("region")["value"].as_str(), row("region")["source"].as_str()), (Some("moon"), Some("flag")));
    ends(2, &["serve", "--set", "nothing=1"]);
    ends(2, &["serve", "--metadata", "mysql"]);
    ends(2, &["serve", "--tls-key", "key.pem"]);
    // Refused before anything is made or bound.
    let data = folder.path().join("data");
    for (wrong, wish) in [("No_Bucket", "No_Bucket=/no/where"), ("ab", "ab/prefix=/no/where")] {
        let line = ends(2, &["serve", "--data", data.to_str().unwrap(), "--mount", wish]);
        assert!(
            line.contains(&format!("{wrong:?} is no name of a bucket")) && line.trim().lines().count() == 1,
            "{line}"
        );
    }
    assert!(!data.exists());
    ends(2, &["nonsense"]);
}

#[test]
fn tls_from_files_serves_the_small_client() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let file = |name: &str| fixtures.join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (file("first.pem"), file("first.key.pem"));
    let data = folder.path().join("data");
    let server = Server::start_with(&data, &["--tls-certificate", &certificate, "--tls-key", &key]);
    assert!(server.endpoint.starts_with("https://"), "{}", server.screen);
    server.client(&["--ca", &certificate, "mb", "s3://bucket"]);
    assert!(server.client(&["--ca", &certificate, "ls"]).contains("s3://bucket"));
    // The check of containers, with the own authority; one that is none of its makers; and the system's, by the variable that OpenSSL has.
    let health = |ca: &[&str]| {
        let mut command = server::margay();
        command.args(["health", "--endpoint", &server.endpoint]).args(ca);
        command
    };
    let code = |command: &mut std::process::Command| {
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(code(&mut health(&["--ca", &certificate])), (Some(0), String::new()));
    let (stranger, error) = code(&mut health(&["--ca", &file("second.pem")]));
    assert!(stranger == Some(1) && error.contains("not healthy"), "{stranger:?} {error}");
    assert_eq!(code(health(&[]).env("SSL_CERT_FILE", &certificate)), (Some(0), String::new()));
    let (none, error) = code(&mut health(&["--ca", "/absent.pem"]));
    assert!(none == Some(2) && error.contains("/absent.pem") && error.trim().lines().count() == 1, "{none:?} {error}");
}

#[test]
fn a_backup_of_a_running_server_is_restored_to_a_new_directory() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy, again) = (folder.path().join("data"), folder.path().join("copy"), folder.path().join("again"));
    let file = body(folder.path(), "file", 300_000);
    let server = Server::start(&data);
    server.client(&["mb", "s3://bucket"]);
    server.client(&["put", file.to_str().unwrap(), "s3://bucket/a/file"]);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (data_path, copy_path, again_path) = (path(&data), path(&copy), path(&again));
    let first = ends(0, &["backup", &copy_path, "--data", &data_path, "--with-keys", "--json"]);
    let first: Value = serde_json::from_str(&first).unwrap();
    assert!(first["verified_bytes"].as_u64().unwrap() >= 300_000, "{first}");
    server.client(&["rm", "s3://bucket/a/file"]);
    let error = ends(1, &["backup", &path(&data.join("inside")), "--data", &data_path]);
    assert!(error.contains("inside the data directory"), "{error}");
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    // At rest, to the same backup.
    ends(0, &["backup", &copy_path, "--data", &data_path]);
    let moments = ends(0, &["restore", &copy_path, "--list"]);
    assert_eq!(moments.lines().count(), 2, "{moments}");
    let moment = first["moment"].as_str().unwrap();
    assert!(ends(1, &["restore", &copy_path, "--moment", "no", "--data", &again_path]).contains(moment));
    let done = ends(0, &["restore", &copy_path, "--moment", moment, "--data", &again_path]);
    assert!(done.contains("1 files") && done.contains("0 findings"), "{done}");
    ends(3, &["restore", &copy_path, "--data", &again_path]);
    let server = Server::start(&again);
    let got = folder.path().join("got");
    server.client(&["get", "s3://bucket/a/file", got.to_str().unwrap()]);
    assert!(fs::read(&got).unwrap() == fs::read(&file).unwrap());
}

#[test]
fn a_backup_is_pruned_and_one_prefix_of_it_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, copy, part) = (path("data"), path("copy"), path("part"));
    let file = body(folder.path(), "file", 300_000);
    let server = Server::start(data.as_ref());
    for bucket in ["one", "two"] {
        server.client(&["mb", &format!("s3://{bucket}")]);
        for key in ["a/file", "b/file"] {
            server.client(&["put", file.to_str().unwrap(), &format!("s3://{bucket}/{key}")]);
        }
        ends(0, &["backup", &copy, "--data", &data]);
    }
    server.client(&["rm", "s3://one/a/file"]);
    let third: Value =
        serde_json::from_str(&ends(0, &["backup", &copy, "--data", &data, "--keep", "2", "--json"])).unwrap();
    assert_eq!((third["pruned"]["kept"].as_u64(), third["pruned"]["moments"].as_array().unwrap().len()), (Some(2), 1));
    ends(2, &["backup", "prune", &copy, "--keep", "0"]);
    ends(2, &["backup", "prune", &copy]);
    ends(1, &["backup", "prune", &path("none"), "--keep", "1"]);
    assert!(ends(0, &["backup", "prune", &copy, "--keep", "1", "--dry-run"]).contains("would be removed"));
    assert_eq!(ends(0, &["restore", &copy, "--list"]).lines().count(), 2);
    let restore = |code: i32, more: &[&str]| ends(code, &[&["restore", &copy, "--data", &part], more].concat());
    assert!(restore(3, &["--bucket", "none"]).contains("no bucket none"));
    assert!(restore(3, &["--bucket", "one", "--prefix", "c"]).contains("begins with"));
    restore(2, &["--prefix", "c"]);
    let done = restore(0, &["--bucket", "two", "--prefix", "a/"]);
    assert!(done.contains("1 buckets, 1 files") && done.contains("0 findings"), "{done}");
    ends(0, &["backup", "prune", &copy, "--keep", "1"]);
    assert_eq!(ends(0, &["restore", &copy, "--list"]).trim(), third["moment"].as_str().unwrap());
    let restored = Server::start(part.as_ref());
    let got = path("got");
    restored.client(&["get", "s3://two/a/file", &got]);
    assert!(fs::read(&got).unwrap() == fs::read(&file).unwrap());
    // The restored directory numbers its segments above those of the backup, so it may join it.
    restored.client(&["put", file.to_str().unwrap(), "s3://two/new"]);
    ends(0, &["backup", &copy, "--data", &part]);
    ends(0, &["backup", &copy, "--data", &data]);
}

#[test]
fn a_dump_of_a_running_server_is_loaded_and_gives_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, dump, loaded) = (path("data"), path("dump"), path("loaded"));
    let file = body(folder.path(), "file", 3_000_000);
    let small = body(folder.path(), "small", 3_000);
    let server = Server::start(data.as_ref());
    server.client(&["mb", "s3://bucket"]);
    for (from, key) in [(&file, "a/file"), (&small, "a/small"), (&file, "gone")] {
        server.client(&["put", from.to_str().unwrap(), &format!("s3://bucket/{key}")]);
    }
    server.client(&["rm", "s3://bucket/gone"]);
    let piped = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    // To standard output, and to a file; by the server, and at rest. Upkeep removes what is left of `gone` at any moment.
    let rows_now = || piped(&["dump", "--rows", "--data", &data]);
    let (running, rows_running) = loop {
        let (before, dump) = (rows_now(), piped(&["dump", "--data", &data, "--with-keys"]));
        if rows_now() == before {
            break (dump, before);
        }
    };
    assert!(running.len() > 3_000_000);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    let rows = rows_now();
    let done: Value =
        serde_json::from_str(&ends(0, &["dump", "--data", &data, "--with-keys", "--out", &dump, "--json"])).unwrap();
    assert_eq!(done["bytes"].as_u64().unwrap(), fs::metadata(&dump).unwrap().len());
    ends(3, &["dump", "--data", &data, "--out", &dump]);
    for (stream, rows) in [(running, rows_running), (fs::read(&dump).unwrap(), rows.clone())] {
        let from = path("stream");
        fs::write(&from, &stream).unwrap();
        let output = margay().args(["load", "--data", &loaded]).stdin(fs::File::open(&from).unwrap()).output().unwrap();
        let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(0), "{out} {error}");
        assert!(out.contains("1 buckets, 2 files") && out.contains("0 findings"), "{out}");
        assert!(piped(&["dump", "--rows", "--data", &loaded]) == rows, "other rows");
        assert!(fs::read(Path::new(&loaded).join("keys")).unwrap() == fs::read(Path::new(&data).join("keys")).unwrap());
        ends(3, &["load", &from, "--data", &loaded]);
        let server = Server::start(loaded.as_ref());
        let got = path("got");
        for (right, key) in [(&file, "a/file"), (&small, "a/small")] {
            server.client(&["get", &format!("s3://bucket/{key}"), &got]);
            assert!(fs::read(&got).unwrap() == fs::read(right).unwrap());
        }
        server.signal(Signal::TERM);
        assert_eq!(server.code(), Some(0));
        fs::remove_dir_all(&loaded).unwrap();
        fs::write(&from, &stream[..stream.len() - 1]).unwrap();
        assert!(ends(1, &["load", &from, "--data", &loaded]).contains("cut short"));
        assert!(!Path::new(&loaded).exists());
        fs::remove_dir_all(path("loaded.restoring")).unwrap();
    }
    fs::write(path("rows"), rows).unwrap();
    assert!(ends(3, &["load", &path("rows"), "--data", &loaded]).contains("rows only"));
    assert!(ends(1, &["load", &path("small"), "--data", &loaded]).contains("no dump"));
}
