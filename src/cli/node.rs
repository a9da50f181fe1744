//! `margay node`: the stores of a shared volume, one by one: a planned stop, a lost disk, filling a store again.
//!
//! Why:        names and habits of those who come from other stores of this kind; all of it are rows that the servers read.
//! Not here:   numbers of copies (cluster), making and moving copies (margay-cluster).

use std::time::Duration;

use margay_env::Env;
use margay_meta::Engine;
use margay_segment::StoreNumber;
use margay_volume::{KnownStore, change_copies, known_stores, read_copies};
use serde_json::{Value, json};

use super::arguments::DataArgs;
use super::cluster::{self, Found, fail, find, put, role_of, state_of};
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay node list --metadata postgres://margay@db/margay
  margay node suspend 2     # before its server is stopped for a while; margay node resume 2 after that
  margay node detach 2      # its disk is lost: the others make the copies that it had
  margay node recover 2     # look through what it has, and fill it again now
  margay node rebalance     # after a server was added: move copies until all stores are evenly filled

NODE is the number of a store, as `margay node list` shows it, or the name of its host. While a store is suspended it gets no new
copies, and what it has is not copied elsewhere. The password of the database is read from PGPASSWORD.";

/// How often progress is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Copies that cannot be moved or made any more show no progress for so long.
const STILL_FOR: Duration = Duration::from_secs(60);
/// Stores are evenly filled when less than this part of all bytes is at the wrong one: one of so many.
const EVEN_PART: u64 = 50;

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
    /// Show the stores, where they stand and what they have
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Its server is to be stopped for a while: no new copies go there, and what it has is not copied elsewhere
    Suspend { node: String },
    /// It is there again: it gets copies, and what it lacks
    Resume { node: String },
    /// A store never comes back: make the copies that it had elsewhere
    Detach {
        node: String,
        /// Even if some segments are nowhere else, and are lost then
        #[arg(long)]
        lose: bool,
        /// It has come back after all
        #[arg(long)]
        undo: bool,
    },
    /// Move copies until all stores are evenly filled, and show how far that is
    Rebalance {
        /// Do not wait; the servers go on
        #[arg(long)]
        no_wait: bool,
        /// Move no more
        #[arg(long, conflicts_with = "no_wait")]
        stop: bool,
    },
    /// Ask a store what it has, and make the copies that it lacks now
    Recover {
        node: String,
        /// Do not wait; the servers go on
        #[arg(long)]
        no_wait: bool,
    },
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let engine = cluster::open(args.metadata.as_ref(), &args.data)?;
    match &args.command {
        Command::List { json } => list(&engine, *json),
        Command::Suspend { node } => suspend(&engine, store(&engine, node)?, true),
        Command::Resume { node } => suspend(&engine, store(&engine, node)?, false),
        Command::Detach { node, lose, undo } => cluster::detach(&engine, store(&engine, node)?, *lose, *undo),
        Command::Rebalance { no_wait, stop } => rebalance(&engine, *no_wait, *stop),
        Command::Recover { node, no_wait } => recover(&engine, store(&engine, node)?, *no_wait),
    }
}

/// The store with this number, or the only one at this host.
fn store(engine: &dyn Engine, node: &str) -> Result<StoreNumber, Failure> {
    if let Ok(number) = node.parse() {
        return cluster::known(engine, StoreNumber(number)).map(|known| known.number);
    }
    let at_host: Vec<StoreNumber> = known_stores(engine)
        .map_err(fail)?
        .iter()
        .filter(|known| known.host == node)
        .map(|known| known.number)
        .collect();
    match at_host[..] {
        [one] => Ok(one),
        [] => {
            Err(Failure::usage(format!("no server runs at {node:?}; `margay node list` shows the numbers of stores")))
        }
        _ => Err(Failure::usage(format!("several stores are at {node}: name one by its number (`margay node list`)"))),
    }
}

fn list(engine: &dyn Engine, as_json: bool) -> Result<(), Failure> {
    let found = find(engine)?;
    if as_json {
        let stores: Vec<Value> = found
            .stores
            .iter()
            .map(|store| {
                json!({"store": store.number.0, "state": state_of(store, &found.copies),
                    "role": role_of(store.number, &found.copies), "host": store.host,
                    "address": store.address, "rack": found.copies.rack_of.get(&store.number)})
            })
            .collect();
        println!("{:#}", Value::Array(stores));
    } else {
        cluster::show_stores(&found);
    }
    Ok(())
}

fn not_detached(engine: &dyn Engine, store: StoreNumber) -> Result<KnownStore, Failure> {
    let known = cluster::known(engine, store)?;
    if read_copies(engine).map_err(fail)?.detached.contains(&store) {
        let said = format!("store {} is detached; `margay node detach {} --undo` takes it back", store.0, store.0);
        return Err(Failure::failed(said));
    }
    Ok(known)
}

