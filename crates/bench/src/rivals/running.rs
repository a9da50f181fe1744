//! One rival from its first step to its end.
//!
//! Invariants: R1 whatever a step began is taken back with the handle, in reverse order, also when a later step failed.
//!             R2 only the rival's own work directory is written to by its steps.
//!             R3 a measurement that is cut short kills every process of its rival, those of further mount points, too.
//! Not here:   which rivals (`mod`), what their steps are (`file`), when there are more mount points (`mounting`).

#![allow(clippy::disallowed_methods, reason = "files of a rival's work directory")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use super::file::{Gives, RivalFile, Step, Until};
use super::mounting::Mounting;
use super::placeholders::Placeholders;
use super::process::{self, LOOK_STEP, Process};
use crate::error::BenchError;
use crate::latency::Proxy;
use crate::mount_table;
use crate::stop::Stop;
use crate::target::{Credentials, Target, TargetArgs};

/// For a port to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// For a command that tells a version, or undoes a step.
const SHORT_TIME: Duration = Duration::from_secs(20);
/// How often a measured rival is looked at.
const WATCH_STEP: Duration = Duration::from_millis(100);
/// For a measurement to end by itself after Ctrl-C, before the rival is ended under it.
const STOP_TIME: Duration = Duration::from_secs(2);

/// A rival that was started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) title: String,
    /// What it says of itself.
    pub(crate) version: Option<String>,
    /// Name of the rival that its data is kept in.
    pub(crate) store: Option<String>,
    /// How its bucket is mounted once more.
    pub(crate) mounting: Option<Mounting>,
    env: Env,
    placeholders: Placeholders,
    started: Vec<(Process, Vec<String>)>,
    groups: Groups,
    /// Before its S3 door.
    proxy: Option<Proxy>,
}

/// The process groups of a rival and of its further mount points.
pub(super) type Groups = Arc<Mutex<Vec<Pid>>>;

/// Why a measurement was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Late,
    Stopped,
}

impl Running {
    /// Does all steps; `placeholders.work` is made here.
    pub(super) fn start(
        name: &str,
        file: &RivalFile,
        gives: Gives,
        placeholders: Placeholders,
        env: &Env,
        stop: &Stop,
    ) -> Result<Running, BenchError> {
        let groups = Groups::default();
        let mounting = Mounting::of(name, file, &placeholders, &groups, env);
        let mut running = Running::start_among(groups, name, file, gives, placeholders, env, stop)?;
        running.mounting = mounting;
        Ok(running)
    }

    /// As [`Running::start`], where others may have started what is killed with it.
    pub(super) fn start_among(
        groups: Groups,
        name: &str,
        file: &RivalFile,
        gives: Gives,
        placeholders: Placeholders,
        env: &Env,
        stop: &Stop,
    ) -> Result<Running, BenchError> {
        fs::create_dir_all(&placeholders.mount).map_err(BenchError::file(&placeholders.mount))?;
        for file in &file.files {
            let path = PathBuf::from(placeholders.fill(&file.path));
            fs::write(&path, placeholders.fill(&file.text)).map_err(BenchError::file(&path))?;
        }
        let mut running = Running {
            name: name.to_owned(),
            title: file.title.clone(),
            version: None,
            store: None,
            mounting: None,
            env: env.clone(),
            placeholders,
            started: Vec::new(),
            groups,
            proxy: None,
        };
        running.version = running.ask_version(&file.version, stop)?;
        for step in file.steps.iter().filter(|step| step.only_for.is_none_or(|only| only == gives)) {
            running.step(step, stop)?;
        }
        Ok(running)
    }

