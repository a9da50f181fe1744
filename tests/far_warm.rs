//! One directory of a far mount is sent, and one is fetched, by commands: real kernel, real server.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::far::World;

fn run(world: &World, arguments: &[&str]) -> Output {
    world.command().args(arguments).output().unwrap()
}

/// The exit code, and what was printed as JSON.
fn told(world: &World, arguments: &[&str]) -> (i32, Value) {
    let output = run(world, arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text);
    (output.status.code().unwrap(), value.unwrap_or_else(|_| panic!("{arguments:?}: {output:?}")))
}

#[test]
fn one_directory_is_sent_whatever_is_wrong_with_others() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let far = world.mount("cache");
    let place = |name: &str| far.path.join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(far.path.join("good/below")).unwrap();
    for number in 0..50 {
        fs::write(far.path.join(format!("good/below/{number}")), "content").unwrap();
    }
    let (code, sent) = told(&world, &["sync", &place("good"), "--json"]);
    assert_eq!((code, &sent["sent"]), (0, &Value::Bool(true)), "{sent}");
    assert_eq!(world.keys("sub/good/below/").lines().count(), 51);
    let quota = |objects: &str| {
        let data = world.server.data.to_str().unwrap().to_owned();
        server::ends(0, &["bucket", "quota", "bucket", "--objects", objects, "--data", &data])
    };
    quota("0");
    fs::create_dir(far.path.join("bad")).unwrap();
    fs::write(far.path.join("bad/file"), "refused").unwrap();
    for bad in [place("bad"), place("")] {
        let (code, sent) = told(&world, &["sync", &bad, "--json"]);
        assert_eq!((code, &sent["sent"]), (1, &Value::Bool(false)), "{bad}: {sent}");
        assert!(sent["error"].as_str().unwrap().contains("QuotaExceeded"), "{sent}");
    }
    // Removals below it count too.
    fs::remove_dir_all(far.path.join("good/below")).unwrap();
    let (code, _) = told(&world, &["sync", &place("good"), "--json"]);
    assert_eq!((code, world.keys("sub/good/below/").as_str()), (0, ""));
    quota("none");
    assert_eq!(told(&world, &["sync", &place("bad"), "--json"]).0, 0, "it is tried again at once");
    let (code, ended) = told(&world, &["unmount", &place(""), "--json"]);
    assert_eq!((code, &ended["sent"], &ended["files"]), (0, &Value::Bool(true), &0.into()), "{ended}");
}

#[test]
fn what_was_warmed_is_read_without_the_bucket() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let put = |name: &str, bytes: usize| world.put(name, bytes);
    let one = put("tree/one", 900_000);
    let two = put("tree/deep/two", 1 << 20);
    put("large", 5 << 20);
    let words = ["--endpoint", &world.server.endpoint, "--cache-size", "32MiB"];
    let far = world.mount_with("cache", &words);
    let place = |name: &str| far.path.join(name).to_str().unwrap().to_owned();
    let (code, warmed) = told(&world, &["warm", &place("tree"), "--json"]);
    let all = (one.len() + two.len()) as u64;
    assert_eq!((code, &warmed["files"], &warmed["bytes"]), (0, &2.into(), &all.into()), "{warmed}");
    // It is broken off and goes on: nothing is fetched twice.
    let fetched = || server::metric(&world.folder.path().join("cache"), "margay_far_fetched_bytes_total");
    let before = fetched();
    assert_eq!(told(&world, &["warm", &place("tree"), "--json"]).0, 0);
    assert_eq!(fetched(), before);
    let (code, warmed) = told(&world, &["warm", &place(""), "--json"]);
    let left = warmed["left_out"].as_array().unwrap();
    assert!(code == 1 && left.len() == 1 && left[0]["path"] == place("large").as_str(), "{warmed}");
    let output = run(&world, &["warm", &place("large")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("large: 5.0 MiB are more than the cache keeps of one file (4.0 MiB)"), "{said}");
    assert_eq!(far.end(), Some(0));
    let far = world.mount_with("cache", &words);
    world.server.signal(Signal::STOP);
    let found = (fs::read(far.path.join("tree/one")), fs::read(far.path.join("tree/deep/two")));
    world.server.signal(Signal::CONT);
    assert!(found.0.unwrap() == one && found.1.unwrap() == two);
    assert_eq!(run(&world, &["warm", "/tmp"]).status.code(), Some(2), "no far mount");
    assert_eq!(far.end(), Some(0));
}
