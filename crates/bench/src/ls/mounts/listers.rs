//! Listers that begin at once, each with the time of its own listing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use margay_env::Env;

use super::{Case, Row, tree};
use crate::error::BenchError;
use crate::kernel_caches;
use crate::listing;
use crate::stop::Stop;
use crate::summary::median;

pub(super) struct Listers<'a> {
    pub(super) env: &'a Env,
    pub(super) stop: &'a Stop,
    /// The tree as each mount point shows it.
    pub(super) roots: &'a [PathBuf],
    /// With the attributes of each entry.
    pub(super) long: bool,
    /// Empty the kernel's caches before each run.
    pub(super) cold: bool,
}

impl Listers<'_> {
    pub(super) fn measure(&self, case: Case, runs: u16) -> Result<Row, BenchError> {
        let mut seconds = Vec::new();
        for _ in 0..runs {
            self.stop.check()?;
            let run = if self.cold { kernel_caches::drop_all() } else { Ok(()) }.and_then(|()| self.run(case));
            let took = run.map_err(BenchError::file(&tree::listed(&self.roots[0], case.objects)))?;
            seconds.extend(took.iter().map(Duration::as_secs_f64));
        }
        Ok(Row {
            case,
            listings: seconds.len(),
            mean_s: seconds.iter().sum::<f64>() / seconds.len() as f64,
            median_s: median(seconds.iter().copied()),
            max_s: seconds.iter().copied().fold(0.0, f64::max),
        })
    }

    /// One listing by every lister.
    fn run(&self, case: Case) -> io::Result<Vec<Duration>> {
        let begin = Barrier::new(self.roots.len() * case.clients);
        std::thread::scope(|scope| {
            let folders = self.roots.iter().map(|root| tree::listed(root, case.objects));
            let listers = folders.flat_map(|folder| vec![folder; case.clients]).map(|folder| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    self.list(&folder, case.objects)
                })
            });
            // All are there before the first is waited for.
            let listers: Vec<_> = listers.collect();
            let join = |lister: std::thread::ScopedJoinHandle<'_, io::Result<Duration>>| {
                lister.join().unwrap_or_else(|_| Err(io::Error::other("a lister panicked")))
            };
            listers.into_iter().map(join).collect()
        })
    }

    fn list(&self, folder: &Path, objects: u64) -> io::Result<Duration> {
        let began = self.env.clock.monotonic();
        listing::list(folder, objects, self.long)?;
        Ok(self.env.clock.monotonic() - began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lister_of_every_run_counts_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let (env, stop, root) = (Env::real(), Stop::default(), folder.path().join("x"));
        let mut tree = tree::Tree::create(&env, &stop, &root).unwrap();
        tree.make_listed(7).unwrap();
        let roots = [root.clone(), root.clone()];
        let listers = Listers { env: &env, stop: &stop, roots: &roots, long: true, cold: false };
        let case = Case { total: 7, objects: 7, mounts: 2, clients: 3 };
        let row = listers.measure(case, 4).unwrap();
        assert_eq!(row.listings, 2 * 3 * 4);
        assert!(row.mean_s > 0.0 && row.median_s <= row.max_s && row.mean_s <= row.max_s);
        std::fs::create_dir(tree::listed(&root, 7).join("more")).unwrap();
        let error = listers.measure(case, 1).unwrap_err().to_string();
        assert!(error.contains("8 of 7 entries are listed"), "{error}");
    }
}
