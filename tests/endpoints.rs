//! Servers that keep copies and have no clients, and servers with clients that keep none.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[path = "cluster/world.rs"]
mod world;

use server::{Server, margay, metric};
use world::{Door, World, body, wait_for_wanted, wait_until};

/// In a segment of its own.
const LARGE_BYTES: usize = 17 << 20;

fn order(world: &World, words: &[&str]) -> Result<String, String> {
    let done = margay().args(words).args(["--metadata", &world.postgres.url()]).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
}

fn status(world: &World) -> Value {
    serde_json::from_str(&order(world, &["cluster", "status", "--json"]).unwrap()).unwrap()
}

fn role(world: &World, store: usize) -> String {
    status(world)["stores"][store]["role"].as_str().unwrap().to_owned()
}

/// The command of an endpoint whose folder has the one key that it needs.
fn command(world: &World, name: &str, more: &[&str]) -> std::process::Command {
    let data = world.data(name);
    if !data.exists() {
        fs::create_dir(&data).unwrap();
        fs::copy(world.data("one").join("identity-key"), data.join("identity-key")).unwrap();
    }
    world.command(name, &[&["--endpoint-only"], more].concat())
}

fn endpoint(world: &World, name: &str, more: &[&str]) -> Server {
    let mut command = command(world, name, more);
    let log = fs::File::options().create(true).append(true).open(world.data("log")).unwrap();
    let mut child = command.stderr(log).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut screen = String::new();
    while !screen.contains("Ctrl-C") {
        let line = lines.next().unwrap_or_else(|| panic!("the start screen ends early: {}", world.log()));
        screen.push_str(&line.unwrap());
        screen.push('\n');
    }
    Server { child, data: world.data(name), screen, endpoint: String::new() }
}

fn kill(server: Server) {
    server.signal(Signal::KILL);
    assert_eq!(server.code(), None);
}

fn large(seed: u8) -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at as u8).wrapping_mul(29).wrapping_add((at >> 12) as u8 ^ seed)).collect()
}

fn check(world: &World, door: &Door, acknowledged: &[(String, Vec<u8>)]) {
    for (key, body) in acknowledged {
        assert!(world.get(door, key).unwrap().unwrap() == *body, "{key}");
    }
}

fn wait_for_copies(world: &World) {
    wait_until("all segments have their copies", || {
        let status = status(world);
        status["segments_with_too_few_copies"] == 0 && status["segments"].as_u64() > Some(0)
    });
}

/// Until these servers know it.
fn set_copies(world: &World, servers: &[&Server], copies: u64, more: &[&str]) {
    order(world, &[&["cluster", "set", "--copies", &copies.to_string()], more].concat()).unwrap();
    wait_for_wanted(servers, copies);
}

/// Puts until `is_over`, and returns what was put.
fn load(world: &World, door: &Door, writer: u8, is_over: &AtomicBool) -> Vec<(String, Vec<u8>)> {
    let mut put = Vec::new();
    while !is_over.load(Ordering::Relaxed) && put.len() < 200 {
        let number = put.len() as u8;
        let body = body(writer.wrapping_mul(50).wrapping_add(number)).split_off(usize::from(number) * 1000);
        let key = format!("load/{writer}-{}", put.len());
        world.try_put(door, &key, &body).unwrap();
        put.push((key, body));
    }
    put
}

