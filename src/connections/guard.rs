//! The process that looks whether its server dies, and then cuts the server's mounts off.
//!
//! Why:        neither a pipe's end nor a pidfd tells of a process whose last thread hangs, so somebody must look; it
//!             cannot be a thread of that process.
//! Layout:     this program under another name, a child of the server; `run` is all it does.
//! Invariants: G1 it holds nothing of the server's but the error output and one end of a pipe.
//!             G2 signals that end the server do not end it: systemd and terminals send them to both.
//!             G3 it ends with the server; one that was killed is started again.
//! Not here:   what is cut (connections).

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

/// What it is called; the command line is `margay-guard DATA SERVER`.
pub const NAME: &str = "margay-guard";
/// How often it looks. A server that hangs is cut off so much later.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Before another is started when one ended soon, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// One that lived so long was no failure to start.
const LIVED_MIN: Duration = Duration::from_secs(10);

/// Keeps one running until this process ends.
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
    // The program that runs, also when its file was replaced.
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
        // The first time at once: until then nobody looks.
        env.clock.sleep(pause);
        let lived = env.clock.monotonic().saturating_sub(begun);
        pause = if lived >= LIVED_MIN { Duration::ZERO } else { (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) };
        running = spawn(data);
    }
}

fn wait(mut child: Child) -> io::Result<ExitStatus> {
    // `Child::wait` would close it, and the guard takes that for the end of the server.
    let _open = child.stdin.take();
    child.wait()
}

/// The guard itself: the whole of `main`.
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
    // Taken, so that they do nothing.
    let _signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let server_end = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    loop {
        tokio::select! {
            // Nothing is ever written: it is over.
            _ = server_end.readable() => return Ok(()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        // While it has threads it is the parent, and its number is no other process's.
        if getppid().map(|parent| parent.as_raw_nonzero().get() as u32) != Some(server) {
            return Ok(());
        }
        if life(env, server) == Life::Dying {
            cut_of_dying(env, data);
        }
    }
}
