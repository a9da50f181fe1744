//! Locks of programs on files that several processes write.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_meta::memory::Memory;
use margay_volume::posix::*;
use margay_volume::*;
use parking_lot::Mutex;
use world::shared::{Two, fence, two};
use world::tree::{NEW, plain};

const WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
const ALL: LockWish = LockWish { owner: 5, handle: 1, process: 77, first: 0, last: i64::MAX as u64, exclusive: true };

fn mount(volume: &Arc<Volume>) -> Arc<Mount> {
    let options = MountOptions { claim: Claim::Shared, ..MountOptions::default() };
    Mount::open(Arc::clone(volume), "b", "", options).unwrap()
}

fn open(mount: &Mount) -> Handle {
    let found = mount.lookup(mount.root(), &plain("f")).unwrap();
    mount.open_file(found.ino, WRITE).unwrap()
}

/// A file that both processes have mounted and opened.
struct File {
    mounts: [Arc<Mount>; 2],
    handles: [Handle; 2],
    two: Two,
}

impl File {
    fn new() -> File {
        let two = two(true, &Options::default());
        let mounts = [mount(&two.one), mount(&two.other)];
        let (_, made) = mounts[0].create(mounts[0].root(), &plain("f"), &NEW, WRITE).unwrap();
        mounts[0].release(made).unwrap();
        let handles = [open(&mounts[0]), open(&mounts[1])];
        File { mounts, handles, two }
    }

    /// Whether it is taken.
    fn lock(&self, at: usize, wish: &LockWish) -> bool {
        matches!(self.mounts[at].lock(&self.handles[at], wish), Ok(LockTaken::Yes(_)))
    }

    fn unlock(&self, at: usize, wish: &LockWish) {
        self.mounts[at].unlock(&self.handles[at], wish).unwrap();
    }

    fn read(&self, at: usize) -> Vec<u8> {
        self.mounts[at].read(&self.handles[at], 0, 100).unwrap().to_vec()
    }

    fn write(&self, at: usize, text: &str) -> Result<(), PosixError> {
        self.mounts[at].write(&self.handles[at], 0, text.as_bytes(), false).map(drop)
    }
}

fn rows(memory: &Memory) -> usize {
    memory.rows().keys().filter(|key| key.starts_with(b"jk")).count()
}

#[test]
fn a_lock_of_one_process_is_seen_by_the_other() {
    let file = File::new();
    assert!(file.lock(0, &ALL));
    assert!(!file.lock(1, &ALL), "kernels name owners by the same numbers");
    assert!(!file.lock(1, &LockWish { first: 9, last: 9, exclusive: false, ..ALL }));
    let seen = file.mounts[1].locked_by(&file.handles[1], &ALL).unwrap();
    assert_eq!(seen, Some(LockWish { process: 0, ..ALL }), "the number of a process says nothing elsewhere");
    let beside = file.mounts[0].locked_by(&file.handles[0], &LockWish { owner: 6, ..ALL }).unwrap();
    assert_eq!(beside.map(|lock| lock.process), Some(77));
    assert!(!file.lock(0, &LockWish { owner: 6, ..ALL }));
    // A part is given back, and what was exclusive becomes shared.
    file.unlock(0, &LockWish { first: 10, last: 19, ..ALL });
    assert!(file.lock(1, &LockWish { first: 10, last: 19, ..ALL }));
    assert!(!file.lock(1, &LockWish { first: 19, last: 20, ..ALL }));
    assert!(file.lock(0, &LockWish { first: 20, exclusive: false, ..ALL }));
    assert!(file.lock(1, &LockWish { first: 30, exclusive: false, ..ALL }));
    assert!(!file.lock(0, &LockWish { first: 20, ..ALL }), "another one shares it");
    assert_eq!(
        file.mounts[1].locked_by(&file.handles[1], &LockWish { first: 30, exclusive: false, ..ALL }).unwrap(),
        None
    );
    // A close ends all of its owner, and no other's.
    file.mounts[1].unlock_closed(file.handles[1].ino(), 5, 1).unwrap();
    assert!(file.lock(0, &ALL));
    file.mounts[1].unlock_closed(file.handles[1].ino(), 5, 1).unwrap();
    assert!(!file.lock(1, &ALL));
    assert_eq!(rows(&file.two.memory), 1);
    file.unlock(0, &ALL);
    assert_eq!(rows(&file.two.memory), 0);
    assert!(file.mounts[0].lock(&file.handles[0], &LockWish { first: 2, last: 1, ..ALL }).is_err());
}

#[test]
fn the_end_of_an_open_file_gives_back_what_was_taken_through_it() {
    let file = File::new();
    let ino = file.handles[0].ino();
    // The kernel gives the next open file the owner's number before it tells the end of the first one.
    assert!(file.lock(0, &ALL) && file.lock(0, &LockWish { handle: 2, ..ALL }));
    file.mounts[0].unlock_ended(ino, 5, 1).unwrap();
    assert!(!file.lock(1, &ALL), "the second one has it");
    file.mounts[0].unlock_ended(ino, 5, 2).unwrap();
    assert!(file.lock(1, &ALL));
    file.unlock(1, &ALL);
    assert_eq!(rows(&file.two.memory), 0);
}

#[test]
fn who_has_got_a_lock_sees_what_was_written_under_it() {
    let file = File::new();
    for round in 0..20_usize {
        let (at, text) = (round % 2, format!("round {round:02}"));
        assert!(file.lock(at, &ALL));
        if round > 0 {
            assert_eq!(file.read(at), format!("round {:02}", round - 1).as_bytes());
        }
        file.write(at, &text).unwrap();
        file.unlock(at, &ALL);
    }
}

