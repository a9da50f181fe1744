//! Leases of mounts that write: who gets one, who loses it, and what a mount without it still does.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_volume::posix::*;
use margay_volume::*;
use parking_lot::Mutex;
use world::shared::{engine, fence, open, two};
use world::tree::{NEW, plain};
use world::*;

const WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

struct Three {
    volumes: [Arc<Volume>; 3],
    memory: Arc<Memory>,
    _folder: tempfile::TempDir,
}

fn three() -> Three {
    let folder = tempfile::tempdir().unwrap();
    let (memory, store) = engine(folder.path(), 1000);
    let of = |name: &str| SessionName { host: name.to_owned(), ..SessionName::default() };
    let volumes = ["one", "two", "three"].map(|name| {
        let options = Options { session_name: of(name), ..Options::default() };
        open(Arc::clone(&memory) as Arc<dyn Engine>, &store, options)
    });
    wait(volumes[0].create_bucket("b")).unwrap();
    Three { volumes, memory, _folder: folder }
}

fn mount(volume: &Arc<Volume>, prefix: &str, claim: Claim) -> Result<Arc<Mount>, MountHolder> {
    let options = MountOptions { claim, ..MountOptions::default() };
    Mount::open(Arc::clone(volume), "b", prefix, options).map_err(|error| match error {
        PosixError::MountedElsewhere(holder) => *holder,
        error => panic!("{error:?}"),
    })
}

fn make(mount: &Mount, name: &str) -> Result<(), PosixError> {
    mount.create(mount.root(), &plain(name), &NEW, WRITE).map(|(_, handle)| mount.release(handle).unwrap())
}

fn is_lost(done: Result<(), PosixError>) -> bool {
    matches!(done, Err(PosixError::Failed(Error::LeaseLost)))
}

/// Rows of leases, without the one that orders them.
fn leases(memory: &Memory) -> usize {
    memory.rows().keys().filter(|key| key.starts_with(b"jm") && key.len() == 18).count()
}

#[test]
fn of_directories_that_overlap_one_process_has_one_wherever_they_were_moved() {
    let Three { volumes: [one, two, three], memory, .. } = three();
    let first = mount(&one, "", Claim::Alone).unwrap();
    for name in ["a", "c"] {
        first.make_directory(first.root(), &plain(name), &NEW).unwrap();
    }
    let a = first.lookup(first.root(), &plain("a")).unwrap().ino;
    first.make_directory(a, &plain("b"), &NEW).unwrap();
    let holder = mount(&two, "a/", Claim::Alone).unwrap_err();
    assert_eq!((&*holder.host, &*holder.place, holder.shared), ("one", "b/", false));
    first.give_up().unwrap();
    assert!(is_lost(make(&first, "late")), "what gave its lease back writes nothing");
    let second = mount(&two, "a/b/", Claim::Alone).unwrap();
    let third = mount(&three, "c/", Claim::Alone).unwrap();
    for prefix in ["", "a/", "a/b/"] {
        assert_eq!(mount(&one, prefix, Claim::Alone).unwrap_err().host, "two");
    }
    // Below `c/`, which another one has: it is the same directory, so it is found there.
    third.give_up().unwrap();
    let mover = mount(&three, "", Claim::Nothing).unwrap();
    mover.rename(mover.root(), &plain("a"), mover.root(), &plain("z"), RenameMode::Replace).unwrap();
    assert_eq!(mount(&one, "z/", Claim::Alone).unwrap_err().host, "two");
    mount(&one, "c/", Claim::Alone).unwrap().give_up().unwrap();
    make(&second, "x").unwrap();
    second.give_up().unwrap();
    assert_eq!(leases(&memory), 0);
}

#[test]
fn shared_mounts_let_each_other_in_and_nobody_else() {
    let Three { volumes: [one, two, three], .. } = three();
    let both = [&one, &two].map(|volume| mount(volume, "", Claim::Shared).unwrap());
    assert!(mount(&three, "", Claim::Alone).unwrap_err().shared);
    both.iter().zip(["x", "y"]).for_each(|(mount, name)| make(mount, name).unwrap());
    both.iter().for_each(|mount| mount.give_up().unwrap());
    let alone = mount(&three, "", Claim::Alone).unwrap();
    assert!(!mount(&one, "", Claim::Shared).unwrap_err().shared);
    // A process has no quarrel with itself, and who only reads has none at all.
    mount(&three, "", Claim::Alone).unwrap();
    let options = MountOptions { read_only: true, claim: Claim::Alone, ..MountOptions::default() };
    Mount::open(one, "b", "", options).unwrap();
    make(&alone, "z").unwrap();
}

