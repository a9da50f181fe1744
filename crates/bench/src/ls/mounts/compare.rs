//! Listings through the mount points of several, in turns.
//!
//! Not here: the listings (`grid`), more mount points of a rival (`place`), ratios (`comparison`).

use margay_env::Env;

use super::grid::Grid;
use super::measured_mounts::MeasuredMounts;
use super::mount;
use crate::comparison::MILLISECONDS;
use crate::error::BenchError;
use crate::ls::LsArgs;
use crate::newest::Newest;
use crate::side_by_side;
use crate::turns::Turns;

/// Measures the mount points that were given as one, named by the first of them, and every rival.
pub(super) fn run(args: &LsArgs, env: &Env) -> Result<(), BenchError> {
    let (grid, directories) = (Grid::of(args, env)?, args.mounts.given());
    let mut reports = Newest::default();
    let (rivals, output) = (&args.frame.rivals, &args.frame.output);
    let comparison = side_by_side::with_rivals(rivals, output, !directories.is_empty(), env, |rivals, name, stop| {
        let _mounted = mount::all(&args.mounts, env, stop)?;
        let first = directories.first().map(|first| (first.display().to_string(), MeasuredMounts::given(directories)));
        let given = first.into_iter().collect();
        let mut turns = Turns::new(given, rivals, |rival| Ok(MeasuredMounts::of(rival)), args.frame.rounds, stop)?;
        turns.measure(1, &mut |place: &MeasuredMounts, entrant| {
            let (report, outcome) = grid.measure(place, name, stop);
            for row in &report.rows {
                entrant.add(row.case.name().into(), MILLISECONDS, row.median_s * 1e3);
            }
            reports.keep(&entrant.name, report);
            outcome
        })?;
        Ok(turns.compare("ls-mounts", title(args, grid.cold)))
    })?;
    output.show(env, &comparison)?;
    reports.write_files(env, output)
}

fn title(args: &LsArgs, cold: bool) -> String {
    let entries = if args.mounts.long { "with attributes" } else { "names only" };
    let caches = if cold { "the kernel's caches emptied before each" } else { "not cold" };
    format!("a directory of the store's objects listed {} times, {entries}, {caches}", args.runs)
}
