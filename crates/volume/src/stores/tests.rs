//! Reads of what another store has made, beside an own copy.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use margay_env::Env;
use margay_env::sim::{SimClock, SimDisk, SimRandom};
use margay_meta::memory::Memory;
use margay_meta::{Batch, Engine, Write};
use margay_rows::key;
use margay_rows::record::{SegmentRecord, SegmentState, StoreRecord};
use margay_segment::{Extent, Kind, Run, RunLength, SegmentError, SegmentId, Segments, Store, StoreNumber, SyncFuture};

use super::{Alone, Copies, Peers, SegmentRows, Stores};
use crate::draft::Draft;

/// The store that has made the segment, and how often it was asked for.
#[derive(Debug)]
struct Maker(Arc<Store>, AtomicUsize, AtomicBool);

impl Peers for Maker {
    fn store(&self, _number: StoreNumber) -> Option<Arc<dyn Segments>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Some(Arc::<Store>::clone(&self.0))
    }

    fn is_doubted(&self, _number: StoreNumber) -> bool {
        self.2.load(Ordering::Relaxed)
    }
}

/// The maker of a segment does not answer, and this store has it too.
#[derive(Debug)]
struct Silent(Arc<Store>, StoreNumber);

impl Peers for Silent {
    fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>> {
        panic!("store {number:?} is asked, and waited for")
    }

    fn read_first(
        &self,
        first: StoreNumber,
        spare: &dyn Fn() -> Option<StoreNumber>,
        (extent, skip, len): (&Extent, u64, u64),
    ) -> Option<Result<Bytes, SegmentError>> {
        assert_eq!(first, extent.run.segment.made_by());
        assert_eq!(spare(), Some(self.1), "neither the maker nor the own store is asked instead");
        Some(self.0.read(extent, skip, len))
    }
}

/// That there may be copies, and whether the own files were found not whole.
#[derive(Debug, Default)]
struct Some3(AtomicBool);

impl Copies for Some3 {
    fn knows(&self, _id: SegmentId, _stores: &[StoreNumber], _is_complete: bool) {}
    fn wrote(&self, _id: SegmentId, _part: Range<u64>) {}
    fn start(&self, _id: SegmentId) {}
    fn wait(&self, _id: SegmentId) -> SyncFuture<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn wait_blocking(&self, _id: SegmentId) -> Result<(), SegmentError> {
        Ok(())
    }
    fn stores(&self, _id: SegmentId) -> Vec<StoreNumber> {
        Vec::new()
    }
    fn is_complete(&self, _id: SegmentId) -> bool {
        true
    }
    fn is_partial(&self, _id: SegmentId) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    fn punched(&self, _id: SegmentId, _holes: Vec<Range<u64>>) {}
    fn removed(&self, _id: SegmentId) {}
}

fn store(seed: u64) -> (Env, Arc<Store>) {
    let (disk, random) = (SimDisk::new(seed), SimRandom::new(seed));
    let env = Env {
        disk: Arc::new(disk),
        clock: Arc::new(SimClock::new(margay_env::Timestamp(0))),
        random: Arc::new(random),
    };
    let mut options = margay_segment::Options::new(Path::new("/segments"));
    options.reserve_bytes = 0;
    (env.clone(), Store::open(env, options).unwrap())
}

fn again(env: &Env) -> Arc<Store> {
    let mut options = margay_segment::Options::new(Path::new("/segments"));
    options.reserve_bytes = 0;
    Store::open(env.clone(), options).unwrap()
}

fn attached(env: &Env, engine: &Arc<dyn Engine>, own: &Arc<Store>) -> Arc<Stores> {
    let own = Arc::<Store>::clone(own) as Arc<dyn Segments>;
    Arc::new(Stores::open(env, engine, own, (None, None), Arc::new(Alone)).unwrap())
}

fn put(engine: &dyn Engine, key: Vec<u8>, value: Vec<u8>) {
    let writes = vec![Write::Put { key, value }];
    engine.commit(Batch { preconditions: Vec::new(), writes, payload: None }).unwrap();
}

