//! `margay bench ls --mounts`: listings of a directory through mounts of one store.
//!
//! Why:        how many objects a directory may hold, and whether all others, more listers at once or more mount points
//!             make its `ls` slower, was asked of LeoFS in 2013; the same grid answers it for any mount.
//! Layout:     `place` the mount points of one name, `mount` those made by a command, `tree` makes and removes the objects,
//!             `listers` measures, `grid` does all of it at one place, `compare` at several in turns, `show` reports beside the
//!             figures of then (`cited`).
//! Invariants: all objects are below one new directory, which is removed also after Ctrl-C; what was mounted here is
//!             unmounted. Each listing counts what it finds: a mount that shows too little fails the run.

pub(crate) mod cited;
mod compare;
mod grid;
mod listers;
mod measured_mounts;
mod mount;
mod show;
mod tree;

use std::path::PathBuf;

use margay_env::Env;
use serde::Serialize;

use crate::error::BenchError;
use crate::side_by_side;

use super::{LsArgs, Sizes, parse_sizes};
use grid::Grid;
use measured_mounts::MeasuredMounts;

/// Mount points at once, where rivals can have any number: as many as were cited.
const MOUNT_POINTS_DEFAULT: usize = 3;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Mounts")]
pub struct MountsArgs {
    /// Instead of all above: list directories through these mount points of one store, and those of --rival, with the sizes
    /// below
    #[arg(long = "mounts", value_name = "DIR", num_args = 0.., value_delimiter = ',')]
    pub directories: Option<Vec<PathBuf>>,
    /// Mount each DIR first with this shell command, which names it as {}; unmounted at the end
    #[arg(long, value_name = "COMMAND", requires = "directories")]
    pub mount_command: Option<String>,
    /// Mount points at once, at most [default: as many as DIRs; 3 for rivals alone]
    #[arg(long, value_name = "N", requires = "directories", value_parser = crate::clients)]
    pub mount_points: Option<usize>,
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

impl MountsArgs {
    /// The mount points that were given.
    fn given(&self) -> &[PathBuf] {
        self.directories.as_deref().unwrap_or_default()
    }

    /// Mount points at once, at most; those that were given must suffice.
    fn mount_points(&self) -> Result<usize, BenchError> {
        let given = self.given().len();
        match self.mount_points {
            Some(wanted) if given > 0 && wanted > given => {
                let told = format!("--mount-points {wanted}, but --mounts names {given}");
                Err(BenchError::Usage(told))
            }
            Some(wanted) => Ok(wanted),
            None if given > 0 => Ok(given),
            None => Ok(MOUNT_POINTS_DEFAULT),
        }
    }
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
    let (env, mounts) = (Env::real(), &args.mounts);
    if !args.frame.rivals.rivals.is_empty() {
        return compare::run(args, &env);
    }
    if mounts.given().is_empty() {
        return Err(BenchError::Usage("--mounts names no mount point; name one, or --rival".to_owned()));
    }
    let grid = Grid::of(args, &env)?;
    let (report, outcome) =
        side_by_side::with_rivals(&args.frame.rivals, &args.frame.output, true, &env, |_, name, stop| {
            let _mounted = mount::all(mounts, &env, stop)?;
            Ok(grid.measure(&MeasuredMounts::given(mounts.given()), name, stop))
        })?;
    // What was measured until something failed is shown all the same.
    if !report.rows.is_empty() && !matches!(outcome, Err(BenchError::Interrupted)) {
        args.frame.output.show(&env, &report)?;
    }
    outcome
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
