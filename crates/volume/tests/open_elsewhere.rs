//! A file that one process has open while another one renames it, unlinks it or puts something in its place, at each moment of
//! what the first one does.
//!
//! Why:        open files are known in their own process only (SEMANTICS 16); the other one changes rows and nothing else.
//! Invariants: what was written through the descriptor is read through it; it is published under the name that the file has then,
//!             and nowhere if it has none; nothing that was removed or replaced appears again.
//! Not here:   both processes writing to the file (two_stores), doors of one process (interleavings_open).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use world::interposed::*;
use world::maintenance::ALL;
use world::tree::plain;
use world::*;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
/// The content of the other file, `x`.
const OTHER: usize = 333;

type Stores = [(Env, Arc<Store>); 2];

/// What the other process does with `f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Rename,
    RenameTwice,
    RenameThereAndBack,
    RenameIntoDirectory,
    RenameByS3,
    Exchange,
    LinkAndUnlink,
    Unlink,
    RenameOver,
    PutOver,
    DeleteByS3,
}

const ACTS: [Act; 11] = [
    Act::Rename,
    Act::RenameTwice,
    Act::RenameThereAndBack,
    Act::RenameIntoDirectory,
    Act::RenameByS3,
    Act::Exchange,
    Act::LinkAndUnlink,
    Act::Unlink,
    Act::RenameOver,
    Act::PutOver,
    Act::DeleteByS3,
];

impl Act {
    /// Where the file is afterwards, and what is at `f`.
    fn leads_to(self) -> (Option<&'static str>, Option<Vec<u8>>) {
        let other = Some(body_of(9, OTHER));
        match self {
            Act::Rename | Act::RenameByS3 | Act::LinkAndUnlink => (Some("g"), None),
            Act::RenameTwice => (Some("h"), None),
            Act::RenameThereAndBack => (Some("f"), None),
            Act::RenameIntoDirectory => (Some("d/g"), None),
            Act::Exchange => (Some("x"), other),
            Act::Unlink | Act::DeleteByS3 => (None, None),
            Act::RenameOver => (None, other),
            Act::PutOver => (None, Some(body_of(8, 444))),
        }
    }

    fn run(self, mount: &Mount) {
        let root = mount.root();
        let rename = |from: &str, directory: Ino, to: &str, mode| {
            mount.rename(root, &plain(from), directory, &plain(to), mode).unwrap();
        };
        let volume = mount.volume();
        match self {
            Act::Rename => rename("f", root, "g", RenameMode::Replace),
            Act::RenameTwice => {
                rename("f", root, "g", RenameMode::Replace);
                rename("g", root, "h", RenameMode::Replace);
            }
            Act::RenameThereAndBack => {
                rename("f", root, "g", RenameMode::Replace);
                rename("g", root, "f", RenameMode::Replace);
            }
            Act::RenameIntoDirectory => {
                let directory = mount.lookup(root, &plain("d")).unwrap().ino;
                rename("f", directory, "g", RenameMode::Replace);
            }
            Act::RenameByS3 => wait(volume.rename("b", "f", "g", &WriteCondition::None)).unwrap(),
            Act::Exchange => rename("f", root, "x", RenameMode::Exchange),
            Act::LinkAndUnlink => {
                let found = mount.lookup(root, &plain("f")).unwrap();
                mount.link(found.ino, root, &plain("g")).unwrap();
                mount.unlink(root, &plain("f")).unwrap();
            }
            Act::Unlink => mount.unlink(root, &plain("f")).unwrap(),
            Act::RenameOver => rename("x", root, "f", RenameMode::Replace),
            Act::PutOver => put(volume, "f", &body_of(8, 444)),
            Act::DeleteByS3 => drop(wait(volume.delete_object("b", &DeleteRequest::of("f"))).unwrap()),
        }
    }
}

fn put(volume: &Volume, key: &str, body: &[u8]) {
    let staged = wait(async {
        let mut upload = volume.begin_upload("b", body.len() as u64).await.unwrap();
        upload.write(body.to_vec().into()).await.unwrap();
        upload.finish().await.unwrap()
    });
    let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
    wait(volume.put_object(request, staged)).unwrap();
}

fn get(volume: &Volume, key: &str) -> Option<Vec<u8>> {
    wait(volume.get_object("b", key, &ReadCondition::default())).ok().map(|reader| read_all(&reader))
}

