//! A dump of a changing volume is one moment; loaded, its rows are the same bytes; damage and cuts are refused.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_env::{Env, OpenMode};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::{SegmentId, Store, mark_name, segment_name};
use margay_volume::*;
use world::backups::*;
use world::maintenance::ALL;
use world::*;

fn dump_of(volume: &Volume, only_rows: bool) -> (Vec<u8>, DumpReport) {
    let mut stream = Vec::new();
    let files = if only_rows { Vec::new() } else { vec![("keys".to_owned(), b"secret".to_vec())] };
    let report = volume.dump(&mut stream, &DumpRequest { only_rows, files }, |_, _| ControlFlow::Continue(()));
    (stream, report.unwrap())
}

/// As the program does it.
struct Loading<'a> {
    folder: &'a Path,
    putting: Putting<'a, fn(u64)>,
    files: BTreeMap<String, Vec<u8>>,
    bytes: u64,
}

impl DumpSink for Loading<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.putting.put(key.to_vec(), value.to_vec())
    }
    fn rows_end(&mut self) -> Result<(), Error> {
        self.putting.finish().map(drop)
    }
    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.files.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }
    fn piece(&mut self, place: &PiecePlace, bytes: &[u8]) -> Result<(), Error> {
        let path = self.folder.join(segment_name(place.segment, place.kind));
        self.bytes += bytes.len() as u64;
        Ok(Env::real().disk.open(&path, OpenMode::OpenOrCreate)?.write_all_at(bytes, place.offset)?)
    }
}

/// Takes in a dump and keeps nothing.
struct Nowhere;

impl DumpSink for Nowhere {
    fn row(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn rows_end(&mut self) -> Result<(), Error> {
        Ok(())
    }
    fn file(&mut self, _name: &str, _bytes: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn piece(&mut self, _place: &PiecePlace, _bytes: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

fn load(mut stream: &[u8], to: &Path) -> Result<Arc<Volume>, Error> {
    let env = Env::real();
    let segments = to.join("segments");
    env.disk.create_dir_all(&segments)?;
    let header = read_dump_header(&mut stream)?;
    env.disk.open(&segments.join(mark_name(SegmentId(header.largest.0 + 1))), OpenMode::OpenOrCreate)?;
    let store = Store::open(env.clone(), segment_options(&segments))?;
    let mut options = margay_meta::embedded::Options::new(to.join("tree"));
    (options.log_file_bytes, options.tree_cache_bytes) = (512 << 10, 1 << 20);
    options.first_log_min = store.next_id().0;
    let engine = EmbeddedEngine::open(env.clone(), store, options)?;
    let putting = Putting::new(&engine, (|_| ()) as fn(u64));
    let mut loading = Loading { folder: &segments, putting, files: BTreeMap::new(), bytes: 0 };
    read_dump(&mut stream, &header, &mut loading)?;
    assert_eq!((loading.bytes, loading.files["keys"].as_slice()), (header.bytes, &b"secret"[..]));
    engine.checkpoint()?;
    drop(engine);
    // Segments are found when the store is opened.
    let store = Store::open(env.clone(), segment_options(&segments))?;
    let mut options = margay_meta::embedded::Options::new(to.join("tree"));
    (options.log_file_bytes, options.tree_cache_bytes) = (512 << 10, 1 << 20);
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedEngine::open(env.clone(), Arc::clone(&store), options)?);
    Ok(Volume::open(env, engine, store, Options::default()).unwrap())
}

fn filled() -> World {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    for index in 0..80 {
        let body = body_of(index, [20, 900, 9000, 20_000, 60_000, 120_000][index % 6]);
        world.put("b", &format!("d{}/{index:03}", index % 3), &body).unwrap();
    }
    for index in (0..80).filter(|index| index % 5 < 3) {
        assert!(world.delete("b", &format!("d{}/{index:03}", index % 3)).unwrap());
    }
    world
}

#[test]
fn what_is_loaded_is_what_was_dumped() {
    let world = filled();
    let (stream, report) = dump_of(&world.volume, false);
    let stored: u64 = world.store.segments().iter().map(|segment| segment.len).sum();
    assert!(report.bytes > 500_000 && report.bytes < stored, "{report:?} of {stored}: dead bytes stay behind");
    assert_eq!(dump_of(&world.volume, false).0, stream, "the same again");
    let to = tempfile::tempdir().unwrap();
    let volume = load(&stream, to.path()).unwrap();
    let keys = || (0..80).map(|index| format!("d{}/{index:03}", index % 3));
    let right = all_objects(&world.volume, "b", keys());
    assert_eq!(right.len(), 32);
    assert!(all_objects(&volume, "b", keys()) == right);
    assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
    let rows = dump_of(&world.volume, true).0;
    assert!(dump_of(&volume, true).0 == rows, "rows are the same bytes");
    assert!(rows.len() < stream.len() / 4);
    // Reclaim walks, punches and moves what was loaded.
    for key in keys().step_by(4) {
        world.delete("b", &key).unwrap();
        wait(volume.delete_object("b", &DeleteRequest::of(&key))).unwrap();
    }
    let gentle = ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
    for budget in [gentle, ALL, ALL] {
        let done = volume.reclaim_once(&budget, &SealedLogs).unwrap();
        assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
    }
    assert!(all_objects(&volume, "b", keys()) == all_objects(&world.volume, "b", keys()));
    assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn a_dump_beside_writers_and_reclaim_is_one_moment() {
    let world = filled();
    let stop = AtomicBool::new(false);
    let stopped = || stop.load(Ordering::Relaxed);
    let mut streams = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stopped() {
                world.put("b", "a", &body_of(round, 50_000)).unwrap();
                world.put("b", "z", &body_of(round, 50_000)).unwrap();
                round += 1;
            }
        });
        scope.spawn(|| {
            while !stopped() {
                world.volume.reclaim_once(&ALL, &SealedLogs).unwrap();
            }
        });
        let _stopping = StopAtEnd(&stop);
        while wait(world.volume.get_object("b", "z", &ReadCondition::default())).is_err() {
            std::thread::yield_now();
        }
        for _ in 0..4 {
            streams.push(dump_of(&world.volume, false).0);
        }
    });
    for stream in streams {
        let to = tempfile::tempdir().unwrap();
        let volume = load(&stream, to.path()).unwrap();
        let objects = all_objects(&volume, "b", ["a".to_owned(), "z".to_owned()].into_iter());
        let round = (0..100_000).find(|round| objects["z"] == body_of(*round, 50_000)).unwrap();
        assert!([round, round + 1].iter().any(|round| objects["a"] == body_of(*round, 50_000)));
        assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
    }
    assert_eq!(world.store.taken_back(), 0);
}

