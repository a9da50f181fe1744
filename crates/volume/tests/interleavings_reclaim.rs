//! Reclaim and one other operation at once, in every order of their steps, on two volumes over one engine.
//!
//! Why:        reclaim reads rows, copies bytes and commits once for each run, so an operation may run whole between any
//!             two of its calls; and a whole pass may run between any two calls of an operation.
//! Invariants: reclaim cannot be seen: answers, contents, counters and what fsck says are those of the operation alone.
//!             The hook also runs behind each call: before the pin that follows a read, and before the next call.
//! Not here:   two operations that are not reclaim (interleavings).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use margay_env::Env;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::{self, Action, Given};
use world::interposed::Interposed;
use world::maintenance::ALL;
use world::tree::{NEW, plain};
use world::*;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

/// Interleavings that a failure tells in full.
const SHOWN_MAX: usize = 2;

/// Bytes of `f`; copies of ranges this long share runs.
const LARGE: usize = 66_000;

/// One call on the file `f` of the mount, published when it changes bytes. On a handle that is held since the start,
/// the file's state was read before.
#[derive(Clone, Copy, Debug)]
enum Call {
    Write(usize, usize),
    Append(usize),
    Truncate(usize),
    Punch(usize, usize),
    Zero(usize, usize),
    /// From `f` to `g`.
    CopyRange(usize, usize, usize),
    /// From `g` to `f`.
    CopyRangeBack(usize, usize, usize),
    CopyInside(usize, usize, usize),
    Create,
    Read,
    RenameTo(&'static str, RenameMode),
    LinkIt,
    Unlink(&'static str),
    Chmod,
    Xattr,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Opened(Call),
    Held(Call),
    S3(Action),
    Get(&'static str),
    Usage,
}

use Action::*;
use Call::*;
use Step::*;

const STEPS: [Step; 40] = [
    Opened(Write(100, 1)),
    Opened(Write(30_000, 1)),
    Opened(Write(50_000, 5000)),
    Opened(Append(50)),
    Opened(Append(9000)),
    Opened(Truncate(0)),
    Opened(Truncate(31_000)),
    Opened(Truncate(80_000)),
    Opened(Punch(20_000, 15_000)),
    Opened(Zero(5000, 100)),
    Opened(CopyRange(0, 0, LARGE)),
    Opened(CopyRangeBack(0, 0, LARGE)),
    Opened(CopyInside(0, 33_000, 30_000)),
    Opened(Create),
    Opened(Read),
    Opened(RenameTo("n", RenameMode::Replace)),
    Opened(RenameTo("g", RenameMode::Replace)),
    Opened(RenameTo("g", RenameMode::Exchange)),
    Opened(LinkIt),
    Opened(Unlink("f")),
    Opened(Unlink("g")),
    Opened(Chmod),
    Opened(Xattr),
    Held(Write(100, 1)),
    Held(Write(50_000, 5000)),
    Held(Append(9000)),
    Held(Truncate(31_000)),
    Held(Punch(20_000, 15_000)),
    Held(CopyRange(0, 0, LARGE)),
    Held(CopyRangeBack(0, 0, LARGE)),
    Held(CopyInside(0, 33_000, 30_000)),
    Held(Read),
    Held(Unlink("f")),
    S3(Put("f", 5000)),
    S3(Delete("f")),
    S3(Copy("f", "g")),
    S3(Copy("g", "f")),
    S3(Rename("f", "g")),
    Get("f"),
    Usage,
];

const STEPS_OF_UPLOADS: [Step; 6] =
    [S3(PutPart), S3(ReplacePart), S3(Complete("f")), S3(Abort), S3(DeleteVersion(0)), S3(Set(Versioning::Enabled))];

/// What is there before, by what it is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// One run in the entry.
    Whole,
    /// A run that several extents of the entry name.
    Split,
    /// Extents in rows of their own.
    Rows,
    /// Rows, of which another file names some runs, and a second name.
    Shared,
    /// Rows, and versions are kept.
    Versions,
    /// Bytes that are written and not published.
    Pending,
}

struct Pair {
    engine: Arc<Interposed>,
    first: Arc<Volume>,
    mount: Arc<Mount>,
    second: Arc<Volume>,
    held: Option<Handle>,
    given: Given,
}

#[derive(Debug, Default)]
struct Counts {
    runs: AtomicU64,
    moved: AtomicU64,
    removed: AtomicU64,
}

fn ok<T>(done: Result<T, PosixError>) -> String {
    done.map_or_else(|error| format!("{error:?}"), |_| "done".to_owned())
}

fn large_body(len: usize) -> &'static [u8] {
    static BODY: OnceLock<Vec<u8>> = OnceLock::new();
    &BODY.get_or_init(|| body_of(1, 80_000))[80_000 - len..]
}

fn open(pair: &Pair, name: &str) -> Result<Handle, PosixError> {
    let found = pair.mount.lookup(pair.mount.root(), &plain(name))?;
    pair.mount.open_file(found.ino, BOTH)
}

fn with_handle(pair: &Pair, call: Call, handle: &Handle) -> Result<String, PosixError> {
    let mount = &pair.mount;
    let root = mount.root();
    let size = |size| AttributeChange { size: Some(size as u64), ..AttributeChange::default() };
    let other = |from: (&Handle, usize), to: (&Handle, usize), len: usize| {
        mount.copy_range(from.0, from.1 as u64, to.0, to.1 as u64, len as u64, false)
    };
    match call {
        Write(at, len) => drop(mount.write(handle, at as u64, &body_of(at, len), false)?),
        Append(len) => {
            let at = mount.attributes(handle.ino())?.size;
            mount.write(handle, at, &body_of(7, len), false)?;
        }
        Truncate(to) => drop(mount.set_attributes(handle.ino(), &size(to))?),
        Punch(at, len) => mount.allocate(handle, Allocate::PunchHole, at as u64, len as u64, false)?,
        Zero(at, len) => {
            mount.allocate(handle, Allocate::ZeroRange { keep_size: true }, at as u64, len as u64, false)?
        }
        CopyRange(from, to, len) => {
            let target = open(pair, "g")?;
            let copied = other((handle, from), (&target, to), len)?;
            mount.sync(&target)?;
            mount.release(target)?;
            return Ok(format!("copied {copied}"));
        }
        CopyRangeBack(from, to, len) => {
            let source = open(pair, "g")?;
            let copied = other((&source, from), (handle, to), len)?;
            mount.sync(handle)?;
            mount.release(source)?;
            return Ok(format!("copied {copied}"));
        }
        CopyInside(from, to, len) => drop(other((handle, from), (handle, to), len)?),
        Create => {
            let (_, new) = mount.create(root, &plain("new"), &NEW, BOTH)?;
            mount.write(&new, 0, &body_of(3, 20_000), false)?;
            mount.sync(&new)?;
            mount.release(new)?;
        }
        Read => return Ok(shown(&mount.read(handle, 0, 1 << 20)?)),
        RenameTo(to, mode) => mount.rename(root, &plain("f"), root, &plain(to), mode)?,
        LinkIt => drop(mount.link(handle.ino(), root, &plain("link"))?),
        Unlink(name) => mount.unlink(root, &plain(name))?,
        Chmod => {
            let change = AttributeChange { rights: Some(0o700), ..AttributeChange::default() };
            mount.set_attributes(handle.ino(), &change)?;
        }
        Xattr => mount.set_xattr(handle.ino(), b"user.x", b"1", SetXattr::Any, false)?,
    }
    mount.sync(handle)?;
    Ok("done".to_owned())
}

/// Of what is in a file, as much as it takes to compare it.
fn shown(bytes: &[u8]) -> String {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} bytes, {:016x}", bytes.len(), hasher.finish())
}