/// How the file came to be, and what is done to it.
#[derive(Clone, Copy, Debug)]
struct Case {
    act: Act,
    /// Bytes that it has, and who wrote them: the one that has it open (0) or the other.
    start: (usize, usize),
    /// Written at 10, unless none.
    more: usize,
    /// The file is opened while the other one acts; else before.
    opening: bool,
    /// The follower has read what the other did before this one publishes.
    follows: bool,
    /// Commits that the feed has.
    held: usize,
}

struct Pair {
    engine: Arc<Interposed>,
    volumes: [Arc<Volume>; 2],
    mounts: [Arc<Mount>; 2],
}

fn pair(stores: &Stores, case: &Case) -> Pair {
    let engine = Arc::new(Interposed::on_both_sides(Arc::new(Memory::new().shared(case.held))));
    let below = Arc::clone(&engine) as Arc<dyn Engine>;
    let options = Options { run_bytes_max: 300, ..Options::default() };
    let volumes = two_stores::in_sessions_with(&below, stores, &options);
    wait(volumes[0].create_bucket("b")).unwrap();
    put(&volumes[1], "x", &body_of(9, OTHER));
    put(&volumes[1], "d/", b"");
    put(&volumes[case.start.1], "f", &body_of(1, case.start.0));
    let mounts =
        volumes.each_ref().map(|volume| Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap());
    for volume in &volumes {
        while !volume.follow_once().unwrap().is_newest {}
    }
    Pair { engine, volumes, mounts }
}

/// Each name has what it should in both processes.
fn compare(stores: &Stores, volumes: &[Arc<Volume>; 2], case: &Case, content: &[u8], told: &str) {
    let (name, at_f) = case.act.leads_to();
    for volume in volumes {
        while !volume.follow_once().unwrap().is_newest {}
        for key in ["f", "g", "h", "x", "d/g"] {
            let expected = match key {
                _ if name == Some(key) => Some(content.to_vec()),
                "f" => at_f.clone(),
                "x" if case.act != Act::RenameOver => Some(body_of(9, OTHER)),
                _ => None,
            };
            let found = get(volume, key);
            let lengths = (found.as_ref().map(Vec::len), expected.as_ref().map(Vec::len));
            assert!(found == expected, "{told}: {key} has {lengths:?} bytes (found, expected)");
        }
        let report = volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean() && report.orphans == 0 && report.unreachable_segments == 0, "{told}: {report:#?}");
    }
    for (_, store) in stores {
        assert_eq!(store.taken_back(), 0, "{told}: nothing was set aside that somebody reads");
    }
}

/// False when the first one's part has fewer moments.
fn interleaved(stores: &Stores, case: &Case, at: usize) -> bool {
    let Pair { engine, volumes, mounts } = pair(stores, case);
    let told = format!("{case:?} at moment {at}");
    let found = mounts[0].lookup(mounts[0].root(), &plain("f")).unwrap();
    let mut opened = (!case.opening).then(|| mounts[0].open_file(found.ino, BOTH).unwrap());
    let (act, by, follower) = (case.act, Arc::clone(&mounts[1]), case.follows.then(|| Arc::clone(&volumes[0])));
    engine.arm(
        at,
        Box::new(move || {
            act.run(&by);
            if let Some(volume) = follower {
                while !volume.follow_once().unwrap().is_newest {}
            }
        }),
    );
    if case.opening {
        match mounts[0].open_file(found.ino, BOTH) {
            Ok(handle) => opened = Some(handle),
            // It was away already; the name would be looked up again.
            Err(PosixError::Stale) => {}
            Err(error) => panic!("{told}: {error:?}"),
        }
    }
    let mut content = body_of(1, case.start.0);
    if let Some(handle) = &opened {
        if case.more > 0 {
            let more = body_of(5, case.more);
            content.resize(content.len().max(10 + more.len()), 0);
            content[10..10 + more.len()].copy_from_slice(&more);
            mounts[0].write(handle, 10, &more, false).unwrap();
        }
        mounts[0].sync(handle).unwrap();
    }
    if engine.disarm() {
        return false;
    }
    let reads = |opened: &Option<Handle>, when: &str| {
        let Some(handle) = opened else { return };
        let read = mounts[0].read(handle, 0, 1 << 20).unwrap();
        assert!(read == content, "{told}: {when}, the descriptor reads what was written");
    };
    reads(&opened, "at once");
    for _ in 0..3 {
        for volume in &volumes {
            volumes.iter().for_each(|volume| drop(volume.beat().unwrap()));
            volume.reclaim_once(&ALL, &SealedLogs).unwrap();
        }
    }
    reads(&opened, "after reclaim");
    // Once more, now that all is settled.
    if let (Some(handle), true) = (&opened, case.more > 0) {
        mounts[0].write(handle, 0, b"again", false).unwrap();
        content[..5].copy_from_slice(b"again");
    }
    if let Some(handle) = opened {
        mounts[0].release(handle).unwrap();
    }
    compare(stores, &volumes, case, &content, &told);
    true
}

