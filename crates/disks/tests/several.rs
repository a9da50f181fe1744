//! The engine and the store over several simulated disks that die, come back and lose their power: nothing acknowledged is lost.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_disks::{DiskWish, Disks, DisksError, State};
use margay_env::fault::FaultNote;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Disk, Env, OpenMode, Random};
use margay_meta::embedded::{self, EmbeddedEngine};
use margay_meta::{Batch, Engine, Write};
use margay_segment::{Extent, Kind, Options, Run, RunWriter, Store};

mod machine;

use machine::Machine;

const DATA: &str = "/data";

fn wanted() -> DiskWish {
    DiskWish {
        mirror: Some("/mirror".into()),
        disks: vec!["/d1".into(), "/d2".into(), "/d3".into()],
        copies: Some(2),
        accept_missing: false,
    }
}

/// What runs on the machine.
struct Life {
    engine: EmbeddedEngine,
    store: Arc<Store>,
    disks: Disks,
}

fn open_disks(machine: &Machine, random: &SimRandom, wanted: &DiskWish) -> Result<(Env, Disks), DisksError> {
    let env = machine.env(random);
    let disks = Disks::open(&env, Path::new(DATA), wanted)?.unwrap();
    Ok((disks.env(&env), disks))
}

fn live(machine: &Machine, random: &SimRandom, wanted: &DiskWish) -> Life {
    let (env, disks) = open_disks(machine, random, wanted).unwrap();
    let (env, note) = FaultNote::watch(&env, &Path::new(DATA).join("sync-failed"));
    let after_fault = note.found().unwrap().is_some();
    let segments = Options {
        folder: Path::new(DATA).join("segments"),
        pack_bytes_max: 200 << 10,
        raw_bytes_min: 100 << 10,
        reserve_bytes: 0,
        files_may_be_missing: true,
    };
    let store = Store::open(env.clone(), segments).unwrap();
    let mut options = embedded::Options::new(Path::new(DATA).join("tree"));
    options.log_file_bytes = 64 << 10;
    options.overlay_bytes_max = 8 << 10;
    options.after_fault = after_fault;
    let engine = EmbeddedEngine::open(env, Arc::clone(&store), options).unwrap();
    note.clear().unwrap();
    Life { engine, store, disks }
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    SimRandom::new(seed).fill(&mut bytes);
    bytes
}

/// What was acknowledged.
#[derive(Default)]
struct Model {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Not yet acknowledged when the life ended: either value is right.
    runs: Vec<(Run, u64)>,
}

impl Model {
    fn check(&self, life: &Life, when: &str) {
        for (key, value) in &self.rows {
            let found = life.engine.get(key).unwrap().value.map(|row| row.value.to_vec());
            assert_eq!(found.as_ref(), Some(value), "{when}: row {key:?}");
        }
        for (run, seed) in &self.runs {
            let bytes = life.store.read(&Extent::whole(*run), 0, run.len);
            let bytes = bytes.unwrap_or_else(|error| panic!("{when}: {run:?}: {error}\n{:#?}", life.disks.status()));
            assert!(bytes == pattern(run.len, *seed), "{when}: wrong bytes of {run:?}");
        }
    }
}

