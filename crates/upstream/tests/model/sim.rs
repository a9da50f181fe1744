//! The world of a seed: time, the requests that wait for the store, the bucket, and what must hold.
//!
//! Why:        threads and runtimes are those of the real program. What they share with the world goes through here: a request waits
//!             until the seed lets it arrive, and time moves when the seed moves it. Between two decisions every thread of this
//!             process sleeps (`rest`), so that one seed gives one run but for races within one step.
//! Locking:    one mutex for everything; nothing is called under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use margay_client::ClientError;
use margay_client::client::Ask;
use margay_client::upstream::{Carried, Carrier};
use margay_env::real::RealClock;
use margay_env::{Clock, Timestamp};
use tokio::sync::oneshot;

use crate::oracle::Oracle;
use crate::store::{Outcome, Store, listed_prefix, refused, source_of};
use crate::text::named;
use crate::threads::{Threads, own_thread};

/// Real time within which all threads come to rest.
const REST_TIME_MAX: Duration = Duration::from_secs(60);
/// Attempts of one request (margay-client).
const TRIES_MAX: u32 = 8;
/// Shorter sleeps take no time: they are pauses of threads that let others go first.
const SLEEP_MIN: Duration = Duration::from_millis(20);

/// An object that a mount has written is not looked at for so long (margay-upstream).
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) mount: usize,
    process: usize,
    number: u64,
    pub(crate) ask: Ask,
    answer: oneshot::Sender<Outcome>,
    /// It has arrived once, and will arrive again.
    pub(crate) arrived: bool,
}

/// What happened to an object while a process opened its file.
#[derive(Debug)]
pub(crate) struct Watch {
    process: usize,
    key: String,
    /// Contents that the object had; `None`: it was not there.
    pub(crate) states: BTreeSet<Option<String>>,
    pub(crate) was_asked: bool,
    /// A request of the process was not answered, or refused.
    pub(crate) has_failed: bool,
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) oracle: Oracle,
    pub(crate) parked: Vec<Parked>,
    now: Duration,
    dead: BTreeSet<usize>,
    /// Requests of which no attempt is answered, and so many more of them.
    given_up: Vec<(usize, String, u32)>,
    requests: u64,
    /// The mount that wrote to a key last, and how long the history was then.
    put_by: BTreeMap<String, (usize, usize)>,
    /// By mount and name: how long the history was when it was renamed the last time.
    renamed: BTreeMap<(usize, String), usize>,
    /// Threads that wait for the time, and wake only when it moves or their process ends.
    sleepers: BTreeSet<u32>,
    /// Probes wait as other requests do.
    pub(crate) probes_wait: bool,
    /// One of a process at most.
    watches: Vec<Watch>,
    /// When a request of a process for a key arrived last.
    recent: BTreeMap<(usize, String), Duration>,
}

pub(crate) struct Sim {
    world: Mutex<World>,
    moved: Condvar,
    threads: Mutex<Threads>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a simulated bucket")
    }
}

/// What happens to a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    Lost,
    /// Executed, and the answer is lost.
    Unanswered,
    /// Executed, and it arrives once more later.
    Repeated,
    Busy,
    /// As `Unanswered`, and so are all further attempts: who sent it gives up.
    GivenUp,
}

fn name_of(ask: &Ask) -> String {
    let copy = ask.headers.iter().find(|(name, _)| name.as_str() == "x-amz-copy-source");
    let from = copy.map(|(_, from)| format!(" from {}", from.to_str().unwrap())).unwrap_or_default();
    let condition = ask.headers.iter().find(|(name, _)| name.as_str().starts_with("if-"));
    let condition = condition.map(|(name, value)| format!(" {name} {}", value.to_str().unwrap())).unwrap_or_default();
    let text = std::str::from_utf8(&ask.body).unwrap_or_default();
    let keys: Vec<&str> = text.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0)).collect();
    let body = match (keys.is_empty(), text.matches("<Part>").count()) {
        (false, _) => keys.join(" "),
        (true, 0) => named(&ask.body),
        (true, parts) => format!("{parts} parts"),
    };
    let query = if ask.key.is_empty() || ask.query.contains("upload") { &*ask.query } else { "" };
    format!("{} {}?{query} {body}{from}{condition}", ask.method, ask.key)
}

