//! A backup beside writers and reclaim restores to one moment; the next one copies only what is new; damage is found.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::atomic::{AtomicBool, Ordering};

use margay_env::{Env, OpenMode};
use margay_volume::*;
use world::backups::*;
use world::*;

#[test]
fn a_backup_restores_what_was_there() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    let body = |index: usize| body_of(index, [20, 900, 9000, 60_000, 120_000][index % 5]);
    for index in 0..60 {
        world.put("b", &format!("d{}/{index:03}", index % 3), &body(index)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let first = backup(&world, folder.path());
    assert!(first.copied_bytes > 1_000_000 && first.verified_bytes > 1_000_000, "{first:?}");
    let again = backup(&world, folder.path());
    assert!(again.copied_bytes < 100_000, "nothing is new: {again:?}");
    assert!(again.verified_bytes >= first.verified_bytes, "{again:?}");
    for index in (0..60).step_by(2) {
        assert!(world.delete("b", &format!("d{}/{index:03}", index % 3)).unwrap());
    }
    world.put("b", "later", &body(3)).unwrap();
    let last = backup(&world, folder.path());
    let named = moments(&Env::real(), folder.path()).unwrap();
    assert!(named.contains(&first.moment) && named.contains(&last.moment), "{named:?}");
    let keys = || (0..60).map(|index| format!("d{}/{index:03}", index % 3)).chain(["later".to_owned()]);
    for (moment, count) in [(&first.moment, 60), (&last.moment, 31)] {
        let to = tempfile::tempdir().unwrap();
        let volume = restore(folder.path(), moment, to.path());
        let objects = all_objects(&volume, "b", keys());
        assert_eq!(objects.len(), count);
        for (key, bytes) in &objects {
            let index = key.rsplit('/').next().and_then(|name| name.parse().ok()).unwrap_or(3);
            assert!(*bytes == body(index), "{key}");
        }
        let report = volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
        // What the other moments name is dead here; it goes as any dead space does.
        let budget = ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
        volume.reclaim_once(&budget, &SealedLogs).unwrap();
        assert_eq!(all_objects(&volume, "b", keys()).len(), count);
    }
}

#[test]
fn a_backup_beside_writers_and_reclaim_is_one_moment() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let mut named = Vec::new();
    std::thread::scope(|scope| {
        // Both keys hold the same round, `a` first: at one moment `a` is never behind, and at most one ahead.
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                world.put("b", "a", &body_of(round, 50_000)).unwrap();
                world.put("b", "z", &body_of(round, 50_000)).unwrap();
                round += 1;
            }
        });
        scope.spawn(|| {
            let budget = ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
            while !stop.load(Ordering::Relaxed) {
                world.volume.reclaim_once(&budget, &SealedLogs).unwrap();
            }
        });
        // Also when what follows fails: the threads would go on for ever.
        let _stopping = StopAtEnd(&stop);
        while wait(world.volume.get_object("b", "z", &ReadCondition::default())).is_err() {
            std::thread::yield_now();
        }
        for _ in 0..4 {
            named.push(backup(&world, folder.path()).moment);
        }
    });
    named.dedup();
    for moment in named {
        let to = tempfile::tempdir().unwrap();
        let volume = restore(folder.path(), &moment, to.path());
        let objects = all_objects(&volume, "b", ["a".to_owned(), "z".to_owned()].into_iter());
        let round = (0..100_000).find(|round| objects["z"] == body_of(*round, 50_000)).unwrap();
        assert!([round, round + 1].iter().any(|round| objects["a"] == body_of(*round, 50_000)));
        assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
    }
    assert_eq!(world.store.taken_back(), 0);
}

#[test]
fn a_damaged_copy_is_made_anew_and_damaged_rows_are_refused() {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    world.put("b", "k", &body_of(1, 30_000)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let first = backup(&world, folder.path());
    let env = Env::real();
    let segments = segments_of(folder.path());
    let entry = env.disk.list(&segments).unwrap().into_iter().find(|entry| entry.len > 30_000).unwrap();
    let file = env.disk.open(&segments.join(&entry.name), OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"rot", 10_000).unwrap();
    let second = backup(&world, folder.path());
    assert!(second.copied_bytes >= 30_000, "{second:?}");
    let to = tempfile::tempdir().unwrap();
    let volume = restore(folder.path(), &second.moment, to.path());
    assert_eq!(all_objects(&volume, "b", ["k".to_owned()].into_iter())["k"], body_of(1, 30_000));
    let rows = folder.path().join("moments").join(&first.moment).join("rows");
    let file = env.disk.open(&rows, OpenMode::ReadWrite).unwrap();
    let len = file.len().unwrap();
    for at in [0, 9, 20, len / 2, len - 1] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        let engine = margay_meta::memory::Memory::new();
        assert!(restore_rows(&env, folder.path(), &first.moment, &engine, |_| ()).is_err(), "byte {at}");
        file.write_all_at(&byte, at).unwrap();
    }
    file.set_len(len - 1).unwrap();
    assert!(restore_rows(&env, folder.path(), &first.moment, &margay_meta::memory::Memory::new(), |_| ()).is_err());
}
