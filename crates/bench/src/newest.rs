//! The whole report of each one's last round, when several are measured in turns.
//!
//! Why:      a comparison has one figure for each phase; what a round measured besides is kept beside it.
//! Not here: the comparison itself (`comparison`), whose turn it is (`turns`).

use margay_env::Env;

use crate::error::BenchError;
use crate::report::{OutputArgs, Report};

/// Names and reports, in the order in which each was last measured.
#[derive(Debug)]
pub(crate) struct Newest<R>(Vec<(String, R)>);

impl<R> Default for Newest<R> {
    fn default() -> Newest<R> {
        Newest(Vec::new())
    }
}

impl<R: Report> Newest<R> {
    /// Takes the place of an older one of this name.
    pub(crate) fn keep(&mut self, name: &str, report: R) {
        self.0.retain(|(kept, _)| kept != name);
        self.0.push((name.to_owned(), report));
    }

    pub(crate) fn any(&self) -> Option<&R> {
        self.0.first().map(|(_, report)| report)
    }

    /// Writes each into a folder of its name, where reports go.
    pub(crate) fn write_files(&self, env: &Env, output: &OutputArgs) -> Result<(), BenchError> {
        let Some(directory) = &output.report else { return Ok(()) };
        // A name may be a path that was given.
        let folder = |name: &str| directory.join(name.trim_matches('/').replace('/', "-"));
        self.0.iter().try_for_each(|(name, report)| report.write_files(env, &folder(name)))
    }
}
