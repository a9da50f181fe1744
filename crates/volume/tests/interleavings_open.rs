//! Calls on an open file, and a change of the same file or its place by another process, in every order of their steps.
//!
//! Why:        as `interleavings`: what a publish has read and does not assert is seen only when somebody changes it between
//!             its reads and its commit.
//! Invariants: what comes out is what one of the two orders gives, and fsck is clean. The file is opened before. What the
//!             first process remembers of the bucket from then does not count.
//! Not here:   two processes that both have the file open, and removals (who else has it open only its process knows).

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
use world::actions::{self, Action, Given, lines};
use world::interposed::Interposed;
use world::tree::{plain, show_tree};
use world::*;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

/// What is done on the handle, which is closed at last.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// At an offset, so many bytes; then synced.
    Write(u64, usize),
    /// Written before the other one comes: only the close is beside it.
    Close(u64, usize),
    /// Written and synced before, and written again.
    WriteAgain(u64, usize),
    Truncate(u64),
    /// What has room already, by one who may not keep its set-id bit, which it has got before.
    Reserve,
    Chmod,
}

#[derive(Clone, Copy, Debug)]
enum Other {
    S3(Action),
    Chmod,
    Xattr,
    Exchange,
}

use Call::{Close, Reserve, Truncate, Write, WriteAgain};
use Other::{Exchange, S3, Xattr};

const CALLS: [Call; 7] =
    [Write(3, 100), Write(60_000, 20_000), Close(3, 100), WriteAgain(3, 50), Truncate(10), Reserve, Call::Chmod];

const OTHERS: [Other; 8] = [
    S3(Action::Put("a/x", 300)),
    S3(Action::Copy("a/x", "y")),
    S3(Action::Rename("a/x", "y")),
    S3(Action::Rename("a/", "c/")),
    S3(Action::Set(Versioning::Enabled)),
    Other::Chmod,
    Xattr,
    Exchange,
];

/// Steps that make the file.
const STARTS: [&[Action]; 10] = [
    &[Action::Put("a/x", 200)],
    &[Action::Put("a/x", 66_500)],
    &[Action::Put("a/x", 66_500), Action::Link("a/x", "a/z")],
    &[Action::Set(Versioning::Enabled), Action::Put("a/x", 200), Action::Put("a/x", 201)],
    &[Action::Set(Versioning::Enabled), Action::Put("a/x", 66_500)],
    &[Action::Put("a/x", 9), Action::Set(Versioning::Suspended), Action::Put("a/x", 66_500)],
    &[Action::Set(Versioning::Enabled), Action::Put("a/x", 66_500), Action::Copy("a/x", "a/w")],
    // One name is left of two, in a record of its own.
    &[Action::Put("a/x", 66_500), Action::Link("a/x", "a/z"), Action::Delete("a/z"), Action::Set(Versioning::Enabled)],
    &[Action::PutEncrypted("a/x", 200)],
    &[Action::Put("a/x", 66_500), Action::Copy("a/x", "a/w")],
];

struct Side {
    volume: Arc<Volume>,
    mount: Arc<Mount>,
}

struct Pair {
    engine: Arc<Interposed>,
    first: Side,
    second: Side,
    given: Given,
}

fn find(mount: &Mount, path: &str) -> Result<(Ino, Attributes), PosixError> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = if above.is_empty() { mount.root() } else { mount.lookup(mount.root(), &plain(above))?.ino };
    Ok((parent, mount.lookup(parent, &plain(name))?))
}

fn said(done: Result<(), PosixError>) -> String {
    done.map_or_else(|error| format!("{error:?}"), |()| "done".to_owned())
}

fn change(side: &Side, given: &Given, other: Other) -> String {
    let mount = &side.mount;
    let by_mount = |call: &dyn Fn(Ino, &Attributes) -> Result<(), PosixError>| {
        said(find(mount, "a/x").and_then(|(parent, found)| call(parent, &found)))
    };
    match other {
        S3(action) => actions::run(&side.volume, given, action),
        Other::Chmod => by_mount(&|_, found| {
            let change = AttributeChange { rights: Some(0o711), ..AttributeChange::default() };
            mount.set_attributes(found.ino, &change).map(drop)
        }),
        Xattr => by_mount(&|_, found| mount.set_xattr(found.ino, b"user.x", b"1", SetXattr::Any, false)),
        Exchange => {
            by_mount(&|parent, _| mount.rename(parent, &plain("x"), mount.root(), &plain("y"), RenameMode::Exchange))
        }
    }
}

