//! What a store has lost it takes from another one, and nothing that is damaged there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests damage files themselves")]

mod port;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_cluster::{ClusterKey, HttpCopies, HttpPeers, Mended, StorePort, StoreTls};
use margay_env::Env;
use margay_listener::Listener;
use margay_meta::memory::Memory;
use margay_meta::{Batch, Engine, Write};
use margay_rows::record::{BackRow, SegmentRecord, SegmentState};
use margay_rows::{Ino, key};
use margay_segment::{
    Extent, Kind, Options, Run, RunLength, SegmentId, Segments, Store, StoreName, StoreNumber, segment_name,
};
use tokio::runtime::Runtime;

const OWN: StoreNumber = StoreNumber(1);
const OTHER: StoreNumber = StoreNumber(3);

/// Two stores with the same pack of three runs; the second one answers.
struct World {
    folder: tempfile::TempDir,
    engine: Arc<dyn Engine>,
    runs: Vec<Run>,
    _runtime: Runtime,
    _listener: Listener,
}

fn store(folder: &Path, number: StoreNumber) -> Arc<Store> {
    let store = Store::open(Env::real(), Options::new(folder)).unwrap();
    let name = store.name();
    store.attach(StoreName { number, generation: name.generation + 1, ..name }).unwrap();
    store
}

impl World {
    fn new() -> World {
        let (runtime, folder) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let own = store(&folder.path().join("own"), OWN);
        let runs: Vec<Run> = [5000_u64, 70_000, 300]
            .into_iter()
            .map(|len| {
                let mut writer = own.begin(RunLength::Exact(len), b"owner").unwrap();
                writer.write(&vec![len as u8; len as usize]).unwrap();
                writer.end().unwrap()
            })
            .collect();
        let id = runs[0].segment;
        own.sync_blocking(id).unwrap();
        let len = own.listed(id).unwrap().len;
        drop(own);
        let name = segment_name(id, Kind::Pack);
        std::fs::create_dir(folder.path().join("other")).unwrap();
        std::fs::copy(folder.path().join("own").join(&name), folder.path().join("other").join(&name)).unwrap();
        let other = store(&folder.path().join("other"), OTHER);
        let port = StorePort::new(other, ClusterKey::derive(b"volume"));
        let (listener, address) = port::serve(&runtime, port, None);
        let engine = Memory::new();
        let put = |key: Vec<u8>, value: Vec<u8>| Write::Put { key, value };
        let mut writes = port::rows_of(OTHER, &address);
        writes.push(put(key::segment(id), row(len, &[OWN, OTHER])));
        for run in &runs {
            writes.push(put(key::back(id, run.offset, Ino(9)), BackRow::encode(run, None)));
        }
        engine.commit(Batch { writes, ..Batch::default() }).unwrap();
        World { folder, engine: Arc::new(engine), runs, _runtime: runtime, _listener: listener }
    }

    fn id(&self) -> SegmentId {
        self.runs[0].segment
    }

    fn file(&self, of: &str) -> PathBuf {
        self.folder.path().join(of).join(segment_name(self.id(), Kind::Pack))
    }

    fn damage(&self, of: &str, run: usize) {
        let file = std::fs::File::options().write(true).open(self.file(of)).unwrap();
        // Not the same bytes at both.
        let at = if of == "own" { 100 } else { 200 };
        file.write_all_at(&[0x55; 9], self.runs[run].offset + at).unwrap();
    }

    /// What the store that has lost something does, and which runs are right then.
    fn mend(&self) -> (Mended, Vec<bool>) {
        let own = store(&self.folder.path().join("own"), OWN);
        let peers =
            HttpPeers::start(Arc::clone(&self.engine), ClusterKey::derive(b"volume"), StoreTls::Off, None).unwrap();
        let copies = HttpCopies::start(&peers, Arc::clone(&own)).unwrap();
        let mended = copies.mend(self.id()).unwrap();
        let is_right = self.runs.iter().map(|run| own.verify(&Extent::whole(*run)).is_ok()).collect();
        drop((copies, peers));
        // What looks for lost files at the start may still be at it, and the next one opens the same folder.
        for _ in 0..6000 {
            if Arc::strong_count(&own) == 1 {
                return (mended, is_right);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the store is still used");
    }
}

fn row(len: u64, stores: &[StoreNumber]) -> Vec<u8> {
    let (state, stores) = (SegmentState::Sealed { len }, stores.to_vec());
    SegmentRecord { state, kind: Kind::Pack, writer: 11, stores }.encode()
}

#[test]
fn damaged_runs_are_fetched_unless_they_are_damaged_there_too() {
    let world = World::new();
    assert_eq!(world.mend(), (Mended { bad: 0, left: 0 }, vec![true; 3]));
    [0, 1].into_iter().for_each(|run| world.damage("own", run));
    world.damage("other", 1);
    let before = std::fs::read(world.file("own")).unwrap();
    let other = std::fs::read(world.file("other")).unwrap();
    assert_eq!(world.mend(), (Mended { bad: 2, left: 1 }, vec![true, false, true]));
    let after = std::fs::read(world.file("own")).unwrap();
    let second = world.runs[1].offset as usize - 100..after.len();
    assert!(after[second.clone()] == before[second], "what is nowhere is left as it is");
    assert!(std::fs::read(world.file("other")).unwrap() == other, "the other one is only read");
}

#[test]
fn a_file_that_is_gone_is_made_again_only_if_it_will_be_right() {
    let world = World::new();
    let whole = std::fs::read(world.file("own")).unwrap();
    std::fs::remove_file(world.file("own")).unwrap();
    world.damage("other", 2);
    assert_eq!(world.mend(), (Mended { bad: 3, left: 3 }, vec![false; 3]));
    let files = std::fs::read_dir(world.folder.path().join("own")).unwrap();
    let packs = files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains("pack"));
    assert_eq!(packs.count(), 0, "nothing stays of a file that could not be made");
    std::fs::write(world.file("other"), &whole).unwrap();
    // Whoever is first: it is looked for in any case.
    let (mended, is_right) = world.mend();
    assert_eq!((mended.left, is_right), (0, vec![true; 3]));
    assert!(std::fs::read(world.file("own")).unwrap() == whole);
}

#[test]
fn what_is_not_to_be_here_is_not_fetched() {
    let world = World::new();
    std::fs::remove_file(world.file("own")).unwrap();
    let writes = vec![Write::Put { key: key::segment(world.id()), value: row(9, &[OTHER]) }];
    world.engine.commit(Batch { writes, ..Batch::default() }).unwrap();
    assert_eq!(world.mend(), (Mended { bad: 0, left: 0 }, vec![false; 3]));
    assert!(!world.file("own").exists());
}
