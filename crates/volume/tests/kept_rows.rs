//! Attributes of directories over an engine that waits: those from kept rows are those of a fresh read, after changes of both
//! doors, one after the other and side by side; and a create costs no more calls than a look-up and a commit.
//!
//! Not here: what attributes are (posix_attributes).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::{Env, Timestamp};
use margay_meta::Engine;
use margay_meta::distant::DistantEngine;
use margay_meta::memory::Memory;
use margay_rows::Ino;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::tree::plain;
use world::{World, far, segment_options, wait};

const DIRECTORIES: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 2] = ["x", "y"];
const NEW: NewFile = NewFile { uid: 1, gid: 1, rights: 0o755, umask: 0 };

#[derive(Clone, Copy, Debug)]
enum Step {
    File,
    Directory,
    Unlink,
    RemoveDirectory,
    Move(usize),
    MoveItself(usize),
    Mode(u32),
    Times(i64),
    Put,
    PutBelow,
    Delete,
    RenameByS3(usize),
}

fn step() -> impl Strategy<Value = (usize, usize, Step)> {
    let other = 0..DIRECTORIES.len();
    let step = prop_oneof![
        4 => Just(Step::File),
        3 => Just(Step::Directory),
        2 => Just(Step::Unlink),
        2 => Just(Step::RemoveDirectory),
        2 => other.clone().prop_map(Step::Move),
        1 => other.clone().prop_map(Step::MoveItself),
        1 => (0..0o777_u32).prop_map(Step::Mode),
        1 => (0..2_000_000_000_i64).prop_map(Step::Times),
        2 => Just(Step::Put),
        2 => Just(Step::PutBelow),
        2 => Just(Step::Delete),
        1 => other.prop_map(Step::RenameByS3),
    ];
    (0..DIRECTORIES.len(), 0..NAMES.len(), step)
}

struct Far {
    engine: Arc<DistantEngine>,
    world: World,
    mount: Arc<Mount>,
}

fn far_world() -> Far {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
    let engine = Arc::new(far(Arc::new(Memory::with_payloads(Arc::clone(&store), 64 << 10))));
    let rows = Arc::clone(&engine) as Arc<dyn Engine>;
    let volume = Volume::open(Env::real(), Arc::clone(&rows), Arc::clone(&store), Options::default()).unwrap();
    wait(volume.create_bucket("b")).unwrap();
    let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    let far = Far { engine, world: World { volume, engine: rows, store, folder }, mount };
    for directory in DIRECTORIES {
        far.mount.make_directory(far.mount.root(), &plain(directory), &NEW).unwrap();
    }
    far
}

impl Far {
    fn directory(&self, at: usize) -> Option<Ino> {
        let found = self.mount.lookup(self.mount.root(), &plain(DIRECTORIES[at])).ok()?;
        (found.kind == FileKind::Directory).then_some(found.ino)
    }

    /// Whether it could be done does not matter.
    fn run(&self, (at, name, step): (usize, usize, Step)) {
        let (mount, volume, root) = (&self.mount, &self.world.volume, self.mount.root());
        let name = NAMES[name];
        let key = format!("{}/{name}", DIRECTORIES[at]);
        let Some(ino) = self.directory(at) else {
            let _ = mount.make_directory(root, &plain(DIRECTORIES[at]), &NEW);
            return;
        };
        // What is kept before the change is what may be wrong behind it.
        let _ = mount.attributes(ino);
        let _ = match step {
            Step::File => mount.create(ino, &plain(name), &NEW, OpenFlags::default()).map(drop),
            Step::Directory => mount.make_directory(ino, &plain(name), &NEW).map(drop),
            Step::Unlink => mount.unlink(ino, &plain(name)),
            Step::RemoveDirectory => mount.remove_directory(ino, &plain(name)),
            Step::Move(to) => self.directory(to).map_or(Ok(()), |to| {
                let _ = mount.attributes(to);
                mount.rename(ino, &plain(name), to, &plain(name), RenameMode::Replace)
            }),
            Step::MoveItself(to) => {
                mount.rename(root, &plain(DIRECTORIES[at]), root, &plain(DIRECTORIES[to]), RenameMode::Replace)
            }
            Step::Mode(mode) => {
                let change = AttributeChange { rights: Some(mode), ..AttributeChange::default() };
                mount.set_attributes(ino, &change).map(drop)
            }
            Step::Times(seconds) => {
                let time = Some(SetTime::At(Timestamp(seconds * 1_000_000_000)));
                let change = AttributeChange { modified: time, accessed: time, ..AttributeChange::default() };
                mount.set_attributes(ino, &change).map(drop)
            }
            Step::Put => self.world.put("b", &key, b"body").map(drop).map_err(PosixError::from),
            Step::PutBelow => self.world.put("b", &format!("{key}/z"), b"body").map(drop).map_err(PosixError::from),
            Step::Delete => {
                wait(volume.delete_object("b", &DeleteRequest::of(&key))).map(drop).map_err(PosixError::from)
            }
            Step::RenameByS3(to) => {
                let to = format!("{}/", DIRECTORIES[to]);
                let from = format!("{}/", DIRECTORIES[at]);
                wait(volume.rename("b", &from, &to, &WriteCondition::None)).map(drop).map_err(PosixError::from)
            }
        };
    }

    fn check(&self) {
        for directory in DIRECTORIES {
            let Ok(fresh) = self.mount.lookup(self.mount.root(), &plain(directory)) else { continue };
            // The first brings the rows, the second has them kept.
            for _ in 0..2 {
                assert_eq!(self.mount.attributes(fresh.ino).unwrap(), fresh, "{directory}");
            }
        }
    }
}

#[test]
fn kept_rows_are_those_of_a_fresh_read_after_each_change() {
    let steps = proptest::collection::vec(step(), 1..40);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() });
    let run = runner.run(&steps, |steps| {
        let far = far_world();
        for step in steps {
            far.run(step);
            far.check();
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn kept_rows_are_those_of_a_fresh_read_after_changes_side_by_side() {
    let steps = proptest::collection::vec(step(), 60..80);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() });
    let run = runner.run(&steps, |steps| {
        let far = far_world();
        std::thread::scope(|scope| {
            for part in steps.chunks(steps.len() / 4) {
                let far = &far;
                scope.spawn(move || part.iter().for_each(|step| far.run(*step)));
            }
        });
        far.check();
        Ok(())
    });
    run.unwrap();
}

#[test]
fn a_create_is_a_look_up_and_a_commit() {
    let far = far_world();
    let ino = far.directory(0).unwrap();
    far.mount.attributes(ino).unwrap();
    let create = |number: u32| {
        let before = far.engine.blocked();
        // As a kernel asks: it forgot the attributes with the create before.
        far.mount.attributes(ino).unwrap();
        assert!(matches!(far.mount.lookup(ino, &plain(&format!("f{number}"))), Err(PosixError::NotFound)));
        far.mount.create(ino, &plain(&format!("f{number}")), &NEW, OpenFlags::default()).unwrap();
        far.engine.blocked() - before
    };
    create(0);
    assert_eq!([create(1), create(2), create(3)], [2, 2, 2]);
}
