//! The change feed over restarts, crashes, checkpoints and log files that go: gapless and in order, or "too old".
//!
//! Why: a follower that misses one commit keeps what is stale for ever, and nothing else would tell.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use margay_env::Env;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_meta::memory::Memory;
use margay_meta::{Batch, Change, Cursor, Engine, EngineError, FeedError, Payload, Write};
use margay_segment::{Kind, Store};

const SEEDS: u64 = 40;
const LIVES: u64 = 6;
/// All of a run.
const EVERYTHING: u64 = 1 << 30;
/// As many log files as the engine itself may have at once: two with commits, one made ready, and one that ends.
const OWN_LOGS: u64 = 4;

fn open(disk: &SimDisk, random: &SimRandom, keep: u64) -> Result<(EmbeddedEngine, Arc<Store>), EngineError> {
    let random = Arc::new(SimRandom::new(random.below(u64::MAX)));
    let env = Env { disk: Arc::new(disk.clone()), clock: Arc::new(RealClock::new()), random };
    let mut segments = margay_segment::Options::new(Path::new("/data/segments"));
    segments.reserve_bytes = 0;
    let store = Store::open(env.clone(), segments).map_err(|error| std::io::Error::other(error.to_string()))?;
    let mut options = Options::new("/data/tree".into());
    (options.log_file_bytes, options.tree_cache_bytes) = (LOG_FILE_BYTES_MIN, 256 << 10);
    options.sync_interval = Duration::from_millis(1);
    (options.feed_log_bytes_max, options.tail_commits_max) = (keep, 50);
    Ok((EmbeddedEngine::open(env, Arc::clone(&store), options)?, store))
}

/// The keys of each commit that may have been made; the first one has cursor 1.
type History = Vec<Vec<Vec<u8>>>;

/// Reads the feed now and then, and remembers where it was as a durable consumer would.
#[derive(Default)]
struct Follower {
    at: Cursor,
    pages: u64,
    changes: u64,
    too_old: u64,
}

