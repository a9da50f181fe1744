//! Copies of objects at several servers of one volume: killed servers, lost disks, damaged bytes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

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

fn cluster(world: &World, words: &[&str]) -> Result<String, String> {
    order(world, "cluster", words)
}

fn order(world: &World, command: &str, words: &[&str]) -> Result<String, String> {
    let done = margay().arg(command).args(words).args(["--metadata", &world.postgres.url()]).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
}

fn status(world: &World) -> Value {
    serde_json::from_str(&cluster(world, &["status", "--json"]).unwrap()).unwrap()
}

fn kill(door: Door) {
    door.server.signal(Signal::KILL);
    assert_eq!(door.server.code(), None);
}

fn large(seed: u8) -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at as u8).wrapping_mul(29).wrapping_add((at >> 12) as u8 ^ seed)).collect()
}

/// What was acknowledged: keys and bodies.
#[derive(Default)]
struct Acknowledged(Vec<(String, Vec<u8>)>);

impl Acknowledged {
    fn put(&mut self, world: &World, door: &Door, key: &str, body: Vec<u8>) {
        world.put(door, key, &body);
        self.0.push((key.to_owned(), body));
    }

    fn check(&self, world: &World, door: &Door) {
        for (key, body) in &self.0 {
            assert!(world.get(door, key).unwrap().unwrap() == *body, "{key}");
        }
    }
}

fn wait_for_copies(world: &World) {
    wait_until("all segments have their copies", || {
        let status = status(world);
        status["segments_with_too_few_copies"] == 0 && status["segments"].as_u64() > Some(0)
    });
}

#[test]
fn a_server_is_lost_with_its_disk_and_nothing_else_is() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let (two, three) = (world.serve("two", &[]), world.serve("three", &[]));
    assert!(cluster(&world, &["set", "--copies", "2"]).unwrap().contains("waits for 2"));
    wait_for_wanted(&[&one.server, &two.server, &three.server], 2);
    let mut acknowledged = Acknowledged::default();
    for (number, door) in [&one, &two, &three].into_iter().enumerate() {
        for count in 0..10 {
            acknowledged.put(
                &world,
                door,
                &format!("small/{number}-{count}"),
                body(count).split_off(count as usize * 20_000),
            );
        }
        acknowledged.put(&world, door, &format!("large/{number}"), large(number as u8));
    }
    let before = status(&world);
    assert_eq!((&before["copies"], &before["write"]), (&Value::from(2), &Value::from(2)), "{before}");
    assert_eq!(before["segments_with_too_few_copies"], 0, "{before}");

    // A disk is lost with its server.
    kill(one);
    fs::remove_dir_all(world.data("one").join("segments")).unwrap();
    [&two, &three].into_iter().for_each(|door| acknowledged.check(&world, door));
    // The other ones go on, with two stores left of which each write needs both.
    acknowledged.put(&world, &two, "after/two", body(77));
    acknowledged.put(&world, &three, "after/three", large(78));
    assert!(cluster(&world, &["detach", "9"]).is_err());
    wait_until("the killed server is taken for dead", || cluster(&world, &["detach", "0"]).is_ok());
    assert!(cluster(&world, &["detach", "1"]).unwrap_err().contains("stop that server first"));
    wait_for_copies(&world);

    // Any of the two has everything now.
    kill(two);
    acknowledged.check(&world, &three);
    let error = world.try_put(&three, "refused", &body(1)).unwrap_err();
    assert!(error.to_string().contains("ServiceUnavailable"), "a client tries again: {error}");
    assert_eq!(world.get(&three, "refused").unwrap(), None);
    let two = world.serve("two", &[]);
    acknowledged.put(&world, &three, "again", body(5));
    [&two, &three].into_iter().for_each(|door| acknowledged.check(&world, door));
}