    /// Where to work, for a rival that gives a directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.placeholders.mount
    }

    /// Its S3 door, for a rival that gives that.
    pub(crate) fn target(&self) -> Result<Arc<Target>, BenchError> {
        let Placeholders { access_key, secret_key, region, .. } = self.placeholders.clone();
        let near = SocketAddr::from((Ipv4Addr::LOCALHOST, self.placeholders.ports[0]));
        let address = self.proxy.as_ref().map_or(near, |proxy| proxy.address);
        let endpoint = Some(format!("http://{address}"));
        TargetArgs { endpoint, region: Some(region), ..TargetArgs::default() }
            .resolve_as(Credentials { access_key, secret_key })
    }

    /// Puts a proxy before its S3 door.
    pub(super) fn far_away(&mut self, latency: Option<Duration>) -> Result<(), BenchError> {
        if let Some(latency) = latency {
            self.proxy = Some(Proxy::start("127.0.0.1", self.placeholders.ports[0], latency)?);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, stop: &Stop) -> Result<(), BenchError> {
        let environment =
            step.environment.iter().map(|(name, value)| (name.clone(), self.placeholders.fill(value))).collect();
        // Each mount point has logs of its own.
        let mount = self.directory().file_name().unwrap_or_default().to_string_lossy();
        let log = self.placeholders.work.join(format!("{mount}-step-{}.log", self.started.len() + 1));
        let run = self.placeholders.fill_all(&step.run);
        let process = Process::start(&run, &environment, &self.placeholders.work, log);
        let process = process.map_err(BenchError::file(Path::new(&run[0])))?;
        self.groups.lock().extend(process.group());
        self.started.push((process, self.placeholders.fill_all(&step.undo)));
        let began = self.env.clock.monotonic();
        while !self.done(&step.until)? {
            stop.check()?;
            if self.env.clock.monotonic() - began > step.limit() {
                return Err(BenchError::Rival(format!("{} was not ready after {:?}", run[0], step.limit())));
            }
            std::thread::sleep(LOOK_STEP);
        }
        Ok(())
    }

    /// Whether the newest step is done.
    fn done(&mut self, until: &Until) -> Result<bool, BenchError> {
        let Some((process, _)) = self.started.last_mut() else { return Ok(true) };
        let ended = process.ended();
        if let Some(status) = ended.filter(|status| !status.success()) {
            return Err(BenchError::Rival(process.told(status)));
        }
        let port = self.placeholders.ports[0];
        Ok(match until {
            Until::Exit => ended.is_some(),
            Until::Mounted => mount_table::is_mounted(&self.placeholders.mount),
            Until::Port => connect(port).is_some(),
            Until::Get(path) => answers(port, path),
        })
    }

    fn ask_version(&self, command: &[String], stop: &Stop) -> Result<Option<String>, BenchError> {
        if command.is_empty() {
            return Ok(None);
        }
        let log = self.placeholders.work.join("version.log");
        let run = self.placeholders.fill_all(command);
        let process = Process::start(&run, &Default::default(), &self.placeholders.work, log);
        let mut process = process.map_err(BenchError::file(Path::new(&run[0])))?;
        self.wait(&mut process, stop)?;
        Ok(process.first_line())
    }

    /// Waits a short while for a command, and ends it.
    fn wait(&self, process: &mut Process, stop: &Stop) -> Result<(), BenchError> {
        let began = self.env.clock.monotonic();
        let mut outcome = Ok(());
        while process.ended().is_none() && outcome.is_ok() && self.env.clock.monotonic() - began < SHORT_TIME {
            outcome = stop.check();
            std::thread::sleep(LOOK_STEP);
        }
        process.end(&self.env);
        outcome
    }

    /// Measures it. When `limit` is over, or soon after Ctrl-C, its processes are killed, so that a file system or a
    /// server that hangs answers with an error.
    pub(crate) fn watched<T>(
        &mut self,
        limit: Duration,
        stop: &Stop,
        work: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let groups = Arc::clone(&self.groups);
        let env = self.env.clone();
        let (outcome, cut) = std::thread::scope(|scope| {
            let (ending, ended) = std::sync::mpsc::channel::<()>();
            let watch = scope.spawn(move || {
                let cut = wait_for_end(&env, &ended, limit, stop);
                if cut.is_some() {
                    groups.lock().iter().for_each(|group| process::signal(*group, Signal::KILL));
                }
                cut
            });
            let outcome = work();
            drop(ending);
            (outcome, watch.join().unwrap_or_default())
        });
        match (cut, outcome) {
            (Some(Cut::Stopped), _) => Err(BenchError::Interrupted),
            (Some(Cut::Late), _) => Err(BenchError::Rival(format!("took over {limit:?}, and was ended"))),
            (None, Err(BenchError::Interrupted)) => Err(BenchError::Interrupted),
            (None, Err(error)) => Err(BenchError::Rival(self.died().unwrap_or_else(|| self.told(&error)))),
            (None, Ok(value)) => Ok(value),
        }
    }

    /// An error without the path of its directory, which is gone when it is read.
    fn told(&self, error: &BenchError) -> String {
        error.to_string().replace(&format!("{}/", self.directory().display()), "")
    }

    /// How one of its processes ended that should have stayed.
    fn died(&mut self) -> Option<String> {
        self.started.iter_mut().find_map(|(process, _)| {
            let status = process.ended().filter(|status| !status.success())?;
            Some(process.told(status))
        })
    }

    /// Takes everything back, and the mount off, whatever still uses it.
    fn end(&mut self) {
        while let Some((mut process, undo)) = self.started.pop() {
            if !undo.is_empty() {
                let log = self.placeholders.work.join("undo.log");
                if let Ok(mut undo) = Process::start(&undo, &Default::default(), &self.placeholders.work, log) {
                    // It was stopped already, if that was asked.
                    let _ = self.wait(&mut undo, &Stop::default());
                }
            }
            // A process that failed left nothing that could still be written back.
            if process.ended().is_none_or(|status| status.success()) {
                mount_table::unmount(&self.env, &self.placeholders.mount);
            }
            process.end(&self.env);
            // Its number may soon be another's.
            self.groups.lock().retain(|group| Some(*group) != process.group());
        }
        mount_table::detach(&self.placeholders.mount);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why a measurement is to be cut; None when it ended by itself.
fn wait_for_end(env: &Env, ended: &std::sync::mpsc::Receiver<()>, limit: Duration, stop: &Stop) -> Option<Cut> {
    let began = env.clock.monotonic();
    let mut stopped = None;
    while ended.recv_timeout(WATCH_STEP) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let now = env.clock.monotonic();
        if stop.is_set() && now - *stopped.get_or_insert(now) > STOP_TIME {
            return Some(Cut::Stopped);
        }
        if now - began > limit {
            return Some(Cut::Late);
        }
    }
    None
}

fn connect(port: u16) -> Option<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ANSWER_TIME).ok()
}