/// What happens before the other one comes.
fn begin(side: &Side, call: Call) -> Handle {
    let (_, found) = find(&side.mount, "a/x").unwrap();
    if let Reserve = call {
        let change = AttributeChange { rights: Some(0o4755), ..AttributeChange::default() };
        side.mount.set_attributes(found.ino, &change).unwrap();
    }
    let handle = side.mount.open_file(found.ino, BOTH).unwrap();
    if let Close(at, len) | WriteAgain(at, len) = call {
        side.mount.write(&handle, at, &body_of(len, len), false).unwrap();
    }
    if let WriteAgain(..) = call {
        side.mount.sync(&handle).unwrap();
    }
    handle
}

fn go_on(side: &Side, call: Call, handle: Handle) -> String {
    let mount = &side.mount;
    let size = |size| AttributeChange { size: Some(size), ..AttributeChange::default() };
    let done = match call {
        Write(at, len) | WriteAgain(at, len) => mount.write(&handle, at, &body_of(len + 1, len), false).map(drop),
        Close(..) => Ok(()),
        Truncate(len) => mount.set_attributes(handle.ino(), &size(len)).map(drop),
        Reserve => mount.allocate(&handle, Allocate::Reserve { keep_size: true }, 0, 100, true),
        Call::Chmod => {
            let change = AttributeChange { rights: Some(0o640), ..AttributeChange::default() };
            mount.set_attributes(handle.ino(), &change).map(drop)
        }
    };
    let synced = if let Close(..) = call { Ok(()) } else { mount.sync(&handle) };
    said(done.and(synced).and(mount.release(handle)))
}

fn options() -> Options {
    Options { master_keys: MasterKeys::new(&[[5; MASTER_KEY_BYTES]]), ..Options::default() }
}

/// The first one has published both files (unless a write would decrypt them), so it remembers the bucket's state, and they
/// have runs that no copy shares.
fn pair(store: &Arc<Store>, env: &Env, start: &[Action]) -> Pair {
    let engine = Arc::new(Interposed::new(Arc::new(Memory::with_payloads(Arc::clone(store), 4096))));
    let open = || -> Arc<Volume> {
        let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
        Volume::open(env.clone(), below, Arc::clone(store), options()).unwrap()
    };
    let mounted = |volume: Arc<Volume>| {
        let options = MountOptions { plain: true, ..MountOptions::default() };
        let mount = Mount::open(Arc::clone(&volume), "b", "", options).unwrap();
        Side { volume, mount }
    };
    let given = Given::default();
    let first = open();
    wait(first.create_bucket("b")).unwrap();
    for action in start.iter().chain([&Action::Put("y", 302)]) {
        actions::run(&first, &given, *action);
    }
    let first = mounted(first);
    let encrypted = matches!(start, [Action::PutEncrypted(..)]);
    for path in if encrypted { &["y"][..] } else { &["a/x", "y"] } {
        let (_, found) = find(&first.mount, path).unwrap();
        let handle = first.mount.open_file(found.ino, BOTH).unwrap();
        first.mount.write(&handle, 9, &[9; 200], false).unwrap();
        first.mount.release(handle).unwrap();
    }
    Pair { first, second: mounted(open()), engine, given }
}

/// What can be seen afterwards by a mount that was not there, without times.
fn outcome(pair: &Pair, answers: [String; 2]) -> String {
    let mut text = format!("{answers:?}");
    let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&pair.engine);
    let store = Arc::clone(pair.first.volume.store());
    let volume = Volume::open_over(Env::real(), below, store, options()).unwrap();
    let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    show_tree(&mount, mount.root(), "", &mut text);
    for (key, version, latest, content) in lines(&volume) {
        text += &format!(" {key} {:?} {latest} {:?}", version == VersionId::Null, content.map(|(size, _)| size));
    }
    let report = volume.fsck(FsckOptions::default()).unwrap();
    let usage = wait(volume.usage("b")).unwrap();
    text + &format!(" {:?} {} {} {usage:?}", report.shown, report.directories, report.live_bytes)
}

fn memory_world() -> (Arc<Store>, Env) {
    let (disk, random) = (SimDisk::new(1), SimRandom::new(1));
    let env = Env { disk: Arc::new(disk), clock: Arc::new(RealClock::new()), random: Arc::new(random) };
    let mut options = margay_segment::Options::new(Path::new("/segments"));
    options.reserve_bytes = 0;
    (Store::open(env.clone(), options).unwrap(), env)
}

