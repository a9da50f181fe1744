//! Segments of a shared volume in a bucket of another store, which is a margay server here.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

#[path = "../crates/postgres/tests/server/mod.rs"]
mod postgres;
mod server;
#[path = "cluster/world.rs"]
#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod world;

use server::far::upstream_of;
use server::{Server, margay, metric};
use world::{Door, World, body, wait_for_wanted, wait_until};

/// In a segment of its own.
const LARGE_BYTES: usize = 17 << 20;

/// A volume whose servers have keys of a store with a bucket.
struct Pooled {
    world: World,
    bucket: Server,
}

impl Pooled {
    fn new() -> Option<Pooled> {
        let world = World::new()?;
        let bucket = Server::start(&world.data("bucket"));
        bucket.client(&["mb", "s3://bucket"]);
        Some(Pooled { world, bucket })
    }

    fn with_keys(&self, command: &mut Command) {
        let keys = self.bucket.keys();
        command.env("AWS_ACCESS_KEY_ID", keys.access_key).env("AWS_SECRET_ACCESS_KEY", keys.secret_key);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
    }

    fn serve(&self, name: &str) -> Door {
        let data = self.world.data(name);
        if name != "one" && !data.exists() {
            fs::create_dir(&data).unwrap();
            for file in ["keys", "identity-key", "encryption-keys"] {
                fs::copy(self.world.data("one").join(file), data.join(file)).unwrap();
            }
        }
        let mut command = self.world.command(name, &["--set", "limits.quarantine_time=0"]);
        self.with_keys(&mut command);
        let log = fs::File::options().create(true).append(true).open(self.world.data("log")).unwrap();
        command.stderr(log);
        let server = Server::started(command, &data);
        Door { upstream: upstream_of(&server), server }
    }

    fn order(&self, words: &[&str]) -> Result<String, String> {
        let mut command = margay();
        self.with_keys(&mut command);
        let done = command.args(words).args(["--metadata", &self.world.postgres.url()]).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
    }

    fn add(&self, count: &str) -> Result<String, String> {
        let url = ["cluster", "pool", "add", "cold", "--url", "s3://bucket/a/b", "--endpoint", &self.bucket.endpoint];
        self.order(&[&url[..], &["--count", count]].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.order(&["cluster", "status", "--json"]).unwrap()).unwrap()
    }

    /// By the rows: segments that a store has.
    fn segments_at(&self, store: usize) -> u64 {
        self.status()["stores"][store]["segments"].as_u64().unwrap()
    }

    /// Keys in the bucket.
    fn objects(&self) -> Vec<String> {
        let listed = self.bucket.client(&["ls", "s3://bucket/a/b/", "--recursive"]);
        listed.lines().filter(|line| line.contains("margay/")).map(str::to_owned).collect()
    }

    /// Files of segments that the first server made.
    fn copies_at(&self, name: &str) -> usize {
        let names = fs::read_dir(self.world.data(name).join("segments")).unwrap();
        let names = names.map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("000000") && (name.ends_with(".pack") || name.ends_with(".raw"))).count()
    }
}

fn large(seed: u8) -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at as u8).wrapping_mul(29).wrapping_add((at >> 12) as u8 ^ seed)).collect()
}

fn kill(server: Server) {
    server.signal(Signal::KILL);
    assert_eq!(server.code(), None);
}

fn kill_bucket(bucket: &mut Server) {
    bucket.child.kill().unwrap();
    bucket.child.wait().unwrap();
}

