//! `margay cluster`: how many copies the servers of a shared volume make, which stores they have, and which are gone for good.
//!
//! Why:        the numbers are rows, so that all servers have the same ones, at once; the command needs the database only.
//! Not here:   making copies (margay-cluster), servers that are stopped for a while (node).

mod failover;
mod init;
mod patroni;
mod pool;
mod status;
mod upgrade;

use margay_env::Env;
use margay_meta::Engine;
use margay_postgres::{PostgresEngine, Verdict};
use margay_segment::StoreNumber;
use margay_volume::{CopiesRecord, KnownStore, change_copies, known_stores, read_copies};
use serde_json::{Value, json};

pub(super) use self::status::{Found, find, role_of, show_stores, state_of};
use super::adopt;
use super::arguments::DataArgs;
use crate::exit::{Code, Failure};
use crate::settings::{Settings, SharedSettings};

const EXAMPLES: &str = "Examples:
  margay cluster init --host a=10.0.0.1 --host b=10.0.0.2 --host c=10.0.0.3 --out cluster
  margay cluster status --metadata postgres://margay@db/margay
  margay cluster check --metadata postgres://margay@db/margay
  margay cluster set --copies 3 --write 2 --metadata postgres://margay@db/margay
  margay cluster set --racks 2 --metadata postgres://margay@db/margay
  margay cluster pool add cold --url s3://margay-pool/prod --endpoint https://s3.example --metadata postgres://margay@db/margay
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
    /// Show what is wrong and what to do, the stores of the volume, and whether each segment has its copies
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
    /// Change how many copies there are, and how many a write waits for, in how many racks
    Set {
        /// Servers that have each object, 1 to 8
        #[arg(long, value_name = "N")]
        copies: Option<u8>,
        /// Servers that have it before a write is answered
        #[arg(long, value_name = "W")]
        write: Option<u8>,
        /// Racks in which they are then, as servers say with --rack
        #[arg(long, value_name = "K")]
        racks: Option<u8>,
    },
    /// Write the settings of a new cluster on PostgreSQL with high availability: etcd, Patroni, margay, systemd
    Init(init::Init),
    /// Make a standby that has all commits the primary of PostgreSQL, by Patroni
    Failover(failover::Failover),
    /// Show the version of each server, and which one to restart next
    Upgrade(upgrade::Upgrade),
    /// Move the volume of one server into an empty database; its segments stay, and its directory becomes the first store
    Adopt {
        /// Make it a volume of its own again, if a move that broke off has not brought its rows over
        #[arg(long)]
        undo: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Buckets of other S3 stores that have copies of what is written no more
    Pool(pool::Args),
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

pub(super) fn fail(error: impl std::fmt::Display) -> Failure {
    Failure::failed(error.to_string())
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Command::Adopt { undo, json } = args.command {
        let (settings, shared) = settings_of(args.metadata.as_ref(), &args.data)?;
        return adopt::run(&settings.data, &settings.storage, &shared.postgres, undo, json);
    }
    match &args.command {
        Command::Init(init) => return init::run(init),
        Command::Failover(failover) => return failover::run(failover),
        _ => {}
    }
    let engine = open(args.metadata.as_ref(), &args.data)?;
    match &args.command {
        Command::Status { json } => status::show(&engine, *json),
        Command::Check { json } => check(&engine, *json),
        Command::Set { copies, write, racks } => set(&engine, (*copies, *write, *racks)),
        Command::Upgrade(upgrade) => upgrade::run(upgrade, &engine),
        Command::Pool(args) => pool::run(&engine, args),
        Command::Adopt { .. } | Command::Init(_) | Command::Failover(_) => Ok(()),
        Command::Detach { store, lose, undo } => detach(&engine, StoreNumber(*store), *lose, *undo),
    }
}

/// The rows of the volume that the arguments or settings name.
pub(super) fn open(metadata: Option<&String>, data: &DataArgs) -> Result<PostgresEngine, Failure> {
    let (_, shared) = settings_of(metadata, data)?;
    let engine = PostgresEngine::open(&shared.postgres);
    engine.map_err(|error| fail(format!("{}: {error}", shared.postgres.config)))
}

fn settings_of(metadata: Option<&String>, data: &DataArgs) -> Result<(Settings, SharedSettings), Failure> {
    let mut data = data.clone();
    data.set.extend(metadata.iter().map(|url| format!("metadata={url}")));
    let mut settings = data.settings(&Env::real())?;
    let Some(shared) = settings.shared.take() else {
        return Err(Failure::usage(
            "copies are made by servers that share a volume: name its database with --metadata postgres://USER@HOST/DATABASE"
                .to_owned(),
        ));
    };
    Ok((settings, shared))
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

fn set(engine: &dyn Engine, (copies, write, racks): (Option<u8>, Option<u8>, Option<u8>)) -> Result<(), Failure> {
    let before = read_copies(engine).map_err(fail)?;
    let changed = |record: &CopiesRecord| {
        let copies = copies.unwrap_or(record.copies);
        // All of them, if nobody says how many.
        let write = write.unwrap_or(if record.write == record.copies { copies } else { record.write.min(copies) });
        CopiesRecord { copies, write, racks: racks.unwrap_or(record.racks.min(write)), ..record.clone() }
    };
    let next = changed(&before);
    if !next.is_valid() {
        let said = "copies are 1 to 8, a write waits for 1 to as many, and in 1 to as many racks as it waits for";
        return Err(Failure::usage(said.to_owned()));
    }
    let stores = known_stores(engine).map_err(fail)?;
    let there = stores.iter().map(|store| store.number).filter(|store| !before.detached.contains(store));
    let there = before.racks_of(there);
    if usize::from(next.racks) > there && racks.is_some() {
        return Err(Failure::usage(format!(
            "the servers of this volume are in {there} racks, so no write could wait for {}: start servers elsewhere with \
             `margay serve --rack NAME`",
            next.racks
        )));
    }
    let now = change_copies(engine, &|record| {
        let next = changed(record);
        if next.is_valid() {
            *record = next;
        }
    });
    let now = now.map_err(fail)?;
    println!("{}", status::numbers(&now));
    let running = status::places(&stores, &now);
    if running.len() < usize::from(now.copies) {
        println!("only {} servers are running: start more, or there are fewer copies", running.len());
    }
    let racks = now.racks_of(running.iter().copied());
    if running.len() < usize::from(now.write) {
        println!("writes are refused until {} servers are running", now.write);
    } else if racks < usize::from(now.racks) {
        println!("writes are refused until servers are running in {} racks", now.racks);
    }
    Ok(())
}

/// A store that the volume has.
pub(super) fn known(engine: &dyn Engine, store: StoreNumber) -> Result<KnownStore, Failure> {
    let stores = known_stores(engine).map_err(fail)?;
    let found = stores.into_iter().find(|known| known.number == store);
    found.ok_or_else(|| Failure::usage(format!("there is no store {}; `margay cluster status` shows them", store.0)))
}

pub(super) fn detach(engine: &dyn Engine, store: StoreNumber, lose: bool, undo: bool) -> Result<(), Failure> {
    let known = known(engine, store)?;
    if !undo {
        if known.address.is_some() {
            return Err(Failure::failed(format!(
                "store {} is open on {}: stop that server first, or wait until it is taken for dead",
                store.0, known.host
            )));
        }
        let has = status::find(engine)?.segments.of(store);
        let (alone, unsure) = (has.alone, has.unsure);
        if alone > 0 && !lose {
            return Err(Failure::failed(format!(
                "{alone} segments of store {} are nowhere else: start its server again, or give them up with --lose",
                store.0
            )));
        }
        if unsure > 0 && !lose {
            return Err(Failure::failed(format!(
                "of {unsure} segments of store {} the others may have a part only, because they were being written: start its server again, \
                 or give up what is nowhere else with --lose",
                store.0
            )));
        }
    }
    change_copies(engine, &|record| {
        put(&mut record.detached, store, !undo);
        record.suspended.retain(|one| *one != store);
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

/// Puts a store into an ascending list, or takes it out.
pub(super) fn put(stores: &mut Vec<StoreNumber>, store: StoreNumber, is_in: bool) {
    stores.retain(|one| *one != store);
    if is_in {
        stores.push(store);
        stores.sort_unstable();
    }
}
