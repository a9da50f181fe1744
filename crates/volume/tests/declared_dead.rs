//! A process that is declared dead without knowing it, at each moment of an operation that makes a row refer to stored bytes;
//! meanwhile another process removes what only the dead one still reads.
//!
//! Invariants: what the dead one commits late refers to no removed byte, also after it has a new session; it fails with `Fenced`,
//!             or as if it had run behind the other one.
//! Not here:   leases and late batches of jobs (sessions), open files of processes that live (open_elsewhere).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use parking_lot::Mutex;
use world::interposed::Interposed;
use world::maintenance::ALL;
use world::shared::fence;
use world::tree::{NEW, plain};
use world::*;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

/// A process of each store; the calls of both go through one engine, and a hook beside them takes the part of the other one.
struct Two {
    engine: Arc<Interposed>,
    memory: Arc<Memory>,
    stores: [(Env, Arc<Store>); 2],
    volumes: [Arc<Volume>; 2],
    mounts: [Arc<Mount>; 2],
}

fn two(run_bytes_max: u64) -> Two {
    let memory = Arc::new(Memory::new().shared(10_000));
    let engine = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
    let below = Arc::clone(&engine) as Arc<dyn Engine>;
    let stores = two_stores::stores();
    let options = Options { run_bytes_max, ..Options::default() };
    let volumes = two_stores::in_sessions_with(&below, &stores, &options);
    wait(volumes[0].create_bucket("b")).unwrap();
    let mounts =
        volumes.each_ref().map(|volume| Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap());
    Two { engine, memory, stores, volumes, mounts }
}

impl Two {
    /// Runs `act`, and beside it at moment `at` what the other process does; `None` if it has fewer moments.
    fn beside<T>(&self, at: usize, other: impl FnOnce() + Send + 'static, act: impl FnOnce() -> T) -> Option<T> {
        self.engine.arm(at, Box::new(other));
        let done = act();
        (!self.engine.disarm()).then_some(done)
    }

    /// Both find each byte that a row refers to.
    fn is_whole(&self, told: &str) {
        for volume in &self.volumes {
            let report = volume.fsck(FsckOptions::default()).unwrap();
            assert!(report.clean(), "{told}: {report:#?}");
        }
        for (_, store) in &self.stores {
            assert_eq!(store.taken_back(), 0, "{told}: nothing was set aside that a row names");
        }
    }
}

fn stage(volume: &Volume, body: &[u8]) -> Staged {
    wait(async {
        let mut upload = volume.begin_upload("b", body.len() as u64).await.unwrap();
        upload.write(body.to_vec().into()).await.unwrap();
        upload.finish().await.unwrap()
    })
}

fn put_staged(volume: &Volume, key: &str, body: &[u8], staged: Staged) -> Result<PutOutcome, Error> {
    let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
    wait(volume.put_object(request, staged))
}

fn put(volume: &Volume, key: &str, body: &[u8]) {
    put_staged(volume, key, body, stage(volume, body)).unwrap();
}

fn get(volume: &Volume, key: &str) -> Option<Vec<u8>> {
    wait(volume.get_object("b", key, &ReadCondition::default())).ok().map(|reader| read_all(&reader))
}

fn open_at(mount: &Mount, name: &str) -> Handle {
    mount.open_file(mount.lookup(mount.root(), &plain(name)).unwrap().ino, BOTH).unwrap()
}

/// Writes the file anew in place: it keeps its number, and none of its runs.
fn overwrite(mount: &Mount, name: &str, body: &[u8]) {
    let handle = open_at(mount, name);
    mount.write(&handle, 0, body, false).unwrap();
    mount.sync(&handle).unwrap();
    mount.release(handle).unwrap();
}

/// Takes the other one for dead, and removes what nobody else reads; gives how many segments went.
fn take_over(by: &Volume, dead: &Volume) -> u64 {
    fence(by, dead);
    clear(by)
}

fn clear(by: &Volume) -> u64 {
    let mut removed = 0;
    for _ in 0..3 {
        by.beat().unwrap();
        let done = by.reclaim_once(&ALL, &SealedLogs).unwrap();
        assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
        removed += done.removed_segments;
    }
    removed
}

/// It finds out that it was taken for dead, and goes on in a new session.
fn begin_anew(volume: &Volume) {
    assert!(matches!(volume.beat(), Err(Error::Fenced)));
    volume.open_session().unwrap();
}

fn is_fenced<T: std::fmt::Debug>(done: &Result<T, PosixError>) -> bool {
    matches!(done, Err(PosixError::Failed(Error::Fenced)))
}

