//! `margay fsck`: checks a data directory for inconsistencies.
//!
//! Invariants: F1 nothing is repaired beside a server.
//! Not here:   the check (margay-volume), what it answers (`fsck`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use margay_env::Env;
use margay_volume::FsckOptions;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::reach::{AdminArgs, Reach};
use crate::checks::Checks;
use crate::exit::{Code, Failure};
use crate::fsck;
use crate::progress::{Far, Line};
use crate::settings::Settings;
use crate::settings::parse::show_bytes;

const EXAMPLES: &str = "Examples:
  margay fsck
  margay fsck --data /srv/margay --json
  margay fsck --endpoint https://s3.example.org
  margay fsck --repair

A server that runs on the directory checks it, beside its requests: the rows are those of one moment. Else it is done here. A volume of
several servers is always checked so: its segments are looked for in this directory, and other servers are asked for theirs.
--repair wants the directory for itself: stop the server first. Without it nothing is changed, except that the log is replayed and what was
deleted is drained, as at every start. Exit code 4 when something is wrong and was not repaired. Checksums of data
are verified by `margay scrub`.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The database of a volume of several servers: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL")]
    metadata: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Correct counters and remove rows without an owner; never changes a directory entry
    #[arg(long)]
    repair: bool,
    /// Findings shown; more are counted
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    show: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let env = Env::real();
    let (settings, reach) = args.admin.reach_or(args.metadata.as_deref())?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let report = match beside(args, &settings, &reach, &runtime)? {
        Some(report) => report,
        None if settings.shared.is_some() => check_shared(args, &env, &settings, &runtime)?,
        None => check_own(args, &env, &settings, &runtime)?,
    };
    match args.json {
        true => println!("{report:#}"),
        false => show(&report),
    }
    if report["clean"] == true {
        return Ok(());
    }
    let message = if args.repair {
        "not everything could be repaired; restore the named objects from another copy"
    } else if report["shared"] == true {
        "something does not fit; `margay object recover KEY` looks for whole copies of an object, else restore it from a backup"
    } else {
        "something does not fit; `margay fsck --repair` corrects what can be corrected, while no server runs on the directory"
    };
    Err(Failure { code: Code::Found, message: message.to_owned() })
}

/// By the running server; none if nobody runs on the directory.
fn beside(args: &Args, settings: &Settings, reach: &Reach, runtime: &Runtime) -> Result<Option<Value>, Failure> {
    if !args.repair {
        let wish = json!({ "show": args.show });
        return runtime.block_on(reach.ask(settings, Method::POST, "/fsck", Some(&wish)));
    }
    if reach.is_there() {
        let message =
            "--repair is done in the data directory while no server runs: stop it, and run this there with --data";
        return Err(Failure::usage(message));
    }
    if settings.shared.is_some() {
        return Err(Failure::usage("a volume that several servers share is only checked: leave out --repair"));
    }
    match runtime.block_on(reach.ask(settings, Method::GET, "/status", None))? {
        Some(_) => Err(Failure::refused(format!(
            "a server runs on {}: stop it before --repair; without --repair it checks while it runs",
            settings.data.display()
        ))),
        None => Ok(None),
    }
}

/// A volume of several servers: other ones may go on, so all rows are of one moment and nothing is changed.
fn check_shared(args: &Args, env: &Env, settings: &Settings, runtime: &Runtime) -> Result<Value, Failure> {
    let _inside = runtime.enter();
    let storage = super::works::open_at_rest(env, settings)?;
    let report = fsck::check(&storage, args.show).map_err(Failure::failed)?;
    Checks::open(&storage.env, &settings.data).checked(&report);
    storage.close()?;
    Ok(report)
}

fn check_own(args: &Args, env: &Env, settings: &Settings, runtime: &Runtime) -> Result<Value, Failure> {
    let _inside = runtime.enter();
    let storage = super::works::open_at_rest(env, settings)?;
    let rows = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rows);
    let line = Line::follow(env, "fsck", move || Some(Far::Rows(counted.load(Ordering::Relaxed))));
    let check = |repair| {
        let options = FsckOptions { repair, shown_max: args.show };
        storage
            .volume
            .fsck_counting(options, &rows)
            .map_err(|error| Failure::failed(format!("fsck could not go on: {error}")))
    };
    let first = check(args.repair)?;
    // A repair succeeded if a second check finds nothing.
    let clean = if args.repair && !first.clean() { check(false)?.clean() } else { first.clean() };
    drop(line);
    let report = fsck::to_json(&first, clean);
    Checks::open(&storage.env, &settings.data).checked(&report);
    storage.close()?;
    Ok(report)
}

fn show(report: &Value) {
    let number = |name: &str| report[name].as_u64().unwrap_or_default();
    for finding in report["shown"].as_array().into_iter().flatten() {
        let text = |name: &str| finding[name].as_str().unwrap_or_default();
        println!("{}: {}", text("kind"), text("what"));
    }
    println!(
        "{} buckets, {} directories, {} files with {}, {} unfinished uploads",
        number("buckets"),
        number("directories"),
        number("files"),
        show_bytes(number("bytes")),
        number("uploads")
    );
    let findings = report["findings"].as_object().into_iter().flatten();
    println!(
        "{} live of {} in segments; {} findings, {} repaired",
        show_bytes(number("live_bytes")),
        show_bytes(number("segment_bytes")),
        findings.filter_map(|(_, count)| count.as_u64()).sum::<u64>(),
        number("repaired")
    );
    let unnamed = number("unnamed_copies");
    if unnamed > 0 {
        println!(
            "{unnamed} copies of segments are named by no row: a server removes them an hour after it has seen that"
        );
    }
    let stores = report["unreachable_stores"].as_array().into_iter().flatten();
    let stores: Vec<String> = stores.filter_map(Value::as_u64).map(|store| store.to_string()).collect();
    if !stores.is_empty() {
        let (segments, stores) = (number("unreachable_segments"), stores.join(", "));
        println!(
            "{segments} segments were not looked at: store {stores} cannot be reached; start its server and check again"
        );
    }
}
