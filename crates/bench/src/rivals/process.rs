//! A command of a rival, or the server of `bench all`: started in a process group of its own, waited for with a limit, ended.
//!
//! Invariants: nothing that was started outlives its handle: first SIGTERM, after a while SIGKILL, each to the whole group.
//!             A command sees PATH, its step's variables, and a HOME of its own: no file of the user's changes it.

#![allow(clippy::disallowed_methods, reason = "the output of commands goes to files")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use margay_env::Env;
use rustix::process::{Pid, Signal, kill_process_group};

/// How often something that is waited for is looked at.
pub(crate) const LOOK_STEP: Duration = Duration::from_millis(10);
/// For a process to end by itself after SIGTERM.
const END_TIME: Duration = Duration::from_secs(10);
/// The most letters of a line of a program that are shown.
const LINE_CHARS_MAX: usize = 300;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    program: String,
    /// What it says.
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn start(
        run: &[String],
        environment: &BTreeMap<String, String>,
        work: &Path,
        log: PathBuf,
    ) -> io::Result<Process> {
        let (program, arguments) = run.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let output = fs::File::create(&log)?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", work).env("TMPDIR", work).env("LC_ALL", "C.UTF-8").envs(environment).current_dir(work);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // A group of its own, so that Ctrl-C reaches it from here only.
        let child = command.process_group(0).spawn()?;
        Ok(Process { child, program: program.clone(), log, ended: None })
    }

    /// The group of its processes.
    pub(crate) fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// How it ended and what it said last.
    pub(crate) fn told(&self, status: ExitStatus) -> String {
        let said = fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let name = self.program.rsplit('/').next().unwrap_or_default();
        match said.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{name} ended ({status}): {}", shortened(line.trim())),
            None => format!("{name} ended ({status})"),
        }
    }

    /// The first line that it said.
    pub(super) fn first_line(&self) -> Option<String> {
        let said = fs::read(&self.log).ok()?;
        let said = String::from_utf8_lossy(&said);
        said.lines().map(str::trim).find(|line| !line.is_empty()).map(shortened)
    }

    /// Ends it with all that it started.
    pub(crate) fn end(&mut self, env: &Env) {
        let Some(group) = self.group() else { return };
        if self.ended().is_none() {
            signal(group, Signal::TERM);
            let began = env.clock.monotonic();
            while self.ended().is_none() && env.clock.monotonic() - began < END_TIME {
                std::thread::sleep(LOOK_STEP);
            }
        }
        // Others of its group, and itself when it does not listen.
        signal(group, Signal::KILL);
        if self.ended.is_none() {
            // Fails only for a child that was waited for.
            self.ended = self.child.wait().ok();
        }
    }
}

/// To a group that may be gone.
pub(crate) fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

fn shortened(line: &str) -> String {
    line.chars().take(LINE_CHARS_MAX).collect()
}

/// Where a program is, as PATH says.
pub(super) fn on_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| is_program(&folder.join(program)))
}

fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(work: &Path, script: &str) -> Process {
        let run = ["sh", "-c", script].map(str::to_owned);
        Process::start(&run, &BTreeMap::new(), work, work.join("log")).unwrap()
    }

    #[test]
    fn a_process_tells_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = sh(folder.path(), "echo first; echo \"home $HOME\"; exit 3");
        let status = loop {
            if let Some(status) = process.ended() {
                break status;
            }
            std::thread::sleep(LOOK_STEP);
        };
        let told = process.told(status);
        assert!(told.contains("sh ended") && told.contains('3') && told.contains("home /"), "{told}");
        assert_eq!(process.first_line().as_deref(), Some("first"));
    }

    #[test]
    fn a_process_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = sh(folder.path(), "sleep 1000 & echo $!; wait");
        let inner = loop {
            if let Some(line) = process.first_line() {
                break line;
            }
            std::thread::sleep(LOOK_STEP);
        };
        process.end(&Env::real());
        assert!(process.ended().is_some());
        let gone = || {
            let state = fs::read_to_string(format!("/proc/{inner}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z")
        };
        while !gone() {
            std::thread::sleep(LOOK_STEP);
        }
    }

    #[test]
    fn programs_are_found_on_path() {
        assert!(on_path("sh") && !on_path("no-such-program-anywhere"));
    }
}
