//! The whole grid of cases at one place: makes the objects, lists, removes them.
//!
//! Invariants: what was measured is told also when something fails after it, the removal, too.

use margay_env::Env;

use super::listers::Listers;
use super::measured_mounts::{MeasuredMounts, MountPoints};
use super::tree::Tree;
use super::{Case, MountsReport, Row, cases};
use crate::error::BenchError;
use crate::kernel_caches;
use crate::ls::LsArgs;
use crate::stop::Stop;

#[derive(Debug)]
pub(super) struct Grid<'a> {
    args: &'a LsArgs,
    env: &'a Env,
    /// In the order in which they are measured: growing, the first mount point before others.
    cases: Vec<Case>,
    /// The kernel's caches are emptied before each run.
    pub(super) cold: bool,
}

impl<'a> Grid<'a> {
    pub(super) fn of(args: &'a LsArgs, env: &'a Env) -> Result<Grid<'a>, BenchError> {
        let mounts = &args.mounts;
        let cases = cases(&mounts.total.0, &mounts.objects.0, mounts.mount_points()?, &mounts.clients)?;
        Ok(Grid { args, env, cases, cold: kernel_caches::may_drop() })
    }

    /// Measures all cases that the place has enough mount points for, in a new directory `name`.
    pub(super) fn measure(
        &self,
        place: &MeasuredMounts,
        name: &str,
        stop: &Stop,
    ) -> (MountsReport, Result<(), BenchError>) {
        let mounts = &self.args.mounts;
        let mut report = MountsReport {
            mounts: place.directories.iter().map(|directory| directory.display().to_string()).collect(),
            mount_command: mounts.mount_command.clone(),
            runs: self.args.runs,
            long: mounts.long,
            cold: self.cold,
            rows: Vec::new(),
        };
        let outcome = Tree::create(self.env, stop, &place.directories[0].join(name)).and_then(|mut tree| {
            let outcome = self.measure_all(place, name, &mut tree, &mut report.rows, stop);
            let removed = tree.remove();
            outcome.and(removed)
        });
        (report, outcome)
    }

    fn measure_all(
        &self,
        place: &MeasuredMounts,
        name: &str,
        tree: &mut Tree<'_>,
        rows: &mut Vec<Row>,
        stop: &Stop,
    ) -> Result<(), BenchError> {
        // They end here, before what they show is removed.
        let mut mount_points = MountPoints::new(place, name, self.env, stop);
        for case in self.cases.iter().filter(|case| place.has(case.mounts)) {
            for objects in &self.args.mounts.objects.0 {
                tree.make_listed(*objects)?;
            }
            tree.grow(case.total)?;
            let roots = &mount_points.roots(case.mounts, &tree.listed)?;
            let listers = Listers { env: self.env, stop, roots, long: self.args.mounts.long, cold: self.cold };
            rows.push(listers.measure(*case, self.args.runs)?);
        }
        Ok(())
    }
}

impl Case {
    /// As the row of a comparison is called.
    pub(super) fn name(&self) -> String {
        let Case { total, objects, mounts, clients } = self;
        let listers = if *clients > 1 { format!(", {clients} listers") } else { String::new() };
        let mounts = if *mounts > 1 { format!(", {mounts} mount points") } else { String::new() };
        format!("{objects} of {total}{listers}{mounts}")
    }
}
