//! What one store has lost it fetches from the others: by itself, and when an operator says which object.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[path = "cluster/world.rs"]
mod world;

use server::margay;
use world::{Door, World, body, wait_for_wanted, wait_until};

/// In a segment of its own.
const LARGE_BYTES: usize = 17 << 20;

fn large(seed: u8) -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at as u8).wrapping_mul(29).wrapping_add((at >> 12) as u8 ^ seed)).collect()
}

fn order(world: &World, words: &[&str]) -> (Option<i32>, String) {
    let done = margay().args(words).args(["--metadata", &world.postgres.url()]).output().unwrap();
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (done.status.code(), said.concat())
}

fn status(world: &World) -> Value {
    serde_json::from_str(&order(world, &["cluster", "status", "--json"]).1).unwrap()
}

fn stop(world: &World, door: Door) {
    door.server.signal(Signal::TERM);
    assert_eq!(door.server.code(), Some(0), "{}", world.log());
}

/// Files of the object's segments in a server's directory.
fn files_of(world: &World, name: &str, object: &str) -> Vec<PathBuf> {
    // It ends with a word about copies that are missing, if some are.
    let done =
        margay().args(["object", "where", object, "--json", "--metadata", &world.postgres.url()]).output().unwrap();
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    let files = found["segments"].as_array().unwrap().iter().map(|segment| segment["file"].as_str().unwrap());
    files.map(|file| world.data(name).join("segments").join(file)).collect()
}

/// What is told, and the exit code.
fn recover(world: &World, at: &str, object: &str) -> (Value, Option<i32>) {
    let done = margay().args(["object", "recover", object, "--json", "--data"]).arg(world.data(at)).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {said}")), done.status.code())
}

/// Two servers with two copies of a small and a large object, whose segments are sealed.
fn two_servers(world: &World) -> (Door, Door) {
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    assert_eq!(order(world, &["cluster", "set", "--copies", "2"]).0, Some(0));
    wait_for_wanted(&[&one.server, &two.server], 2);
    world.put(&one, "small", &body(1));
    world.put(&one, "large", &large(2));
    stop(world, one);
    let one = world.serve("one", &[]);
    wait_until("all segments have their copies", || {
        let status = status(world);
        status["segments_with_too_few_copies"] == 0 && status["segments"].as_u64() > Some(0)
    });
    (one, two)
}

fn check(world: &World, door: &Door) {
    assert!(
        world.get(door, "small").unwrap().unwrap() == body(1) && world.get(door, "large").unwrap().unwrap() == large(2)
    );
}

#[test]
fn an_object_is_recovered_at_each_store_that_has_it() {
    let Some(world) = World::new() else { return };
    let (one, two) = two_servers(&world);
    let (found, code) = recover(&world, "one", "bucket/large");
    assert_eq!((&found["bad_copies"], code), (&Value::from(0), Some(0)), "{found}");
    // The maker's file is damaged, and the copy of the small one is gone.
    let large_file = files_of(&world, "one", "bucket/large").remove(0);
    let file = fs::File::options().write(true).open(&large_file).unwrap();
    file.write_all_at(&[0x55; 5000], 9 << 20).unwrap();
    stop(&world, two);
    let small_copy = files_of(&world, "two", "bucket/small").remove(0);
    fs::remove_file(&small_copy).unwrap();
    // Nobody has it just now.
    let (found, code) = recover(&world, "one", "bucket/large");
    assert_eq!((&found["bad_copies"], &found["left_bad"], code), (&1.into(), &1.into(), Some(4)), "{found}");
    let two = world.serve("two", &[]);
    let said = recover(&world, "two", "bucket/small");
    assert!(small_copy.exists() && said.1 == Some(0), "{said:?} {}", world.log());
    let (found, code) = recover(&world, "two", "bucket/large");
    let stores = &found["segments"][0]["stores"];
    assert_eq!((&found["bad_copies"], &found["left_bad"], code), (&1.into(), &0.into(), Some(0)), "{found}");
    assert_eq!(
        (&stores[0]["found"], &stores[0]["now"], &stores[1]["found"]),
        (&"damaged".into(), &"good".into(), &"good".into())
    );
    let copy = files_of(&world, "two", "bucket/large").remove(0);
    assert!(fs::read(&large_file).unwrap() == fs::read(copy).unwrap(), "it is the same file again");
    [&one, &two].into_iter().for_each(|door| check(&world, door));
    // For people, and what is no object.
    let said = server::ends(0, &["object", "recover", "bucket/large", "--data", world.data("one").to_str().unwrap()]);
    assert!(said.contains("0 bad copies") && said.contains("good"), "{said}");
    let said = server::ends(1, &["object", "recover", "bucket/none", "--data", world.data("one").to_str().unwrap()]);
    assert!(said.contains("bucket/none"), "{said}");
}

#[test]
fn a_file_that_its_maker_has_lost_comes_back_by_itself_and_one_that_is_damaged_is_made_right() {
    let Some(world) = World::new() else { return };
    let (one, two) = two_servers(&world);
    let (small, large) = (files_of(&world, "one", "bucket/small"), files_of(&world, "one", "bucket/large"));
    stop(&world, one);
    let before = fs::read(&large[0]).unwrap();
    [&small[0], &large[0]].into_iter().for_each(|path| fs::remove_file(path).unwrap());
    let one = world.serve("one", &[]);
    wait_until("the files are there again", || [&small[0], &large[0]].into_iter().all(|path| path.exists()));
    assert!(fs::read(&large[0]).unwrap() == before);
    check(&world, &one);
    // The other one is needed no more.
    two.server.signal(Signal::KILL);
    assert_eq!(two.server.code(), None);
    check(&world, &one);
}

#[test]
fn what_is_live_in_a_pack_of_a_detached_store_is_moved_and_the_pack_refers_to_nothing() {
    let Some(world) = World::new() else { return };
    let (one, two) = two_servers(&world);
    for count in 0..8 {
        world.put(&one, &format!("dead/{count}"), &body(count));
    }
    world.put(&one, "live", &body(77));
    // Its packs are sealed, and their copies complete.
    stop(&world, one);
    let one = world.serve("one", &[]);
    wait_until("all segments have their copies", || status(&world)["segments_with_too_few_copies"] == 0);
    for count in 0..8 {
        world.runtime.block_on(one.upstream.delete(&format!("dead/{count}"))).unwrap();
    }
    stop(&world, one);
    wait_until("it is detached", || order(&world, &["cluster", "detach", "0"]).0 == Some(0));
    assert_eq!(order(&world, &["cluster", "set", "--copies", "1"]).0, Some(0));
    let is_moved = || {
        // Refused until the server knows that one copy is enough.
        drop(margay().args(["compact", "--data"]).arg(world.data("two")).output().unwrap());
        let file = files_of(&world, "two", "bucket/live").remove(0);
        file.file_name().unwrap().to_string_lossy().starts_with("000001")
    };
    wait_until("what is live is in a segment of the other store", is_moved);
    assert!(world.get(&two, "live").unwrap().unwrap() == body(77));
    check(&world, &two);
}
