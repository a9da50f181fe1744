//! The whole server on a machine that loses its power: sockets, S3 door, volume, engine, simulated disk.
//!
//! Why:        what a client is told over the wire is the promise; here nothing between it and the disk is left out.
//! Invariants: as in `volume`. Nothing is counted once the picture of the disk is about to be taken.
//! Not here:   signals, command line, real disks (the kill test).

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use margay::datadir::DataDir;
use margay::settings::Settings;
use margay::settings::resolve::{Found, resolve};
use margay::wiring::Storage;
use margay::works::Work;
use margay_accounts::root_keys::RootKeys;
use margay_env::Disk;
use margay_env::sim::SimRandom;
use margay_listener::Traffic;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler, Listener};
use margay_s3::S3Door;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::client::{Client, Excuse, Habits};
use crate::engine::Tally;
use crate::http::{ACCESS_KEY, Http, SECRET_KEY};
use crate::ledger::Ledger;
use crate::machine::{Fault, Lies, Machine};
use crate::verify::{Verdict, verify};
use crate::volume::{
    Direct, any_budget, check_beside, come_and_go, fits_together, none_is_lost, none_was_taken_back, reclaim,
};
use crate::{Failure, fail};

const LIVES_MAX: u64 = 4;
const CLIENTS_MAX: u64 = 5;
/// Longest life, in milliseconds.
const LIFE_MS_MAX: u64 = 120;
/// Changes of the disk that a long life makes, roughly.
const CHANGES: u64 = 300;

/// A server that runs.
struct Running {
    storage: Arc<Storage>,
    port: u16,
    _listener: Listener,
}

/// Hands requests to the door, as the binary does.
struct Front(Arc<S3Door>);

impl Handler for Front {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        let peer = peer.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let door = Arc::clone(&self.0);
        Box::pin(async move {
            door.handle(request, peer).await.map(|body| {
                let in_memory = body.bytes_in_memory();
                ResponseBody { in_memory, body: body.map_err(Into::into).boxed_unsync() }
            })
        })
    }
}

/// The usual settings, with limits so small that files end all the time.
fn settings(random: &SimRandom) -> Settings {
    let found = Found { flags: vec![("data".to_owned(), "/data".to_owned())], ..Found::default() };
    let values = resolve(&found).expect("defaults resolve");
    let mut settings = Settings::build(&values).expect("defaults go together");
    let storage = &mut settings.storage;
    storage.log_bytes_max = (128 << 10) << random.below(3);
    storage.cache_bytes = 1 << 20;
    storage.pack_bytes_max = 128 << 10;
    storage.raw_bytes_min = 96 << 10;
    storage.reserve_bytes = 0;
    storage.paths_max = 8;
    settings
}

fn runtime() -> Runtime {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.expect("the test machine has threads left")
}

async fn open(machine: &Machine, settings: &Settings) -> Result<Running, String> {
    let env = machine.env();
    let dir = DataDir::open_or_create(&env, Path::new("/data")).map_err(|error| error.to_string())?;
    let limits = settings.storage;
    let storage = Arc::new(Storage::open(dir, &limits).map_err(|failure| failure.message)?);
    let keys = RootKeys { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned(), file: None };
    let door = S3Door::new(Arc::clone(&storage.volume), Arc::new(keys), margay_s3::Options::default(), env);
    let socket = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| error.to_string())?;
    let port = socket.local_addr().map_err(|error| error.to_string())?.port();
    let front = Arc::new(Front(Arc::new(door)));
    let listener = Listener::start_tcp(socket, None, front, Arc::new(Traffic::default()), settings.connection);
    Ok(Running { storage, port, _listener: listener })
}

/// Over the wire only the status is left of an error.
fn excuse(fault: Fault) -> Excuse {
    Rc::new(move |error| match fault {
        Fault::Quiet | Fault::Closed => false,
        Fault::Full(_) => error.contains("507 "),
        _ => fault.explains(error) || error.contains("500 ") || error.contains("503 ") || error.contains("no answer"),
    })
}

/// Runs one seed.
pub fn run(seed: u64, lies: Lies) -> Result<Tally, Failure> {
    let mut machine = Machine::new(seed, lies);
    let settings = settings(&machine.random);
    let ledger = Ledger::new(1 + machine.random.below(CLIENTS_MAX) as usize);
    let mut tally = Tally::default();
    let mut ledger = machine.lives(LIVES_MAX, CHANGES, ledger, |machine, fault, ledger| {
        tally.lives += 1;
        live(machine, &settings, fault, ledger, &mut tally)
    })?;
    tally.acknowledged = ledger.acknowledged;
    let last = |failure: Failure| Failure(format!("at the end: {failure}"));
    let runtime = runtime();
    let running = runtime.block_on(open(&machine, &settings)).map_err(|error| last(Failure(error)))?;
    check(&runtime, &running, &mut ledger, Fault::Quiet).map_err(last)?;
    let storage = &running.storage;
    none_is_lost(&storage.volume, &*storage.rows.engine(), &Direct(Arc::clone(&storage.volume))).map_err(last)?;
    runtime.shutdown_background();
    Ok(tally)
}

