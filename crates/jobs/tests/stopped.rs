//! Two processes that share a volume, with all their jobs; one of them stands still past its leases and then goes on, as after
//! SIGSTOP and SIGCONT.
//!
//! Why:        the parts are tested alone; here the real keeper beats, and real jobs lose leases in the middle of what they do.
//! Invariants: the other one takes over by itself; each event arrives, and again only after a takeover, which a loaded
//!             machine may add; each object expires once; who went on late has a new session, and works.
//! Layout:     every call of the stopped process's engine waits, so all its threads stand still, wherever they are.
//! Not here:   a stop at each moment of one operation (margay-volume, tests/sessions.rs).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use margay_jobs::lifecycle::{Expiry, ExpiryLimits};
use margay_jobs::notify::{Notifier, Sender, Target};
use margay_jobs::reclaimer::{ReclaimLimits, Reclaimer};
use margay_jobs::session_keeper::SessionKeeper;
use margay_meta::memory::Memory;
use margay_meta::*;
use margay_metrics::Exposition;
use margay_s3::notification::Router;
use margay_segment::Store;
use margay_volume::{ETag, FsckOptions, Options, PutRequest, ReadCondition, Setting, Volume};
use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine whose calls wait while its process is stopped.
struct Stoppable {
    engine: Arc<Memory>,
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl std::fmt::Debug for Stoppable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Stoppable")
    }
}

impl Stoppable {
    fn set(&self, stopped: bool) {
        *self.stopped.lock() = stopped;
        self.changed.notify_all();
    }

    fn running(&self) -> &Memory {
        let mut stopped = self.stopped.lock();
        while *stopped {
            self.changed.wait(&mut stopped);
        }
        &self.engine
    }
}

impl Engine for Stoppable {
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        self.running().get(key)
    }
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.running().scan(start, end, visit)
    }
    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        self.running().read(asks, limit)
    }
    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.running().commit(batch)
    }
    fn durable(&self, seq: Cursor) -> DurableFuture<'_> {
        self.running().durable(seq)
    }
    fn wait_durable(&self, seq: Cursor) -> Result<(), EngineError> {
        self.running().wait_durable(seq)
    }
    fn last_cursor(&self) -> Cursor {
        self.running().last_cursor()
    }
    fn durable_cursor(&self) -> Cursor {
        self.running().durable_cursor()
    }
    fn unchanged_since(&self, cursor: Cursor) -> bool {
        self.running().unchanged_since(cursor)
    }
    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        self.running().changes(after, limit)
    }
    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        self.running().wait_changes(after)
    }
    fn is_shared(&self) -> bool {
        true
    }
    fn payload_bytes_max(&self) -> usize {
        self.engine.payload_bytes_max()
    }
    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        self.running().snapshot()
    }
    fn checkpoint(&self) -> Result<(), EngineError> {
        self.running().checkpoint()
    }
}

/// A process with a runtime of its own, whose threads may all stand still.
struct Process {
    engine: Arc<Stoppable>,
    volume: Arc<Volume>,
    keeper: SessionKeeper,
    runtime: Runtime,
    folder: tempfile::TempDir,
}

