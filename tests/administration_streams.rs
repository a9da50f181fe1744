//! Answers without an end that a signed request asked for: they end with its key, and with its right.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that it does not expect"
)]

#[path = "server/mod.rs"]
mod server;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use server::{Server, ends, margay};

/// A command as it is given on another machine, with the keys of a user.
fn command(server: &Server, key: &Value, words: &[&str]) -> Command {
    let mut command = margay();
    command.args(words).current_dir("/").env("MARGAY_ENDPOINT", &server.endpoint);
    command.env("MARGAY_ACCESS_KEY", key["access_key"].as_str().unwrap());
    command.env("MARGAY_SECRET_KEY", key["secret_key"].as_str().unwrap());
    command
}

/// Sums every second, of which one was read.
fn watching(server: &Server, key: &Value) -> Child {
    let mut top = command(server, key, &["top", "--seconds", "1", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("health"));
    // The pipe stays open and is read, so that nothing but the server ends it.
    std::thread::spawn(move || lines.for_each(drop));
    top
}

#[test]
fn a_stream_ends_with_its_key_and_with_its_right() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(&folder.path().join("data"), &[]);
    let data = server.data.to_str().unwrap();
    let file = folder.path().join("policy.json");
    let statement = json!({ "Effect": "Allow", "Action": ["admin:Top", "admin:Status"], "Resource": "*" });
    fs::write(&file, json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string()).unwrap();
    ends(0, &["policy", "put", "watch", "--file", file.to_str().unwrap(), "--data", data]);
    for (user, taken) in
        [("zoe", &["user", "disable", "zoe"][..]), ("ann", &["policy", "detach", "watch", "--user", "ann"])]
    {
        let key: Value = serde_json::from_str(&ends(0, &["user", "create", user, "--json", "--data", data])).unwrap();
        ends(0, &["policy", "attach", "watch", "--user", user, "--data", data]);
        let mut top = watching(&server, &key);
        ends(0, &[taken, &["--data", data]].concat());
        // It would go on for ever.
        assert_eq!(top.wait().unwrap().code(), Some(1));
    }
    let listed: Value = serde_json::from_str(&ends(0, &["user", "list", "--json", "--data", data])).unwrap();
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|user| user["user"].as_str().unwrap()).collect();
    assert_eq!(names, ["ann", "zoe"], "by name, not by the time they were made");
}
