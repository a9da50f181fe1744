//! The binary and its key files: other keys than those of its volume, lost ones, added ones, restored without.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests lay out files themselves")]

mod server;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use server::{Server, body, ends, margay, run};

/// The small client finds its keys where a mount of a bucket finds them.
#[test]
fn the_client_reads_the_files_of_other_tools() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    let keys = fs::read_to_string(server.data.join("keys")).unwrap();
    let (credentials, config) = (folder.path().join("credentials"), folder.path().join("config"));
    let pair: String = keys.lines().filter(|line| line.starts_with("aws_")).map(|line| format!("{line}\n")).collect();
    fs::write(&credentials, format!("[other]\naws_access_key_id = x\naws_secret_access_key = y\n[mine]\n{pair}"))
        .unwrap();
    fs::write(&config, format!("[profile mine]\nendpoint_url = {}\n", server.endpoint)).unwrap();
    let client = |profile: &str, arguments: &[&str]| {
        let mut command = margay();
        command.current_dir(folder.path()).env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", folder.path());
        command.env("AWS_SHARED_CREDENTIALS_FILE", &credentials).env("AWS_CONFIG_FILE", &config);
        let output = command.env("AWS_PROFILE", profile).arg("client").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(client("mine", &["mb", "s3://bucket"]), (Some(0), String::new()), "keys and endpoint of the profile");
    let (code, error) = client("none", &["ls"]);
    assert!(
        code == Some(2) && error.contains("no profile none") && error.contains("MARGAY_ACCESS_KEY"),
        "{code:?} {error}"
    );
    let (code, error) = client("other", &["--endpoint", &server.endpoint, "ls"]);
    assert!(code != Some(0) && error.contains("InvalidAccessKeyId"), "{code:?} {error}");
    let data = server.data.to_str().unwrap();
    let (code, error) = client("other", &["--data", data, "--endpoint", &server.endpoint, "ls"]);
    assert!(code == Some(0), "a directory that is named comes first: {error}");
    let (code, error) = client("other", &["--data", data, "ls"]);
    assert!(code == Some(0), "and it knows where its server listens: {error}");
    let nowhere = folder.path().join("nowhere");
    let (code, error) = client("other", &["--data", nowhere.to_str().unwrap(), "ls"]);
    assert!(code == Some(2) && error.contains("nowhere has no file `keys`"), "{code:?} {error}");
}

#[test]
fn a_server_with_other_keys_is_refused_and_lost_keys_are_not_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let shown = data.to_str().unwrap().to_owned();
    let stop = |server: Server| {
        server.signal(Signal::TERM);
        assert_eq!(server.code(), Some(0));
    };
    let refused = || ends(3, &["serve", "--data", &shown, "--address", "127.0.0.1:0", "--admin-address", "off"]);
    stop(Server::start(&data));
    for (file, word) in [("keys", "root"), ("encryption-keys", "encryption"), ("identity-key", "identity")] {
        let (path, aside) = (data.join(file), folder.path().join("aside"));
        let right = fs::read_to_string(&path).unwrap();
        fs::rename(&path, &aside).unwrap();
        let error = refused();
        let forget = format!("margay secrets forget {word} --data {shown}");
        assert!(error.contains(&format!("{file} is missing")) && error.contains(&forget), "{error}");
        assert_eq!(error.lines().filter(|line| !line.starts_with('{')).count(), 1, "{error}");
        assert!(!path.exists(), "{file} was made anew");
        let output = run(&["secrets", "--data", &shown]);
        assert_eq!(output.status.code(), Some(4));
        assert!(String::from_utf8(output.stdout).unwrap().contains("MISSING"));

        // Of another volume.
        let other = match file {
            "keys" => "aws_access_key_id = OTHERKEY\naws_secret_access_key = other-secret\n".to_owned(),
            _ => format!("{}\n", "5a".repeat(32)),
        };
        fs::write(&path, &other).unwrap();
        let error = refused();
        assert!(error.contains(&format!("{file} has other")) && error.contains(&forget), "{error}");

        // Who means it goes on; who goes back means that too.
        ends(0, &["secrets", "forget", word, "--data", &shown]);
        stop(Server::start(&data));
        fs::write(&path, &right).unwrap();
        assert!(refused().contains(&format!("{file} has other")));
        ends(0, &["secrets", "forget", word, "--data", &shown]);
        stop(Server::start(&data));
        assert_eq!(fs::read_to_string(&path).unwrap(), right);
    }
    assert!(!ends(0, &["secrets", "--data", &shown]).contains("MISSING"));
}