/// Gives the number of interleavings, and those that are as no order of the two.
fn every_order(start: &[Action], calls: &[Call]) -> (usize, Vec<String>) {
    let (store, env) = memory_world();
    let (mut runs, mut wrong) = (0, Vec::new());
    for &call in calls {
        for other in OTHERS {
            let orders = [false, true].map(|swap| {
                let pair = pair(&store, &env, start);
                let handle = begin(&pair.first, call);
                let before = swap.then(|| change(&pair.second, &pair.given, other));
                let done = go_on(&pair.first, call, handle);
                let changed = before.unwrap_or_else(|| change(&pair.second, &pair.given, other));
                let seen = outcome(&pair, [done, changed]);
                assert!(seen.contains(" [] "), "{start:?}: {call:?}, {other:?}, swapped {swap}: {seen}");
                seen
            });
            for at in 0.. {
                let pair = Arc::new(pair(&store, &env, start));
                let handle = begin(&pair.first, call);
                let answer = Arc::new(Mutex::new(None));
                let (inner, slot) = (Arc::clone(&pair), Arc::clone(&answer));
                let hook = move || *slot.lock() = Some(change(&inner.second, &inner.given, other));
                pair.engine.arm(at, Box::new(hook));
                let done = go_on(&pair.first, call, handle);
                if pair.engine.disarm() {
                    break;
                }
                let changed = answer.lock().take().unwrap();
                let seen = outcome(&pair, [done, changed]);
                runs += 1;
                if !orders.contains(&seen) {
                    wrong
                        .push(format!("{start:?}: {call:?} with {other:?} before call {at}:\n{seen}\nnot {orders:#?}"));
                }
            }
        }
    }
    (runs, wrong)
}

#[test]
fn calls_on_open_files_are_as_if_they_or_the_change_came_first() {
    let done: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let halves = CALLS
            .chunks(CALLS.len() / 2)
            .map(|calls| scope.spawn(move || STARTS.map(|start| every_order(start, calls))));
        halves.collect::<Vec<_>>().into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let runs: usize = done.iter().map(|(runs, _)| runs).sum();
    let wrong: Vec<&String> = done.iter().flat_map(|(_, wrong)| wrong).collect();
    let titles = wrong.iter().filter_map(|one| one.lines().next()).fold(String::new(), |all, one| all + one + "\n");
    assert!(wrong.is_empty(), "{} of {runs}:\n{titles}{:#?}", wrong.len(), &wrong[..wrong.len().min(4)]);
    assert!(runs > 1000, "{runs} runs");
}

/// Versions that the bucket keeps besides the current ones.
fn versions_kept(side: &Side) -> u64 {
    wait(side.volume.usage("b")).unwrap().versions
}

#[test]
fn a_mount_that_remembers_a_bucket_without_versions_keeps_them_all_the_same() {
    let (store, env) = memory_world();
    let start = [Action::Put("a/x", 200), Action::Put("a/w", 30)];
    type Change = fn(&Side, Handle) -> Result<(), PosixError>;
    let publish: Change = |side, handle| {
        side.mount.write(&handle, 3, b"new", false)?;
        side.mount.sync(&handle)?;
        side.mount.release(handle)
    };
    let unlink: Change = |side, _| side.mount.unlink(find(&side.mount, "a/x")?.0, &plain("x"));
    let replace: Change = |side, _| {
        let (parent, _) = find(&side.mount, "a/x")?;
        side.mount.rename(parent, &plain("w"), parent, &plain("x"), RenameMode::Replace)
    };
    for (name, change, kept) in [("publish", publish, 1), ("unlink", unlink, 2), ("replace", replace, 3)] {
        let pair = pair(&store, &env, &start);
        let handle = begin(&pair.first, Write(0, 0));
        assert_eq!(actions::run(&pair.second.volume, &pair.given, Action::Set(Versioning::Enabled)), "done");
        change(&pair.first, handle).unwrap();
        assert_eq!(versions_kept(&pair.first), kept, "{name}: {:?}", lines(&pair.first.volume));
    }
}

/// Another process puts the object `f` at this moment.
fn arm_a_put(pair: &Arc<Pair>, at: usize) {
    let inner = Arc::clone(pair);
    let put = move || assert_eq!(actions::run(&inner.second.volume, &inner.given, Action::Put("f", 300)), "done");
    pair.engine.arm(at, Box::new(put));
}

