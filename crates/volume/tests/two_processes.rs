//! Two processes over one shared engine, each with a session, a store, a mount, a follower and a notifier: random operations of
//! both doors, quotas, events, reclaim of both, and processes that are stopped past their leases.
//!
//! Invariants: both read what the model has at any time; a quota refuses as the model says; each change is told exactly once
//!             while its holder lives, and at least once over a stop; the count of events is the same in both; fsck is clean.
//! Not here:   two operations in every order (interleavings_stores), open files beside changes of others (two_stores).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use margay_env::sim::SimRandom;
use margay_env::{Env, Random};
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use world::maintenance::ALL;
use world::shared::{Routed, follow};
use world::tree::{NEW, plain};
use world::*;

const KEYS: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 80;
/// `MARGAY_TEST_SEEDS` asks for more.
const SEEDS: u64 = 60;
/// Each commit of these is one of a real server.
const SEEDS_POSTGRES: u64 = 6;
/// Few, so that some changes are refused for it.
const EVENTS_MAX: u64 = 12;

const WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: true, exclusive: false, kill_privileges: false };

type Stores = [(Env, Arc<Store>); 2];

/// What was seen in all runs, so that a run in which nothing happens shows.
#[derive(Debug, Default)]
struct Evidence {
    removed_segments: u64,
    sent: usize,
    sent_twice: usize,
    over_quota: u64,
    too_many_events: u64,
    stops: u64,
}

struct Run<'a> {
    random: &'a SimRandom,
    volumes: [Arc<Volume>; 2],
    mounts: [Arc<Mount>; 2],
    model: BTreeMap<&'static str, Vec<u8>>,
    objects_max: Option<u64>,
    /// Events that were committed and not sent yet, by key.
    unsent: Vec<String>,
    told: BTreeSet<EventNumber>,
    readers: Vec<(Reader, Vec<u8>)>,
    evidence: &'a mut Evidence,
}