#[test]
fn a_holder_that_is_taken_for_dead_loses_its_mount_to_who_takes_it_and_to_nobody_else() {
    let Three { volumes: [one, two, third], memory, .. } = three();
    third.close_session().unwrap();
    let first = mount(&one, "", Claim::Alone).unwrap();
    let (_, open) = first.create(first.root(), &plain("f"), &NEW, WRITE).unwrap();
    first.write(&open, 0, b"late", false).unwrap();
    fence(&two, &one);
    // Nobody took it: in the next session it is as before.
    assert!(matches!(one.beat(), Err(Error::Fenced)));
    one.open_session().unwrap();
    make(&first, "again").unwrap();
    assert_eq!(mount(&two, "", Claim::Alone).unwrap_err().host, "one");
    // Now it is taken, and the one that stood still does not know yet.
    fence(&two, &one);
    let second = mount(&two, "", Claim::Alone).unwrap();
    assert_eq!(leases(&memory), 1, "that of the dead one is gone");
    assert!(is_lost(make(&first, "g")));
    assert!(first.is_taken_over() && !second.is_taken_over());
    assert!(is_lost(first.write(&open, 0, b"more", false).map(drop)));
    assert!(is_lost(first.flush(&open)));
    assert!(is_lost(first.unlink(first.root(), &plain("again"))));
    assert!(is_lost(first.rename(first.root(), &plain("f"), first.root(), &plain("h"), RenameMode::Replace)));
    assert!(matches!(one.beat(), Err(Error::Fenced)));
    one.open_session().unwrap();
    assert!(is_lost(make(&first, "g")), "a new session does not bring it back");
    assert_eq!(mount(&one, "", Claim::Alone).unwrap_err().host, "two");
    make(&second, "h").unwrap();
    let size = second.lookup(second.root(), &plain("f")).unwrap().size;
    assert_eq!(size, 0, "what was not published is lost");
}

#[test]
fn the_row_of_a_mount_that_nobody_has_any_more_goes_with_the_next_beat() {
    let Three { volumes: [one, two, _], memory, .. } = three();
    drop(mount(&one, "", Claim::Alone).unwrap());
    assert!(mount(&two, "", Claim::Alone).is_err());
    one.beat().unwrap();
    assert_eq!(leases(&memory), 0);
    let second = mount(&two, "", Claim::Alone).unwrap();
    two.close_session().unwrap();
    drop(second);
    mount(&one, "", Claim::Alone).unwrap();
}

#[test]
fn a_volume_that_nobody_shares_has_no_rows_of_mounts() {
    let world = World::new(4096);
    let options = MountOptions { claim: Claim::Alone, ..MountOptions::default() };
    wait(world.volume.create_bucket("b")).unwrap();
    let mounts = [(); 2].map(|()| Mount::open(Arc::clone(&world.volume), "b", "", options.clone()).unwrap());
    mounts.iter().zip(["x", "y"]).for_each(|(mount, name)| make(mount, name).unwrap());
    let mut rows = 0;
    let visit = &mut |_: margay_meta::RowRef<'_>| {
        rows += 1;
        std::ops::ControlFlow::Continue(())
    };
    world.engine.scan(b"j", b"k", visit).unwrap();
    assert_eq!(rows, 0);
}

#[test]
fn of_two_that_mount_at_once_one_writes() {
    let (mut firsts, mut seconds) = (0, 0);
    for at in 0.. {
        let two = two(true, &Options::default());
        let (other, taken) = (Arc::clone(&two.other), Arc::new(Mutex::new(None)));
        let noted = Arc::clone(&taken);
        two.interposed.arm(at, Box::new(move || *noted.lock() = Some(mount(&other, "", Claim::Alone))));
        let mine = mount(&two.one, "", Claim::Alone);
        if two.interposed.disarm() {
            break;
        }
        let theirs = taken.lock().take().unwrap();
        assert!(mine.is_ok() != theirs.is_ok(), "moment {at}: {mine:?} {theirs:?}");
        *if mine.is_ok() { &mut firsts } else { &mut seconds } += 1;
    }
    assert!(firsts > 0 && seconds > 0);
}

/// Whoever of the two is interrupted at every moment by the other one.
#[test]
fn a_mount_that_is_kept_in_a_new_session_and_taken_over_at_once_is_one_of_both() {
    for is_keeper_interrupted in [true, false] {
        let (mut kept, mut lost) = (0, 0);
        for at in 0.. {
            let two = two(true, &Options::default());
            let (keeper, taker) = if is_keeper_interrupted { (&two.one, &two.other) } else { (&two.other, &two.one) };
            let first = mount(keeper, "", Claim::Alone).unwrap();
            fence(taker, keeper);
            assert!(matches!(keeper.beat(), Err(Error::Fenced)));
            let taken = Arc::new(Mutex::new(None));
            let (noted, by, again) = (Arc::clone(&taken), Arc::clone(taker), Arc::clone(keeper));
            let was_kept = Arc::new(Mutex::new(false));
            let (noted_kept, kept_mount) = (Arc::clone(&was_kept), Arc::clone(&first));
            two.interposed.arm(
                at,
                Box::new(move || match is_keeper_interrupted {
                    true => *noted.lock() = Some(mount(&by, "", Claim::Alone)),
                    false => {
                        again.open_session().unwrap();
                        *noted_kept.lock() = !kept_mount.is_taken_over();
                    }
                }),
            );
            match is_keeper_interrupted {
                true => keeper.open_session().unwrap(),
                false => *taken.lock() = Some(mount(taker, "", Claim::Alone)),
            }
            if two.interposed.disarm() {
                break;
            }
            let taken = taken.lock().take().unwrap();
            let made = make(&first, "f");
            assert!(made.is_ok() || is_lost(made), "moment {at}");
            assert!(taken.is_ok() == first.is_taken_over(), "moment {at}: {taken:?}, {first:?}");
            assert!(!(*was_kept.lock() && taken.is_ok()), "moment {at}: it was taken from a session that lives");
            *if taken.is_ok() { &mut lost } else { &mut kept } += 1;
        }
        assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
    }
}