/// How the open file came to refer to bytes of the other store, and how the process goes on.
#[derive(Clone, Copy, Debug)]
struct Case {
    len: usize,
    run_bytes_max: u64,
    /// Its run was taken from another file by `copy_file_range`.
    shared: bool,
    /// It has a new session before it publishes.
    anew: bool,
}

/// False when the publish has fewer moments. Counts what was refused.
fn publish_late(case: Case, at: usize, refused: &mut usize) -> bool {
    let told = format!("{case:?} at moment {at}");
    let two = two(case.run_bytes_max);
    let [one, other] = two.mounts.each_ref();
    let (old, new) = (body_of(1, case.len), body_of(2, case.len));
    put(&two.volumes[1], "f", &old);
    if case.shared {
        put(&two.volumes[1], "source", &old);
        let (from, to) = (open_at(one, "source"), open_at(one, "f"));
        assert_eq!(one.copy_range(&from, 0, &to, 0, case.len as u64, false).unwrap(), case.len as u64);
        one.release(from).unwrap();
        one.release(to).unwrap();
        wait(two.volumes[1].delete_object("b", &DeleteRequest::of("source"))).unwrap();
    }
    let handle = open_at(one, "f");
    one.write(&handle, 10, b"more", false).unwrap();
    let removed = Arc::new(Mutex::new(0));
    let (noted, by, body) = (Arc::clone(&removed), Arc::clone(other), new.clone());
    let (living, dead, anew) = (Arc::clone(&two.volumes[1]), Arc::clone(&two.volumes[0]), case.anew);
    let taken = move || {
        overwrite(&by, "f", &body);
        *noted.lock() = take_over(&living, &dead);
        if anew {
            begin_anew(&dead);
        }
    };
    let Some(done) = two.beside(at, taken, || one.sync(&handle)) else { return false };
    assert!(done.is_ok() || is_fenced(&done), "{told}: {done:?}");
    *refused += usize::from(done.is_err());
    two.is_whole(&told);
    assert!(*removed.lock() > 0, "{told}: the old bytes went");
    // It was published before the other one wrote, or not at all.
    assert!(get(&two.volumes[1], "f").unwrap() == new, "{told}");
    if done.is_err() {
        assert!(one.release(handle).is_err(), "{told}: the last close reports it, too");
    } else {
        drop(handle);
    }
    if !case.anew {
        begin_anew(&two.volumes[0]);
    }
    let again = body_of(3, case.len);
    overwrite(one, "f", &again);
    assert!(get(&two.volumes[1], "f").unwrap() == again, "{told}: it works in its new session");
    clear(&two.volumes[1]);
    two.is_whole(&told);
    true
}

#[test]
fn an_open_file_whose_bytes_another_process_removed_is_not_published() {
    for anew in [false, true] {
        for (len, run_bytes_max, shared) in
            [(250, 300, false), (2000, 300, false), (40_000, 1 << 30, false), (70_000, 1 << 30, true)]
        {
            let case = Case { len, run_bytes_max, shared, anew };
            let mut refused = 0;
            let moments = (0..).take_while(|at| publish_late(case, *at, &mut refused)).count();
            println!("evidence: {case:?}: {refused} of {moments} refused");
            assert!(refused > 0 && moments > refused, "{case:?}: {refused} of {moments}");
        }
    }
}

/// The other way round: the pass of reclaim is interrupted by a publish, whose process is taken for dead right after it.
#[test]
fn a_segment_to_which_a_row_refers_again_during_a_pass_is_not_set_aside() {
    for at in 0.. {
        let two = two(1 << 30);
        put(&two.volumes[1], "f", &body_of(1, 40_000));
        let handle = open_at(&two.mounts[0], "f");
        two.mounts[0].write(&handle, 10, b"more", false).unwrap();
        overwrite(&two.mounts[1], "f", &body_of(2, 40_000));
        let (mount, living, dead) =
            (Arc::clone(&two.mounts[0]), Arc::clone(&two.volumes[1]), Arc::clone(&two.volumes[0]));
        let handle = Arc::new(handle);
        let published = Arc::clone(&handle);
        let beside = move || {
            mount.flush(&published).unwrap();
            fence(&living, &dead);
        };
        let Some(done) = two.beside(at, beside, || two.volumes[1].reclaim_once(&ALL, &SealedLogs)) else { break };
        assert_eq!(done.unwrap().disputed_segments, 0, "moment {at}");
        let told = format!("moment {at}");
        clear(&two.volumes[1]);
        two.is_whole(&told);
        let mut body = body_of(1, 40_000);
        body[10..14].copy_from_slice(b"more");
        assert!(get(&two.volumes[1], "f").unwrap() == body, "{told}");
    }
}

