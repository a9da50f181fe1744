//! Data directories of earlier formats, opened by this build.
//!
//! Why: a store that cannot read what it wrote last year has lost it. One archive per format version, made once by
//!      tests/upgrade/make.sh from a killed server; also a copy with a broken byte and one from the future.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const LIMITS: [&str; 6] = [
    "--set",
    "limits.log_bytes_max=8MiB",
    "--set",
    "limits.pack_bytes_max=16MiB",
    "--set",
    "limits.raw_bytes_min=1MiB",
];

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/fixtures");
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

fn unpack(archive: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("tar").arg("-C").arg(folder.path()).arg("-xzf").arg(archive).status().unwrap();
    assert!(status.success(), "{archive:?}");
    folder
}

fn margay(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    command.env("MARGAY_ACCESS_KEY", "UPGRADEUPGRADEUPGRAD").env("MARGAY_SECRET_KEY", "upgrade/secret+upgrade12");
    command.env("MARGAY_DATA", data).stdin(Stdio::null());
    command
}

struct Server(Child, String);

impl Server {
    /// The running server, or what it said when it refused.
    fn start(data: &Path, more: &[&str]) -> Result<Server, String> {
        let mut command = margay(data);
        command.args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off"]).args(LIMITS).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(rest) = line.trim_start().strip_prefix("S3 ") {
                return Ok(Server(child, rest.split_whitespace().next().unwrap().to_owned()));
            }
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!child.wait().unwrap().success());
        Err(said)
    }

    fn client(&self, data: &Path, arguments: &[&str]) -> String {
        let output = margay(data).args(["client", "--endpoint", &self.1]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn md5(path: &Path) -> String {
    let output = Command::new("md5sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().trim_start_matches('\\').to_owned()
}

#[test]
fn every_format_opens_with_all_it_held() {
    for archive in fixtures() {
        let folder = unpack(&archive);
        let data = folder.path().join("data");
        let server = Server::start(&data, &[]).unwrap();
        let expected = fs::read_to_string(folder.path().join("expected")).unwrap();
        let object = folder.path().join("object");
        for line in expected.lines() {
            let mut words = line.splitn(3, ' ');
            let (hash, size, key) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let _ = fs::remove_file(&object);
            server.client(&data, &["get", &format!("s3://kept/{key}"), object.to_str().unwrap()]);
            assert_eq!(fs::metadata(&object).unwrap().len().to_string(), size, "{archive:?}: {key}");
            assert_eq!(md5(&object), hash, "{archive:?}: {key}");
        }
        let listed = server.client(&data, &["ls", "--recursive", "--json", "s3://kept/"]);
        assert_eq!(listed.matches("\"key\"").count(), expected.lines().count(), "{archive:?}: {listed}");
        drop(server);
        let fsck = margay(&data).args(["fsck", "--data", data.to_str().unwrap()]).args(LIMITS).output().unwrap();
        assert!(fsck.status.success(), "{archive:?}: {}", String::from_utf8_lossy(&fsck.stdout));
    }
}

/// `margay fsck --json` and whether nothing was found.
fn fsck(data: &Path, more: &[&str]) -> (serde_json::Value, bool) {
    let arguments = ["fsck", "--json", "--show", "1000", "--data", data.to_str().unwrap()];
    let output = margay(data).args(arguments).args(more).args(LIMITS).output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.success())
}

/// A build that lost data (CHANGELOG) made these, stopped before its first loss and after it; tests/upgrade/loss.py.
#[test]
fn what_an_older_build_lost_is_named_and_nothing_more_is_lost() {
    for (name, lost_one) in [("before", false), ("after", true)] {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/upgrade/loss/{name}.tar.gz"));
        let folder = unpack(&archive);
        let data = folder.path().join("data");
        let (found, clean) = fsck(&data, &[]);
        // Its counters were wrong in both; opening it counts anew, from the rows that name runs.
        assert_eq!(clean, !lost_one, "{found}");
        let shown = found["shown"].as_array().unwrap();
        let missing = shown.iter().filter(|finding| finding["kind"] == "MissingData");
        let named: Vec<&str> = missing.map(|finding| finding["what"].as_str().unwrap()).collect();
        assert_eq!(!named.is_empty(), lost_one, "{named:?}");
        let is_named = |key: &str| named.iter().any(|what| what.starts_with(&format!("kept/{key}: ")));

        let server = Server::start(&data, &["--set", "limits.quarantine_time=0"]).unwrap();
        let expected = fs::read_to_string(folder.path().join("expected")).unwrap();
        let object = folder.path().join("object");
        for _ in 0..2 {
            for line in expected.lines() {
                let [hash, _, key] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
                let _ = fs::remove_file(&object);
                let mut get = margay(&data);
                get.args(["client", "--endpoint", &server.1, "get", &format!("s3://kept/{key}")]).arg(&object);
                let read = get.output().unwrap().status.success();
                assert_eq!(read, !is_named(key), "{name}: {key}");
                assert!(!read || md5(&object) == hash, "{name}: {key} has other bytes");
            }
            let compact = margay(&data).args(["compact", "--data", data.to_str().unwrap()]).output().unwrap();
            assert!(compact.status.success(), "{}", String::from_utf8_lossy(&compact.stderr));
        }
        server.client(&data, &["rm", "--recursive", "s3://kept/"]);
        drop(server);
        let (repaired, _) = fsck(&data, &["--repair"]);
        let (found, clean) = fsck(&data, &[]);
        assert!(clean, "{name}: counters are mended: {repaired} {found}");
    }
}

/// What `margay status` says of the checksums of the tree.
fn tree_checksums(data: &Path) -> String {
    let output = margay(data).args(["status", "--data", data.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find(|line| line.contains("tree_checksums")).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_directory_without_checksums_of_its_tree_says_so_until_a_scrub() {
    let folder = unpack(&fixtures()[1]);
    let data = folder.path().join("data");
    assert!(!data.join("tree/rows.sums").exists());
    let server = Server::start(&data, &[]).unwrap();
    assert!(tree_checksums(&data).contains("not every page yet"));
    let scrub = margay(&data).args(["scrub", "--data", data.to_str().unwrap()]).output().unwrap();
    assert!(scrub.status.success(), "{}", String::from_utf8_lossy(&scrub.stdout));
    assert!(tree_checksums(&data).contains("every page") && !tree_checksums(&data).contains("not"));
    drop(server);
    let server = Server::start(&data, &[]).unwrap();
    assert!(!tree_checksums(&data).contains("not"));
    drop(server);
}

#[test]
fn a_format_from_the_future_is_refused_by_one_line() {
    let folder = unpack(&fixtures()[0]);
    let data = folder.path().join("data");
    let log = fs::read_dir(data.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<PathBuf> = log.filter(|path| fs::read(path).unwrap().starts_with(b"margylog")).collect();
    logs.sort();
    let last = logs.last().unwrap();
    let mut bytes = fs::read(last).unwrap();
    bytes[8] = 99;
    bytes[12..16].fill(0);
    let crc = crc32c(&bytes[..32]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    fs::write(last, bytes).unwrap();
    let said = Server::start(&data, &[]).map(|server| server.1.clone()).expect_err("refused");
    assert!(said.contains("newer margay"), "{said}");
}

/// CRC-32C, bit by bit: the test must not share the code under test.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}
