//! `margay fsck`: checks a data directory for inconsistencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_env::Env;
use margay_volume::{FsckOptions, FsckReport};
use serde_json::{Value, json};

use super::arguments::DataArgs;
use crate::exit::{Code, Failure};
use crate::progress::{Far, Line};
use crate::settings::parse::show_bytes;

const EXAMPLES: &str = "Examples:
  margay fsck
  margay fsck --data /srv/margay --json
  margay fsck --repair

No server may run on the directory. Without --repair nothing is changed, except that the log is replayed and what was
deleted is drained, as at every start. Exit code 4 when something is wrong and was not repaired. Checksums of data
are verified by `margay scrub`.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
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
    let settings = args.data.settings(&env)?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let _inside = runtime.enter();
    let storage = super::works::open_at_rest(&env, &settings)?;
    let rows = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rows);
    let line = Line::follow(&env, "fsck", move || Some(Far::Rows(counted.load(Ordering::Relaxed))));
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
    storage.close()?;
    if args.json {
        println!("{:#}", to_json(&first, clean));
    } else {
        show(&first);
    }
    if clean {
        return Ok(());
    }
    let message = if args.repair {
        "not everything could be repaired; restore the named objects from another copy"
    } else {
        "something does not fit; `margay fsck --repair` corrects what can be corrected"
    };
    Err(Failure { code: Code::Found, message: message.to_owned() })
}

fn show(report: &FsckReport) {
    for finding in &report.shown {
        println!("{:?}: {}", finding.kind, finding.what);
    }
    println!(
        "{} buckets, {} directories, {} files with {}, {} unfinished uploads",
        report.buckets,
        report.directories,
        report.files,
        show_bytes(report.bytes),
        report.uploads
    );
    println!(
        "{} live of {} in segments; {} findings, {} repaired",
        show_bytes(report.live_bytes),
        show_bytes(report.segment_bytes),
        report.findings.values().sum::<u64>(),
        report.repaired
    );
    if report.unreachable_segments > 0 {
        println!("{} segments were not looked at: their store cannot be reached", report.unreachable_segments);
    }
}

fn to_json(report: &FsckReport, clean: bool) -> Value {
    let findings: serde_json::Map<String, Value> =
        report.findings.iter().map(|(kind, count)| (format!("{kind:?}"), json!(count))).collect();
    let shown: Vec<Value> = report
        .shown
        .iter()
        .map(|finding| json!({ "kind": format!("{:?}", finding.kind), "what": finding.what }))
        .collect();
    json!({
        "clean": clean,
        "buckets": report.buckets,
        "directories": report.directories,
        "files": report.files,
        "bytes": report.bytes,
        "uploads": report.uploads,
        "parts": report.parts,
        "orphans": report.orphans,
        "shared_runs": report.shared_runs,
        "live_bytes": report.live_bytes,
        "segment_bytes": report.segment_bytes,
        "unreachable_segments": report.unreachable_segments,
        "findings": findings,
        "shown": shown,
        "repaired": report.repaired,
    })
}
