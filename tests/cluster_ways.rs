//! Ways into a volume of several servers and out of it: a volume of one server moved into PostgreSQL and back, dumps, checks, and where
//! an object is.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

#[path = "cluster/filled.rs"]
mod filled;
#[path = "server/fuse.rs"]
mod fuse;
#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "cluster/world.rs"]
mod world;

use filled::{assert_same, fill_by_mount, filled_volume, rows, shown_by_mount, shown_by_s3};
use server::{Server, margay};
use world::{World, body, wait_for_wanted};

/// A command that ends with this code; its stdout, or its stderr if it failed.
fn said(code: i32, words: &[&str], world: &World) -> String {
    let done = margay().args(words).args(["--metadata", &world.postgres.url()]).output().unwrap();
    let (out, error) = (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
    assert_eq!(done.status.code(), Some(code), "{words:?}\n{out}\n{error}");
    if code == 0 { out } else { format!("{out}{error}") }
}

fn stop(server: Server) {
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

fn adopt<'a>(data: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["cluster", "adopt", "--data", data.to_str().unwrap()];
    words.extend(more);
    words
}

#[test]
fn a_volume_of_one_server_moves_into_postgresql_and_nothing_is_missing() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let data = filled_volume(&world);
    let at = world.data("mount");
    fs::create_dir(&at).unwrap();
    let mount = format!("bucket={}", at.display());
    let server = Server::start_with(&data, &["--mount", &mount]);
    fill_by_mount(&at);
    let by_mount = shown_by_mount(&at);
    // While a server has it open it does not move.
    assert!(said(3, &adopt(&data, &[]), &world).contains("in use"));
    stop(server);
    let server = Server::start(&data);
    let by_s3 = shown_by_s3(&server);
    assert!(by_s3.len() > 150, "{}", by_s3.len());
    stop(server);
    let before = rows(&data);
    let logs = || {
        fs::read_dir(data.join("segments"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "log"))
            .count()
    };
    assert!(logs() > 1, "some bytes are in logs");

    let told: Value = serde_json::from_str(&said(0, &adopt(&data, &["--json"]), &world)).unwrap();
    assert!(told["rows"].as_u64().unwrap() as usize >= before.len(), "{told}");
    assert!(data.join("tree.before-postgresql/rows.redb").exists() && !data.join("tree").exists());
    // Nobody takes it for a volume of its own any more, nor moves it twice.
    let shown = data.to_str().unwrap();
    for words in [vec!["serve", "--address", "127.0.0.1:0", "--data", shown], vec!["scrub", "--data", shown]] {
        assert!(server::ends(3, &words).contains("PostgreSQL"));
    }
    assert!(said(3, &adopt(&data, &[]), &world).contains("already"));

    let one = world.serve("one", &["--mount", &mount]);
    assert_same(&before, &rows(&data));
    assert_eq!(by_s3, shown_by_s3(&one.server));
    assert_eq!(by_mount, shown_by_mount(&at));
    // It is a volume of several servers now, and the first store is the folder of before.
    let two = world.serve("two", &[]);
    assert_eq!(by_s3, shown_by_s3(&two.server));
    said(0, &["cluster", "set", "--copies", "2"], &world);
    wait_for_wanted(&[&one.server, &two.server], 2);
    world.put(&two, "new", &body(9));
    assert_eq!(world.get(&one, "new").unwrap().unwrap(), body(9));
    world.put(&one, "new", &body(10));
    assert_eq!(world.get(&two, "new").unwrap().unwrap(), body(10));
    // The logs among them; a few are copied at a time.
    wait_for_copies(&world);
    one.server.signal(Signal::KILL);
    assert_eq!(one.server.code(), None);
    // Its mount would stay on the machine.
    rustix::mount::unmount(at.as_path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let without = shown_by_s3(&two.server);
    for (key, bytes) in by_s3.iter().filter(|(key, _)| !key.contains('?')) {
        assert_eq!(without.get(key), Some(bytes), "{key}");
    }
}

#[test]
fn a_move_that_is_killed_leaves_the_volume_or_is_ended_by_the_same_command() {
    let Some(world) = World::new() else { return };
    let data = filled_volume(&world);
    let server = Server::start(&data);
    let by_s3 = shown_by_s3(&server);
    stop(server);
    let before = rows(&data);
    let mut ends = [0, 0, 0];
    for round in 0.. {
        let mut command = margay();
        command.args(adopt(&data, &[])).args(["--metadata", &world.postgres.url()]);
        let mut child =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        let _ = child.kill();
        let is_done = child.wait().unwrap().success();
        let format = fs::read_to_string(data.join("format")).unwrap();
        match format.trim_end().rsplit(' ').next().unwrap() {
            "1" => {
                assert!(!is_done);
                assert_same(&before, &rows(&data));
                ends[0] += 1;
            }
            "5" => ends[1] += 1,
            _ => {
                ends[2] += 1;
                break;
            }
        }
    }
    assert!(ends[0] > 0 && ends[2] == 1, "{ends:?}");
    let one = world.serve("one", &[]);
    assert_same(&before, &rows(&data));
    assert_eq!(by_s3, shown_by_s3(&one.server));
}

#[test]
fn a_move_whose_commit_was_not_answered_finds_out() {
    let Some(world) = World::new() else { return };
    let data = world.data("one");
    let server = Server::start(&data);
    server.client(&["mb", "s3://bucket"]);
    stop(server);
    let format = |number: u8| {
        fs::write(data.join("format"), format!("margay data directory, format {number}\n")).unwrap();
        fs::write(data.join("moving"), format!("{} schema margay\n", world.postgres.url())).unwrap();
    };
    // Killed before the rows were committed.
    format(5);
    assert!(
        server::ends(3, &["serve", "--address", "127.0.0.1:0", "--data", data.to_str().unwrap()]).contains("adopt")
    );
    said(0, &adopt(&data, &["--undo"]), &world);
    stop(Server::start(&data));
    format(5);
    said(0, &adopt(&data, &[]), &world);
    // Killed behind it.
    fs::rename(data.join("tree.before-postgresql"), data.join("tree")).unwrap();
    format(5);
    assert!(said(3, &adopt(&data, &["--undo"]), &world).contains("without --undo"));
    let told: Value = serde_json::from_str(&said(0, &adopt(&data, &["--json"]), &world)).unwrap();
    assert_eq!(told["was_there"], true);
    assert!(!data.join("moving").exists());
    // A volume of another server does not fit in.
    let other = world.data("other");
    stop(Server::start(&other));
    assert!(said(3, &adopt(&other, &[]), &world).contains("another"));
    stop(Server::start(&other));
    stop(world.serve("one", &[]).server);
}

#[test]
fn it_is_told_where_the_bytes_of_an_object_are() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    world.put(&one, "d/large", &body(1));
    world.put(&two, "small", b"a few bytes");
    let found = |object: &str, code: i32| -> Value {
        let done = margay().args(["object", "where", object, "--json", "--metadata", &world.postgres.url()]).output();
        let done = done.unwrap();
        assert_eq!(done.status.code(), Some(code), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap_or_default()
    };
    let large = found("bucket/d/large", 0);
    assert_eq!((&large["bytes"], &large["segments"][0]["stores"][0]["state"]), (&300_000.into(), &"running".into()));
    assert_eq!(large["segments"][0]["missing_copies"], 0);
    // The server says the same of itself.
    let data = world.data("two");
    let asked = server::ends(0, &["object", "where", "bucket/d/large", "--json", "--data", data.to_str().unwrap()]);
    assert_eq!(serde_json::from_str::<Value>(&asked).unwrap(), large);
    assert_eq!(found("bucket/small", 0)["bytes_in_row"], 11);
    found("bucket/d/none", 1);
    found("none/d", 1);
    stop(two.server);
    said(0, &["cluster", "set", "--copies", "2", "--write", "1"], &world);
    let large = found("bucket/d/large", 4);
    assert_eq!((&large["segments"][0]["missing_copies"], &large["segments"][0]["lost"]), (&1.into(), &false.into()));
    stop(one.server);
    assert_eq!(found("bucket/d/large", 4)["segments"][0]["stores"][0]["state"], "not running");
    // A volume of one server.
    let own = world.data("own");
    let server = Server::start(&own);
    server.client(&["mb", "s3://bucket"]);
    filled::Raw::of(&server).put("bucket/d/large", &body(1));
    let words = ["object", "where", "bucket/d/large", "--data", own.to_str().unwrap()];
    let running = server::ends(0, &words);
    stop(server);
    assert_eq!(running, server::ends(0, &words));
    assert!(running.contains(".pack") && running.contains("here"), "{running}");
}

/// Two servers and two copies of everything; what is written goes through both.
fn two_servers(world: &World) -> (world::Door, world::Door) {
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    said(0, &["cluster", "set", "--copies", "2"], world);
    wait_for_wanted(&[&one.server, &two.server], 2);
    for number in 0..6 {
        world.put(&one, &format!("of-one/{number}"), &body(number));
        world.put(&two, &format!("of-two/{number}"), &body(100 + number));
    }
    (one, two)
}

fn wait_for_copies(world: &World) {
    let begun = std::time::Instant::now();
    loop {
        let status: Value = serde_json::from_str(&said(0, &["cluster", "status", "--json"], world)).unwrap();
        if status["segments_with_too_few_copies"] == 0 {
            return;
        }
        assert!(begun.elapsed().as_secs() < 180, "{status}");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

fn bytes_of(door: &world::Door, world: &World) -> Vec<Vec<u8>> {
    let keys = (0..6).flat_map(|number| [format!("of-one/{number}"), format!("of-two/{number}")]);
    keys.map(|key| world.get(door, &key).unwrap().unwrap().to_vec()).collect()
}

#[test]
fn a_dump_of_two_servers_becomes_a_volume_of_one_and_that_one_of_several_again() {
    let Some(world) = World::new() else { return };
    let (one, two) = two_servers(&world);
    wait_for_copies(&world);
    let (bytes, file, back) = (bytes_of(&one, &world), world.data("dump"), world.data("back"));
    let [shown_two, shown_file, shown_back] =
        [&world.data("two"), &file, &back].map(|path| path.to_str().unwrap().to_owned());
    // By the running server, and by nobody.
    server::ends(0, &["dump", "--with-keys", "--data", &shown_two, "--out", &shown_file]);
    let before = rows(&world.data("two"));
    stop(two.server);
    stop(one.server);
    let again = world.data("dump2");
    let words = ["dump", "--with-keys", "--data", &shown_two, "--out", again.to_str().unwrap()];
    assert!(server::ends(3, &words).contains("--metadata"));
    said(0, &words, &world);

    server::ends(0, &["load", &shown_file, "--data", &shown_back]);
    let after = rows(&back);
    for key in before.keys().chain(after.keys()) {
        assert_eq!(before.get(key), after.get(key), "{}", key.escape_ascii());
    }
    let segments = |of: &str| {
        fs::read_dir(back.join("segments"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(of))
            .count()
    };
    assert!(segments("000001") > 0, "the second store made some");
    let server = Server::start(&back);
    let door = world::Door { upstream: server::far::upstream_of(&server), server };
    assert_eq!(bytes_of(&door, &world), bytes);
    // What another store had made is given back like its own.
    for number in 1..6 {
        door.server.client(&["rm", &format!("s3://bucket/of-one/{number}")]);
        door.server.client(&["rm", &format!("s3://bucket/of-two/{number}")]);
    }
    server::ends(0, &["compact", "--data", &shown_back]);
    let left = segments("000001");
    let of_two: Value = serde_json::from_str(&server::ends(
        0,
        &["object", "where", "bucket/of-two/0", "--json", "--data", &shown_back],
    ))
    .unwrap();
    assert!(of_two["segments"][0]["segment"].as_u64().unwrap() < 1 << 40, "{of_two}, {left} left");
    stop(door.server);
    server::ends(0, &["fsck", "--data", &shown_back]);

    // Into a second volume of the same database, where a new server may not give the numbers of the second store again.
    let many = world.data("many");
    let schema = ["--set", "metadata_schema=second"];
    let mut words = vec!["load", again.to_str().unwrap(), "--data", many.to_str().unwrap()];
    words.extend(schema);
    said(0, &words, &world);
    let serve = |name: &str| {
        let mut command = world.command(name, &schema);
        command.stderr(std::process::Stdio::null());
        let server = Server::started(command, &world.data(name));
        world::Door { upstream: server::far::upstream_of(&server), server }
    };
    let first = serve("many");
    assert_eq!(bytes_of(&first, &world), bytes);
    fs::create_dir(world.data("more")).unwrap();
    for name in ["keys", "identity-key", "encryption-keys"] {
        fs::copy(many.join(name), world.data("more").join(name)).unwrap();
    }
    let more = serve("more");
    assert_eq!(bytes_of(&more, &world), bytes);
    let mut words = vec!["cluster", "status", "--json"];
    words.extend(schema);
    let status: Value = serde_json::from_str(&said(0, &words, &world)).unwrap();
    assert_eq!(status["stores"][1]["store"], 2, "{status}");
    assert!(
        said(3, &["load", again.to_str().unwrap(), "--data", world.data("no").to_str().unwrap()], &world)
            .contains("another")
    );
}

#[test]
fn a_shared_volume_is_checked_while_servers_run_and_damage_is_told() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    let two = world.serve("two", &[]);
    world.put(&one, "of-one", &body(1));
    world.put(&two, "of-two", &body(2));
    let data = world.data("one");
    let check = |code: i32| -> Value {
        let done = margay()
            .args(["fsck", "--json", "--data"])
            .arg(&data)
            .args(["--metadata", &world.postgres.url()])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{}{error}", String::from_utf8_lossy(&done.stdout));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let all = check(0);
    assert_eq!((&all["files"], &all["unreachable_segments"], &all["clean"]), (&2.into(), &0.into(), &true.into()));
    // With one server at rest its directory is looked at here, beside the other one.
    stop(one.server);
    assert_eq!(check(0)["unreachable_segments"], 0);
    // What a copy left whose row could not be written is no damage: servers sweep it.
    let packs = fs::read_dir(data.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let pack = packs.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "pack")).unwrap();
    let name = format!("000007{}", &pack.file_name().unwrap().to_str().unwrap()[6..]);
    let unnamed = pack.with_file_name(name);
    fs::copy(&pack, &unnamed).unwrap();
    assert_eq!(check(0)["unnamed_copies"], 1);
    fs::remove_file(unnamed).unwrap();
    // What is not reached is not taken for lost.
    stop(two.server);
    let without = check(0);
    assert_eq!((&without["unreachable_segments"], &without["unreachable_stores"][0]), (&1.into(), &1.into()));
    for entry in fs::read_dir(data.join("segments")).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|kind| kind == "pack") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let damaged = check(4);
    assert!(
        damaged["findings"]["MissingData"].as_u64() > Some(0) && damaged.to_string().contains("of-one"),
        "{damaged}"
    );
}

#[test]
fn postgresql_that_was_restored_to_an_earlier_point_keeps_stores_and_gives_no_number_twice() {
    let Some(world) = World::new() else { return };
    let one = world.serve("one", &[]);
    one.server.client(&["mb", "s3://bucket"]);
    for number in 0..4 {
        world.put(&one, &format!("before{number}"), &body(number));
    }
    let point = world.data("point");
    let copy = |from: &Path, to: &Path| {
        assert!(std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success())
    };
    world.postgres.kill();
    copy(&world.postgres.data(), &point);
    world.postgres.begin();
    stop(one.server);
    // Three starts behind the point, each with segments of its own.
    for number in 0..3 {
        let one = world.serve("one", &[]);
        world.put(&one, &format!("behind{number}"), &body(50 + number));
        stop(one.server);
    }
    let packs = || -> std::collections::BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(world.data("one").join("segments")).unwrap().map(Result::unwrap);
        let packs = entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "pack"));
        packs.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
    };
    let known = packs();
    world.postgres.kill();
    fs::remove_dir_all(world.postgres.data()).unwrap();
    copy(&point, &world.postgres.data());
    world.postgres.begin();
    let one = world.serve("one", &[]);
    for number in 0..4 {
        assert_eq!(world.get(&one, &format!("before{number}")).unwrap().unwrap(), body(number));
    }
    assert_eq!(world.get(&one, "behind1").unwrap(), None);
    world.put(&one, "new", &body(99));
    for (name, content) in packs() {
        assert!(known.get(&name).is_none_or(|before| *before == content), "{name} was given again");
    }
    let status: Value = serde_json::from_str(&said(0, &["cluster", "status", "--json"], &world)).unwrap();
    assert_eq!(status["stores"].as_array().unwrap().len(), 1, "{status}");
    assert!(world.log().contains("restored from a backup"), "{}", world.log());
    stop(one.server);
    said(0, &["fsck", "--data", world.data("one").to_str().unwrap()], &world);
}