fn nobody_knows(ask: &Ask) -> ClientError {
    ClientError::Timeout { request: name_of(ask), seconds: 30 }
}

impl Sim {
    pub(crate) fn new(oracle: Oracle, store: Store) -> Arc<Sim> {
        let world = World {
            store,
            oracle,
            parked: Vec::new(),
            now: Duration::from_secs(1000),
            dead: BTreeSet::new(),
            given_up: Vec::new(),
            requests: 0,
            put_by: BTreeMap::new(),
            renamed: BTreeMap::new(),
            sleepers: BTreeSet::new(),
            probes_wait: false,
            watches: Vec::new(),
            recent: BTreeMap::new(),
        };
        Arc::new(Sim { world: Mutex::new(world), moved: Condvar::new(), threads: Mutex::default() })
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, line: String) {
        self.world().oracle.tell(line);
    }

    pub(crate) fn advance(&self, length: Duration) {
        let mut world = self.world();
        world.now += length;
        world.sleepers.clear();
        drop(world);
        self.moved.notify_all();
    }

    pub(crate) fn is_dead(&self, process: usize) -> bool {
        self.world().dead.contains(&process)
    }

    /// The process has ended: what it sent and did not arrive never does, and it gets no more answers.
    pub(crate) fn end(&self, process: usize) {
        let mut world = self.world();
        world.dead.insert(process);
        world.parked.retain(|one| one.process != process);
        world.sleepers.clear();
        drop(world);
        self.moved.notify_all();
    }

    /// Waits until every other thread of this process sleeps.
    pub(crate) fn rest(&self) {
        let (clock, mut tries) = (RealClock::new(), 0u32);
        let began = clock.monotonic();
        while !self.is_at_rest() {
            tries += 1;
            if tries > 20 {
                std::thread::sleep(Duration::from_micros(20));
            } else {
                std::thread::yield_now();
            }
            assert!(clock.monotonic() - began < REST_TIME_MAX, "threads do not come to rest");
        }
    }

    /// Whether every other thread of this process sleeps.
    fn is_at_rest(&self) -> bool {
        // Who waits for the world would seem to sleep.
        let sleepers = self.world().sleepers.clone();
        self.threads.lock().unwrap().all_sleep(&sleepers)
    }

    /// Lets a waiting request arrive.
    pub(crate) fn arrive(&self, at: usize, fate: Fate, age: usize) {
        let mut world = self.world();
        let mut one = world.parked.remove(at);
        let line = format!("{fate:?} {age} of {}: {}", one.mount, name_of(&one.ask));
        let outcome = match fate {
            Fate::Lost => Err(nobody_knows(&one.ask)),
            Fate::Busy => Err(refused(&one.ask, 503, "SlowDown")),
            _ => world.execute_of(one.mount, &one.ask, age, &line),
        };
        let shown = match &outcome {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.kind(),
        };
        world.oracle.tell(format!("{line} -> {shown}"));
        let is_answered = matches!(fate, Fate::Answered | Fate::Repeated);
        let is_known = outcome.as_ref().err().is_none_or(|error| error.status() == Some(404));
        world.note_request(one.process, &one.ask, is_answered && is_known);
        world.note_listing(one.process, &one.ask, age);
        if fate == Fate::Repeated {
            one.arrived = true;
            world.parked.push(one);
            return;
        }
        if fate == Fate::GivenUp {
            world.given_up.push((one.process, name_of(&one.ask), TRIES_MAX - 1));
        }
        let is_lost = matches!(fate, Fate::Unanswered | Fate::GivenUp);
        let outcome = if is_lost { Err(nobody_knows(&one.ask)) } else { outcome };
        drop(world);
        // Who asked may have ended.
        let _ = one.answer.send(outcome);
    }

