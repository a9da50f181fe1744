//! Back rows: what they cost, what reclaim reads because of them, and how a volume of an earlier format gets them.
//!
//! Layout: the run over a million files is `cargo test -p margay-volume --test back_rows -- --ignored --nocapture`; it takes
//!         minutes and 3 GB of disk.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_env::Env;
use margay_meta::embedded::EmbeddedEngine;
use margay_meta::memory::Memory;
use margay_meta::{Batch, Engine, Write};
use margay_segment::Store;
use margay_volume::*;
use world::watched::Watched;
use world::*;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn volume_over(engine: &Arc<Watched>, store: &Arc<Store>) -> Result<Arc<Volume>, OpenError> {
    let below: Arc<dyn Engine> = Arc::<Watched>::clone(engine);
    Volume::open(Env::real(), below, Arc::clone(store), Options { run_bytes_max: 40 << 10, ..Options::default() })
}

fn rows_of(engine: &dyn Engine) -> Rows {
    let mut rows = Vec::new();
    let scanned = engine.scan(&[], &[0xff], &mut |row| {
        rows.push((row.key.to_vec(), row.value.to_vec()));
        std::ops::ControlFlow::Continue(())
    });
    scanned.unwrap();
    rows
}

/// A world whose engine is watched.
fn watched(engine: impl FnOnce(&Path, &Arc<Store>) -> Arc<dyn Engine>, segments: Segments) -> (Arc<Watched>, World) {
    let folder = tempfile::tempdir().unwrap();
    let options = match segments {
        Segments::Small => segment_options(&folder.path().join("segments")),
        Segments::Default => margay_segment::Options::new(folder.path().join("segments")),
    };
    let store = Store::open(Env::real(), options).unwrap();
    let watched = Arc::new(Watched::new(engine(folder.path(), &store)));
    let volume = volume_over(&watched, &store).unwrap();
    wait(volume.create_bucket("b")).unwrap();
    let engine: Arc<dyn Engine> = Arc::<Watched>::clone(&watched);
    (watched, World { volume, engine, store, folder })
}

enum Segments {
    Small,
    Default,
}

fn memory(_: &Path, store: &Arc<Store>) -> Arc<dyn Engine> {
    Arc::new(Memory::with_payloads(Arc::clone(store), 64 << 10))
}

fn embedded(log_file_bytes: u64) -> impl FnOnce(&Path, &Arc<Store>) -> Arc<dyn Engine> {
    move |folder, store| {
        let mut options = margay_meta::embedded::Options::new(folder.join("tree"));
        options.log_file_bytes = log_file_bytes;
        Arc::new(EmbeddedEngine::open(Env::real(), Arc::clone(store), options).unwrap())
    }
}

fn copy(world: &World, from: &str, to: &str) {
    let request = CopyRequest { source_bucket: "b", source_key: from, bucket: "b", key: to, ..CopyRequest::default() };
    wait(world.volume.copy_object(request)).unwrap();
}

fn delete(world: &World, key: &str) {
    wait(world.volume.delete_object("b", &DeleteRequest::of(key))).unwrap();
}

#[test]
fn operations_write_so_many_rows() {
    let (watched, world) = watched(memory, Segments::Small);
    let body = body_of(1, 1024);
    let put = |key: &str, body: &[u8]| {
        let staged = world.stage("b", body);
        let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
        watched.written_by(|| wait(world.volume.put_object(request, staged)).unwrap()).0
    };
    put("first", &body);
    let written = [
        ("PUT of 1 KiB", put("a", &body)),
        ("PUT of 1 KiB over 1 KiB", put("a", &body)),
        ("PUT of 100 bytes", put("small", &body[..100])),
        ("copy", watched.written_by(|| copy(&world, "a", "copy")).0),
        ("rename", watched.written_by(|| wait(world.volume.rename("b", "a", "c", &WriteCondition::None)).unwrap()).0),
        ("DELETE", watched.written_by(|| delete(&world, "c")).0),
        ("DELETE of 100 bytes", watched.written_by(|| delete(&world, "small")).0),
    ];
    // Before there were back rows: 5, 5, 4, 7, 5, 5, 4.
    let now = [
        ("PUT of 1 KiB", 6),
        ("PUT of 1 KiB over 1 KiB", 7),
        ("PUT of 100 bytes", 4),
        ("copy", 6),
        ("rename", 6),
        ("DELETE", 6),
        ("DELETE of 100 bytes", 4),
    ];
    assert_eq!(written, now);
}