fn get(volume: &Volume, key: &str) -> String {
    let reader = match wait(volume.get_object("b", key, &ReadCondition::default())) {
        Ok(reader) => reader,
        Err(error) => return format!("{error:?}"),
    };
    read_whole(&reader)
}

fn read_whole(reader: &Reader) -> String {
    let mut body = Vec::new();
    loop {
        match wait(reader.read(body.len() as u64, u64::MAX)) {
            Ok(bytes) if bytes.is_empty() => return shown(&body),
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(error) => return format!("{error:?}"),
        }
    }
}

fn run(pair: &Pair, step: Step) -> String {
    match step {
        Opened(call) => {
            let done = open(pair, "f").and_then(|handle| {
                let done = with_handle(pair, call, &handle)?;
                pair.mount.release(handle)?;
                Ok(done)
            });
            done.unwrap_or_else(|error| format!("{error:?}"))
        }
        Held(call) => {
            let handle = pair.held.as_ref().unwrap();
            with_handle(pair, call, handle).unwrap_or_else(|error| format!("{error:?}"))
        }
        S3(action) => actions::run(&pair.first, &pair.given, action),
        Get(key) => get(&pair.first, key),
        Usage => format!("{:?}", wait(pair.first.usage("b"))),
    }
}

fn reclaim(volume: &Volume, counts: &Counts) -> String {
    match volume.reclaim_once(&ALL, &SealedLogs) {
        Ok(done) => {
            counts.moved.fetch_add(done.moved_runs, Ordering::Relaxed);
            counts.removed.fetch_add(done.removed_segments, Ordering::Relaxed);
            format!("{} damaged, {} disputed", done.damaged_runs, done.disputed_segments)
        }
        Err(error) => format!("{error:?}"),
    }
}

