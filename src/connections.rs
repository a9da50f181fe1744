//! Records the FUSE connections of a server's mounts, so that another process can abort them when the server dies.
//!
//! Why:        a killed server with a thread that waits in the kernel for its own mount never exits. It keeps the lock
//!             of its directory, and every user of the mount hangs with it (docs/design/0014).
//! Layout:     `<data>/connections`, see docs/format/directory.md. `guard` is the watching process.
//! Invariants: N1 a mount is recorded before it answers its first request.
//!             N2 a connection is aborted only if its server is dying or gone: by its process state, or because its
//!                lock is free.
//! Not here:   the kernel's interface (margay-fuse).

pub mod guard;

use std::io;
use std::path::{Path, PathBuf};

use margay_env::files;
use margay_env::{Env, OpenMode};
use margay_fuse::connections::{Connection, Connections};
use margay_fuse::mount_point::{self, MOUNT_KIND};

use guard::Guard;

/// The file's name in the data directory.
const FILE: &str = "connections";
const MAGIC: &str = "margay connections 1";
/// Maximum size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a file in /proc that are read.
const PROC_BYTES_MAX: usize = 16 << 10;
/// SIGKILL in the mask of pending signals: a thread that runs never has it pending.
const KILLED: u64 = 1 << 8;

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Recorded {
    /// Id of the machine's boot, for which the connection numbers are valid.
    boot: String,
    server: u32,
    connections: Vec<Connection>,
}

impl Recorded {
    fn text(&self) -> String {
        let mut text = format!("{MAGIC}\nboot {}\nserver {}\n", self.boot, self.server);
        for Connection { minor, born: (seconds, nanoseconds) } in &self.connections {
            text += &format!("connection {minor} {seconds}.{nanoseconds:09}\n");
        }
        text
    }

    fn parse(text: &str) -> Option<Recorded> {
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return None;
        }
        let mut recorded = Recorded::default();
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "boot" => recorded.boot = rest.to_owned(),
                "server" => recorded.server = rest.parse().ok()?,
                "connection" => {
                    let (minor, born) = rest.split_once(' ')?;
                    let (seconds, nanoseconds) = born.split_once('.')?;
                    let born = (seconds.parse().ok()?, nanoseconds.parse().ok()?);
                    recorded.connections.push(Connection { minor: minor.parse().ok()?, born });
                }
                // Written by a newer program.
                _ => {}
            }
        }
        Some(recorded)
    }

    /// The record of this boot; `None` when there is none.
    fn read(env: &Env, data: &Path) -> Option<Recorded> {
        let bytes = files::read(env, &data.join(FILE), FILE_BYTES_MAX).ok()?;
        let recorded = Recorded::parse(&String::from_utf8_lossy(&bytes))?;
        (boot(env).ok()? == recorded.boot).then_some(recorded)
    }

    fn cut(&self) {
        if self.connections.is_empty() {
            return;
        }
        let kernel = match Connections::open() {
            Ok(kernel) => kernel,
            Err(error) => {
                tracing::warn!(%error, "the connections of mounts that a dead server left cannot be looked for");
                return;
            }
        };
        for connection in &self.connections {
            let minor = connection.minor;
            match kernel.cut(connection) {
                Ok(true) => tracing::warn!(minor, server = self.server, "cut a mount off from its server, which died"),
                Ok(false) => {}
                Err(error) => tracing::error!(
                    %error,
                    minor,
                    "a mount of a server that died cannot be cut off; as root: echo 1 > /sys/fs/fuse/connections/{minor}/abort"
                ),
            }
        }
    }
}

/// The record of a running server.
#[derive(Debug)]
pub struct Record {
    env: Env,
    data: PathBuf,
    /// Kept open so that the creation times of its connections stay valid.
    kernel: Option<Connections>,
    connections: Vec<Connection>,
    guard: Option<Guard>,
}

impl Record {
    pub fn new(env: &Env, data: &Path) -> Record {
        Record { env: env.clone(), data: data.to_owned(), kernel: None, connections: Vec::new(), guard: None }
    }

    /// Adds a mount of this server. If that fails, the mount works all the same.
    pub fn add(&mut self, path: &Path) {
        if let Err(error) = self.try_add(path) {
            tracing::warn!(
                %error,
                path = %path.display(),
                "the connection of this mount is not known, so nobody can cut it off if the server is killed in a bad moment"
            );
        }
    }

    fn try_add(&mut self, path: &Path) -> io::Result<()> {
        if self.kernel.is_none() {
            self.kernel = Some(Connections::open()?);
        }
        let kernel = self.kernel.as_ref().expect("it was opened in the line above");
        let fresh = kernel.of_mount(&self.env, path)?;
        self.connections.retain(|connection| kernel.has(connection).unwrap_or(true));
        self.connections.push(fresh);
        let recorded =
            Recorded { boot: boot(&self.env)?, server: std::process::id(), connections: self.connections.clone() };
        files::write_new(&self.env, &self.data.join(FILE), recorded.text().as_bytes())?;
        if self.guard.is_none() {
            self.guard = Some(Guard::start(&self.env, &self.data)?);
        }
        Ok(())
    }
}