fn stop(server: Server) {
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn what_is_in_a_pool_is_read_from_there_when_its_server_is_lost() {
    let Some(mut pooled) = Pooled::new() else { return };
    let world = &pooled.world;
    let one = pooled.serve("one");
    one.server.client(&["mb", "s3://bucket"]);
    let two = pooled.serve("two");
    pooled.order(&["cluster", "set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server, &two.server], 2);
    let acknowledged = [("small", body(1)), ("large/1", large(1)), ("large/2", large(2))];
    acknowledged.iter().for_each(|(key, body)| world.put(&one, key, body));
    // The pack is sealed.
    stop(one.server);
    let one = pooled.serve("one");
    assert!(pooled.copies_at("two") >= 3);

    assert!(
        pooled
            .order(&["cluster", "pool", "add", "cold", "--url", "/nowhere"])
            .unwrap_err()
            .contains("a pool is a bucket")
    );
    let own = ["cluster", "pool", "add", "own", "--url", "s3://bucket/x", "--endpoint", &two.server.endpoint];
    let keys = two.server.keys();
    let mut command = margay();
    command.env("AWS_ACCESS_KEY_ID", keys.access_key).env("AWS_SECRET_ACCESS_KEY", keys.secret_key);
    let done = command.args(own).args(["--metadata", &world.postgres.url()]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("a bucket of this very volume"), "{said}");
    assert!(pooled.add("9").unwrap_err().contains("1 to 8"));
    assert!(pooled.add("2").unwrap().contains("pool cold is store 2 and counts as 2"));
    assert!(pooled.add("2").unwrap_err().contains("one at a time"));
    wait_until("all segments of both are in the pool", || pooled.segments_at(2) >= 3);
    wait_until("copies that are too many are gone", || pooled.copies_at("two") == 0);
    assert!(pooled.objects().len() >= 3);
    let said = pooled.order(&["cluster", "status"]).unwrap();
    assert!(said.contains("pool         pool") && said.contains("s3://bucket/a/b at http://"), "{said}");
    assert!(pooled.order(&["cluster", "pool", "list"]).unwrap().contains("cold"));
    let found: Value =
        serde_json::from_str(&pooled.order(&["object", "where", "bucket/large/1", "--json"]).unwrap()).unwrap();
    assert!(found["segments"][0]["stores"].to_string().contains("\"pool\""), "{found}");
    assert_eq!(found["segments"][0]["missing_copies"], 0);
    assert!(metric(&one.server.data, "margay_copies_pooled_total") >= 3);

    // With its disk.
    kill(one.server);
    fs::remove_dir_all(world.data("one").join("segments")).unwrap();
    for (key, body) in &acknowledged {
        assert!(world.get(&two, key).unwrap().unwrap() == *body, "{key}");
    }
    wait_until("the killed server is taken for dead", || pooled.order(&["cluster", "detach", "0"]).is_ok());
    assert_eq!(pooled.status()["segments_lost"], 0);
    assert!(pooled.order(&["cluster", "pool", "remove", "cold"]).unwrap_err().contains("nowhere else"));
    // A pool that is away is no object that is missing, and holds up no write.
    stop(two.server);
    let two = pooled.serve("two");
    kill_bucket(&mut pooled.bucket);
    let error = world.get(&two, "large/1").unwrap_err();
    assert!(error.to_string().contains("503") || error.to_string().contains("ServiceUnavailable"), "{error}");
}

#[test]
fn an_object_of_a_pool_goes_with_its_segment_and_a_pool_that_is_removed_counts_no_more() {
    let Some(pooled) = Pooled::new() else { return };
    let world = &pooled.world;
    let one = pooled.serve("one");
    one.server.client(&["mb", "s3://bucket"]);
    let two = pooled.serve("two");
    pooled.order(&["cluster", "set", "--copies", "2"]).unwrap();
    wait_for_wanted(&[&one.server, &two.server], 2);
    [1, 2].into_iter().for_each(|seed| world.put(&one, &format!("large/{seed}"), &large(seed)));
    pooled.add("1").unwrap();
    wait_until("both are in the pool", || pooled.segments_at(2) >= 2 && pooled.objects().len() >= 2);
    wait_until("copies that are too many are gone", || pooled.copies_at("two") == 0);
    one.server.client(&["rm", "s3://bucket/large/1"]);
    let data = one.server.data.display().to_string();
    wait_until("the object is gone with its segment", || {
        let done = margay().args(["compact", "--data", &data]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        pooled.objects().len() == 1
    });
    assert!(world.get(&two, "large/2").unwrap().unwrap() == large(2));
    assert!(pooled.order(&["cluster", "pool", "remove", "cold"]).unwrap().contains("may be removed"));
    wait_until("the other server has a copy again", || {
        pooled.copies_at("two") > 0 && pooled.status()["segments_with_too_few_copies"] == 0
    });
    assert!(pooled.order(&["cluster", "pool", "list"]).unwrap().contains("removed"));
    kill(one.server);
    assert!(world.get(&two, "large/2").unwrap().unwrap() == large(2));
}
