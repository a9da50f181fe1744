//! What servers of one volume tell each other is encrypted, if that is asked for.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[path = "cluster/world.rs"]
mod world;

use world::{Door, World, body, wait_until};

const REQUIRED: [&str; 2] = ["--store-tls", "require"];
const PREFERRED: [&str; 2] = ["--store-tls", "prefer"];

/// Each reads what the other one has written.
fn exchange(world: &World, one: &Door, two: &Door, round: u8) {
    for (number, (to, from)) in [(one, two), (two, one)].into_iter().enumerate() {
        let (key, body) = (format!("key{round}{number}"), body(round * 2 + number as u8));
        world.put(to, &key, &body);
        assert_eq!(world.get(from, &key).unwrap().unwrap(), body, "{}", world.log());
    }
}

/// Where the servers that run tell each other, the last one last.
fn store_address(world: &World) -> String {
    let said = server::margay().args(["cluster", "status", "--json", "--metadata", &world.postgres.url()]).output();
    let said: serde_json::Value = serde_json::from_slice(&said.unwrap().stdout).unwrap();
    let stores = said["stores"].as_array().unwrap();
    stores.iter().rev().find_map(|store| store["address"].as_str()).unwrap().to_owned()
}

/// What the port answers to these bytes.
fn told(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut told = Vec::new();
    // A reset says nothing either.
    let _ = stream.read_to_end(&mut told);
    String::from_utf8_lossy(&told).into_owned()
}

#[test]
fn servers_change_to_tls_one_after_the_other_and_go_on_reading_each_other() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    exchange(&world, &one, &two, 0);
    drop(two);
    let two = world.serve("two", &PREFERRED);
    exchange(&world, &one, &two, 1);
    drop(one);
    let one = world.serve("one", &PREFERRED);
    exchange(&world, &one, &two, 2);
    drop(two);
    let two = world.serve("two", &REQUIRED);
    exchange(&world, &one, &two, 3);
    drop(one);
    let one = world.serve("one", &REQUIRED);
    exchange(&world, &one, &two, 4);
    assert!(!world.log().contains("speaks no TLS"), "{}", world.log());
    // A server without is told why, in one line, and can be read itself.
    drop(two);
    let two = world.serve("two", &[]);
    world.put(&two, "of-two", &body(90));
    assert_eq!(world.get(&one, "of-two").unwrap().unwrap(), body(90));
    world.put(&one, "of-one", &body(91));
    let error = world.get(&two, "of-one").unwrap_err();
    assert!(!error.is_not_found(), "{error}");
    let log = world.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("store_tls=require")).collect();
    // One line for each ten seconds, however many reads fail.
    let is_told = |line: &&str| line.contains("is not reached");
    assert!(!lines.is_empty() && lines.iter().all(is_told), "{lines:?}");
}

#[test]
fn whoever_has_no_key_of_the_volume_is_named_in_one_line() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &REQUIRED);
    let address = store_address(&world);
    let without = told(&address, b"POST /store HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    assert!(without.contains("403") && without.contains("store_tls=require"), "{without}");
    for _ in 0..3 {
        assert!(!told(&address, &[22, 3, 1, 0, 5, 1, 2, 3, 4, 5]).contains("HTTP"));
    }
    let lines = || world.log().lines().filter(|line| line.contains("proved no key of this volume")).count();
    wait_until("the log says so", || lines() > 0);
    assert_eq!(lines(), 1, "{}", world.log());
    drop(one);
    let said = world.command("one", &["--store-tls", "yes"]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("store_tls") && said.contains("off, prefer, require"), "{said}");
}
