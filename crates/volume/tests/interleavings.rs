//! Two operations at once, in every order of their reads and commits, on two volumes over one engine.
//!
//! Why:   an operation reads and then commits once. While neither has committed both read the same rows, so every
//!        interleaving is the same as one operation running whole between two engine calls of the other.
//!        This runs all of them. What must come out is what one of the two orders gives, and a clean fsck.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::ops::ControlFlow;
use std::sync::Arc;

use margay_env::Env;
use margay_meta::memory::Memory;
use margay_meta::*;
use margay_segment::Store;
use margay_volume::*;
use parking_lot::Mutex;
use world::*;

type Hook = Box<dyn FnOnce() + Send>;

/// Passes calls on; before call number `at` it runs the hook once.
struct Interposed {
    engine: Arc<Memory>,
    left: Mutex<Option<(usize, Hook)>>,
}

impl std::fmt::Debug for Interposed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Interposed")
    }
}

impl Interposed {
    fn step(&self) {
        let mut left = self.left.lock();
        let due = match left.as_mut() {
            Some((0, _)) => left.take(),
            Some((count, _)) => {
                *count -= 1;
                None
            }
            None => None,
        };
        drop(left);
        if let Some((_, hook)) = due {
            hook();
        }
    }
}

impl Engine for Interposed {
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        self.step();
        self.engine.get(key)
    }
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.step();
        self.engine.scan(start, end, visit)
    }
    fn commit(&self, batch: Batch) -> Result<Seq, CommitError> {
        self.step();
        self.engine.commit(batch)
    }
    fn durable(&self, seq: Seq) -> DurableFuture<'_> {
        self.engine.durable(seq)
    }
    fn wait_durable(&self, seq: Seq) -> Result<(), EngineError> {
        self.engine.wait_durable(seq)
    }
    fn last_seq(&self) -> Seq {
        self.engine.last_seq()
    }
    fn durable_seq(&self) -> Seq {
        self.engine.durable_seq()
    }
    fn changes_since(&self, after: Seq, limit: usize) -> Result<Vec<Change>, TailLost> {
        self.engine.changes_since(after, limit)
    }
    fn payload_bytes_max(&self) -> usize {
        self.engine.payload_bytes_max()
    }
    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        self.step();
        self.engine.snapshot()
    }
    fn checkpoint(&self) -> Result<(), EngineError> {
        self.engine.checkpoint()
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Put(&'static str, usize),
    PutAbsent(&'static str),
    Delete(&'static str),
    Copy(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    MakeDirectory(&'static str),
    PutPart,
    ReplacePart,
    Complete(&'static str),
    Abort,
    DeleteBucket,
    /// Of the versions that `a/x` had at the start, counted from the oldest.
    DeleteVersion(usize),
    Set(Versioning),
}

use Action::*;

const ACTIONS: [Action; 26] = [
    Put("a/x", 200),
    Put("a/y", 9),
    Put("a/b/c", 201),
    PutAbsent("a/x"),
    PutAbsent("c/n"),
    Delete("a/x"),
    Delete("a/y"),
    Delete("b/y"),
    Delete("a/"),
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

const VERSIONED_ACTIONS: [Action; 13] = [
    Put("a/x", 200),
    Put("a/b/c", 201),
    PutAbsent("a/x"),
    Delete("a/x"),
    DeleteVersion(0),
    DeleteVersion(1),
    DeleteVersion(2),
    Copy("a/x", "a/x"),
    Copy("a/x", "b/y"),
    Rename("a/x", "b/y"),
    PutAbsent("c/n"),
    Set(Versioning::Suspended),
    DeleteBucket,
];

/// The first is put before versions are kept.
const VERSIONED_STARTS: [&[Action]; 4] = [
    &[Put("a/x", 202)],
    &[Put("a/x", 203), Set(Versioning::Enabled), Put("a/x", 9), Delete("a/x")],
    &[Set(Versioning::Enabled), Put("a/x", 204), Put("a/x", 205), Put("a/x", 207)],
    &[Set(Versioning::Enabled), Put("a/x", 203), Delete("a/x"), Set(Versioning::Suspended), Put("a/x", 208)],
];

const STARTS: [&[Action]; 5] = [
    &[],
    &[Put("a/x", 202), PutPart],
    &[Put("a/x", 203), Put("a/y", 204), Copy("a/x", "b/y"), PutPart],
    &[MakeDirectory("a/"), Put("b/y", 205), Copy("b/y", "c/z")],
    &[Put("a/x", 207), Put("b/w", 3), Link("a/x", "a/z"), Link("a/z", "b/y"), PutPart],
];

/// The upload that `PutPart`, `Complete` and `Abort` mean, and its part's body.
const PART: usize = 206;

struct Pair {
    engine: Arc<Interposed>,
    first: Arc<Volume>,
    second: Arc<Volume>,
    given: Given,
}

/// Names that are known before the two operations run.
#[derive(Clone)]
struct Given {
    upload: String,
    /// Of `a/x`, the oldest first.
    versions: Vec<VersionId>,
}

fn ok<T>(done: Result<T, Error>) -> String {
    match done {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

fn removed(done: Result<Deleted, Error>) -> String {
    // Numbers differ from order to order.
    format!("{:?}", done.map(|deleted| (deleted.removed, deleted.marker)))
}

fn run(volume: &Volume, given: &Given, action: Action) -> String {
    let upload = given.upload.as_str();
    let stage = |len: usize| {
        wait(async {
            let mut staging = volume.begin_upload("b", len as u64).await?;
            staging.write(body_of(len, len).into()).await?;
            staging.finish().await
        })
    };
    let put = |key, len: usize, condition| {
        let staged = stage(len)?;
        let etag = etag_of(&body_of(len, len));
        wait(volume.put_object(
            PutRequest { bucket: "b", key, etag, headers: Headers::new(), condition, ..PutRequest::default() },
            staged,
        ))
    };
    match action {
        Put(key, len) => ok(put(key, len, WriteCondition::None)),
        PutAbsent(key) => ok(put(key, 7, WriteCondition::Absent)),
        Delete(key) => removed(wait(volume.delete_object("b", &DeleteRequest::of(key)))),
        DeleteVersion(which) => {
            let version = given.versions.get(which).copied().or(Some(VersionId::Numbered(1 << 50)));
            removed(wait(volume.delete_object("b", &DeleteRequest { version, ..DeleteRequest::of("a/x") })))
        }
        Set(versioning) => ok(wait(volume.set_versioning("b", versioning))),
        Copy(source_key, key) => ok(wait(volume.copy_object(CopyRequest {
            source_bucket: "b",
            source_key,
            bucket: "b",
            key,
            ..CopyRequest::default()
        }))),
        Link(from, to) => rows::link(volume, "b", from, to),
        Rename(from, to) => ok(wait(volume.rename("b", from, to, &WriteCondition::None))),
        MakeDirectory(path) => ok(wait(volume.make_directory("b", path))),
        PutPart | ReplacePart => {
            let len = if matches!(action, PutPart) { PART } else { PART + 1 };
            ok(stage(len).and_then(|staged| {
                let etag = etag_of(&body_of(len, len));
                wait(volume.put_part("b", "a/m", upload, 1, etag, Headers::new(), staged))
            }))
        }
        Complete(key) => {
            let choice = [PartChoice { number: 1, etag: etag_of(&body_of(PART, PART)) }];
            let none = WriteCondition::None;
            ok(wait(volume.complete_multipart("b", key, upload, &choice, Headers::new(), &none)))
        }
        Abort => ok(wait(volume.abort_multipart("b", "a/m", upload))),
        DeleteBucket => ok(wait(volume.delete_bucket("b"))),
    }
}

fn pair(store: &Arc<Store>, start: &[Action], with_upload: bool) -> Pair {
    let memory = Arc::new(Memory::with_payloads(Arc::clone(store), 4096));
    let engine = Arc::new(Interposed { engine: memory, left: Mutex::new(None) });
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
    let mut given = Given { upload, versions: Vec::new() };
    for action in start {
        run(&first, &given, *action);
        // Both have numbers and paths in memory.
        let _ = run(&second, &given, Put("warm", 1));
        let _ = run(&second, &given, Delete("warm"));
    }
    given.versions = lines(&first).into_iter().filter(|line| line.0 == "a/x").map(|line| line.1).rev().collect();
    Pair { engine, first, second, given }
}

/// Key, id, whether it is the latest, and the content unless it is a delete marker.
type Shown = (String, VersionId, bool, Option<(u64, ETag)>);

/// All versions of the bucket, in the order of the listing.
fn lines(volume: &Volume) -> Vec<Shown> {
    let request = ListVersionsRequest { bucket: "b", prefix: "", delimiter: None, after: None, max: 1000 };
    let mut lines = Vec::new();
    let _ = wait(volume.list_versions(&request, &mut |item| match item {
        VersionItem::Version { key, version, is_latest, size, etag, .. } => {
            lines.push((key.to_owned(), version, is_latest, Some((size, etag))));
        }
        VersionItem::DeleteMarker { key, version, is_latest, .. } => {
            lines.push((key.to_owned(), version, is_latest, None));
        }
        VersionItem::Prefix(_) => {}
    }));
    lines
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
    *pair.engine.left.lock() = Some((at, hook));
    let first = run(&pair.first, &pair.given, one);
    let second = answer.lock().take()?;
    Some(outcome(&pair, [first, second]))
}

/// All pairs from one start; gives the number of interleavings.
fn all_pairs(start: &[Action], actions: &[Action]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
    let mut runs = 0;
    for &one in actions {
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
fn any_two_operations_on_versions_are_as_if_one_came_first() {
    let runs: usize = std::thread::scope(|scope| {
        let threads = VERSIONED_STARTS.map(|start| scope.spawn(move || all_pairs(start, &VERSIONED_ACTIONS)));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(runs > 2000, "{runs} runs");
}
