//! The mount points of one name: those that were given, or a rival's, mounted as often as a case wants.
//!
//! Why:        mounts of buckets remember what a directory holds, and hear late, or never, of what another mount point made.
//! Invariants: P1 a further mount point of a rival is mounted after the objects were made, and is measured once it shows all of
//!                them; until then it is taken off and mounted anew.
//!             P2 what was mounted is unmounted with its handle.

use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_env::Env;

use super::tree;
use crate::error::BenchError;
use crate::listing;
use crate::rivals::{Mounting, Running};
use crate::stop::Stop;

/// For the store of a mount to have all that was made through another one.
const SHOW_TIME: Duration = Duration::from_secs(120);
const SHOW_STEP: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct MeasuredMounts {
    /// Mounted before anything is measured; objects are made through the first.
    pub(super) directories: Vec<PathBuf>,
    /// How there are more.
    mounting: Option<Mounting>,
}

impl MeasuredMounts {
    pub(super) fn given(directories: &[PathBuf]) -> MeasuredMounts {
        MeasuredMounts { directories: directories.to_vec(), mounting: None }
    }

    pub(super) fn of(rival: &Running) -> MeasuredMounts {
        MeasuredMounts { directories: vec![rival.directory().to_owned()], mounting: rival.mounting.clone() }
    }

    /// Whether it has so many mount points, or can have them.
    pub(super) fn has(&self, mount_points: usize) -> bool {
        mount_points <= self.directories.len() || self.mounting.is_some()
    }
}

/// A place while it is measured.
#[derive(Debug)]
pub(super) struct MountPoints<'a> {
    place: &'a MeasuredMounts,
    /// The directory that all objects are in.
    name: &'a str,
    env: &'a Env,
    stop: &'a Stop,
    further: Vec<Running>,
}

impl<'a> MountPoints<'a> {
    pub(super) fn new(place: &'a MeasuredMounts, name: &'a str, env: &'a Env, stop: &'a Stop) -> MountPoints<'a> {
        MountPoints { place, name, env, stop, further: Vec::new() }
    }

    /// The directory of all objects as each of `count` mount points shows it; further ones show directories of the sizes
    /// `listed` whole.
    pub(super) fn roots(&mut self, count: usize, listed: &[u64]) -> Result<Vec<PathBuf>, BenchError> {
        if let Some(mounting) = &self.place.mounting {
            for number in self.place.directories.len() + self.further.len() + 1..=count {
                self.further.push(self.mounted(mounting, number, listed)?);
            }
        }
        let further = self.further.iter().map(Running::directory);
        let all = self.place.directories.iter().map(PathBuf::as_path).chain(further);
        let roots: Vec<PathBuf> = all.take(count).map(|directory| directory.join(self.name)).collect();
        assert_eq!(roots.len(), count, "cases were chosen by what the place has");
        Ok(roots)
    }

    fn mounted(&self, mounting: &Mounting, number: usize, listed: &[u64]) -> Result<Running, BenchError> {
        let began = self.env.clock.monotonic();
        loop {
            self.stop.check()?;
            let running = mounting.mount(number, self.stop)?;
            match shown(&running.directory().join(self.name), listed) {
                Ok(()) => return Ok(running),
                Err(error) if self.env.clock.monotonic() - began > SHOW_TIME => {
                    let told = format!("mount point {number} does not show what another one made: {error}");
                    return Err(BenchError::Rival(told));
                }
                Err(_) => drop(running),
            }
            std::thread::sleep(SHOW_STEP);
        }
    }
}

fn shown(root: &Path, listed: &[u64]) -> std::io::Result<()> {
    listed.iter().try_for_each(|objects| listing::list(&tree::listed(root, *objects), *objects, false))
}
