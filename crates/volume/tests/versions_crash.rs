//! Versions on a machine that loses its power: what was answered is there, what was not is there whole or not at all.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use margay_env::Disk;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_volume::*;
use world::maintenance::{ALL, Maintained};
use world::{body_of, etag_of, machine, read_all, wait};

static MAINTAINED: Maintained = Maintained::new();

const KEYS: [&str; 4] = ["a", "a/b", "a/b/c", "d"];

/// Whether what is there after a crash is what an operation may have left.
type Accepts = Box<dyn FnOnce(&Model) -> bool>;

/// Of each key the ids and bodies, the newest first; a delete marker has no body.
type Model = BTreeMap<String, Vec<(VersionId, Option<Vec<u8>>)>>;

struct Machine {
    volume: Arc<Volume>,
    engine: Arc<EmbeddedEngine>,
}

fn open(disk: &SimDisk, seed: u64) -> Machine {
    let (volume, engine) = machine::open(disk, seed, None, Options::default());
    Machine { volume, engine }
}

impl Machine {
    fn put(&self, key: &str, body: &[u8]) -> Result<PutOutcome, Error> {
        wait(async {
            let mut upload = self.volume.begin_upload("b", body.len() as u64).await?;
            upload.write(body.to_vec().into()).await?;
            let staged = upload.finish().await?;
            let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
            self.volume.put_object(request, staged).await
        })
    }

    fn found(&self) -> Model {
        let request = ListVersionsRequest { bucket: "b", prefix: "", delimiter: None, after: None, max: 10_000 };
        let mut lines = Vec::new();
        let listed = wait(self.volume.list_versions(&request, &mut |item| match item {
            VersionItem::Version { key, version, .. } => lines.push((key.to_owned(), version, true)),
            VersionItem::DeleteMarker { key, version, .. } => lines.push((key.to_owned(), version, false)),
            VersionItem::Prefix(_) => {}
        }));
        assert_eq!(listed.unwrap().next, None);
        let mut model = Model::new();
        for (key, version, has_body) in lines {
            let read = || {
                let reader = wait(self.volume.get_version("b", &key, Some(version), &ReadCondition::default()));
                read_all(&reader.unwrap())
            };
            let body = has_body.then(read);
            model.entry(key).or_default().push((version, body));
        }
        model
    }

    /// One random operation; `model` is changed when it was answered, and what it would be otherwise is given.
    fn step(&self, model: &mut Model, random: &SimRandom, number: usize) -> Result<(), Accepts> {
        let key = KEYS[random.below(KEYS.len() as u64) as usize];
        let versions = model.get(key).cloned().unwrap_or_default();
        let before = model.clone();
        if random.chance(55) || versions.is_empty() {
            let body = body_of(number, [40, 3000, 70_000][random.below(3) as usize]);
            let Ok(outcome) = self.put(key, &body) else {
                // The id was never told, so only the rest can be compared.
                let key = key.to_owned();
                return Err(Box::new(move |found| {
                    let mut rest = found.clone();
                    if *found != before {
                        let top = rest.get_mut(&key).map(|versions| versions.remove(0));
                        rest.retain(|_, versions| !versions.is_empty());
                        return top.is_some_and(|(_, found)| found == Some(body)) && rest == before;
                    }
                    true
                }));
            };
            model.entry(key.to_owned()).or_default().insert(0, (outcome.version.unwrap(), Some(body)));
        } else if random.chance(40) {
            let Ok(deleted) = wait(self.volume.delete_object("b", &DeleteRequest::of(key))) else {
                let key = key.to_owned();
                return Err(Box::new(move |found| {
                    let mut rest = found.clone();
                    if *found == before {
                        return true;
                    }
                    let top = rest.get_mut(&key).map(|versions| versions.remove(0));
                    top.is_some_and(|(_, body)| body.is_none()) && rest == before
                }));
            };
            model.get_mut(key).unwrap().insert(0, (deleted.version.unwrap(), None));
        } else {
            let which = random.below(versions.len() as u64) as usize;
            let mut after = before.clone();
            after.get_mut(key).unwrap().remove(which);
            after.retain(|_, versions| !versions.is_empty());
            let request = DeleteRequest { version: Some(versions[which].0), ..DeleteRequest::of(key) };
            if wait(self.volume.delete_object("b", &request)).is_err() {
                return Err(Box::new(move |found| *found == before || *found == after));
            }
            *model = after;
        }
        Ok(())
    }
}

/// Runs until the disk fails, loses power and is opened again.
fn life(disk: &SimDisk, model: &mut Model, seed: u64) -> SimDisk {
    let random = SimRandom::new(seed);
    let machine = open(disk, seed);
    disk.fail_after(1 + random.below(150));
    let mut accepts: Option<Accepts> = None;
    for number in 0..120 {
        if number % 6 == 5
            && machine.engine.checkpoint().is_ok()
            && let Ok(done) = machine.volume.reclaim_once(&ALL, &SealedLogs)
        {
            MAINTAINED.count(&done);
            MAINTAINED.check_until_crash(&machine.volume);
        }
        if let Err(either) = machine.step(model, &random, number) {
            accepts = Some(either);
            break;
        }
    }
    let after = disk.crash(seed);
    disk.fail_after(0);
    drop(disk.sync_dir(Path::new("/")));
    drop(machine);
    let machine = open(&after, seed);
    let report = machine.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "seed {seed}: {report:#?}");
    let found = machine.found();
    match accepts {
        Some(accepts) => assert!(accepts(&found), "seed {seed}: neither before nor after"),
        None => assert_eq!(found, *model, "seed {seed}"),
    }
    *model = found;
    machine.engine.checkpoint().unwrap();
    drop(machine);
    after
}

#[test]
fn a_crash_keeps_every_version_that_was_answered() {
    for seed in 0..40 {
        let mut disk = SimDisk::new(seed);
        let first = open(&disk, seed);
        wait(first.volume.create_bucket("b")).unwrap();
        wait(first.volume.set_versioning("b", Versioning::Enabled)).unwrap();
        drop(first);
        let mut model = Model::new();
        for again in 0..3 {
            disk = life(&disk, &mut model, seed * 3 + again);
        }
    }
    MAINTAINED.told("versions on a machine that loses its power");
}
