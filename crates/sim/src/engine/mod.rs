//! The metadata engine and the segment store on a machine that loses its power.
//!
//! Why:        M4 of the contract (a crash keeps a prefix of the commits, and all durable ones) decides everything above.
//! Invariants: after each power cut the rows are those after some commit that is not older than the newest
//!             acknowledged one, with their versions, and every payload that they name reads back right.
//! Not here:   what rows mean (volume).

mod model;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::fault::FaultNote;
use margay_env::sim::SimRandom;
use margay_meta::Engine;
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_segment::{CHUNK_BYTES, Store};

use crate::machine::{Fault, Lies, Machine, NOTE};
use crate::{Failure, fail};
use model::Model;
use work::{Done, Work};

/// Lives of one machine.
const LIVES_MAX: u64 = 6;
/// Batches in one life.
const STEPS_MAX: u64 = 250;
/// Changes of the disk that a long life makes, roughly.
const CHANGES: u64 = 400;

/// What one seed did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub lives: u64,
    /// Commits or operations that were acknowledged.
    pub acknowledged: u64,
    /// Openings that a fault broke off.
    pub broken_openings: u64,
}

/// Limits so small that files end, packs fill and checkpoints happen all the time.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    segments: margay_segment::Options,
    engine: Options,
}

impl Limits {
    pub(crate) fn draw(random: &SimRandom) -> Limits {
        let mut segments = margay_segment::Options::new(Path::new("/data/segments"));
        segments.pack_bytes_max = [32 << 10, 128 << 10, 512 << 10][random.below(3) as usize];
        segments.raw_bytes_min = [48 << 10, 160 << 10][random.below(2) as usize];
        segments.reserve_bytes = 0;
        let mut engine = Options::new("/data/tree".into());
        engine.log_file_bytes = LOG_FILE_BYTES_MIN << random.below(3);
        engine.tree_cache_bytes = 1 << 20;
        engine.sync_interval = std::time::Duration::from_millis([1, 5, 1000][random.below(3) as usize]);
        if random.chance(20) {
            engine.overlay_bytes_max = 8 << 10;
        }
        Limits { segments, engine }
    }

    /// Opens both; the error is in words.
    pub(crate) fn open(&self, machine: &Machine) -> Result<(Arc<Store>, EmbeddedEngine), String> {
        let (env, note) = FaultNote::watch(&machine.env(), Path::new(NOTE));
        let after_fault = note.found().map_err(|error| error.to_string())?.is_some();
        let store = Store::open(env.clone(), self.segments.clone()).map_err(|error| error.to_string())?;
        let options = Options { after_fault, ..self.engine.clone() };
        let engine = EmbeddedEngine::open(env, Arc::clone(&store), options).map_err(|error| error.to_string())?;
        note.clear().map_err(|error| error.to_string())?;
        Ok((store, engine))
    }
}

/// Runs one seed.
pub fn run(seed: u64, lies: Lies) -> Result<Tally, Failure> {
    let mut machine = Machine::new(seed, lies);
    let limits = Limits::draw(&machine.random);
    let mut model = Model::default();
    let mut tally = Tally::default();
    machine.lives(LIVES_MAX, CHANGES, (), |machine, fault, ()| {
        tally.lives += 1;
        live(machine, &limits, fault, &mut model, &mut tally)
    })?;
    // The last picture must be whole too.
    live(&mut machine, &limits, Fault::Closed, &mut model, &mut tally)
        .map_err(|failure| Failure(format!("at the end: {failure}")))?;
    Ok(tally)
}

fn live(
    machine: &mut Machine,
    limits: &Limits,
    fault: Fault,
    model: &mut Model,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let (store, engine) = match limits.open(machine) {
        Ok(opened) => opened,
        Err(error) if fault.explains(&error) => {
            tally.broken_openings += 1;
            machine.end_life(fault);
            return Ok(());
        }
        Err(error) => fail!("does not open: {error}"),
    };
    match model.recovered(&engine, &store) {
        Ok(()) => {}
        // The power went while the checker was reading.
        Err(_) if machine.has_stopped() => {
            machine.end_life(fault);
            return Ok(());
        }
        Err(failure) => return Err(failure),
    }
    let work = Work {
        engine: &engine,
        store: &store,
        fault,
        // A longer payload is several runs, which only the volume makes.
        payload_bytes_max: engine.payload_bytes_max().min(CHUNK_BYTES as usize),
        threads: [1, 1, 3][machine.random.below(3) as usize],
        steps: 1 + machine.random.below(STEPS_MAX),
        life: machine.random.below(u64::MAX),
    };
    let Done { acknowledged, commits } = work.run(model)?;
    tally.acknowledged += acknowledged;
    if fault == Fault::Closed {
        close(&engine, model, &commits)?;
    } else {
        model.acknowledged = model.acknowledged.max(commits.acknowledged.load(Ordering::Acquire));
    }
    model.commits.append(&mut commits.known.lock());
    if fault == Fault::Closed {
        drop(engine);
        drop(store);
        machine.end_life(fault);
    } else {
        machine.end_life(fault);
        drop(engine);
        drop(store);
    }
    Ok(())
}

fn close(engine: &EmbeddedEngine, model: &mut Model, commits: &work::Commits) -> Result<(), Failure> {
    engine.checkpoint().map_err(|error| Failure(format!("the last checkpoint failed: {error}")))?;
    let last = engine.last_cursor();
    engine.wait_durable(last).map_err(|error| Failure(format!("the last sync failed: {error}")))?;
    let known = commits.known.lock().keys().next_back().copied().unwrap_or(model.base_seq);
    if known != last.0 {
        fail!("the engine is at commit {}, the workload made {known}", last.0);
    }
    model.acknowledged = last.0;
    Ok(())
}
