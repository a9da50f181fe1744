//! `margay bench ls`: how long listings take, the way people see them and page by page.
//!
//! Why:      the first complaint about self-hosted object stores is a slow `ls`; the sizes and the five runs are
//!           those of a published LeoFS measurement, so the tables can be laid side by side.
//! Not here: the parts themselves: `s3cmd` (the whole command), `pages` (single pages), `deleted` (after deletes),
//!           `mounts` (directories instead of a server).

mod deleted;
pub(crate) mod mounts;
mod pages;
mod s3cmd;
mod show;

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use serde::Serialize;

use crate::comparison::{MILLISECONDS, SECONDS};
use crate::error::BenchError;
use crate::frame::{self, FrameArgs, ServerReport};
use crate::report::Report;
use crate::rivals::Gives;
use crate::scratch::Scratch;
use crate::target::Credentials;

use deleted::{DeletedReport, Order, shuffled};
use pages::{Prefix, PrefixReport};
use s3cmd::S3cmd;

/// Goal of `--check`: a page of 1000 keys less a HEAD, median, in milliseconds.
const PAGE_MS_MAX: f64 = 2.0;
/// Goal of `--check`: a page in a large prefix against the same page in the smallest one.
const GROWTH_RATIO_MAX: f64 = 1.3;
/// Goal of `--check`: listing after deletes against a prefix that was always empty.
const DELETED_RATIO_MAX: f64 = 2.0;
/// The most keys of one prefix: what the numbers in the keys have room for.
const PREFIX_KEYS_MAX: u64 = 100_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench ls
  margay bench ls --keys 10000 --runs 3 --json
  margay bench ls --keys 1000,10000 --rival margay,minio,s3cmd
  margay bench ls --keys '' --growth 10000,1000000 --check
  margay bench ls --keys '' --deleted --report results/
  margay bench ls --mounts /mnt/margay
  margay bench ls --mounts /mnt/1 /mnt/2 /mnt/3 --total 100000,500000,1000000 --report results/
  margay bench ls --mounts --rival margay,ext4,s3fs,juicefs-redis --total 12000 --objects 1000,5000 --rounds 1
  margay bench ls --mounts /mnt/1 --mount-command 's3fs bench {} -o use_path_request_style,url=http://127.0.0.1:9000'")]
pub struct LsArgs {
    #[command(flatten)]
    pub frame: FrameArgs,
    /// Prefix sizes of the s3cmd table and the page table; '' for none
    #[arg(long, value_name = "N,N,...", default_value = "500,1000,2000,5000,10000", value_parser = parse_sizes)]
    pub keys: Sizes,
    /// Timed runs of s3cmd and of whole listings
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    /// Samples of each page
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub samples: u16,
    /// Pages in prefixes of growing size, compared with the first
    #[arg(long, value_name = "N,N,...", default_value = "", value_parser = parse_sizes)]
    pub growth: Sizes,
    /// Listings while and after keys are deleted forwards, backwards and at random
    #[arg(long)]
    pub deleted: bool,
    /// Keys of each prefix of --deleted
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=PREFIX_KEYS_MAX))]
    pub deleted_keys: u64,
    /// Leave s3cmd out
    #[arg(long)]
    pub no_s3cmd: bool,
    /// Exit with 4 when a page takes over 2 ms, grows over 1.3x, or deletes cost over 2x
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    pub mounts: mounts::MountsArgs,
}

/// A list of prefix sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes(pub Vec<u64>);

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let parse = |word: &str| match word.trim().parse::<u64>() {
        Ok(size) if (1..=PREFIX_KEYS_MAX).contains(&size) => Ok(size),
        _ => Err(format!("{word:?} is not a number from 1 to {PREFIX_KEYS_MAX}")),
    };
    let sizes = text.split(',').filter(|word| !word.trim().is_empty()).map(parse).collect::<Result<_, _>>()?;
    Ok(Sizes(sizes))
}

/// All that one run measured.
#[derive(Debug, Serialize)]
pub struct LsReport {
    pub endpoint: String,
    /// Version of s3cmd when it was measured.
    pub s3cmd_version: Option<String>,
    pub s3cmd: Vec<s3cmd::Row>,
    pub prefixes: Vec<PrefixReport>,
    pub growth: Vec<PrefixReport>,
    pub deleted: Vec<DeletedReport>,
    /// Goals that were not reached; judged whether or not `--check` was given.
    pub missed: Vec<String>,
}

impl Report for LsReport {
    fn text(&self) -> String {
        show::text(self)
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        show::write_files(self, env, directory)
    }
}

impl ServerReport for LsReport {
    const NAME: &'static str = "ls";
    const RIVALS: &'static [Gives] = &[Gives::S3, Gives::Listing];

    fn title(&self) -> String {
        "s3cmd, single pages of 1000 keys, and whole listings".to_owned()
    }

    fn figures(&self) -> Vec<(String, &'static str, f64)> {
        let whole_command = |row: &s3cmd::Row| (format!("s3cmd ls of {}", row.keys), SECONDS, row.median_real_s);
        let pages = |prefix: &PrefixReport| {
            let page = |row: &pages::PageRow| {
                let delimiter = if row.delimiter { ", delimiter" } else { "" };
                let name = format!("{} page of {}{delimiter}", row.page, prefix.keys);
                (name, MILLISECONDS, row.page_time.median_ms)
            };
            let whole = (format!("all pages of {}", prefix.keys), MILLISECONDS, prefix.whole_ms);
            prefix.pages.iter().map(page).chain([whole]).collect::<Vec<_>>()
        };
        let pages = self.prefixes.iter().chain(&self.growth).flat_map(pages);
        self.s3cmd.iter().map(whole_command).chain(pages).collect()
    }

