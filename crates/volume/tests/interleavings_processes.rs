//! Two processes over one shared engine, each with a session, a store, a mount and a follower: an operation of either door by one
//! of them, whole, between any two engine calls of an operation of either door by the other one, on three keys, beside quotas and
//! events.
//!
//! Why:        what one process remembers (kernels' numbers, open files, paths, quotas, events) is only in its memory; the rows that
//!             a commit asserts must make up for it.
//! Invariants: answers, tree, contents, events of each target and key, and counters are those of one of the two orders. Both
//!             processes read the same once their followers have read it; usage is what the tree holds; fsck is clean.
//! Not here:   long sequences (two_processes), what becomes of an open file's name (open_elsewhere), one process
//!             (interleavings, interleavings_mount).
//!
//! The strict core runs always; everything with `MARGAY_TEST_FULL=1 cargo test -p margay-volume --test interleavings_processes`.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use margay_env::Env;
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
use world::maintenance::ALL;
use world::shared::{Routed, follow};
use world::tree::show_tree;
use world::*;

use RenameMode::{Exchange, Replace};

/// On the keys `a`, `b` and `d/c`.
const CALLS: [Call; 27] = [
    S3(Action::Put("a", 210)),
    S3(Action::PutAbsent("b")),
    S3(Action::Put("d/c", 9)),
    S3(Action::Delete("a")),
    S3(Action::Delete("d/c")),
    S3(Action::DeleteBoth("a", "d/c")),
    S3(Action::Copy("a", "b")),
    S3(Action::Copy("a", "d/c")),
    S3(Action::Rename("a", "b")),
    S3(Action::Rename("d/", "e/")),
    S3(Action::AppendTo("a", 200, 300)),
    S3(Action::ReplacePart),
    S3(Action::Complete("b")),
    File("b"),
    Write("a", 150),
    Publish("a", 160),
    Truncate("a", 50),
    Unlink("a"),
    Unlink("d/c"),
    Rename("a", "b", Replace),
    Rename("a", "d/c", Replace),
    Rename("a", "d/c", Exchange),
    Rename("d", "e", Replace),
    Link("a", "b"),
    Directory("b"),
    Directory("e"),
    RemoveDirectory("d"),
];

/// Who does it, and what.
type Start = &'static [(usize, Call)];

const STARTS: [Start; 3] = [
    // Of both stores.
    &[(0, S3(Action::Put("a", 200))), (1, Directory("d")), (1, S3(Action::Put("d/c", 205))), (1, S3(Action::PutPart))],
    // Two share a run; a directory is empty.
    &[(1, S3(Action::Put("a", 200))), (0, S3(Action::Copy("a", "b"))), (0, Directory("d")), (0, S3(Action::PutPart))],
    // A file of two runs has two names; a directory is there for its only object.
    &[
        (0, S3(Action::Put("a", 200))),
        (0, S3(Action::AppendTo("a", 200, 300))),
        (1, Link("a", "b")),
        (1, S3(Action::Put("d/c", 700))),
        (0, S3(Action::PutPart)),
    ],
];

/// What happens behind the second one's operation, before the first one goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// The first one's follower reads what the second one did.
    Follow,
    /// Both beat, and the second one's store gives back all that it may.
    Reclaim,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    start: usize,
    one: Call,
    two: Call,
    then: Then,
    /// There is room for one object and 250 bytes more.
    tight: bool,
}

type Stores = [(Env, Arc<Store>); 2];

/// One of so many cases is run always.
const CORE_EVERY: usize = 29;

struct Pair {
    engine: Arc<Interposed>,
    sides: [Side; 2],
    given: Given,
}

fn targets(key: &str) -> Vec<&'static str> {
    if key == "b" { vec!["all", "of b"] } else { vec!["all"] }
}

fn usage(side: &Side) -> Usage {
    wait(side.volume.usage("b")).unwrap()
}