/// A few of everything that names runs, in one bucket.
fn lay_out(world: &World, keys: usize) {
    for index in 0..keys {
        world.put("b", &format!("many/{index}"), &body_of(index, 300)).unwrap();
    }
    for (index, len) in [900, 60_000, 230_000, 200_000].into_iter().enumerate() {
        world.put("b", &format!("a/{index}"), &body_of(index, len)).unwrap();
        copy(world, &format!("a/{index}"), &format!("copy/{index}"));
    }
    wait(world.volume.rename("b", "a/3", "moved", &WriteCondition::None)).unwrap();
    let mount = posix::Mount::open(Arc::clone(&world.volume), "b", "", posix::MountOptions::default()).unwrap();
    let look = |parent, name: &str| mount.lookup(parent, &posix::Name::Plain(name.to_owned())).unwrap();
    let directory = look(mount.root(), "a").ino;
    for name in ["0", "1", "2"] {
        let file = look(directory, name).ino;
        mount.link(file, mount.root(), &posix::Name::Plain(format!("link {name}"))).unwrap();
    }
    drop(mount);
    let upload = wait(world.volume.create_multipart("b", "m", Headers::new(), Documents::new())).unwrap().upload;
    for (number, from) in [(1, "a/2"), (2, "many/1")] {
        let condition = ReadCondition::default();
        wait(world.volume.copy_part("b", "m", &upload, number, ("b", from, None), None, &condition)).unwrap();
    }
    wait(world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
    for (key, len) in [("many/0", 700), ("copy/2", 3000), ("copy/1", 100)] {
        world.put("b", key, &body_of(9, len)).unwrap();
    }
}

/// Makes the rows those of format 3: no back rows, share rows and flags that nobody reads, counters that are wrong.
fn make_older(engine: &dyn Engine, format: u32) {
    let is_new = |key: &[u8]| b"rXl".contains(&key[0]) || format == 1 && key[0] == b'f';
    let gone = rows_of(engine).into_iter().filter(|(key, _)| is_new(key)).map(|(key, _)| Write::Delete { key });
    let mut writes: Vec<Write> = gone.collect();
    writes.push(rows::put(b"m".to_vec(), format.to_be_bytes().to_vec()));
    writes
        .extend((0..5000).map(|run| rows::put([rows::key(b's', 7, b""), rows::key(b's', run, b"")].concat(), vec![1])));
    writes.push(Write::Add { key: rows::key(b'l', 3, b"+"), delta: 77 });
    for some in writes.chunks(1000) {
        engine.commit(Batch { writes: some.to_vec(), ..Batch::default() }).unwrap();
    }
}

/// What an upgrade must make, but for counters, whose sum alone counts.
fn comparable(rows: Rows) -> BTreeMap<Vec<u8>, Vec<u8>> {
    rows.into_iter().filter(|(key, _)| key[0] != b'l' && key[0] != b'i').collect()
}

#[test]
fn an_upgrade_goes_on_wherever_it_was_cut_off() {
    let (_, world) = watched(memory, Segments::Small);
    lay_out(&world, 4500);
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
    let right = comparable(world.rows());
    for table in *b"rXenpvx" {
        assert!(right.keys().any(|key| key[0] == table), "{}", char::from(table));
    }
    for format in [1, 3] {
        let mut cuts = 0;
        loop {
            let fresh: Arc<dyn Engine> = Arc::new(Memory::new());
            for some in world.rows().chunks(1000) {
                let writes = some.iter().map(|(key, value)| rows::put(key.clone(), value.clone())).collect();
                fresh.commit(Batch { writes, ..Batch::default() }).unwrap();
            }
            make_older(&*fresh, format);
            let engine = Arc::new(Watched::new(Arc::clone(&fresh)));
            engine.cut_after(cuts);
            let cut = volume_over(&engine, &world.store).is_err();
            if cut && cuts > 0 {
                let stored = fresh.get(b"m").unwrap().value.unwrap().value;
                assert_eq!(stored[..], FORMAT_VERSION.to_be_bytes(), "an older program must refuse it");
                // Once more, a little later.
                engine.cut_after(2);
                drop(volume_over(&engine, &world.store));
            }
            engine.cut_after(u64::MAX);
            let volume = volume_over(&engine, &world.store).unwrap();
            let report = volume.fsck(FsckOptions::default()).unwrap();
            assert!(report.clean(), "cut off behind {cuts} commits: {report:#?}");
            assert!(comparable(rows_of(&*fresh)) == right, "cut off behind {cuts} commits");
            if !cut {
                break;
            }
            cuts += 1;
        }
        println!("format {format}: {cuts} batches");
        assert!(cuts > 6, "the upgrade has its batches: {cuts}");
    }
}

#[test]
fn fsck_makes_back_rows_anew() {
    let (_, world) = watched(memory, Segments::Small);
    lay_out(&world, 5);
    let right = comparable(world.rows());
    let some =
        |table: u8| right.iter().find(|(key, _)| key[0] == table).map(|(key, value)| (key.clone(), value.clone()));
    let ((back, value), (location, _)) = (some(b'r').unwrap(), some(b'X').unwrap());
    let wrong = [value.as_slice(), b"x"].concat();
    for writes in [
        vec![Write::Delete { key: back.clone() }],
        vec![rows::put(back.clone(), wrong)],
        vec![rows::put(back, b"?".to_vec())],
        vec![rows::put([rows::key(b'r', 9999, b""), vec![0; 16]].concat(), value)],
        vec![Write::Delete { key: location }],
        vec![rows::put(rows::key(b'X', 1 << 40, b""), b"\x01e".to_vec())],
    ] {
        rows::write(&world.engine, writes.clone());
        let report = world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.findings.contains_key(&FindingKind::Back), "{writes:?}: {report:#?}");
        world.volume.fsck(FsckOptions { repair: true, ..FsckOptions::default() }).unwrap();
        assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
        assert!(comparable(world.rows()) == right, "{writes:?}");
    }
}