#[test]
fn damage_and_cuts_are_refused() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    world.put("b", "k", &body_of(1, 30_000)).unwrap();
    world.put("b", "l", &body_of(2, 120_000)).unwrap();
    let (stream, _) = dump_of(&world.volume, false);
    load(&stream, tempfile::tempdir().unwrap().path()).unwrap();
    let tried = |mut stream: &[u8]| {
        let header = read_dump_header(&mut stream)?;
        read_dump(&mut stream, &header, &mut Nowhere)
    };
    tried(&stream).unwrap();
    let len = stream.len();
    for at in (0..2000).chain((0..400).map(|part| part * len / 400)).chain(len - 40..len) {
        let mut damaged = stream.clone();
        damaged[at] ^= 0x40;
        assert!(tried(&damaged).is_err(), "byte {at}");
        let cut = tried(&stream[..at]).unwrap_err().to_string();
        assert!(cut.contains("cut short"), "{cut}");
    }
    let more = [stream.as_slice(), b"x"].concat();
    assert!(tried(&more).unwrap_err().to_string().contains("follow its end"));
}

#[test]
fn damaged_data_is_not_dumped() {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    world.put("b", "k", &body_of(1, 30_000)).unwrap();
    let env = Env::real();
    let segments = world.folder.path().join("segments");
    let entry = env.disk.list(&segments).unwrap().into_iter().find(|entry| entry.len > 30_000).unwrap();
    env.disk.open(&segments.join(entry.name), OpenMode::ReadWrite).unwrap().write_all_at(b"rot", 10_000).unwrap();
    let go_on = |_, _| ControlFlow::Continue(());
    let refused = world.volume.dump(&mut Vec::new(), &DumpRequest::default(), go_on).unwrap_err();
    assert!(refused.to_string().contains("margay scrub"), "{refused}");
}