#[test]
fn a_backup_of_a_shared_volume_is_restored_into_another_database() {
    let Some(world) = World::new() else { return };
    let (one, two) = two_servers(&world);
    wait_for_copies(&world);
    let (bytes, place) = (bytes_of(&one, &world), world.data("backup"));
    let (place, data) = (place.to_str().unwrap(), world.data("two"));
    server::ends(0, &["backup", place, "--with-keys", "--data", data.to_str().unwrap()]);
    world.put(&one, "of-two/0", b"changed");
    server::ends(0, &["backup", place, "--with-keys", "--data", data.to_str().unwrap()]);
    let moments = server::ends(0, &["restore", place, "--list"]);
    let first = moments.lines().next().unwrap();
    let [bare, whole] = [world.data("bare"), world.data("whole")];
    server::ends(0, &["backup", bare.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    stop(one.server);
    stop(two.server);
    // Without the keys it becomes a directory, and the way on is said.
    let whole_words = ["--data", whole.to_str().unwrap(), "--set", "metadata_schema=whole"];
    let refused = said(3, &[&["restore", bare.to_str().unwrap()], &whole_words[..]].concat(), &world);
    assert!(refused.contains("put that there first") && refused.contains("margay cluster adopt --data"), "{refused}");
    for name in ["keys", "identity-key", "encryption-keys"] {
        fs::copy(data.join(name), whole.join(name)).unwrap();
    }
    let command = refused.trim().rsplit_once("margay cluster adopt").unwrap().1;
    let program = margay().get_program().to_owned();
    let shell = format!("exec {} cluster adopt {command}", program.to_str().unwrap());
    assert!(std::process::Command::new("sh").args(["-c", &shell]).status().unwrap().success(), "{shell}");
    let again = world.data("again");
    let schema = ["--set", "metadata_schema=again"];
    let mut words = vec!["restore", place, "--moment", first, "--data", again.to_str().unwrap()];
    words.extend(schema);
    said(0, &words, &world);
    let mut command = world.command("again", &schema);
    command.stderr(std::process::Stdio::null());
    let server = Server::started(command, &again);
    let door = world::Door { upstream: server::far::upstream_of(&server), server };
    assert_eq!(bytes_of(&door, &world), bytes);
    // A server that has nothing of it copies what the other one gives.
    let lone = world.data("lone");
    fs::create_dir(&lone).unwrap();
    for name in ["keys", "identity-key", "encryption-keys"] {
        fs::copy(again.join(name), lone.join(name)).unwrap();
    }
    let mut command = world.command("lone", &schema);
    command.stderr(std::process::Stdio::null());
    let other = Server::started(command, &lone);
    let [far, dumped] = [world.data("far"), world.data("dumped")].map(|path| path.to_str().unwrap().to_owned());
    let lone = lone.to_str().unwrap();
    // A server that is slow to answer counts as one that cannot be reached.
    let ends = |words: &[&str]| margay().args(words).output().unwrap().status.success();
    world::wait_until("a backup there", || ends(&["backup", &far, "--with-keys", "--data", lone]));
    let _ = fs::remove_file(&dumped);
    world::wait_until("a dump there", || ends(&["dump", "--with-keys", "--data", lone, "--out", &dumped]));
    stop(door.server);
    let refused = server::ends(1, &["backup", &far, "--data", lone]);
    assert!(refused.contains("start the other servers"), "{refused}");
    stop(other);
    for (number, way) in [["restore", &far], ["load", &dumped]].into_iter().enumerate() {
        let back = world.data(&format!("back{number}"));
        server::ends(0, &[way[0], way[1], "--data", back.to_str().unwrap()]);
        let server = Server::start(&back);
        let door = world::Door { upstream: server::far::upstream_of(&server), server };
        assert_eq!(bytes_of(&door, &world), bytes, "{way:?}");
    }
}
