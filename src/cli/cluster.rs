//! `margay cluster`: how many copies the servers of a shared volume make, which stores they have, and which are gone for good.
//!
//! Why:        the numbers are rows, so that all servers have the same ones, at once; the command needs the database only.
//! Not here:   making copies (margay-cluster).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use margay_env::Env;
use margay_meta::Engine;
use margay_postgres::{PostgresEngine, Verdict};
use margay_segment::StoreNumber;
use margay_volume::{
    CopiesRecord, Error, KnownSegment, KnownStore, SegmentState, change_copies, is_referenced, known_stores,
    read_copies, visit_segments_made_by,
};
use serde_json::{Value, json};

use super::adopt;
use super::arguments::DataArgs;
use crate::exit::{Code, Failure};

const EXAMPLES: &str = "Examples:
  margay cluster status --metadata postgres://margay@db/margay
  margay cluster check --metadata postgres://margay@db/margay
  margay cluster set --copies 3 --write 2 --metadata postgres://margay@db/margay
  margay cluster detach 2 --metadata postgres://margay@db/margay
  margay cluster adopt --data /srv/margay --metadata postgres://margay@db/margay

Copies: on how many servers each object is. Write: how many of them have it on disk before a write is answered. While fewer can be
reached, writes are refused with 503 and nothing is lost. A server whose disk is lost is detached: the others make the copies that it
had. The password of the database is read from PGPASSWORD.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The database of the volume: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL", global = true)]
    metadata: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the stores of the volume, and whether each segment has its copies
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the settings of PostgreSQL on which it depends that nothing gets lost; ends with 4 if one is unsafe
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change how many copies there are, and how many a write waits for
    Set {
        /// Servers that have each object, 1 to 8
        #[arg(long, value_name = "N")]
        copies: Option<u8>,
        /// Servers that have it before a write is answered
        #[arg(long, value_name = "W")]
        write: Option<u8>,
    },
    /// Move the volume of one server into an empty database; its segments stay, and its directory becomes the first store
    Adopt {
        /// Make it a volume of its own again, if a move that broke off has not brought its rows over
        #[arg(long)]
        undo: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// A store never comes back: make the copies that it had elsewhere
    Detach {
        /// Its number, as `margay cluster status` shows it
        store: u16,
        /// Even if some segments are nowhere else, and are lost then
        #[arg(long)]
        lose: bool,
        /// It has come back after all
        #[arg(long)]
        undo: bool,
    },
}

fn fail(error: impl std::fmt::Display) -> Failure {
    Failure::failed(error.to_string())
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut data = args.data.clone();
    data.set.extend(args.metadata.iter().map(|url| format!("metadata={url}")));
    let settings = data.settings(&Env::real())?;
    let Some(shared) = settings.shared else {
        return Err(Failure::usage(
            "copies are made by servers that share a volume: name its database with --metadata postgres://USER@HOST/DATABASE"
                .to_owned(),
        ));
    };
    if let Command::Adopt { undo, json } = args.command {
        return adopt::run(&settings.data, &settings.storage, &shared.postgres, undo, json);
    }
    let engine = PostgresEngine::open(&shared.postgres);
    let engine = engine.map_err(|error| fail(format!("{}: {error}", shared.postgres.config)))?;
    match &args.command {
        Command::Status { json } => show(&engine, *json),
        Command::Check { json } => check(&engine, *json),
        Command::Set { copies, write } => set(&engine, *copies, *write),
        Command::Adopt { .. } => Ok(()),
        Command::Detach { store, lose, undo } => detach(&engine, StoreNumber(*store), *lose, *undo),
    }
}

fn check(engine: &PostgresEngine, as_json: bool) -> Result<(), Failure> {
    let settings = engine.settings().map_err(fail)?;
    let word = |verdict| match verdict {
        Verdict::Fine => "fine",
        Verdict::Weak => "weak",
        Verdict::Unsafe => "UNSAFE",
    };
    if as_json {
        let all: Vec<Value> = settings
            .iter()
            .map(
                |one| json!({"name": one.name, "value": one.value, "verdict": word(one.verdict), "advice": one.advice}),
            )
            .collect();
        println!("{}", Value::Array(all));
    } else {
        for one in &settings {
            println!("{:<6}  {} = {:?}", word(one.verdict), one.name, one.value);
            if !one.advice.is_empty() {
                println!("        {}", one.advice);
            }
        }
    }
    let is_unsafe = settings.iter().any(|one| one.verdict == Verdict::Unsafe);
    if is_unsafe {
        Err(Failure { code: Code::Found, message: "what was answered may get lost with these settings".to_owned() })
    } else {
        Ok(())
    }
}

/// What a store has, by the rows.
#[derive(Clone, Copy, Debug, Default)]
struct Has {
    segments: u64,
    /// That no store has which is not detached.
    alone: u64,
}

#[derive(Debug, Default)]
struct Segments {
    all: u64,
    /// By number of stores that are not detached.
    by_stores: BTreeMap<usize, u64>,
    of_store: BTreeMap<StoreNumber, Has>,
}

impl Segments {
    /// One that nothing refers to needs no copies; of one that has all of them it is not asked.
    fn count(&mut self, engine: &dyn Engine, known: &KnownSegment, copies: &CopiesRecord) -> Result<(), Error> {
        if known.record.state == SegmentState::Removed {
            return Ok(());
        }
        let has = &known.record.stores;
        let left = has.iter().filter(|store| !copies.detached.contains(store)).count();
        if left < usize::from(copies.copies) && !is_referenced(engine, known.id)? {
            return Ok(());
        }
        self.all += 1;
        *self.by_stores.entry(left).or_default() += 1;
        for store in has {
            let of_store = self.of_store.entry(*store).or_default();
            of_store.segments += 1;
            of_store.alone += u64::from(left == 1 && !copies.detached.contains(store));
        }
        Ok(())
    }
}

