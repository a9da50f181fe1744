//! The file system on a machine that loses its power, used by several clients at once.
//!
//! Why:        this is the promise that users see, without sockets in between: the same seed interleaves alike.
//! Invariants: after each power cut the ledger agrees and fsck finds nothing; at the end everything is removed and no
//!             space stays behind. Checkpoints, reclaim, checks and expiry come between operations.
//! Not here:   what clients do (client), what must be there (ledger, verify).

mod direct;
mod short_lived;
mod space;
mod tasks;
mod upkeep;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use margay_env::sim::SimRandom;
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_volume::{FsckOptions, Options, Volume};

use crate::client::{Client, Excuse, Habits};
use crate::engine::{Limits, Tally};
use crate::ledger::Ledger;
use crate::machine::{Fault, Lies, Machine};
use crate::verify::{Verdict, verify};
use crate::{Failure, fail};
pub(crate) use direct::Direct;
pub(crate) use short_lived::come_and_go;
pub(crate) use space::{none_is_lost, none_was_taken_back};
pub(crate) use tasks::block_on;
use upkeep::Upkeep;
pub(crate) use upkeep::{any_budget, check_beside, reclaim};

const LIVES_MAX: u64 = 5;
const CLIENTS_MAX: u64 = 4;
/// Polls in one life.
const POLLS_MAX: u64 = 400;
/// Changes of the disk that a long life makes, roughly.
const CHANGES: u64 = 400;

/// A volume that runs.
struct Running {
    volume: Arc<Volume>,
    engine: Arc<EmbeddedEngine>,
}

/// Runs one seed.
pub fn run(seed: u64, lies: Lies) -> Result<Tally, Failure> {
    let mut machine = Machine::new(seed, lies);
    let limits = Limits::draw(&machine.random);
    let clients = 1 + machine.random.below(CLIENTS_MAX) as usize;
    let mut tally = Tally::default();
    let mut ledger = machine.lives(LIVES_MAX, CHANGES, Ledger::new(clients), |machine, fault, ledger| {
        tally.lives += 1;
        live(machine, &limits, fault, ledger, &mut tally)
    })?;
    tally.acknowledged = ledger.acknowledged;
    let last = |failure: Failure| Failure(format!("at the end: {failure}"));
    let running = open(&machine, &limits).map_err(|error| last(Failure(error)))?;
    check(&running, &mut ledger, Fault::Quiet).map_err(last)?;
    none_is_lost(&running.volume, &*running.engine, &Direct(Arc::clone(&running.volume))).map_err(last)?;
    Ok(tally)
}

fn open(machine: &Machine, limits: &Limits) -> Result<Running, String> {
    let (store, engine) = limits.open(machine)?;
    let engine = Arc::new(engine);
    let options = Options { run_bytes_max: 40 << 10, paths_max: 8, ..Options::default() };
    let below = Arc::clone(&engine) as Arc<dyn Engine>;
    let volume = Volume::open(machine.env(), below, store, options).map_err(|error| error.to_string())?;
    Ok(Running { volume, engine })
}

fn live(
    machine: &mut Machine,
    limits: &Limits,
    fault: Fault,
    mut ledger: Ledger,
    tally: &mut Tally,
) -> Result<Ledger, Failure> {
    let running = match open(machine, limits) {
        Ok(running) => running,
        Err(error) if fault.explains(&error) => {
            tally.broken_openings += 1;
            machine.end_life(fault);
            return Ok(ledger);
        }
        Err(error) => fail!("does not open: {error}"),
    };
    if let Verdict::BrokenOff = check(&running, &mut ledger, fault)? {
        machine.end_life(fault);
        return Ok(ledger);
    }
    let ledger = Rc::new(RefCell::new(ledger));
    work(machine, &running, fault, &ledger)?;
    none_was_taken_back(&running.volume)?;
    if fault == Fault::Closed {
        running.engine.checkpoint().map_err(|error| Failure(format!("the last checkpoint failed: {error}")))?;
        drop(running);
        machine.end_life(fault);
    } else {
        machine.end_life(fault);
        drop(running);
    }
    Ok(Rc::into_inner(ledger).expect("the clients are gone").into_inner())
}

/// Everything that must hold when nothing is under way.
fn check(running: &Running, ledger: &mut Ledger, fault: Fault) -> Result<Verdict, Failure> {
    let direct = Direct(Arc::clone(&running.volume));
    let excuse = |error: &str| fault.explains(error);
    match block_on(verify(&direct, ledger, &excuse))? {
        Verdict::BrokenOff => Ok(Verdict::BrokenOff),
        Verdict::Right => fits_together(&running.volume, ledger, fault),
    }
}

/// fsck finds nothing, and the bucket's counters are those of the objects in the ledger.
pub(crate) fn fits_together(volume: &Volume, ledger: &Ledger, fault: Fault) -> Result<Verdict, Failure> {
    let report = match volume.fsck(FsckOptions::default()) {
        Ok(report) => report,
        Err(error) if fault.explains(&error.to_string()) => return Ok(Verdict::BrokenOff),
        Err(error) => fail!("fsck: {error}"),
    };
    // What the fault itself keeps fsck from reading it tells as findings.
    if !report.clean() && report.shown.iter().all(|finding| fault.explains(&finding.what)) {
        return Ok(Verdict::BrokenOff);
    }
    if !report.clean() {
        fail!("fsck: {:?}", report.shown);
    }
    let shared = ledger.shared_contents();
    let right = direct::sum(ledger.owners.iter().flat_map(|owner| owner.now.objects.values()).chain(&shared));
    match block_on(volume.usage(crate::target::BUCKET)) {
        Ok(usage) if usage == right => Ok(Verdict::Right),
        Ok(usage) => fail!("the bucket counts {usage:?}, it holds {right:?}"),
        Err(error) if fault.explains(&error.to_string()) => Ok(Verdict::BrokenOff),
        Err(error) => fail!("usage: {error}"),
    }
}

fn work(machine: &Machine, running: &Running, fault: Fault, ledger: &Rc<RefCell<Ledger>>) -> Result<(), Failure> {
    let random = &machine.random;
    let excuse: Excuse = Rc::new(move |error| fault.explains(error));
    let target = Rc::new(Direct(Arc::clone(&running.volume)));
    let habits = Habits {
        object_bytes_max: 300_000,
        long_uploads_percent: u64::from(random.chance(3)) * 20,
        operations: 1 + random.below(60),
    };
    let clients = ledger.borrow().owners.len();
    let stopped = || machine.has_stopped();
    let mut tasks: Vec<tasks::Task<'_>> = Vec::new();
    for number in 0..clients {
        let (target, ledger, excuse) = (Rc::clone(&target), Rc::clone(ledger), Rc::clone(&excuse));
        let random = SimRandom::new(random.below(u64::MAX));
        tasks.push(Box::pin(Client { target, ledger, number, random, habits, excuse }.run()));
    }
    if random.chance(90) {
        let volume = &running.volume;
        let random = SimRandom::new(random.below(u64::MAX));
        let upkeep = Upkeep { volume, engine: &running.engine, fault, stopped: &stopped };
        tasks.push(Box::pin(upkeep.now_and_then(random)));
    }
    if random.chance(70) {
        let (volume, random) = (&running.volume, SimRandom::new(random.below(u64::MAX)));
        tasks.push(Box::pin(come_and_go(volume, ledger, random, &*excuse)));
    }
    tasks::run(tasks, random, 1 + random.below(POLLS_MAX), &stopped)
}

/// Lets the others go first.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
