//! Administration of a gateway to a far bucket and of a far mount, from elsewhere and beside them.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that it does not expect"
)]

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use server::far::World;
use server::{Server, ends, margay};

/// A command that asks a gateway, as from another machine.
fn command(gateway: &Server, words: &[&str]) -> Command {
    let (mut command, keys) = (margay(), gateway.keys());
    command.args(words).env("MARGAY_ENDPOINT", &gateway.endpoint);
    command.env("MARGAY_ACCESS_KEY", keys.access_key).env("MARGAY_SECRET_KEY", keys.secret_key);
    command.current_dir("/");
    command
}

/// Its stdout, or stderr if it failed, as it must with this code.
fn said(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{command:?}\n{out}\n{error}");
    if code == 0 { out } else { error }
}

/// Refused with one line that names where it is done.
fn refused(command: &mut Command) {
    let error = said(command, 3);
    assert!(error.contains("s3://bucket/sub") && error.trim().lines().count() == 1, "{error}");
}

#[test]
fn a_gateway_is_watched_from_elsewhere_and_refuses_the_rest_by_name() {
    let world = World::new();
    let audit = world.folder.path().join("audit.log");
    let setting = format!("audit_log={}", audit.display());
    let words = ["--set", &setting, "--set", "limits.drain_seconds_max=600"];
    let gateway = world.serve("cache", &world.server.endpoint, &words);
    let of = |words: &[&str]| command(&gateway, words);
    let status: Value = serde_json::from_str(&said(&mut of(&["status", "--json"]), 0)).unwrap();
    assert_eq!((&status["far"], &status["health"]), (&Value::Bool(true), &Value::from("ok")), "{status:#}");
    assert_eq!(said(&mut of(&["mounts", "--json"]), 0).trim(), "[]");
    said(&mut of(&["health", "--endpoint", &gateway.endpoint]), 0);
    let mut stranger = of(&["status"]);
    said(stranger.env("MARGAY_SECRET_KEY", "wrong".repeat(8)), 3);

    let mut trace = of(&["trace", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(trace.stdout.take().unwrap()).lines();
    let put = || {
        let file = server::body(world.folder.path(), "file", 700);
        gateway.client(&["put", file.to_str().unwrap(), "s3://bucket/key"]);
    };
    // It begins to watch a moment after it was started.
    let begun = Instant::now();
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut found = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            // A request that began before anybody watched has no names.
            found.find(|line| line["operation"] == "PutObject" && line["bucket"] != "").unwrap()
        });
        while !watcher.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no request is shown");
            put();
            std::thread::sleep(Duration::from_millis(200));
        }
        watcher.join().unwrap()
    });
    assert_eq!((&seen["bucket"], &seen["key"], &seen["status"]), (&"bucket".into(), &"key".into(), &200.into()));
    let top: Value =
        serde_json::from_str(&said(&mut of(&["top", "--count", "1", "--seconds", "1", "--json"]), 0)).unwrap();
    assert_eq!(top["health"], "ok", "{top:#}");
    assert!(top["total_bytes"].as_u64() > Some(0) && top["connections"].as_u64() > Some(0), "{top:#}");

    for words in [
        &["scrub"][..],
        &["fsck"],
        &["compact"],
        &["du"],
        &["bucket", "ls"],
        &["bucket", "quota", "bucket", "--bytes", "1"],
        &["user", "list"],
        &["object", "where", "bucket/key"],
    ] {
        refused(&mut of(words));
    }
    let audited = std::fs::read_to_string(&audit).unwrap();
    assert!(audited.contains("admin:Trace") && audited.contains("admin:Scrub"), "{audited}");
    // Who watches does not hold up the end, as a running request would for ten minutes.
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.code(), Some(0));
    trace.wait().unwrap();
}

#[test]
fn a_cache_answers_beside_its_process_what_it_can() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let mut far = world.mount("cache");
    let cache = world.folder.path().join("cache");
    let of = |words: &[&str]| {
        let mut command = world.command();
        command.args(words).arg("--data").arg(&cache);
        command
    };
    let top = said(&mut of(&["top", "--count", "1", "--seconds", "1", "--json"]), 0);
    assert_eq!(serde_json::from_str::<Value>(&top).unwrap()["health"], "ok");
    assert!(said(&mut of(&["trace"]), 3).contains("without an S3 door"));
    assert!(said(&mut of(&["health"]), 0).is_empty());
    refused(&mut of(&["scrub"]));
    refused(&mut of(&["fsck"]));
    refused(&mut of(&["user", "list"]));
    ends(0, &["unmount", far.path.to_str().unwrap()]);
    assert!(cache.exists());
    far.child.wait().unwrap();
}