#[test]
fn a_key_for_encryption_is_added_and_given_keys_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let shown = data.to_str().unwrap().to_owned();
    let stop = |server: Server| {
        server.signal(Signal::TERM);
        assert_eq!(server.code(), Some(0));
    };
    stop(Server::start(&data));
    let path = data.join("encryption-keys");
    let first = fs::read_to_string(&path).unwrap();
    let bare = first[..first.rfind("# checksum").unwrap()].to_owned();
    fs::write(&path, format!("{}\n{bare}named {}\n", "5a".repeat(32), "5b".repeat(32))).unwrap();
    assert!(ends(0, &["secrets", "--data", &shown]).contains("and new ones"));
    stop(Server::start(&data));
    // The new ones belong to the volume from now on.
    fs::write(&path, &first).unwrap();
    let serve = ["serve", "--data", &shown, "--address", "127.0.0.1:0", "--admin-address", "off"];
    assert!(ends(3, &serve).contains("encryption-keys has other"));
    fs::write(&path, format!("{}\n{bare}named {}\n", "5a".repeat(32), "5b".repeat(32))).unwrap();

    let with = |secret: &str| {
        let mut command = margay();
        command.args(serve).env("MARGAY_ACCESS_KEY", "OPERATOR").env("MARGAY_SECRET_KEY", secret);
        command
    };
    let output = with("a-long-secret").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("the environment (MARGAY_ACCESS_KEY"));
    let keys = fs::read_to_string(data.join("keys")).unwrap();
    let value = |name: &str| keys.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let (access, secret) = (value("aws_access_key_id ="), value("aws_secret_access_key ="));
    fs::remove_file(data.join("keys")).unwrap();
    let mut child = with(&secret).env("MARGAY_ACCESS_KEY", access).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "the same keys from elsewhere are right");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_volume_of_before_takes_the_keys_that_it_finds() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let shown = data.to_str().unwrap().to_owned();
    let server = Server::start(&data);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    let all = ["root", "encryption", "identity"];
    // As a directory is that no server with fingerprints has used.
    assert_eq!(
        ends(0, &[&["secrets", "forget"], &all[..], &["--data", &shown]].concat()).matches("takes these").count(),
        3
    );
    let names = ["keys", "encryption-keys", "identity-key"];
    let files = || names.map(|name| fs::read(data.join(name)).unwrap());
    let before = files();
    let server = Server::start(&data);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    assert!(files() == before);
    assert_eq!(ends(0, &["secrets", "--data", &shown]).matches("that the volume was used with").count(), 3);
}

#[test]
fn a_restore_without_keys_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, copy, dump) = (path("data"), path("copy"), path("dump"));
    let file = body(folder.path(), "file", 3_000);
    let server = Server::start(data.as_ref());
    server.client(&["mb", "s3://bucket"]);
    server.client(&["put", file.to_str().unwrap(), "s3://bucket/file"]);
    ends(0, &["backup", &copy, "--data", &data]);
    ends(0, &["dump", "--data", &data, "--out", &dump]);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    for (made, arguments) in
        [(path("restored"), ["restore", &copy, "--data"]), (path("loaded"), ["load", &dump, "--data"])]
    {
        let output = run(&[&arguments[..], &[&made]].concat());
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("keys, encryption-keys, identity-key") && said.contains("secrets forget"), "{said}");
        let names = ["keys", "encryption-keys", "identity-key"];
        assert!(names.iter().all(|name| !Path::new(&made).join(name).exists()), "no key was made");
        let serve = ["serve", "--data", &made, "--address", "127.0.0.1:0", "--admin-address", "off"];
        assert!(ends(3, &serve).contains("encryption-keys is missing"));
        // With the files of the source, or with new ones.
        if made.ends_with("loaded") {
            for name in names {
                fs::copy(Path::new(&data).join(name), Path::new(&made).join(name)).unwrap();
            }
        } else {
            ends(0, &["secrets", "forget", "root", "encryption", "identity", "--data", &made]);
        }
        let server = Server::start(made.as_ref());
        let got = path("got");
        server.client(&["get", "s3://bucket/file", &got]);
        assert!(fs::read(&got).unwrap() == fs::read(&file).unwrap());
    }
}
