//! A bucket of a server, mounted by another process with a cache of its own: real kernel, real requests.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::XattrFlags;
use rustix::process::{Pid, Signal, kill_process};

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::far::{Far, SmallDisk, World};

fn content(number: usize) -> Vec<u8> {
    (0..number * 977 % 300_000).map(|index| (index * number % 251) as u8).collect()
}

fn fill(directory: &Path, files: usize) {
    fs::create_dir_all(directory.join("deep/er")).unwrap();
    for number in 0..files {
        let name = if number % 3 == 0 { format!("deep/er/{number}") } else { format!("{number}") };
        fs::write(directory.join(name), content(number)).unwrap();
    }
}

fn check(directory: &Path, files: usize) {
    for number in 0..files {
        let name = if number % 3 == 0 { format!("deep/er/{number}") } else { format!("{number}") };
        assert!(fs::read(directory.join(&name)).unwrap() == content(number), "{name}");
    }
}

#[test]
fn a_far_bucket_is_a_file_system() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let already = world.put("there/already", 3 << 20);
    let far = world.mount("cache");
    assert!(fs::read(far.path.join("there/already")).unwrap() == already);
    fill(&far.path.join("tree"), 60);
    fs::set_permissions(far.path.join("tree/1"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("tree/1", far.path.join("link")).unwrap();
    fs::rename(far.path.join("tree"), far.path.join("moved")).unwrap();
    fs::rename(far.path.join("there"), far.path.join("here")).unwrap();
    // A byte in the middle of what was never read here as a whole.
    let near = fs::OpenOptions::new().write(true).open(far.path.join("here/already")).unwrap();
    std::os::unix::fs::FileExt::write_at(&near, b"!", 1 << 20).unwrap();
    // It is in the bucket when fsync returns.
    near.sync_all().unwrap();
    drop(near);
    assert!(world.keys("sub/here/").contains("already"));
    far.sync();
    assert!(!world.keys("sub/").contains("tree") && world.keys("sub/").contains("moved"));
    let linked = fs::hard_link(far.path.join("moved/1"), far.path.join("other"));
    assert_eq!(linked.unwrap_err().raw_os_error(), Some(1), "an object has one key");
    fs::remove_file(far.path.join("moved/2")).unwrap();
    assert_eq!(far.end(), Some(0));
    assert!(!world.keys("sub/moved/").contains(" s3://bucket/sub/moved/2\n"), "what was unmounted is in the bucket");
    // A new cache knows what the bucket has.
    let far = world.mount("other-cache");
    fs::write(far.path.join("moved/2"), content(2)).unwrap();
    check(&far.path.join("moved"), 60);
    let mut expected = already;
    expected[1 << 20] = b'!';
    assert!(fs::read(far.path.join("here/already")).unwrap() == expected);
    let found = fs::metadata(far.path.join("moved/1")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len()), (0o640, content(1).len() as u64));
    assert_eq!(fs::read_link(far.path.join("link")).unwrap(), Path::new("tree/1"));
    fs::remove_dir_all(far.path.join("moved")).unwrap();
    assert_eq!(far.end(), Some(0));
    assert!(!world.keys("sub/").contains("moved"));
}

#[test]
fn what_was_not_sent_survives_a_kill() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    for round in 0..5 {
        let mut far = world.mount("cache");
        if round > 0 {
            check(&far.path.join("tree"), 60);
            fs::remove_dir_all(far.path.join("tree")).unwrap();
        }
        fill(&far.path.join("tree"), 60);
        // Durable here, wherever its way to the bucket is.
        std::thread::sleep(Duration::from_millis(150 * round));
        let last = fs::File::create(far.path.join("last")).unwrap();
        last.sync_all().unwrap();
        far.kill();
    }
    let mut sync = world.command();
    sync.args(["sync", "s3://bucket/sub", "--cache"]).arg(world.folder.path().join("cache"));
    assert!(sync.stderr(Stdio::null()).status().unwrap().success());
    let far = world.mount("new-cache");
    check(&far.path.join("tree"), 60);
    assert_eq!(far.end(), Some(0));
    println!("evidence: far mounts: 5 kills, nothing lost");
}

