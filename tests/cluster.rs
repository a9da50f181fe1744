//! Two servers of one volume: rows in PostgreSQL, each with a store of its own, real requests at both and real kernels.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

#[path = "server/fuse.rs"]
mod fuse;
#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[path = "cluster/world.rs"]
mod world;

use server::{Server, margay};
use world::{Door, World, body, wait_until};

/// The server's list of the bucket.
fn listed(door: &Door) -> String {
    door.server.client(&["ls", "--recursive", "s3://bucket"])
}

#[test]
fn what_one_server_takes_the_other_one_gives() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    for (number, (to, from)) in [(&one, &two), (&two, &one)].into_iter().enumerate() {
        let (small, large) = (format!("small{number}"), format!("d/large{number}"));
        world.put(to, &small, b"a few bytes");
        world.put(to, &large, &body(number as u8));
        assert_eq!(world.get(from, &small).unwrap().unwrap(), "a few bytes");
        assert_eq!(world.get(from, &large).unwrap().unwrap(), body(number as u8));
        // At once, and with what was read before.
        world.put(to, &large, &body(7));
        assert_eq!(world.get(from, &large).unwrap().unwrap(), body(7));
        assert_eq!(world.get(to, &large).unwrap().unwrap(), body(7));
    }
    let keys = listed(&one);
    assert!(["d/large0", "d/large1", "small0", "small1"].iter().all(|key| keys.contains(key)), "{keys}");
    assert_eq!(listed(&one), listed(&two));
    world.runtime.block_on(one.upstream.delete("d/large1")).unwrap();
    assert_eq!(world.get(&two, "d/large1").unwrap(), None);
}

#[test]
fn a_killed_server_takes_its_bytes_away_and_brings_them_back() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    world.put(&one, "of-one", &body(1));
    world.put(&two, "of-two", &body(2));
    assert_eq!(world.get(&two, "of-one").unwrap().unwrap(), body(1));
    one.server.signal(Signal::KILL);
    assert_eq!(one.server.code(), None);
    // What the other one has, and what it takes, is there.
    assert_eq!(world.get(&two, "of-two").unwrap().unwrap(), body(2));
    world.put(&two, "after", &body(3));
    assert_eq!(world.get(&two, "after").unwrap().unwrap(), body(3));
    // The rows are there, the bytes are not: no wrong bytes, and not "there is no such object".
    let error = world.get(&two, "of-one").unwrap_err();
    assert!(!error.is_not_found(), "{error}");
    assert!(world.log().contains("is not reached"), "{}", world.log());
    // It waits until its earlier session is taken for dead.
    let one = world.serve("one", &[]);
    for door in [&one, &two] {
        for (key, number) in [("of-one", 1), ("of-two", 2), ("after", 3)] {
            assert_eq!(world.get(door, key).unwrap().unwrap(), body(number), "{key}");
        }
    }
    two.server.signal(Signal::TERM);
    assert_eq!(two.server.code(), Some(0));
    assert_eq!(world.get(&one, "of-one").unwrap().unwrap(), body(1));
}

#[test]
fn without_postgresql_nothing_is_answered_and_after_it_all_that_was_is_there() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    world.put(&one, "before", &body(1));
    world.postgres.kill();
    let error = world.get(&two, "before").unwrap_err();
    assert!(!error.is_not_found(), "{error}");
    // Whoever asks is told that it may be asked again.
    let answer = server::asked(&world.data("one"), "POST /identities", r#"{"order":"create-user","name":"ann"}"#);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("cannot be stored"), "{answer}");
    // A load balancer should leave them alone; whoever restarts what is not healthy should not.
    wait_until("two is ready without PostgreSQL", || health(&two, &["--ready"]) == Some(1));
    assert_eq!(health(&two, &[]), Some(0));
    world.postgres.begin();
    // Retries of the client go on meanwhile.
    world.put(&two, "after", &body(2));
    for door in [&one, &two] {
        assert_eq!(world.get(door, "before").unwrap().unwrap(), body(1));
        assert_eq!(world.get(door, "after").unwrap().unwrap(), body(2));
        wait_until("a server is not ready again", || health(door, &["--ready"]) == Some(0));
    }
}

/// The exit code of `margay health` with these options at the S3 address.
fn health(door: &Door, options: &[&str]) -> Option<i32> {
    let asked = margay().args(["health", "--endpoint", &door.server.endpoint]).args(options).output();
    asked.unwrap().status.code()
}

#[test]
fn keys_and_folders_of_others_are_refused_in_one_line() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    let refused_with = |name: &str, words: &[&str], what: &str| {
        let done = world.command(name, words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(what), "{said}");
    };
    let refused = |name: &str, what: &str| refused_with(name, &[], what);
    one.server.client(&["mb", "s3://bucket"]);
    world.put(&one, "kept", &[1; 300_000]);
    // Without the keys of the first one.
    refused("stranger", "identity-key");
    let own = world.data("own");
    drop(Server::start(&own));
    refused("own", "volume of its own");
    // Killed by `drop`, so the folder is free; it is no volume of its own.
    drop(one);
    // As a new store of an empty schema it would lose what it has.
    refused_with("one", &["--set", "metadata_schema=other"], "does not know");
    let one = world.serve("one", &[]);
    assert_eq!(world.get(&one, "kept").unwrap().unwrap(), vec![1; 300_000]);
    drop(one);
    let said = server::ends(3, &["fsck", "--data", world.data("one").to_str().unwrap()]);
    assert!(said.contains("PostgreSQL"), "{said}");
}

