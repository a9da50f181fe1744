//! The store over a real folder.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::ops::ControlFlow;
use std::sync::Arc;

use margay_env::Env;
use margay_segment::{CHUNK_BYTES, Extent, Kind, Options, Run, RunWriter, SegmentError, SegmentId, Store, WalkedRun};

/// Takes a segment that nothing names all the way out.
fn remove(store: &Store, id: SegmentId) -> Result<(), SegmentError> {
    assert!(store.set_aside(id)?, "it was never taken back");
    store.release(id, &walked(store)).map(drop)
}

/// A walk that found no row that names anything.
fn walked(store: &Store) -> margay_segment::Walk {
    let mut walk = store.begin_walk();
    walk.complete();
    walk
}

fn options(folder: &std::path::Path) -> Options {
    Options {
        folder: folder.to_owned(),
        pack_bytes_max: 1 << 20,
        raw_bytes_min: 512 << 10,
        reserve_bytes: 0,
        files_may_be_missing: false,
    }
}

fn open(folder: &tempfile::TempDir) -> Arc<Store> {
    Store::open(Env::real(), options(folder.path())).unwrap()
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + seed * 17 + (at >> 8)) % 251) as u8).collect()
}

fn write(store: &Store, bytes: &[u8], owner: &[u8]) -> Run {
    let mut writer = store.begin_run(bytes.len() as u64, owner).unwrap();
    for piece in bytes.chunks(100_003) {
        writer.write(piece).unwrap();
    }
    writer.finish().unwrap()
}

fn walk(store: &Store, id: SegmentId) -> Vec<WalkedRun> {
    let mut runs = Vec::new();
    let visit = &mut |run| {
        runs.push(run);
        ControlFlow::Continue(())
    };
    store.walk_pack(id, visit).unwrap();
    runs
}

/// Lengths at both sides of every boundary that the layout has.
const LENGTHS: [u64; 12] = [
    0,
    1,
    7,
    4096,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    2 * CHUNK_BYTES,
    300_000,
    (512 << 10) - 1,
    512 << 10,
    (1 << 20) + 12_345,
];

#[test]
fn runs_of_every_shape_read_back_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let runs: Vec<Run> = LENGTHS.iter().map(|len| write(&store, &pattern(*len, *len), b"owner")).collect();
    for run in &runs {
        store.sync_blocking(run.segment).unwrap();
    }
    drop(store);
    let store = open(&folder);
    for run in runs {
        let extent = Extent::whole(run);
        let bytes = pattern(run.len, run.len);
        for _ in 0..2 {
            assert_eq!(store.read(&extent, 0, run.len).unwrap(), bytes);
        }
        assert_eq!(store.read_cached(&extent, 0, run.len).unwrap().unwrap(), bytes, "just read, so in memory");
        store.verify(&extent).unwrap();
        let part = Extent { run, skip: run.len / 3, len: run.len / 2 };
        let (skip, len) = (part.len / 4, part.len / 2);
        let from = (part.skip + skip) as usize;
        assert_eq!(store.read(&part, skip, len).unwrap(), bytes[from..from + len as usize]);
        assert!(matches!(store.read(&extent, 1, run.len), Err(SegmentError::Io(_))), "beyond the extent");
        let raw = run.len >= 512 << 10;
        assert_eq!(run.offset == 0, raw);
        if raw {
            assert_eq!(store.raw_run(run.segment).unwrap(), (b"owner".to_vec(), run));
        } else {
            assert!(walk(&store, run.segment).iter().any(|walked| walked.run == Some(run)));
        }
    }
}

#[test]
fn a_first_read_of_the_middle_verifies_through_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let bytes = pattern(400_000, 1);
    let run = write(&store, &bytes, b"");
    assert_eq!(store.read(&Extent::whole(run), 100_000, 10).unwrap(), bytes[100_000..100_010]);
}

#[test]
fn ids_are_never_reused() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let store = open(&folder);
        let run = write(&store, &pattern(600_000, 1), b"");
        assert!(!seen.contains(&run.segment));
        seen.push(run.segment);
        remove(&store, run.segment).unwrap();
        assert!(matches!(store.read(&Extent::whole(run), 0, 1), Err(SegmentError::Missing(_))));
        let (log, _) = store.create_log(4096).unwrap();
        assert!(log > run.segment);
        store.seal(log).unwrap();
        remove(&store, log).unwrap();
        seen.push(log);
        assert!(store.segments().is_empty());
    }
}