#[test]
fn a_folder_that_was_set_back_gives_no_number_that_a_row_has() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (env, first) = store(3);
    let number = attached(&env, &engine, &first).number;
    let before = written(&first, b"before").segment;
    // What the folder made after its snapshot, which only the rows know.
    let lost = SegmentId(before.0 + 500);
    let record =
        SegmentRecord { state: SegmentState::Sealed { len: 9 }, kind: Kind::Raw, writer: 0, stores: vec![number] };
    put(&*engine, key::segment(lost), record.encode());
    for _ in 0..2 {
        let folder = again(&env);
        let stores = attached(&env, &engine, &folder);
        SegmentRows::read(&*engine, &stores).unwrap();
        let next = written(&folder, b"behind").segment;
        assert!(next > lost, "{next:?}");
        // Also when the row has gone.
        let writes = vec![Write::Delete { key: key::segment(lost) }];
        engine.commit(Batch { preconditions: Vec::new(), writes, payload: None }).unwrap();
    }
}

#[test]
fn a_folder_keeps_its_number_if_the_rows_are_older_and_a_copy_of_before_gets_another_one() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (env, folder) = store(4);
    let number = attached(&env, &engine, &folder).number;
    let early = engine.get(&key::store(number)).unwrap().value.unwrap();
    for _ in 0..4 {
        attached(&env, &engine, &again(&env));
    }
    // The database is restored.
    put(&*engine, key::store(number), early.value.to_vec());
    let folder = again(&env);
    assert_eq!(attached(&env, &engine, &folder).number, number);
    let record = StoreRecord::decode(&engine.get(&key::store(number)).unwrap().value.unwrap().value).unwrap();
    assert_eq!(record.generation, folder.name().generation);
    // The folder is behind its row: it is a copy from before.
    put(&*engine, key::store(number), StoreRecord { generation: record.generation + 1, ..record }.encode());
    assert_ne!(attached(&env, &engine, &again(&env)).number, number);
}

#[test]
fn a_new_store_gets_no_number_of_segments_that_were_loaded_into_another_one() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (first, second) = (store(5), store(6));
    let own = attached(&first.0, &engine, &first.1).number;
    let record = SegmentRecord { state: SegmentState::Open, kind: Kind::Raw, writer: 0, stores: vec![own] };
    put(&*engine, key::segment(SegmentId((7 << 40) + 1)), record.encode());
    assert_eq!(attached(&second.0, &engine, &second.1).number, StoreNumber(8));
}

fn written(store: &Store, body: &[u8]) -> Run {
    let mut run = store.begin(RunLength::ExactAlone(body.len() as u64), b"").unwrap();
    run.write(body).unwrap();
    run.end().unwrap()
}

#[test]
fn an_own_copy_is_read_before_its_maker_is_asked() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (first, second) = (store(1), store(2));
    let open = |(env, own): &(Env, Arc<Store>), others| {
        let own = Arc::<Store>::clone(own) as Arc<dyn Segments>;
        Stores::open(env, &engine, own, others, Arc::new(Alone)).unwrap()
    };
    let one = open(&first, (None, None));
    let peers = Arc::new(Maker(Arc::clone(&first.1), AtomicUsize::new(0), AtomicBool::new(false)));
    let two = open(&second, (Some(Arc::<Maker>::clone(&peers)), Some(Arc::new(Some3::default()))));
    assert_ne!(one.number, two.number);
    let body: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    let run = written(&first.1, &body);
    let (extent, id) = (Extent::whole(run), run.segment);
    let asked = || peers.1.swap(0, Ordering::Relaxed);
    let read = |skip: u64, len: u64| {
        assert_eq!(two.read(&extent, skip, len).unwrap(), body[skip as usize..(skip + len) as usize]);
    };
    read(0, 1000);
    assert_eq!(asked(), 1, "there is no copy here");

    let end = first.1.state(id).unwrap().len;
    let mut bytes = vec![0; end as usize];
    first.1.file(id).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    second.1.write_copy(id, Kind::Raw, 0, &bytes[..150_000]).unwrap();
    read(0, 1000);
    assert_eq!(asked(), 1, "the copy is behind");
    second.1.write_copy(id, Kind::Raw, 150_000, &bytes[150_000..]).unwrap();
    read(100_000, 100_000);
    two.read_cached(&extent, 0, 1000).unwrap();
    two.will_read(&extent).unwrap();
    assert_eq!(asked(), 0, "all of it is here");

    second.1.write_copy(id, Kind::Raw, run.offset + 70_000, b"damaged").unwrap();
    read(60_000, 100_000);
    assert_eq!(asked(), 1, "the copy is damaged");
    peers.2.store(true, Ordering::Relaxed);
    read(60_000, 100_000);
    assert_eq!(asked(), 1, "nobody else has it, so also who is doubted is asked");
}