/// Closes a file that its bucket retains then; another process puts an object in its place at this moment. False when closing
/// has fewer moments.
fn put_beside_the_last_close(at: usize) -> bool {
    let (store, env) = memory_world();
    let pair = Arc::new(pair(&store, &env, STARTS[3]));
    let default = DefaultRetention { mode: RetentionMode::Governance, period: RetentionPeriod::Days(1) };
    wait(pair.first.volume.set_object_lock("b", Some(default))).unwrap();
    let mount = &pair.first.mount;
    let new = NewFile { rights: 0o644, ..NewFile::default() };
    let (_, handle) = mount.create(mount.root(), &plain("f"), &new, BOTH).unwrap();
    mount.write(&handle, 0, b"bytes", false).unwrap();
    mount.sync(&handle).unwrap();
    arm_a_put(&pair, at);
    mount.release(handle).unwrap();
    let reached = !pair.engine.disarm();
    let volume = &pair.second.volume;
    let current = wait(volume.head_object("b", "f", &ReadCondition::default())).unwrap().size;
    assert_eq!(current, if reached { 300 } else { 5 }, "before call {at}");
    let report = volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "before call {at}: {report:#?}");
    reached
}

#[test]
fn an_object_that_is_put_beside_the_last_close_of_a_retained_file_stays() {
    let moments = (0..).take_while(|at| put_beside_the_last_close(*at)).count();
    assert!(moments > 1, "{moments} moments");
}

/// Changes the rights of an open file that was written and has an access list, which follows; another process puts an object in
/// its place at this moment. False when that has fewer moments.
fn put_beside_a_change_of_rights(at: usize) -> bool {
    let (store, env) = memory_world();
    let pair = Arc::new(pair(&store, &env, STARTS[3]));
    let mount = &pair.first.mount;
    let new = NewFile { rights: 0o644, ..NewFile::default() };
    let (made, handle) = mount.create(mount.root(), &plain("f"), &new, BOTH).unwrap();
    mount.sync(&handle).unwrap();
    // Owner, user 5, group, mask, others.
    let entries = [(1u16, 6u16, u32::MAX), (2, 6, 5), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)];
    let entries =
        entries.map(|(tag, rights, id)| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    mount.set_xattr(made.ino, b"system.posix_acl_access", &list, SetXattr::Any, false).unwrap();
    mount.write(&handle, 0, b"bytes", false).unwrap();
    arm_a_put(&pair, at);
    let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
    mount.set_attributes(made.ino, &change).unwrap();
    let reached = !pair.engine.disarm();
    let volume = &pair.second.volume;
    if reached {
        let current = wait(volume.head_object("b", "f", &ReadCondition::default())).unwrap().size;
        assert_eq!(current, 300, "before call {at}");
    }
    mount.release(handle).unwrap();
    let report = volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "before call {at}: {report:#?}");
    reached
}

#[test]
fn an_object_that_is_put_beside_a_change_of_rights_stays() {
    let moments = (0..).take_while(|at| put_beside_a_change_of_rights(*at)).count();
    assert!(moments > 1, "{moments} moments");
}

/// A way to the size of `a/x`.
type Look = fn(&Mount, Ino) -> u64;

/// Looks that begin when all is written: the kernel keeps what they answer.
const LOOKS: [(&str, Look); 3] = [
    ("attributes", |mount, ino| mount.attributes(ino).unwrap().size),
    ("lookup", |mount, _| find(mount, "a/x").unwrap().1.size),
    ("listing", |mount, _| {
        let directory = mount.open_directory(mount.lookup(mount.root(), &plain("a")).unwrap().ino).unwrap();
        let mut size = 0;
        let take = &mut |item: &DirectoryItem<'_>| {
            size = size.max(item.attributes.unwrap().size);
            true
        };
        mount.read_directory(&directory, 0, true, take).unwrap();
        size
    }),
];

#[test]
fn a_look_beside_the_last_close_shows_what_was_written() {
    let (store, env) = memory_world();
    for (name, look) in LOOKS {
        for at in 0.. {
            let engine = Arc::new(Interposed::on_both_sides(Arc::new(Memory::with_payloads(Arc::clone(&store), 4096))));
            let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
            let volume = Volume::open(env.clone(), below, Arc::clone(&store), options()).unwrap();
            wait(volume.create_bucket("b")).unwrap();
            actions::run(&volume, &Given::default(), Action::Put("a/x", 200));
            let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
            let ino = find(&mount, "a/x").unwrap().1.ino;
            let handle = mount.open_file(ino, BOTH).unwrap();
            mount.write(&handle, 200, &[7; 100], false).unwrap();
            let closing = Arc::clone(&mount);
            engine.arm(at, Box::new(move || closing.release(handle).unwrap()));
            assert_eq!(look(&mount, ino), 300, "{name}, closed at moment {at}");
            if engine.disarm() {
                assert!(at > 1, "{name} has more moments");
                break;
            }
            assert_eq!(mount.attributes(ino).unwrap().size, 300);
        }
    }
}