fn all_of(act: Act) -> usize {
    let stores = two_stores::stores();
    let mut runs = 0;
    // Empty, in the row, in one run of either store, in rows of extents.
    for start in [(0, 0), (50, 1), (250, 0), (250, 1), (2000, 1)] {
        for (more, opening, follows, held) in [
            (20, false, false, 1000),
            (20, false, true, 1000),
            (700, false, false, 1000),
            (20, true, false, 1000),
            (20, true, true, 1000),
            (0, false, true, 1000),
            (20, false, false, 2),
        ] {
            let case = Case { act, start, more, opening, follows, held };
            runs += (0..).take_while(|at| interleaved(&stores, &case, *at)).count();
        }
    }
    runs
}

#[test]
fn an_open_file_keeps_what_was_written_whatever_another_process_does_with_its_name() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = [0, 1]
            .map(|half| scope.spawn(move || ACTS.iter().skip(half).step_by(2).map(|act| all_of(*act)).sum::<usize>()));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("evidence: files open in another process: {runs} interleavings");
    assert!(runs > 1000, "{runs}");
}

/// The other one renames the file before this one looks for it, and twice more at two moments of the search. Gives how often it was
/// renamed.
fn renamed_meanwhile(stores: &Stores, names: [&'static str; 4], held: usize, (at, later): (usize, usize)) -> usize {
    let case = Case { act: Act::Rename, start: (250, 0), more: 20, opening: false, follows: false, held };
    let Pair { engine, volumes, mounts } = pair(stores, &case);
    let found = mounts[0].lookup(mounts[0].root(), &plain("f")).unwrap();
    let handle = mounts[0].open_file(found.ino, BOTH).unwrap();
    let mut content = body_of(1, 250);
    content[10..30].copy_from_slice(&body_of(5, 20));
    mounts[0].write(&handle, 10, &content[10..30], false).unwrap();
    let (by, renames) = (Arc::clone(&mounts[1]), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&renames);
    let rename = move || {
        let step = count.fetch_add(1, Ordering::SeqCst);
        by.rename(by.root(), &plain(names[step]), by.root(), &plain(names[step + 1]), RenameMode::Replace).unwrap();
    };
    rename();
    let again = Arc::clone(&engine);
    engine.arm(
        at,
        Box::new(move || {
            rename();
            again.arm(later, Box::new(rename));
        }),
    );
    mounts[0].sync(&handle).unwrap();
    engine.disarm();
    let renames = renames.load(Ordering::SeqCst);
    let told = format!("{names:?}, {held} commits held, renamed {renames} times, at moment {at} and {later} behind it");
    for volume in &volumes {
        while !volume.follow_once().unwrap().is_newest {}
        for key in ["f", "g", "h", "i"] {
            let (found, expected) = (get(volume, key), (key == names[renames]).then(|| content.clone()));
            assert!(found == expected, "{told}: {key} has {:?} bytes", found.map(|found| found.len()));
        }
    }
    assert!(mounts[0].read(&handle, 0, 1 << 20).unwrap() == content, "{told}: the descriptor reads what was written");
    mounts[0].release(handle).unwrap();
    assert!(volumes[0].fsck(FsckOptions::default()).unwrap().clean(), "{told}");
    renames
}

/// N1 of posix/moved.rs: to where the search has been already, back and forth, and on.
#[test]
fn a_search_finds_a_file_that_is_renamed_again_meanwhile() {
    let stores = two_stores::stores();
    let mut runs = 0;
    for names in [["f", "g", "f", "g"], ["f", "g", "f", "h"], ["f", "g", "h", "f"], ["f", "g", "h", "i"]] {
        for held in [1000, 2] {
            for at in 0.. {
                let renames = |later| renamed_meanwhile(&stores, names, held, (at, later));
                let twice = (0..).take_while(|later| renames(*later) == 3).count();
                runs += twice;
                if twice == 0 && renames(0) == 1 {
                    break;
                }
            }
        }
    }
    println!("evidence: files renamed twice while they are searched for: {runs} interleavings");
    assert!(runs > 500, "{runs}");
}