/// One step of the workload; all of it is acknowledged.
fn work(life: &Life, model: &mut Model, random: &SimRandom) {
    match random.below(13) {
        12 => {
            // Nobody waits for these: a power cut leaves a different part of them on each disk.
            for _ in 0..4 {
                let write =
                    Write::Put { key: vec![b'u', random.below(9) as u8], value: pattern(900, random.next_u64()) };
                life.engine.commit(Batch { preconditions: Vec::new(), writes: vec![write], payload: None }).unwrap();
            }
        }
        0..5 => {
            let key = vec![b'k', random.below(60) as u8];
            let value = pattern(1 + random.below(700), random.next_u64());
            let write = Write::Put { key: key.clone(), value: value.clone() };
            let batch = Batch { preconditions: Vec::new(), writes: vec![write], payload: None };
            let commit = life.engine.commit(batch).unwrap();
            life.engine.wait_durable(commit.cursor).unwrap();
            model.rows.insert(key, value);
        }
        5..9 => {
            let (len, seed) =
                ([10, 4000, 70_000, 130_000][random.below(4) as usize] + random.below(99), random.next_u64());
            let mut writer = life.store.begin_run(len, b"owner").unwrap();
            for piece in pattern(len, seed).chunks(50_001) {
                writer.write(piece).unwrap();
            }
            let run = writer.finish().unwrap();
            life.store.sync_blocking(run.segment).unwrap();
            model.runs.push((run, seed));
        }
        9 => life.engine.checkpoint().unwrap(),
        10 => {
            let closed: Vec<_> =
                life.store.segments().into_iter().filter(|info| !info.open && info.kind != Kind::Log).collect();
            if closed.len() > 4 {
                let victim = closed[random.below(closed.len() as u64) as usize].id;
                model.runs.retain(|(run, _)| run.segment != victim);
                if life.store.set_aside(victim).unwrap() {
                    let mut walk = life.store.begin_walk();
                    walk.complete();
                    life.store.release(victim, &walk).unwrap();
                }
            }
        }
        _ => {
            let packs = life.store.segments().into_iter().filter(|info| !info.open && info.kind == Kind::Pack);
            if let Some(victim) = packs.map(|info| info.id).next() {
                let (gone, kept): (Vec<_>, Vec<_>) =
                    model.runs.drain(..).partition(|(run, _)| run.segment == victim && run.offset % 2 == 0);
                model.runs = kept;
                let mut walk = life.store.begin_walk();
                walk.complete();
                gone.iter().for_each(|(run, _)| life.store.punch_run(run, &walk).unwrap());
            }
        }
    }
}