/// What makes a row refer to stored bytes, or moves a row that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Put,
    PutPart,
    Append,
    Complete,
    Copy,
    CopyOver,
    CopyPart,
    CopyRange,
    RenameByS3,
    Rename,
    Link,
    Publish,
}

const OPERATIONS: [Operation; 12] = [
    Operation::Put,
    Operation::PutPart,
    Operation::Append,
    Operation::Complete,
    Operation::Copy,
    Operation::CopyOver,
    Operation::CopyPart,
    Operation::CopyRange,
    Operation::RenameByS3,
    Operation::Rename,
    Operation::Link,
    Operation::Publish,
];

/// Large enough to be shared by `copy_file_range`.
const LEN: usize = 70_000;

/// What is there before: `source` and the part are in the other process's store.
struct Given {
    upload: String,
    staged: Staged,
    source: Handle,
    target: Handle,
}

fn prepare(two: &Two, operation: Operation) -> Given {
    let [one, other] = two.volumes.each_ref();
    put(other, "source", &body_of(1, LEN));
    put(other, "over", &body_of(2, LEN));
    let upload = wait(one.create_multipart("b", "to", Headers::new(), Documents::new())).unwrap().upload;
    if operation == Operation::Complete {
        let body = body_of(1, LEN);
        wait(other.put_part("b", "to", &upload, 1, etag_of(&body), Headers::new(), stage(other, &body))).unwrap();
    }
    let mount = &two.mounts[0];
    let (_, target) = mount.create(mount.root(), &plain("target"), &NEW, BOTH).unwrap();
    if operation == Operation::Publish {
        mount.write(&target, 0, &body_of(3, LEN), false).unwrap();
    }
    Given { upload, staged: stage(one, &body_of(1, LEN)), source: open_at(mount, "source"), target }
}

fn act(two: &Two, operation: Operation, given: Given) -> Result<(), PosixError> {
    let (one, mount, body) = (&two.volumes[0], &two.mounts[0], body_of(1, LEN));
    let Given { upload, staged, source, target } = given;
    let copy = |key| {
        let request =
            CopyRequest { source_bucket: "b", source_key: "source", bucket: "b", key, ..CopyRequest::default() };
        wait(one.copy_object(request)).map(drop)
    };
    match operation {
        Operation::Put => put_staged(one, "to", &body, staged).map(drop)?,
        Operation::PutPart => {
            wait(one.put_part("b", "to", &upload, 1, etag_of(&body), Headers::new(), staged)).map(drop)?;
        }
        Operation::Append => {
            let (etag, condition) = (etag_of(&body), WriteCondition::None);
            let request =
                AppendRequest { bucket: "b", key: "source", offset: LEN as u64, etag, encryption: None, condition };
            wait(one.append_object(request, staged)).map(drop)?;
        }
        Operation::Complete => {
            let choice = [PartChoice { number: 1, etag: etag_of(&body) }];
            let none = WriteCondition::None;
            wait(one.complete_multipart("b", "to", &upload, &choice, Headers::new(), &none)).map(drop)?;
        }
        Operation::Copy => copy("to")?,
        Operation::CopyOver => copy("over")?,
        Operation::CopyPart => {
            let source = ("b", "source", None);
            wait(one.copy_part("b", "to", &upload, 1, source, Some(100..60_000), &ReadCondition::default()))
                .map(drop)?;
        }
        Operation::CopyRange => drop(mount.copy_range(&source, 0, &target, 0, LEN as u64, false)?),
        Operation::RenameByS3 => wait(one.rename("b", "source", "to", &WriteCondition::None))?,
        Operation::Rename => {
            mount.rename(mount.root(), &plain("source"), mount.root(), &plain("to"), RenameMode::Replace)?;
        }
        Operation::Link => drop(mount.link(source.ino(), mount.root(), &plain("to"))?),
        Operation::Publish => mount.flush(&target)?,
    }
    Ok(())
}

/// Which run has which owner, in order.
fn back_rows(memory: &Memory) -> Vec<Vec<u8>> {
    let (start, end) = margay_rows::key::all_backs();
    memory.rows().range(start..end).map(|(key, _)| key.clone()).collect()
}