fn suspend(engine: &dyn Engine, store: StoreNumber, is_stop: bool) -> Result<(), Failure> {
    let known = not_detached(engine, store)?;
    change_copies(engine, &|record| put(&mut record.suspended, store, is_stop)).map_err(fail)?;
    let (number, after) = (store.0, find(engine)?);
    if !is_stop {
        println!("store {number} is resumed, and gets what it lacks");
        if known.address.is_none() {
            println!("its server does not run: start it");
        }
        return Ok(());
    }
    println!(
        "store {number} is suspended: its server may be stopped; `margay node resume {number}` when it is there again"
    );
    let (alone, running) = (after.segments.of(store).alone, after.places().len());
    if alone > 0 {
        println!("{alone} segments are nowhere else, and cannot be read while it is stopped");
    }
    if running < usize::from(after.copies.write) {
        println!(
            "writes wait for {} servers, and {running} others run: they are refused while it is stopped",
            after.copies.write
        );
    }
    Ok(())
}

/// What is left of something that the servers do.
struct Progress {
    begun: Duration,
    at_first: u64,
    /// The least that was left, and when.
    least: (u64, Duration),
}

impl Progress {
    fn new(left: u64, now: Duration) -> Progress {
        Progress { begun: now, at_first: left, least: (left, now) }
    }

    /// What to tell; `None`: nothing has come of it for too long.
    fn look(&mut self, left: u64, now: Duration) -> Option<String> {
        if left < self.least.0 {
            self.least = (left, now);
        } else if now.saturating_sub(self.least.1) >= STILL_FOR {
            return None;
        }
        let (done, took) = (self.at_first.saturating_sub(left), now.saturating_sub(self.begun).as_secs().max(1));
        let rate = done / took;
        let until = left.checked_div(rate).map_or_else(String::new, |seconds| format!(", about {seconds} s left"));
        Some(format!("{} MiB done, {} MiB left, {} MiB/s{until}", done >> 20, left >> 20, rate >> 20))
    }
}

/// Waits until nothing is left, and tells how far it is; false if it stands still.
fn follow(engine: &dyn Engine, left: &dyn Fn(&Found) -> (u64, bool)) -> Result<bool, Failure> {
    let clock = Env::real().clock;
    let mut progress: Option<Progress> = None;
    loop {
        let (bytes, is_done) = left(&find(engine)?);
        if is_done {
            return Ok(true);
        }
        let now = clock.monotonic();
        match progress.get_or_insert_with(|| Progress::new(bytes, now)).look(bytes, now) {
            Some(said) => println!("{said}"),
            None => return Ok(false),
        }
        clock.sleep(LOOK_EVERY);
    }
}

/// Bytes that are at fuller stores than they would be if all had as many, and whether that is little enough.
fn uneven(found: &Found) -> (u64, bool) {
    let fills: Vec<u64> = found.running().iter().map(|store| found.segments.of(*store).bytes).collect();
    let all: u64 = fills.iter().sum();
    let mean = all / fills.len().max(1) as u64;
    let over = fills.iter().map(|fill| fill.saturating_sub(mean)).sum();
    (over, over <= all / EVEN_PART)
}

fn rebalance(engine: &dyn Engine, no_wait: bool, stop: bool) -> Result<(), Failure> {
    let found = find(engine)?;
    if !stop && found.copies.copies < 2 {
        let said = "with one copy each object stays where it was written: `margay cluster set --copies 2`";
        return Err(Failure::usage(said.to_owned()));
    }
    let set = |rebalances| change_copies(engine, &|record| record.rebalances = rebalances).map_err(fail);
    if stop {
        set(false)?;
        println!("no more copies are moved");
        return Ok(());
    }
    set(true)?;
    if no_wait {
        println!("copies are moved until `margay node rebalance --stop`");
        return Ok(());
    }
    let is_even = follow(engine, &uneven)?;
    set(false)?;
    if is_even {
        println!("the stores are evenly filled");
    } else {
        println!(
            "no more copies can be moved: what a server wrote stays on its own disk, and copies are in different racks"
        );
    }
    Ok(())
}

fn recover(engine: &dyn Engine, store: StoreNumber, no_wait: bool) -> Result<(), Failure> {
    let known = not_detached(engine, store)?;
    if known.address.is_none() {
        return Err(Failure::failed(format!("store {} is not running: start its server first", store.0)));
    }
    change_copies(engine, &|record| {
        put(&mut record.suspended, store, false);
        record.recovered = record.recovered.wrapping_add(1);
    })
    .map_err(fail)?;
    println!("store {} is asked what it has, and gets what it lacks", store.0);
    if no_wait {
        return Ok(());
    }
    // The servers look once a second, and ask first.
    Env::real().clock.sleep(LOOK_EVERY);
    match follow(engine, &|found| (found.segments.missing_bytes, found.segments.too_few(&found.copies) == 0))? {
        true => println!("all segments have their copies"),
        false => println!("copies are missing still; `margay cluster status` shows what is wrong"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_rate_and_time_left_and_when_nothing_comes_of_it() {
        let seconds = Duration::from_secs;
        let mut progress = Progress::new(100 << 20, seconds(10));
        let said = progress.look(80 << 20, seconds(14)).unwrap();
        assert_eq!(said, "20 MiB done, 80 MiB left, 5 MiB/s, about 16 s left");
        // More to do than at first.
        assert_eq!(progress.look(200 << 20, seconds(16)).unwrap(), "0 MiB done, 200 MiB left, 0 MiB/s");
        assert!(progress.look(80 << 20, seconds(73)).is_some());
        assert!(progress.look(80 << 20, seconds(74)).is_none());
    }
}
