//! The real binary as a child: started, killed, asked to check its directory.
//!
//! Invariants: a child never outlives its handle.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::http::{ACCESS_KEY, SECRET_KEY};
use crate::{Failure, fail, upkeep};

/// Limits near their least, so that log files end and packs fill within a few cycles.
const LIMITS: [&str; 4] =
    ["limits.log_bytes_max=8MiB", "limits.pack_bytes_max=1MiB", "limits.raw_bytes_min=1MiB", "limits.cache_bytes=4MiB"];

/// From SIGTERM to the end of a server.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);
const STOP_STEP: Duration = Duration::from_millis(20);
/// Lines of a server's log that are shown with a failure.
const LINES_SHOWN: usize = 20;

/// The program to try: as named, else $MARGAY_BIN, else what `make build` makes. The error says what to do.
pub(crate) fn program(named: Option<PathBuf>) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = || std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let named = named.or_else(|| std::env::var_os("MARGAY_BIN").map(PathBuf::from));
    let program = named.unwrap_or_else(|| target().join("release/margay"));
    if program.is_file() {
        return Ok(program);
    }
    Err(format!("{} is not there: build it (`make build`), or name it with MARGAY_BIN", program.display()))
}

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    screen: Lines<BufReader<ChildStdout>>,
}

fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MARGAY_") || name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

impl Process {
    /// Begins to start; what it says goes to a file beside the data.
    pub(crate) fn start(binary: &Path, data: &Path, more: &[&OsStr]) -> Result<Process, Failure> {
        let broken = |error: std::io::Error| Failure(format!("{} does not start: {error}", binary.display()));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(data.with_extension("log"));
        let mut command = command(binary);
        command.args(["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data"]).arg(data).args(more);
        for setting in LIMITS.into_iter().chain(upkeep::SETTINGS) {
            command.args(["--set", setting]);
        }
        command.env("MARGAY_ACCESS_KEY", ACCESS_KEY).env("MARGAY_SECRET_KEY", SECRET_KEY);
        let mut child = command.stdout(Stdio::piped()).stderr(log.map_err(broken)?).spawn().map_err(broken)?;
        let stdout = child.stdout.take().expect("it was asked for");
        Ok(Process { child, screen: BufReader::new(stdout).lines() })
    }

    /// Waits until it answers; its port.
    pub(crate) fn port(&mut self) -> Result<u16, Failure> {
        let mut port = None;
        while let Some(Ok(line)) = self.screen.next() {
            if let Some(rest) = line.trim_start().strip_prefix("S3 ") {
                let address = rest.trim_start().split(' ').next().unwrap_or_default();
                port = address.rsplit(':').next().and_then(|digits| digits.parse().ok());
            }
            if line.contains("Ctrl-C") {
                break;
            }
        }
        match port {
            Some(port) => Ok(port),
            None => fail!("the server ends before it answers: {:?}", self.child.wait()),
        }
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// SIGTERM; it has to end well, and in time.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has a number");
        // Fails only when it ended by itself, which its status says.
        let _ = kill_process(pid, Signal::TERM);
        for _ in 0..STOP_TIME_MAX.as_millis() / STOP_STEP.as_millis() {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(STOP_STEP),
                Ok(Some(status)) if status.success() => return Ok(()),
                other => fail!("the server ends with {other:?}"),
            }
        }
        fail!("the server does not end within {STOP_TIME_MAX:?}")
    }

    fn end(&mut self) {
        // Fails only when it ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs; a server that ended by itself is a failure.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            other => fail!("the server ended by itself: {other:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The last lines that servers on this directory have logged.
pub(crate) fn last_said(data: &Path) -> String {
    let said = std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

/// Runs a command of the binary on a directory at rest; its output.
pub(crate) fn at_rest(binary: &Path, name: &str, data: &Path) -> Result<String, Failure> {
    let output = command(binary).arg(name).arg("--data").arg(data).output();
    let output = output.map_err(|error| Failure(format!("{} {name}: {error}", binary.display())))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    fail!("{name} ends with {}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// Answers to S3 of a running server that did not wait until every kernel had forgotten what they changed.
pub(crate) fn late_notices(binary: &Path, data: &Path) -> Result<u64, Failure> {
    const NAME: &str = "\"late_notices\":";
    let output = command(binary).args(["mounts", "--json", "--data"]).arg(data).output();
    let output = output.map_err(|error| Failure(format!("{} mounts: {error}", binary.display())))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rest = said.split(NAME).nth(1).map(str::trim_start);
    let digits = rest.and_then(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next());
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(late) => Ok(late),
        None => fail!("`mounts` says nothing of late notices: {said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}