impl Run<'_> {
    fn below(&self, end: u64) -> usize {
        (self.random.next_u64() % end) as usize
    }

    /// Both have read what the other one did, within the time that they have for it.
    fn follow(&self) {
        self.volumes.iter().for_each(|volume| follow(volume));
        let waiting = self.volumes.each_ref().map(|volume| volume.events_waiting());
        assert_eq!(waiting, [self.unsent.len() as u64; 2], "both know how many events wait");
    }

    /// Whether a change that adds this key is refused, and how. Nothing is then told.
    fn refusal(&self, adds: Option<&str>) -> Option<&'static str> {
        let grows = adds.is_some_and(|key| !self.model.contains_key(key));
        if grows && self.objects_max.is_some_and(|most| self.model.len() as u64 >= most) {
            return Some("quota");
        }
        (self.unsent.len() as u64 >= EVENTS_MAX).then_some("events")
    }

    /// Compares the answer of a change with what the model says. True: it was made.
    fn made<T: std::fmt::Debug>(&mut self, adds: Option<&str>, told: &str, done: Result<T, Error>) -> bool {
        match (self.refusal(adds), done) {
            (None, Ok(_)) => {
                self.unsent.push(told.to_owned());
                true
            }
            (Some("quota"), Err(Error::QuotaExceeded)) => {
                self.evidence.over_quota += 1;
                false
            }
            (Some("events"), Err(Error::Busy)) => {
                self.evidence.too_many_events += 1;
                false
            }
            // Both are exceeded: either may be looked at first.
            (Some("quota"), Err(Error::Busy)) if self.unsent.len() as u64 >= EVENTS_MAX => false,
            (expected, done) => panic!("{told}: {done:?}, expected {expected:?}"),
        }
    }

    fn step(&mut self) {
        let who = self.below(2);
        let (key, other) = (KEYS[self.below(3)], KEYS[self.below(3)]);
        let volume = Arc::clone(&self.volumes[who]);
        match self.below(20) {
            0..=4 => self.put(&volume, key),
            5 => self.delete(&volume, key),
            6 => self.copy(&volume, key, other),
            7..=8 => self.write_at_mount(who, key),
            9 => self.rename_at_mount(who, key, other),
            10 => self.unlink_at_mount(who, key),
            11 => {
                if let Ok(reader) = wait(volume.get_object("b", key, &ReadCondition::default())) {
                    self.readers.push((reader, self.model[key].clone()));
                }
            }
            12 if !self.readers.is_empty() => {
                let (reader, body) = self.readers.swap_remove(self.below(self.readers.len() as u64));
                assert!(read_all(&reader) == body, "a reader reads what it opened");
            }
            13 => {
                let objects = Some(1 + self.below(4) as u64).filter(|most| *most < 4);
                wait(volume.set_quota("b", Quota { objects, bytes: None })).unwrap();
                self.objects_max = objects;
            }
            14..=15 => self.send(who, false),
            16 => self.stop(who),
            17 => self.volumes.iter().for_each(|volume| drop(volume.beat().unwrap())),
            _ => {
                self.volumes.iter().for_each(|volume| drop(volume.beat().unwrap()));
                let done = volume.reclaim_once(&ALL, &SealedLogs).unwrap();
                assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
                self.evidence.removed_segments += done.removed_segments;
            }
        }
        self.follow();
        self.compare();
    }

    fn put(&mut self, volume: &Volume, key: &'static str) {
        let body = body_of(self.below(1 << 20), 150 + self.below(600));
        let staged = wait(async {
            let mut upload = volume.begin_upload("b", body.len() as u64).await.unwrap();
            upload.write(body.clone().into()).await.unwrap();
            upload.finish().await.unwrap()
        });
        let request = PutRequest { bucket: "b", key, etag: etag_of(&body), ..PutRequest::default() };
        let done = wait(volume.put_object(request, staged));
        if self.made(Some(key), key, done) {
            self.model.insert(key, body);
        }
    }

    fn delete(&mut self, volume: &Volume, key: &'static str) {
        let done = wait(volume.delete_object("b", &DeleteRequest::of(key)));
        if !self.model.contains_key(key) {
            // Nothing happens, so nothing is told.
            done.unwrap();
        } else if self.made(None, key, done) {
            self.model.remove(key);
        }
    }

    fn copy(&mut self, volume: &Volume, from: &'static str, to: &'static str) {
        let request =
            CopyRequest { source_bucket: "b", source_key: from, bucket: "b", key: to, ..CopyRequest::default() };
        let done = wait(volume.copy_object(request));
        let Some(body) = self.model.get(from).cloned() else {
            assert!(matches!(done, Err(Error::NoSuchKey)), "{done:?}");
            return;
        };
        if from != to && self.made(Some(to), to, done) {
            self.model.insert(to, body);
        } else if from == to {
            // Refused, or a change of nothing; what is told of it is counted below.
            self.unsent = self.queued();
        }
    }

    /// Changes of mounts are told too; how often is theirs to say.
    fn write_at_mount(&mut self, who: usize, key: &'static str) {
        if self.refusal(Some(key)).is_some() {
            return;
        }
        let (mount, body) = (&self.mounts[who], body_of(self.below(1 << 20), 150 + self.below(600)));
        let handle = match mount.lookup(mount.root(), &plain(key)) {
            Ok(found) => mount.open_file(found.ino, WRITE).unwrap(),
            Err(_) => mount.create(mount.root(), &plain(key), &NEW, WRITE).unwrap().1,
        };
        mount.write(&handle, 0, &body, false).unwrap();
        mount.sync(&handle).unwrap();
        mount.release(handle).unwrap();
        self.model.insert(key, body);
        self.unsent = self.queued();
    }

    fn rename_at_mount(&mut self, who: usize, from: &'static str, to: &'static str) {
        if self.refusal(None).is_some() {
            return;
        }
        let (mount, root) = (&self.mounts[who], self.mounts[who].root());
        let done = mount.rename(root, &plain(from), root, &plain(to), RenameMode::Replace);
        match self.model.contains_key(from) {
            false => assert!(matches!(done, Err(PosixError::NotFound)), "{done:?}"),
            true => {
                done.unwrap();
                let body = self.model.remove(from).unwrap();
                self.model.insert(to, body);
            }
        }
        self.unsent = self.queued();
    }

    fn unlink_at_mount(&mut self, who: usize, key: &'static str) {
        if self.refusal(None).is_some() {
            return;
        }
        let done = self.mounts[who].unlink(self.mounts[who].root(), &plain(key));
        assert_eq!(done.is_ok(), self.model.remove(key).is_some(), "{done:?}");
        self.unsent = self.queued();
    }

    fn queued(&self) -> Vec<String> {
        let queued = wait(self.volumes[0].queued_events("t", 1000)).unwrap();
        queued.into_iter().map(|queued| queued.event.key).collect()
    }

    /// A round of the notifier: what it posts is noted. `late`: it stands still behind its posts until another one has
    /// taken its lease over.
    fn send(&mut self, who: usize, late: bool) {
        let volume = Arc::clone(&self.volumes[who]);
        let Some(lease) = wait(volume.lease("notify/t")).unwrap() else { return };
        let queued = wait(volume.queued_events("t", 1 + self.below(8))).unwrap();
        assert!(wait(volume.still_holds(&lease)).unwrap());
        for queued in &queued {
            self.evidence.sent += 1;
            let is_new = self.told.insert(queued.number);
            self.evidence.sent_twice += usize::from(!is_new);
        }
        if late {
            self.take_over(who);
            assert!(!wait(volume.still_holds(&lease)).unwrap(), "another one sends now");
        }
        let numbers: Vec<EventNumber> = queued.iter().map(|queued| queued.number).collect();
        match wait(volume.forget_events("t", &numbers, &lease)) {
            Ok(()) if !late => drop(self.unsent.drain(..numbers.len())),
            Ok(()) => assert!(numbers.is_empty()),
            Err(error) => assert!(late && matches!(error, Error::LeaseLost), "{error:?}"),
        }
    }

    /// The other one takes this one for dead, and takes its leases.
    fn take_over(&mut self, dead: usize) {
        let by = Arc::clone(&self.volumes[1 - dead]);
        shared::fence(&by, &self.volumes[dead]);
        assert!(wait(by.lease("notify/t")).unwrap().is_some());
        self.evidence.stops += 1;
    }

    /// A process stands still past its leases, then goes on, late, and begins anew.
    fn stop(&mut self, who: usize) {
        self.send(who, true);
        let volume = Arc::clone(&self.volumes[who]);
        if volume.beat().is_err() {
            volume.open_session().unwrap();
        }
        assert!(
            !self.mounts[who].is_taken_over(),
            "nobody took its mount meanwhile, so it has its lease in the new session"
        );
    }

    fn compare(&self) {
        for (volume, mount) in self.volumes.iter().zip(&self.mounts) {
            for key in KEYS {
                let got = wait(volume.get_object("b", key, &ReadCondition::default())).ok();
                assert_eq!(got.map(|reader| read_all(&reader)), self.model.get(key).cloned(), "{key}");
                let size = mount.lookup(mount.root(), &plain(key)).ok().map(|found| found.size as usize);
                assert_eq!(size, self.model.get(key).map(Vec::len), "{key}");
            }
        }
    }

    fn end(mut self, stores: &Stores) {
        for (reader, body) in std::mem::take(&mut self.readers) {
            assert!(read_all(&reader) == body, "a reader reads what it opened");
        }
        while !self.unsent.is_empty() {
            self.send(0, false);
            self.send(1, false);
            self.follow();
        }
        for volume in &self.volumes {
            for _ in 0..2 {
                self.volumes.iter().for_each(|volume| drop(volume.beat().unwrap()));
                self.evidence.removed_segments += volume.reclaim_once(&ALL, &SealedLogs).unwrap().removed_segments;
            }
        }
        self.compare();
        for volume in &self.volumes {
            let report = volume.fsck(FsckOptions::default()).unwrap();
            assert!(report.clean() && report.orphans == 0 && report.unreachable_segments == 0, "{report:#?}");
        }
        for (_, store) in stores {
            assert_eq!(store.taken_back(), 0, "nothing was set aside that somebody reads");
        }
    }
}

