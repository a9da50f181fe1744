//! A full disk: what is deleted comes back though nothing can be copied, and what lives stays whole, also over a crash.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Clock, Disk};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_volume::*;
use world::{body_of, etag_of, machine, read_all, wait};

/// More than the engine keeps for itself: the log fills the disk until nothing can be copied.
const RESERVE_BYTES: u64 = 18 << 20;
/// Room for data on a disk before it is full.
const ROOM_BYTES: u64 = 3 << 20;
/// Passes after which all that can come back is back; few are needed, but threads of a busy machine come late.
const PASSES: usize = 50;

/// The engine looks at the disk ten times a second; what is written meanwhile is beyond its limit.
const LOOK_PAUSE: Duration = Duration::from_millis(120);

type Model = BTreeMap<String, Vec<u8>>;

struct Machine {
    volume: Arc<Volume>,
    engine: Arc<EmbeddedEngine>,
    punched_bytes: u64,
}

fn open(disk: &SimDisk, seed: u64) -> Machine {
    let options = Options { run_bytes_max: 40 << 10, ..Options::default() };
    let (volume, engine) = machine::open_with_reserve(disk, seed, None, options, RESERVE_BYTES);
    Machine { volume, engine, punched_bytes: 0 }
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

    /// Puts objects until the disk is full.
    fn fill(&self, random: &mut SimRandom, sizes: u64, model: &mut Model) {
        for number in model.len().. {
            if number % 4 == 0 {
                std::thread::sleep(LOOK_PAUSE);
            }
            // The last size goes to packs, the others to the log.
            let len = [700, 3000, 30_000, 60_000, 100_000][random.below(sizes) as usize] + random.below(500) as usize;
            let (key, body) = (format!("{number:04}"), body_of(number, len));
            match self.put(&key, &body) {
                Ok(_) => drop(model.insert(key, body)),
                Err(Error::Full) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn delete(&self, key: &str) {
        wait(self.volume.delete_object("b", &DeleteRequest::of(key))).unwrap();
    }

    fn pass(&mut self) {
        self.engine.checkpoint().unwrap();
        let budget = ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
        let done = self.volume.reclaim_once(&budget, &SealedLogs).unwrap();
        assert_eq!((done.disputed_segments, done.damaged_runs), (0, 0), "{done:?}");
        self.punched_bytes += done.punched_bytes;
    }

    fn holds(&self, model: &Model) {
        for (key, body) in model {
            let reader = wait(self.volume.get_object("b", key, &ReadCondition::default())).unwrap();
            assert!(read_all(&reader) == *body, "{key}");
        }
        let report = self.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
        let report = self.volume.scrub(10, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.damaged, 0, "{report:#?}");
    }
}

/// Bytes given back in place.
fn round(seed: u64) -> u64 {
    let (disk, mut random) = (SimDisk::new(seed), SimRandom::new(seed));
    let mut machine = open(&disk, seed);
    wait(machine.volume.create_bucket("b")).unwrap();
    let space = disk.space(Path::new("/")).unwrap();
    disk.set_capacity(space.total_bytes - space.free_bytes + RESERVE_BYTES + ROOM_BYTES);
    let mut model = Model::new();
    machine.fill(&mut random, 5, &mut model);
    // Packs are refused earlier.
    machine.fill(&mut random, 4, &mut model);
    let mut deleted_bytes = 0;
    let keys: Vec<String> = model.keys().cloned().collect();
    for key in keys.iter().filter(|_| random.below(10) < 3) {
        machine.delete(key);
        deleted_bytes += model.remove(key).unwrap().len() as u64;
    }
    let body = body_of(1, 60_000);
    let mut tries = 0..PASSES;
    while machine.put("again", &body).is_err() {
        assert!(tries.next().is_some(), "seed {seed}: {deleted_bytes} bytes were deleted, and no room came back");
        machine.pass();
        std::thread::sleep(LOOK_PAUSE);
    }
    model.insert("again".to_owned(), body);
    machine.pass();
    machine.holds(&model);
    let punched_bytes = machine.punched_bytes;
    let after = disk.crash(seed);
    drop(machine);
    open(&after, seed).holds(&model);
    punched_bytes
}

#[test]
fn deleted_bytes_come_back_though_nothing_can_be_copied() {
    let punched: Vec<u64> = std::thread::scope(|scope| {
        let rounds: Vec<_> = (0..12).map(|seed| scope.spawn(move || round(seed))).collect();
        rounds.into_iter().map(|round| round.join().unwrap()).collect()
    });
    assert!(punched.iter().filter(|bytes| **bytes > 0).count() > 3, "{punched:?}");
}

/// Bytes that a pass must give back to count.
const GIVEN_BYTES: usize = 17 << 20;

#[test]
fn a_refused_write_gets_the_room_of_what_waits_in_quarantine() {
    let disk = SimDisk::new(1);
    let machine = open(&disk, 1);
    wait(machine.volume.create_bucket("b")).unwrap();
    let space = disk.space(Path::new("/")).unwrap();
    disk.set_capacity(space.total_bytes - space.free_bytes + RESERVE_BYTES + GIVEN_BYTES as u64 + ROOM_BYTES);
    let body = body_of(1, GIVEN_BYTES);
    machine.put("dead", &body).unwrap();
    machine.put("live", &body_of(2, 1 << 20)).unwrap();
    assert!(machine.volume.refused() == 0, "both fit");
    machine.delete("dead");
    machine.engine.checkpoint().unwrap();
    // As the server does: what is dead waits.
    let budget =
        ReclaimBudget { quarantine: Duration::from_secs(3600), free_percent_min: 0, ..ReclaimBudget::default() };
    machine.volume.reclaim_once(&budget, &SealedLogs).unwrap();
    std::thread::sleep(LOOK_PAUSE);
    assert!(matches!(machine.put("new", &body), Err(Error::Full)));
    assert!(machine.volume.make_room());
    machine.put("new", &body).unwrap();
    // Now all of it lives.
    assert!(matches!(machine.put("more", &body), Err(Error::Full)));
    let clock = RealClock::new();
    let barren_at = clock.monotonic();
    assert!(!machine.volume.make_room());
    machine.delete("new");
    machine.engine.checkpoint().unwrap();
    let gave = machine.volume.make_room();
    // On a machine that stood still the pause is over.
    assert!(!gave || clock.monotonic() - barren_at >= Duration::from_secs(2), "not again so soon");
    let model = [("live".to_owned(), body_of(2, 1 << 20))].into();
    machine.holds(&model);
}

#[test]
fn one_pass_makes_room_for_all_who_wait() {
    let disk = SimDisk::new(2);
    let machine = open(&disk, 2);
    wait(machine.volume.create_bucket("b")).unwrap();
    let space = disk.space(Path::new("/")).unwrap();
    disk.set_capacity(space.total_bytes - space.free_bytes + RESERVE_BYTES + GIVEN_BYTES as u64 + ROOM_BYTES);
    machine.put("dead", &body_of(1, GIVEN_BYTES)).unwrap();
    machine.delete("dead");
    machine.engine.checkpoint().unwrap();
    assert!(matches!(machine.put("new", &body_of(1, GIVEN_BYTES)), Err(Error::Full)));
    let barrier = std::sync::Barrier::new(8);
    let gave = std::thread::scope(|scope| {
        let waits: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    machine.volume.make_room()
                })
            })
            .collect();
        waits.into_iter().map(|wait| wait.join().unwrap()).filter(|gave| *gave).count()
    });
    // One that came after the pass has begun a barren one.
    assert!(gave >= 1, "{gave}");
    machine.put("new", &body_of(1, GIVEN_BYTES)).unwrap();
}
