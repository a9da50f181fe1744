//! Benchmarks of any S3 server, and the small client that they and a fresh machine use.
//!
//! Why:        the project's promises are numbers; these commands show them, on margay and on any other server.
//! Layout:     `auth`, `load` and `ls` measure S3 servers, `dirops`, `goofys`, `mdtest`, `small` and `stream` directories;
//!             `all` runs every one of them; `commands` is `margay client`. Below them `frame` and `scratch` (a bucket of one's own),
//!             and `side_by_side` (a directory of one's own in each);
//!             `rivals` starts others, `latency` puts them far away, `turns` measures them, `comparison` compares.
//! Invariants: a benchmark touches only the bucket or directory that it made itself, and removes it, also after Ctrl-C.
//! Not here:   `main`: the binary hands over parsed arguments and maps errors to exit codes.

/// As std's, but what cannot be written panics nowhere, and a terminal gets no control characters (`margay_env::output`).
macro_rules! println {
    () => { margay_env::output::out(format_args!("\n")) };
    ($($words:tt)*) => { margay_env::output::out(format_args!("{}\n", format_args!($($words)*))) };
}
macro_rules! print {
    ($($words:tt)*) => { margay_env::output::out(format_args!($($words)*)) };
}
macro_rules! eprintln {
    () => { margay_env::output::error(format_args!("\n")) };
    ($($words:tt)*) => { margay_env::output::error(format_args!("{}\n", format_args!($($words)*))) };
}

pub mod all;
pub mod auth;
mod bars;
mod cited;
pub mod commands;
mod comparison;
pub mod dirops;
pub mod error;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod goofys;
mod jobs;
mod kernel_caches;
mod latency;
mod listing;
pub mod load;
mod log_chart;
pub mod ls;
pub mod mdtest;
mod mount_table;
mod newest;
mod progress;
mod random;
mod remove_tree;
mod report;
pub mod rivals;
pub mod scratch;
mod side_by_side;
pub mod small;
pub mod stop;
pub mod stream;
mod summary;
pub mod target;
mod threads;
mod turns;
mod weighted;
mod windows;
mod work_directory;

pub use commands::ClientArgs;
pub use error::BenchError;
pub use margay_client::{PayloadHash, Scheme};
pub use target::{Credentials, FoundKeys};
pub use windows::Window;

/// `margay bench`: which benchmark.
#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Every benchmark at a reduced size, and one page that shows them
    All(all::AllArgs),
    /// What signatures cost: the same objects sent in every form, latency over time
    Auth(auth::AuthArgs),
    /// The rivals that --rival knows, and whether they can run here
    Rivals(rivals::list::ListArgs),
    /// Listings: s3cmd as people run it, and single pages
    Ls(ls::LsArgs),
    /// Many clients that put, get, look at, list and delete objects
    Load(load::LoadArgs),
    /// The latencies of several loads as one: their logs added up
    Merge(load::MergeArgs),
    /// Many files of one directory: made, looked at, listed, removed; on any file systems side by side
    Dirops(dirops::DiropsArgs),
    /// The ten rows of mdtest, a directory fsync after each; on any file systems side by side
    Mdtest(mdtest::MdtestArgs),
    /// A hundred files, a large one, ls, find and the first byte; on any file systems side by side
    Goofys(goofys::GoofysArgs),
    /// 6400 small files: cp -r and rm -r; on any file systems side by side
    Small(small::SmallArgs),
    /// One large file, written and read; on any file systems side by side
    Stream(stream::StreamArgs),
}

/// Runs a benchmark; `found` are keys that the caller knows of, used when no option and no variable names any.
/// Builds its own tokio runtimes, so call it from a thread that is not inside one.
pub fn run_bench(command: &BenchCommand, found: Option<Credentials>) -> Result<(), BenchError> {
    match command {
        BenchCommand::All(args) => all::run(args),
        BenchCommand::Auth(args) => auth::run(args, found),
        BenchCommand::Rivals(args) => rivals::list::run(args),
        BenchCommand::Ls(args) => ls::run(args, found),
        BenchCommand::Load(args) => load::run(args, found),
        BenchCommand::Merge(args) => load::run_merge(args),
        BenchCommand::Dirops(args) => dirops::run(args),
        BenchCommand::Mdtest(args) => mdtest::run(args),
        BenchCommand::Goofys(args) => goofys::run(args),
        BenchCommand::Small(args) => small::run(args),
        BenchCommand::Stream(args) => stream::run(args),
    }
}

/// Runs a command of the small client; as [`run_bench`] otherwise. `find` looks for keys when none are given, `listens`
/// for a server when only keys are.
pub fn run_client(
    args: &ClientArgs,
    find: impl FnOnce() -> Result<FoundKeys, String>,
    listens: impl FnOnce() -> Option<String>,
) -> Result<(), BenchError> {
    commands::run(args, find, listens)
}

/// The most clients that one benchmark of directories starts.
const CLIENTS_MAX: usize = 1024;

/// A number of clients, as an option gives it.
fn clients(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CLIENTS_MAX).contains(count));
    count.ok_or_else(|| format!("{text:?} is no number of clients from 1 to {CLIENTS_MAX}"))
}

/// A runtime of one thread.
fn runtime() -> Result<tokio::runtime::Runtime, BenchError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| BenchError::File { path: "tokio runtime".to_owned(), source })
}
