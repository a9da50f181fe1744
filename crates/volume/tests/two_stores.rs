//! Two processes with a store each over one engine: random operations of both doors, reclaim of both at any time, readers and
//! open files that live on across them.
//!
//! Invariants: no byte is lost: each read gives what the model has, each reader what it opened; fsck of both is clean.
//!             The mistake that the protocol is against, not to wait for the reads of others, is noticed.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::Env;
use margay_env::Random;
use margay_env::sim::SimRandom;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::{SegmentId, Store, StoreNumber};
use margay_volume::posix::*;
use margay_volume::*;
use world::maintenance::ALL;
use world::tree::{NEW, plain};
use world::*;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 60;
/// `MARGAY_TEST_SEEDS` asks for more.
const SEEDS: u64 = 60;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

type Stores = [(Env, Arc<Store>); 2];

fn put(volume: &Volume, key: &str, body: &[u8]) {
    let staged = wait(async {
        let mut upload = volume.begin_upload("b", body.len() as u64).await.unwrap();
        upload.write(Bytes::copy_from_slice(body)).await.unwrap();
        upload.finish().await.unwrap()
    });
    let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
    wait(volume.put_object(request, staged)).unwrap();
}

fn get(volume: &Volume, key: &str) -> Option<Reader> {
    wait(volume.get_object("b", key, &ReadCondition::default())).ok()
}

/// The file `f` is changed through the mounts only, the keys through S3 only.
struct Run<'a> {
    random: &'a SimRandom,
    volumes: [Arc<Volume>; 2],
    mounts: [Arc<Mount>; 2],
    model: BTreeMap<&'static str, Vec<u8>>,
    readers: Vec<(Reader, Vec<u8>)>,
    /// Handles of `f` that were opened for reading, and what they showed.
    handles: Vec<(usize, Handle, Vec<u8>)>,
    removed: u64,
}

impl Run<'_> {
    fn below(&self, end: u64) -> usize {
        (self.random.next_u64() % end) as usize
    }

    fn body(&self) -> Vec<u8> {
        body_of(self.below(1 << 20), 150 + self.below(600))
    }

    fn step(&mut self) {
        let who = self.below(2);
        let (key, other) = (KEYS[self.below(4)], KEYS[self.below(4)]);
        let volume = Arc::clone(&self.volumes[who]);
        match self.below(13) {
            0..=2 => {
                let body = self.body();
                put(&volume, key, &body);
                self.model.insert(key, body);
            }
            3 => {
                wait(volume.delete_object("b", &DeleteRequest::of(key))).unwrap();
                self.model.remove(key);
            }
            4 => {
                let request = CopyRequest {
                    source_bucket: "b",
                    source_key: key,
                    bucket: "b",
                    key: other,
                    ..CopyRequest::default()
                };
                let done = wait(volume.copy_object(request));
                if let Some(body) = self.model.get(key).cloned() {
                    if key != other {
                        done.unwrap();
                    }
                    self.model.insert(other, body);
                }
            }
            5..=6 => {
                if let Some(reader) = get(&volume, key) {
                    self.readers.push((reader, self.model[key].clone()));
                }
            }
            7 if !self.readers.is_empty() => {
                let (reader, body) = self.readers.swap_remove(self.below(self.readers.len() as u64));
                assert!(read_all(&reader) == body, "a reader reads what it opened");
            }
            8 => self.write_file(who),
            9 => {
                let mount = &self.mounts[who];
                let found = mount.lookup(mount.root(), &plain("f")).unwrap();
                let handle = mount.open_file(found.ino, BOTH).unwrap();
                let bytes = mount.read(&handle, 0, 1 << 20).unwrap().to_vec();
                self.handles.push((who, handle, bytes));
            }
            10 if !self.handles.is_empty() => {
                let (who, handle, bytes) = self.handles.swap_remove(self.below(self.handles.len() as u64));
                if self.below(2) == 0 {
                    // What it shows of others' changes is not defined; that it reads without an error is.
                    let now = self.mounts[who].read(&handle, 0, 1 << 20).unwrap();
                    assert_eq!(now.len(), bytes.len());
                }
                self.mounts[who].release(handle).unwrap();
            }
            _ => {
                let done = volume.reclaim_once(&ALL, &SealedLogs).unwrap();
                assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
                self.removed += done.removed_segments;
            }
        }
    }

    /// Writes a few bytes into `f`, whose other bytes lie where either has written them.
    fn write_file(&mut self, who: usize) {
        let mount = &self.mounts[who];
        let found = mount.lookup(mount.root(), &plain("f")).unwrap();
        let handle = mount.open_file(found.ino, BOTH).unwrap();
        mount.write(&handle, self.below(2000) as u64, &body_of(self.below(99), 200), false).unwrap();
        mount.sync(&handle).unwrap();
        mount.release(handle).unwrap();
    }

    fn end(mut self, stores: &Stores) -> u64 {
        for (reader, body) in std::mem::take(&mut self.readers) {
            assert!(read_all(&reader) == body, "a reader reads what it opened");
        }
        for (who, handle, _) in std::mem::take(&mut self.handles) {
            self.mounts[who].read(&handle, 0, 1 << 20).unwrap();
            self.mounts[who].release(handle).unwrap();
        }
        for _ in 0..3 {
            for volume in &self.volumes {
                self.removed += volume.reclaim_once(&ALL, &SealedLogs).unwrap().removed_segments;
            }
        }
        for volume in &self.volumes {
            for key in KEYS {
                assert_eq!(get(volume, key).map(|reader| read_all(&reader)), self.model.get(key).cloned(), "{key}");
            }
            assert_eq!(get(volume, "f").map(|reader| read_all(&reader).len()), Some(2200));
            let report = volume.fsck(FsckOptions::default()).unwrap();
            assert!(report.clean() && report.orphans == 0 && report.unreachable_segments == 0, "{report:#?}");
        }
        for (_, store) in stores {
            assert_eq!(store.taken_back(), 0, "nothing was set aside that somebody reads");
        }
        self.removed
    }
}

