//! Mounts of one volume at several servers: who may write, what others see, and who takes over from a server that is gone.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::Signal;

#[path = "server/fuse.rs"]
mod fuse;
#[path = "cluster/mounting.rs"]
mod mounting;
#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[path = "cluster/world.rs"]
mod world;

use mounting::{Mountings, is_refused, mount};
use world::{World, body, wait_until};

/// With its errors, which a close alone does not tell a Rust program.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// As `mount`, of what was given back just now. A server that stood still on a busy machine gives back with its next beat.
fn mount_given_back(world: &World, server: &str, what: &str, at: &Path, options: &str) {
    let until = Instant::now() + server::TIME_MAX;
    while let Err(said) = mount(world, server, what, at, options) {
        assert!(said.contains("is mounted read-write by") && Instant::now() < until, "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn one_server_mounts_to_write_and_others_to_read_or_shared() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let [first, second] = ["first", "second"].map(|name| points.at(name));
    mount(&world, "one", "bucket", &first, "").unwrap();
    // What overlaps is refused in one line that names who has it.
    let said = mount(&world, "two", "bucket", &second, "").unwrap_err();
    assert!(
        said.contains("bucket/ is mounted read-write by ")
            && said.contains("-o ro")
            && said.trim().lines().count() == 1
    );
    assert!(said.contains("127.0.0.1:") && said.contains(" since 2"), "{said}");
    assert!(mount(&world, "two", "bucket", &second, "shared").unwrap_err().contains("mounted read-write by"));
    fs::create_dir_all(first.join("a/b")).unwrap();
    assert!(is_refused(mount(&world, "two", "bucket/a", &second, "")));
    // Other buckets and S3 are free, and so is a second mount of the same server.
    world.put(&two, "by-s3", b"1");
    mount(&world, "two", "other", &second, "").unwrap();
    mount(&world, "one", "bucket/a", &points.at("view"), "").unwrap();
    points.unmount(&world, "one", "view");
    points.unmount(&world, "two", "second");
    points.unmount(&world, "one", "first");
    // Beside each other there is room for two.
    mount_given_back(&world, "two", "bucket/a/b", &second, "");
    assert!(is_refused(mount(&world, "one", "bucket", &first, "")));
    assert!(is_refused(mount(&world, "one", "bucket/a", &first, "")));
    fs::create_dir_all(second.join("c")).unwrap();
    assert!(is_refused(mount(&world, "one", "bucket/a/b/c", &first, "")));
    world.put(&one, "beside/x", b"1");
    mount(&world, "one", "bucket/beside", &first, "").unwrap();
    points.unmount(&world, "one", "first");
    points.unmount(&world, "two", "second");
    // Shared ones let each other in, and nobody who wants to be alone.
    mount_given_back(&world, "one", "bucket", &first, "shared");
    let said = mount(&world, "two", "bucket", &second, "").unwrap_err();
    assert!(said.contains("and shared by") && said.contains("-o shared"), "{said}");
    mount(&world, "two", "bucket", &second, "shared").unwrap();
    fs::write(first.join("s"), "first").unwrap();
    assert_eq!(read(&second.join("s")), "first");
}

#[test]
fn an_open_elsewhere_shows_what_was_closed_before_it() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (_one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let [writer, reader] = ["writer", "reader"].map(|name| points.at(name));
    mount(&world, "one", "bucket", &writer, "").unwrap();
    mount(&world, "two", "bucket", &reader, "ro").unwrap();
    let (there, here) = (writer.join("file"), reader.join("file"));
    fs::write(&there, "begin").unwrap();
    assert_eq!(read(&here), "begin");
    // Held open all the time, so that the server has a state of it, and the kernel pages.
    let mut held = File::open(&here).unwrap();
    let mut text = "begin".to_owned();
    for round in 0..60_usize {
        // Of the same length, longer, shorter; in place, by another file, and by S3.
        let next: String = text.bytes().map(|byte| char::from(b'a' + (byte + 1) % 26)).chain(['x'; 3]).collect();
        text = next[..next.len() - round % 5].to_owned();
        match round % 3 {
            0 => {
                let mut file = File::options().write(true).open(&there).unwrap();
                file.write_all(text.as_bytes()).unwrap();
                file.set_len(text.len() as u64).unwrap();
            }
            1 => {
                fs::write(writer.join("next"), &text).unwrap();
                fs::rename(writer.join("next"), &there).unwrap();
            }
            _ => world.put(&two, "file", text.as_bytes()),
        }
        if round % 3 == 2 {
            // The writer's own mount is told by the feed.
            wait_until("the mount that writes shows what S3 put elsewhere", || read(&there) == text);
        }
        assert_eq!(read(&here), text, "round {round}");
        assert_eq!(fs::metadata(&here).unwrap().len(), text.len() as u64);
        if round % 7 == 6 {
            held = File::open(&here).unwrap();
        }
        // Whatever version it shows, no bytes of none.
        let mut old = Vec::new();
        held.seek(SeekFrom::Start(0)).unwrap();
        held.read_to_end(&mut old).unwrap();
        assert!(!old.contains(&0), "round {round}: {old:?}");
    }
    assert_eq!(fs::write(&here, "no").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    fs::remove_file(&there).unwrap();
    wait_until("what was removed is gone elsewhere", || File::open(&here).is_err());
}

#[test]
fn an_open_file_that_s3_removes_or_replaces_at_another_server_goes_on_without_a_name() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (_one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let at = points.at("m");
    mount(&world, "one", "bucket", &at, "").unwrap();
    for (name, replaced) in [("removed", None), ("replaced", Some(body(9)))] {
        fs::write(at.join(name), body(1)).unwrap();
        let mut file = File::options().read(true).write(true).open(at.join(name)).unwrap();
        file.write_all(b"before").unwrap();
        match &replaced {
            None => world.runtime.block_on(two.upstream.delete(name)).unwrap(),
            Some(body) => world.put(&two, name, body),
        }
        file.write_all(b" and after").unwrap();
        file.sync_all().unwrap();
        let mut all = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut all).unwrap();
        assert_eq!((&all[..16], all.len()), (&b"before and after"[..], body(1).len()));
        drop(file);
        let found = world.get(&two, name).unwrap().map(|bytes| bytes.to_vec());
        assert_eq!(found, replaced, "what was written to a file without a name does not come back");
    }
}

#[test]
fn locks_are_given_where_all_who_write_see_them() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (_one, _two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let [writer, reader] = ["writer", "reader"].map(|name| points.at(name));
    mount(&world, "one", "bucket", &writer, "").unwrap();
    fs::write(writer.join("f"), "x").unwrap();
    let locks = |at: &Path| {
        let (file, other) = (File::open(at.join("f")).unwrap(), File::open(at.join("f")).unwrap());
        let flock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let again = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        let fcntl = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
        rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
        (flock.err(), again.err(), fcntl.err())
    };
    let refused = Some(rustix::io::Errno::NOLCK);
    let given = (None, Some(rustix::io::Errno::WOULDBLOCK), None);
    assert_eq!(locks(&writer), given);
    for (options, expected) in [("ro", (refused, refused, refused)), ("ro,locks=local", given)] {
        mount(&world, "two", "bucket", &reader, options).unwrap();
        assert_eq!(locks(&reader), expected, "{options}");
        points.unmount(&world, "two", "reader");
    }
}

/// The bucket at the two servers, both of which write.
fn both_shared(world: &World, points: &Mountings) -> [PathBuf; 2] {
    ["one", "two"].map(|server| {
        let at = points.at(server);
        mount(world, server, "bucket", &at, "shared").unwrap();
        at
    })
}

/// Both ways of locking, held over a read and a write of a number, by programs at two servers; a close, or an order, gives back. What was
/// renamed under the lock is there under the next one.
const COUNT: &str = "
import fcntl, os, sys
path, way, end, rounds = sys.argv[1:]
lock = fcntl.lockf if way == 'fcntl' else fcntl.flock
for _ in range(int(rounds)):
    file = os.open(path, os.O_RDWR)
    lock(file, fcntl.LOCK_EX)
    number = int(os.pread(file, 20, 0))
    names = [os.path.exists(f'{path}.{one}') for one in range(number - 1, number + 2)]
    assert names == [False, True, False], (number, names)
    os.pwrite(file, b'%d' % (number + 1), 0)
    os.rename(f'{path}.{number}', f'{path}.{number + 1}')
    if end == 'unlock':
        lock(file, fcntl.LOCK_UN)
    os.close(file)
";
/// Says that it asks for the lock and that it has it, and then holds it until it is killed.
const HOLD: &str = "
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
print('asks', flush=True)
fcntl.lockf(file, fcntl.LOCK_EX)
os.pwrite(file, b'held', 0)
print('held', flush=True)
time.sleep(600)
";

fn python(program: &str, path: &Path, words: &[&str]) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(path).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn programs_at_two_servers_agree_by_locks() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (one, _two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let both = both_shared(&world, &points);
    for (way, end) in [("fcntl", "unlock"), ("fcntl", "close"), ("flock", "unlock"), ("flock", "close")] {
        let name = format!("{way}-{end}");
        fs::write(both[0].join(&name), "0").unwrap();
        fs::write(both[0].join(format!("{name}.0")), "").unwrap();
        let count = |at: &PathBuf| python(COUNT, &at.join(&name), &[way, end, "15"]);
        let counting: Vec<_> = both.iter().chain(&both).map(count).collect();
        for mut one in counting {
            assert!(one.wait().unwrap().success(), "{name}: {}", world.log());
        }
        both.iter().for_each(|at| assert_eq!(read(&at.join(&name)), "60", "{name}"));
    }
    let fcntl = both[0].join("fcntl-close");
    // A program that waits can be killed, and one that does not wait is told.
    let mut holder = python(HOLD, &fcntl, &[]);
    says(&mut holder, "asks\nheld\n");
    let file = File::options().read(true).write(true).open(both[1].join("fcntl-close")).unwrap();
    let tried = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
    assert_eq!(tried, Err(rustix::io::Errno::AGAIN));
    let mut waiting = python(HOLD, &both[1].join("fcntl-close"), &[]);
    says(&mut waiting, "asks\n");
    wait_until("it waits", || is_asleep(waiting.id()));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    // A program that ends gives its locks back, and a server that is gone loses them.
    holder.kill().unwrap();
    holder.wait().unwrap();
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    rustix::fs::fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    // Also when nobody answers while it ends.
    let mut holder = python(HOLD, &fcntl, &[]);
    says(&mut holder, "asks\nheld\n");
    world.postgres.kill();
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("its server could not give the lock back", || world.log().contains("is given back later"));
    world.postgres.begin();
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    rustix::fs::fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    let mut holder = python(HOLD, &fcntl, &[]);
    says(&mut holder, "asks\nheld\n");
    one.server.signal(Signal::KILL);
    assert_eq!(one.server.code(), None);
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    assert!(world.log().contains("a mount of a dead server is over, and its locks with it"), "{}", world.log());
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// Adds rows to a database, each in a transaction that reads how many there are.
const INSERT: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=300, isolation_level=None)
for _ in range(int(sys.argv[2])):
    base.execute('BEGIN IMMEDIATE')
    count = base.execute('SELECT count(*) FROM t').fetchone()[0]
    base.execute('INSERT INTO t VALUES (?, ?)', (count, 'x' * 3000))
    base.execute('COMMIT')
";
/// Changes all rows in one transaction that is larger than its cache, and is killed in it.
const CHANGE: &str = "
import os, signal, sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=300, isolation_level=None)
base.execute('PRAGMA cache_size = 5')
base.execute('BEGIN IMMEDIATE')
for number in range(40):
    base.execute('UPDATE t SET body = ? WHERE number = ?', ('y' * 3000, number))
os.kill(os.getpid(), signal.SIGKILL)
";
/// Whoever has the lock next takes back what was half done.
const READ: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=300)
assert base.execute('SELECT DISTINCT substr(body, 1, 1) FROM t').fetchall() == [('x',)]
";
const CHECK: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=300)
rows = [row[0] for row in base.execute('SELECT number FROM t ORDER BY number')]
assert rows == list(range(int(sys.argv[2]))), rows
assert base.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
";
const CREATE: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
base.execute('CREATE TABLE t(number INTEGER PRIMARY KEY, body TEXT)')
base.commit()
";

