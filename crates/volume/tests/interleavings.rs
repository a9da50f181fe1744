//! Two operations at once, in every order of their reads and commits, on two volumes over one engine.
//!
//! Why:   an operation reads and then commits once. While neither has committed both read the same rows, so every
//!        interleaving is the same as one operation running whole between two engine calls of the other.
//!        This runs all of them. What must come out is what one of the two orders gives, and a clean fsck.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Env;
use margay_meta::memory::Memory;
use margay_meta::*;
use margay_segment::Store;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::Action::*;
use world::actions::*;
use world::interposed::*;
use world::*;

const ACTIONS: [Action; 28] = [
    Put("a/x", 200),
    Put("a/y", 9),
    Put("a/b/c", 201),
    PutAbsent("a/x"),
    PutAbsent("c/n"),
    Delete("a/x"),
    Delete("a/y"),
    Delete("b/y"),
    Delete("a/"),
    DeleteBoth("a/x", "a/y"),
    DeleteBoth("a/x", "b/y"),
    Copy("a/x", "b/y"),
    Copy("b/y", "a/x"),
    Copy("a/x", "c/n"),
    Rename("a/x", "b/y"),
    Rename("a/x", "a/b/z"),
    Rename("a/", "b/a/"),
    Rename("b/", "a/b/"),
    Rename("a/", "c/"),
    Link("a/x", "a/z"),
    Link("a/z", "b/z"),
    Delete("a/z"),
    MakeDirectory("a/"),
    PutPart,
    ReplacePart,
    Complete("a/m"),
    Abort,
    DeleteBucket,
];

/// On what few starts have.
const FEW_ACTIONS: [Action; 12] = [
    AppendTo("a/x", 203, 300),
    AppendTo("a/x", 503, 300),
    Put("a/x", 200),
    Copy("a/x", "b/y"),
    Copy("b/y", "a/x"),
    Copy("a/x", "c/n"),
    Delete("a/x"),
    DeleteBoth("a/x", "b/y"),
    Delete("c/"),
    MakeDirectory("c/"),
    PutAbsent("c/n"),
    Rename("a/", "c/"),
];

const FEW_STARTS: [&[Action]; 4] = [
    // Its first run is a copy's too, and its second one is its own.
    &[Put("a/x", 203), Copy("a/x", "b/y"), AppendTo("a/x", 203, 300)],
    // The copy is gone, so it is its run's only owner again.
    &[Put("a/x", 203), Copy("a/x", "b/y"), Delete("b/y")],
    &[Put("a/x", 203), MakeDirectory("c/")],
    // In their rows, so that a copy makes the source no other.
    &[Put("a/x", 9), Put("b/y", 8)],
];

const VERSIONED_ACTIONS: [Action; 18] = [
    Put("a/x", 200),
    Put("a/b/c", 201),
    PutAbsent("a/x"),
    Delete("a/x"),
    DeleteBoth("a/x", "a/y"),
    DeleteVersion(0),
    DeleteVersion(1),
    DeleteVersion(2),
    Expire(0, DueVersion::Replaced),
    Expire(1, DueVersion::Replaced),
    Expire(0, DueVersion::LoneMarker),
    PutDeleteAndLook("a/x"),
    Copy("a/x", "a/x"),
    Copy("a/x", "b/y"),
    Rename("a/x", "b/y"),
    PutAbsent("c/n"),
    Set(Versioning::Suspended),
    DeleteBucket,
];

/// The first is put before versions are kept.
const VERSIONED_STARTS: [&[Action]; 8] = [
    &[Put("a/x", 202)],
    &[Put("a/x", 203), Set(Versioning::Enabled), Put("a/x", 9), Delete("a/x")],
    &[Set(Versioning::Enabled), Put("a/x", 204), Put("a/x", 205), Put("a/x", 207)],
    &[Set(Versioning::Enabled), Put("a/x", 203), Delete("a/x"), Set(Versioning::Suspended), Put("a/x", 208)],
    // The key has no object, and its directory is there.
    &[Set(Versioning::Enabled), Put("a/y", 9), Put("a/x", 203), Delete("a/x")],
    // Nothing but a delete marker.
    &[Set(Versioning::Enabled), Put("a/y", 9), Delete("a/x")],
    // Two delete markers above a version.
    &[Set(Versioning::Enabled), Put("a/y", 9), Put("a/x", 203), Delete("a/x"), Delete("a/x")],
    // A delete marker is newest but for the object, and its directory stays.
    &[Set(Versioning::Enabled), Put("a/y", 9), Put("a/x", 203), Delete("a/x"), Put("a/x", 208)],
];

const STARTS: [&[Action]; 5] = [
    &[],
    &[Put("a/x", 202), PutPart],
    &[Put("a/x", 203), Put("a/y", 204), Copy("a/x", "b/y"), PutPart],
    &[MakeDirectory("a/"), Put("b/y", 205), Copy("b/y", "c/z")],
    &[Put("a/x", 207), Put("b/w", 3), Link("a/x", "a/z"), Link("a/z", "b/y"), PutPart],
];

