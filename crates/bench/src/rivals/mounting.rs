//! Further mount points of a rival's bucket.
//!
//! Why:        listings through several mount points at once are measured (`ls --mounts`), and a rival's file says how its bucket is
//!             mounted: the step that is done when it is mounted is done again elsewhere.
//! Invariants: M1 each mount point has a directory and a cache of its own; all else, such as a metadata server, they share.
//!             M2 what was mounted is taken off, and its process ended, with the handle.
//! Not here:   file systems of one mount only: those without a bucket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_env::Env;

use super::file::{Gives, RivalFile, Until};
use super::placeholders::Placeholders;
use super::running::{Groups, Running};
use crate::error::BenchError;
use crate::stop::Stop;

#[derive(Clone, Debug)]
pub(crate) struct Mounting {
    name: String,
    /// With the one step that mounts.
    file: RivalFile,
    /// Of the first mount point.
    placeholders: Placeholders,
    groups: Groups,
    env: Env,
}

impl Mounting {
    /// None for a rival that keeps nothing in a bucket, or never mounts it.
    pub(super) fn of(
        name: &str,
        file: &RivalFile,
        placeholders: &Placeholders,
        groups: &Groups,
        env: &Env,
    ) -> Option<Mounting> {
        let mounts = file.steps.iter().find(|step| step.until == Until::Mounted).filter(|_| file.needs_store)?;
        let file = RivalFile { steps: vec![mounts.clone()], files: Vec::new(), version: Vec::new(), ..file.clone() };
        let (name, placeholders, groups) = (name.to_owned(), placeholders.clone(), Arc::clone(groups));
        Some(Mounting { name, file, placeholders, groups, env: env.clone() })
    }

    /// Mounts it for the `number`th time; the first mount point has the number 1.
    pub(crate) fn mount(&self, number: usize, stop: &Stop) -> Result<Running, BenchError> {
        let mut placeholders = self.placeholders.clone();
        placeholders.mount = numbered(&placeholders.mount, number);
        placeholders.cache = numbered(&placeholders.cache, number);
        let groups = Arc::clone(&self.groups);
        Running::start_among(groups, &self.name, &self.file, Gives::Directory, placeholders, &self.env, stop)
    }
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}-{number}"))
}