/// Aborts the connections of an earlier server. The caller holds the lock of the directory.
pub fn cut_left(env: &Env, data: &Path) {
    if let Some(recorded) = Recorded::read(env, data) {
        recorded.cut();
    }
    match env.disk.remove(&data.join(FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "the list of an earlier server's mounts cannot be removed");
        }
        _ => {}
    }
}

/// Aborts the mounts of the server that holds the lock, if it is dying; false when it is not.
pub fn cut_of_dying(env: &Env, data: &Path) -> bool {
    let Some(recorded) = Recorded::read(env, data) else { return false };
    if recorded.server == std::process::id() || life(env, recorded.server) != Life::Dying {
        return false;
    }
    recorded.cut();
    true
}

/// Whether a mount is there that the holder of the lock has recorded.
pub fn is_mounted(env: &Env, data: &Path) -> bool {
    let Some(recorded) = Recorded::read(env, data) else { return false };
    let Ok(lines) = mount_point::mounts(env) else { return true };
    // The kernel gives the number of a mount that ended to the next one.
    let kernel = Connections::open().ok();
    let is_there = |connection: &Connection| {
        let device = format!("0:{}", connection.minor);
        let is_same = kernel.as_ref().is_none_or(|kernel| kernel.has(connection).unwrap_or(true));
        is_same && lines.iter().any(|line| line.kind == MOUNT_KIND && line.device == device)
    };
    recorded.connections.iter().any(is_there)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// It was killed or has exited; threads of it may remain.
    Dying,
    Gone,
}

fn life(env: &Env, process: u32) -> Life {
    match start_of(env, &format!("/proc/{process}/status")) {
        Ok(status) => life_in(&status),
        Err(_) => Life::Gone,
    }
}

/// Evaluates the main thread's `status`. The thread is a zombie once it has exited, even if other threads have not. If
/// it is the main thread that hangs, SIGKILL stays pending.
fn life_in(status: &str) -> Life {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let ended = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    let signals = field("SigPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    if ended || signals.is_some_and(|mask| mask & KILLED != 0) { Life::Dying } else { Life::Running }
}

fn boot(env: &Env) -> io::Result<String> {
    Ok(start_of(env, "/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The beginning of a file whose length is not known in advance.
fn start_of(env: &Env, path: &str) -> io::Result<String> {
    let file = env.disk.open(path.as_ref(), OpenMode::Read)?;
    let mut bytes = vec![0; PROC_BYTES_MAX];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_again() {
        let connections = vec![
            Connection { minor: 49, born: (1_700_000_000, 7) },
            Connection { minor: 1_048_575, born: (1, 999_999_999) },
        ];
        let recorded = Recorded { boot: "3b0c-1".to_owned(), server: 12, connections };
        let text = recorded.text();
        assert_eq!(Recorded::parse(&text), Some(recorded.clone()), "{text}");
        assert_eq!(Recorded::parse(&format!("{text}later what\n")), Some(recorded));
        for wrong in
            ["", "margay connections 2\n", "margay connections 1\nserver x\n", "margay connections 1\nconnection 4\n"]
        {
            assert_eq!(Recorded::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_process_that_was_killed_is_told_from_one_that_runs() {
        let status =
            |state: &str, pending: &str| format!("Name:\tx\nState:\t{state}\nSigPnd:\t{pending}\nShdPnd:\t0\n");
        assert_eq!(life_in(&status("S (sleeping)", "0000000000000000")), Life::Running);
        assert_eq!(life_in(&status("D (disk sleep)", "0000000000004001")), Life::Running);
        assert_eq!(life_in(&status("Z (zombie)", "0000000000000000")), Life::Dying);
        assert_eq!(life_in(&status("D (disk sleep)", "0000000000000100")), Life::Dying);
        assert_eq!(life(&Env::real(), std::process::id()), Life::Running);
        assert_eq!(life(&Env::real(), u32::MAX), Life::Gone);
    }

    #[test]
    fn what_another_start_of_the_machine_left_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let mut recorded = Recorded { boot: boot(&env).unwrap(), server: 1, connections: Vec::new() };
        files::write_new(&env, &folder.path().join(FILE), recorded.text().as_bytes()).unwrap();
        assert_eq!(Recorded::read(&env, folder.path()), Some(recorded.clone()));
        recorded.boot = "another".to_owned();
        files::write_new(&env, &folder.path().join(FILE), recorded.text().as_bytes()).unwrap();
        assert_eq!(Recorded::read(&env, folder.path()), None);
        cut_left(&env, folder.path());
        assert!(!env.disk.exists(&folder.path().join(FILE)).unwrap());
    }
}
