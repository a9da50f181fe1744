//! A far mount with `fsync=local`: real kernel, real server, kills, and a database whose order of syncs the bucket keeps.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::far::World;

fn status(world: &World, cache: &str) -> Value {
    let cache = world.folder.path().join(cache);
    let output = world.command().args(["status", "--json", "--cache"]).arg(cache).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_was_synced_while_the_bucket_was_silent_survives_a_kill() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let mut far = world.mount_with("cache", &["--endpoint", &world.server.endpoint, "-o", "fsync=local"]);
    assert_eq!(fs::read_dir(&far.path).unwrap().count(), 0);
    world.server.signal(Signal::STOP);
    for number in 0..20 {
        let mut file = fs::File::create(far.path.join(format!("file-{number}"))).unwrap();
        file.write_all(format!("content {number}").as_bytes()).unwrap();
        file.sync_all().unwrap();
        fs::rename(far.path.join(format!("file-{number}")), far.path.join("last")).unwrap();
    }
    far.sync();
    let told = status(&world, "cache");
    assert_eq!(told["fsync"], "local");
    assert!(told["waiting"]["syncs"].as_u64().unwrap() >= 20, "{told}");
    far.kill();
    world.server.signal(Signal::CONT);
    // The order is kept by any mount of the cache.
    let far = world.mount("cache");
    assert_eq!(fs::read_to_string(far.path.join("last")).unwrap(), "content 19");
    assert_eq!(fs::read_dir(&far.path).unwrap().count(), 1);
    assert_eq!(far.end(), Some(0));
    let left = status(&world, "cache");
    assert_eq!((&left["waiting"]["files"], &left["waiting"]["syncs"]), (&0.into(), &0.into()), "{left}");
    let far = world.mount("new-cache");
    assert_eq!(fs::read_to_string(far.path.join("last")).unwrap(), "content 19");
    assert_eq!(far.end(), Some(0));
}

const COMMITS: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute('PRAGMA synchronous=EXTRA')
base.execute('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, a BLOB, b BLOB)')
for number in range(100000):
    base.execute('INSERT INTO t (a, b) VALUES (randomblob(3000), randomblob(3000))')
    # A change of many pages: half of it is a broken database.
    base.execute('UPDATE t SET b = a WHERE n % 7 = ?', (number % 7,))
    print(number, flush=True)
";

const CHECK: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
assert base.execute('PRAGMA integrity_check').fetchone() == ('ok',)
found = base.execute('SELECT count(*), max(n) FROM t').fetchone()
assert found[0] == (found[1] or 0), found
print(found[0])
";

fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]);
    command
}

/// The cache burns in the midst of commits: what the bucket has is a database at one of them.
#[test]
fn a_database_in_the_bucket_is_whole_at_every_moment() {
    let has_sqlite = python("import sqlite3").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if fuse::must_not_mount() || !has_sqlite {
        return;
    }
    let world = World::new();
    let mut rows = 0;
    for round in 0..3 {
        let cache = format!("cache-{round}");
        let mut far = world.mount_with(&cache, &["--endpoint", &world.server.endpoint, "-o", "fsync=local"]);
        let mut writer = python(COMMITS);
        writer.arg(far.path.join("base")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut writer = writer.spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(writer.stdout.take().unwrap()));
        for _ in 0..25 {
            lines.next().unwrap().unwrap();
        }
        std::thread::sleep(Duration::from_millis(70 * round));
        far.kill();
        writer.kill().unwrap();
        writer.wait().unwrap();
        let far = world.mount(&format!("look-{round}"));
        let found = python(CHECK).arg(far.path.join("base")).output().unwrap();
        let complaint = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(found.status.success(), "round {round}: {complaint}");
        let now: u64 = String::from_utf8_lossy(&found.stdout).trim().parse().unwrap();
        assert!(now >= rows, "round {round}: {now} rows after {rows}");
        rows = now;
        assert_eq!(far.end(), Some(0));
    }
    println!("evidence: a database in the bucket: {rows} rows after 3 lost caches");
}