    /// A goal that was missed is no failure of the measurement.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// Runs the benchmark and prints its report. Builds a tokio runtime: call it from a plain thread.
pub fn run(args: &LsArgs, found: Option<Credentials>) -> Result<(), BenchError> {
    let rivals = !args.frame.rivals.rivals.is_empty();
    if args.mounts.directories.is_some() {
        return mounts::run(args);
    }
    if args.check && rivals {
        return Err(BenchError::Usage("--check judges one server; leave --rival out".to_owned()));
    }
    match frame::run(&args.frame, found, async |scratch: &Scratch| measure(args, scratch).await)? {
        Some(report) if args.check && !report.missed.is_empty() => Err(BenchError::Missed(report.missed.join("; "))),
        _ => Ok(()),
    }
}

async fn measure(args: &LsArgs, scratch: &Scratch) -> Result<LsReport, BenchError> {
    let ca = args.frame.target.ca.as_ref().map(|path| path.to_string_lossy().into_owned());
    let s3cmd = if args.no_s3cmd { None } else { S3cmd::find(scratch.target(), ca.as_deref())? };
    let mut report = LsReport {
        endpoint: scratch.target().url(),
        s3cmd_version: s3cmd.as_ref().map(|s3cmd| s3cmd.version.clone()),
        s3cmd: Vec::new(),
        prefixes: Vec::new(),
        growth: Vec::new(),
        deleted: Vec::new(),
        missed: Vec::new(),
    };
    let (samples, runs) = (usize::from(args.samples), usize::from(args.runs));
    let mut filled: Vec<u64> = Vec::new();
    for &keys in &args.keys.0 {
        let prefix = fill(scratch, keys, &mut filled).await?;
        if let Some(s3cmd) = &s3cmd {
            // Blocks this runtime, on which nothing else runs now: s3cmd has the machine to itself.
            report.s3cmd.push(s3cmd.measure(scratch, &prefix, runs)?);
        }
        report.prefixes.push(pages::measure(scratch, &prefix, samples, runs).await?);
    }
    for &keys in &args.growth.0 {
        let prefix = fill(scratch, keys, &mut filled).await?;
        report.growth.push(pages::measure(scratch, &prefix, samples, runs).await?);
    }
    if args.deleted {
        for order in Order::ALL {
            report.deleted.push(deleted::measure(scratch, order, args.deleted_keys, samples).await?);
        }
    }
    report.missed = missed(&report);
    Ok(report)
}

/// Makes a prefix of `keys` objects, in a shuffled order, unless an earlier part made it.
async fn fill(scratch: &Scratch, keys: u64, filled: &mut Vec<u64>) -> Result<Prefix, BenchError> {
    let prefix = Prefix { name: format!("{keys}/"), keys };
    if !filled.contains(&keys) {
        let naming = prefix.clone();
        let key_of = Arc::new(move |index| naming.key(shuffled(index, keys)));
        scratch.fill_small(&format!("fill {}", prefix.name), keys, key_of).await?;
        filled.push(keys);
    }
    Ok(prefix)
}

fn missed(report: &LsReport) -> Vec<String> {
    let mut missed = Vec::new();
    for prefix in report.prefixes.iter().chain(&report.growth) {
        for row in prefix.pages.iter().filter(|row| row.net_median_ms > PAGE_MS_MAX) {
            let (net, page, keys) = (row.net_median_ms, row.page, prefix.keys);
            missed.push(format!("the {page} page of {keys} keys takes {net:.2} ms, over {PAGE_MS_MAX} ms"));
        }
    }
    for (prefix, row, ratio) in report.growth_ratios() {
        if ratio > GROWTH_RATIO_MAX {
            let (page, keys) = (row.page, prefix.keys);
            missed.push(format!("the {page} page of {keys} keys takes {ratio:.2}x, over {GROWTH_RATIO_MAX}x"));
        }
    }
    for deleted in &report.deleted {
        let (order, worst) = (deleted.order.name(), deleted.worst_ratio());
        if worst > DELETED_RATIO_MAX {
            missed.push(format!("deleting {order} makes listings {worst:.2}x, over {DELETED_RATIO_MAX}x"));
        }
    }
    missed
}

impl LsReport {
    /// Every page of the growth table with its net time against the same page of the first size.
    fn growth_ratios(&self) -> impl Iterator<Item = (&PrefixReport, &pages::PageRow, f64)> {
        let first = self.growth.first();
        self.growth.iter().flat_map(move |prefix| {
            prefix.pages.iter().enumerate().map(move |(index, row)| {
                let base = first.map_or(0.0, |first| first.pages[index].net_median_ms);
                (prefix, row, if base > 0.0 { row.net_median_ms / base } else { 1.0 })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_or_refused() {
        assert_eq!(parse_sizes("500, 1000").unwrap().0, [500, 1000]);
        assert_eq!(parse_sizes("").unwrap().0, [0_u64; 0]);
        for wrong in ["0", "a", "1,-1", "1000000000"] {
            assert!(parse_sizes(wrong).is_err(), "{wrong}");
        }
    }
}
