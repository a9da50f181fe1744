//! Rivals: other file systems and S3 servers, started for a measurement and removed after it.
//!
//! Why:        a figure means something beside another's of the same minute on the same machine, and nobody compares
//!             what takes an afternoon to set up.
//! Layout:     `file` what a rival is, `shipped` those that are known, `placeholders` and `process` their commands,
//!             `running` one from start to end, `mounting` further mount points of its bucket, `list` is `margay bench rivals`.
//! Invariants: everything is below one new directory (`work_directory`). A rival that cannot run here is named and left out, never an error.
//! Not here:   what is measured and how it is compared (`side_by_side`, `frame`, `comparison`).

mod file;
pub mod list;
mod mounting;
mod placeholders;
pub(crate) mod process;
mod running;
mod shipped;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use serde::Serialize;

pub(crate) use file::Gives;
use file::RivalFile;
pub(crate) use mounting::Mounting;
use placeholders::Placeholders;
pub(crate) use running::Running;

use crate::error::BenchError;
use crate::scratch;
use crate::stop::Stop;
use crate::target::{REGION_DEFAULT, Target};
use crate::work_directory::WorkDirectory;
use margay_client::client::Client;
use margay_client::connection::Connection;

/// The rival that keeps the data of others unless another is named.
const STORE_DEFAULT: &str = "margay";
/// How long a rival may take for one round unless it is told otherwise.
const RIVAL_LIMIT_DEFAULT: &str = "15m";
/// Keys of servers that listen on this machine only, for as long as the benchmark runs.
pub(crate) const ACCESS_KEY: &str = "BENCHBENCHBENCHBENCH";
pub(crate) const SECRET_KEY: &str = "bench/secret+bench/secret+bench/secret+b";

#[derive(Clone, Debug, clap::Args)]
pub struct RivalArgs {
    /// Also measure these, in turns; each is started for it and removed afterwards (`margay bench rivals` shows them)
    #[arg(long = "rival", value_name = "NAME,...", value_delimiter = ',')]
    pub rivals: Vec<String>,
    /// More rivals: a directory of files NAME.toml, as docs/bench.md describes them
    #[arg(long = "rivals", value_name = "DIR")]
    pub rival_files: Option<PathBuf>,
    /// The rival in which those that need an S3 server keep their data
    #[arg(long, value_name = "NAME", default_value = STORE_DEFAULT)]
    pub store: String,
    /// Where rivals, and files that are copied in, are kept while it lasts [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// A rival that needs longer for one round has failed, and is ended
    #[arg(long, value_name = "TIME", default_value = RIVAL_LIMIT_DEFAULT, value_parser = time)]
    pub rival_limit: Duration,
    /// Put a proxy before the server, or before the store of rivals, that adds this to every round trip
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub latency: Option<Duration>,
}

impl RivalArgs {
    /// The options that hand those of the rivals that can be measured as one of `wanted` to another command; none when
    /// there are none.
    pub(crate) fn options(&self, wanted: &[Gives]) -> Result<Vec<String>, BenchError> {
        let mut names = Vec::new();
        for name in &self.rivals {
            let (name, file) = known(name, self.rival_files.as_deref())?;
            if wanted.iter().any(|gives| file.gives.contains(gives)) && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut options = vec!["--rival".to_owned(), names.join(",")];
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        if let Some(files) = &self.rival_files {
            let files = std::path::absolute(files).map_err(BenchError::file(files))?;
            add("--rivals", files.display().to_string());
        }
        if self.store != STORE_DEFAULT {
            add("--store", self.store.clone());
        }
        if let Some(latency) = self.latency {
            add("--latency", format!("{}ms", latency.as_millis()));
        }
        if time(RIVAL_LIMIT_DEFAULT) != Ok(self.rival_limit) {
            add("--rival-limit", format!("{}ms", self.rival_limit.as_millis()));
        }
        Ok(options)
    }
}

/// A time such as `10ms`, `90s` or `15m`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let milliseconds = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => 0,
    };
    match digits.parse::<u32>() {
        Ok(count) if count > 0 && milliseconds > 0 => Ok(Duration::from_millis(u64::from(count) * milliseconds)),
        _ => Err(format!("{text:?} is no time such as 10ms, 90s or 15m")),
    }
}

