//! Files cut into more pieces than an object may have: joined, or refused by the call that makes one too many; and moved by
//! reclaim in between.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_volume::posix::*;
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::Maintained;
use world::*;

static MAINTAINED: Maintained = Maintained::new();

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
/// Of the files here: `file_pieces_max`, and the quarter more that is the end. What an object may have is eight times
/// that, and more than the small logs here take in one commit.
const PIECES: usize = 2_000;
const EXTENTS_MAX: usize = 2_500;

struct One {
    world: World,
    mount: Arc<Mount>,
    handle: Handle,
    model: Vec<u8>,
}

impl One {
    fn new(options: Options) -> One {
        let world = World::with_options(EMBEDDED, options);
        wait(world.volume.create_bucket("b")).unwrap();
        let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
        let new = NewFile { rights: 0o644, umask: 0, uid: 0, gid: 0 };
        let (_, handle) = mount.create(mount.root(), &Name::Plain("a".to_owned()), &new, BOTH).unwrap();
        One { world, mount, handle, model: Vec::new() }
    }

    /// What is open is pinned and stays where it is, so the file is closed meanwhile.
    fn reclaim(&mut self) {
        let other = Name::Plain("other".to_owned());
        let new = NewFile { rights: 0o644, umask: 0, uid: 0, gid: 0 };
        let (_, meanwhile) = self.mount.create(self.mount.root(), &other, &new, BOTH).unwrap();
        self.mount.release(std::mem::replace(&mut self.handle, meanwhile)).unwrap();
        MAINTAINED.pass(&self.world.volume, &*self.world.engine);
        let (_, handle) = self.mount.create(self.mount.root(), &Name::Plain("a".to_owned()), &new, BOTH).unwrap();
        self.mount.release(std::mem::replace(&mut self.handle, handle)).unwrap();
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), PosixError> {
        self.mount.write(&self.handle, at as u64, bytes, false)?;
        self.model.resize(self.model.len().max(at + bytes.len()), 0);
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn punch(&mut self, at: usize, len: usize) -> Result<(), PosixError> {
        self.mount.allocate(&self.handle, Allocate::PunchHole, at as u64, len as u64, false)?;
        let end = (at + len).min(self.model.len());
        self.model[at.min(end)..end].fill(0);
        Ok(())
    }

    /// Both doors show what was written, and everything fits together.
    fn check_whole(self) {
        self.mount.sync(&self.handle).unwrap();
        assert!(self.mount.read(&self.handle, 0, self.model.len() + 1).unwrap() == self.model);
        self.mount.release(self.handle).unwrap();
        assert!(self.world.get("b", "a").unwrap() == self.model);
        let rows = self.world.rows().into_iter().filter(|(key, _)| key[0] == b'x').count();
        assert!(rows <= EXTENTS_MAX, "{rows} extents");
        let report = self.world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }
}

fn limited() -> Options {
    Options { file_pieces_max: PIECES, ..Options::default() }
}

/// generic/610 of xfstests.
#[test]
fn a_file_with_very_many_holes_is_published() {
    let mut one = One::new(limited());
    one.write(0, &body_of(1, 2 * EXTENTS_MAX * 512)).unwrap();
    one.mount.sync(&one.handle).unwrap();
    for hole in 0..2 * EXTENTS_MAX {
        one.punch(hole * 512, 256).unwrap();
    }
    one.check_whole();
}

#[test]
fn very_many_short_writes_between_two_publishes_are_published() {
    let mut one = One::new(limited());
    for number in 0..2 * EXTENTS_MAX {
        one.write(number * 3, b"x").unwrap();
    }
    one.check_whole();
}

#[test]
fn what_cannot_be_joined_is_refused_by_the_call_and_the_rest_is_kept() {
    let mut one = One::new(Options { file_pieces_max: 80, ..Options::default() });
    let apart = 100 << 10;
    let mut refused = 0;
    for number in 0..120 {
        match one.write(number * apart, b"far from the others") {
            Ok(()) => assert_eq!(refused, 0, "there is no more room"),
            Err(PosixError::FileTooLarge) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0 && one.model.len() > 40 * apart, "{refused} refused");
    // What makes no piece more goes on.
    one.write(0, b"n").unwrap_or_else(|error| assert!(matches!(error, PosixError::FileTooLarge)));
    one.check_whole();
}

fn any_cuts(steps: Vec<(u8, usize, usize)>) {
    let mut one = One::new(Options { file_pieces_max: 16, file_memory_bytes_max: 64 << 10, ..Options::default() });
    for (number, (what, at, len)) in steps.into_iter().enumerate() {
        let done = match what {
            0 | 1 => one.write(at, &body_of(number, len.min(40))),
            2 | 3 => one.write(at, &body_of(number, len)),
            4 | 5 => one.punch(at, len),
            6 | 7 => one.punch(at, len.min(60)),
            8 => {
                one.reclaim();
                Ok(())
            }
            _ => one.mount.sync(&one.handle),
        };
        assert!(done.is_ok() || matches!(done, Err(PosixError::FileTooLarge)), "{done:?}");
    }
    one.check_whole();
}

#[test]
fn any_cuts_keep_the_bytes() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let done = runner.run(&prop::collection::vec((0..10u8, 0..300_000usize, 1..30_000usize), 1..200), |steps| {
        any_cuts(steps);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("files of very many pieces");
}