    /// Another client's change of the bucket.
    pub(crate) fn change(&self, line: String, change: impl FnOnce(&mut crate::store::Objects)) {
        let mut world = self.world();
        world.oracle.tell(line.clone());
        world.store.change(change);
        world.look(&line);
    }
}

impl World {
    pub(crate) fn execute(&mut self, ask: &Ask, age: usize, why: &str) -> Outcome {
        let outcome = self.store.execute(ask, age);
        self.look(why);
        outcome
    }

    /// As `execute`, by a mount.
    fn execute_of(&mut self, mount: usize, ask: &Ask, age: usize, why: &str) -> Outcome {
        for key in removed_keys(ask) {
            let Some(there) = self.store.objects.get(key).map(|there| there.name.clone()) else { continue };
            let renamed = self.renamed.iter().filter(|((by, from), _)| *by == mount && is_at_or_below(key, from));
            let last = renamed.map(|(_, at)| *at).max();
            if let (Some((by, at)), Some(last)) = (self.put_by.get(key), last)
                && *by != mount
                && *at > last
            {
                self.oracle.removes_put_back(mount, key, &there);
            }
        }
        let outcome = self.execute(ask, age, why);
        if outcome.is_ok() && matches!(ask.method, http::Method::PUT | http::Method::POST) {
            self.put_by.insert(ask.key.clone(), (mount, self.oracle.history().len()));
        }
        outcome
    }

    /// A mount begins to rename these.
    pub(crate) fn renames<'a>(&mut self, mount: usize, names: impl IntoIterator<Item = &'a String>) {
        let now = self.oracle.history().len();
        self.renamed.extend(names.into_iter().map(|name| ((mount, name.clone()), now)));
    }

    /// The bucket may have changed.
    fn look(&mut self, why: &str) {
        self.oracle.look(why, &self.store.objects);
        for watch in &mut self.watches {
            watch.states.insert(self.store.objects.get(&watch.key).map(|object| object.name.clone()));
        }
    }

    /// A request has arrived, or got lost.
    fn note_request(&mut self, process: usize, ask: &Ask, is_answered: bool) {
        let now = self.now;
        let keys = removed_keys(ask).map(str::to_owned).chain([ask.key.clone()]).chain(source_of(ask));
        self.recent.extend(keys.map(|key| ((process, key), now)));
        for watch in self.watches.iter_mut().filter(|watch| watch.process == process) {
            watch.was_asked |= ask.method == http::Method::HEAD && ask.key == watch.key;
            watch.has_failed |= !is_answered;
        }
    }

    /// A directory that was not listed before is listed while a name in it is looked up: no other question is needed. A store
    /// that lists late may say then that the name is not there.
    fn note_listing(&mut self, process: usize, ask: &Ask, age: usize) {
        let Some(prefix) = listed_prefix(ask) else { return };
        let of_process = self.watches.iter_mut().filter(|watch| watch.process == process);
        for watch in of_process.filter(|watch| directory_of(&watch.key) == prefix) {
            watch.was_asked = true;
            if age > 0 {
                watch.states.insert(None);
            }
        }
    }

    /// Watches an object while a process opens its file.
    pub(crate) fn watch(&mut self, process: usize, key: &str) {
        let states = BTreeSet::from([self.store.objects.get(key).map(|object| object.name.clone())]);
        self.watches.retain(|watch| watch.process != process);
        self.watches.push(Watch { process, key: key.to_owned(), states, was_asked: false, has_failed: false });
    }

    pub(crate) fn unwatch(&mut self, process: usize) -> Option<Watch> {
        let at = self.watches.iter().position(|watch| watch.process == process)?;
        Some(self.watches.remove(at))
    }

    /// Whether a process may just have written an object.
    pub(crate) fn is_recent(&self, process: usize, key: &str) -> bool {
        self.recent.get(&(process, key.to_owned())).is_some_and(|at| self.now <= *at + SHOWN_AFTER)
    }

    /// Whether this attempt is lost, since one before it was and is to be given up.
    fn gives_up(&mut self, process: usize, ask: &Ask) -> bool {
        if self.given_up.is_empty() {
            return false;
        }
        let name = name_of(ask);
        let Some(one) = self.given_up.iter_mut().find(|(own, key, _)| *own == process && *key == name) else {
            return false;
        };
        one.2 -= 1;
        self.given_up.retain(|(_, _, left)| *left > 0);
        true
    }

    /// Everything arrives from now on.
    pub(crate) fn calms(&mut self) {
        self.given_up.clear();
        self.store.errors_in_bodies = false;
    }

    /// In an order that does not depend on threads.
    pub(crate) fn sort(&mut self) {
        self.parked.sort_by_cached_key(|one| (one.mount, name_of(&one.ask), one.number));
    }
}