#[test]
fn a_path_is_mounted_once_and_a_second_signal_ends_the_wait() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let mut far = world.mount("cache");
    let mut again = world.command();
    again.args(["mount", "s3://bucket/sub", "--cache"]).arg(world.folder.path().join("other")).arg(&far.path);
    let again = again.output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(2) && said.contains("is a mount already"), "{said}");
    let inside = world.folder.path().join("inside");
    let mut within = world.command();
    within.args(["mount", "s3://bucket/sub", "--cache"]).arg(inside.join("cache")).arg(&inside);
    assert_eq!(within.output().unwrap().status.code(), Some(2), "a cache in its own mount point");
    assert_eq!(fs::read_dir(&far.path).unwrap().count(), 0, "what is listed needs no bucket");
    world.server.signal(Signal::STOP);
    fs::write(far.path.join("file"), "content").unwrap();
    let pid = Pid::from_raw(far.child.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    while far.is_mounted() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(far.child.try_wait().unwrap().is_none(), "it waits until the bucket has it");
    kill_process(pid, Signal::TERM).unwrap();
    let code = far.child.wait().unwrap().code();
    world.server.signal(Signal::CONT);
    assert_eq!(code, Some(1), "something is left");
    let far = world.mount("cache");
    assert_eq!(fs::read_to_string(far.path.join("file")).unwrap(), "content");
    assert_eq!(far.end(), Some(0));
    assert!(world.keys("sub/").contains("file"));
}

#[test]
fn what_others_do_in_the_bucket_is_seen() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let put = |name: &str, bytes: usize| world.put(name, bytes);
    put("old", 1000);
    put("gone", 1000);
    let far = world.mount("cache");
    assert_eq!(fs::metadata(far.path.join("old")).unwrap().len(), 1000);
    assert!(fs::metadata(far.path.join("gone")).is_ok() && fs::metadata(far.path.join("new/er")).is_err());
    let (old, new) = (put("old", 70_000), put("new/er", 2000));
    world.server.client(&["rm", "s3://bucket/sub/gone"]);
    let begun = Instant::now();
    loop {
        let seen = |name: &str| fs::read(far.path.join(name)).unwrap_or_default();
        if seen("old") == old && seen("new/er") == new && fs::metadata(far.path.join("gone")).is_err() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "it is not seen");
        std::thread::sleep(Duration::from_millis(200));
    }
    let names = |directory: &Path| {
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|one| one.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&far.path), ["new", "old"]);
    // Changed here again, and nobody's is lost.
    fs::write(far.path.join("old"), "mine").unwrap();
    far.sync();
    assert_eq!(names(&far.path), ["new", "old"]);
    // Removed there and changed here: it is made again.
    world.server.client(&["rm", "s3://bucket/sub/old"]);
    fs::write(far.path.join("old"), "mine again").unwrap();
    far.sync();
    assert!(world.keys("sub/").contains("old"));
    assert_eq!(far.end(), Some(0));
}

/// Close-to-open: what a mount has synced is what another one opens, also while its kernel keeps the name.
#[test]
fn what_one_mount_has_synced_another_one_opens() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let (one, other) = (world.mount("cache"), world.mount_beside("other-cache"));
    let (here, there) = (one.path.join("d/file"), other.path.join("d/file"));
    fs::create_dir(one.path.join("d")).unwrap();
    let write = |content: &str| {
        fs::write(&here, content).unwrap();
        fs::File::open(&here).unwrap().sync_all().unwrap();
    };
    write("first");
    wait("the file is not seen", || there.exists());
    // Longer than what was listed counts for who opens a file, and shorter than it counts for names in a quiet directory.
    let pause = || std::thread::sleep(Duration::from_millis(3200));
    for content in ["second, longer", "third"] {
        pause();
        let seen = fs::metadata(&there).unwrap().ino();
        pause();
        write(content);
        assert_eq!(fs::read_to_string(&there).unwrap(), content);
        let found = fs::metadata(&there).unwrap();
        assert!(found.len() == content.len() as u64 && found.ino() != seen, "the kernel knows it, too");
    }
    pause();
    fs::rename(&here, one.path.join("d/moved")).unwrap();
    one.sync();
    assert_eq!(fs::read_to_string(&there).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read_to_string(other.path.join("d/moved")).unwrap(), "third");
    assert_eq!((one.end(), other.end()), (Some(0), Some(0)));
}

