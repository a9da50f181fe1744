//! Two operations at once, of which at least one changes what a bucket or an object has besides its content, or the bucket
//! itself, in every order of their reads and commits.
//!
//! Why:        as `interleavings`: what is read and not asserted shows only by an operation between the read and the commit.
//! Invariants: what comes out is what one of the two orders gives, and fsck is clean.
//! Not here:   operations on content alone (`interleavings`) and of mounts alone (`interleavings_mount`).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::{AttributeChange, Mount, MountOptions, PosixError, SetXattr};
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::{self, Action, Given, lines, ok};
use world::interposed::*;
use world::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    CreateBucket,
    SetSetting(Setting, usize),
    RemoveSetting(Setting),
    Lock,
    /// Of the object `a/x`, and of the directory object `a/`.
    Documents(&'static str, Document, &'static str),
    /// A copy of `a/x` in its own place, with another header.
    CopyOnto,
    CreateUpload,
    AbortUploads,
    /// Of the directory `a/`, and a look at what is in it.
    RenameAndLook,
    Identity(&'static str),
    /// Rights of the bucket's root, by a mount.
    Chmod,
    /// An attribute of the root, by a mount.
    Xattr,
    Object(Action),
}

use Step::*;

/// A document so long takes several rows.
const LONG: usize = 70_000;

const STEPS: [Step; 15] = [
    CreateBucket,
    SetSetting(Setting::Policy, 10),
    SetSetting(Setting::Policy, LONG),
    SetSetting(Setting::Cors, 11),
    RemoveSetting(Setting::Policy),
    Lock,
    Object(Action::Set(Versioning::Enabled)),
    Object(Action::Set(Versioning::Suspended)),
    Documents("a/x", Document::Acl, "one"),
    Documents("a/", Document::Acl, "three"),
    CopyOnto,
    CreateUpload,
    AbortUploads,
    Identity("alice"),
    Object(Action::DeleteBucket),
];

/// Only beside one of the others, before or inside it.
const OTHERS: [Step; 12] = [
    SetSetting(Setting::Policy, LONG + 1),
    Documents("a/x", Document::Acl, "two"),
    Documents("a/", Document::Tags, "four"),
    Identity("bob"),
    Chmod,
    Xattr,
    Object(Action::Put("a/x", 300)),
    Object(Action::Put("a/b/y", 301)),
    Object(Action::Delete("a/x")),
    Object(Action::Rename("a/", "c/")),
    RenameAndLook,
    Object(Action::MakeDirectory("a/")),
];

const STARTS: [&[Step]; 5] = [
    &[],
    &[CreateBucket],
    &[CreateBucket, SetSetting(Setting::Policy, LONG), Object(Action::Set(Versioning::Enabled))],
    &[CreateBucket, Object(Action::MakeDirectory("a/")), Object(Action::Put("a/x", 200)), CreateUpload],
    &[CreateBucket, Object(Action::Set(Versioning::Enabled)), Object(Action::Put("a/x", 201)), Lock],
];

struct Pair {
    engine: Arc<Interposed>,
    sides: [Arc<Volume>; 2],
    /// Of the identities, at the beginning: both decide on it.
    generation: u64,
}

fn look(volume: &Volume, key: &str) -> String {
    let found = wait(volume.head_object("b", key, &ReadCondition::default()));
    let found = found.map_err(|error| match error {
        Error::Deleted(_) => "deleted".to_owned(),
        other => format!("{other:?}"),
    });
    format!(" {key}: {:?}", found.map(|info| (info.size, info.documents, info.headers)))
}

/// Opening the mount and the change are two operations.
fn of_root(volume: &Arc<Volume>, change: impl Fn(&Mount) -> Result<(), PosixError>) -> String {
    let mount = Mount::open(Arc::clone(volume), "b", "", MountOptions::default());
    let changed = mount.is_ok_and(|mount| change(&mount).is_ok());
    if changed { "done".to_owned() } else { "no mount".to_owned() }
}