#[test]
fn a_store_that_is_silent_is_not_waited_for_if_another_one_has_the_segment() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (first, second) = (store(1), store(2));
    let open = |(env, own): &(Env, Arc<Store>), others| {
        let own = Arc::<Store>::clone(own) as Arc<dyn Segments>;
        Stores::open(env, &engine, own, others, Arc::new(Alone)).unwrap()
    };
    let (one, other) = (open(&first, (None, None)), StoreNumber(9));
    let two = open(&second, (Some(Arc::new(Silent(Arc::clone(&first.1), other))), Some(Arc::new(Some3::default()))));
    let run = written(&first.1, &[7; 5000]);
    let mut draft = Draft::default();
    let stores = vec![one.number, two.number, other];
    let record = SegmentRecord { state: SegmentState::Open, kind: Kind::Raw, writer: 1, stores };
    draft.put(key::segment(run.segment), record.encode());
    draft.commit(&*engine).unwrap();
    assert_eq!(two.read(&Extent::whole(run), 10, 20).unwrap(), [7; 20][..]);
}

#[test]
fn an_own_segment_whose_file_is_lost_is_read_where_its_row_says() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (first, second) = (store(1), store(2));
    let peers = Arc::new(Maker(Arc::clone(&second.1), AtomicUsize::new(0), AtomicBool::new(false)));
    let own = Arc::<Store>::clone(&first.1) as Arc<dyn Segments>;
    let one =
        Stores::open(&first.0, &engine, own, (Some(peers), Some(Arc::new(Some3::default()))), Arc::new(Alone)).unwrap();
    let two = attached(&second.0, &engine, &second.1).number;
    let run = written(&first.1, &[7; 5000]);
    let mut bytes = vec![0; first.1.state(run.segment).unwrap().len as usize];
    first.1.file(run.segment).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    // As the one above, whose file is there no more.
    let lost = SegmentId(run.segment.0 + 1);
    let pin = |id| one.pin(id, margay_segment::InQuarantine::Leave);
    assert!(matches!(pin(lost), Err(SegmentError::Missing(_))), "no row says where it is");
    let row = |stores| SegmentRecord { state: SegmentState::Open, kind: Kind::Raw, writer: 1, stores }.encode();
    put(&*engine, key::segment(lost), row(vec![one.number]));
    assert!(matches!(pin(lost), Err(SegmentError::Missing(_))), "nobody else has it");
    put(&*engine, key::segment(lost), row(vec![one.number, two]));
    let _pin = pin(lost).unwrap();
    second.1.write_copy(lost, Kind::Raw, 0, &bytes).unwrap();
    let there = Extent::whole(Run { segment: lost, ..run });
    assert_eq!(one.read(&there, 10, 20).unwrap(), [7; 20][..]);
    // In quarantine is not lost.
    put(&*engine, key::segment(run.segment), row(vec![one.number, two]));
    drop(pin(run.segment).unwrap());
    assert!(first.1.set_aside(run.segment).unwrap());
    assert!(matches!(pin(run.segment), Err(SegmentError::Missing(_))));
}

#[test]
fn a_segment_whose_file_is_not_whole_is_sealed_no_more_until_it_is() {
    let engine = Arc::new(Memory::new()) as Arc<dyn Engine>;
    let (env, store) = store(1);
    let peers = Arc::new(Maker(Arc::clone(&store), AtomicUsize::new(0), AtomicBool::new(false)));
    let copies = Arc::new(Some3::default());
    let own = Arc::<Store>::clone(&store) as Arc<dyn Segments>;
    let others = (Some(peers as Arc<dyn Peers>), Some(Arc::<Some3>::clone(&copies) as Arc<dyn Copies>));
    let stores = Arc::new(Stores::open(&env, &engine, own, others, Arc::new(Alone)).unwrap());
    let run = written(&store, &[7; 5000]);
    store.seal(run.segment).unwrap();
    let rows = Arc::new(SegmentRows::read(&*engine, &stores).unwrap());
    let state = || {
        let (stale, _) = rows.stale();
        let state = stale.iter().find(|(id, _)| *id == run.segment).map(|(_, record)| record.state);
        rows.written(stale);
        state
    };
    let len = store.state(run.segment).unwrap().len;
    assert_eq!(state(), Some(SegmentState::Sealed { len }));
    copies.0.store(true, Ordering::Relaxed);
    assert_eq!(state(), Some(SegmentState::Open));
    copies.0.store(false, Ordering::Relaxed);
    assert_eq!(state(), Some(SegmentState::Sealed { len }));
}