/// Without a held handle nothing pins what the step works on.
fn pair(store: &Arc<Store>, start: Start, hold: bool) -> Pair {
    let env = env(1);
    let engine = Arc::new(Interposed::on_both_sides(Arc::new(Memory::with_payloads(Arc::clone(store), 4096))));
    // Writes of more than a payload go to the store; a file with more extents than fit its entry has rows.
    let options = Options { run_bytes_max: 40 << 10, file_memory_bytes_max: 96 << 10, ..Options::default() };
    let volume = || {
        let engine: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
        Volume::open(env.clone(), engine, Arc::clone(store), options.clone()).unwrap()
    };
    let (first, second) = (volume(), volume());
    wait(first.create_bucket("b")).unwrap();
    if start == Start::Versions {
        wait(first.set_versioning("b", Versioning::Enabled)).unwrap();
    }
    let mount = Mount::open(Arc::clone(&first), "b", "", MountOptions::default()).unwrap();
    let upload = wait(first.create_multipart("b", "a/m", Headers::new(), Documents::new())).unwrap().upload;
    let given = Given { upload, ..Given::default() };
    let mut pair = Pair { engine, first, mount, second, held: None, given };
    actions::run(&pair.first, &pair.given, PutPart);
    for (name, len) in [("f", LARGE), ("g", 70_000)] {
        let (_, handle) = pair.mount.create(pair.mount.root(), &plain(name), &NEW, BOTH).unwrap();
        pair.mount.write(&handle, 0, large_body(len), false).unwrap();
        pair.mount.release(handle).unwrap();
    }
    let writes: &[usize] = match start {
        Start::Whole => &[],
        Start::Split | Start::Pending => &[40_000],
        Start::Rows | Start::Shared | Start::Versions => &[10_000, 20_000, 40_000],
    };
    for at in writes {
        let handle = open(&pair, "f").unwrap();
        pair.mount.write(&handle, *at as u64, b"?", false).unwrap();
        pair.mount.release(handle).unwrap();
    }
    if start == Start::Shared {
        assert_eq!(run(&pair, Opened(CopyRange(0, 500, LARGE))), format!("copied {LARGE}"));
        assert_eq!(run(&pair, Opened(LinkIt)), "done");
        pair.mount
            .rename(pair.mount.root(), &plain("link"), pair.mount.root(), &plain("z"), RenameMode::Replace)
            .unwrap();
    }
    if start == Start::Pending {
        let handle = open(&pair, "f").unwrap();
        pair.mount.write(&handle, 12_345, &body_of(9, 7000), false).unwrap();
        pair.held = Some(handle);
    } else if hold {
        pair.held = Some(open(&pair, "f").unwrap());
    }
    pair
}