fn pair(stores: &Stores, case: &Case) -> Pair {
    // What the follower has read in between makes a difference behind a call, too.
    let memory = postgres::as_told(Arc::new(Memory::new().shared(10_000)));
    let made = if case.then == Then::Follow { Interposed::on_both_sides(memory) } else { Interposed::new(memory) };
    let engine = Arc::new(made);
    let below = Arc::clone(&engine) as Arc<dyn Engine>;
    let options = Options { run_bytes_max: 300, events: Some(Arc::new(Routed(targets))), ..Options::default() };
    let volumes = two_stores::in_sessions_with(&below, stores, &options);
    wait(volumes[0].create_bucket("b")).unwrap();
    wait(volumes[0].set_bucket_setting("b", Setting::Notification, b"rules")).unwrap();
    let sides = volumes.map(|volume| {
        let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
        Side { volume, mount }
    });
    let upload = wait(sides[0].volume.create_multipart("b", "b", Headers::new(), Documents::new())).unwrap().upload;
    let given = Given { upload, upload_key: "b", ..Given::default() };
    for (who, call) in STARTS[case.start] {
        assert_eq!(run(&sides[*who], &given, *call), "done", "{call:?}");
        sides.iter().for_each(|side| follow(&side.volume));
    }
    // Both have numbers and paths in memory.
    for side in &sides {
        assert_eq!(run(side, &given, S3(Action::Put("warm", 1))), "done");
        let _ = run(side, &given, S3(Action::Delete("warm")));
    }
    let used = usage(&sides[0]);
    let more = if case.tight { (1, 250) } else { (100, 10_000) };
    let quota = Quota { objects: Some(used.objects + more.0), bytes: Some(used.bytes + more.1) };
    wait(sides[1].volume.set_quota("b", quota)).unwrap();
    sides.iter().for_each(|side| follow(&side.volume));
    Pair { engine, sides, given }
}

fn reclaim(volume: &Volume) {
    let done = volume.reclaim_once(&ALL, &SealedLogs).unwrap();
    assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
}

fn go_on(sides: [&Side; 2], then: Then) {
    match then {
        Then::Nothing => {}
        Then::Follow => follow(&sides[0].volume),
        Then::Reclaim => {
            for _ in 0..2 {
                sides.iter().for_each(|side| drop(side.volume.beat().unwrap()));
                reclaim(&sides[1].volume);
            }
        }
    }
}

/// Keys with sizes and contents, and what their sizes come to.
fn objects(volume: &Volume) -> (String, u64, u64) {
    let request =
        ListRequest { bucket: "b", prefix: "", delimiter: None, after: None, after_is_prefix: false, max: 1000 };
    let mut listed = Vec::new();
    wait(volume.list(&request, &mut |item| {
        if let ListItem::Object { key, size, .. } = item {
            listed.push((key.to_owned(), size));
        }
    }))
    .unwrap();
    let (mut text, mut bytes) = (String::new(), 0);
    for (key, size) in &listed {
        let body = read_all(&wait(volume.get_object("b", key, &ReadCondition::default())).unwrap());
        assert_eq!(body.len() as u64, *size, "{key}");
        let sum = body.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte));
        write!(text, " {key}={size}:{sum}").unwrap();
        bytes += size;
    }
    // A directory is no object of usage.
    let count = listed.iter().filter(|(key, _)| !key.ends_with('/')).count();
    (text, count as u64, bytes)
}

/// The events of each target and key, in their order.
fn events(side: &Side) -> (String, u64) {
    let (mut found, mut count) = (BTreeMap::<_, Vec<_>>::new(), 0);
    for target in ["all", "of b"] {
        for queued in wait(side.volume.queued_events(target, 1000)).unwrap() {
            let event = queued.event;
            count += 1;
            if event.key != "warm" {
                found.entry((target, event.key)).or_default().push((event.kind, event.size));
            }
        }
    }
    (format!(" {found:?}"), count)
}

