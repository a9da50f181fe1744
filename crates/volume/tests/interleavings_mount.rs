//! Two operations at once, of which at least one is the mount's, in every order of their reads and commits.
//!
//! Why:        as `interleavings`: each asserts what it has read, and only an operation between its reads and its commit
//!             shows what is not asserted.
//! Invariants: what comes out is what one of the two orders gives, and fsck is clean. A path is looked up by the kernel,
//!             before the operation; so it is here.
//! Not here:   calls on open files: their state and their place belong to one process, and here are two.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::{Action, Given};
use world::calls::Call::*;
use world::calls::*;
use world::interposed::Interposed;
use world::tree::show_tree;
use world::*;

use RenameMode::{Exchange, NoReplace, Replace};

const CALLS: [Call; 25] = [
    File("a/n"),
    File("n"),
    Directory("a/n"),
    Directory("e/n"),
    Symlink("a/n"),
    Unlink("a/x"),
    Unlink("y"),
    RemoveDirectory("e"),
    RemoveDirectory("a"),
    RemoveDirectory("h"),
    Rename("a/x", "a/n", Replace),
    Rename("a/x", "y", Replace),
    Rename("a/x", "e/n", NoReplace),
    Rename("a/x", "y", Exchange),
    Rename("a", "e", Replace),
    Rename("a", "e/n", Replace),
    Rename("e", "a/n", Replace),
    Rename("e", "a/x", Exchange),
    Rename("e", "a/d/n", Replace),
    Link("a/x", "n"),
    Chmod("a"),
    Chmod("a/x"),
    Xattr("a"),
    Xattr("a/x"),
    FileBeside("e"),
];

/// Only beside one of the others, before or inside it.
const OTHERS: [Call; 12] = [
    S3(Action::Put("a/x", 300)),
    S3(Action::Put("a/n", 301)),
    S3(Action::Put("e/n/o", 302)),
    S3(Action::Put("i/n", 302)),
    S3(Action::Delete("a/x")),
    S3(Action::Delete("i/z")),
    S3(Action::Copy("a/x", "y")),
    S3(Action::Rename("a/x", "y")),
    S3(Action::Rename("a/", "c/")),
    S3(Action::MakeDirectory("a/n/")),
    S3(Action::Put("h/n", 304)),
    RemoveAndLook("e"),
];

struct Pair {
    engine: Arc<Interposed>,
    sides: [Side; 2],
    given: Given,
}

fn pair(store: &Arc<Store>, env: &Env, linked: bool) -> Pair {
    let engine = Arc::new(Interposed::new(Arc::new(Memory::with_payloads(Arc::clone(store), 4096))));
    let side = || {
        let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
        let volume = Volume::open(env.clone(), below, Arc::clone(store), Options::default()).unwrap();
        match wait(volume.create_bucket("b")) {
            Ok(_) | Err(Error::BucketExists) => {}
            Err(error) => panic!("{error}"),
        }
        let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
        Side { volume, mount }
    };
    let pair = Pair { sides: [side(), side()], engine, given: Given::default() };
    let one = &pair.sides[0];
    for call in [
        Directory("a"),
        Directory("e"),
        File("a/x"),
        Write("a/x", 200),
        File("y"),
        Write("y", 66_500),
        S3(Action::Put("i/z", 303)),
        Directory("a/d"),
        // With an object of no bytes.
        S3(Action::Put("h/", 0)),
    ] {
        assert_eq!(run(one, &pair.given, call), "done", "{call:?}");
    }
    if linked {
        assert_eq!(run(one, &pair.given, Link("a/x", "z")), "done");
    }
    pair
}

/// What can be seen afterwards by a mount that was not there, without times.
fn outcome(pair: &Pair, answers: [String; 2]) -> String {
    let mut text = format!("{answers:?}");
    let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&pair.engine);
    let last = &pair.sides[0].volume;
    let volume = Volume::open_over(Env::real(), below, Arc::clone(last.store()), Options::default()).unwrap();
    let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    let side = Side { volume, mount };
    show_tree(&side.mount, side.mount.root(), "", &mut text);
    let report = side.volume.fsck(FsckOptions::default()).unwrap();
    let usage = wait(side.volume.usage("b")).unwrap();
    text + &format!(" {:?} {} {} {usage:?}", report.shown, report.directories, report.live_bytes)
}

/// Gives the number of interleavings, and those that are as no order of the two.
fn all_pairs(ones: &[Call], twos: &[Call], linked: bool) -> (usize, Vec<String>) {
    let (disk, random) = (SimDisk::new(1), SimRandom::new(1));
    let env = Env { disk: Arc::new(disk), clock: Arc::new(RealClock::new()), random: Arc::new(random) };
    let mut options = margay_segment::Options::new(Path::new("/segments"));
    options.reserve_bytes = 0;
    let store = Store::open(env.clone(), options).unwrap();
    let (mut runs, mut wrong) = (0, Vec::new());
    for &one in ones {
        for &two in twos {
            let orders = [false, true].map(|swap| {
                let pair = pair(&store, &env, linked);
                let [first, second] = &pair.sides;
                let prepared = prepare(first, one);
                let before = swap.then(|| run(second, &pair.given, two));
                let done = finish(first, &pair.given, one, prepared);
                let other = before.unwrap_or_else(|| run(second, &pair.given, two));
                let seen = outcome(&pair, [done, other]);
                assert!(seen.contains(" [] "), "{one:?}, {two:?}: {seen}");
                seen
            });
            for at in 0.. {
                let pair = Arc::new(pair(&store, &env, linked));
                let Ok(prepared) = prepare(&pair.sides[0], one) else { break };
                let answer = Arc::new(Mutex::new(None));
                let (inner, slot) = (Arc::clone(&pair), Arc::clone(&answer));
                pair.engine.arm(at, Box::new(move || *slot.lock() = Some(run(&inner.sides[1], &inner.given, two))));
                let done = finish(&pair.sides[0], &pair.given, one, Ok(prepared));
                if pair.engine.disarm() {
                    break;
                }
                let other = answer.lock().take().unwrap();
                let seen = outcome(&pair, [done, other]);
                runs += 1;
                if !orders.contains(&seen) {
                    wrong.push(format!("{one:?} with {two:?} before call {at}:\n{seen}\nnot {orders:#?}"));
                }
            }
        }
    }
    (runs, wrong)
}

/// Half of the first operations on each thread.
fn all(twos: &'static [Call], linked: bool, runs_min: usize) {
    let done: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let halves = CALLS.chunks(CALLS.len() / 2).map(|ones| scope.spawn(move || all_pairs(ones, twos, linked)));
        halves.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let runs: usize = done.iter().map(|(runs, _)| runs).sum();
    let wrong: Vec<&String> = done.iter().flat_map(|(_, wrong)| wrong).collect();
    let titles = wrong.iter().filter_map(|one| one.lines().next()).fold(String::new(), |all, one| all + one + "\n");
    assert!(wrong.is_empty(), "{} of {runs}:\n{titles}{wrong:#?}", wrong.len());
    assert!(runs > runs_min, "{runs} runs");
}

#[test]
fn any_two_calls_of_mounts_are_as_if_one_came_first() {
    all(&CALLS, false, 1400);
}

#[test]
fn calls_on_a_linked_file_are_as_if_one_came_first() {
    all(&CALLS, true, 1500);
}

#[test]
fn calls_of_mounts_beside_s3_are_as_if_one_came_first() {
    all(&OTHERS, false, 700);
}