struct Pair {
    engine: Arc<Interposed>,
    first: Arc<Volume>,
    second: Arc<Volume>,
    given: Given,
}

fn pair(store: &Arc<Store>, start: &[Action], with_upload: bool) -> Pair {
    let memory = Arc::new(Memory::with_payloads(Arc::clone(store), 4096));
    let engine = Arc::new(Interposed::new(memory));
    let open = || {
        let engine: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
        Volume::open(Env::real(), engine, Arc::clone(store), Options::default()).unwrap()
    };
    let (first, second) = (open(), open());
    wait(first.create_bucket("b")).unwrap();
    let upload = if with_upload {
        wait(first.create_multipart("b", "a/m", Headers::new(), Documents::new())).unwrap().upload
    } else {
        "none".to_owned()
    };
    let mut given = Given { upload, ..Given::default() };
    for action in start {
        run(&first, &given, *action);
        // Both have numbers and paths in memory.
        let _ = run(&second, &given, Put("warm", 1));
        let _ = run(&second, &given, Delete("warm"));
    }
    given.versions = lines(&first).into_iter().filter(|line| line.0 == "a/x").map(|line| line.1).rev().collect();
    Pair { engine, first, second, given }
}

/// What can be seen afterwards, without times.
fn outcome(pair: &Pair, answers: [String; 2]) -> String {
    let mut text = format!("{answers:?}");
    let request =
        ListRequest { bucket: "b", prefix: "", delimiter: None, after: None, after_is_prefix: false, max: 1000 };
    let mut keys = Vec::new();
    let _ = wait(pair.first.list(&request, &mut |item| {
        if let ListItem::Object { key, size, etag, .. } = item {
            keys.push((key.to_owned(), size, etag.to_string()));
        }
    }));
    for (key, size, etag) in keys {
        let reader = wait(pair.first.get_object("b", &key, &ReadCondition::default())).unwrap();
        assert_eq!(read_all(&reader).len() as u64, size);
        text += &format!(" {key}:{size}:{etag}");
    }
    for (key, version, is_latest, content) in lines(&pair.first) {
        text += &format!(" {key}:{}:{is_latest}:{content:?}", version == VersionId::Null);
    }
    let report = pair.first.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean() && report.orphans == 0, "{report:#?}");
    text + &format!(" {} {} {} {}", report.uploads, report.parts, report.directories, report.live_bytes)
}

fn in_order(store: &Arc<Store>, start: &[Action], one: Action, two: Action, with_upload: bool, swap: bool) -> String {
    let pair = pair(store, start, with_upload);
    let answers = if swap {
        let answer = run(&pair.second, &pair.given, two);
        [run(&pair.first, &pair.given, one), answer]
    } else {
        let answer = run(&pair.first, &pair.given, one);
        [answer, run(&pair.second, &pair.given, two)]
    };
    outcome(&pair, answers)
}

/// Runs `two` before engine call `at` of `one`; nothing when `one` makes fewer calls.
fn interleaved(
    store: &Arc<Store>,
    start: &[Action],
    (one, two): (Action, Action),
    with_upload: bool,
    at: usize,
) -> Option<String> {
    let pair = pair(store, start, with_upload);
    let answer = Arc::new(Mutex::new(None));
    let (second, given, slot) = (Arc::clone(&pair.second), pair.given.clone(), Arc::clone(&answer));
    let hook: Hook = Box::new(move || *slot.lock() = Some(run(&second, &given, two)));
    pair.engine.arm(at, hook);
    let first = run(&pair.first, &pair.given, one);
    let second = answer.lock().take()?;
    Some(outcome(&pair, [first, second]))
}

/// All pairs from one start; gives the number of interleavings.
fn all_pairs(start: &[Action], actions: &[Action]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
    let mut runs = 0;
    for &one in actions.iter().filter(|action| !matches!(action, PutDeleteAndLook(_))) {
        for &two in actions {
            let uploads = |action| matches!(action, PutPart | ReplacePart | Complete(_) | Abort);
            let with_upload = uploads(one) || uploads(two);
            let orders = [false, true].map(|swap| in_order(&store, start, one, two, with_upload, swap));
            for at in 0.. {
                let Some(seen) = interleaved(&store, start, (one, two), with_upload, at) else { break };
                let told = format!("{one:?} with {two:?} before call {at} from {start:?}");
                assert!(orders.contains(&seen), "{told}:\n{seen}\nnot {orders:#?}");
                runs += 1;
            }
        }
    }
    runs
}

#[test]
fn any_two_operations_are_as_if_one_came_first() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = STARTS.map(|start| scope.spawn(move || all_pairs(start, &ACTIONS)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(runs > 10_000, "{runs} runs");
}

#[test]
fn any_two_of_a_few_operations_are_as_if_one_came_first() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = FEW_STARTS.map(|start| scope.spawn(move || all_pairs(start, &FEW_ACTIONS)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(runs > 700, "{runs} runs");
}

#[test]
fn any_two_operations_on_versions_are_as_if_one_came_first() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = VERSIONED_STARTS.map(|start| scope.spawn(move || all_pairs(start, &VERSIONED_ACTIONS)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(runs > 2000, "{runs} runs");
}