/// A rival that cannot run here, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Absent {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The rivals of one measurement.
#[derive(Debug)]
pub(crate) struct Rivals {
    pub(crate) running: Vec<Running>,
    /// Programs that are used on each of the others.
    pub(crate) clients: Vec<Running>,
    pub(crate) absent: Vec<Absent>,
    /// Of one round of one rival.
    pub(crate) limit: Duration,
    /// Between their S3 servers and whoever uses them.
    pub(crate) latency: Option<Duration>,
    // Fields end in their order: those who keep data in the store, the store, and last the directory that all are in.
    store: Option<Running>,
    work: Option<WorkDirectory>,
}

/// A directory for the rivals of a measurement; None when there are none.
pub(crate) fn work_directory(args: &RivalArgs) -> Result<Option<WorkDirectory>, BenchError> {
    let wanted = !args.rivals.is_empty();
    wanted.then(|| WorkDirectory::create(args.work.as_deref(), "margay-bench-rivals.")).transpose()
}

/// What a second Ctrl-C leaves.
pub(crate) fn left_behind(ours: &str, work: Option<&WorkDirectory>) -> String {
    match work {
        Some(work) => format!("{ours}, and the rivals of {}", work.path().display()),
        None => ours.to_owned(),
    }
}

impl Rivals {
    /// Starts all that were asked for, in `work`, each as the first of `wanted` that it gives.
    pub(crate) fn start(
        args: &RivalArgs,
        wanted: &[Gives],
        work: Option<WorkDirectory>,
        env: &Env,
        stop: &Stop,
    ) -> Result<Rivals, BenchError> {
        let mut rivals = Rivals {
            running: Vec::new(),
            clients: Vec::new(),
            absent: Vec::new(),
            limit: args.rival_limit,
            latency: args.latency,
            store: None,
            work,
        };
        for (name, file, gives) in chosen(args, wanted)? {
            let begun = match lacking(&file) {
                Some(reason) => Err(BenchError::Rival(reason)),
                None => rivals.begin(args, &name, &file, gives, env, stop),
            };
            match begun {
                Ok(client) if gives == Gives::Listing => rivals.clients.push(client),
                Ok(running) => rivals.running.push(running),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    eprintln!("without {name}: {error}");
                    rivals.absent.push(Absent { name, reason: error.to_string() });
                }
            }
        }
        Ok(rivals)
    }

    fn begin(
        &mut self,
        args: &RivalArgs,
        name: &str,
        file: &RivalFile,
        gives: Gives,
        env: &Env,
        stop: &Stop,
    ) -> Result<Running, BenchError> {
        let mut placeholders = self.placeholders(name, file)?;
        if file.needs_store {
            let store = self.store(args, env, stop)?;
            placeholders.bucket = scratch::bucket_name(env);
            make_bucket(&store, &placeholders.bucket)?;
            placeholders.endpoint = store.url();
            if let Some(pair) = store.credentials.fixed_pair() {
                placeholders.access_key.clone_from(&pair.access_key);
                placeholders.secret_key.clone_from(&pair.secret_key);
            }
        }
        let mut running = Running::start(name, file, gives, placeholders, env, stop)?;
        running.store = file.needs_store.then(|| args.store.clone());
        if gives == Gives::S3 {
            running.far_away(args.latency)?;
        }
        Ok(running)
    }

    /// The store; it is started when it is needed first.
    fn store(&mut self, args: &RivalArgs, env: &Env, stop: &Stop) -> Result<Arc<Target>, BenchError> {
        if let Some(store) = &self.store {
            return store.target();
        }
        let (_, file) = known(&args.store, args.rival_files.as_deref())?;
        let told = |reason: String| BenchError::Rival(format!("its store {}: {reason}", args.store));
        if !file.gives.contains(&Gives::S3) {
            return Err(told("it is no S3 server".to_owned()));
        }
        if let Some(reason) = lacking(&file) {
            return Err(told(reason));
        }
        let placeholders = self.placeholders("store", &file)?;
        let mut store = match Running::start(&args.store, &file, Gives::S3, placeholders, env, stop) {
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            started => started.map_err(|error| told(error.to_string()))?,
        };
        store.far_away(args.latency)?;
        self.store.insert(store).target()
    }

    fn placeholders(&self, folder: &str, file: &RivalFile) -> Result<Placeholders, BenchError> {
        let work = self.work.as_ref().expect("rivals have a work directory").path().join(folder);
        let ports = free_ports().map_err(BenchError::file(Path::new("free ports")))?;
        Ok(Placeholders {
            margay: std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?,
            mount: work.join("mount"),
            cache: work.join("cache"),
            work,
            ports,
            endpoint: format!("http://127.0.0.1:{}", ports[0]),
            bucket: String::new(),
            access_key: file.access_key.clone().unwrap_or_else(|| ACCESS_KEY.to_owned()),
            secret_key: file.secret_key.clone().unwrap_or_else(|| SECRET_KEY.to_owned()),
            region: REGION_DEFAULT.to_owned(),
        })
    }
}