/// Puts so many files of 1 KiB, then removes most of those in the middle.
fn mostly_dead(world: &World, files: usize, dead: std::ops::Range<usize>) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= files {
                        return;
                    }
                    world.put("b", &key(index), &body_of(index, 1024)).unwrap();
                }
            });
        }
    });
    for some in dead.filter(|index| index % 40 != 0).collect::<Vec<_>>().chunks(1000) {
        let keys: Vec<String> = some.iter().map(|index| key(*index)).collect();
        let requests: Vec<DeleteRequest<'_>> = keys.iter().map(|key| DeleteRequest::of(key)).collect();
        for outcome in wait(world.volume.delete_objects("b", &requests)).unwrap() {
            outcome.unwrap();
        }
    }
    world.engine.checkpoint().unwrap();
}

fn key(index: usize) -> String {
    format!("{:03}/{:06}", index % 1000, index)
}

/// One pass; the rows that it read and those that there are.
/// A pass over segments with a smaller percentage of live bytes; the rows that it reads, of how many.
fn reclaim(world: &World, watched: &Watched, live_percent_min: u64) -> (Reclaimed, u64, u64) {
    let rows = rows_of(watched).len() as u64;
    let before = watched.read_rows();
    let quarantine = std::time::Duration::from_secs(3600);
    let budget = ReclaimBudget { live_percent_min, quarantine, free_percent_min: 0, ..ReclaimBudget::default() };
    let done = world.volume.reclaim_once(&budget, &SealedLogs).unwrap();
    (done, watched.read_rows() - before, rows)
}

#[test]
fn a_pass_reads_the_segment_and_not_the_volume() {
    // About 1200 files to a log.
    let (watched, world) = watched(embedded(2 << 20), Segments::Default);
    mostly_dead(&world, 20_000, 8_000..10_600);
    let (done, read, rows) = reclaim(&world, &watched, 30);
    println!("{read} of {rows} rows read: {done:?}");
    assert!(done.moved_runs > 10 && done.set_aside_segments > 0, "{done:?}");
    assert!(read * 100 <= rows, "{read} of {rows} rows: {done:?}");
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
    assert!(world.get("b", &key(8_040)).unwrap() == body_of(8_040, 1024));
}

#[test]
#[ignore = "a million files; its command is above"]
fn a_million_files() {
    let (watched, world) = watched(embedded(60 << 20), Segments::Default);
    let clock = Env::real().clock;
    let files = std::env::var("MARGAY_FILES").map_or(1_000_000, |text| text.parse().unwrap());
    let began = clock.monotonic();
    mostly_dead(&world, files, files / 2..files / 2 + 100_000);
    println!("{files} files made in {:?}", clock.monotonic() - began);
    let began = clock.monotonic();
    // The segments at both ends of the dead files, of which a part lives, are left alone: each live run of a segment that is
    // rewritten costs two rows, its back row and its owner.
    let (done, read, rows) = reclaim(&world, &watched, 10);
    println!("{read} of {rows} rows read in {:?}: {done:?}", clock.monotonic() - began);
    assert!(done.moved_runs > 10 && done.set_aside_segments > 0, "{done:?}");
    assert!(read * 100 <= rows, "{read} of {rows} rows: {done:?}");

    let began = clock.monotonic();
    make_older(&*watched, 3);
    println!("made one of format 3 in {:?}", clock.monotonic() - began);
    let World { volume, engine, store, folder } = world;
    drop(volume);
    let (mut cuts, mut spent) = (0_u64, std::time::Duration::ZERO);
    let volume = loop {
        watched.cut_after(1 + cuts * 7919 % 97);
        let began = clock.monotonic();
        let opened = volume_over(&watched, &store);
        spent += clock.monotonic() - began;
        match opened {
            Ok(volume) => break volume,
            Err(_) => cuts += 1,
        }
    };
    watched.cut_after(u64::MAX);
    println!("upgraded in {spent:?}, cut off {cuts} times");
    let began = clock.monotonic();
    let report = volume.fsck(FsckOptions::default()).unwrap();
    println!("checked in {:?}", clock.monotonic() - began);
    assert!(report.clean(), "{report:#?}");
    let world = World { volume, engine, store, folder };
    for index in (0..files).step_by(files / 100).filter(|index| index % 40 == 0) {
        assert!(world.get("b", &key(index)).unwrap() == body_of(index, 1024));
    }
}