/// At most one disk is broken at a time: the second failure may take data with it, and no promise is made then.
#[derive(Debug, PartialEq, Eq)]
enum Health {
    Whole,
    /// It will fail, or has failed.
    Broken(&'static str),
    /// It was replaced, or has come back, and is being filled.
    Filling(&'static str),
}

fn strike(machine: &Machine, victim: &'static str, random: &SimRandom) {
    let disk = machine.get(victim);
    match random.below(4) {
        0 => disk.fail_sync_at(1 + random.below(6)),
        1 => disk.fail_sync_dir_at(1 + random.below(3)),
        _ => disk.fail_after(random.below(60)),
    }
}

/// A disk that has stopped is replaced, or comes back with what it had.
fn put_back(machine: &Machine, life: &Life, victim: &str, random: &SimRandom) {
    let root = PathBuf::from("/").join(victim);
    let stopped = machine.get(victim).space(&root).is_err();
    let next = if stopped && random.chance(60) {
        SimDisk::new(random.next_u64())
    } else {
        machine.get(victim).crash(random.next_u64())
    };
    machine.set(victim, next);
    life.disks.add(&root).unwrap();
}

fn is_out(life: &Life, victim: &str) -> bool {
    let status = life.disks.status();
    let of = status.disks.iter().filter(|disk| disk.root == Path::new("/").join(victim));
    of.clone().any(|disk| disk.metadata == State::Out || disk.data == State::Out)
}

fn lives(seed: u64) -> (u64, u64) {
    let random = SimRandom::new(seed);
    let mut machine = Machine::of(&["data", "mirror", "d1", "d2", "d3"], random.next_u64() >> 8);
    let (mut model, mut health) = (Model::default(), Health::Whole);
    let (mut outs, mut fills) = (0, 0);
    let mut life = live(&machine, &random, &wanted());
    assert!(life.disks.fill());
    // With the thread that looks and fills, or only when asked.
    let is_started = seed.is_multiple_of(2);
    if is_started {
        life.disks.start().unwrap();
    }
    for step in 0..400 {
        work(&life, &mut model, &random);
        match (&health, random.below(100)) {
            (Health::Whole, 0..6) => {
                let victim = ["data", "mirror", "d1", "d2", "d3"][random.below(5) as usize];
                strike(&machine, victim, &random);
                health = Health::Broken(victim);
            }
            (Health::Broken(victim), 0..12) if is_out(&life, victim) => {
                outs += 1;
                put_back(&machine, &life, victim, &random);
                health = Health::Filling(victim);
            }
            (Health::Broken(victim), 12..20) if is_out(&life, victim) => {
                // All power goes while it is out; the next process finds it as if nothing had been.
                outs += 1;
                let after = machine.power_cut(&random);
                drop(life);
                machine = after;
                life = live(&machine, &random, &wanted());
                model.check(&life, &format!("seed {seed} step {step}, {victim} was out"));
                if is_out(&life, victim) {
                    life.disks.add(&Path::new("/").join(victim)).unwrap();
                }
                health = Health::Filling(victim);
                if is_started {
                    life.disks.start().unwrap();
                }
            }
            (Health::Filling(victim), 0..8) if random.chance(30) => {
                // Dies again while it is filled.
                strike(&machine, victim, &random);
                health = Health::Broken(victim);
            }
            (Health::Filling(victim), 8..30) if life.disks.fill() && !is_out(&life, victim) => {
                fills += 1;
                health = Health::Whole;
            }
            (Health::Whole | Health::Filling(_), 90..93) => {
                // The power goes for all disks at once, or the process ends in order.
                if random.chance(75) {
                    let after = machine.power_cut(&random);
                    drop(life);
                    machine = after;
                } else {
                    drop(life);
                }
                life = live(&machine, &random, &wanted());
                model.check(&life, &format!("seed {seed} step {step}, {health:?}"));
                if health == Health::Whole && !life.disks.fill() {
                    panic!("seed {seed} step {step}: copies are missing: {:#?}", life.disks.status());
                }
                if is_started {
                    life.disks.start().unwrap();
                }
            }
            _ => {}
        }
    }
    model.check(&life, &format!("seed {seed}, at the end"));
    (outs, fills)
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("DISKS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(25);
    let first = std::env::var("DISKS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    first..first + count
}

#[test]
fn disks_die_and_come_back_under_the_engine_and_nothing_is_lost() {
    let (mut outs, mut fills) = (0, 0);
    for seed in seeds() {
        let (more_outs, more_fills) = lives(seed);
        outs += more_outs;
        fills += more_fills;
    }
    println!("{outs} disks went out, {fills} were filled again");
    assert!(outs > 0 && fills > 0, "nothing was tried");
}

#[test]
fn either_directory_of_metadata_opens_alone_and_a_stale_one_never() {
    let random = SimRandom::new(7);
    let machine = Machine::of(&["data", "mirror", "d1", "d2", "d3"], 3);
    let mut model = Model::default();
    let life = live(&machine, &random, &wanted());
    (0..100).for_each(|_| work(&life, &mut model, &random));
    assert!(life.disks.fill());
    drop(life);
    // One is lost while nothing runs: told so, the volume opens with the other and an empty directory.
    for lost in ["mirror", "data"] {
        machine.set(lost, SimDisk::new(random.next_u64()));
        let refused = open_disks(&machine, &random, &wanted()).unwrap_err();
        assert!(matches!(&refused, DisksError::Replaced(root) if root.ends_with(lost)), "{refused}");
        let life = live(&machine, &random, &DiskWish { accept_missing: true, ..wanted() });
        model.check(&life, lost);
        (0..30).for_each(|_| work(&life, &mut model, &random));
        assert!(life.disks.fill(), "{:#?}", life.disks.status());
    }
    // A directory that was out is not the truth when it is there alone.
    let stale = machine.get("mirror").crash(1);
    machine.get("mirror").fail_after(0);
    let life = live_with_dead_mirror(&machine, &random);
    (0..60).for_each(|_| work(&life, &mut model, &random));
    assert!(is_out(&life, "mirror"));
    drop(life);
    let current = machine.get("data");
    machine.set("mirror", stale);
    machine.set("data", SimDisk::new(5));
    let refused = open_disks(&machine, &random, &wanted()).unwrap_err();
    assert!(matches!(refused, DisksError::Replaced(_)), "{refused}");
    machine.set("data", current);
    let life = live(&machine, &random, &wanted());
    model.check(&life, "with the stale directory");
    assert!(!life.disks.fill() && is_out(&life, "mirror"), "it met an error, so it waits to be told");
    life.disks.add(Path::new("/mirror")).unwrap();
    assert!(life.disks.fill(), "{:#?}", life.disks.status());
    drop(life);
    machine.set("data", SimDisk::new(6));
    let life = live(&machine, &random, &DiskWish { accept_missing: true, ..wanted() });
    model.check(&life, "from the directory that was filled again");
}

fn live_with_dead_mirror(machine: &Machine, random: &SimRandom) -> Life {
    live(machine, random, &DiskWish { accept_missing: true, ..wanted() })
}

#[test]
fn a_damaged_copy_is_passed_over() {
    let random = SimRandom::new(9);
    let machine = Machine::of(&["data", "mirror", "d1", "d2", "d3"], 3);
    let mut model = Model::default();
    let life = live(&machine, &random, &wanted());
    (0..80).for_each(|_| work(&life, &mut model, &random));
    let mut flipped = 0;
    for entry in machine.get("d1").list(Path::new("/d1/segments")).unwrap() {
        let path = Path::new("/d1/segments").join(&entry.name);
        (0..40).for_each(|_| flipped += u32::from(machine.get("d1").flip_some_bit(&path).unwrap().is_some()));
    }
    assert!(flipped > 0);
    model.check(&life, "with one damaged disk");
}

#[test]
fn payload_moves_from_the_data_directory_to_disks_and_away_from_one() {
    let random = SimRandom::new(11);
    let machine = Machine::of(&["data", "mirror", "d1", "d2", "d3"], 3);
    let mut model = Model::default();
    // A volume that had no disks.
    let env = machine.env(&random);
    let options = Options {
        folder: "/data/segments".into(),
        pack_bytes_max: 200 << 10,
        raw_bytes_min: 100 << 10,
        reserve_bytes: 0,
        files_may_be_missing: true,
    };
    let store = Store::open(env.clone(), options).unwrap();
    let engine =
        EmbeddedEngine::open(env.clone(), Arc::clone(&store), embedded::Options::new("/data/tree".into())).unwrap();
    for seed in 0..20 {
        let mut writer = store.begin_run(90_000, b"").unwrap();
        writer.write(&pattern(90_000, seed)).unwrap();
        let run = writer.finish().unwrap();
        store.sync_blocking(run.segment).unwrap();
        model.runs.push((run, seed));
    }
    drop((engine, store));
    let payload = |disk: &str| {
        let listed = machine.get(disk).list(&Path::new("/").join(disk).join("segments")).unwrap();
        listed.iter().filter(|entry| entry.name.ends_with(".pack") || entry.name.ends_with(".raw")).count()
    };
    assert!(payload("data") > 3);
    let life = live(&machine, &random, &wanted());
    model.check(&life, "before it moved");
    (0..30).for_each(|_| work(&life, &mut model, &random));
    assert!(life.disks.fill());
    life.disks.fill();
    assert_eq!(payload("data"), 0, "{:#?}", life.disks.status());
    life.disks.remove(Path::new("/d1")).unwrap();
    (0..3).for_each(|_| assert!(life.disks.fill()));
    assert_eq!(payload("d1"), 0, "{:#?}", life.disks.status());
    assert!(matches!(life.disks.remove(Path::new("/d2")), Err(DisksError::TooFew { copies: 2, disks: 1 })));
    model.check(&life, "after it moved");
    (0..30).for_each(|_| work(&life, &mut model, &random));
    drop(life);
    let life = live(&machine, &random, &DiskWish { disks: Vec::new(), mirror: None, ..wanted() });
    model.check(&life, "with the disks that it remembers");
}

#[test]
fn wrong_directories_are_refused_with_one_line() {
    let random = SimRandom::new(13);
    let machine = Machine::of(&["data", "mirror", "d1", "d2", "d3", "data2"], 3);
    let refused = |wanted: &DiskWish| open_disks(&machine, &random, wanted).unwrap_err();
    let disks = |disks: &[&str], copies| DiskWish {
        disks: disks.iter().map(PathBuf::from).collect(),
        copies,
        ..DiskWish::default()
    };
    assert!(matches!(refused(&disks(&["/d1"], Some(2))), DisksError::TooFew { copies: 2, disks: 1 }));
    assert!(matches!(refused(&disks(&["/d1", "/d1"], None)), DisksError::Twice(..)));
    // The data directory may be one of the disks.
    let with_data = Machine::of(&["data", "d1"], 3);
    let life = live(&with_data, &random, &disks(&["/data", "/d1"], Some(2)));
    assert!(life.disks.status().disks.iter().all(|disk| disk.data == State::In));
    drop(life);
    drop(live(&machine, &random, &wanted()));
    let other = Disks::open(&machine.env(&random), Path::new("/data2"), &disks(&["/d1"], None)).unwrap_err();
    assert!(matches!(other, DisksError::OtherVolume(_)), "{other}");
    machine.get("d3").open(Path::new("/d3/letter"), OpenMode::CreateNew).unwrap();
    machine.get("d3").remove(Path::new("/d3/disk-id")).unwrap();
    assert!(matches!(refused(&wanted()), DisksError::NotEmpty(..)));
    let lines = [refused(&wanted()).to_string(), other.to_string()];
    assert!(lines.iter().all(|line| line.lines().count() == 1));
}

#[test]
fn what_is_written_beside_filling_is_in_each_copy() {
    const LEN: u64 = 6 << 20;
    let random = SimRandom::new(17);
    let machine = Machine::of(&["data", "d1", "d2"], 3);
    let disks = DiskWish { disks: vec!["/d1".into(), "/d2".into()], copies: Some(2), ..DiskWish::default() };
    let (env, disks) = open_disks(&machine, &random, &disks).unwrap();
    let name = "segments/0000000000000001.pack";
    let file = env.disk.open(&Path::new(DATA).join(name), OpenMode::CreateNew).unwrap();
    file.write_all_at(&pattern(LEN, 1), 0).unwrap();
    for round in 0..6 {
        let (lost, root) = [("d1", "/d1"), ("d2", "/d2")][round % 2];
        machine.get(lost).fail_after(0);
        file.write_all_at(b"noticed", 0).unwrap();
        machine.set(lost, SimDisk::new(round as u64));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let dice = SimRandom::new(round as u64);
                while !is_over.load(Ordering::Relaxed) {
                    file.write_all_at(&pattern(50, dice.next_u64()), dice.below(LEN - 50)).unwrap();
                }
            });
            disks.add(Path::new(root)).unwrap();
            assert!(disks.fill(), "{:#?}", disks.status());
            is_over.store(true, Ordering::Relaxed);
        });
        let read = |root: &str| {
            let mut bytes = vec![0; LEN as usize];
            machine.open(&Path::new(root).join(name), OpenMode::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(read("/d1") == read("/d2"), "round {round}: the copies differ");
    }
}

#[test]
fn metadata_that_a_power_cut_left_different_is_made_equal_and_is_one_of_the_two() {
    const PAGES: u64 = 32;
    let random = SimRandom::new(19);
    let mut machine = Machine::of(&["data", "mirror"], 3);
    let wish = DiskWish { mirror: Some("/mirror".into()), ..DiskWish::default() };
    let name = "tree/rows.redb";
    let read = |machine: &Machine, root: &str| {
        let mut bytes = vec![0; PAGES as usize * 4096];
        machine.open(&Path::new(root).join(name), OpenMode::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let mut differed = 0;
    for round in 0..20 {
        let (env, disks) = open_disks(&machine, &random, &wish).unwrap();
        assert!(disks.fill(), "{:#?}", disks.status());
        if round > 0 {
            assert!(read(&machine, "/data") == read(&machine, "/mirror"), "round {round}: the copies differ");
        }
        let file = env.disk.open(&Path::new(DATA).join(name), OpenMode::OpenOrCreate).unwrap();
        file.set_len(PAGES * 4096).unwrap();
        file.sync_data().unwrap();
        env.disk.sync_dir(&Path::new(DATA).join("tree")).unwrap();
        for page in 0..PAGES {
            file.write_all_at(&pattern(4096, random.next_u64()), page * 4096).unwrap();
        }
        let after = machine.power_cut(&random);
        drop((file, disks));
        machine = after;
        let (left, right) = (read(&machine, "/data"), read(&machine, "/mirror"));
        differed += u32::from(left != right);
        drop(open_disks(&machine, &random, &wish).unwrap());
        assert!([left, right].contains(&read(&machine, "/data")), "round {round}");
    }
    assert!(differed > 5, "{differed}");
}