/// What can be seen afterwards, without times; lets go of the pair.
fn outcome(mut pair: Pair, answer: &str) -> String {
    let mut text = answer.to_owned();
    if let Some(held) = pair.held.take() {
        text += &format!("\n held: {:?}", pair.mount.read(&held, 0, 1 << 20).map(|bytes| shown(&bytes)));
        text += &format!("\n released: {}", ok(pair.mount.release(held)));
    }
    let mut lines = Vec::new();
    let directory = pair.mount.open_directory(pair.mount.root()).unwrap();
    let mut visit = |item: &DirectoryItem<'_>| {
        lines.push((item.name.to_owned(), item.kind));
        true
    };
    pair.mount.read_directory(&directory, 0, true, &mut visit).unwrap();
    for (name, kind) in lines {
        if kind == FileKind::Regular {
            let by_mount = open(&pair, &name).and_then(|handle| pair.mount.read(&handle, 0, 1 << 20));
            let by_mount = by_mount.map_or_else(|error| format!("{error:?}"), |bytes| shown(&bytes));
            let by_s3 = get(&pair.second, &name);
            text += &format!(
                "\n {name}: {by_mount}{}",
                if by_mount == by_s3 { String::new() } else { format!(", but {by_s3}") }
            );
        }
    }
    for (key, version, is_latest, content) in actions::lines(&pair.first) {
        if is_latest {
            continue;
        }
        let size = content.map(|(size, _)| size);
        let body = size.map(|_| wait(pair.first.get_version("b", &key, Some(version), &ReadCondition::default())));
        let body = body.map(|reader| reader.map_or_else(|error| format!("{error:?}"), |reader| read_whole(&reader)));
        text += &format!("\n {key}: {} {body:?}", version == VersionId::Null);
    }
    let report = pair.second.fsck(FsckOptions::default()).unwrap();
    let shared = report.shared_runs;
    text += &format!("\n {:?} {} {} {}", report.shown, report.uploads, report.parts, report.live_bytes);
    text + &format!(" {shared} {} {}", report.versions, report.orphans)
}

fn env(seed: u64) -> Env {
    let (disk, random) = (SimDisk::new(seed), SimRandom::new(seed));
    Env { disk: Arc::new(disk), clock: Arc::new(RealClock::new()), random: Arc::new(random) }
}

fn store() -> Arc<Store> {
    let mut options = margay_segment::Options::new(Path::new("/segments"));
    (options.pack_bytes_max, options.reserve_bytes) = (256 << 10, 0);
    Store::open(env(1), options).unwrap()
}

/// The step whole at moment `at` of a pass; nothing when the pass has fewer moments.
fn inside_reclaim(store: &Arc<Store>, start: Start, step: Step, at: usize, counts: &Counts) -> Option<String> {
    let pair = Arc::new(pair(store, start, matches!(step, Held(_))));
    let answer = Arc::new(Mutex::new(None));
    let (inner, slot) = (Arc::clone(&pair), Arc::clone(&answer));
    pair.engine.arm(at, Box::new(move || *slot.lock() = Some(run(&inner, step))));
    let reclaimed = reclaim(&pair.second, counts);
    if pair.engine.disarm() {
        return None;
    }
    let answer = answer.lock().take()?;
    assert_eq!(reclaimed, "0 damaged, 0 disputed");
    Some(outcome(Arc::into_inner(pair).unwrap(), &answer))
}

