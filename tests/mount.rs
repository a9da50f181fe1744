//! Mounts of the real binary: file work, both doors side by side, and a server that dies or stops under a mount.
//!
//! They fail where there is no /dev/fuse or no right to mount, unless MARGAY_NO_FUSE=1 leaves them out.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "the tests are programs that use a mount")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

#[path = "server/fuse.rs"]
mod fuse;

use fuse::must_not_mount;

fn margay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MARGAY_") || name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

struct World {
    folder: tempfile::TempDir,
    child: Child,
    endpoint: String,
    admin: String,
}

impl World {
    fn new() -> World {
        World::with(&[])
    }

    fn with(settings: &[&str]) -> World {
        let folder = tempfile::tempdir().unwrap();
        let Started { child, endpoint, admin } = start(folder.path(), settings);
        World { folder, child, endpoint, admin }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("mnt").join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    fn data(&self) -> String {
        self.folder.path().join("data").to_str().unwrap().to_owned()
    }

    /// The small S3 client.
    fn client(&self, arguments: &[&str]) -> String {
        let data = self.data();
        let mut all = vec!["client", "--data", &data, "--endpoint", &self.endpoint];
        all.extend(arguments);
        let output = margay(&all);
        assert!(output.status.success(), "{all:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn put(&self, key: &str, content: &str) {
        let file = self.folder.path().join("body");
        fs::write(&file, content).unwrap();
        self.client(&["put", file.to_str().unwrap(), &format!("s3://demo/{key}")]);
    }

    fn command(&self, arguments: &[&str]) -> Output {
        let data = self.data();
        let mut all = arguments.to_vec();
        all.extend(["--data", &data]);
        margay(&all)
    }

    /// A figure of the bucket's mount on the page of metrics.
    fn figure(&self, name: &str) -> u64 {
        let mut stream = std::net::TcpStream::connect(&self.admin).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let sample = format!("{name}{{bucket=\"demo\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&sample)).expect(&page).parse().unwrap()
    }

    fn end(&mut self, signal: Signal) -> Duration {
        let begun = Instant::now();
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
        self.child.wait().unwrap();
        begun.elapsed()
    }

    fn start_again(&mut self) {
        Started { child: self.child, endpoint: self.endpoint, admin: self.admin } = start(self.folder.path(), &[]);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for name in ["mnt", "second"] {
            let path = self.folder.path().join(name);
            let _ = Command::new("umount").arg("-l").arg(&path).stderr(Stdio::null()).status();
        }
    }
}

struct Started {
    child: Child,
    endpoint: String,
    admin: String,
}

fn start(folder: &Path, settings: &[&str]) -> Started {
    let mount = format!("demo={}", folder.join("mnt").display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_margay"))
        .args(["serve", "--address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--mount", &mount, "--data"])
        .arg(folder.join("data"))
        .args(["--set", "limits.drain_seconds_max=2"])
        .args(settings.iter().flat_map(|setting| ["--set", setting]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut screen = String::new();
    while !screen.contains("Ctrl-C") {
        screen.push_str(&lines.next().expect("the start screen ends early").unwrap());
        screen.push('\n');
    }
    assert!(screen.contains("mount     demo/ on "), "{screen}");
    let place = |what: &str| {
        let line = screen.lines().find(|line| line.split_whitespace().next() == Some(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let (endpoint, admin) = (place("S3"), place("admin"));
    let admin = admin.strip_prefix("http://").unwrap().strip_suffix("/health").unwrap().to_owned();
    Started { child, endpoint, admin }
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn file_work() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    fs::create_dir_all(world.at("a/b")).unwrap();
    fs::write(world.at("a/b/file"), "one two three").unwrap();
    assert_eq!(world.text("a/b/file"), "one two three");
    let mut file = OpenOptions::new().read(true).write(true).open(world.at("a/b/file")).unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    file.write_all(b"TWO").unwrap();
    file.set_len(7).unwrap();
    file.sync_all().unwrap();
    assert_eq!(world.text("a/b/file"), "one TWO");
    let mut append = OpenOptions::new().append(true).open(world.at("a/b/file")).unwrap();
    append.write_all(b"!").unwrap();
    drop(append);
    assert_eq!(world.text("a/b/file"), "one TWO!");
    fs::rename(world.at("a/b"), world.at("c")).unwrap();
    assert_eq!(world.text("c/file"), "one TWO!");
    assert_eq!(names(&world.at("a")), Vec::<String>::new());
    // An open file without a name goes on.
    fs::remove_file(world.at("c/file")).unwrap();
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("one TWO!", 0));
    fs::remove_dir(world.at("c")).unwrap();
    assert_eq!(fs::remove_dir(world.at("c")).unwrap_err().kind(), ErrorKind::NotFound);
    let large: Vec<u8> = (0..9_000_000_u32).map(|index| (index * 7 % 251) as u8).collect();
    fs::write(world.at("large"), &large).unwrap();
    assert!(fs::read(world.at("large")).unwrap() == large);
    fs::write(world.at("mode"), "").unwrap();
    fs::set_permissions(world.at("mode"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(world.at("mode")).unwrap().mode() & 0o7777, 0o640);
    let count = 3000;
    fs::create_dir(world.at("many")).unwrap();
    (0..count).for_each(|number| drop(File::create(world.at(&format!("many/{number}"))).unwrap()));
    assert_eq!(names(&world.at("many")).len(), count);
    fs::remove_dir_all(world.at("many")).unwrap();
}

#[test]
fn both_doors_show_the_same() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    // The kernel keeps that it is absent, until S3 makes it.
    assert_eq!(fs::metadata(world.at("x/y")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(&world.at("")), Vec::<String>::new());
    world.put("x/y", "from S3");
    assert_eq!(world.text("x/y"), "from S3");
    assert_eq!(names(&world.at("")), ["x"]);
    for round in 0..20 {
        let content = format!("round {round} {}", "z".repeat(round));
        world.put("x/y", &content);
        assert_eq!(world.text("x/y"), content);
        assert_eq!(fs::metadata(world.at("x/y")).unwrap().len(), content.len() as u64);
    }
    fs::write(world.at("x/back"), "from the mount").unwrap();
    let file = world.folder.path().join("got");
    world.client(&["get", "s3://demo/x/back", file.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "from the mount");
    // A file beside a directory of its name.
    world.put("x", "beside");
    assert_eq!(names(&world.at("")), ["x", "x@{file}"]);
    assert_eq!(world.text("x@{file}"), "beside");
    world.client(&["rm", "s3://demo/x/y"]);
    world.client(&["rm", "s3://demo/x/back"]);
    // Made explicit by the write in the mount, it stays.
    assert_eq!(names(&world.at("x")), Vec::<String>::new());
    assert_eq!(fs::metadata(world.at("x/y")).unwrap_err().kind(), ErrorKind::NotFound);
    // The file gets the plain name back, and the kernel forgets the other: not before the answer, but soon.
    fs::remove_dir(world.at("x")).unwrap();
    assert_eq!(world.text("x"), "beside");
    let deadline = Instant::now() + Duration::from_secs(120);
    while fs::metadata(world.at("x@{file}")).is_ok() {
        assert!(Instant::now() < deadline, "the kernel keeps a name that is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_server_leaves_no_hanging_mount() {
    if must_not_mount() {
        return;
    }
    let mut world = World::new();
    let mut kept = File::create(world.at("kept")).unwrap();
    kept.write_all(b"synced").unwrap();
    kept.sync_all().unwrap();
    File::open(world.at("")).unwrap().sync_all().unwrap();
    world.end(Signal::KILL);
    let error = fs::read_dir(world.at("")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()), "{error}");
    assert!(kept.write_all(b"more").is_err() || kept.sync_all().is_err());
    world.start_again();
    assert_eq!(world.text("kept"), "synced");
}

#[test]
fn a_stop_publishes_what_is_open() {
    if must_not_mount() {
        return;
    }
    let mut world = World::new();
    let mut open = File::create(world.at("open")).unwrap();
    open.write_all(b"not closed").unwrap();
    let took = world.end(Signal::TERM);
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(100), "{took:?}");
    drop(open);
    world.start_again();
    assert_eq!(world.text("open"), "not closed");
}

#[test]
fn mounts_come_and_go_by_command() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    let second = world.folder.path().join("second");
    let second = second.to_str().unwrap();
    let text = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    fs::create_dir(world.at("inner")).unwrap();
    text(world.command(&["mount", "demo/inner", second, "-o", "ro"]));
    fs::write(world.at("inner/file"), "seen twice").unwrap();
    assert_eq!(fs::read_to_string(Path::new(second).join("file")).unwrap(), "seen twice");
    assert_eq!(fs::write(Path::new(second).join("no"), "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(text(world.command(&["mounts"])).contains(&format!("demo/inner/ on {second} (ro)")));
    text(world.command(&["unmount", second]));
    assert!(!world.command(&["mount", "other", second]).status.success(), "a bucket is not made by mistake");
    text(world.command(&["mount", "other", second, "--create", "-o", "uid=1234,umask=077"]));
    fs::write(Path::new(second).join("mine"), "").unwrap();
    let found = fs::metadata(Path::new(second).join("mine")).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (1234, 0o700));
    assert!(world.client(&["ls"]).contains("s3://other"));
    // umount(8) ends a mount and a view, and the server knows it at once.
    for what in ["other", "demo/inner"] {
        for _ in 0..2 {
            umount(Path::new(second));
            assert!(!text(world.command(&["mounts"])).contains(second));
            text(world.command(&["mount", what, second]));
        }
    }
    text(world.command(&["unmount", second]));
    assert_eq!(fs::read_dir(second).unwrap().count(), 0);
    let wrong = world.command(&["mount", "demo", second, "-o", "speed"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!world.command(&["unmount", second]).status.success());
    assert!(!world.command(&["mount", "No_Bucket", second]).status.success());
}

#[test]
fn a_view_shows_nothing_but_its_mount() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    let second = world.folder.path().join("second");
    let view = |what: &str| world.command(&["mount", what, second.to_str().unwrap(), "-o", "ro"]).status.success();
    // Whoever writes in the mount must not choose what root shows.
    std::os::unix::fs::symlink(world.data(), world.at("data")).unwrap();
    std::os::unix::fs::symlink("..", world.at("up")).unwrap();
    assert!(!view("demo/data") && !view("demo/up") && !view("demo/up/data") && !view("demo/.."));
    fs::create_dir_all(world.at("inner/deep")).unwrap();
    assert!(view("demo/inner"));
    assert_eq!(names(&second), ["deep"]);
    let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounted.lines().find(|line| line.contains(second.to_str().unwrap())).unwrap();
    for flag in ["ro", "nosuid", "nodev"] {
        assert!(line.split(' ').nth(5).unwrap().split(',').any(|word| word == flag), "{line}");
    }
    // Neither names nor links of one place reach the other.
    fs::write(world.at("file"), "").unwrap();
    for error in [
        fs::rename(world.at("file"), second.join("file")).unwrap_err(),
        fs::hard_link(world.at("file"), second.join("file")).unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::CrossesDevices | ErrorKind::ReadOnlyFilesystem), "{error}");
    }
}

/// Waits for minutes, since others may use this machine too.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As umount(8) does it. A child that another test forks has a copy of each open file until it runs its program.
fn umount(path: &Path) {
    until("it stays busy", || Command::new("umount").arg(path).status().unwrap().success());
}

#[test]
fn what_an_unmounted_kernel_knew_is_forgotten() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    (0..1000).for_each(|number| drop(File::create(world.at(&number.to_string())).unwrap()));
    assert!(world.figure("margay_mount_known_files") > 1000);
    umount(&world.at(""));
    until("the server keeps what an unmounted kernel knew", || world.figure("margay_mount_known_files") == 0);
}

/// Why the kernel cannot be asked to forget files.
fn cannot_prune() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let cannot = (numbers.next(), numbers.next()) < (Some(6), Some(18));
    if cannot {
        eprintln!("SKIPPED: Linux {release} cannot be asked to forget files, 6.18 can");
    }
    cannot
}

#[test]
fn the_kernel_is_asked_to_forget_files() {
    if must_not_mount() || cannot_prune() {
        return;
    }
    const MOST: u64 = 1000;
    const FILES: usize = 10_000;
    let world = World::with(&["limits.known_files_max=1000"]);
    let mut open = OpenOptions::new().create_new(true).read(true).write(true).open(world.at("open")).unwrap();
    open.write_all(b"kept").unwrap();
    for number in 0..FILES {
        if number.is_multiple_of(100) {
            fs::create_dir(world.at(&format!("d{}", number / 100))).unwrap();
        }
        fs::write(world.at(&format!("d{}/{number}", number / 100)), format!("file {number}")).unwrap();
    }
    until("the kernel keeps too many files", || world.figure("margay_mount_known_files") <= MOST);
    assert!(world.figure("margay_mount_pruned_files_total") > 0);
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
    assert_eq!(fs::metadata(world.at("open")).unwrap().ino(), open.metadata().unwrap().ino());
    for number in (0..FILES).step_by(97) {
        assert_eq!(world.text(&format!("d{}/{number}", number / 100)), format!("file {number}"));
    }
    assert_eq!(names(&world.at("d7")).len(), 100);
    // What S3 changes is seen, whether the kernel was made to forget it or not.
    world.put("d3/300", "from S3");
    assert_eq!(world.text("d3/300"), "from S3");
    // Listing makes the kernel know all of them again.
    for directory in 0..FILES / 100 {
        assert_eq!(fs::read_dir(world.at(&format!("d{directory}"))).unwrap().count(), 100);
    }
    until("the kernel keeps too many files", || world.figure("margay_mount_known_files") <= MOST);
}

#[test]
fn a_removed_directory_that_is_open_has_no_links() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    for (name, replaced) in [("gone", false), ("replaced", true)] {
        fs::create_dir(world.at(name)).unwrap();
        let open = File::open(world.at(name)).unwrap();
        if replaced {
            fs::create_dir(world.at("other")).unwrap();
            fs::rename(world.at("other"), world.at(name)).unwrap();
        } else {
            fs::remove_dir(world.at(name)).unwrap();
        }
        let found = open.metadata().unwrap();
        assert_eq!((found.nlink(), found.is_dir()), (0, true), "{name}");
        // What the kernel kept of it is over: the server is asked.
        open.set_permissions(fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o7777, 0o700, "{name}");
        open.sync_all().unwrap();
    }
}

/// This kernel is asked whether it forgets such names; either way S3's changes show at once.
#[test]
fn names_that_did_not_exist_are_seen_when_s3_makes_them() {
    if must_not_mount() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.at("d")).unwrap();
    for number in 0..10 {
        for name in [format!("n{number}"), format!("d/n{number}")] {
            assert_eq!(fs::metadata(world.at(&name)).unwrap_err().kind(), ErrorKind::NotFound);
            world.put(&name, "made by S3");
            assert_eq!(world.text(&name), "made by S3");
        }
    }
    assert_eq!(fs::metadata(world.at("@{tried}")).unwrap_err().kind(), ErrorKind::NotFound);
}
