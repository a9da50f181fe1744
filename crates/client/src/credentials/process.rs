//! Keys that a program of the user prints (`credential_process`).
//!
//! Why:        companies give keys out by programs of their own.
//! Invariants: R1 a program that does not end is killed after its time, with what it has started.
//! Not here:   the profile that names the program (`profile`).

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::Missing;
use super::keys::Keys;

/// How long the program may take.
const PROCESS_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of its output that are read at most.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Runs the command line in a shell, as other tools do. What the program says on stderr is for people and stays there.
/// A program that fails or hangs may need the network, so its keys are late.
pub(super) async fn run(command_line: &str) -> Result<Keys, Missing> {
    run_within(command_line, PROCESS_TIME_MAX).await
}

async fn run_within(command_line: &str, time_max: Duration) -> Result<Keys, Missing> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(command_line).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let process = rustix::process::Pid::from_child(&child);
    let (done, outcome) = tokio::sync::oneshot::channel();
    // A thread of its own: one that hangs must not keep the runtime from ending.
    std::thread::spawn(move || {
        let _ = done.send(output_of(child));
    });
    let Ok(outcome) = tokio::time::timeout(time_max, outcome).await else {
        // The shell may have started what hangs.
        let _ = rustix::process::kill_process_group(process, rustix::process::Signal::KILL);
        return Err(Missing::late(format!("did not end within {} s", time_max.as_secs())));
    };
    let outcome = outcome.map_err(|_| "broke off".to_owned())?;
    let (status, output) = outcome.map_err(|error| format!("cannot be read: {error}"))?;
    if !status.success() {
        let is_missing = matches!(status.code(), Some(126 | 127));
        return Err(Missing { why: format!("failed: {status}"), is_late: !is_missing });
    }
    Ok(Keys::from_json(&output, "SessionToken").map_err(|error| format!("printed {error}"))?)
}

fn output_of(mut child: Child) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut output)?;
    }
    Ok((child.wait()?, output))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[tokio::test]
    async fn a_program_that_hangs_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        // A pipe without a reader cannot be opened; the reader is there as long as anybody has it open for writing.
        let line = format!("mkfifo {0}; cat {0} & exec 3>{0}; sleep 1000 & wait", fifo.display());
        let told = run_within(&line, Duration::from_secs(2)).await;
        assert_eq!(told.unwrap_err(), Missing::late("did not end within 2 s".to_owned()));
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        while rustix::fs::open(&fifo, flags, Mode::empty()).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