/// Gives how many segments reclaim has removed.
fn run(stores: &Stores, seed: u64, hasty: bool) -> u64 {
    let random = SimRandom::new(seed);
    let engine: Arc<dyn Engine> = Arc::new(Memory::new());
    let options = Options { run_bytes_max: 300, file_memory_bytes_max: 1 << 10, ..Options::default() };
    let volumes = two_stores::volumes(&engine, stores, &options, hasty);
    wait(volumes[0].create_bucket("b")).unwrap();
    let mounts =
        volumes.each_ref().map(|volume| Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap());
    let (_, handle) = mounts[0].create(mounts[0].root(), &plain("f"), &NEW, BOTH).unwrap();
    mounts[0].write(&handle, 0, &body_of(5, 2200), false).unwrap();
    mounts[0].release(handle).unwrap();
    let (model, readers, handles) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut run = Run { random: &random, volumes, mounts, model, readers, handles, removed: 0 };
    (0..STEPS).for_each(|_| run.step());
    run.end(stores)
}

#[test]
fn no_byte_is_lost_whatever_two_processes_do() {
    let seeds = std::env::var("MARGAY_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let stores = two_stores::stores();
    let mut removed = 0;
    for seed in 0..seeds {
        removed += catch_unwind(AssertUnwindSafe(|| run(&stores, seed, false)))
            .unwrap_or_else(|_| panic!("seed {seed} lost something, see above"));
    }
    println!("evidence: two stores: {seeds} seeds of {STEPS} steps, reclaim removed {removed} segments");
    assert!(removed > seeds, "{removed} segments removed");
}

#[test]
fn a_process_that_does_not_wait_for_the_reads_of_others_is_noticed() {
    std::panic::set_hook(Box::new(|_| ()));
    let lost = (0..20).filter(|seed| {
        let stores = two_stores::stores();
        catch_unwind(AssertUnwindSafe(|| run(&stores, *seed, true))).is_err()
    });
    assert!(lost.count() > 0, "no seed has noticed it");
}

#[test]
fn sessions_tell_what_each_still_reads() {
    let stores = two_stores::stores();
    let engine: Arc<dyn Engine> = Arc::new(Memory::new().shared(10_000));
    let [one, two] = two_stores::in_sessions(&engine, &stores);
    wait(one.create_bucket("b")).unwrap();
    let body = body_of(1, 500);
    put(&one, "a", &body);
    put(&one, "large", &body_of(2, 40_000));
    let reader = get(&two, "large").unwrap();
    wait(two.delete_object("b", &DeleteRequest::of("large"))).unwrap();
    let passes = || {
        let mut removed = 0;
        for _ in 0..3 {
            one.beat().unwrap();
            two.beat().unwrap();
            removed += one.reclaim_once(&ALL, &SealedLogs).unwrap().removed_segments;
        }
        removed
    };
    passes();
    assert!(read_all(&reader) == body_of(2, 40_000), "the other one waits for it");
    drop(reader);
    assert!(passes() > 0, "then it goes");
    assert!(read_all(&get(&two, "a").unwrap()) == body);
    assert_eq!(stores[0].1.taken_back(), 0);
    for volume in [&one, &two] {
        assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
    }
}

#[test]
fn parts_written_by_two_processes_become_one_object() {
    let stores = two_stores::stores();
    let engine: Arc<dyn Engine> = Arc::new(Memory::new());
    let volumes = two_stores::volumes(&engine, &stores, &Options::default(), false);
    wait(volumes[0].create_bucket("b")).unwrap();
    let upload = wait(volumes[0].create_multipart("b", "m", Headers::new(), Documents::new())).unwrap().upload;
    let bodies = [body_of(1, PART_BYTES_MIN as usize), body_of(2, 700)];
    let mut choice = Vec::new();
    for (index, body) in bodies.iter().enumerate() {
        let (volume, number) = (&volumes[index], index as u16 + 1);
        let staged = wait(async {
            let mut staging = volume.begin_upload("b", body.len() as u64).await.unwrap();
            staging.write(Bytes::copy_from_slice(body)).await.unwrap();
            staging.finish().await.unwrap()
        });
        wait(volume.put_part("b", "m", &upload, number, etag_of(body), Headers::new(), staged)).unwrap();
        choice.push(PartChoice { number, etag: etag_of(body) });
    }
    let none = WriteCondition::None;
    wait(volumes[1].complete_multipart("b", "m", &upload, &choice, Headers::new(), &none)).unwrap();
    for volume in volumes.iter().chain(&volumes) {
        volume.reclaim_once(&ALL, &SealedLogs).unwrap();
        assert!(read_all(&get(volume, "m").unwrap()) == bodies.concat());
        assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
    }
}

#[test]
fn each_store_makes_ids_of_its_number() {
    let stores = two_stores::stores();
    let engine: Arc<dyn Engine> = Arc::new(Memory::new());
    let volumes = two_stores::volumes(&engine, &stores, &Options::default(), false);
    wait(volumes[0].create_bucket("b")).unwrap();
    for (volume, key) in volumes.iter().zip(KEYS) {
        put(volume, key, &body_of(1, 500));
    }
    for (number, (_, store)) in stores.iter().enumerate() {
        let number = StoreNumber(number as u16);
        assert_eq!(store.name().number, number);
        let ids: Vec<SegmentId> = store.segments().into_iter().map(|info| info.id).collect();
        assert!(!ids.is_empty() && ids.iter().all(|id| id.made_by() == number), "{ids:?}");
    }
}

/// Opens the folder anew, as a process of this session does.
fn reopen(
    engine: &Arc<dyn Engine>,
    env: &Env,
    folder: &str,
    live: bool,
) -> (Arc<Store>, Result<Arc<Volume>, OpenError>) {
    #[derive(Debug)]
    struct Session(bool);
    impl Processes for Session {
        fn session(&self) -> u64 {
            9
        }
        fn is_live(&self, _session: u64) -> Result<bool, Error> {
            Ok(self.0)
        }
        fn oldest_reader(&self) -> Result<margay_meta::Cursor, Error> {
            Ok(margay_meta::Cursor(u64::MAX))
        }
    }
    let store = Store::open(env.clone(), margay_segment::Options::new(Path::new(folder))).unwrap();
    let options = Options { processes: Some(Arc::new(Session(live))), ..Options::default() };
    let volume = Volume::open(env.clone(), Arc::clone(engine), Arc::clone(&store), options);
    (store, volume)
}

#[test]
fn a_folder_keeps_its_number_and_a_copy_or_a_new_one_gets_another() {
    let stores = two_stores::stores();
    let engine: Arc<dyn Engine> = Arc::new(Memory::new());
    drop(two_stores::volumes(&engine, &stores, &Options::default(), false));
    let env = &stores[0].0;
    let number = |store: &Store| store.name().number.0;
    // As it was when it was copied.
    let copied = stores[0].1.name();
    assert!(matches!(reopen(&engine, env, "/segments", true).1, Err(OpenError::StoreInUse { number: 0 })));
    let (store, volume) = reopen(&engine, env, "/segments", false);
    volume.unwrap();
    assert_eq!((number(&store), store.name().generation), (0, copied.generation + 1));
    // A copy comes to the volume after the original was opened once more.
    let (store, _) = (Store::open(env.clone(), margay_segment::Options::new(Path::new("/copy"))).unwrap(), ());
    store.attach(copied).unwrap();
    drop(store);
    let (store, volume) = reopen(&engine, env, "/copy", false);
    volume.unwrap();
    assert_eq!(number(&store), 2, "the original and the other store have 0 and 1");
    let (store, volume) = reopen(&engine, env, "/fresh", false);
    volume.unwrap();
    assert_eq!(number(&store), 3);
    let (store, volume) = reopen(&engine, env, "/fresh", false);
    volume.unwrap();
    assert_eq!((number(&store), store.next_id().made_by()), (3, StoreNumber(3)));
}
