//! Orphans that a process left which broke off: whatever the order of the steps, each run is counted out once, and what was
//! aborted is not completed.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::{self, Action, Given};
use world::interposed::Interposed;
use world::*;

/// More runs than go in one batch.
const RUNS: usize = 8300;
const RUN_BYTES: usize = 16;

/// Deletes an object of very many runs and drains what is left on one volume; at this moment the other one drains it too,
/// and breaks off at a moment of its own. False when draining has fewer moments.
fn drained_by_two(at: usize, broken_off_at: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
    let memory = Arc::new(Memory::new());
    let engines = [(); 2].map(|()| Arc::new(Interposed::new(Arc::<Memory>::clone(&memory))));
    let options = Options { run_bytes_max: RUN_BYTES as u64, ..Options::default() };
    let [one, other] = engines.each_ref().map(|engine| {
        let engine = Arc::clone(engine) as Arc<dyn Engine>;
        Volume::open(Env::real(), engine, Arc::clone(&store), options.clone()).unwrap()
    });
    wait(one.create_bucket("b")).unwrap();
    let put = |key: &str, body: &[u8]| {
        let staged = wait(async {
            let mut upload = one.begin_upload("b", body.len() as u64).await.unwrap();
            upload.write(bytes::Bytes::copy_from_slice(body)).await.unwrap();
            upload.finish().await.unwrap()
        });
        let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
        wait(one.put_object(request, staged)).unwrap();
    };
    put("large", &body_of(1, RUNS * RUN_BYTES));
    put("stays", &body_of(2, 200));
    assert!(wait(one.delete_object("b", &DeleteRequest::of("large"))).unwrap().removed);
    // Moves nothing: what the test is about is who counts out.
    let budget = ReclaimBudget { move_bytes_max: 0, live_percent_min: 0, ..ReclaimBudget::default() };
    let (drainer, breaks_off) = (Arc::clone(&other), Arc::clone(&engines[1]));
    let drain = move || {
        breaks_off.arm(broken_off_at, Box::new(|| std::panic::resume_unwind(Box::new(()))));
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drainer.reclaim_once(&budget, &KeepLogs)));
        breaks_off.disarm();
    };
    engines[0].arm(at, Box::new(drain));
    one.reclaim_once(&budget, &KeepLogs).unwrap();
    let reached = !engines[0].disarm();
    let report = other.fsck(FsckOptions { repair: false, shown_max: 5 }).unwrap();
    assert!(report.clean(), "at moments {at} and {broken_off_at}: {report:#?}");
    assert_eq!(report.orphans, 0, "at moments {at} and {broken_off_at}");
    reached
}

/// Two processes over one store, and an upload of one part.
struct Uploaded {
    engines: [Arc<Interposed>; 2],
    volumes: [Arc<Volume>; 2],
    given: Given,
    _folder: tempfile::TempDir,
}

fn uploaded() -> Uploaded {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
    let memory = Arc::new(Memory::new());
    let engines = [(); 2].map(|()| Arc::new(Interposed::new(Arc::<Memory>::clone(&memory))));
    let volumes = engines.each_ref().map(|engine| {
        let engine = Arc::clone(engine) as Arc<dyn Engine>;
        Volume::open(Env::real(), engine, Arc::clone(&store), Options::default()).unwrap()
    });
    wait(volumes[0].create_bucket("b")).unwrap();
    let upload = wait(volumes[0].create_multipart("b", "a/m", Headers::new(), Documents::new())).unwrap().upload;
    let given = Given { upload, ..Given::default() };
    assert_eq!(actions::run(&volumes[0], &given, Action::PutPart), "done");
    Uploaded { engines, volumes, given, _folder: folder }
}

/// Drains an aborted upload whose part is a copy; at this moment another process does so too. False when draining has fewer
/// moments.
fn shared_part_drained_by_two(at: usize) -> bool {
    let Uploaded { engines, volumes: [one, other], given, _folder } = uploaded();
    assert_eq!(actions::run(&one, &given, Action::Put("s", 66_500)), "done");
    let condition = ReadCondition::default();
    wait(one.copy_part("b", "a/m", &given.upload, 1, ("b", "s", None), None, &condition)).unwrap();
    // Broken off behind its commit, before it drains.
    engines[0].arm(3, Box::new(|| std::panic::resume_unwind(Box::new(()))));
    let aborted = std::panic::catch_unwind(AssertUnwindSafe(|| wait(one.abort_multipart("b", "a/m", &given.upload))));
    assert!(aborted.is_err());
    assert_eq!(other.fsck(FsckOptions::default()).unwrap().orphans, 1);
    let budget = ReclaimBudget { move_bytes_max: 0, live_percent_min: 0, ..ReclaimBudget::default() };
    engines[0].arm(at, Box::new(move || assert!(other.reclaim_once(&budget, &KeepLogs).is_ok())));
    one.reclaim_once(&budget, &KeepLogs).unwrap();
    let reached = !engines[0].disarm();
    let report = one.fsck(FsckOptions { repair: false, shown_max: 5 }).unwrap();
    assert!(report.clean() && report.orphans == 0, "at moment {at}: {report:#?}");
    reached
}