/// Changes a byte in the middle of each file of the store's own segments.
fn damage(segments: &Path, own_begins_with: &str) -> usize {
    let mut damaged = 0;
    for file in fs::read_dir(segments).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with(own_begins_with) && (name.ends_with(".pack") || name.ends_with(".raw")) {
            let mut bytes = fs::read(&path).unwrap();
            let at = bytes.len() / 2;
            bytes[at] ^= 0x55;
            fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    damaged
}

#[test]
fn damaged_bytes_are_read_from_a_copy() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    let three = world.serve("three", &[]);
    // What was there before is copied too.
    let mut acknowledged = Acknowledged::default();
    acknowledged.put(&world, &one, "before", body(1));
    acknowledged.put(&world, &one, "large", large(2));
    cluster(&world, &["set", "--copies", "3", "--write", "2"]).unwrap();
    wait_for_wanted(&[&one.server], 3);
    acknowledged.put(&world, &one, "after", body(3));
    one.server.signal(Signal::TERM);
    assert_eq!(one.server.code(), Some(0), "{}", world.log());
    let one = world.serve("one", &[]);
    wait_for_copies(&world);
    acknowledged.check(&world, &two);
    one.server.signal(Signal::TERM);
    assert_eq!(one.server.code(), Some(0), "{}", world.log());
    // Store 0 made these.
    assert!(damage(&world.data("one").join("segments"), "000000") >= 2);
    let one = world.serve("one", &[]);
    [&one, &two, &three].into_iter().for_each(|door| acknowledged.check(&world, door));
    assert!(world.log().contains("damaged, and read from a copy"), "{}", world.log());
    // A store that was detached does not come back by itself.
    kill(three);
    wait_until("it is taken for dead", || cluster(&world, &["detach", "2"]).is_ok());
    let done = world.command("three", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("detach 2 --undo"), "{said}");
    cluster(&world, &["detach", "2", "--undo"]).unwrap();
    let three = world.serve("three", &[]);
    acknowledged.check(&world, &three);
}

#[test]
fn a_server_that_starts_again_with_a_damaged_file_overwrites_no_copy_of_it() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    cluster(&world, &["set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server], 2);
    let mut acknowledged = Acknowledged::default();
    (0..3).for_each(|count| acknowledged.put(&world, &one, &format!("small/{count}"), body(count)));
    // Its pack was open, so the copy is sent again.
    kill(one);
    assert!(damage(&world.data("one").join("segments"), "000000") >= 1);
    let one = world.serve("one", &[]);
    wait_until("the file was made right", || {
        world.log().contains("what the file lacked was fetched from other stores")
    });
    acknowledged.put(&world, &one, "after", body(7));
    kill(one);
    acknowledged.check(&world, &two);
}

#[test]
fn what_is_written_no_more_gets_another_copy_when_the_disk_of_one_is_lost() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let others = [("two", "1"), ("three", "2")].map(|(name, number)| (name, number, world.serve(name, &[])));
    cluster(&world, &["set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server], 2);
    let mut acknowledged = Acknowledged::default();
    // In a pack that is open, and quiet from now on.
    acknowledged.put(&world, &one, "small", body(1));
    let (with, without): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|(name, number, _)| copies_at(&world, name, &format!("00000{number}")) > 0);
    let [(name, number, lost)] = <[_; 1]>::try_from(with).unwrap_or_else(|_| panic!("one other store has it"));
    kill(lost);
    fs::remove_dir_all(world.data(name).join("segments")).unwrap();
    wait_until("the killed server is taken for dead", || cluster(&world, &["detach", number]).is_ok());
    wait_for_copies(&world);
    kill(one);
    acknowledged.check(&world, &without[0].2);
}

#[test]
fn what_a_lost_server_was_writing_is_compared_and_mended_by_those_that_have_it() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let (two, three) = (world.serve("two", &[]), world.serve("three", &[]));
    cluster(&world, &["set", "--copies", "3"]).unwrap();
    wait_for_wanted(&[&one.server], 3);
    let mut acknowledged = Acknowledged::default();
    (0..3).for_each(|count| acknowledged.put(&world, &one, &format!("small/{count}"), body(count)));
    kill(one);
    // What the lost server had not sent again, or a disk did not write.
    kill(two);
    assert!(damage(&world.data("two").join("segments"), "000000") >= 1);
    let is_dead = |store: usize| status(&world)["stores"][store]["state"] == "not running";
    wait_until("the killed servers are taken for dead", || is_dead(0) && is_dead(1));
    kill(three);
    cluster(&world, &["set", "--copies", "2"]).unwrap();
    cluster(&world, &["detach", "0"]).unwrap();
    let before = status(&world);
    assert!(before["segments_unsure"].as_u64() > Some(0), "{before}");
    assert!(cluster(&world, &["detach", "1"]).unwrap_err().contains("the others may have a part only"));
    let (two, three) = (world.serve("two", &[]), world.serve("three", &[]));
    wait_for_copies(&world);
    assert_eq!(status(&world)["segments_unsure"], 0);
    kill(three);
    acknowledged.check(&world, &two);
}

