//! A server for the benchmark alone, with a bucket mounted when that is allowed.
//!
//! Invariants: it ends with its handle, and its mount goes with it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::BenchError;

const BUCKET: &str = "bench";
/// Mount points of the bucket, as many as the cited listings through mounts had.
const MOUNTS: usize = 3;
/// Keys of a server that listens on this machine only, for as long as the benchmark runs.
const ACCESS_KEY: &str = "BENCHBENCHBENCHBENCH";
const SECRET_KEY: &str = "bench/secret+bench/secret+bench/secret+b";

#[derive(Debug)]
pub(super) struct Server {
    child: Option<Child>,
    pub(super) endpoint: String,
    /// A directory on the file system that the data is on.
    pub(super) plain: PathBuf,
    /// A bucket as a directory.
    pub(super) mount: Option<PathBuf>,
    /// The same bucket as other directories.
    pub(super) more_mounts: Vec<PathBuf>,
}

impl Server {
    pub(super) fn start(work: &Path) -> Result<Server, BenchError> {
        let (plain, mount) = (work.join("plain"), work.join("mount"));
        let more_mounts: Vec<PathBuf> = (2..=MOUNTS).map(|number| work.join(format!("mount-{number}"))).collect();
        for folder in [&plain, &mount].into_iter().chain(&more_mounts) {
            fs::create_dir(folder).map_err(|source| super::failed(folder, source))?;
        }
        let log_path = work.join("server.log");
        let log = fs::File::create(&log_path).map_err(|source| super::failed(&log_path, source))?;
        let mut command = program()?;
        command.args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data"]).arg(work.join("data"));
        for folder in std::iter::once(&mount).chain(&more_mounts) {
            command.arg("--mount").arg(format!("{BUCKET}={}", folder.display()));
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = started.map_err(|source| super::failed(work, source))?;
        let screen = child.stdout.take();
        let mut server = Server { child: Some(child), endpoint: String::new(), plain, mount: None, more_mounts };
        for line in screen.into_iter().flat_map(|screen| BufReader::new(screen).lines()).map_while(Result::ok) {
            if let Some(rest) = line.trim_start().strip_prefix("S3 ") {
                server.endpoint = rest.split_whitespace().next().unwrap_or_default().to_owned();
            }
            if line.contains("Ctrl-C") {
                break;
            }
        }
        if server.endpoint.is_empty() {
            let said = fs::read_to_string(&log_path).unwrap_or_default();
            let said = said.lines().last().unwrap_or("it said nothing").to_owned();
            return Err(BenchError::Usage(format!("the server of the benchmark does not start: {said}")));
        }
        let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
        match device(&mount).is_some_and(|found| Some(found) != device(work)) {
            true => server.mount = Some(mount),
            false => eprintln!("no mount here (`margay mount` says why): directories are shown without it"),
        }
        Ok(server)
    }

    pub(super) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        super::interrupt(child.id());
        // Waiting fails only for a child that was waited for.
        let _ = child.wait();
    }

    #[cfg(test)]
    pub(super) fn nowhere() -> Server {
        Server {
            child: None,
            endpoint: "http://127.0.0.1:1".to_owned(),
            plain: PathBuf::from("/plain"),
            mount: Some(PathBuf::from("/mount")),
            more_mounts: vec![PathBuf::from("/mount-2")],
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// This program, with the keys of the server.
pub(super) fn program() -> Result<Command, BenchError> {
    let path = std::env::current_exe().map_err(|source| super::failed(Path::new("this program"), source))?;
    let mut command = Command::new(path);
    let theirs = |name: &str| name.starts_with("MARGAY_") || name.starts_with("AWS_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(theirs)) {
        command.env_remove(name);
    }
    command.env("MARGAY_ACCESS_KEY", ACCESS_KEY).env("MARGAY_SECRET_KEY", SECRET_KEY);
    Ok(command)
}
