//! `margay bench ls --mounts`: listings of a directory through mounts of one store.
//!
//! Why:        how many objects a directory may hold, and whether all others, more listers at once or more mount points
//!             make its `ls` slower, was asked of LeoFS in 2013; the same grid answers it for any mount.
//! Layout:     `mount` mounts and unmounts, `tree` makes and removes the objects, `listers` measures, `show` reports
//!             beside the figures of then (`cited`).
//! Invariants: all objects are below one new directory, which is removed also after Ctrl-C; what was mounted here is
//!             unmounted. Each listing counts what it finds: a mount that shows too little fails the run.

pub(crate) mod cited;
mod listers;
mod mount;
mod show;
mod tree;

use std::path::PathBuf;

use margay_env::Env;
use serde::Serialize;

use crate::error::BenchError;
use crate::stop::Stop;
use crate::{kernel_caches, scratch};

use super::{LsArgs, Sizes, parse_sizes};
use tree::Tree;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Mounts")]
pub struct MountsArgs {
    /// Instead of all above: list directories through these mount points of one store, with the sizes below
    #[arg(long = "mounts", value_name = "DIR", num_args = 1.., value_delimiter = ',')]
    pub directories: Vec<PathBuf>,
    /// Mount each DIR first with this shell command, which names it as {}; unmounted at the end
    #[arg(long, value_name = "COMMAND", requires = "directories")]
    pub mount_command: Option<String>,
    /// Objects in the store when listing, one series for each number (100000,500000,1000000 as cited)
    #[arg(long, value_name = "N,N,...", default_value = "20000,100000", value_parser = parse_sizes)]
    pub total: Sizes,
    /// Objects in the directory that is listed
    #[arg(long, value_name = "N,N,...", default_value = "1000,5000,10000", value_parser = parse_sizes)]
    pub objects: Sizes,
    /// Listers at once at each mount point
    #[arg(long, value_name = "N,N,...", default_value = "1,2,3", value_delimiter = ',', value_parser = crate::clients)]
    pub clients: Vec<usize>,
    /// Ask for the attributes of each entry too, as `ls -l` does
    #[arg(long)]
    pub long: bool,
}

/// What one row is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Case {
    /// Objects in the store (T).
    total: u64,
    /// Objects in the directory (O).
    objects: u64,
    /// Mount points that are listed at once (M).
    mounts: usize,
    /// Listers at each of them (C).
    clients: usize,
}

/// Seconds of the listings of one case.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    listings: usize,
    mean_s: f64,
    median_s: f64,
    max_s: f64,
}

#[derive(Debug, Serialize)]
struct MountsReport {
    mounts: Vec<String>,
    mount_command: Option<String>,
    runs: u16,
    /// Attributes of each entry too.
    long: bool,
    /// The kernel's caches were emptied before each run.
    cold: bool,
    rows: Vec<Row>,
}

pub(super) fn run(args: &LsArgs) -> Result<(), BenchError> {
    let env = Env::real();
    args.frame.output.prepare(&env)?;
    let name = scratch::bucket_name(&env);
    let report = Stop::heard(format!("{name} in {}", args.mounts.directories[0].display()), |stop| {
        let _mounted = mount::all(&args.mounts, &env, stop)?;
        measure(args, &env, stop, &name)
    })?;
    args.frame.output.show(&env, &report)
}

fn measure(args: &LsArgs, env: &Env, stop: &Stop, name: &str) -> Result<MountsReport, BenchError> {
    let MountsArgs { directories, mount_command, total, objects, clients, long } = &args.mounts;
    let cases = cases(&total.0, &objects.0, directories.len(), clients)?;
    let cold = kernel_caches::may_drop();
    let mut report = MountsReport {
        mounts: directories.iter().map(|directory| directory.display().to_string()).collect(),
        mount_command: mount_command.clone(),
        runs: args.runs,
        long: *long,
        cold,
        rows: Vec::new(),
    };
    let roots: Vec<PathBuf> = directories.iter().map(|directory| directory.join(name)).collect();
    let mut tree = Tree::create(env, stop, &roots[0])?;
    let outcome = cases.iter().try_for_each(|case| {
        for objects in &objects.0 {
            tree.make_listed(*objects)?;
        }
        tree.grow(case.total)?;
        let listers = listers::Listers { env, stop, roots: &roots[..case.mounts], long: *long, cold };
        report.rows.push(listers.measure(*case, args.runs)?);
        Ok(())
    });
    let removed = tree.remove();
    outcome.and(removed).map(|()| report)
}

/// As cited: every total by one lister, then at the largest total more listers at once, and more mount points.
fn cases(total: &[u64], objects: &[u64], mounts: usize, clients: &[usize]) -> Result<Vec<Case>, BenchError> {
    let (mut total, mut objects) = (total.to_vec(), objects.to_vec());
    total.sort_unstable();
    objects.sort_unstable();
    objects.dedup();
    let (Some(smallest), Some(&largest)) = (total.first(), total.last()) else {
        return Err(BenchError::Usage("--total names no number".to_owned()));
    };
    let listed: u64 = objects.iter().sum();
    if listed == 0 || listed > *smallest {
        let reason = format!("the directories of --objects hold {listed} objects, more than none and up to --total");
        return Err(BenchError::Usage(reason));
    }
    let at = |total, mounts, clients| {
        objects.iter().map(move |&objects| Case { total, objects, mounts, clients }).collect::<Vec<_>>()
    };
    let grown = total.iter().flat_map(|&total| at(total, 1, 1));
    let crowded = clients.iter().filter(|clients| **clients > 1).flat_map(|&clients| at(largest, 1, clients));
    let spread = (2..=mounts).flat_map(|mounts| at(largest, mounts, 1));
    Ok(grown.chain(crowded).chain(spread).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_the_cited_one() {
        let cases = cases(&[100, 500, 1000], &[10, 50], 3, &[1, 2, 3]).unwrap();
        let rows: Vec<_> = cases.iter().map(|case| (case.total, case.objects, case.mounts, case.clients)).collect();
        assert_eq!(rows[..6], [100, 500, 1000].map(|t| [(t, 10, 1, 1), (t, 50, 1, 1)]).concat());
        let (crowded, spread) = ([2, 3].map(|c| (1, c)), [2, 3].map(|m| (m, 1)));
        let more = [crowded, spread].concat();
        assert_eq!(rows[6..], more.iter().flat_map(|&(m, c)| [(1000, 10, m, c), (1000, 50, m, c)]).collect::<Vec<_>>());
    }

    #[test]
    fn directories_larger_than_the_store_are_refused() {
        for (total, objects) in [(&[][..], &[1][..]), (&[10], &[]), (&[10], &[5, 6]), (&[100, 10], &[11])] {
            assert!(cases(total, objects, 1, &[1]).is_err(), "{total:?} {objects:?}");
        }
    }
}
