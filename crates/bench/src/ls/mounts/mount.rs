//! Mounts made for the measurement, by any command.
//!
//! Invariants: only a directory that was no mount before is mounted on; it is unmounted when its handle ends, and what
//!             the command left running is ended with it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use margay_env::Env;
use rustix::process::{Pid, Signal};

use super::MountsArgs;
use crate::error::BenchError;
use crate::mount_table;
use crate::stop::Stop;

/// How long a mount may take to appear, and its process to end after it is gone.
const MOUNT_MAX: Duration = Duration::from_secs(30);
const LOOK_STEP: Duration = Duration::from_millis(20);
/// What stands for the directory in a command.
const DIRECTORY: &str = "{}";

/// A mounted directory.
#[derive(Debug)]
pub(super) struct Mount {
    directory: PathBuf,
    env: Env,
    /// The command, which may stay as the mount's own process.
    process: Child,
    /// It has appeared.
    mounted: bool,
}

/// Mounts every directory when there is a command for it.
pub(super) fn all(args: &MountsArgs, env: &Env, stop: &Stop) -> Result<Vec<Mount>, BenchError> {
    let Some(command) = &args.mount_command else { return Ok(Vec::new()) };
    if !command.contains(DIRECTORY) {
        return Err(BenchError::Usage(format!("--mount-command names no directory: write {DIRECTORY} for it")));
    }
    args.given().iter().map(|directory| Mount::start(command, directory, env, stop)).collect()
}

impl Mount {
    fn start(command: &str, directory: &Path, env: &Env, stop: &Stop) -> Result<Mount, BenchError> {
        let failed = BenchError::file(directory);
        // The kernel's list of mounts has whole paths without links.
        let directory = &directory.canonicalize().map_err(&failed)?;
        if mount_table::is_mounted(directory) {
            return Err(BenchError::Usage(format!("{} is a mount already", directory.display())));
        }
        let command = command.replace(DIRECTORY, &quoted(directory));
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null());
        // A group of its own: Ctrl-C ends the measurement first, and the mount after it.
        let process = shell.process_group(0).spawn().map_err(&failed)?;
        let mut mount = Mount { directory: directory.to_owned(), env: env.clone(), process, mounted: false };
        let end = env.clock.monotonic() + MOUNT_MAX;
        while !mount_table::is_mounted(directory) {
            stop.check()?;
            // A command that ends well may have left a process that mounts.
            if let Some(status) = mount.process.try_wait().map_err(&failed)?.filter(|status| !status.success()) {
                return Err(BenchError::Usage(format!("`{command}` ended with {status}")));
            }
            if env.clock.monotonic() > end {
                let seconds = MOUNT_MAX.as_secs();
                return Err(BenchError::Usage(format!("`{command}` has mounted nothing after {seconds} s")));
            }
            std::thread::sleep(LOOK_STEP);
        }
        mount.mounted = true;
        Ok(mount)
    }

    /// Waits for the process of a mount that was there to end.
    fn wait(&mut self) {
        let end = self.env.clock.monotonic() + MOUNT_MAX;
        while self.mounted && self.env.clock.monotonic() < end && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_STEP);
        }
    }

    /// Ends the command and what it started, unless it has ended by itself.
    fn end(&mut self) {
        if matches!(self.process.try_wait(), Ok(None))
            && let Some(group) = Pid::from_raw(self.process.id() as i32)
        {
            // Fails only when it has ended in between.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let _ = self.process.wait();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        mount_table::unmount(&self.env, &self.directory);
        self.wait();
        self.end();
        // It may have appeared while its command was ended, or still be in use.
        if !mount_table::detach(&self.directory) {
            eprintln!("{} could not be unmounted", self.directory.display());
        }
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_mounts_nothing_is_told_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let start = |command, stop| Mount::start(command, folder.path(), &Env::real(), stop);
        let stop = Stop::default();
        let error = start("ls {} && exit 3", &stop).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        stop.set();
        let outcome = start("sleep 1000 # {}", &stop);
        assert!(matches!(outcome, Err(BenchError::Interrupted)), "and not after its 1000 seconds");
    }

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }
}