/// The rivals asked for, once each, and as what.
fn chosen(args: &RivalArgs, wanted: &[Gives]) -> Result<Vec<(String, RivalFile, Gives)>, BenchError> {
    let mut chosen: Vec<(String, RivalFile, Gives)> = Vec::new();
    for name in &args.rivals {
        if chosen.iter().any(|(known, ..)| known == name) {
            continue;
        }
        let (name, file) = known(name, args.rival_files.as_deref())?;
        let Some(gives) = wanted.iter().find(|gives| file.gives.contains(gives)) else {
            return Err(BenchError::Usage(match file.gives[0] {
                Gives::Directory => format!("{name} is a file system; the suites that take --dir measure it"),
                Gives::S3 => format!("{name} is an S3 server; ls, load and auth measure it"),
                Gives::Listing => format!("{name} is a client; ls measures it"),
            }));
        };
        chosen.push((name, file, *gives));
    }
    Ok(chosen)
}

fn known(name: &str, directory: Option<&Path>) -> Result<(String, RivalFile), BenchError> {
    let all = shipped::all(directory)?;
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    all.into_iter()
        .find(|(known, _)| known == name)
        .ok_or_else(|| BenchError::Usage(format!("no rival is called {name:?}; there are {}", names.join(", "))))
}

/// Why a rival cannot run here.
fn lacking(file: &RivalFile) -> Option<String> {
    let missing: Vec<&str> =
        file.programs.iter().filter(|program| !process::on_path(program)).map(String::as_str).collect();
    match missing.as_slice() {
        [] if file.needs_root && !rustix::process::geteuid().is_root() => Some("only root may start it".to_owned()),
        [] => None,
        missing => Some(format!("not on PATH: {}", missing.join(", "))),
    }
}

/// Not those that the kernel chooses: it gives one to somebody else before the rival listens there.
const PORTS: std::ops::Range<u64> = 10_000..32_000;
const PORT_TRIES_MAX: usize = 1000;

fn free_ports() -> io::Result<[u16; 2]> {
    let random = || PORTS.start + RandomState::new().hash_one(PORTS.end) % (PORTS.end - PORTS.start);
    let listen = || {
        let mut tried = (0..PORT_TRIES_MAX).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, random() as u16)));
        tried.find(Result::is_ok).unwrap_or_else(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
    };
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

fn make_bucket(store: &Arc<Target>, bucket: &str) -> Result<(), BenchError> {
    Ok(crate::runtime()?.block_on(Client::new(Connection::new(Arc::clone(store))).make_bucket(bucket))?)
}