impl Process {
    fn start(memory: &Arc<Memory>) -> Process {
        let folder = tempfile::tempdir().unwrap();
        let (engine, changed) = (Arc::clone(memory), Condvar::new());
        let engine = Arc::new(Stoppable { engine, stopped: Mutex::new(false), changed });
        let mut stored = margay_segment::Options::new(folder.path().join("segments"));
        stored.reserve_bytes = 0;
        let store = Store::open(Env::real(), stored).unwrap();
        let options =
            Options { events: Some(Arc::new(Router)), beat_every: Duration::from_millis(100), ..Options::default() };
        let below = Arc::clone(&engine) as Arc<dyn Engine>;
        let volume = Volume::open(Env::real(), below, store, options).unwrap();
        let keeper = SessionKeeper::start(&Env::real(), &volume).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        Process { engine, volume, keeper, runtime, folder }
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn put(&self, key: &str) {
        self.wait(async {
            let staged = self.volume.begin_upload("bucket", 0).await.unwrap().finish().await.unwrap();
            let etag = ETag { digest: [1; 16], parts: 0 };
            let request = PutRequest { bucket: "bucket", key, etag, ..PutRequest::default() };
            self.volume.put_object(request, staged).await.unwrap();
        });
    }

    fn has(&self, key: &str) -> bool {
        self.wait(self.volume.head_object("bucket", key, &ReadCondition::default())).is_ok()
    }

    fn set(&self, setting: Setting, document: &str) {
        self.wait(self.volume.set_bucket_setting("bucket", setting, document.as_bytes())).unwrap();
    }
}

/// Two processes with a bucket.
fn two() -> [Process; 2] {
    let memory = Arc::new(Memory::new().shared(100_000));
    let processes = [(); 2].map(|()| Process::start(&memory));
    processes[0].wait(processes[0].volume.create_bucket("bucket")).unwrap();
    processes
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let clock = Env::real().clock;
    let began = clock.monotonic();
    while !done() {
        assert!(clock.monotonic() - began < PATIENCE, "{what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The second one takes the first for dead, and the first goes on.
fn stop_past_leases([one, other]: &[Process; 2], meanwhile: impl FnOnce()) {
    let session = one.volume.session().unwrap();
    one.engine.set(true);
    until("waited for its death", || {
        other.engine.engine.rows().keys().filter(|key| key.starts_with(b"js")).count() == 1
    });
    meanwhile();
    one.engine.set(false);
    until("waited for a new session", || one.volume.session().is_some_and(|now| now > session));
    assert!(one.volume.session_fault().is_none());
}

fn end(processes: [Process; 2]) {
    for process in &processes {
        let report = process.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean() && report.orphans == 0, "{report:#?}");
    }
    let memory = Arc::clone(&processes[0].engine.engine);
    for process in processes {
        process.keeper.end();
        process.runtime.shutdown_timeout(Duration::from_secs(1));
    }
    assert!(!memory.rows().keys().any(|key| key.starts_with(b"js")), "sessions that end leave no row");
}

#[test]
fn a_process_that_stood_still_has_a_new_session_and_works() {
    let processes = two();
    let [one, other] = &processes;
    let limits =
        ReclaimLimits { rate_max: 1 << 20, quarantine: Duration::ZERO, check_every: Duration::from_secs(86_400) };
    let reclaimers = processes
        .each_ref()
        .map(|process| Reclaimer::start(&Env::real(), Arc::clone(&process.volume), limits).unwrap());
    one.put("a");
    assert_eq!(one.volume.lease_here("job").unwrap().map(|lease| lease.epoch()), Some(1));
    assert!(other.volume.lease_here("job").unwrap().is_none());
    let is_ready = |process: &Process| process.keeper.ready().is_ok();
    assert!(is_ready(one) && is_ready(other));
    stop_past_leases(&processes, || {
        until("waited until nobody counts on it", || !is_ready(one));
        assert!(is_ready(other) && one.volume.session_fault().is_none(), "it does not know that it is taken for dead");
        assert_eq!(other.volume.lease_here("job").unwrap().map(|lease| lease.epoch()), Some(2));
        other.put("b");
    });
    assert!(one.volume.lease_here("job").unwrap().is_none());
    until("waited until it is counted on again", || is_ready(one));
    one.put("c");
    until("waited for the feed", || ["a", "b", "c"].iter().all(|key| one.has(key) && other.has(key)));
    drop(reclaimers);
    end(processes);
}

async fn body_on(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<Vec<u8>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", count)) => length = count.parse().unwrap(),
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(body)
}

/// A target that counts what it took, by key and order.
fn receiver(runtime: &Runtime) -> (Target, Arc<Mutex<BTreeMap<String, usize>>>) {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let target = Target::parse(&format!("orders=http://{}/", listener.local_addr().unwrap())).unwrap();
    let taken = Arc::new(Mutex::new(BTreeMap::new()));
    let notes = Arc::clone(&taken);
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let notes = Arc::clone(&notes);
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(body) = body_on(&mut stream).await {
                    let message: serde_json::Value = serde_json::from_slice(&body).unwrap();
                    let object = &message["Records"][0]["s3"]["object"];
                    *notes.lock().entry(format!("{} {}", object["key"], object["sequencer"])).or_default() += 1;
                    if stream.write_all(b"HTTP/1.1 204 Fine\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (target, taken)
}

#[test]
fn each_event_is_sent_by_one_process_and_again_only_over_a_stop() {
    let processes = two();
    let one = &processes[0];
    let outside = Runtime::new().unwrap();
    let (target, taken) = receiver(&outside);
    one.set(
        Setting::Notification,
        "<NotificationConfiguration><QueueConfiguration><Queue>arn:aws:sqs:r:a:orders</Queue>\
         <Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>",
    );
    let sender = Sender { region: "r".to_owned(), owner: "o".to_owned() };
    let notifiers = processes.each_ref().map(|process| {
        let _inside = process.runtime.enter();
        Notifier::start(&process.volume, vec![target.clone()], &sender)
    });
    let sent = |count: usize| until("waited for events", || taken.lock().len() == count);
    for number in 0..100 {
        processes[number % 2].put(&format!("k{}", number % 7));
    }
    sent(100);
    let epoch = |process: &Process| process.volume.lease_here("notify/orders").unwrap().map(|lease| lease.epoch());
    let is_sent_once_each = |epochs: u64| taken.lock().values().all(|count| *count <= epochs as usize);
    let waiting = |processes: &[Process; 2]| processes.each_ref().map(|process| process.volume.events_waiting());
    until("waited for the count of both", || waiting(&processes) == [0, 0]);
    // In the middle of its rounds, if it has the lease.
    let holder = epoch(one);
    let first = holder.or_else(|| epoch(&processes[1])).unwrap();
    assert!(is_sent_once_each(first), "epoch {first}: {:?}", taken.lock());
    let holder = holder.is_some();
    let stopped =
        if holder { processes } else { processes.into_iter().rev().collect::<Vec<_>>().try_into().ok().unwrap() };
    let [holder, next] = &stopped;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|number| next.put(&format!("late{number}"))));
        std::thread::sleep(Duration::from_millis(20));
        stop_past_leases(&stopped, || sent(300));
    });
    holder.put("last");
    sent(301);
    until("waited for the count of both, at last", || waiting(&stopped) == [0, 0]);
    // Each epoch sends an event at most once, and the last one began after the stop.
    let last = epoch(next).or_else(|| epoch(holder)).unwrap();
    assert!(last > first && is_sent_once_each(last), "epoch {last}: {:?}", taken.lock());
    let twice = taken.lock().values().filter(|count| **count > 1).count();
    println!("evidence: 301 events in {last} epochs of their lease, {twice} of them more than once");
    notifiers.iter().for_each(Notifier::stop);
    drop(notifiers);
    end(stopped);
}

/// Objects that expired according to this process.
fn expired(expiry: &Expiry) -> u64 {
    let mut out = Exposition::default();
    expiry.write_metrics(&mut out);
    let text = out.finish();
    let line = text.lines().find(|line| line.starts_with("margay_expiry_objects_total")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn each_object_expires_once_and_the_rounds_go_on_over_a_stop() {
    let processes = two();
    let one = &processes[0];
    one.set(
        Setting::Lifecycle,
        "<LifecycleConfiguration><Rule><Filter></Filter><Status>Enabled</Status>\
         <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>",
    );
    let limits = ExpiryLimits { day: 1, rate_max: 100, clock_wait: Duration::ZERO };
    let rounds = processes.each_ref().map(|process| {
        let _inside = process.runtime.enter();
        Expiry::start(&Env::real(), &process.volume, process.folder.path(), limits)
    });
    let both = || rounds.iter().map(expired).collect::<Vec<_>>();
    for number in 0..50 {
        processes[number % 2].put(&format!("k{number}"));
    }
    until("waited for expiry", || both().iter().sum::<u64>() == 50);
    assert!(both().contains(&0), "one process makes the rounds: {:?}", both());
    (0..100).for_each(|number| processes[1].put(&format!("late{number}")));
    let holder = usize::from(both()[0] == 0);
    let stopped =
        if holder == 0 { processes } else { processes.into_iter().rev().collect::<Vec<_>>().try_into().ok().unwrap() };
    until("waited for a round", || both().iter().sum::<u64>() > 55);
    let late = || (0..100).all(|number| !stopped[1].has(&format!("late{number}")));
    stop_past_leases(&stopped, || until("waited for the other's rounds", late));
    stopped[0].put("last");
    until("waited for the last", || both().iter().sum::<u64>() == 151);
    assert!(both().iter().all(|count| *count > 0), "both have made rounds: {:?}", both());
    println!("evidence: 151 objects, {:?} by each process", both());
    rounds.iter().for_each(Expiry::stop);
    drop(rounds);
    end(stopped);
}
