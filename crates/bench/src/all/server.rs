//! A server for the benchmark alone, with a bucket mounted when that is allowed.
//!
//! Invariants: it ends with its handle, and its mounts go with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use margay_env::Env;

use crate::error::BenchError;
use crate::mount_table;
use crate::rivals::process::{LOOK_STEP, Process};
use crate::rivals::{ACCESS_KEY, SECRET_KEY};
use crate::stop::Stop;

const BUCKET: &str = "bench";
/// A directory on the file system that the data is on, and the bucket as one; below the work directory.
const PLAIN: &str = "plain";
const MOUNT: &str = "mount";
/// The same bucket once more: with `mount` as many mount points as the cited listings through mounts had.
const MORE_MOUNTS: [&str; 2] = ["mount-2", "mount-3"];

#[derive(Debug)]
pub(super) struct Server {
    pub(super) endpoint: String,
    /// Directories to measure, as they are called in the work directory: the plain one, and the mount when there is one.
    pub(super) directories: Vec<&'static str>,
    /// All mount points of the bucket.
    pub(super) mounts: Vec<&'static str>,
    /// None in tests.
    running: Option<(Env, Process)>,
}

impl Server {
    /// Starts one whose data is in `work`, where suites are run.
    pub(super) fn start(env: &Env, work: &Path, stop: &Stop) -> Result<Server, BenchError> {
        let mount_points = || std::iter::once(MOUNT).chain(MORE_MOUNTS);
        for folder in std::iter::once(PLAIN).chain(mount_points()) {
            let folder = work.join(folder);
            fs::create_dir(&folder).map_err(BenchError::file(&folder))?;
        }
        let program = program()?;
        let mut run: Vec<String> =
            [&program, "serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data", "data"]
                .map(str::to_owned)
                .to_vec();
        for folder in mount_points() {
            run.extend(["--mount".to_owned(), format!("{BUCKET}={}", work.join(folder).display())]);
        }
        let log = work.join("server.log");
        let process =
            Process::start(&run, &keys(), work, log.clone()).map_err(BenchError::file(Path::new(&program)))?;
        let mut server = Server {
            endpoint: String::new(),
            directories: vec![PLAIN],
            mounts: Vec::new(),
            running: Some((env.clone(), process)),
        };
        server.endpoint = server.wait(&log, stop)?;
        match mount_table::is_mounted(&work.join(MOUNT)) {
            true => {
                server.directories.push(MOUNT);
                server.mounts = mount_points().collect();
            }
            false => eprintln!("no mount here (`margay mount` says why): directories are shown without it"),
        }
        Ok(server)
    }

    /// Waits until it takes requests; its address.
    fn wait(&mut self, log: &Path, stop: &Stop) -> Result<String, BenchError> {
        loop {
            stop.check()?;
            let said = fs::read_to_string(log).unwrap_or_default();
            if said.lines().any(|line| line.contains("Ctrl-C")) {
                let endpoint =
                    said.lines().find_map(|line| line.trim_start().strip_prefix("S3 ")?.split_whitespace().next());
                return endpoint.map(str::to_owned).ok_or_else(|| {
                    BenchError::Rival("the server of the benchmark does not say where it listens".to_owned())
                });
            }
            if let Some((_, process)) = &mut self.running
                && let Some(status) = process.ended()
            {
                return Err(BenchError::Rival(format!("the server of the benchmark: {}", process.told(status))));
            }
            std::thread::sleep(LOOK_STEP);
        }
    }

    pub(super) fn is_mounted(&self) -> bool {
        !self.mounts.is_empty()
    }

    #[cfg(test)]
    pub(super) fn nowhere() -> Server {
        Server {
            endpoint: "http://127.0.0.1:1".to_owned(),
            directories: vec![PLAIN, MOUNT],
            mounts: vec![MOUNT, MORE_MOUNTS[0]],
            running: None,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((env, process)) = &mut self.running {
            process.end(env);
        }
    }
}

/// The path of this program.
pub(super) fn program() -> Result<String, BenchError> {
    let path = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
    Ok(path.display().to_string())
}

/// The variables that name the keys of the server.
pub(super) fn keys() -> BTreeMap<String, String> {
    let keys = [("MARGAY_ACCESS_KEY", ACCESS_KEY), ("MARGAY_SECRET_KEY", SECRET_KEY)];
    keys.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