#[test]
fn who_was_taken_for_dead_makes_no_row_refer_to_stored_bytes() {
    for operation in OPERATIONS {
        let (mut refused, mut moments) = (0, 0);
        for at in 0.. {
            let two = two(1 << 30);
            let given = prepare(&two, operation);
            let (living, dead) = (Arc::clone(&two.volumes[1]), Arc::clone(&two.volumes[0]));
            let before = Arc::new(Mutex::new(Vec::new()));
            let (noted, memory) = (Arc::clone(&before), Arc::clone(&two.memory));
            let taken = move || {
                fence(&living, &dead);
                *noted.lock() = back_rows(&memory);
            };
            let Some(done) = two.beside(at, taken, || act(&two, operation, given)) else { break };
            moments += 1;
            let told = format!("{operation:?} at moment {at}: {done:?}");
            assert!(done.is_ok() || is_fenced(&done), "{told}");
            let before = before.lock();
            let is_old = |key: &Vec<u8>| before.binary_search(key).is_ok();
            assert!(back_rows(&two.memory).iter().all(is_old), "{told}: committed behind the fencing");
            refused += usize::from(done.is_err());
        }
        println!("evidence: {operation:?}: {refused} of {moments} refused");
        assert!(refused > 0 && moments > refused, "{operation:?}: {refused} of {moments}");
    }
}

#[test]
fn what_is_done_late_refers_to_no_byte_that_went() {
    let mut removed = 0;
    for operation in OPERATIONS {
        for at in 0.. {
            let two = two(1 << 30);
            let given = prepare(&two, operation);
            let (living, dead) = (Arc::clone(&two.volumes[1]), Arc::clone(&two.volumes[0]));
            let (gone, upload) = (Arc::new(Mutex::new(0)), given.upload.clone());
            let noted = Arc::clone(&gone);
            let taken = move || {
                wait(living.delete_object("b", &DeleteRequest::of("source"))).unwrap();
                let _ = wait(living.abort_multipart("b", "to", &upload));
                *noted.lock() = take_over(&living, &dead);
            };
            let Some(done) = two.beside(at, taken, || act(&two, operation, given)) else { break };
            removed += *gone.lock();
            let told = format!("{operation:?} at moment {at}: {done:?}");
            begin_anew(&two.volumes[0]);
            clear(&two.volumes[1]);
            two.is_whole(&told);
            for key in ["to", "over", "source", "target"] {
                // Whatever it is, all of its bytes are there.
                let found = two.volumes.each_ref().map(|volume| get(volume, key));
                assert!(found[0] == found[1], "{told}: {key}");
            }
        }
    }
    println!("evidence: {removed} segments removed beside late operations");
    assert!(removed > 0);
}

/// Another process opens the folder of the one that it takes for dead, and removes what nothing refers to.
#[test]
fn an_upload_into_a_folder_that_another_process_has_opened_is_refused() {
    let mut refused = 0;
    for at in 0.. {
        let two = two(1 << 30);
        let body = body_of(1, LEN);
        let staged = stage(&two.volumes[0], &body);
        let next = Arc::new(Mutex::new(None));
        let (living, dead, noted) = (Arc::clone(&two.volumes[1]), Arc::clone(&two.volumes[0]), Arc::clone(&next));
        let (env, memory) = (two.stores[0].0.clone(), Arc::clone(&two.memory));
        let taken = move || {
            fence(&living, &dead);
            let store = Store::open(env.clone(), margay_segment::Options::new(Path::new("/segments"))).unwrap();
            let volume = Volume::open(env, memory, store, Options::default()).unwrap();
            let mut removed = 0;
            for _ in 0..3 {
                living.beat().unwrap();
                removed += volume.reclaim_once(&ALL, &SealedLogs).unwrap().removed_segments;
            }
            *noted.lock() = Some((volume, removed));
        };
        let Some(done) = two.beside(at, taken, || put_staged(&two.volumes[0], "to", &body, staged)) else { break };
        let (volume, removed) = next.lock().take().unwrap();
        match &done {
            Ok(_) => assert!(get(&volume, "to").unwrap() == body, "moment {at}"),
            Err(Error::Fenced) => refused += usize::from(removed > 0),
            Err(error) => panic!("moment {at}: {error:?}"),
        }
        let report = volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "moment {at}: {done:?} {report:#?}");
        assert!(matches!(two.volumes[0].beat(), Err(Error::Fenced)));
        assert!(matches!(two.volumes[0].open_session(), Err(Error::Fenced)), "the folder is another one's");
    }
    println!("evidence: {refused} uploads refused whose bytes had gone");
    assert!(refused > 0);
}