#[test]
fn users_that_one_server_has_made_are_known_to_orders_at_the_other_at_once() {
    let Some(world) = World::new() else { return };
    let (_one, _two) = (world.serve("one", &[]), world.serve("two", &[]));
    let order = |at: &str, words: &[&str]| {
        let done = margay().arg("user").args(words).arg("--data").arg(world.data(at)).output().unwrap();
        assert!(done.status.success(), "{at} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    for round in 0..6 {
        let (first, second) = if round % 2 == 0 { ("one", "two") } else { ("two", "one") };
        order(first, &["create", "ann"]);
        order(second, &["disable", "ann"]);
        order(first, &["enable", "ann"]);
        order(second, &["delete", "ann"]);
    }
}

#[test]
fn a_key_that_one_server_has_made_is_known_at_the_other_at_once() {
    let Some(world) = World::new() else { return };
    let (_one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    for name in ["ann", "bea", "cem", "dan"] {
        let made =
            margay().args(["user", "create", name, "--account", "--json", "--data"]).arg(world.data("one")).output();
        let made: serde_json::Value = serde_json::from_slice(&made.unwrap().stdout).unwrap();
        let mut command = margay();
        command.args(["client", "--endpoint", &two.server.endpoint, "ls"]);
        command.env("AWS_ACCESS_KEY_ID", made["access_key"].as_str().unwrap());
        command.env("AWS_SECRET_ACCESS_KEY", made["secret_key"].as_str().unwrap());
        let done = command.output().unwrap();
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn a_right_that_one_server_took_away_or_gave_counts_at_the_other_at_once() {
    let Some(world) = World::new() else { return };
    let (one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    let order = |at: &str, words: &[&str]| {
        let done = margay().arg("user").args(words).args(["--json", "--data"]).arg(world.data(at)).output().unwrap();
        assert!(done.status.success(), "{at} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    let made: serde_json::Value = serde_json::from_slice(&order("one", &["create", "ann", "--account"])).unwrap();
    let may = |door: &Door| {
        let mut command = margay();
        command.args(["client", "--endpoint", &door.server.endpoint, "ls"]);
        command.env("AWS_ACCESS_KEY_ID", made["access_key"].as_str().unwrap());
        command.env("AWS_SECRET_ACCESS_KEY", made["secret_key"].as_str().unwrap());
        command.output().unwrap().status.success()
    };
    assert!(may(&one) && may(&two));
    for round in 0..6 {
        let (first, second) = if round % 2 == 0 { ("one", &two) } else { ("two", &one) };
        order(first, &["disable", "ann"]);
        assert!(!may(second), "round {round}: a key that was disabled at {first}");
        order(first, &["enable", "ann"]);
        assert!(may(second), "round {round}: a key that was enabled at {first}");
    }
    // One that stood still is waited for a while, and then not: what it is asked meanwhile it decides by what it reads when it wakes up.
    for round in 0..3 {
        one.server.signal(Signal::STOP);
        order("two", &["disable", "ann"]);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| may(&one));
            std::thread::sleep(Duration::from_millis(300));
            one.server.signal(Signal::CONT);
            assert!(!asked.join().unwrap(), "round {round}: a server that woke up");
        });
        order("two", &["enable", "ann"]);
        wait_until("a server that woke up lets nobody in", || may(&one));
    }
    drop(one);
    order("two", &["disable", "ann"]);
    assert!(!may(&two));
}

#[test]
fn mounts_of_two_servers_show_one_tree() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let [at_one, at_two] = ["m1", "m2"].map(|name| world.data(name));
    let mounted = |at: &PathBuf| {
        fs::create_dir(at).unwrap();
        format!("bucket={}", at.display())
    };
    let one = world.serve("one", &["--set", "mount_options=shared", "--mount", &mounted(&at_one)]);
    let two = world.serve("two", &["--set", "mount_options=shared", "--mount", &mounted(&at_two)]);
    fs::create_dir(at_one.join("d")).unwrap();
    fs::write(at_one.join("d/file"), body(1)).unwrap();
    assert_eq!(world.get(&two, "d/file").unwrap().unwrap(), body(1));
    wait_until("the other mount shows it", || fs::read(at_two.join("d/file")).is_ok_and(|read| read == body(1)));
    world.put(&two, "d/file", &body(2));
    wait_until("a mount shows what S3 replaced elsewhere", || {
        fs::read(at_one.join("d/file")).is_ok_and(|read| read == body(2))
    });
    fs::rename(at_two.join("d"), at_two.join("e")).unwrap();
    wait_until("it shows a rename", || at_one.join("e/file").exists() && !at_one.join("d").exists());
    fs::remove_dir_all(at_one.join("e")).unwrap();
    wait_until("it shows a removal", || !at_two.join("e").exists());
    for door in [one, two] {
        door.server.signal(Signal::TERM);
        assert_eq!(door.server.code(), Some(0), "{}", world.log());
    }
}
