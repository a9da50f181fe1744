//! Rows that are kept over an engine that waits: attributes of directories from them are those of a fresh read, after changes
//! of both doors, one after the other and side by side; a change after a look-up costs one call more, a commit; and it is
//! right although another process changed the name since.
//!
//! Not here: what attributes are (posix_attributes).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::{Env, Timestamp};
use margay_meta::distant::DistantEngine;
use margay_meta::memory::Memory;
use margay_meta::{Batch, Engine, Write};
use margay_rows::{Ino, key};
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
        let _ = (mount.attributes(ino), mount.lookup(ino, &plain(name)));
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

#[test]
fn a_removal_and_a_rename_after_a_look_up_are_a_commit() {
    let far = far_world();
    let (mount, ino, to) = (&far.mount, far.directory(0).unwrap(), far.directory(1).unwrap());
    let replace = RenameMode::Replace;
    for name in ["warm", "gone", "moved", "over", "never"] {
        mount.create(ino, &plain(name), &NEW, OpenFlags::default()).unwrap();
    }
    mount.create(to, &plain("over"), &NEW, OpenFlags::default()).unwrap();
    mount.make_directory(ino, &plain("d"), &NEW).unwrap();
    // The directories and the bucket are known from here on.
    mount.unlink(ino, &plain("warm")).unwrap();
    let calls_of = |look_up: &[(Ino, &str)], change: &dyn Fn() -> Result<(), PosixError>| {
        for (parent, name) in look_up {
            let _ = mount.lookup(*parent, &plain(name));
        }
        let before = far.engine.blocked();
        change().unwrap();
        far.engine.blocked() - before
    };
    let calls = [
        calls_of(&[(ino, "gone")], &|| mount.unlink(ino, &plain("gone"))),
        calls_of(&[(ino, "moved"), (to, "moved")], &|| {
            mount.rename(ino, &plain("moved"), to, &plain("moved"), replace)
        }),
        calls_of(&[(ino, "over"), (to, "over")], &|| mount.rename(ino, &plain("over"), to, &plain("over"), replace)),
        // Whether it is empty is a question of its own.
        calls_of(&[(ino, "d")], &|| mount.remove_directory(ino, &plain("d"))),
        // A commit of this process has brought its row, and the look-up before that, that no directory has the name.
        calls_of(&[], &|| mount.unlink(to, &plain("moved"))),
        // No look-up.
        calls_of(&[], &|| mount.unlink(ino, &plain("never"))),
    ];
    assert_eq!(calls, [1, 1, 1, 2, 1, 2]);
}

/// A commit of which this process does not know.
fn of_another_process(far: &Far, writes: Vec<Write>) {
    far.engine.commit(Batch { writes, ..Batch::default() }).unwrap();
}

#[test]
fn a_name_that_another_process_changed_since_the_look_up_is_looked_at_again() {
    changed_by_another_process(true);
}

#[test]
fn a_name_that_another_process_changed_since_it_was_made_here_is_looked_at_again() {
    changed_by_another_process(false);
}

/// Rows are kept since a look-up, or since the commit that made them.
fn changed_by_another_process(looks_up: bool) {
    let far = far_world();
    let (mount, ino) = (&far.mount, far.directory(0).unwrap());
    let row = |name: &str| far.engine.get(&key::entry(ino, name.as_bytes())).unwrap().value;
    mount.make_directory(ino, &plain("d"), &NEW).unwrap();
    let directory = row("d/").unwrap().value.to_vec();
    let made = |name: &str| {
        // As a kernel asks.
        mount.lookup(ino, &plain(name)).unwrap_err();
        mount.create(ino, &plain(name), &NEW, OpenFlags::default()).unwrap();
        if looks_up {
            mount.lookup(ino, &plain(name)).unwrap();
        }
        key::entry(ino, name.as_bytes())
    };

    made("same");
    of_another_process(&far, vec![Write::Put { key: key::entry(ino, b"same/"), value: directory.clone() }]);
    assert!(matches!(mount.unlink(ino, &plain("same")), Err(PosixError::IsDirectory)));
    assert!(row("same").is_some(), "the file beside a new directory is not what was to be removed");
    mount.lookup(ino, &plain("none")).unwrap_err();
    let moved = mount.rename(ino, &plain("same"), ino, &plain("none"), RenameMode::Replace);
    moved.unwrap();
    assert!(row("none/").is_some() && row("none").is_none() && row("same").is_some());

    let changed = made("changed");
    let value = row("changed").unwrap().value.to_vec();
    of_another_process(&far, vec![Write::Put { key: changed, value }]);
    mount.unlink(ino, &plain("changed")).unwrap();
    assert!(row("changed").is_none());

    let gone = made("gone");
    of_another_process(&far, vec![Write::Delete { key: gone }]);
    assert!(matches!(mount.unlink(ino, &plain("gone")), Err(PosixError::NotFound)));

    mount.lookup(ino, &plain("late")).unwrap_err();
    let source = made("source");
    let value = row("source").unwrap().value.to_vec();
    of_another_process(&far, vec![Write::Delete { key: source }, Write::Put { key: key::entry(ino, b"late"), value }]);
    assert!(matches!(mount.unlink(ino, &plain("source")), Err(PosixError::NotFound)));
    mount.unlink(ino, &plain("late")).unwrap();
}
