//! Bytes of open files against plain vectors, with what S3 shows of them.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_volume::posix::*;
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::{ALL, Maintained};
use world::*;

static MAINTAINED: Maintained = Maintained::new();

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
const NEW: NewFile = NewFile { rights: 0o6777, umask: 0, uid: 7, gid: 8 };

struct Tree {
    world: World,
    mount: Arc<Mount>,
}

fn plain(name: &str) -> Name {
    Name::Plain(name.to_owned())
}

impl Tree {
    /// Limits are small, so that streams, rows and rewriting come soon.
    fn new() -> Tree {
        let options = Options {
            run_bytes_max: 40 << 10,
            file_memory_bytes_max: 96 << 10,
            memory_bytes_max: 150 << 10,
            file_pieces_max: 40,
            ..Options::default()
        };
        let world = World::with_options(EMBEDDED, options);
        wait(world.volume.create_bucket("b")).unwrap();
        let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
        Tree { world, mount }
    }

    fn create(&self, name: &str) -> Handle {
        self.mount.create(self.mount.root(), &plain(name), &NEW, BOTH).unwrap().1
    }

    fn whole(&self, handle: &Handle) -> Vec<u8> {
        self.mount.read(handle, 0, 64 << 20).unwrap().to_vec()
    }

    fn clean(&self) {
        let report = self.world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }

    fn reclaim(&self) -> Reclaimed {
        self.world.engine.checkpoint().unwrap();
        let done = self.world.volume.reclaim_once(&ALL, &SealedLogs).unwrap();
        MAINTAINED.count(&done);
        done
    }

    fn resize(&self, handle: &Handle, size: usize) {
        let change = AttributeChange { size: Some(size as u64), ..AttributeChange::default() };
        let attributes = self.mount.set_attributes(handle.ino(), &change).unwrap();
        assert_eq!(attributes.size, size as u64);
    }
}

