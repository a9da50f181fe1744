//! A bucket that refuses to be listed any more, since its keys lost their rights: it is told, and no name is said to be missing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::process::Output;

use serde_json::Value;

mod server;

use server::far::World;
use server::{Server, ends, until};

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bucket_that_refuses_to_be_listed_is_told_and_no_name_is_missing_in_it() {
    let world = World::new();
    let data = world.server.data.to_str().unwrap();
    let key: Value = serde_json::from_str(&ends(0, &["user", "create", "ann", "--json", "--data", data])).unwrap();
    let rights = ["arn:aws:iam::aws:policy/AmazonS3FullAccess", "--user", "ann", "--data", data];
    ends(0, &[&["policy", "attach"], &rights[..]].concat());
    let (cache, log) = (world.folder.path().join("cache"), world.folder.path().join("log"));
    let mut command = world.serving(&cache, &world.server.endpoint, &[], fs::File::create(&log).unwrap().into());
    command.env("AWS_ACCESS_KEY_ID", key["access_key"].as_str().unwrap());
    command.env("AWS_SECRET_ACCESS_KEY", key["secret_key"].as_str().unwrap());
    let gateway = Server::started(command, &cache);
    let get = |name: &str| {
        let (mut command, own) = (world.command(), gateway.keys());
        command.env("AWS_ACCESS_KEY_ID", own.access_key).env("AWS_SECRET_ACCESS_KEY", own.secret_key);
        let file = world.folder.path().join("got");
        command.args(["client", "--endpoint", &gateway.endpoint, "get", &format!("s3://bucket/{name}")]).arg(file);
        command.output().unwrap()
    };
    let status = || {
        let told = world.command().args(["status", "--cache", cache.to_str().unwrap()]).output().unwrap();
        String::from_utf8(told.stdout).unwrap()
    };
    world.put("known", 10);
    assert!(get("known").status.success(), "{}", error(&get("known")));
    assert!(error(&get("later")).contains("NoSuchKey"));
    assert!(!status().contains("WRONG"), "{}", status());

    ends(0, &[&["policy", "detach"], &rights[..]].concat());
    world.put("later", 10);
    until("absences are not known", || !error(&get("later")).contains("NoSuchKey"));
    let refused = error(&get("later"));
    assert!(refused.contains("refuses to be listed") && refused.contains("AccessDenied"), "{refused}");
    assert!(status().contains("WRONG: the bucket refuses to be listed"), "{}", status());
    let warned = fs::read_to_string(&log).unwrap();
    assert_eq!(warned.matches("refuses to be listed: what is shown").count(), 1, "once: {warned}");
    assert!(get("known").status.success(), "what is in the cache is served");

    ends(0, &[&["policy", "attach"], &rights[..]].concat());
    until("it is there", || get("later").status.success());
    assert!(!status().contains("WRONG"), "{}", status());
}