fn run(volume: &Arc<Volume>, generation: u64, step: Step) -> String {
    match step {
        CreateBucket => ok(wait(volume.create_bucket("b"))),
        SetSetting(setting, len) => ok(wait(volume.set_bucket_setting("b", setting, &body_of(len, len)))),
        RemoveSetting(setting) => ok(wait(volume.remove_bucket_setting("b", setting))),
        Lock => ok(wait(volume.set_object_lock("b", None))),
        Documents(key, kind, text) => ok(wait(volume.change_documents("b", key, |mut documents| {
            documents.insert(kind, text.as_bytes().to_vec().into());
            Ok(documents)
        }))),
        CopyOnto => ok(wait(volume.copy_object(CopyRequest {
            source_bucket: "b",
            source_key: "a/x",
            bucket: "b",
            key: "a/x",
            headers: Some([("x-amz-meta-a".to_owned(), "copied".to_owned())].into()),
            ..CopyRequest::default()
        }))),
        RenameAndLook => ok(wait(volume.rename("b", "a/", "c/", &WriteCondition::None))) + &look(volume, "c/x"),
        CreateUpload => ok(wait(volume.create_multipart("b", "a/m", Headers::new(), margay_volume::Documents::new()))),
        AbortUploads => {
            // To list them and to abort each are operations of their own: only what comes of it is compared.
            let listed = wait(volume.list_multipart("b", "", None, 10));
            for upload in listed.into_iter().flat_map(|(uploads, _)| uploads) {
                let _ = wait(volume.abort_multipart("b", &upload.key, &upload.upload));
            }
            "done".to_owned()
        }
        Identity(name) => {
            let change = IdentityChange { kind: 1, name: name.to_owned(), content: Some(name.as_bytes().to_vec()) };
            ok(wait(volume.change_identities(generation, &[change])))
        }
        Chmod => of_root(volume, |mount| {
            let change = AttributeChange { rights: Some(0o711), ..AttributeChange::default() };
            mount.set_attributes(mount.root(), &change).map(drop)
        }),
        Xattr => of_root(volume, |mount| mount.set_xattr(mount.root(), b"user.a", b"1", SetXattr::Any, false)),
        Object(action) => actions::run(volume, &Given::default(), action),
    }
}

fn opened(engine: &Arc<Interposed>, store: &Arc<Store>) -> Arc<Volume> {
    let below: Arc<dyn Engine> = Arc::<Interposed>::clone(engine);
    Volume::open(Env::real(), below, Arc::clone(store), Options::default()).unwrap()
}

fn pair(store: &Arc<Store>, start: &[Step]) -> Pair {
    let engine = Arc::new(Interposed::new(Arc::new(Memory::with_payloads(Arc::clone(store), 4096))));
    let sides = [(); 2].map(|()| opened(&engine, store));
    for step in start {
        assert_eq!(run(&sides[0], 0, *step), "done", "{step:?}");
    }
    let generation = wait(sides[0].identities()).unwrap().generation;
    Pair { engine, sides, generation }
}

/// What can be seen afterwards, without times and numbers.
fn outcome(pair: &Pair, answers: [String; 2]) -> String {
    let volume = &pair.sides[0];
    let mut text = format!("{answers:?}");
    for bucket in wait(volume.list_buckets("", None, 10)).unwrap() {
        text += &format!(" {}: {:?} {:?}", bucket.name, bucket.settings, wait(volume.versioning("b")));
        for setting in [Setting::Policy, Setting::Cors] {
            let found = wait(volume.bucket_setting("b", setting)).unwrap();
            text += &format!(" {:?}", found.map(|document| (document.len(), etag_of(&document))));
        }
        text += &format!(" {:?}", wait(volume.object_lock("b")));
        let mount = Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap();
        let root = mount.root();
        text +=
            &format!(" {:o} {:?}", mount.attributes(root).unwrap().rights, mount.get_xattr(root, b"user.a").is_ok());
    }
    for key in ["a/x", "a/", "a/b/y", "c/x"] {
        text += &look(volume, key);
    }
    for (key, version, is_latest, content) in lines(volume) {
        text += &format!(" {key}:{}:{is_latest}:{content:?}", version == VersionId::Null);
    }
    let names = wait(volume.identities()).unwrap().rows.into_iter().map(|row| row.name);
    text += &format!(" {:?}", names.collect::<Vec<_>>());
    let report = volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean() && report.orphans == 0, "{text}: {report:#?}");
    text + &format!(" {} {} {} {}", report.uploads, report.parts, report.directories, report.live_bytes)
}

