//! The command line: its commands, and one file per command that executes it.
//!
//! Invariants: I1 results go to stdout, everything else to stderr.  I2 exit codes are those of `exit`.
//! Not here:   settings (`settings`), the benchmarks and the small client (margay-bench).

mod adopt;
mod arguments;
mod backup;
mod bench;
mod bucket;
mod clock;
mod cluster;
mod config;
mod disk;
mod dump;
mod fsck;
mod generate;
mod health;
mod identity;
mod inventory;
mod mount;
mod node;
mod object;
mod reach;
mod secrets;
mod serve;
mod status;
mod tables;
mod top;
mod trace;
mod works;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use margay_env::output;

use crate::exit::{CODES_HELP, Failure};
use crate::version::VERSION;

/// An object store and a file system at the same time: one tree, two doors.
#[derive(Debug, Parser)]
#[command(name = "margay", version = VERSION.as_str(), after_help = CODES_HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server on a data directory
    Serve(serve::Args),
    /// Show every setting, its value and where it came from
    Config(config::Args),
    /// Show what the server of a data directory is doing
    Status(status::Args),
    /// Whether a server works, by the exit code: for health checks of containers
    Health(health::Args),
    /// Show what a running server answers now, and how fast
    Top(top::Args),
    /// Show each request of a running server as it ends
    Trace(trace::Args),
    /// Show whether expiry and locks trust the machine's clock, or confirm that it is right
    Clock(clock::Args),
    /// Copies of a volume that several servers share, and its stores
    Cluster(cluster::Args),
    /// The stores of a shared volume, one by one: suspend, detach, recover, rebalance
    Node(node::Args),
    /// Disks of a volume on one machine: show, add, replace, remove
    Disk(disk::Args),
    /// Mount a bucket of a running server as a file system
    Mount(mount::Mount),
    /// Send what a mount of a far bucket left in its cache
    Sync(mount::Sync),
    /// Fetch what is below a path of a mounted s3:// bucket into its cache
    Warm(mount::Warm),
    /// Unmount it
    Unmount(mount::Unmount),
    /// Show what a running server has mounted
    Mounts(mount::Mounts),
    /// Create, list, disable and delete users
    User(identity::User),
    /// Groups of users that share policies
    Group(identity::Group),
    /// Roles that users, or people of an identity provider, assume for a limited time
    Role(identity::Role),
    /// Access keys of users
    Key(identity::Key),
    /// Policies that grant rights to users, groups and roles
    Policy(identity::Policy),
    /// Show how many objects and bytes each bucket has
    Du(works::Du),
    /// List buckets, show their usage, change their quotas
    Bucket(bucket::Args),
    /// Show which servers have the bytes of an object, and which copies are missing
    Object(object::Args),
    /// Show whether the key files are those that the volume was used with, or forget that it was
    Secrets(secrets::Args),
    /// Read all data and verify every checksum
    Scrub(works::Scrub),
    /// Reclaim all dead space now
    Compact(works::Compact),
    /// Back up rows and segments of one moment to another directory, also from a running server
    Backup(backup::Backup),
    /// Create a new data directory from a backup
    Restore(backup::Restore),
    /// Write rows and data of one moment as one stream, also from a running server
    Dump(dump::Dump),
    /// Create a new data directory from a dump
    Load(dump::Load),
    /// Check a data directory for inconsistencies, with no server running on it
    Fsck(fsck::Args),
    /// Measure this or any other S3 server, and any directory
    Bench(Box<bench::Bench>),
    /// A small S3 client: create buckets, list, put, get and delete objects
    Client(bench::Client),
    /// Print the completions of a shell for this program
    Completions(generate::Completions),
    /// Write a manual page for each command
    ManPages(generate::ManPages),
}

/// Every command and option, for the reference in docs/reference.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program; `main` only calls this.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let own = words.next().unwrap_or_default();
    if mount::is_helper(&own, &std::env::args_os().skip(1).collect::<Vec<_>>()) {
        return ended(mount::run_helper(&words.collect::<Vec<_>>()));
    }
    if own == crate::connections::guard::NAME {
        return ended(crate::connections::guard::run(&words.collect::<Vec<_>>()));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are results, not failures.
        Err(error) if !error.use_stderr() => {
            output::note(error.print());
            return ended(written());
        }
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(2);
        }
    };
    // What a server shows at its start is no result: who cannot read it is served all the same.
    let has_result = !matches!(cli.command, Command::Serve(_));
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Clock(args) => clock::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Disk(args) => disk::run(&args),
        Command::Mount(args) => mount::run_mount(&args),
        Command::Sync(args) => mount::run_sync(&args),
        Command::Warm(args) => mount::run_warm(&args),
        Command::Unmount(args) => mount::run_unmount(&args),
        Command::Mounts(args) => mount::run_mounts(&args),
        Command::User(args) => identity::run_user(&args),
        Command::Group(args) => identity::run_group(&args),
        Command::Role(args) => identity::run_role(&args),
        Command::Key(args) => identity::run_key(&args),
        Command::Policy(args) => identity::run_policy(&args),
        Command::Du(args) => works::run_du(&args),
        Command::Bucket(args) => bucket::run(&args),
        Command::Object(args) => object::run(&args),
        Command::Secrets(args) => secrets::run(&args),
        Command::Scrub(args) => works::run_scrub(&args),
        Command::Compact(args) => works::run_compact(&args),
        Command::Backup(args) => backup::run_backup(&args),
        Command::Restore(args) => backup::run_restore(&args),
        Command::Dump(args) => dump::run_dump(&args),
        Command::Load(args) => dump::run_load(&args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Bench(args) => bench::run_bench(&args),
        Command::Client(args) => bench::run_client(&args),
        Command::Completions(args) => generate::run_completions(&args, Cli::command()),
        Command::ManPages(args) => generate::run_man_pages(&args, Cli::command()),
    };
    ended(outcome.and_then(|()| if has_result { written() } else { Ok(()) }))
}

/// Whether all of the result was taken. A reader that went away had enough, as `head` has.
fn written() -> Result<(), Failure> {
    match output::finish() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "standard output does not take the result: {error}; the command itself has done its work"
        ))),
        _ => Ok(()),
    }
}

fn ended(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            eprintln!("margay: {message}");
            ExitCode::from(code as u8)
        }
    }
}

/// New files are accessible by this user only: data, keys, the control socket.
fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// A runtime with this many threads for disk I/O.
fn runtime(io_threads_max: usize) -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(io_threads_max)
        .thread_name("margay")
        .build()
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}; look at ulimit -u")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_well_formed_and_has_examples() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            let help = sub.render_long_help().to_string();
            assert!(help.contains("Examples:\n"), "{} --help has no examples", sub.get_name());
        }
    }
}