#[test]
fn endpoints_keep_the_copies_of_a_gateway_and_one_that_is_killed_fails_no_write() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let (two, three) = (endpoint(&world, "two", &["--rack", "b"]), endpoint(&world, "three", &[]));
    assert!(two.screen.contains("store     1 at 127.0.0.1:") && !two.screen.contains("S3  "), "{}", two.screen);
    assert!(!world.data("two").join("keys").exists() && !world.data("two").join("encryption-keys").exists());
    assert_eq!([0, 1, 2].map(|store| role(&world, store)), ["both", "endpoint", "endpoint"]);
    assert!(order(&world, &["node", "list"]).unwrap().contains("running      endpoint"));
    set_copies(&world, &[&one.server, &two, &three], 3, &["--write", "2"]);

    // One of the two is killed while writers are at work.
    let is_over = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (world, one, is_over) = (&world, &one, &is_over);
                scope.spawn(move || load(world, one, writer, is_over))
            })
            .collect();
        wait_until("something was sent to both", || {
            metric(&one.server.data, "margay_copies_sent_bytes_total") > 3 << 20
        });
        kill(two);
        std::thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(metric(&one.server.data, "margay_copies_refused_writes_total"), 0);
    let mut acknowledged = acknowledged;
    acknowledged.push(("large".to_owned(), large(1)));
    world.put(&one, "large", &acknowledged.last().unwrap().1);

    // Its disk is wiped: an empty folder takes its place as another store.
    fs::remove_dir_all(world.data("two")).unwrap();
    let two = endpoint(&world, "two", &[]);
    wait_until("the killed endpoint is taken for dead", || order(&world, &["node", "detach", "1"]).is_ok());
    assert_eq!(role(&world, 3), "endpoint");
    wait_for_copies(&world);
    // The gateway is lost with its disk: another one reads what the endpoints have.
    kill(one.server);
    fs::remove_dir_all(world.data("one").join("segments")).unwrap();
    let four = world.serve("four", &["--gateway-only"]);
    check(&world, &four, &acknowledged);
    // Each of them has all of it.
    kill(three);
    check(&world, &four, &acknowledged);
    two.signal(Signal::TERM);
    assert_eq!(two.code(), Some(0), "{}", world.log());
}

