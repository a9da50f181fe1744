//! `margay bench all`: every suite at a reduced size by one command, and one page that shows them.
//!
//! Why:        whoever chooses a store wants to see all of it on a machine of his own, in the time of a coffee.
//! Layout:     `plan` which suites with which options, `server` a server and mount of its own, `page` (with `compared` and
//!             `cited`) and `record` the report, `time_left` a guess while it runs.
//! Invariants: everything is below one new directory, which is removed at the end, also after Ctrl-C; only the report
//!             stays. A suite that fails is told on the page, and the others go on.
//! Not here:   what is measured: each suite is the same command that anybody can give alone.

#![allow(clippy::disallowed_methods, reason = "commands and their files are what is handled")]

mod cited;
mod compared;
mod machine;
mod page;
mod plan;
mod record;
mod server;
mod time_left;

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use margay_env::Env;
use rustix::process::{Pid, Signal};

use crate::error::BenchError;
use crate::progress::Ticker;
use crate::rivals::RivalArgs;
use crate::rivals::process;
use crate::stop::Stop;
use crate::work_directory::WorkDirectory;
use plan::Step;
use server::Server;
use time_left::TimeLeft;

/// How often a running suite is looked at.
const LOOK_STEP: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench all --report out/
  margay bench all --report out/ --work /mnt/disk      (data, and the directory that the mount is compared with)
  margay bench all --report out/ --only mdtest,small
  margay bench all --report out/ --rival ext4,s3fs,juicefs-redis,minio,s3cmd

Open out/index.html; out/run.json has its tables for programs.
Mounting needs the right to (root, or fusermount3 and /dev/fuse); without it the directory is shown alone.")]
pub struct AllArgs {
    /// Where the page and the files of each suite go
    #[arg(long, value_name = "DIR")]
    pub report: PathBuf,
    #[command(flatten)]
    pub rivals: RivalArgs,
    /// The sizes of the cited tables also beside rivals: hours, where some of them are a hundred times slower
    #[arg(long)]
    pub full: bool,
    /// Some of the suites only
    #[arg(long, value_name = "SUITE,...", value_delimiter = ',', value_parser = plan::NAMES)]
    pub only: Vec<String>,
}

/// A suite that was run.
struct Done {
    step: Step,
    seconds: f64,
    /// What went wrong.
    failure: Option<String>,
}

pub fn run(args: &AllArgs) -> Result<(), BenchError> {
    let env = Env::real();
    let work = WorkDirectory::create(args.rivals.work.as_deref(), "margay-bench-all.")?;
    Stop::heard(work.path().display().to_string(), |stop| measure(args, &env, work.path(), stop))
}

fn measure(args: &AllArgs, env: &Env, work: &Path, stop: &Stop) -> Result<(), BenchError> {
    fs::create_dir_all(&args.report).map_err(BenchError::file(&args.report))?;
    // Suites run in the work directory, so that what they call its parts is short.
    let report = &args.report.canonicalize().map_err(BenchError::file(&args.report))?;
    let server = Server::start(env, work, stop)?;
    let mut steps = plan::steps(&server, &args.rivals, args.full)?;
    steps.retain(|step| args.only.is_empty() || args.only.iter().any(|name| name == step.name));
    let mut all = Vec::new();
    let count = steps.len();
    let mut left = TimeLeft::new(steps.iter().map(|step| step.name).collect());
    for (index, step) in steps.into_iter().enumerate() {
        stop.check()?;
        eprintln!("{} of {count}: margay {}", index + 1, step.command());
        let ticker = Ticker::new(env, {
            let left = left.clone();
            move |elapsed| left.line(elapsed)
        });
        let done = run_step(report, env, work, step, stop)?;
        drop(ticker);
        match &done.failure {
            None => eprintln!("   {:.0} s", done.seconds),
            Some(failure) => eprintln!("   failed: {failure}"),
        }
        left.done(done.seconds);
        all.push(done);
    }
    let is_mounted = server.is_mounted();
    drop(server);
    page::write(report, &all, is_mounted, env.clock.now())?;
    record::write(report, &all, env.clock.now())?;
    let missing: Vec<&str> = all.iter().filter(|done| done.failure.is_some()).map(|done| done.step.name).collect();
    println!("{}", args.report.join(page::FILE).display());
    match missing.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Missed(format!("these suites failed, the page says why: {}", missing.join(", ")))),
    }
}

/// Runs one suite as a command of its own; its words go to the terminal and beside its files.
fn run_step(report: &Path, env: &Env, work: &Path, step: Step, stop: &Stop) -> Result<Done, BenchError> {
    let folder = report.join(step.name);
    fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
    let said = folder.join("stdout.txt");
    let output = fs::File::create(&said).map_err(BenchError::file(&said))?;
    let began = env.clock.monotonic();
    let mut command = Command::new(server::program()?);
    command.args(&step.arguments).arg("--report").arg(&folder);
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    // Rivals, and whatever else a suite makes for itself, go into the work directory.
    command.current_dir(work).env("TMPDIR", work);
    let theirs = |name: &str| name.starts_with("MARGAY_") || name.starts_with("AWS_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(theirs)) {
        command.env_remove(name);
    }
    command.envs(server::keys());
    // A group of its own, so that Ctrl-C reaches the suite once, from here.
    let mut child = command.process_group(0).spawn().map_err(BenchError::file(&folder))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let errors = child.stderr.take();
    let reader = std::thread::spawn(move || errors.map(|errors| io::read_to_string(errors).unwrap_or_default()));
    let mut told = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(BenchError::file(&folder))? {
            break status;
        }
        if stop.is_set() && !told {
            told = true;
            group.into_iter().for_each(|group| process::signal(group, Signal::INT));
        }
        std::thread::sleep(LOOK_STEP);
    };
    stop.check()?;
    let errors = reader.join().ok().flatten().unwrap_or_default();
    let seconds = (env.clock.monotonic() - began).as_secs_f64();
    let failure = failure_of(status, &errors);
    Ok(Done { step, seconds, failure })
}

fn failure_of(status: ExitStatus, errors: &str) -> Option<String> {
    if status.success() {
        return None;
    }
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    Some(last.map_or_else(|| status.to_string(), str::to_owned))
}