#[test]
fn a_database_is_written_at_two_servers() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (_one, _two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let both = both_shared(&world, &points);
    let done = |mut child: Child| assert!(child.wait().unwrap().success(), "{}", world.log());
    done(python(CREATE, &both[0].join("base"), &[]));
    both.iter().map(|at| python(INSERT, &at.join("base"), &["20"])).collect::<Vec<_>>().into_iter().for_each(done);
    both.iter().for_each(|at| done(python(CHECK, &at.join("base"), &["40"])));
    for round in 0..6 {
        let (at, other) = (&both[round % 2], &both[(round + 1) % 2]);
        // Its kernel knows that there is no journal.
        done(python(READ, &other.join("base"), &[]));
        assert!(!python(CHANGE, &at.join("base"), &[]).wait().unwrap().success());
        done(python(READ, &other.join("base"), &[]));
    }
    both.iter().for_each(|at| done(python(CHECK, &at.join("base"), &["40"])));
}

fn says(child: &mut Child, words: &str) {
    let mut said = vec![0; words.len()];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(said, words.as_bytes());
}

fn is_asleep(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['S', 'D']))
}

#[test]
fn a_mount_of_a_killed_server_is_taken_over() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let [first, second] = ["first", "second"].map(|name| points.at(name));
    mount(&world, "one", "bucket", &first, "").unwrap();
    fs::write(first.join("f"), "closed").unwrap();
    File::open(first.join("f")).unwrap().sync_all().unwrap();
    one.server.signal(Signal::KILL);
    assert_eq!(one.server.code(), None);
    wait_until("it is taken over", || mount(&world, "two", "bucket", &second, "").is_ok());
    // Its row is there; its only copy is at the server that is gone.
    assert_eq!(fs::metadata(second.join("f")).unwrap().len(), 6);
    fs::write(second.join("g"), "by the other one").unwrap();
    // The first one comes back, and is refused as anybody.
    let one = world.serve("one", &[]);
    assert!(is_refused(mount(&world, "one", "bucket", &first, "")));
    points.unmount(&world, "two", "second");
    mount(&world, "one", "bucket", &first, "").unwrap();
    assert_eq!((read(&first.join("f")), read(&first.join("g"))), ("closed".into(), "by the other one".into()));
    for door in [one, two] {
        door.server.signal(Signal::TERM);
        assert_eq!(door.server.code(), Some(0), "{}", world.log());
    }
}

