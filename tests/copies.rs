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
use world::{Door, World, body, wait_until};

/// In a segment of its own.
const LARGE_BYTES: usize = 17 << 20;

fn cluster(world: &World, words: &[&str]) -> Result<String, String> {
    let done = margay().arg("cluster").args(words).args(["--metadata", &world.postgres.url()]).output().unwrap();
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
    // The servers look once a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
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
    std::thread::sleep(std::time::Duration::from_millis(1500));
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
