//! Rivals of `margay bench` from outside: who is measured, who is left out and why, and that nothing stays.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

#[path = "server/fuse.rs"]
mod fuse;

/// A directory of rivals and a directory for them to work in.
struct World {
    files: TempDir,
    work: TempDir,
}

impl World {
    fn new(rivals: &[(&str, &str)]) -> World {
        let world = World { files: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() };
        for (name, text) in rivals {
            let text = format!("title = \"{name}\"\nlicence = \"MIT\"\n{text}\n");
            fs::write(world.files.path().join(format!("{name}.toml")), text).unwrap();
        }
        world
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MARGAY_") || name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.arg("bench").args(arguments).arg("--rivals").arg(self.files.path()).arg("--work").arg(self.work.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn ends(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.bench(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        self.assert_empty();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn assert_empty(&self) {
        let left: Vec<_> = fs::read_dir(self.work.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A process that writes its number into `file`, and stays.
fn stays(file: &Path) -> String {
    let script = format!("sleep 1000 & echo $! > {}", file.display());
    format!("gives = [\"directory\"]\n[[step]]\nrun = [\"sh\", \"-c\", \"{script}\"]")
}

fn is_gone(file: &Path) -> bool {
    let number = fs::read_to_string(file).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", number.trim())).unwrap_or_default();
    state.is_empty() || state.contains(") Z")
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within a minute");
}

#[test]
fn rivals_that_cannot_run_are_named_and_the_others_are_measured() {
    let pids = tempfile::tempdir().unwrap();
    let pid = pids.path().join("pid");
    let stays = stays(&pid);
    let world = World::new(&[
        ("plain", "gives = [\"directory\"]\nversion = [\"echo\", \"plain 1.0\"]"),
        ("stays", &stays),
        ("away", "gives = [\"directory\"]\nprograms = [\"no-such-program-anywhere\"]"),
        ("broken", "gives = [\"directory\"]\n[[step]]\nrun = [\"sh\", \"-c\", \"echo the reason; exit 3\"]"),
        ("slow", "gives = [\"directory\"]\n[[step]]\nrun = [\"sleep\", \"1000\"]\nseconds = 0"),
    ]);
    let arguments = ["small", "--files", "5", "--rounds", "2", "--rival", "plain,away", "--rival", "broken,slow,stays"];
    let report = world.ends(0, &[&arguments[..], &["--json"]].concat());
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plain", "stays", "plain", "stays", "plain", "stays"]);
    assert!(rows.iter().all(|row| row["rounds"].as_array().unwrap().len() == 2), "{rows:?}");
    assert_eq!(report["rivals"][0]["version"], "plain 1.0");
    let absent: Vec<(&str, &str)> = report["absent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|absent| (absent["name"].as_str().unwrap(), absent["reason"].as_str().unwrap()))
        .collect();
    assert_eq!((absent[0].0, absent[1].0, absent[2].0, absent.len()), ("away", "broken", "slow", 3));
    assert!(absent[0].1.contains("no-such-program-anywhere"), "{absent:?}");
    assert!(absent[1].1.contains("the reason"), "{absent:?}");
    wait_until("what a rival started is ended", || is_gone(&pid));
}

#[test]
fn a_rival_that_fails_does_not_stop_the_others() {
    let world = World::new(&[
        ("plain", "gives = [\"directory\"]"),
        ("full", "gives = [\"directory\"]\n[[step]]\nrun = [\"rmdir\", \"{mount}\"]"),
    ]);
    let report = world.ends(0, &["small", "--files", "5", "--rounds", "1", "--rival", "full,plain", "--json"]);
    let rows = report["rows"].as_array().unwrap();
    let of = |name: &'static str| rows.iter().filter(move |row| row["name"] == name);
    assert!(of("plain").all(|row| row["median"].is_f64() && row["failure"].is_null()), "{rows:?}");
    assert!(of("full").all(|row| row["median"].is_null() && row["failure"].is_string()), "{rows:?}");
    assert_eq!((of("plain").count(), of("full").count()), (3, 3));
}

#[test]
fn a_wrong_name_is_refused() {
    let world = World::new(&[("plain", "gives = [\"directory\"]"), ("typo", "gives = [\"directory\"]\ncolour = 1")]);
    world.ends(2, &["dirops", "--rival", "no-such-rival"]);
    world.ends(2, &["dirops", "--rival", "plain"]);
    let world = World::new(&[]);
    world.ends(2, &["dirops", "--rival", "minio"]);
    world.ends(2, &["load", "--rival", "tmpfs"]);
    world.ends(2, &["load", "--rival", "s3cmd"]);
    world.ends(2, &["dirops", "--dir", "/tmp", "--latency", "1ms"]);
    world.ends(2, &["dirops"]);
    world.ends(2, &["ls", "--mounts"]);
    world.ends(2, &["ls", "--mounts", "/tmp", "--latency", "1ms"]);
    world.ends(2, &["ls", "--mounts", "/tmp", "--mount-points", "2"]);
}

#[test]
fn after_ctrl_c_nothing_stays() {
    let pids = tempfile::tempdir().unwrap();
    let pid = pids.path().join("pid");
    let world = World::new(&[("stays", &stays(&pid))]);
    let mut child: Child = world.bench(&["dirops", "--rounds", "60000", "--rival", "stays"]).spawn().unwrap();
    wait_until("the rival starts", || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    world.assert_empty();
    wait_until("what a rival started is ended", || is_gone(&pid));
}

#[test]
fn servers_are_measured_in_turns_and_far_away() {
    let world = World::new(&[("away", "gives = [\"s3\"]\nprograms = [\"no-such-program-anywhere\"]")]);
    let load = ["load", "--rival", "margay,away", "--rounds", "2", "--seconds", "1", "--connections", "1", "--json"];
    let more = ["--mix", "get=100", "--keys", "10", "--size", "1k", "--latency", "40ms"];
    let report = world.ends(0, &[&load[..], &more[..]].concat());
    let rows = report["rows"].as_array().unwrap();
    let median = rows.iter().find(|row| row["phase"] == "get, median").unwrap();
    assert!(median["median"].as_f64().unwrap() >= 40.0 && median["unit"] == "ms", "{median}");
    assert_eq!(median["rounds"].as_array().unwrap().len(), 2);
    assert_eq!((&report["absent"][0]["name"], &report["rivals"][0]["name"]), (&"away".into(), &"margay".into()));
    assert!(report["title"].as_str().unwrap().contains("40ms"), "{}", report["title"]);
}

#[test]
fn mounts_are_made_measured_and_removed() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new(&[]);
    let arguments = ["stream", "--size", "1m", "--rounds", "1", "--rival", "tmpfs,margay", "--json"];
    let report = world.ends(0, &arguments);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() >= 6 && rows.iter().all(|row| row["median"].is_f64()), "{rows:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(world.work.path().to_str().unwrap()), "{mounts}");
}

/// Mount points of one folder of the work directory; all but the first show nothing when they are mounted at first.
const LATE: &str = r#"
gives = ["directory"]
needs_store = true
[[step]]
run = ["sh", "-c", """
    mkdir -p shared
    case {mount} in
    */mount) mount --bind shared {mount} ;;
    *) if mkdir {cache}; then mount -t tmpfs none {mount}; else mount --bind shared {mount}; fi ;;
    esac
"""]
until = "mounted"
"#;

#[test]
fn further_mount_points_are_listed_once_they_show_everything() {
    if fuse::must_not_mount() {
        return;
    }
    let given = tempfile::tempdir().unwrap();
    let world = World::new(&[("late", LATE), ("plain", "gives = [\"directory\"]")]);
    let directory = given.path().to_str().unwrap();
    let sizes = ["--total", "30", "--objects", "10,20", "--clients", "1,2", "--runs", "2", "--rounds", "1", "--json"];
    let arguments = ["ls", "--mounts", "--mount-points", "3", "--rival", "late,plain"];
    let report = world.ends(0, &[&arguments[..], &sizes[..]].concat());
    let rows = report["rows"].as_array().unwrap();
    let of = |name: &str, phase: &str| {
        let row = rows.iter().find(|row| row["name"] == name && row["phase"] == phase).unwrap();
        assert!(row["failure"].is_null() && row["unit"] == "ms", "{row}");
        row["median"].as_f64()
    };
    for phase in ["10 of 30", "20 of 30", "20 of 30, 2 listers"] {
        assert!(of("late", phase).is_some() && of("plain", phase).is_some(), "{phase}");
    }
    for phase in ["10 of 30, 2 mount points", "20 of 30, 3 mount points"] {
        assert!(of("late", phase).is_some(), "{phase}");
        assert_eq!(of("plain", phase), None, "a directory without a bucket has one mount point");
    }
    let beside = world.ends(0, &[&["ls", "--rival", "late", "--mounts", directory][..], &sizes[..]].concat());
    let rows = beside["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| !row["phase"].as_str().unwrap().contains("mount points")), "as many as DIRs");
    assert_eq!((rows[0]["name"].as_str(), rows[1]["name"].as_str()), (Some(directory), Some("late")));
    assert_eq!(fs::read_dir(given.path()).unwrap().count(), 0);
}