impl Follower {
    /// Reads at most so many pages.
    fn read(&mut self, engine: &EmbeddedEngine, history: &History, pages: u64, limit: usize) {
        for _ in 0..pages {
            match engine.changes(self.at, limit) {
                Ok(page) if page.changes.is_empty() => {
                    assert_eq!(page.next, self.at);
                    return;
                }
                Ok(page) => {
                    assert!(page.changes.len() <= limit && page.next <= engine.durable_cursor());
                    for Change { cursor, keys } in page.changes {
                        assert_eq!(cursor.0, self.at.0 + 1, "no gap, and in order");
                        assert_eq!(keys, history[self.at.0 as usize], "commit {cursor:?}");
                        self.at = cursor;
                        self.changes += 1;
                    }
                    assert_eq!(page.next, self.at);
                    self.pages += 1;
                }
                Err(FeedError::TooOld { oldest }) => {
                    assert!(oldest > self.at, "{oldest:?} and later are held, {:?} is asked for", self.at);
                    self.too_old += 1;
                    self.at = engine.durable_cursor();
                }
                // The machine stopped.
                Err(FeedError::Failed(EngineError::Io(_))) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn work(
    engine: &EmbeddedEngine,
    random: &SimRandom,
    history: &mut History,
    followers: &mut [Follower],
    payloads: bool,
) {
    for _ in 0..random.below(300) {
        let mut writes = vec![Write::Add { key: b"count".to_vec(), delta: 1 }];
        for key in 0..1 + random.below(4) {
            let key = format!("{key}-{:03}", random.below(200)).into_bytes();
            let value = vec![random.below(256) as u8; random.below(400) as usize];
            writes.push(if random.chance(25) { Write::Delete { key } } else { Write::Put { key, value } });
        }
        let payload = (payloads && random.chance(10))
            .then(|| Payload { bytes: Bytes::from(vec![7; random.below(900) as usize + 1]), places: Vec::new() });
        let keys = writes[1..].iter().map(|write| write.key().to_vec()).collect();
        let Ok(done) = engine.commit(Batch { writes, payload, ..Batch::default() }) else { return };
        history.push(keys);
        assert_eq!(done.cursor.0 as usize, history.len());
        if random.chance(30) && engine.wait_durable(done.cursor).is_err() {
            return;
        }
        if random.chance(2) && engine.checkpoint().is_err() {
            return;
        }
        for (index, follower) in followers.iter_mut().enumerate() {
            // The second one falls behind.
            if random.chance([30, 3][index]) {
                follower.read(engine, history, 1 + random.below(5), 1 + random.below(20) as usize);
            }
        }
    }
}

/// One directory over several lives; what its followers found.
fn run(seed: u64, keep: u64, payloads: bool) -> [Follower; 2] {
    let random = SimRandom::new(seed);
    let mut disk = SimDisk::new(seed);
    let mut history = History::new();
    let mut followers = [Follower::default(), Follower::default()];
    for life in 0..LIVES {
        // The last one ends by a stop that folds everything.
        let crashes = life + 1 < LIVES && random.chance(70);
        let killed = random.chance(30);
        let stop = random.below(400) + 1;
        match (crashes, killed) {
            (true, true) => disk.kill_after(stop),
            (true, false) => disk.fail_after(stop),
            (false, _) => {}
        }
        match open(&disk, &random, keep) {
            Ok((engine, _store)) => {
                let found = engine.last_cursor();
                history.truncate(found.0 as usize);
                assert_eq!(history.len() as u64, found.0, "seed {seed}, life {life}: commits that nobody made");
                for follower in &followers {
                    assert!(follower.at <= found, "seed {seed}, life {life}: what a follower was shown is lost");
                }
                work(&engine, &random, &mut history, &mut followers, payloads);
                if !crashes {
                    engine.checkpoint().unwrap();
                }
            }
            Err(EngineError::Io(_)) => assert!(crashes),
            Err(error) => panic!("seed {seed}, life {life}: {error}"),
        }
        disk = match (crashes, killed) {
            (true, true) => disk.kill(random.below(1000)),
            (true, false) => disk.crash(random.below(1000)),
            (false, _) => disk,
        };
    }
    let (engine, _store) = open(&disk, &random, keep).unwrap();
    history.truncate(engine.last_cursor().0 as usize);
    for follower in &mut followers {
        follower.read(&engine, &history, u64::MAX, 7);
        assert_eq!(follower.at, engine.last_cursor(), "seed {seed}: everything is shown in the end");
    }
    if keep == EVERYTHING {
        let mut late = Follower::default();
        late.read(&engine, &history, u64::MAX, 100);
        assert_eq!((late.at, late.too_old), (engine.last_cursor(), 0), "seed {seed}: from the first commit on");
    }
    followers
}

fn sum(runs: impl Iterator<Item = [Follower; 2]>) -> (u64, u64, u64) {
    runs.flatten().fold((0, 0, 0), |sum, one| (sum.0 + one.pages, sum.1 + one.changes, sum.2 + one.too_old))
}

#[test]
fn a_log_that_is_kept_shows_every_commit_whatever_happens() {
    let (pages, changes, too_old) = sum((0..SEEDS).map(|seed| run(seed, EVERYTHING, seed % 2 == 0)));
    println!("evidence: {pages} pages with {changes} changes");
    assert_eq!(too_old, 0);
    assert!(changes > 10_000);
}

#[test]
fn a_follower_that_falls_behind_is_told_and_misses_nothing_else() {
    for keep in [0, LOG_FILE_BYTES_MIN] {
        let (pages, changes, too_old) = sum((0..SEEDS).map(|seed| run(seed, keep, false)));
        println!("evidence: {keep} bytes kept: {pages} pages with {changes} changes, {too_old} times too old");
        assert!(too_old > 0 && changes > 1000);
    }
}

#[test]
fn kept_log_files_are_bounded() {
    let (disk, random, keep) = (SimDisk::new(3), SimRandom::new(3), 3 * LOG_FILE_BYTES_MIN);
    let mut history = History::new();
    for _ in 0..4 {
        let (engine, store) = open(&disk, &random, keep).unwrap();
        let target = history.len() + 1000;
        while history.len() < target {
            work(&engine, &random, &mut history, &mut [], false);
        }
        engine.checkpoint().unwrap();
        engine.wait_durable(engine.last_cursor()).unwrap();
        assert!(engine.changes(Cursor(history.len() as u64 - 100), 1).is_ok());
        drop(engine);
        let logs: u64 = store.segments().iter().filter(|info| info.kind == Kind::Log).map(|info| info.len).sum();
        assert!(logs > keep / 2 && logs <= keep + OWN_LOGS * LOG_FILE_BYTES_MIN, "{logs} bytes of logs");
    }
}

#[test]
fn a_reader_waits_for_the_next_durable_commit() {
    let (engine, _store) = open(&SimDisk::new(1), &SimRandom::new(1), 0).unwrap();
    let memory = Memory::new();
    for engine in [&engine as &dyn Engine, &memory] {
        let put =
            || engine.commit(Batch { writes: vec![Write::Put { key: vec![1], value: vec![] }], ..Batch::default() });
        let before = put().unwrap().cursor;
        engine.wait_durable(before).unwrap();
        let mut waiting = pin!(engine.wait_changes(before));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let cursor = put().unwrap().cursor;
        engine.wait_durable(cursor).unwrap();
        assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
        let future = engine.changes(Cursor(cursor.0 + 1), 9);
        assert!(matches!(future, Err(FeedError::TooOld { .. })), "of another life");
    }
}