fn live(
    machine: &mut Machine,
    settings: &Settings,
    fault: Fault,
    mut ledger: Ledger,
    tally: &mut Tally,
) -> Result<Ledger, Failure> {
    let runtime = runtime();
    let running = match runtime.block_on(open(machine, settings)) {
        Ok(running) => running,
        Err(error) if fault.explains(&error) => {
            tally.broken_openings += 1;
            machine.end_life(fault);
            return Ok(ledger);
        }
        Err(error) => fail!("does not open: {error}"),
    };
    if let Verdict::BrokenOff = check(&runtime, &running, &mut ledger, fault)? {
        machine.end_life(fault);
        runtime.shutdown_background();
        return Ok(ledger);
    }
    let ledger = Rc::new(RefCell::new(ledger));
    let local = LocalSet::new();
    local.block_on(&runtime, work(machine, &running, fault, &ledger))?;
    none_was_taken_back(&running.storage.volume)?;
    if fault == Fault::Closed {
        running.storage.close().map_err(|failure| Failure(failure.message))?;
    }
    ledger.borrow_mut().freeze();
    machine.end_life(fault);
    // Clients that wait for answers go with their tasks.
    drop(local);
    drop(running);
    runtime.shutdown_timeout(Duration::from_secs(10));
    let mut ledger = Rc::into_inner(ledger).expect("the clients are gone").into_inner();
    ledger.thaw();
    Ok(ledger)
}

fn check(runtime: &Runtime, running: &Running, ledger: &mut Ledger, fault: Fault) -> Result<Verdict, Failure> {
    let http = Http::new(running.port);
    let excuse = excuse(fault);
    match LocalSet::new().block_on(runtime, verify(&http, ledger, &*excuse))? {
        Verdict::BrokenOff => Ok(Verdict::BrokenOff),
        Verdict::Right => fits_together(&running.storage.volume, ledger, fault),
    }
}

async fn work(machine: &Machine, running: &Running, fault: Fault, ledger: &Rc<RefCell<Ledger>>) -> Result<(), Failure> {
    let random = &machine.random;
    let habits = Habits { object_bytes_max: 300_000, long_uploads_percent: 0, operations: 1 + random.below(80) };
    let clients = ledger.borrow().owners.len();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..clients {
        let (target, ledger) = (Rc::new(Http::new(running.port)), Rc::clone(ledger));
        let (excuse, random) = (excuse(fault), SimRandom::new(random.below(u64::MAX)));
        tasks.spawn_local(Client { target, ledger, number, random, habits, excuse }.run());
    }
    if random.chance(80) {
        let storage = Arc::clone(&running.storage);
        let (disk, random) = (machine.disk.clone(), SimRandom::new(random.below(u64::MAX)));
        tasks.spawn_local(async move { upkeep(storage, fault, random, &|| disk.space(Path::new("/")).is_err()).await });
    }
    if random.chance(70) {
        let (volume, ledger) = (Arc::clone(&running.storage.volume), Rc::clone(ledger));
        let (excuse, random) = (excuse(fault), SimRandom::new(random.below(u64::MAX)));
        tasks.spawn_local(async move { come_and_go(&volume, &ledger, random, &*excuse).await });
    }
    let life = Duration::from_millis(1 + random.below(LIFE_MS_MAX));
    let ended = tokio::time::timeout(life, async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap_or_else(|error| Err(Failure(format!("a client broke off: {error}"))))?;
        }
        Ok(())
    });
    let ended = ended.await.unwrap_or(Ok(()));
    if fault == Fault::Closed {
        // Closing waits for what is under way, as the server does.
        while let Some(joined) = tasks.join_next().await {
            joined.unwrap_or_else(|error| Err(Failure(format!("a client broke off: {error}"))))?;
        }
    }
    // From here on nothing counts; the tasks are dropped by the caller, after the picture of the disk was taken.
    ledger.borrow_mut().freeze();
    tasks.detach_all();
    ended
}

/// What the server does beside requests, at random moments.
async fn upkeep(
    storage: Arc<Storage>,
    fault: Fault,
    random: SimRandom,
    stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    for _ in 0..1 + random.below(8) {
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
        let (asked, budget) = (Arc::clone(&storage), any_budget(&random));
        let (what, done) = match random.below(10) {
            0..4 => ("compact", Work::Compact.run(asked, None).await.map(drop)),
            4 => ("scrub", Work::Scrub.run(asked, None).await.map(drop)),
            5 => {
                let check = move || check_beside(&asked.volume);
                ("check", tokio::task::spawn_blocking(check).await.expect("a check does not panic"))
            }
            _ => {
                let pass = move || {
                    asked.rows.checkpoint().map_err(|error| error.to_string())?;
                    reclaim(&asked.volume, &budget)
                };
                ("reclaim", tokio::task::spawn_blocking(pass).await.expect("a pass does not panic"))
            }
        };
        match done {
            Ok(()) => {}
            // What a machine that stops meanwhile finds says nothing.
            Err(error) if fault.explains(&error) || stopped() => return Ok(()),
            Err(error) => fail!("{what}: {error}"),
        }
    }
    Ok(())
}