/// What one process reaches the bucket by.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) sim: Arc<Sim>,
    pub(crate) mount: usize,
    pub(crate) process: usize,
}

/// Requests of a probe, and of the tidying that follows it.
fn is_of_probe(ask: &Ask) -> bool {
    ask.key.ends_with("-probe")
        || ask.key.ends_with("-probe-copy")
        || ask.key.ends_with("-probe-parts")
        || ask.query.contains("prefix=.margay-tmp")
}

/// Of a request that removes many.
fn removed_keys(ask: &Ask) -> impl Iterator<Item = &str> {
    let text = std::str::from_utf8(&ask.body).unwrap_or_default();
    text.split("<Key>").skip(1).filter_map(|rest| Some(rest.split_once("</Key>")?.0))
}

fn is_at_or_below(key: &str, name: &str) -> bool {
    key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn directory_of(key: &str) -> &str {
    key.rfind('/').map_or("", |slash| &key[..=slash])
}

impl Carrier for Line {
    fn carry(&self, ask: &Ask) -> Carried {
        let mut world = self.sim.world();
        if world.dead.contains(&self.process) {
            return Box::pin(std::future::pending());
        }
        let is_probe = is_of_probe(ask) || ask.body.windows(6).any(|some| some == b"-probe");
        if is_probe && !world.probes_wait {
            let outcome = world.execute(ask, 0, "probe");
            return Box::pin(std::future::ready(outcome));
        }
        if world.gives_up(self.process, ask) {
            world.note_request(self.process, ask, false);
            return Box::pin(std::future::ready(Err(nobody_knows(ask))));
        }
        let (answer, arrives) = oneshot::channel();
        world.requests += 1;
        let (mount, process, number) = (self.mount, self.process, world.requests);
        world.parked.push(Parked { mount, process, number, ask: ask.clone(), answer, arrived: false });
        Box::pin(async move {
            match arrives.await {
                Ok(outcome) => outcome,
                // The process has ended.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn pause(&self, _length: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        // The seed decides when the next attempt arrives.
        Box::pin(std::future::ready(()))
    }
}

/// The clock of one process.
#[derive(Debug)]
pub(crate) struct SeedClock {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: usize,
}

impl Clock for SeedClock {
    fn now(&self) -> Timestamp {
        let since = i64::try_from(self.monotonic().as_nanos()).unwrap();
        Timestamp(1_790_000_000_000_000_000 + since)
    }

    fn monotonic(&self) -> Duration {
        self.sim.world().now
    }

    fn sleep(&self, length: Duration) {
        if length < SLEEP_MIN {
            return;
        }
        let mut world = self.sim.world();
        let until = world.now + length;
        while world.now < until && !world.dead.contains(&self.process) {
            world.sleepers.insert(own_thread());
            world = self.sim.moved.wait(world).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
