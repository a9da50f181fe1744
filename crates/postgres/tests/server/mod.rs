//! A PostgreSQL server of a test, in a folder of its own, reached by a socket in it.

#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "each file of tests uses a part of it, and waits for a real process"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use margay_postgres::{PostgresEngine, PostgresOptions};

#[path = "../../../../tests/server/ports.rs"]
#[allow(clippy::duplicate_mod, reason = "tests of the program have it in their own folder too")]
mod ports;

pub(crate) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
}

/// The newest on this machine.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
    let folders = versions.map(|version| version.path().join("bin")).filter(|folder| folder.join("initdb").exists());
    folders.max()
}

impl Server {
    /// `None` on a machine without PostgreSQL, and that is said.
    pub(crate) fn start() -> Option<Server> {
        if std::env::var_os("MARGAY_NO_POSTGRES").is_some() {
            println!("skipped: metadata in PostgreSQL, because MARGAY_NO_POSTGRES is set");
            return None;
        }
        let Some(programs) = programs() else {
            println!("skipped: metadata in PostgreSQL, because this machine has no PostgreSQL");
            return None;
        };
        let server = Server { folder: tempfile::tempdir().unwrap(), programs };
        // The server is started as another user, who must get at its folder.
        fs::set_permissions(server.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let data = server.data();
        fs::create_dir(&data).unwrap();
        if is_root() {
            server.run(Command::new("chown").arg("postgres").arg(&data));
        }
        server.run(
            server
                .program("initdb")
                .args([
                    "--no-sync",
                    "-A",
                    "trust",
                    "-U",
                    "margay",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "--locale-provider=icu",
                    "--icu-locale=en",
                    "-D",
                ])
                .arg(&data),
        );
        server.begin();
        // It warns at the start of each connection now, which is about no commit.
        server.sql("update pg_database set datcollversion = '1'");
        Some(server)
    }

    /// Another one that follows this one.
    pub(crate) fn standby(&self) -> Server {
        let standby = Server { folder: tempfile::tempdir().unwrap(), programs: self.programs.clone() };
        fs::set_permissions(standby.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let data = standby.data();
        fs::create_dir(&data).unwrap();
        if is_root() {
            standby.run(Command::new("chown").arg("postgres").arg(&data));
        }
        fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mut copy = standby.program("pg_basebackup");
        copy.args(["--no-sync", "-R", "-X", "stream", "-c", "fast", "-U", "margay", "-h"]).arg(self.data());
        standby.run(copy.arg("-D").arg(&data));
        // The lock of the other one's socket came along.
        fs::remove_file(data.join(".s.PGSQL.5432.lock")).unwrap();
        standby.begin();
        standby
    }

    /// The folder of its socket.
    pub(crate) fn place(&self) -> PathBuf {
        self.data()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// As its own user, since PostgreSQL does not run as root.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        if !is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]).arg(program);
        command
    }

    fn run(&self, command: &mut Command) {
        let done = command.current_dir(self.folder.path()).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    pub(crate) fn begin(&self) {
        self.begin_with("-c listen_addresses=");
    }

    fn begin_with(&self, more: &str) {
        let data = self.data();
        let options = format!("-k {} {more} -c max_connections=200", data.display());
        let mut command = self.program("pg_ctl");
        command.args(["-w", "-t", "120", "-o", &options, "-l"]).arg(data.join("log")).arg("-D").arg(&data).arg("start");
        self.run(command.stdout(Stdio::null()));
    }

    /// All its processes at once, as by a power cut of the machine without the loss of its memory.
    pub(crate) fn kill(&self) {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        // It stands still first, so that it starts none that is not killed.
        let kill = format!("kill -STOP {pid}; parts=$(pgrep -P {pid}); kill -9 {pid} $parts; echo {pid} $parts");
        let killed = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).output().unwrap();
        let pids = String::from_utf8_lossy(&killed.stdout).into_owned();
        let begun = Instant::now();
        // Any that is left has their shared memory, with which no other server starts in this folder.
        while pids.split_whitespace().any(|pid| Path::new("/proc").join(pid).exists()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is killed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// All its processes stand still, or go on.
    pub(crate) fn pause(&self, stands_still: bool) {
        let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        let signal = if stands_still { "STOP" } else { "CONT" };
        // It comes first, so that it starts none that is not stopped. Those of connections that were closed may end meanwhile.
        self.signal(signal, &pid);
        let parts = format!("kill -{signal} $(pgrep -P {pid})");
        drop(Command::new("sh").args(["-c", &parts]).stderr(Stdio::null()).status());
    }

    /// Processes, with spaces between them.
    pub(crate) fn signal(&self, signal: &str, pids: &str) {
        self.run(Command::new("sh").args(["-c", &format!("kill -{signal} {pids}")]));
    }

    pub(crate) fn sql(&self, statement: &str) {
        let mut command = self.program("psql");
        self.run(command.args(["-X", "-q", "-U", "margay", "-d", "postgres", "-c", statement, "-h"]).arg(self.data()));
    }

    /// Starts it again with a port that takes protected connections only. Gives the port.
    pub(crate) fn protect(&self, certificate: &Path, key: &Path) -> u16 {
        let data = self.data();
        let port = ports::free_port();
        self.run(self.program("pg_ctl").args(["-w", "-m", "fast", "-D"]).arg(&data).arg("stop"));
        for (from, name) in [(certificate, "server.crt"), (key, "server.key")] {
            fs::copy(from, data.join(name)).unwrap();
            fs::set_permissions(data.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            if is_root() {
                self.run(Command::new("chown").arg("postgres").arg(data.join(name)));
            }
        }
        let rules = "local all all trust\nhostssl all all 127.0.0.0/8 trust\n";
        fs::write(data.join("pg_hba.conf"), rules).unwrap();
        self.begin_with(&format!("-c listen_addresses=127.0.0.1,127.0.0.2 -p {port} -c ssl=on"));
        port
    }

    /// Whether a standby lacks some of what this server has written.
    pub(crate) fn lag(&self, standby: &Server) -> bool {
        self.told("select pg_current_wal_lsn()") != standby.told("select pg_last_wal_replay_lsn()")
    }

    /// The first column of the first row.
    pub(crate) fn told(&self, question: &str) -> String {
        let mut command = self.program("psql");
        command.args(["-X", "-q", "-A", "-t", "-U", "margay", "-d", "postgres", "-c", question, "-h"]).arg(self.data());
        let told = command.current_dir(self.folder.path()).output().unwrap();
        String::from_utf8_lossy(&told.stdout).trim().to_owned()
    }

    /// As the program takes it: the socket's folder, with its slashes encoded.
    pub(crate) fn url(&self) -> String {
        format!("postgres://margay@{}/postgres", self.data().display().to_string().replace('/', "%2F"))
    }

    pub(crate) fn options(&self, schema: &str) -> PostgresOptions {
        let config = format!("host={} user=margay dbname=postgres connect_timeout=10", self.data().display());
        PostgresOptions { config, password: None, schema: schema.to_owned(), lanes: 4, readers: 2 }
    }

    pub(crate) fn engine(&self, schema: &str) -> PostgresEngine {
        PostgresEngine::open(&self.options(schema)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.data().join("postmaster.pid").exists() {
            self.kill();
        }
    }
}

fn is_root() -> bool {
    let told = Command::new("id").arg("-u").output().unwrap();
    told.stdout == b"0\n"
}
