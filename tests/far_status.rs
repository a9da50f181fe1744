//! What a far mount tells of itself, and commands that wait for it: real kernel, real server, and a way to it that is cut.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::far::{SmallDisk, World};
use server::proxy::Proxy;
use server::{TIME_MAX, until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(world: &World, arguments: &[&str]) -> Output {
    world.command().args(arguments).output().unwrap()
}

/// The stdout of a command that succeeds.
fn done(world: &World, arguments: &[&str]) -> String {
    let output = run(world, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The stderr of a command that fails.
fn fails(world: &World, arguments: &[&str]) -> String {
    let output = run(world, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn status(world: &World, place: &str) -> Value {
    serde_json::from_str(&done(world, &["status", place, "--json"])).unwrap()
}

fn state(path: &Path) -> String {
    let mut value = [0; 500];
    let len = rustix::fs::getxattr(path, "user.margay.status", &mut value[..]).unwrap();
    text(&value[..len])
}

/// The page of metrics at the address that the log names.
fn page(world: &World) -> String {
    let log = fs::read_to_string(world.folder.path().join("log")).unwrap();
    let line = log.lines().find(|line| line.contains("\"message\":\"metrics\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let mut stream = TcpStream::connect(line["address"].as_str().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: margay\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn a_bucket_that_does_not_answer_is_told() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    let far = world.mount_at("cache", &proxy.endpoint);
    let (place, cache) = (far.path.to_str().unwrap(), world.folder.path().join("cache"));
    let file = far.path.join("file");
    fs::write(&file, "content").unwrap();
    done(&world, &["sync", file.to_str().unwrap()]);
    assert!(world.keys("sub/").contains("file"));
    assert_eq!(state(&file), "clean");
    let shown = status(&world, "s3://bucket/sub");
    assert!(shown["waiting"]["files"] == 0 && shown["connection"]["answers"] == true, "{shown}");
    assert!(shown["honoured"]["replace"] == true && shown["path"] == place, "{shown}");
    assert!(shown["store"]["name"] == "margay" && shown["open"] == "3s" && shown["fsync"] == "upstream", "{shown}");
    assert!(
        shown["requests"]["limit"].is_u64() && shown["requests"]["limit"] == shown["requests"]["limit_max"],
        "{shown}"
    );
    proxy.cut();
    fs::write(&file, "other content").unwrap();
    until("the silence is seen", || status(&world, place)["connection"]["answers"] == false);
    let shown = done(&world, &["status", place]);
    assert!(shown.starts_with("WRONG: the bucket has not answered since 20"), "{shown}");
    assert!(shown.contains("1 file, 13 bytes to send"), "{shown}");
    let rows = done(&world, &["mounts"]);
    assert!(rows.contains(&format!("s3://bucket/sub on {place} (rw")) && rows.contains("WRONG"), "{rows}");
    assert_eq!(server::metric(&cache, "margay_far_waiting_files"), 1);
    assert!(server::metric(&cache, "margay_far_requests_total") > 0);
    assert!(page(&world).lines().any(|line| line == "margay_far_waiting_files 1"));
    assert!(state(&file).starts_with("dirty 13 bytes") || state(&file).starts_with("error "), "{}", state(&file));
    assert!(rustix::fs::setxattr(&file, "user.margay.status", b"x", rustix::fs::XattrFlags::empty()).is_err());
    let log = || fs::read_to_string(world.folder.path().join("log")).unwrap();
    until("the log tells", || log().contains("the bucket does not answer"));
    let mut waits = world.command().args(["sync", place]).stderr(Stdio::null()).spawn().unwrap();
    proxy.mend();
    assert_eq!(waits.wait().unwrap().code(), Some(0));
    assert_eq!(state(&file), "clean");
    assert_eq!(status(&world, place)["connection"]["answers"], true);
    until("the log tells the end", || log().contains("the bucket answers again"));
    assert_eq!(log().matches("the bucket does not answer").count(), 1);
    assert!(log().matches("a change is not in the bucket yet").count() <= 3, "a line for each cause\n{}", log());
    assert_eq!(far.end(), Some(0));
}

#[test]
fn a_refused_file_is_told_with_what_to_do() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let far = world.mount("cache");
    let quota = |objects: &str| {
        let data = world.server.data.to_str().unwrap().to_owned();
        server::ends(0, &["bucket", "quota", "bucket", "--objects", objects, "--data", &data])
    };
    let (place, file) = (far.path.to_str().unwrap(), far.path.join("file"));
    until("the store was asked", || status(&world, place)["honoured"].is_object());
    quota("0");
    fs::write(&file, "content").unwrap();
    let refused = fails(&world, &["sync", file.to_str().unwrap()]);
    assert!(refused.contains("QuotaExceeded"), "{refused}");
    let failure = status(&world, place)["failures"][0].clone();
    assert!(failure["key"] == "sub/file" && failure["code"] == "QuotaExceeded", "{failure}");
    assert!(failure["refused"] == true && failure["advice"] == "make room in the bucket", "{failure}");
    let shown = done(&world, &["status", place]);
    assert!(shown.starts_with("WRONG: sub/file is refused: QuotaExceeded"), "{shown}");
    assert!(state(&file).starts_with("error QuotaExceeded "), "{}", state(&file));
    assert_eq!(server::metric(&world.folder.path().join("cache"), "margay_far_failures"), 1);
    let log = fs::read_to_string(world.folder.path().join("log")).unwrap();
    let line = log.lines().find(|line| line.contains("the bucket refuses a change")).unwrap();
    assert!(line.contains("sub/file") && line.contains("make room in the bucket"), "{line}");
    // Whoever asks for it again has made room, so nobody waits for the next try.
    quota("none");
    let begun = Instant::now();
    done(&world, &["sync", "s3://bucket/sub"]);
    assert!(begun.elapsed() < TIME_MAX && world.keys("sub/").contains("file"));
    assert_eq!(state(&file), "clean");
    assert_eq!(far.end(), Some(0));
}

#[test]
fn unmount_waits_or_leaves_the_rest_in_the_cache() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let proxy = Proxy::start(&world.server.endpoint);
    // Longer than the path of a socket may be.
    let name = format!("a-long-path/{}", "cache".repeat(30));
    let cache = world.folder.path().join(&name);
    let mut far = world.mount_at(&name, &proxy.endpoint);
    let place = far.path.to_str().unwrap().to_owned();
    assert_eq!(fs::read_dir(&far.path).unwrap().count(), 0, "what is listed needs no bucket");
    proxy.cut();
    fs::write(far.path.join("file"), "content").unwrap();
    let now = run(&world, &["unmount", &place, "--now"]);
    let said = text(&now.stderr);
    assert_eq!(now.status.code(), Some(0), "{said}");
    assert!(
        said.contains("1 change (7 bytes) is not in the bucket yet") && said.contains("margay sync --cache"),
        "{said}"
    );
    assert!(!far.is_mounted());
    assert_eq!(far.child.wait().unwrap().code(), Some(1), "something is left");
    let rows: Value = serde_json::from_str(&done(&world, &["mounts", "--json"])).unwrap();
    assert!(rows[0]["running"] == false && rows[0]["waiting"]["files"] == 1, "{rows}");
    let cache = cache.to_str().unwrap();
    let shown = done(&world, &["status", "--cache", cache]);
    assert!(shown.contains("1 file, 7 bytes to send") && shown.contains("none runs: margay sync"), "{shown}");
    assert!(fails(&world, &["unmount", &place]).contains("its process is gone"));
    proxy.mend();
    done(&world, &["sync", "--cache", cache]);
    assert!(world.keys("sub/").contains("file"));
    // Mounts of others may be there.
    assert!(!text(&run(&world, &["mounts"]).stdout).contains(cache), "nothing is left");
    let mut far = world.mount_at(&name, &proxy.endpoint);
    for number in 0..200 {
        fs::write(far.path.join(format!("{number}")), "content").unwrap();
    }
    done(&world, &["unmount", &place]);
    assert_eq!(world.keys("sub/").lines().count(), 201);
    // The cache is free at once.
    let mut again = world.mount_at(&name, &proxy.endpoint);
    assert_eq!(far.child.wait().unwrap().code(), Some(0));
    kill_process(Pid::from_raw(again.child.id() as i32).unwrap(), Signal::KILL).unwrap();
    again.child.wait().unwrap();
    let rows = done(&world, &["mounts"]);
    assert!(
        rows.contains(&format!("the process of the mount at {place} is gone; margay unmount {place} frees it")),
        "{rows}"
    );
    done(&world, &["unmount", &place]);
    assert!(!again.is_mounted());
}

#[test]
fn a_mount_that_could_not_begin_leaves_no_cache_behind() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let (cache, file) = (world.folder.path().join("cache-1"), world.folder.path().join("file"));
    fs::write(&file, "content").unwrap();
    let words =
        ["mount", "s3://bucket/sub", file.to_str().unwrap(), "--foreground", "--cache", cache.to_str().unwrap()];
    assert!(fails(&world, &words).contains("cannot be made"));
    let far = world.mount("cache-2");
    assert_eq!(status(&world, "s3://bucket/sub")["path"], far.path.to_str().unwrap());
    done(&world, &["sync", "s3://bucket/sub"]);
    assert_eq!(far.end(), Some(0));
}

#[test]
fn a_cache_disk_that_others_have_filled_is_told() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let disk = SmallDisk::new(world.folder.path().join("disk"), 300);
    let far = world.mount("disk/cache");
    let (place, cache) = (far.path.to_str().unwrap().to_owned(), disk.0.join("cache"));
    assert!(!done(&world, &["status", &place]).contains("is full"));
    // Until nothing more fits.
    let mut filler = fs::File::create(disk.0.join("filler")).unwrap();
    for size in [1 << 20, 4096] {
        while filler.write_all(&vec![1; size]).is_ok() {}
    }
    let full = format!("the disk of the cache {} is full", cache.display());
    let shown = done(&world, &["status", &place]);
    assert!(shown.contains(&format!("WRONG: {full}")) && shown.contains("make room on it"), "{shown}");
    let _ = far.end();
    let words = ["mount", "s3://bucket/sub", &place, "--foreground", "--cache", cache.to_str().unwrap()];
    let said = fails(&world, &words);
    assert!(said.contains(&full) && said.contains("make room on it"), "{said}");
    drop(filler);
    fs::remove_file(disk.0.join("filler")).unwrap();
    assert_eq!(world.mount("disk/cache").end(), Some(0));
}

#[test]
fn a_place_that_is_no_mount_is_an_error_in_json() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let told = |arguments: &[&str]| {
        let output = run(&world, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        value["error"].as_str().unwrap().to_owned()
    };
    let place = world.folder.path().join("none");
    let place = place.to_str().unwrap();
    for words in [&["sync", place][..], &["warm", place], &["status", place], &["unmount", place, "--now"]] {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        assert!(told(&words).contains("is no far mount"), "{words:?}");
    }
    let (first, second) = (world.mount("cache-1"), world.mount_beside("cache-2"));
    for command in ["sync", "status"] {
        assert!(told(&[command, "s3://bucket/sub", "--json"]).contains("has several caches"), "{command}");
    }
    assert_eq!((first.end(), second.end()), (Some(0), Some(0)));
}

#[test]
fn a_mount_in_the_place_of_a_killed_one_is_the_one_that_is_meant() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    // Its entry is the first one of this place.
    world.mount("cache-1").kill();
    let mut far = world.mount("cache-2");
    let place = far.path.to_str().unwrap().to_owned();
    assert_eq!(status(&world, &place)["cache"], world.folder.path().join("cache-2").to_str().unwrap());
    for number in 0..200 {
        fs::write(far.path.join(format!("{number}")), "content").unwrap();
    }
    done(&world, &["unmount", &place]);
    assert!(!far.is_mounted() && far.child.wait().unwrap().success());
    let keys = world.keys("sub/");
    // The one that was killed may have left what it tried the store with.
    assert_eq!(keys.lines().filter(|line| !line.contains(".margay-tmp/")).count(), 200, "{keys}");
}

#[test]
fn conflicts_are_known_after_a_restart() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let put = |bytes| drop(world.put("dir/file", bytes));
    put(100);
    let proxy = Proxy::start(&world.server.endpoint);
    let far = world.mount_at("cache", &proxy.endpoint);
    let place = far.path.to_str().unwrap().to_owned();
    assert_eq!(fs::read(far.path.join("dir/file")).unwrap().len(), 100);
    proxy.cut();
    fs::write(far.path.join("dir/file"), "mine").unwrap();
    put(200);
    proxy.mend();
    done(&world, &["sync", &place]);
    let check = |status: &Value| {
        let names = status["conflicts"].as_array().unwrap();
        assert!(names.len() == 1 && names[0].as_str().unwrap().starts_with("dir/file.conflict-20"), "{status}");
    };
    check(&status(&world, &place));
    let all = done(&world, &["status", &place, "--conflicts"]);
    assert!(
        all.starts_with("CONFLICT: 1 file changed here and in the bucket") && all.contains("dir/file.conflict-"),
        "{all}"
    );
    assert_eq!(server::metric(&world.folder.path().join("cache"), "margay_far_conflicts_total"), 1);
    let log = fs::read_to_string(world.folder.path().join("log")).unwrap();
    assert!(!log.contains("\"ERROR\""), "{log}");
    done(&world, &["unmount", &place]);
    drop(far);
    let far = world.mount_at("cache", &proxy.endpoint);
    check(&status(&world, &place));
    assert_eq!(far.end(), Some(0));
    let cache = world.folder.path().join("cache");
    let shown = done(&world, &["status", "--cache", cache.to_str().unwrap(), "--conflicts", "--json"]);
    check(&serde_json::from_str(&shown).unwrap());
}