#[test]
fn an_endpoint_says_what_it_is_and_refuses_what_needs_clients() {
    let Some(world) = World::new() else { return };
    // Whose key would the others need?
    fs::create_dir(world.data("two")).unwrap();
    let done = world.command("two", &["--endpoint-only"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("no server with clients yet"), "{said}");
    assert!(!world.data("two").join("identity-key").exists());
    fs::remove_dir_all(world.data("two")).unwrap();

    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    for (more, why) in [
        (["--mount", "bucket=/nowhere"], "an endpoint mounts nothing"),
        (["--metadata", "embedded"], "role is endpoint"),
    ] {
        let mut given = command(&world, "two", &[]);
        if more[0] == "--metadata" {
            given = margay();
            given.args(["serve", "--endpoint-only", "--data"]).arg(world.data("two"));
        }
        let done = given.args(more).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(why), "{said}");
    }
    let two = endpoint(&world, "two", &[]);
    let data = two.data.display().to_string();
    let of_two = |words: &[&str]| {
        let done = margay().args(words).args(["--data", &data]).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
    };
    let (code, said) = of_two(&["status", "--json"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert!(code == Some(0) && told["role"] == "endpoint" && told["store"] == 1, "{said}");
    let (code, said) = of_two(&["user", "list"]);
    assert!(code == Some(3) && said.contains("is an endpoint"), "{code:?} {said}");
    assert!(metric(&two.data, "margay_copies_wanted") == 1);
    administer_from_elsewhere(&one, &two);
    // What it is for is no property of its folder: it may serve clients, once it has all keys.
    two.signal(Signal::TERM);
    assert_eq!(two.code(), Some(0), "{}", world.log());
    for file in ["keys", "encryption-keys"] {
        fs::copy(world.data("one").join(file), world.data("two").join(file)).unwrap();
    }
    let two = world.serve("two", &[]);
    assert_eq!(role(&world, 1), "both");
    world.put(&two, "key", &body(1));
    assert!(world.get(&one, "key").unwrap().unwrap() == body(1));
    kill(one.server);
    kill(two.server);
    let only = endpoint(&world, "two", &[]);
    assert!(status(&world)["problems"].to_string().contains("only endpoints"), "{}", status(&world));
    drop(only);
}

/// By signed requests to its admin address: users of the volume by their rights; what needs clients is refused with one line.
fn administer_from_elsewhere(one: &Door, two: &Server) {
    let admin = two.screen.lines().find_map(|line| line.trim().strip_prefix("admin")).unwrap();
    let endpoint = admin.trim().split("/health").next().unwrap().to_owned();
    let created = one.server.data.join("policy.json");
    let statement = r#"{"Effect":"Allow","Action":["admin:Status","admin:Top","admin:Check"],"Resource":"*"}"#;
    fs::write(&created, format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#)).unwrap();
    let data = one.server.data.to_str().unwrap();
    let ann: Value =
        serde_json::from_str(&server::ends(0, &["user", "create", "ann", "--json", "--data", data])).unwrap();
    server::ends(0, &["policy", "put", "watch", "--file", created.to_str().unwrap(), "--data", data]);
    server::ends(0, &["policy", "attach", "watch", "--user", "ann", "--data", data]);
    let of_ann = |words: &[&str]| {
        let mut command = margay();
        command.args(words).args(["--endpoint", &endpoint]).current_dir("/");
        let text = |name: &str| ann[name].as_str().unwrap();
        command.env("MARGAY_ACCESS_KEY", text("access_key")).env("MARGAY_SECRET_KEY", text("secret_key"));
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
    };
    // What is changed at one server is known at the other within a second.
    wait_until("the endpoint knows the user and the policy", || of_ann(&["status"]).0 == Some(0));
    let (code, said) = of_ann(&["status", "--json"]);
    assert!(code == Some(0) && said.contains("\"role\": \"endpoint\""), "{said}");
    let (code, said) = of_ann(&["top", "--count", "1", "--seconds", "1", "--json"]);
    assert!(code == Some(0) && said.contains("\"health\":\"ok\""), "{said}");
    assert_eq!(of_ann(&["fsck"]).0, Some(0));
    assert_eq!(of_ann(&["health"]), (Some(0), String::new()));
    // Without a right; without clients.
    let (code, said) = of_ann(&["scrub"]);
    assert!(code == Some(3) && said.contains("admin:Scrub"), "{said}");
    let mut local = margay();
    let done = local.args(["trace", "--data"]).arg(&two.data).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.code() == Some(3) && said.contains("is an endpoint") && said.trim().lines().count() == 1,
        "{said}"
    );
}

fn segment_files(world: &World, name: &str, made_by: &str) -> usize {
    segment_names(world, name, made_by).len()
}

fn segment_names(world: &World, name: &str, made_by: &str) -> Vec<String> {
    let names = fs::read_dir(world.data(name).join("segments")).unwrap();
    let names = names.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(made_by) && (name.ends_with(".pack") || name.ends_with(".raw"))).collect()
}

#[test]
fn a_gateway_gets_no_copies_and_what_it_had_of_others_moves_away() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    set_copies(&world, &[&one.server, &two.server], 2, &[]);
    let mut acknowledged = Vec::new();
    let mut put = |door: &Door, key: &str, body: Vec<u8>| {
        world.put(door, key, &body);
        acknowledged.push((key.to_owned(), body));
    };
    put(&one, "before", large(1));
    wait_for_copies(&world);
    assert!(segment_files(&world, "two", "000000") > 0);
    two.server.signal(Signal::TERM);
    assert_eq!(two.server.code(), Some(0), "{}", world.log());
    let two = world.serve("two", &["--gateway-only"]);
    // Each write waits for two servers, and no other one may have a copy.
    wait_until("it is known what the second server is for", || world.try_put(&one, "refused", &body(9)).is_err());
    let problems = status(&world)["problems"].to_string();
    let three = endpoint(&world, "three", &[]);
    // The gateway may send to both of the others, the first one to the new one alone.
    let sends_to = |door: &Door| metric(&door.server.data, "margay_copies_stores");
    wait_until("the servers know the new one", || (sends_to(&one), sends_to(&two)) == (1, 2));
    put(&one, "from one", large(2));
    put(&two, "from two", large(3));
    assert!(segment_files(&world, "three", "000000") > 0 && segment_files(&world, "three", "000001") > 0, "{problems}");
    order(&world, &["node", "rebalance", "--no-wait"]).unwrap();
    // What is dead stays in the quarantine of the server that made it, and its copies stay with it.
    let is_alive = |name: &String| world.data("one").join("segments").join(name).exists();
    let left = || segment_names(&world, "two", "000000").into_iter().filter(is_alive).collect::<Vec<_>>();
    wait_until("what the gateway had of the other server is elsewhere", || left().is_empty());
    wait_for_copies(&world);
    [&one, &two].into_iter().for_each(|door| check(&world, door, &acknowledged));
    kill(three);
}