#[test]
fn packs_are_sealed_by_size_and_removed_only_when_closed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let runs: Vec<Run> = (0..8).map(|seed| write(&store, &pattern(300_000, seed), b"")).collect();
    let packs = store.segments();
    assert_eq!(packs.iter().filter(|info| info.open).count(), 1, "one open pack: {packs:?}");
    assert_eq!(packs.len(), 2);
    assert!(remove(&store, runs[7].segment).is_err(), "still open");
    let pin = store.pin(runs[0].segment).unwrap();
    assert!(remove(&store, runs[0].segment).is_err(), "pinned");
    drop(pin);
    remove(&store, runs[0].segment).unwrap();
    store.seal(runs[7].segment).unwrap();
    assert!(store.segments().iter().all(|info| !info.open));
    assert_ne!(write(&store, b"next", b"").segment, runs[7].segment);
    let allocated = store.allocated_bytes(runs[7].segment).unwrap();
    store.punch_run(&runs[7], &walked(&store)).unwrap();
    assert!(store.allocated_bytes(runs[7].segment).unwrap() + 250_000 < allocated);
    assert!(store.read(&Extent::whole(runs[7]), 0, 10).is_err());
    assert!(store.punch_run(&runs[7], &walked(&store)).is_err(), "given back already");
    store.verify(&Extent::whole(runs[6])).unwrap();
    let wrong = Run { len: runs[6].len - 8, ..runs[6] };
    assert!(store.punch_run(&wrong, &walked(&store)).is_err());
}

#[test]
fn unfinished_runs_leave_nothing_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let first = write(&store, b"first", b"1");
    let mut dropped = store.begin_run(10_000, b"dropped").unwrap();
    dropped.write(&[1; 5000]).unwrap();
    assert!(dropped.write(&[1; 5001]).is_err(), "more than reserved");
    let short = store.begin_run(10, b"short").unwrap();
    assert!(short.finish().is_err());
    let last = write(&store, b"last", b"2");
    drop(dropped);
    let raw = store.begin_run(1 << 20, b"").unwrap();
    let raw_id = raw.segment();
    assert_eq!(store.segments().last().unwrap().kind, Kind::Raw);
    drop(raw);
    assert!(matches!(store.file(raw_id), Err(SegmentError::Missing(_))));
    let walked = walk(&store, first.segment);
    let owners: Vec<&[u8]> = walked.iter().map(|run| &run.owner[..]).collect();
    assert_eq!(owners, [&b"1"[..], b"dropped", b"short", b"2"]);
    assert_eq!(walked.iter().map(|run| run.run).collect::<Vec<_>>(), [Some(first), None, None, Some(last)]);
    assert!(walked.windows(2).all(|pair| pair[0].range.end == pair[1].range.start), "no gap");
}

#[test]
fn a_walk_gets_past_a_damaged_header() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let runs: Vec<Run> = (0..5).map(|seed| write(&store, &pattern(200_000, seed), b"owner")).collect();
    let file = store.file(runs[0].segment).unwrap();
    file.write_all_at(&[0xff; 16], runs[2].offset - 48).unwrap();
    let found: Vec<Run> = walk(&store, runs[0].segment).iter().filter_map(|run| run.run).collect();
    assert_eq!(found, [runs[0], runs[1], runs[3], runs[4]]);
    store.verify(&Extent::whole(runs[2])).unwrap();
}

#[test]
fn damage_is_named_and_wrong_bytes_never_leave() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    for len in [5000, 200_000, 700_000] {
        let run = write(&store, &pattern(len, 3), b"");
        let file = store.file(run.segment).unwrap();
        let (extent, at) = (Extent::whole(run), len - 1000);
        store.will_read(&extent).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, run.offset + at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], run.offset + at).unwrap();
        assert!(matches!(store.read(&extent, at, 1), Err(SegmentError::Corrupt { .. })));
        assert!(matches!(store.verify(&extent), Err(SegmentError::Corrupt { .. })));
        if len > CHUNK_BYTES * 2 {
            assert!(store.read(&extent, 0, 1000).is_ok(), "other chunks are intact");
        }
        for absurd in [
            Extent { run: Run { offset: u64::MAX, ..run }, skip: 0, len: 1 },
            Extent { run: Run { len: u64::MAX, ..run }, skip: u64::MAX, len: 1 },
            Extent { run: Run { len: 1 << 60, ..run }, skip: 0, len: 1 << 60 },
        ] {
            assert!(matches!(store.read(&absurd, 0, 1), Err(SegmentError::Corrupt { .. })), "{absurd:?}");
            assert!(matches!(store.verify(&absurd), Err(SegmentError::Corrupt { .. })));
            assert!(len <= CHUNK_BYTES || store.will_read(&absurd).is_err());
            assert!(store.punch_run(&absurd.run, &walked(&store)).is_err());
        }
    }
}

#[test]
fn a_newer_format_is_refused_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let run = write(&store, b"bytes", b"");
    store.file(run.segment).unwrap().write_all_at(&[9], 8).unwrap();
    drop(store);
    let error = open(&folder).read(&Extent::whole(run), 0, 5).unwrap_err();
    assert!(error.to_string().contains("version 9 is newer"), "{error}");
}

#[test]
fn a_payload_in_a_log_reads_like_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let (segment, file) = store.create_log(1 << 20).unwrap();
    file.write_all_at(b"payload", 5000).unwrap();
    let run = Run { segment, offset: 5000, len: 7, crc: Run::crc_of(b"payload") };
    assert_eq!(store.read(&Extent::whole(run), 0, 7).unwrap(), &b"payload"[..]);
    assert_eq!(store.logs().len(), 1);
    assert!(store.logs()[0].open);
}