fn in_order(store: &Arc<Store>, start: &[Step], one: Step, two: Step, swap: bool) -> String {
    let pair = pair(store, start);
    let [first, second] = &pair.sides;
    let answers = if swap {
        let answer = run(second, pair.generation, two);
        [run(first, pair.generation, one), answer]
    } else {
        let answer = run(first, pair.generation, one);
        [answer, run(second, pair.generation, two)]
    };
    outcome(&pair, answers)
}

/// Runs `two` before engine call `at` of `one`; nothing when `one` makes fewer calls.
fn interleaved(store: &Arc<Store>, start: &[Step], (one, two): (Step, Step), at: usize) -> Option<String> {
    let pair = pair(store, start);
    let answer = Arc::new(Mutex::new(None));
    let (second, slot, generation) = (Arc::clone(&pair.sides[1]), Arc::clone(&answer), pair.generation);
    let hook: Hook = Box::new(move || *slot.lock() = Some(run(&second, generation, two)));
    pair.engine.arm(at, hook);
    let first = run(&pair.sides[0], pair.generation, one);
    let second = answer.lock().take()?;
    Some(outcome(&pair, [first, second]))
}

/// All pairs from one start; gives the number of interleavings.
fn all_pairs(start: &[Step]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
    let mut runs = 0;
    let beside = || STEPS.into_iter().chain(OTHERS);
    let pairs = STEPS.into_iter().flat_map(|one| beside().map(move |two| (one, two)));
    for (one, two) in pairs.chain(OTHERS.into_iter().flat_map(|one| STEPS.map(|two| (one, two)))) {
        if let RenameAndLook = one {
            // Two operations, which other ones may come between.
            continue;
        }
        let orders = [false, true].map(|swap| in_order(&store, start, one, two, swap));
        for at in 0.. {
            let Some(seen) = interleaved(&store, start, (one, two), at) else { break };
            let told = format!("{one:?} with {two:?} before call {at} from {start:?}");
            assert!(orders.contains(&seen), "{told}:\n{seen}\nnot {orders:#?}");
            runs += 1;
        }
    }
    runs
}

#[test]
fn settings_and_documents_are_as_if_one_came_first() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = STARTS.map(|start| scope.spawn(move || all_pairs(start)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(runs > 3000, "{runs} runs");
}

/// Two volumes take their first numbers at once: no two files get the same.
#[test]
fn numbers_are_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
    for at in 0.. {
        let mut pair = pair(&store, &[CreateBucket]);
        // Neither has taken numbers yet.
        pair.sides = [(); 2].map(|()| opened(&pair.engine, &store));
        let (second, called) = (Arc::clone(&pair.sides[1]), Arc::new(Mutex::new(false)));
        let told = Arc::clone(&called);
        let generation = pair.generation;
        let hook: Hook = Box::new(move || {
            assert_eq!(run(&second, generation, Object(Action::Put("c/d/e", 301))), "done");
            *told.lock() = true;
        });
        pair.engine.arm(at, hook);
        assert_eq!(run(&pair.sides[0], generation, Object(Action::Put("f/g/h", 302))), "done");
        if !*called.lock() {
            assert!(at > 3, "{at}");
            break;
        }
        let mount = Mount::open(Arc::clone(&pair.sides[0]), "b", "", MountOptions::default()).unwrap();
        let mut numbers = vec![];
        for path in ["c", "c/d", "c/d/e", "f", "f/g", "f/g/h"] {
            let mut ino = mount.root();
            for step in path.split('/') {
                ino = mount.lookup(ino, &world::tree::plain(step)).unwrap().ino;
            }
            numbers.push(ino);
        }
        numbers.sort();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "two have the same number, before call {at}");
        let report = pair.sides[0].fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }
}