/// What can be seen afterwards, without times. Where it is about reclaim, everything that may go has gone before that.
fn seen(pair: &Pair, stores: &Stores, then: Then) -> String {
    let [first, second] = &pair.sides;
    let reclaims = then == Then::Reclaim;
    for _ in 0..2 * usize::from(reclaims) {
        pair.sides.iter().for_each(|side| drop(side.volume.beat().unwrap()));
        pair.sides.iter().for_each(|side| reclaim(&side.volume));
    }
    let [one, other] = [first, second].map(|side| {
        follow(&side.volume);
        let (mut text, objects, bytes) = objects(&side.volume);
        let used = usage(side);
        assert_eq!((used.objects, used.bytes, used.versions), (objects, bytes, 0), "counters are what the tree holds");
        show_tree(&side.mount, side.mount.root(), "", &mut text);
        let (told, count) = events(side);
        assert_eq!(side.volume.events_waiting(), count, "the count of events");
        let report = side.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
        assert!(!reclaims || (report.orphans, report.unreachable_segments) == (0, 0), "{report:#?}");
        let (uploads, parts, live) = (report.uploads, report.parts, report.live_bytes);
        text + &told + &format!(" {uploads} {parts} {live} {}", report.directories)
    });
    assert_eq!(one, other, "both see the same");
    assert!(stores.iter().all(|(_, store)| store.taken_back() == 0), "nothing was set aside that somebody reads");
    one
}

/// A broken invariant is seen as well.
fn outcome(pair: &Pair, stores: &Stores, then: Then, answers: &[String; 2]) -> String {
    let seen = catch_unwind(AssertUnwindSafe(|| seen(pair, stores, then)));
    let seen = seen.unwrap_or_else(|_| " broken, see above".to_owned());
    format!("{answers:?}{seen}")
}

/// Only a file that is open long before is prepared long before.
fn ahead(side: &Side, call: Call) -> Option<Result<Prepared, PosixError>> {
    matches!(call, Publish(..)).then(|| prepare(side, call))
}

fn in_order(stores: &Stores, case: &Case, swap: bool) -> String {
    let pair = pair(stores, case);
    let [first, second] = &pair.sides;
    let (prepared, held) = (prepare(first, case.one), ahead(second, case.two));
    let beside = || {
        let answer = finish(second, &pair.given, case.two, held.unwrap_or_else(|| prepare(second, case.two)));
        go_on([first, second], case.then);
        answer
    };
    let answers = if swap {
        let answer = beside();
        [finish(first, &pair.given, case.one, prepared), answer]
    } else {
        let answer = finish(first, &pair.given, case.one, prepared);
        [answer, beside()]
    };
    outcome(&pair, stores, case.then, &answers)
}

/// Nothing when the first one has fewer moments.
fn interleaved(stores: &Stores, case: &Case, at: usize) -> Option<String> {
    let pair = Arc::new(pair(stores, case));
    let (prepared, held) = (prepare(&pair.sides[0], case.one), ahead(&pair.sides[1], case.two));
    let answer = Arc::new(Mutex::new(None));
    let (inner, slot, two, then) = (Arc::downgrade(&pair), Arc::clone(&answer), case.two, case.then);
    let hook = move || {
        let pair = inner.upgrade().unwrap();
        let [first, second] = &pair.sides;
        let prepared = held.unwrap_or_else(|| prepare(second, two));
        *slot.lock() = Some(finish(second, &pair.given, two, prepared));
        go_on([first, second], then);
    };
    pair.engine.arm(at, Box::new(hook));
    let done = finish(&pair.sides[0], &pair.given, case.one, prepared);
    if pair.engine.disarm() {
        return None;
    }
    let other = answer.lock().take()?;
    Some(outcome(&pair, stores, then, &[done, other]))
}