/// Whether a server answers 200 to a GET.
fn answers(port: u16, path: &str) -> bool {
    let Some(mut stream) = connect(port) else { return false };
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    let mut head = [0; 12];
    stream.set_read_timeout(Some(ANSWER_TIME)).is_ok()
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut head).is_ok()
        && head.ends_with(b" 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(work: &Path, script: &str) -> Running {
        let text = format!(
            "title = \"x\"\nlicence = \"MIT\"\ngives = [\"directory\"]\n[[step]]\nrun = [\"sh\", \"-c\", {script:?}]\n"
        );
        let placeholders = Placeholders {
            margay: PathBuf::new(),
            mount: work.join("mount"),
            cache: work.join("cache"),
            work: work.to_owned(),
            ports: [1, 2],
            endpoint: String::new(),
            bucket: String::new(),
            access_key: String::new(),
            secret_key: String::new(),
            region: String::new(),
        };
        let file = RivalFile::parse(&text).unwrap();
        Running::start("x", &file, Gives::Directory, placeholders, &Env::real(), &Stop::default()).unwrap()
    }

    /// As a call into a file system whose server hangs: comes back when that is gone.
    fn hang(work: &Path) -> Result<(), BenchError> {
        let number = fs::read_to_string(work.join("pid")).unwrap();
        let state = || fs::read_to_string(format!("/proc/{}/stat", number.trim())).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z") {
            std::thread::sleep(LOOK_STEP);
        }
        Err(BenchError::Rival("not connected".to_owned()))
    }

    #[test]
    fn a_rival_that_hangs_is_ended_after_its_time_and_by_ctrl_c() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > pid";
        let mut rival = running(folder.path(), script);
        let limit = Duration::from_millis(50);
        let late = rival.watched(limit, &Stop::default(), || hang(folder.path()));
        assert!(matches!(&late, Err(BenchError::Rival(told)) if told.contains("50ms")), "{late:?}");
        let mut rival = running(folder.path(), script);
        let stop = Stop::default();
        stop.set();
        let stopped = rival.watched(Duration::from_secs(1000), &stop, || hang(folder.path()));
        assert!(matches!(stopped, Err(BenchError::Interrupted)), "{stopped:?}");
    }

    #[test]
    fn a_measurement_that_ends_is_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let mut rival = running(folder.path(), "true");
        let limit = Duration::from_secs(1000);
        assert_eq!(rival.watched(limit, &Stop::default(), || Ok(7)).unwrap(), 7);
        let failed = rival.watched(limit, &Stop::default(), || Err::<(), _>(BenchError::Rival("disk full".to_owned())));
        assert!(matches!(failed, Err(BenchError::Rival(told)) if told == "disk full"));
    }
}