#[test]
fn locks_of_a_dead_process_are_given_to_others_and_it_writes_nothing_more() {
    let file = File::new();
    assert!(file.lock(0, &ALL));
    file.write(0, "late").unwrap();
    fence(&file.two.other, &file.two.one);
    // Nobody wanted it: in the next session it is as before.
    assert!(matches!(file.two.one.beat(), Err(Error::Fenced)));
    file.two.one.open_session().unwrap();
    assert!(!file.lock(1, &ALL));
    fence(&file.two.other, &file.two.one);
    assert!(file.lock(1, &ALL), "its session is gone");
    file.write(1, "mine").unwrap();
    file.unlock(1, &ALL);
    let lost = |done: Result<(), PosixError>| matches!(done, Err(PosixError::Failed(Error::LeaseLost)));
    assert!(lost(file.mounts[0].unlock(&file.handles[0], &ALL)));
    assert!(lost(file.mounts[0].flush(&file.handles[0])) && file.mounts[0].is_taken_over());
    assert!(!file.mounts[1].is_taken_over());
    let seen = open(&file.mounts[1]);
    assert_eq!(file.mounts[1].read(&seen, 0, 100).unwrap(), "mine");
    assert_eq!(rows(&file.two.memory), 0);
}

#[test]
fn rows_of_mounts_that_are_gone_go_with_the_next_mount() {
    let file = File::new();
    assert!(file.lock(0, &ALL));
    file.mounts[0].give_up().unwrap();
    assert_eq!(rows(&file.two.memory), 1);
    assert!(file.lock(1, &LockWish { first: 7, last: 7, ..ALL }), "a mount that is over has no locks");
    mount(&file.two.one);
    assert!(!file.lock(1, &LockWish { owner: 6, ..ALL }), "those of others stay");
    file.unlock(1, &ALL);
    assert_eq!(rows(&file.two.memory), 0);
}

#[test]
fn a_mount_that_only_reads_has_none() {
    let file = File::new();
    let options = MountOptions { read_only: true, claim: Claim::Shared, ..MountOptions::default() };
    let reader = Mount::open(Arc::clone(&file.two.other), "b", "", options).unwrap();
    let read = OpenFlags { write: false, ..WRITE };
    let handle = reader.open_file(file.handles[0].ino(), read).unwrap();
    assert!(matches!(reader.lock(&handle, &ALL), Err(PosixError::NoLocks)));
}

/// Whoever asks is interrupted at every moment by the other one.
#[test]
fn of_two_that_lock_at_once_one_has_it() {
    let (mut firsts, mut seconds) = (0, 0);
    for at in 0.. {
        let file = Arc::new(File::new());
        let (other, taken) = (Arc::clone(&file), Arc::new(Mutex::new(None)));
        let noted = Arc::clone(&taken);
        file.two.interposed.arm(at, Box::new(move || *noted.lock() = Some(other.lock(1, &ALL))));
        let mine = file.lock(0, &ALL);
        if file.two.interposed.disarm() {
            break;
        }
        let theirs = taken.lock().take().unwrap();
        assert!(mine != theirs, "moment {at}: {mine} {theirs}");
        *if mine { &mut firsts } else { &mut seconds } += 1;
    }
    assert!(firsts > 0 && seconds > 0);
}

/// Whoever takes it from a process that was taken for dead is interrupted at every moment by that one's new session.
#[test]
fn a_lock_is_taken_from_no_session_that_lives() {
    let (mut kept, mut lost) = (0, 0);
    for at in 0.. {
        let file = Arc::new(File::new());
        // The second one is interrupted nowhere, so it holds.
        assert!(file.lock(1, &ALL));
        fence(&file.two.one, &file.two.other);
        assert!(matches!(file.two.other.beat(), Err(Error::Fenced)));
        let (again, was_kept) = (Arc::clone(&file), Arc::new(Mutex::new(false)));
        let noted = Arc::clone(&was_kept);
        file.two.interposed.arm(
            at,
            Box::new(move || {
                again.two.other.open_session().unwrap();
                *noted.lock() = !again.mounts[1].is_taken_over();
            }),
        );
        let taken = file.lock(0, &ALL);
        if file.two.interposed.disarm() {
            break;
        }
        let written = file.write(1, "mine").and_then(|()| file.mounts[1].flush(&file.handles[1]));
        assert!(taken != written.is_ok(), "moment {at}: taken {taken}, written {written:?}");
        assert!(!(*was_kept.lock() && taken), "moment {at}: it was taken from a mount that goes on");
        *if taken { &mut lost } else { &mut kept } += 1;
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}

/// Whoever mounts, and removes what is left of a mount that is gone, is interrupted at every moment by a lock of the other one.
#[test]
fn a_mount_removes_no_lock_that_somebody_takes_meanwhile() {
    let wish = LockWish { first: 7, last: 7, ..ALL };
    for at in 0.. {
        let file = Arc::new(File::new());
        let (_, made) = file.mounts[0].create(file.mounts[0].root(), &plain("g"), &NEW, WRITE).unwrap();
        // Of a file that nobody else asks for.
        assert!(matches!(file.mounts[0].lock(&made, &ALL), Ok(LockTaken::Yes(_))) && file.lock(0, &wish));
        file.mounts[0].give_up().unwrap();
        let other = Arc::clone(&file);
        file.two.interposed.arm(at, Box::new(move || assert!(other.lock(1, &wish))));
        let again = mount(&file.two.one);
        if file.two.interposed.disarm() {
            assert!(at > 5);
            break;
        }
        assert_eq!(rows(&file.two.memory), 1, "moment {at}");
        assert!(matches!(again.lock(&open(&again), &wish), Ok(LockTaken::No)), "moment {at}");
    }
}