/// What was found; the weaker promises by name.
#[derive(Debug, Default)]
struct Found {
    runs: usize,
    weaker: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

/// What else may come out than one of the two orders, and why.
fn weaker_promises(stores: &Stores, case: &Case) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let orders = |case: &Case| [false, true].map(|swap| in_order(stores, case, swap));
    if let Write(path, len) = case.one {
        let opened = Case { one: Publish(path, len), ..*case };
        all.extend(orders(&opened).map(|one| ("a write has two moments, its open and its publish", one)));
    }
    if let Truncate(path, size) = case.one {
        let opened = Case { one: Shorten(path, size), ..*case };
        all.extend(orders(&opened).map(|one| ("a truncation has two moments, too", one)));
    }
    if let Link(..) = case.one {
        // The kernel knows the file by a number, and the new name is there by now.
        let found =
            |one: String| ("the file of a link is found under its new name", one.replacen("NotFound", "Exists", 1));
        all.extend(orders(case).map(found));
    }
    if case.tight {
        // Q1 of bucket/quota.rs.
        let loose = Case { tight: false, ..*case };
        all.extend(orders(&loose).map(|one| ("a quota is exceeded by what is in flight", one)));
    }
    all
}

fn all_moments(case: &Case, found: &mut Found) {
    let stores = &two_stores::stores();
    let orders = [false, true].map(|swap| in_order(stores, case, swap));
    assert!(orders.iter().all(|one| !one.contains("broken")), "{case:?}: {orders:#?}");
    let mut weaker = None;
    for at in 0.. {
        let Some(seen) = interleaved(stores, case, at) else { return };
        found.runs += 1;
        if orders.contains(&seen) {
            continue;
        }
        let allowed = weaker.get_or_insert_with(|| weaker_promises(stores, case));
        match allowed.iter().find(|(_, one)| *one == seen) {
            Some((name, _)) => *found.weaker.entry(*name).or_default() += 1,
            None => {
                let told = format!("{case:?} at moment {at}:\n{seen}\nnot {orders:#?}\nnor {allowed:#?}");
                println!("different: {told}");
                found.wrong.push(told);
            }
        }
    }
}

fn all(cases: &[Case]) -> Found {
    let found: Vec<Found> = std::thread::scope(|scope| {
        let half = |which| {
            move || {
                let mut found = Found::default();
                cases.iter().skip(which).step_by(2).for_each(|case| all_moments(case, &mut found));
                found
            }
        };
        let threads = [0, 1].map(|which| scope.spawn(half(which)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    found.into_iter().fold(Found::default(), |mut all, one| {
        all.runs += one.runs;
        all.wrong.extend(one.wrong);
        one.weaker.into_iter().for_each(|(name, count)| *all.weaker.entry(name).or_default() += count);
        all
    })
}

/// All pairs from all starts, or of them the core: a part with each operation on both sides, other pairs for each test.
fn cases(then: Then, tight: bool, which: usize) -> Vec<Case> {
    let every = if std::env::var_os("MARGAY_TEST_FULL").is_some() { 1 } else { CORE_EVERY };
    let pairs = CALLS.iter().flat_map(|one| CALLS.iter().map(|two| (*one, *two)));
    let of = |start| pairs.clone().map(move |(one, two)| Case { start, one, two, then, tight });
    (0..STARTS.len()).flat_map(of).skip(which % every).step_by(every).collect()
}

fn check(name: &str, cases: &[Case]) {
    let Found { runs, weaker, wrong } = all(cases);
    println!("evidence: {name}: {} pairs, {runs} interleavings, {} differences; {weaker:?}", cases.len(), wrong.len());
    let titles: String = wrong.iter().filter_map(|one| one.lines().next()).map(|one| one.to_owned() + "\n").collect();
    assert!(wrong.is_empty(), "{} of {runs}:\n{titles}", wrong.len());
    assert!(runs > 3 * cases.len(), "{runs} runs");
}

#[test]
fn two_processes_are_as_if_one_came_first() {
    check("two processes", &cases(Then::Nothing, false, 0));
}

#[test]
fn two_processes_with_the_follower_in_between_are_as_if_one_came_first() {
    check("two processes, followed", &cases(Then::Follow, false, 3));
}

#[test]
fn two_processes_with_reclaim_in_between_are_as_if_one_came_first() {
    check("two processes, reclaimed", &cases(Then::Reclaim, false, 6));
}

#[test]
fn two_processes_at_the_quota_are_as_if_one_came_first() {
    check("two processes, quota", &cases(Then::Nothing, true, 9));
}