#[test]
fn a_server_that_stood_still_past_a_takeover_writes_nothing() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (one, _two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let [first, second] = ["first", "second"].map(|name| points.at(name));
    mount(&world, "one", "bucket", &first, "").unwrap();
    fs::write(first.join("f"), "before").unwrap();
    // In a process of its own: one that starts others waits for the stopped server, which is asked to close their descriptors.
    let mut late = Command::new("dd");
    late.arg(format!("of={}", first.join("f").display())).args(["conv=notrunc,fsync", "bs=14", "status=none"]);
    let mut late = late.stdin(Stdio::piped()).spawn().unwrap();
    late.stdin.as_mut().unwrap().write_all(b"late, too late").unwrap();
    // Not read: closing what it was read through would publish it.
    wait_until("it is written and not closed", || fs::metadata(first.join("f")).unwrap().len() == 14);
    one.server.signal(Signal::STOP);
    wait_until("it is taken over", || mount(&world, "two", "bucket", &second, "").is_ok());
    write(&second.join("f"), "after").unwrap();
    one.server.signal(Signal::CONT);
    // At once, when it does not know yet.
    let made = write(&first.join("g"), "g");
    assert!(made.is_err(), "{made:?}");
    drop(late.stdin.take());
    assert!(!late.wait().unwrap().success(), "what nobody publishes was synced: {}", world.log());
    let renamed = fs::rename(first.join("f"), first.join("h"));
    assert!(renamed.is_err(), "{renamed:?}");
    wait_until("it says so", || world.log().contains("took this mount over"));
    // With a session of its own again, too.
    wait_until("it has a new session", || world.try_put(&one, "s3", b"free").is_ok());
    assert!(write(&first.join("g"), "g").is_err() && fs::remove_file(first.join("f")).is_err());
    assert!(server::ends(0, &["mounts", "--data", world.data("one").to_str().unwrap()]).contains("taken over"));
    assert_eq!(
        (read(&second.join("f")), second.join("g").exists(), second.join("h").exists()),
        ("after".into(), false, false)
    );
    // It reads on, and is a mount as any other once it is mounted anew.
    assert_eq!(read(&first.join("f")), "after");
    points.unmount(&world, "one", "first");
    mount(&world, "one", "bucket", &first, "ro").unwrap();
    assert_eq!(read(&first.join("f")), "after");
}

#[test]
fn a_server_that_stood_still_and_was_not_taken_over_goes_on() {
    if fuse::must_not_mount() {
        return;
    }
    let Some(world) = World::new() else { return };
    let (one, two) = (world.serve("one", &[]), world.serve("two", &[]));
    let points = Mountings::new(&world);
    let [first, second] = ["first", "second"].map(|name| points.at(name));
    mount(&world, "one", "bucket", &first, "").unwrap();
    one.server.signal(Signal::STOP);
    wait_until("it is taken for dead", || world.log().contains("a process is taken for dead"));
    one.server.signal(Signal::CONT);
    wait_until("it writes again", || write(&first.join("f"), "again").is_ok());
    assert_eq!(world.get(&two, "f").unwrap().unwrap(), "again");
    // In its new session it has the lease as before.
    wait_until("nobody takes it over", || is_refused(mount(&world, "two", "bucket", &second, "ro,rw")));
    assert!(write(&first.join("f"), "and again").is_ok());
}
