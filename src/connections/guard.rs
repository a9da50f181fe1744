//! The guard: a process that watches the server and aborts the server's mounts when it dies.
//!
//! Why:        neither a closed pipe nor a pidfd reports a process whose last thread hangs, so the guard polls; it
//!             cannot be a thread of that process.
//! Layout:     this program under another name, a child of the server; it executes only `run`.
//! Invariants: G1 of the server it holds only standard error and one end of a pipe.
//!             G2 signals that end the server do not end the guard: systemd and terminals send them to both.
//!             G3 it ends with the server; a guard that was killed is started again.
//! Not here:   aborting connections (connections).

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use margay_env::Env;
use rustix::process::getppid;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::{Life, cut_of_dying, life};
use crate::exit::Failure;
use crate::logging;

/// Its process name; the command line is `margay-guard DATA SERVER`.
pub const NAME: &str = "margay-guard";
/// Polling interval: a hanging server is cut off at most this much later.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause before a restart when the guard exited early: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A guard that lived this long did not fail to start.
const LIVED_MIN: Duration = Duration::from_secs(10);

/// Keeps a guard running until this process ends.
#[derive(Debug)]
pub(super) struct Guard;

impl Guard {
    pub(super) fn start(env: &Env, data: &Path) -> io::Result<Guard> {
        let data = std::path::absolute(data)?;
        let first = spawn(&data)?;
        let env = env.clone();
        std::thread::Builder::new().name("mount-guard".to_owned()).spawn(move || keep(&env, &data, first))?;
        Ok(Guard)
    }
}

fn spawn(data: &Path) -> io::Result<Child> {
    // The running program, even if its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).arg(data).arg(std::process::id().to_string());
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

fn keep(env: &Env, data: &Path, first: Child) {
    let mut running = Ok(first);
    let mut pause = Duration::ZERO;
    loop {
        let begun = env.clock.monotonic();
        match running.and_then(wait) {
            Ok(status) => tracing::warn!(%status, "the process that guards the mounts ended; it is started again"),
            Err(error) => tracing::warn!(%error, "no process guards the mounts; it is tried again"),
        }
        // The first start has no pause: until then nothing watches.
        env.clock.sleep(pause);
        let lived = env.clock.monotonic().saturating_sub(begun);
        pause = if lived >= LIVED_MIN { Duration::ZERO } else { (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) };
        running = spawn(data);
    }
}

fn wait(mut child: Child) -> io::Result<ExitStatus> {
    // `Child::wait` would close stdin, which the guard takes for the end of the server.
    let _open = child.stdin.take();
    child.wait()
}

/// The guard's `main`.
pub fn run(words: &[OsString]) -> Result<(), Failure> {
    let wrong = || Failure::usage(format!("{NAME} is started by a server only"));
    let [data, server] = words else { return Err(wrong()) };
    let server: u32 = server.to_str().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    logging::start("warn", "auto")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("{NAME}: no runtime: {error}")))?;
    let looked = runtime.block_on(look_on(&Env::real(), Path::new(data), server));
    looked.map_err(|error| Failure::failed(format!("{NAME}: {error}")))
}

async fn look_on(env: &Env, data: &Path, server: u32) -> io::Result<()> {
    // Installing handlers makes these signals harmless.
    let _signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let server_end = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    loop {
        tokio::select! {
            // Nothing is ever written to the pipe: it was closed.
            _ = server_end.readable() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        // While the server has threads it stays the parent, and its process id is not reused.
        if getppid().map(|parent| parent.as_raw_nonzero().get() as u32) != Some(server) {
            return Ok(());
        }
        if life(env, server) == Life::Dying {
            cut_of_dying(env, data);
        }
    }
}