fn write_model(model: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    model.resize(model.len().max(offset + bytes.len()), 0);
    model[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { at: usize, len: usize },
    Append { len: usize },
    Resize(usize),
    Punch { at: usize, len: usize },
    Zero { at: usize, len: usize, keep: bool },
    Copy { from: usize, at: usize, len: usize },
    CopyInside { from: usize, at: usize, len: usize },
    Read { at: usize, len: usize },
    Seek(usize),
    Flush,
    Sync,
    Reopen,
    Timer,
    Reclaim,
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let at = || prop_oneof![0..300usize, 0..200_000usize, (0..40usize).prop_map(|page| page * 4096)];
    let len = || prop_oneof![4 => 1..400usize, 4 => 1..20_000usize, 1 => 60_000..130_000usize];
    let step = prop_oneof![
        8 => (at(), len()).prop_map(|(at, len)| Step::Write { at, len }),
        6 => len().prop_map(|len| Step::Append { len }),
        2 => at().prop_map(Step::Resize),
        2 => (at(), len()).prop_map(|(at, len)| Step::Punch { at, len }),
        1 => (at(), len(), any::<bool>()).prop_map(|(at, len, keep)| Step::Zero { at, len, keep }),
        2 => (at(), at(), len()).prop_map(|(from, at, len)| Step::Copy { from, at, len }),
        1 => (at(), at(), len()).prop_map(|(from, at, len)| Step::CopyInside { from, at, len }),
        3 => (at(), len()).prop_map(|(at, len)| Step::Read { at, len }),
        1 => at().prop_map(Step::Seek),
        3 => Just(Step::Flush),
        1 => Just(Step::Sync),
        3 => Just(Step::Reopen),
        1 => Just(Step::Timer),
        4 => Just(Step::Reclaim),
    ];
    proptest::collection::vec((any::<bool>(), step), 1..70)
}

const NAMES: [&str; 2] = ["a", "b"];

struct Run {
    tree: Tree,
    handles: [Option<Handle>; 2],
    models: [Vec<u8>; 2],
}

impl Run {
    fn handle(&self, which: usize) -> &Handle {
        self.handles[which].as_ref().unwrap()
    }

    fn published(&self, which: usize) {
        assert!(self.tree.world.get("b", NAMES[which]).unwrap() == self.models[which], "S3 shows something else");
    }

    fn step(&mut self, number: usize, which: usize, step: Step) {
        let mount = Arc::clone(&self.tree.mount);
        match step {
            Step::Write { at, len } => {
                let bytes = body_of(number, len);
                assert_eq!(mount.write(self.handle(which), at as u64, &bytes, false).unwrap(), len);
                write_model(&mut self.models[which], at, &bytes);
            }
            Step::Append { len } => {
                let at = self.models[which].len();
                let bytes = body_of(number, len);
                mount.write(self.handle(which), at as u64, &bytes, false).unwrap();
                write_model(&mut self.models[which], at, &bytes);
            }
            Step::Resize(size) => {
                self.tree.resize(self.handle(which), size);
                self.models[which].resize(size, 0);
            }
            Step::Punch { at, len } => {
                mount.allocate(self.handle(which), Allocate::PunchHole, at as u64, len as u64, false).unwrap();
                let end = self.models[which].len();
                self.models[which][at.min(end)..(at + len).min(end)].fill(0);
            }
            Step::Zero { at, len, keep } => {
                let how = Allocate::ZeroRange { keep_size: keep };
                mount.allocate(self.handle(which), how, at as u64, len as u64, false).unwrap();
                if !keep {
                    let end = self.models[which].len().max(at + len);
                    self.models[which].resize(end, 0);
                }
                let end = self.models[which].len();
                self.models[which][at.min(end)..(at + len).min(end)].fill(0);
            }
            Step::Copy { from, at, len } => self.copy(1 - which, which, from, at, len),
            Step::CopyInside { from, at, len } if from + len <= at || at + len <= from => {
                self.copy(which, which, from, at, len);
            }
            Step::CopyInside { .. } => {}
            Step::Read { at, len } => {
                let end = self.models[which].len();
                let expected = &self.models[which][at.min(end)..(at + len).min(end)];
                assert!(mount.read(self.handle(which), at as u64, len).unwrap() == expected);
                assert_eq!(mount.attributes(self.handle(which).ino()).unwrap().size, end as u64);
            }
            Step::Seek(at) => self.seek(which, at),
            Step::Flush => {
                mount.flush(self.handle(which)).unwrap();
                self.published(which);
            }
            Step::Sync => mount.sync(self.handle(which)).unwrap(),
            Step::Reopen => {
                let handle = self.handles[which].take().unwrap();
                let ino = handle.ino();
                mount.release(handle).unwrap();
                self.published(which);
                self.handles[which] = Some(mount.open_file(ino, BOTH).unwrap());
            }
            Step::Timer => {
                mount.publish_written(true).unwrap();
                self.published(which);
            }
            Step::Reclaim if !number.is_multiple_of(3) => self.reclaim_closed(),
            Step::Reclaim => drop(self.tree.reclaim()),
        }
    }

    /// What is open is pinned, and stays where it is.
    fn reclaim_closed(&mut self) {
        let inos = [0, 1].map(|which| {
            let handle = self.handles[which].take().unwrap();
            let ino = handle.ino();
            self.tree.mount.release(handle).unwrap();
            ino
        });
        self.tree.reclaim();
        self.handles = inos.map(|ino| Some(self.tree.mount.open_file(ino, BOTH).unwrap()));
    }

    fn copy(&mut self, source: usize, target: usize, from: usize, at: usize, len: usize) {
        let mount = Arc::clone(&self.tree.mount);
        let (from_handle, to_handle) = (self.handle(source), self.handle(target));
        let copied =
            mount.copy_range(from_handle, from as u64, to_handle, at as u64, len as u64, false).unwrap() as usize;
        let end = self.models[source].len();
        let bytes = self.models[source][from.min(end)..(from + len).min(end)].to_vec();
        assert_eq!(copied, bytes.len());
        if copied > 0 {
            write_model(&mut self.models[target], at, &bytes);
        }
    }

    fn seek(&self, which: usize, at: usize) {
        let model = &self.models[which];
        let seek = |to| self.tree.mount.seek(self.handle(which), at as u64, to);
        if at >= model.len() {
            assert!(matches!(seek(SeekTo::Data), Err(PosixError::NoSuchOffset)));
            assert!(matches!(seek(SeekTo::Hole), Err(PosixError::NoSuchOffset)));
            return;
        }
        let data = seek(SeekTo::Data).map_or(model.len(), |data| data as usize);
        let hole = seek(SeekTo::Hole).unwrap() as usize;
        assert!(data >= at && hole >= at && (data == at) != (hole == at));
        assert!(model[at..data].iter().all(|byte| *byte == 0), "a hole holds zeros");
    }
}

/// `stat` reads the row and the open file one after the other; a publish may come between.
#[test]
fn stat_beside_publishing_never_shows_less_than_was_written() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let tree = Tree::new();
    let (handle, done) = (tree.create("log"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                tree.mount.flush(&handle).unwrap();
            }
        });
        let bytes = [1; 200];
        let stale = (1..=2000_u64).find(|count| {
            tree.mount.write(&handle, (count - 1) * 200, &bytes, false).unwrap();
            let shown = tree.mount.attributes(handle.ino()).unwrap().size;
            let found = tree.mount.lookup(tree.mount.root(), &plain("log")).unwrap().size;
            (shown, found) != (count * 200, count * 200)
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(stale, None);
    });
    tree.mount.release(handle).unwrap();
    tree.clean();
}