/// Both write; each batch of theirs asserts a lease of its own, which goes with the mount.
fn shared() -> MountOptions {
    MountOptions { claim: Claim::Shared, ..MountOptions::default() }
}

fn run(engines: &[Arc<dyn Engine>; 2], stores: &Stores, seed: u64, evidence: &mut Evidence) {
    let random = SimRandom::new(seed);
    let options = Options {
        run_bytes_max: 300,
        events: Some(Arc::new(Routed(|_| vec!["t"]))),
        events_max: EVENTS_MAX,
        ..Options::default()
    };
    let volumes = two_stores::in_sessions_over(engines, stores, &options);
    wait(volumes[0].create_bucket("b")).unwrap();
    wait(volumes[0].set_bucket_setting("b", Setting::Notification, b"rules")).unwrap();
    let mounts = volumes.each_ref().map(|volume| Mount::open(Arc::clone(volume), "b", "", shared()).unwrap());
    let (model, told, readers) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let (objects_max, unsent) = (None, Vec::new());
    let mut run = Run { random: &random, volumes, mounts, model, objects_max, unsent, told, readers, evidence };
    run.follow();
    (0..STEPS).for_each(|_| run.step());
    run.end(stores);
}

fn run_all(seeds: u64, engines: impl Fn() -> [Arc<dyn Engine>; 2]) -> Evidence {
    let mut evidence = Evidence::default();
    let mut stores = two_stores::stores();
    for seed in 0..seeds {
        if seed % 50 == 49 {
            stores = two_stores::stores();
        }
        let engines = engines();
        catch_unwind(AssertUnwindSafe(|| run(&engines, &stores, seed, &mut evidence)))
            .unwrap_or_else(|_| panic!("seed {seed} differs, see above"));
    }
    evidence
}

#[test]
fn two_processes_over_postgresql_differ_in_nothing() {
    let Some(database) = postgres::Database::start() else { return };
    let seeds = std::env::var("MARGAY_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS_POSTGRES);
    let evidence = run_all(seeds, || database.engines());
    println!("evidence: {seeds} seeds of {STEPS} steps over PostgreSQL: {evidence:?}");
    assert!(evidence.sent > seeds as usize && evidence.removed_segments > 0 && evidence.stops > 0);
}

#[test]
fn two_processes_differ_in_nothing_whatever_they_do() {
    let seeds = std::env::var("MARGAY_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let evidence = run_all(seeds, || {
        let engine: Arc<dyn Engine> = Arc::new(Memory::new().shared(10_000));
        [Arc::clone(&engine), engine]
    });
    println!("evidence: {seeds} seeds of {STEPS} steps: {evidence:?}");
    let Evidence { removed_segments, sent, sent_twice, over_quota, too_many_events, stops } = evidence;
    assert!(removed_segments > seeds && sent > seeds as usize && over_quota > seeds && stops > seeds);
    assert!(too_many_events > 0);
    assert!(sent_twice > 0 && sent_twice < sent / 2, "only what was on its way over a stop is sent twice");
}