#[test]
fn a_log_gives_back_what_no_run_needs() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let (segment, file) = store.create_log(1 << 20).unwrap();
    let body = pattern(1 << 20, 3);
    file.write_all_at(&body, 0).unwrap();
    let place = |from: usize, to: usize| Run {
        segment,
        offset: from as u64,
        len: (to - from) as u64,
        crc: Run::crc_of(&body[from..to]),
    };
    let live = [place(70, 3000), place(5000, 8192), place(400_001, 440_007), place((1 << 20) - 9, 1 << 20)];
    let walked = || {
        let mut walk = store.begin_walk();
        live.iter().for_each(|run| walk.name(run));
        walk.complete();
        walk
    };
    assert!(store.punch_log(segment, &walked()).is_err(), "it takes records");
    store.seal(segment).unwrap();
    assert!(store.punch_log(segment, &store.begin_walk()).is_err(), "not complete");
    let held = store.hold_quarantine();
    assert!(store.punch_log(segment, &walked()).is_err(), "a backup is made");
    drop(held);
    store.punch_log(segment, &walked()).unwrap();
    live.iter().for_each(|run| store.verify(&Extent::whole(*run)).unwrap());
    assert_eq!(file.len().unwrap(), 1 << 20);
    assert!(store.allocated_bytes(segment).unwrap() < 80_000, "{}", store.allocated_bytes(segment).unwrap());
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).unwrap();
    assert_eq!(header, body[..64]);
    assert!(store.punch_run(&live[0], &self::walked(&store)).is_err(), "no pack");
}

#[test]
fn many_writers_fill_one_pack_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { pack_bytes_max: 64 << 20, ..options(folder.path()) };
    let store = Store::open(Env::real(), options).unwrap();
    let runs: Vec<(u64, Run)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16u64)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut runs = Vec::new();
                    for round in 0..20 {
                        let seed = thread * 100 + round;
                        let run = write(store, &pattern(1000 * (seed % 90 + 1), seed), &seed.to_le_bytes());
                        store.sync_blocking(run.segment).unwrap();
                        runs.push((seed, run));
                    }
                    runs
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(store.segments().len(), 1);
    for (seed, run) in &runs {
        assert_eq!(store.read(&Extent::whole(*run), 0, run.len).unwrap(), pattern(run.len, *seed));
    }
    let walked = walk(&store, runs[0].1.segment);
    assert_eq!(walked.len(), runs.len());
    for (seed, run) in runs {
        assert!(walked.iter().any(|walked| walked.run == Some(run) && walked.owner == seed.to_le_bytes()));
    }
}

#[test]
fn a_segment_in_quarantine_is_taken_back_by_a_read_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let bytes = pattern(600_000, 1);
    let run = write(&store, &bytes, b"");
    assert!(store.set_aside(run.segment).unwrap());
    assert!(store.segments().is_empty());
    let held = store.quarantined();
    assert_eq!((held.len(), held[0].id, store.taken_back()), (1, run.segment, 0));
    assert!(held[0].used_bytes >= 600_000);
    // A restart finds it again, and gives its id to nobody.
    drop(store);
    let store = open(&folder);
    assert_eq!(store.quarantined().len(), 1);
    assert!(store.next_id() > run.segment);
    assert_eq!(store.read(&Extent::whole(run), 0, run.len).unwrap(), bytes);
    assert_eq!((store.quarantined().len(), store.taken_back()), (0, 1));
    assert!(!store.set_aside(run.segment).unwrap(), "its proofs disagree");
    assert!(store.release(run.segment, &walked(&store)).is_err());
    assert_eq!(store.read(&Extent::whole(run), 0, run.len).unwrap(), bytes);
}

#[test]
fn a_segment_that_is_sealed_late_stays_in_quarantine() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let run = write(&store, &pattern(1000, 1), b"k");
    store.seal(run.segment).unwrap();
    assert!(store.set_aside(run.segment).unwrap());
    store.seal(run.segment).unwrap();
    assert_eq!((store.quarantined().len(), store.taken_back()), (1, 0));
    assert!(matches!(store.seal(SegmentId(run.segment.0 + 1)), Err(SegmentError::Missing(_))));
}

#[test]
fn a_segment_leaves_the_quarantine_only_by_a_later_walk_and_without_holds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let run = write(&store, &pattern(600_000, 1), b"");
    let early = walked(&store);
    assert!(store.set_aside(run.segment).unwrap());
    assert!(store.release(run.segment, &early).is_err(), "it began before");
    let mut walk = store.begin_walk();
    walk.name(&run);
    walk.complete();
    assert!(store.release(run.segment, &walk).is_err(), "a row names it");
    let hold = store.hold_quarantine();
    assert!(store.release(run.segment, &walked(&store)).is_err(), "held");
    drop(hold);
    assert_eq!(store.release(run.segment, &walked(&store)).unwrap().id, run.segment);
    assert!(matches!(store.read(&Extent::whole(run), 0, 1), Err(SegmentError::Missing(_))));
    assert!(store.remove_log(run.segment, margay_segment::Proof::NoPayload).is_err());
}