/// A whole pass at moment `at` of the step.
fn around_reclaim(store: &Arc<Store>, start: Start, step: Step, at: usize, counts: &Arc<Counts>) -> Option<String> {
    let pair = pair(store, start, matches!(step, Held(_)));
    let reclaimed = Arc::new(Mutex::new(None));
    let (second, slot, counted) = (Arc::clone(&pair.second), Arc::clone(&reclaimed), Arc::clone(counts));
    // Two passes: what the first one moved is gone after the second.
    let passes = move || *slot.lock() = Some([reclaim(&second, &counted), reclaim(&second, &counted)]);
    pair.engine.arm(at, Box::new(passes));
    let answer = run(&pair, step);
    if pair.engine.disarm() {
        return None;
    }
    assert_eq!(reclaimed.lock().take()?, ["0 damaged, 0 disputed", "0 damaged, 0 disputed"]);
    Some(outcome(pair, &answer))
}

/// Gives what can be seen.
fn all_moments(start: Start, steps: &[Step], counts: &Arc<Counts>) -> Vec<String> {
    let store = store();
    let mut seen_reclaim = Vec::new();
    // Where nothing but the bytes that wait is new, only what a held handle does with them is.
    let matters = |step: &&Step| match start {
        Start::Pending => matches!(step, Held(_)),
        Start::Whole | Start::Split => !matches!(step, Held(_)),
        Start::Rows | Start::Shared | Start::Versions => true,
    };
    for &step in steps.iter().filter(matters) {
        let alone = pair(&store, start, matches!(step, Held(_)));
        let answer = run(&alone, step);
        let alone = outcome(alone, &answer);
        assert!(alone.contains(" [] ") && !alone.contains(", but"), "{step:?} on {start:?} alone: {alone}");
        type Moment<'a> = (&'static str, &'a dyn Fn(usize) -> Option<String>);
        let inside = |at| inside_reclaim(&store, start, step, at, counts);
        let around = |at| around_reclaim(&store, start, step, at, counts);
        let moments: [Moment<'_>; 2] = [("at moment", &inside), ("with reclaim at its moment", &around)];
        for (what, at_moment) in moments {
            for at in 0.. {
                let Some(seen) = at_moment(at) else { break };
                counts.runs.fetch_add(1, Ordering::Relaxed);
                if seen != alone {
                    seen_reclaim.push(format!("{step:?} {what} {at}, on {start:?}:\n{seen}\nalone:\n{alone}"));
                }
            }
        }
    }
    seen_reclaim
}

/// All starts at once; what reclaim did in all of them.
fn all_starts(starts: &[Start], steps: &'static [Step]) {
    let counts = Arc::new(Counts::default());
    let seen: Vec<String> = std::thread::scope(|scope| {
        let one = |start: &Start| {
            let (start, counts) = (*start, Arc::clone(&counts));
            scope.spawn(move || all_moments(start, steps, &counts))
        };
        let threads: Vec<_> = starts.iter().map(one).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let titles = seen.iter().filter_map(|one| one.lines().next()).fold(String::new(), |all, one| all + one + "\n");
    let shown = seen.iter().take(SHOWN_MAX).fold(String::new(), |all, one| all + one + "\n");
    assert!(seen.is_empty(), "{} interleavings show reclaim:\n{titles}{shown}", seen.len());
    let [runs, moved, removed] =
        [&counts.runs, &counts.moved, &counts.removed].map(|count| count.load(Ordering::Relaxed));
    println!("evidence: {runs} interleavings with reclaim, which moved {moved} runs and removed {removed} segments");
    assert!(moved > runs && removed > runs, "{counts:?}");
}

#[test]
fn reclaim_beside_one_operation_cannot_be_seen() {
    let starts = [Start::Whole, Start::Split, Start::Rows, Start::Shared, Start::Pending];
    all_starts(&starts, &STEPS);
}

#[test]
fn reclaim_beside_versions_cannot_be_seen() {
    all_starts(&[Start::Versions], &STEPS);
}

#[test]
fn reclaim_beside_uploads_cannot_be_seen() {
    all_starts(&[Start::Whole, Start::Rows], &STEPS_OF_UPLOADS);
}