fn count_segments(engine: &dyn Engine, stores: &[KnownStore], copies: &CopiesRecord) -> Result<Segments, Failure> {
    let mut found = Segments::default();
    for store in stores {
        let mut count = |known: KnownSegment| {
            found.count(engine, &known, copies)?;
            Ok(ControlFlow::Continue(()))
        };
        visit_segments_made_by(engine, store.number, &mut count).map_err(fail)?;
    }
    Ok(found)
}

fn state_of(store: &KnownStore, copies: &CopiesRecord) -> &'static str {
    match (copies.detached.contains(&store.number), &store.address) {
        (true, _) => "detached",
        (false, Some(_)) => "running",
        (false, None) => "not running",
    }
}

fn show(engine: &dyn Engine, as_json: bool) -> Result<(), Failure> {
    let copies = read_copies(engine).map_err(fail)?;
    let stores = known_stores(engine).map_err(fail)?;
    let segments = count_segments(engine, &stores, &copies)?;
    let too_few = segments.by_stores.range(..usize::from(copies.copies)).map(|(_, count)| count).sum::<u64>();
    let nowhere = segments.by_stores.get(&0).copied().unwrap_or_default();
    if as_json {
        let stores: Vec<Value> = stores
            .iter()
            .map(|store| {
                let has = segments.of_store.get(&store.number).copied().unwrap_or_default();
                json!({
                    "store": store.number.0,
                    "state": state_of(store, &copies),
                    "address": store.address,
                    "host": store.host,
                    "segments": has.segments,
                    "segments_nowhere_else": has.alone,
                })
            })
            .collect();
        let value = json!({
            "copies": copies.copies,
            "write": copies.write,
            "segments": segments.all,
            "segments_with_too_few_copies": too_few,
            "segments_lost": nowhere,
            "stores": stores,
        });
        println!("{value:#}");
        return Ok(());
    }
    println!("copies {}, of which a write waits for {}", copies.copies, copies.write);
    match (segments.all, too_few, nowhere) {
        (all, 0, _) => println!("segments {all}, all with their copies"),
        (all, few, 0) => println!("segments {all}, {few} with too few copies: running servers make them"),
        (all, few, lost) => println!("segments {all}, {few} with too few copies, {lost} of them LOST"),
    }
    println!("{:>5}  {:<12} {:>9} {:>13}  ADDRESS", "STORE", "STATE", "SEGMENTS", "NOWHERE ELSE");
    for store in &stores {
        let has = segments.of_store.get(&store.number).copied().unwrap_or_default();
        let (state, address) = (state_of(store, &copies), store.address.as_deref().unwrap_or("-"));
        println!("{:>5}  {state:<12} {:>9} {:>13}  {address} {}", store.number.0, has.segments, has.alone, store.host);
    }
    Ok(())
}

fn set(engine: &dyn Engine, copies: Option<u8>, write: Option<u8>) -> Result<(), Failure> {
    let before = read_copies(engine).map_err(fail)?;
    let changed = |record: &CopiesRecord| {
        let copies = copies.unwrap_or(record.copies);
        // All of them, if nobody says how many.
        let write = write.unwrap_or(if record.write == record.copies { copies } else { record.write.min(copies) });
        CopiesRecord { copies, write, ..record.clone() }
    };
    if !changed(&before).is_valid() {
        return Err(Failure::usage("copies are 1 to 8, and a write waits for 1 to as many".to_owned()));
    }
    let now = change_copies(engine, &|record| {
        let next = changed(record);
        if next.is_valid() {
            *record = next;
        }
    });
    let now = now.map_err(fail)?;
    let running = known_stores(engine).map_err(fail)?.iter().filter(|store| state_of(store, &now) == "running").count();
    println!("copies {}, of which a write waits for {}", now.copies, now.write);
    if running < usize::from(now.copies) {
        println!("only {running} servers are running: start more, or there are fewer copies");
    }
    if running < usize::from(now.write) {
        println!("writes are refused until {} servers are running", now.write);
    }
    Ok(())
}

fn detach(engine: &dyn Engine, store: StoreNumber, lose: bool, undo: bool) -> Result<(), Failure> {
    let stores = known_stores(engine).map_err(fail)?;
    let Some(known) = stores.iter().find(|known| known.number == store) else {
        return Err(Failure::usage(format!("there is no store {}; `margay cluster status` shows them", store.0)));
    };
    let copies = read_copies(engine).map_err(fail)?;
    if !undo {
        if known.address.is_some() {
            return Err(Failure::failed(format!(
                "store {} is open on {}: stop that server first, or wait until it is taken for dead",
                store.0, known.host
            )));
        }
        let alone = count_segments(engine, &stores, &copies)?.of_store.get(&store).copied().unwrap_or_default().alone;
        if alone > 0 && !lose {
            return Err(Failure::failed(format!(
                "{alone} segments of store {} are nowhere else: start its server again, or give them up with --lose",
                store.0
            )));
        }
    }
    change_copies(engine, &|record| {
        record.detached.retain(|one| *one != store);
        if !undo {
            record.detached.push(store);
            record.detached.sort_unstable();
        }
    })
    .map_err(fail)?;
    match undo {
        true => println!("store {} is part of the volume again", store.0),
        false => {
            println!("store {} is detached: `margay cluster status` shows which copies are missing still", store.0)
        }
    }
    Ok(())
}
