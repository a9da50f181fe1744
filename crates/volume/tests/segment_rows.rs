//! Rows of segments and of the store, on a volume that has one store.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;

use margay_meta::*;
use margay_rows::key;
use margay_rows::record::{SegmentRecord, SegmentState};
use margay_segment::{Kind, SegmentId, StoreNumber};
use margay_volume::*;
use world::maintenance::ALL;
use world::*;

/// Those that decode.
fn rows(world: &World) -> BTreeMap<SegmentId, SegmentRecord> {
    let (start, end) = key::all_segments();
    let mut rows = BTreeMap::new();
    let scanned = world.engine.scan(&start, &end, &mut |row| {
        let id = key::parse_segment(row.key).unwrap();
        rows.extend(SegmentRecord::decode(row.value).ok().map(|record| (id, record)));
        std::ops::ControlFlow::Continue(())
    });
    scanned.unwrap();
    rows
}

fn reclaim(world: &World) {
    world.volume.reclaim_once(&ALL, &SealedLogs).unwrap();
}

fn put_row(world: &World, key: Vec<u8>, value: Vec<u8>) {
    world.engine.commit(Batch { writes: vec![Write::Put { key, value }], ..Batch::default() }).unwrap();
}

#[test]
fn a_row_comes_with_the_first_run_is_sealed_and_goes_with_its_file() {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    for index in 0..20 {
        world.put("b", &format!("k{index}"), &body_of(index, 500)).unwrap();
    }
    world.put("b", "large", &body_of(1, 40 << 10)).unwrap();
    let files: BTreeMap<_, _> = world.store.segments().into_iter().map(|info| (info.id, info)).collect();
    let found = rows(&world);
    assert!(found.keys().eq(files.keys()) && found.len() >= 2, "{found:?}");
    for (id, row) in &found {
        let row_of =
            SegmentRecord { state: SegmentState::Open, kind: files[id].kind, writer: 0, stores: vec![StoreNumber(0)] };
        assert_eq!(*row, row_of);
    }
    let changes = world.engine.changes(Cursor(0), 10_000).unwrap().changes;
    let is_row = |change: &&Change| change.keys.iter().any(|key| key::is_segment(key) && key.get(1) == Some(&b's'));
    assert_eq!(changes.iter().filter(is_row).count(), found.len(), "one put for each segment");
    world.delete("b", "large").unwrap();
    reclaim(&world);
    let raw = found.iter().find(|(_, row)| row.kind == Kind::Raw).unwrap().0;
    let after = rows(&world);
    assert!(!after.contains_key(raw) && !world.store.segments().iter().any(|info| info.id == *raw));
    for info in world.store.segments().iter().filter(|info| !info.open) {
        assert_eq!(after[&info.id].state, SegmentState::Sealed { len: info.len });
    }
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn a_volume_without_rows_gets_them_and_loses_nothing() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    let bodies: Vec<_> = (0..30).map(|index| body_of(index, 200 + index * 3000)).collect();
    for (index, body) in bodies.iter().enumerate() {
        world.put("b", &format!("k{index:02}"), body).unwrap();
    }
    let (start, end) = (key::all_segments().0, key::all_stores().1);
    let mut keys = Vec::new();
    let visit = &mut |row: RowRef<'_>| {
        keys.push(row.key.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    world.engine.scan(&start, &end, visit).unwrap();
    let writes = keys.into_iter().map(|key| Write::Delete { key }).collect();
    world.engine.commit(Batch { writes, ..Batch::default() }).unwrap();
    let volume = world.reopen();
    assert!(volume.fsck(FsckOptions::default()).unwrap().clean(), "what has no row yet is no finding");
    for _ in 0..2 {
        world.engine.checkpoint().unwrap();
        volume.reclaim_once(&ALL, &SealedLogs).unwrap();
    }
    let found = rows(&world);
    let sealed = world.store.segments().into_iter().filter(|info| !info.open);
    assert!(sealed.into_iter().all(|info| found.contains_key(&info.id)), "{found:?}");
    for (index, body) in bodies.iter().enumerate() {
        assert!(world.get("b", &format!("k{index:02}")).unwrap() == *body);
    }
    assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn a_row_without_a_file_goes_with_the_next_pass_unless_something_is_lost() {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    world.put("b", "lost", &body_of(1, 500)).unwrap();
    let lost = rows(&world).into_keys().next().unwrap();
    let strange = SegmentId(0x777);
    let row = SegmentRecord { state: SegmentState::Open, kind: Kind::Pack, writer: 0, stores: vec![StoreNumber(0)] };
    put_row(&world, key::segment(strange), row.encode());
    put_row(&world, key::segment(SegmentId(0x778)), b"?".to_vec());
    let repair = FsckOptions { repair: true, ..FsckOptions::default() };
    let report = world.volume.fsck(repair).unwrap();
    assert_eq!(report.findings, [(FindingKind::Damaged, 1)].into(), "{report:?}");
    let (disk, folder) = (margay_env::Env::real().disk, world.folder.path().join("segments"));
    let pack = disk.list(&folder).unwrap().into_iter().find(|entry| entry.name.ends_with(".pack")).unwrap();
    disk.remove(&folder.join(pack.name)).unwrap();
    let store =
        margay_segment::Store::open(margay_env::Env::real(), segment_options(&world.folder.path().join("segments")));
    let engine = std::sync::Arc::clone(&world.engine);
    let volume = Volume::open(margay_env::Env::real(), engine, store.unwrap(), Options::default()).unwrap();
    volume.reclaim_once(&ReclaimBudget::default(), &KeepLogs).unwrap();
    assert!(!rows(&world).contains_key(&strange), "no file, no reference");
    assert!(rows(&world).contains_key(&lost), "something refers to it");
    let report = volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.shown.iter().any(|one| one.kind == FindingKind::MissingData && one.what.starts_with("b/lost")));
}