#[test]
fn what_another_process_drains_meanwhile_is_not_taken_for_damage() {
    let moments = (0..).take_while(|at| shared_part_drained_by_two(*at)).count();
    assert!(moments > 5, "{moments} moments");
}

/// Completes an upload; at this moment another process aborts it, and breaks off at a moment of its own. False when
/// completing has fewer moments.
fn completed_beside_abort(at: usize, broken_off_at: usize) -> bool {
    let Uploaded { engines, volumes: [one, other], given, _folder } = uploaded();
    let upload = given.upload.clone();
    let (aborter, breaks_off) = (Arc::clone(&other), Arc::clone(&engines[1]));
    let aborted = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&aborted);
    let abort = move || {
        let uploads = || wait(aborter.list_multipart("b", "", None, 10)).unwrap().0.len();
        let before = uploads();
        breaks_off.arm(broken_off_at, Box::new(|| std::panic::resume_unwind(Box::new(()))));
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| wait(aborter.abort_multipart("b", "a/m", &upload))));
        breaks_off.disarm();
        told.store(before == 1 && uploads() == 0, Ordering::Relaxed);
    };
    engines[0].arm(at, Box::new(abort));
    let done = actions::run(&one, &given, Action::Complete("a/m"));
    let reached = !engines[0].disarm();
    assert_eq!(done == "done", !aborted.load(Ordering::Relaxed), "at moments {at} and {broken_off_at}: {done}");
    let budget = ReclaimBudget { move_bytes_max: 0, live_percent_min: 0, ..ReclaimBudget::default() };
    other.reclaim_once(&budget, &KeepLogs).unwrap();
    let report = other.fsck(FsckOptions { repair: false, shown_max: 5 }).unwrap();
    assert!(report.clean() && report.orphans == 0, "at moments {at} and {broken_off_at}: {report:#?}");
    reached
}

/// Moves what lives in a mostly dead pack; at this moment another process aborts the upload whose part lies there, and rests
/// at a moment of its own until all is moved. False when moving has fewer moments.
fn drained_beside_reclaim(at: usize, rests_at: usize) -> bool {
    let Uploaded { engines, volumes: [one, other], given, _folder } = uploaded();
    assert_eq!(actions::run(&one, &given, Action::Put("dead", 5000)), "done");
    actions::run(&one, &given, Action::Delete("dead"));
    let (told, tells) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let rests = told.clone();
    let rest = move || {
        rests.send(()).unwrap();
        let _ = waits.recv();
    };
    engines[1].arm(rests_at, Box::new(rest));
    let aborting = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&aborting);
    let abort = move || {
        *slot.lock() = Some(std::thread::spawn(move || {
            wait(other.abort_multipart("b", "a/m", &given.upload)).unwrap();
            let _ = told.send(());
        }));
        tells.recv().unwrap();
    };
    engines[0].arm(at, Box::new(abort));
    let budget = ReclaimBudget { live_percent_min: 101, seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
    one.reclaim_once(&budget, &KeepLogs).unwrap();
    let reached = !engines[0].disarm();
    drop(go_on);
    if let Some(thread) = aborting.lock().take() {
        thread.join().unwrap();
    }
    engines[1].disarm();
    one.reclaim_once(&budget, &KeepLogs).unwrap();
    let report = one.fsck(FsckOptions { repair: false, shown_max: 5 }).unwrap();
    assert!(report.clean() && report.orphans == 0, "at moments {at} and {rests_at}: {report:#?}");
    reached
}

#[test]
fn a_part_that_reclaim_moves_is_counted_out_where_it_lies() {
    for rests_at in 0..8 {
        let moments = (0..).take_while(|at| drained_beside_reclaim(*at, rests_at)).count();
        assert!(moments > 8, "{moments} moments");
    }
}

#[test]
fn an_upload_that_was_aborted_is_not_completed() {
    for broken_off_at in 0..6 {
        let moments = (0..).take_while(|at| completed_beside_abort(*at, broken_off_at)).count();
        assert!(moments > 1, "{moments} moments");
    }
}

#[test]
fn a_run_of_an_orphan_is_counted_out_once() {
    for broken_off_at in [4, 5] {
        let moments = (0..).take_while(|at| drained_by_two(*at, broken_off_at)).count();
        assert!(moments > 8, "draining has its batches: {moments} moments");
    }
}