/// A name that was not there is seen as soon as another mount has synced it, also where nothing had changed for long.
#[test]
fn what_one_mount_has_just_made_another_one_finds() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let (one, other) = (world.mount("cache"), world.mount_beside("other-cache"));
    let strict = world.mount_beside_with("strict", &["-o", "open=always"]);
    let make = |name: &str| {
        fs::write(one.path.join("d").join(name), name).unwrap();
        fs::File::open(one.path.join("d").join(name)).unwrap().sync_all().unwrap();
    };
    let read = |far: &Far, name: &str| fs::read_to_string(far.path.join("d").join(name));
    fs::create_dir(one.path.join("d")).unwrap();
    make("first");
    wait("the file is not seen", || other.path.join("d/first").exists());
    // The listing counts for longer each time, so that it does not show what is made then.
    for seconds in [3, 6, 12] {
        std::thread::sleep(Duration::from_millis(seconds * 1000 + 200));
        assert!(other.path.join("d/first").exists());
    }
    for name in ["second", "third"] {
        assert!(read(&other, name).is_err() && read(&strict, name).is_err());
        std::thread::sleep(Duration::from_millis(3200));
        make(name);
        assert_eq!(read(&other, name).unwrap(), name);
        assert_eq!(read(&strict, name).unwrap(), name);
    }
    // Without a pause.
    for name in ["x", "y", "z"] {
        assert!(read(&strict, name).is_err());
        make(name);
        assert_eq!(read(&strict, name).unwrap(), name);
        fs::write(strict.path.join("d").join(name), "again").unwrap();
        strict.sync();
    }
    assert_eq!((one.end(), other.end(), strict.end()), (Some(0), Some(0), Some(0)));
}

#[test]
fn attributes_are_in_the_bucket_or_are_refused() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let far = world.mount("cache");
    let set = |path: &Path, name: &str, value: &[u8]| rustix::fs::setxattr(path, name, value, XattrFlags::empty());
    let get = |path: &Path, name: &str| {
        let mut value = vec![0; 4096];
        rustix::fs::getxattr(path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    let (file, directory) = (far.path.join("file"), far.path.join("directory"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&directory).unwrap();
    let title = "\u{fc}".as_bytes();
    for path in [&file, &directory] {
        set(path, "user.colour", b"red").unwrap();
        set(path, "user.title", title).unwrap();
        set(path, "trusted.bytes", &[0, 255]).unwrap();
        assert_eq!(set(path, "trusted.large", &[7; 2000]), Err(rustix::io::Errno::NOSPC), "no object holds it");
    }
    let at = std::time::UNIX_EPOCH + Duration::new(1_500_000_000, 7);
    fs::File::open(&directory).unwrap().set_modified(at).unwrap();
    let typed = far.path.join("typed");
    fs::write(&typed, "content").unwrap();
    set(&typed, "user.s3.content-type", b"text/plain").unwrap();
    let acl = Command::new("setfacl").args(["-m", "u:5:rw"]).arg(&file).status().is_ok_and(|done| done.success());
    std::os::unix::fs::symlink("over there", far.path.join("link")).unwrap();
    far.sync();
    let all = |far: &Far| {
        let (file, directory) = (far.path.join("file"), far.path.join("directory"));
        let some = |path: &Path| ["user.colour", "user.title", "trusted.bytes"].map(|name| get(path, name).unwrap());
        (some(&file), some(&directory), get(&file, "system.posix_acl_access").ok())
    };
    let expected = all(&far);
    assert_eq!(expected.2.is_some(), acl);
    assert_eq!(far.end(), Some(0));
    let far = world.mount("other-cache");
    assert_eq!(fs::metadata(far.path.join("directory")).unwrap().modified().unwrap(), at);
    assert_eq!(fs::read_link(far.path.join("link")).unwrap(), Path::new("over there"));
    assert_eq!(all(&far), expected);
    let lists_type = |name: &str| {
        let mut names = vec![0; 4096];
        let len = rustix::fs::listxattr(far.path.join(name), &mut names[..]).unwrap();
        names[..len].split(|byte| *byte == 0).any(|name| name == b"user.s3.content-type")
    };
    assert!(!lists_type("file") && lists_type("typed"), "what nobody has set is not listed, so that no copy sets it");
    assert_eq!(far.end(), Some(0));
}

/// Bytes of files below, without logs, whose room is taken beforehand.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => disk_bytes(&entry.path()),
        false if entry.path().extension().is_some_and(|kind| kind == "log") => 0,
        // It may go meanwhile.
        false => entry.metadata().map_or(0, |metadata| metadata.blocks() * 512),
    });
    bytes.sum()
}