fn hold_what_was_written(steps: Vec<(bool, Step)>) {
    let tree = Tree::new();
    let handles = NAMES.map(|name| Some(tree.create(name)));
    let mut run = Run { tree, handles, models: [Vec::new(), Vec::new()] };
    for (number, (second, step)) in steps.into_iter().enumerate() {
        run.step(number, usize::from(second), step);
    }
    for which in 0..2 {
        assert!(run.tree.whole(run.handle(which)) == run.models[which]);
        let handle = run.handles[which].take().unwrap();
        run.tree.mount.sync(&handle).unwrap();
        run.tree.mount.release(handle).unwrap();
        run.published(which);
    }
    run.tree.clean();
    run.tree.reclaim();
    run.tree.clean();
    (0..2).for_each(|which| run.published(which));
    for name in NAMES {
        assert!(run.tree.world.delete("b", name).unwrap());
    }
    run.tree.clean();
    run.tree.reclaim();
    let left: Vec<_> = run.tree.world.store.segments().into_iter().filter(|one| !one.open).collect();
    let data = left.iter().filter(|one| one.kind != margay_segment::Kind::Log).count();
    assert_eq!(data, 0, "{left:?}");
}

#[test]
fn files_hold_what_was_written() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 64, ..ProptestConfig::default() });
    let done = runner.run(&steps(), |steps| {
        hold_what_was_written(steps);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("bytes of open files");
}

#[test]
fn holes_are_told_in_whole_blocks() {
    let tree = Tree::new();
    let handle = tree.create("sparse");
    for at in [0, 100, 20_000] {
        tree.mount.write(&handle, at, &[1], false).unwrap();
    }
    tree.resize(&handle, 30_000);
    let seek = |at, to| tree.mount.seek(&handle, at, to).ok();
    let (data, hole) = (|at| seek(at, SeekTo::Data), |at| seek(at, SeekTo::Hole));
    // 1..100 is less than a block.
    assert_eq!((data(1), hole(0), hole(50)), (Some(1), Some(4096), Some(4096)));
    assert_eq!((data(4096), data(5000), hole(5000)), (Some(16_384), Some(16_384), Some(5000)));
    assert_eq!((data(16_384), hole(16_384), data(20_479)), (Some(16_384), Some(20_480), Some(20_479)));
    // The last block is shorter.
    assert_eq!((data(20_480), hole(20_480), hole(29_999)), (None, Some(20_480), Some(29_999)));
    assert_eq!((data(30_000), hole(30_000)), (None, None));
    tree.resize(&handle, 300);
    assert_eq!((data(1), hole(1), hole(299)), (Some(1), Some(300), Some(300)));
    tree.resize(&handle, 0);
    tree.resize(&handle, 10);
    assert_eq!((data(3), hole(3)), (None, Some(3)));
}

#[test]
fn a_reader_keeps_what_it_began_with() {
    let tree = Tree::new();
    let handle = tree.create("a");
    let first = body_of(1, 300_000);
    tree.mount.write(&handle, 0, &first, false).unwrap();
    tree.mount.flush(&handle).unwrap();
    let reader = wait(tree.world.volume.get_object("b", "a", &ReadCondition::default())).unwrap();
    tree.mount.write(&handle, 100, &body_of(2, 200_000), false).unwrap();
    assert!(tree.world.get("b", "a").unwrap() == first, "not published yet");
    tree.mount.flush(&handle).unwrap();
    tree.reclaim();
    assert!(read_all(&reader) == first);
    let etag = reader.info().etag;
    assert_ne!(wait(tree.world.volume.head_object("b", "a", &ReadCondition::default())).unwrap().etag, etag);
}

#[test]
fn a_file_without_a_name_lives_while_it_is_open() {
    let tree = Tree::new();
    let handle = tree.create("a");
    let mut model = body_of(1, 250_000);
    tree.mount.write(&handle, 0, &model, false).unwrap();
    tree.mount.sync(&handle).unwrap();
    tree.mount.unlink(tree.mount.root(), &plain("a")).unwrap();
    tree.clean();
    tree.reclaim();
    tree.mount.write(&handle, 1000, &body_of(3, 150_000), false).unwrap();
    write_model(&mut model, 1000, &body_of(3, 150_000));
    tree.mount.sync(&handle).unwrap();
    tree.reclaim();
    assert!(tree.whole(&handle) == model);
    assert!(matches!(tree.world.get("b", "a"), Err(Error::NoSuchKey)));
    tree.mount.release(handle).unwrap();
    tree.clean();
    tree.reclaim();
    // Which pass removes a segment depends on when the log's files were filled; that nobody names its bytes does not.
    assert!(tree.world.volume.live_bytes().unwrap().is_empty());
}

#[test]
fn an_object_put_over_an_open_file_is_another_file() {
    let tree = Tree::new();
    let handle = tree.create("a");
    let model = body_of(1, 100_000);
    tree.mount.write(&handle, 0, &model, false).unwrap();
    tree.mount.flush(&handle).unwrap();
    tree.world.put("b", "a", b"another").unwrap();
    tree.mount.write(&handle, 0, b"old", false).unwrap();
    tree.mount.sync(&handle).unwrap();
    assert_eq!(tree.world.get("b", "a").unwrap(), b"another");
    assert_eq!(&tree.mount.read(&handle, 0, 5).unwrap()[..3], b"old");
    tree.mount.release(handle).unwrap();
    assert_eq!(tree.world.get("b", "a").unwrap(), b"another");
    tree.clean();
}

#[test]
fn a_large_file_is_one_extent() {
    let tree = Tree::new();
    let handle = tree.create("a");
    let model = body_of(1, 3 << 20);
    for (index, piece) in model.chunks(30_000).enumerate() {
        tree.mount.write(&handle, index as u64 * 30_000, piece, false).unwrap();
        let end = (index * 30_000 + piece.len()).min(model.len());
        let from = end.saturating_sub(100_000);
        assert!(tree.mount.read(&handle, from as u64, 1 << 20).unwrap() == model[from..end]);
    }
    tree.mount.release(handle).unwrap();
    let raw = tree.world.store.segments().into_iter().filter(|one| one.kind == margay_segment::Kind::Raw).count();
    assert_eq!(raw, 1);
    assert!(tree.world.get("b", "a").unwrap() == model);
    tree.clean();
}

#[test]
fn scattered_writes_stay_within_bounds() {
    let tree = Tree::new();
    let handle = tree.create("a");
    let mut model = body_of(0, 1 << 20);
    tree.mount.write(&handle, 0, &model, false).unwrap();
    for number in 0..3000usize {
        let at = number * 7919 % ((1 << 20) - 200);
        let bytes = body_of(number, 150);
        tree.mount.write(&handle, at as u64, &bytes, false).unwrap();
        write_model(&mut model, at, &bytes);
    }
    tree.mount.release(handle).unwrap();
    assert!(tree.world.get("b", "a").unwrap() == model);
    tree.clean();
    let rows = tree.world.rows().into_iter().filter(|(key, _)| key[0] == b'x').count();
    assert!(rows < 1500, "{rows} extents");
}

#[test]
fn a_write_takes_privileges_away() {
    let tree = Tree::new();
    let handle = tree.create("a");
    tree.mount.write(&handle, 0, b"x", true).unwrap();
    tree.mount.release(handle).unwrap();
    let found = tree.mount.lookup(tree.mount.root(), &plain("a")).unwrap();
    assert_eq!(found.rights, 0o777);
}

#[test]
fn handles_do_what_they_were_opened_for() {
    let tree = Tree::new();
    let ino = tree.create("a").ino();
    let reader = tree.mount.open_file(ino, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
    assert!(matches!(tree.mount.write(&reader, 0, b"x", false), Err(PosixError::BadHandle)));
    let flags = OpenFlags { write: true, append: true, ..OpenFlags::default() };
    let writer = tree.mount.open_file(ino, flags).unwrap();
    assert!(matches!(tree.mount.read(&writer, 0, 1), Err(PosixError::BadHandle)));
    for _ in 0..3 {
        tree.mount.write(&writer, 0, b"ab", false).unwrap();
    }
    assert_eq!(tree.whole(&reader), b"ababab");
    let far = tree.mount.write(&writer, 0, b"", false).unwrap();
    assert_eq!(far, 0);
    let truncated = tree.mount.open_file(ino, OpenFlags { truncate: true, ..BOTH }).unwrap();
    assert_eq!(tree.whole(&reader), b"");
    assert!(matches!(tree.mount.write(&truncated, u64::MAX - 1, b"xyz", false), Err(PosixError::FileTooLarge)));
}