/// Whether the second server's copies of what the first one wrote have the same bytes.
fn is_same(world: &World) -> bool {
    let files = fs::read_dir(world.data("one").join("segments")).unwrap().map(|file| file.unwrap().file_name());
    let is_own = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("000000");
    let read = |door: &str, name: &std::ffi::OsStr| fs::read(world.data(door).join("segments").join(name));
    let mut own = files.filter(is_own);
    own.all(|name| read("two", &name).is_ok_and(|copy| read("one", &name).is_ok_and(|file| file == copy)))
}

#[test]
fn a_damaged_copy_is_found_where_it_is_and_made_again() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    cluster(&world, &["set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server], 2);
    let mut acknowledged = Acknowledged::default();
    acknowledged.put(&world, &one, "small", body(1));
    acknowledged.put(&world, &one, "large", large(2));
    let mut doors = [one, two];
    // What was written just before the server was stopped is sent again in any case, so damage of that is not found.
    for _ in 0..3 {
        wait_until("the segments are sealed", || {
            status(&world)["stores"][0]["bytes"].as_u64() > Some(LARGE_BYTES as u64)
        });
        for door in doors {
            door.server.signal(Signal::TERM);
            assert_eq!(door.server.code(), Some(0), "{}", world.log());
        }
        // Copies of what store 0 made.
        assert!(damage(&world.data("two").join("segments"), "000000") >= 2);
        doors = [world.serve("one", &[]), world.serve("two", &[])];
        wait_until("the copies are what was written", || is_same(&world));
        if world.log().contains("a copy is damaged, and is made again") {
            break;
        }
    }
    assert!(world.log().contains("a copy is damaged, and is made again"), "{}", world.log());
    wait_for_copies(&world);
    doors.iter().for_each(|door| acknowledged.check(&world, door));
}

fn segment_files(world: &World, name: &str) -> Vec<String> {
    let Ok(names) = fs::read_dir(world.data(name).join("segments")) else { return Vec::new() };
    names.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Files of segments that other stores have made; of what these have in quarantine, copies stay as long as that does.
fn copies_at(world: &World, name: &str, own_begins_with: &str) -> usize {
    let made: Vec<String> = ["one", "two", "three"].into_iter().flat_map(|maker| segment_files(world, maker)).collect();
    let is_dead = |name: &str| made.iter().any(|file| file.starts_with(&format!("{name}.quarantine-")));
    let is_copy = |name: &String| {
        (name.ends_with(".pack") || name.ends_with(".raw")) && !name.starts_with(own_begins_with) && !is_dead(name)
    };
    segment_files(world, name).into_iter().filter(is_copy).count()
}

fn problems(world: &World) -> String {
    status(world)["problems"].to_string()
}

#[test]
fn copies_go_to_different_racks_and_those_that_are_too_many_go() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &["--rack", "a"]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &["--rack", "a"]);
    cluster(&world, &["set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server, &two.server], 2);
    let mut acknowledged = Acknowledged::default();
    acknowledged.put(&world, &one, "small", body(1));
    acknowledged.put(&world, &one, "large", large(2));
    acknowledged.put(&world, &two, "other", large(3));
    assert!(cluster(&world, &["set", "--racks", "2"]).unwrap_err().contains("are in 1 racks"));
    assert!(problems(&world).contains("all of their copies in one rack: start a server in another one"));

    let three = world.serve("three", &["--rack", "b"]);
    let is_settled = || {
        let status = status(&world);
        ["few", "many"].iter().all(|what| status[format!("segments_with_too_{what}_copies")] == 0)
            && status["segments_in_one_rack"] == 0
    };
    wait_until("all segments are in both racks, at two stores", is_settled);
    assert!(copies_at(&world, "three", "000002") > 0);
    [&one, &two, &three].into_iter().for_each(|door| acknowledged.check(&world, door));
    assert!(cluster(&world, &["set", "--racks", "2"]).unwrap().contains("in 2 racks"));
    std::thread::sleep(Duration::from_millis(1500));
    acknowledged.put(&world, &one, "in both", body(4));
    wait_until("what was written since is too", is_settled);

    // Two servers are left, and one rack: a write waits for the other one.
    kill(three);
    assert!(world.try_put(&one, "refused", &body(5)).is_err());
    assert_eq!(world.get(&two, "refused").unwrap(), None);
    wait_until("the killed server is taken for dead", || problems(&world).contains("writes are REFUSED"));
    assert!(problems(&world).contains("store 2"), "{}", problems(&world));
    [&one, &two].into_iter().for_each(|door| acknowledged.check(&world, door));
    let three = world.serve("three", &["--rack", "b"]);
    acknowledged.put(&world, &one, "again", body(6));

    // Nothing but what each has written is left, and the segment of the refused write: no row names it, so it goes after an hour.
    cluster(&world, &["set", "--copies", "1"]).unwrap();
    wait_until("the copies are gone", || {
        is_settled()
            && [("one", "000000", 0), ("two", "000001", 1), ("three", "000002", 0)]
                .iter()
                .all(|(name, own, unnamed)| copies_at(&world, name, own) <= *unnamed)
    });
    [&one, &two, &three].into_iter().for_each(|door| acknowledged.check(&world, door));
}

#[test]
fn a_suspended_store_gets_nothing_and_an_added_one_is_filled() {
    let Some(world) = World::new() else { return };
    let node = |words: &[&str]| order(&world, "node", words);
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let (two, three) = (world.serve("two", &[]), world.serve("three", &[]));
    assert!(node(&["suspend", "2"]).unwrap().contains("may be stopped"));
    cluster(&world, &["set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server, &two.server], 2);
    let mut acknowledged = Acknowledged::default();
    for number in 0..4 {
        acknowledged.put(&world, &one, &format!("large/{number}"), large(number));
        acknowledged.put(&world, &two, &format!("small/{number}"), body(number));
    }
    assert_eq!(copies_at(&world, "three", "000002"), 0);
    assert!(node(&["list"]).unwrap().contains("suspended"));
    three.server.signal(Signal::TERM);
    assert_eq!(three.server.code(), Some(0), "{}", world.log());
    assert!(node(&["list"]).unwrap().contains("stopped"));
    assert_eq!(problems(&world), "[]");
    let three = world.serve("three", &[]);
    assert!(node(&["resume", "9"]).unwrap_err().contains("there is no store 9"));
    node(&["resume", "2"]).unwrap();
    assert!(node(&["recover", "2"]).unwrap().contains("all segments have their copies"));
    // Stores 0 and 1 have all, and store 2 nothing.
    assert!(node(&["rebalance", "--no-wait"]).unwrap().contains("copies are moved"));
    wait_until("copies were moved to the store that had none", || {
        let status = status(&world);
        copies_at(&world, "three", "000002") > 0 && status["segments_with_too_many_copies"] == 0
    });
    assert!(node(&["rebalance", "--stop"]).unwrap().contains("no more"));
    wait_for_copies(&world);
    kill(two);
    [&one, &three].into_iter().for_each(|door| acknowledged.check(&world, door));
}

/// The answer to what is sent to a store as it is.
fn answered(address: &str, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(sent).unwrap();
    let mut said = [0; 4096];
    let len = stream.read(&mut said).unwrap();
    String::from_utf8_lossy(&said[..len]).into_owned()
}

#[test]
fn a_stranger_at_a_store_is_refused_before_it_has_sent_anything() {
    let Some(world) = World::new() else { return };
    let _one = world.serve("one", &[]);
    let address = status(&world)["stores"][0]["address"].as_str().unwrap().to_owned();
    let head = |more: &str| format!("POST /store HTTP/1.1\r\nhost: {address}\r\ncontent-length: 4194304\r\n{more}\r\n");
    let signed = format!("x-margay-question: {}\r\nx-margay-signature: {}\r\n", "01".repeat(74), "02".repeat(32));
    for (more, why) in [("", "no signature"), (signed.as_str(), "the key of another volume")] {
        // The bytes that it speaks of are never sent.
        let said = answered(&address, head(more).as_bytes());
        assert!(said.starts_with("HTTP/1.1 403") && said.contains(why), "{said}");
    }
}