/// Waits, as long as it changes at all.
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_cache_stays_within_its_size() {
    if fuse::must_not_mount() {
        return;
    }
    const FILES: usize = 24;
    const BYTES: usize = 4 << 20;
    let world = World::new();
    let body = |number: usize| -> Vec<u8> { (0..BYTES).map(|at| (at * (number + 3) / 11) as u8).collect() };
    let check = |far: &Far| {
        (0..FILES).for_each(|number| {
            assert!(fs::read(far.path.join(format!("{number}"))).unwrap() == body(number), "{number}")
        })
    };
    let mut far = world.mount_with("cache", &["--cache-size", "32MiB"]);
    (0..FILES).for_each(|number| fs::write(far.path.join(format!("{number}")), body(number)).unwrap());
    far.sync();
    let segments = world.folder.path().join("cache/segments");
    // 96 MiB were written; half of the size is for them, and reclaim has yet to give back what it holds.
    wait("what the bucket has is not let go", || disk_bytes(&segments) < 48 << 20);
    check(&far);
    far.kill();
    let far = world.mount_with("cache", &["--cache-size", "32MiB"]);
    check(&far);
    assert!(disk_bytes(&world.folder.path().join("cache/blocks")) < 17 << 20, "fetched blocks are limited too");
    assert_eq!(far.end(), Some(0));
    let mut command = world.command();
    command.args(["mount", "s3://bucket/sub", "--cache-size", "1MiB", "--cache"]).arg(world.folder.path().join("tiny"));
    let refused = command.arg(world.folder.path().join("tiny-mount")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("give it 32MiB or more"), "{said}");
    assert!(!world.folder.path().join("tiny").exists(), "nothing is made");
}

#[test]
fn a_cache_on_a_small_disk_takes_more_than_the_disk_has() {
    if fuse::must_not_mount() {
        return;
    }
    const FILES: usize = 45;
    const BYTES: usize = 8 << 20;
    let world = World::new();
    let disk = SmallDisk::new(world.folder.path().join("disk"), 300);
    let body = |number: usize| -> Vec<u8> { (0..BYTES).map(|at| (at * (number + 3) / 11) as u8).collect() };
    let far = world.mount("disk/cache");
    for number in 0..FILES {
        fs::write(far.path.join(format!("{number}")), body(number)).unwrap();
    }
    far.sync();
    for number in 0..FILES {
        assert!(fs::read(far.path.join(format!("{number}"))).unwrap() == body(number), "{number}");
    }
    assert_eq!(far.end(), Some(0));
    drop(disk);
}
