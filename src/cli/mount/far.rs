//! `margay mount s3://...`: this process is the mount, in the foreground or left behind.
//!
//! Not here:   mounting (far_mount).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use margay_client::ClientError;
use margay_client::credentials::Variables;
use margay_env::{Env, files};
use margay_fuse::mount_point::{self, MOUNT_KIND};
use margay_upstream::{Fsync, Opens, Ttl, Writers};
use tokio::runtime::Runtime;

use super::cache_limits;
use super::far_commands::Cache;
use super::store_options::StoreOptions;
use super::{Mount, Sync, absolute};
use crate::backup_location::{BackupLocation, BucketLocation, StoreArgs};
use crate::datadir::CACHE_LOG_FILE;
use crate::datadir::cache::{await_cache, check_cache, is_cache_of};
use crate::exit::{Code, Failure};
use crate::far_mount::{self, FarMount};
use crate::logging;
use crate::mounts::options::MountChoice;
use crate::settings::Settings;
use crate::settings::resolve::{Resolved, Source};

/// So long the mount of a process that was killed may be there still.
const DYING_TIME_MAX: Duration = Duration::from_secs(3);
const DYING_LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often the one that waits looks whether the mount is there.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Threads of a server on which S3 requests wait for bytes that are fetched, beside those that wait for the disk.
const FAR_READS_MAX: usize = 448;
/// Of the log that is read for an error, in bytes.
const LOG_BYTES_MAX: u64 = 16 << 20;

pub(super) fn run(args: &Mount) -> Result<(), Failure> {
    let env = Env::real();
    let (words, options) = args.words()?;
    let (place, cache) = parse(&args.bucket, &options.store, options.cache.as_deref())?;
    let path = absolute(&args.directory)?;
    cache_limits::size(options.cache_size)?;
    check(&env, &path, &cache, &words)?;
    if !args.foreground {
        return leave_behind(&env, &path, &cache, std::env::args_os().skip(1).collect());
    }
    let choice = MountChoice::parse(&words).map_err(Failure::usage)?;
    let resolved = args.data.resolve(&env)?;
    let (mut mount, runtime) = begin(&resolved, &env, (place, cache), options.cache_size, Purpose::Mount)?;
    mount.metrics_address.clone_from(&args.metrics_address);
    options.set(&mut mount);
    runtime.block_on(mount.run(&env, Some((&path, &choice)), None))
}

/// For mount(8).
pub(super) fn run_helper(bucket: &str, path: &Path, words: &str, options: &StoreOptions) -> Result<(), Failure> {
    let env = Env::real();
    let (_, cache) = parse(bucket, &options.store, options.cache.as_deref())?;
    cache_limits::size(options.cache_size)?;
    check(&env, path, &cache, words)?;
    let mut arguments = vec![OsString::from("mount"), bucket.into(), path.into()];
    if !words.is_empty() {
        arguments.extend([OsString::from("-o"), words.into()]);
    }
    arguments.extend(options.flags().into_iter().map(OsString::from));
    leave_behind(&env, path, &cache, arguments)
}

/// What can be refused before anything is made.
pub(super) fn check(env: &Env, path: &Path, cache: &Path, words: &str) -> Result<(), Failure> {
    if cache.starts_with(path) {
        let (cache, path) = (cache.display(), path.display());
        return Err(Failure::usage(format!(
            "the cache {cache} lies in the mount point {path}: name another --cache DIR"
        )));
    }
    MountChoice::parse(words).map_err(Failure::usage)?;
    let begun = env.clock.monotonic();
    loop {
        mount_point::clear_dead(path).map_err(|error| not_started(&error))?;
        if !is_mounted(env, path)? {
            return Ok(());
        }
        // A process that was just killed has its mount until the kernel has ended all its threads.
        if env.clock.monotonic().saturating_sub(begun) >= DYING_TIME_MAX {
            return Err(Failure::usage(format!("{} is a mount already; umount it first", path.display())));
        }
        env.clock.sleep(DYING_LOOK_EVERY);
    }
}

/// Sends what is in a cache that nobody has open.
pub(super) fn run_sync(args: &Sync, cache: &Cache) -> Result<(), Failure> {
    let env = Env::real();
    // The cache names its bucket, if it is there.
    let place = args.place.clone().filter(|place| place.starts_with("s3://")).or_else(|| cache.source.clone());
    let place = place.ok_or_else(|| Failure::usage("name the bucket: margay sync s3://BUCKET/PREFIX --cache DIR"))?;
    let mut store = args.store.clone();
    store.endpoint = store.endpoint.or_else(|| cache.endpoint.clone());
    let (place, cache) = parse(&place, &store, cache.path.as_deref())?;
    check_cache(&env, &cache)?;
    let (mount, runtime) = begin(&args.data.resolve(&env)?, &env, (place, cache), None, Purpose::Send)?;
    runtime.block_on(mount.send_backlog(&env))
}

/// What a process has the cache for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Mount,
    Serve,
    /// A person waits for it, and reads what is wrong only, as text, unless settings say otherwise.
    Send,
}

pub(super) fn begin(
    resolved: &[Resolved],
    env: &Env,
    (place, cache): (BucketLocation, PathBuf),
    cache_size: Option<u64>,
    purpose: Purpose,
) -> Result<(FarMount, Runtime), Failure> {
    let settings = Settings::build(resolved).map_err(Failure::usage)?;
    let is_unset = |name: &str| {
        let found = resolved.iter().find(|one| one.setting.name == name);
        purpose == Purpose::Send && found.is_some_and(|one| matches!(one.source, Source::Default))
    };
    let level = if is_unset("log_level") { "warn" } else { &settings.log_level };
    let format = if is_unset("log_format") { "text" } else { &settings.log_format };
    logging::start(level, format)?;
    crate::cli::keep_private();
    if purpose == Purpose::Serve {
        crate::cli::serve::check_logs(env, &settings)?;
    }
    let far_reads = if purpose == Purpose::Serve { FAR_READS_MAX } else { 0 };
    let runtime = crate::cli::runtime(settings.storage.io_threads_max + far_reads)?;
    let mut limits = settings.storage;
    let cache_bytes_max = cache_limits::size(cache_size)?;
    cache_limits::fit(&mut limits, cache_bytes_max, cache_limits::disk_bytes(env, &cache));
    let connection = settings.connection;
    let (fsync, opens, ttl, writers) = (Fsync::default(), Opens::default(), Ttl::default(), Writers::default());
    let metrics_address = None;
    let mount =
        FarMount { place, cache, limits, cache_bytes_max, connection, metrics_address, fsync, opens, ttl, writers };
    Ok((mount, runtime))
}

/// The bucket and the directory of its cache.
pub(super) fn parse(
    bucket: &str,
    store: &StoreArgs,
    cache: Option<&Path>,
) -> Result<(BucketLocation, PathBuf), Failure> {
    let env = Env::real();
    let place = BackupLocation::named(&env, Path::new(bucket), store, &Variables::of_process(&env));
    let BackupLocation::Bucket(place) = place.map_err(Failure::usage)? else {
        return Err(Failure::usage(format!("{bucket} names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX")));
    };
    let cache = match cache {
        Some(cache) => absolute(cache)?,
        None => default_cache(&place)?,
    };
    match place.keys.keys_now() {
        // They are looked for again, and the cache is of use meanwhile.
        Err(ClientError::KeysLate(_)) if is_cache_of(&env, &cache, &far_mount::source_of(&place)) => {}
        keys => drop(keys.map_err(|error| Failure::usage(format!("{bucket}: {error}")))?),
    }
    Ok((place, cache))
}

/// One directory for each bucket, prefix and store.
fn default_cache(place: &BucketLocation) -> Result<PathBuf, Failure> {
    let chosen = std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || Variables::of_process(&Env::real()).get("HOME").map(|home| Path::new(home).join(".cache"));
    let caches = chosen.or_else(home);
    let caches = caches.ok_or_else(|| Failure::usage("no HOME: name the cache with --cache DIR, or -o cache=DIR"))?;
    let plain = |text: &str| text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    let store = place.endpoint.split("://").last().unwrap_or_default();
    let name = format!("{}-{}-{}", plain(store), plain(&place.bucket), plain(&place.prefix));
    Ok(caches.join("margay").join(name.trim_end_matches('-')))
}

fn not_started(error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("the mount cannot be started: {error}"))
}

fn is_mounted(env: &Env, path: &Path) -> Result<bool, Failure> {
    let lines = mount_point::mounts(env).map_err(|error| not_started(&error))?;
    Ok(lines.iter().any(|line| line.path == path && line.kind == MOUNT_KIND))
}

/// The code of the process that was to mount is that of the command.
fn code_of(status: ExitStatus) -> Code {
    match status.code() {
        Some(2) => Code::Usage,
        Some(3) => Code::Refused,
        _ => Code::Failed,
    }
}

/// Starts the command with these arguments in the foreground, apart from this terminal, and waits until it has mounted.
fn leave_behind(env: &Env, path: &Path, cache: &Path, arguments: Vec<OsString>) -> Result<(), Failure> {
    // The one who waits is told why; the process that is started writes to its log.
    await_cache(env, cache, &mut |line| eprintln!("margay: {line}"))?;
    env.disk.create_private_dir(cache).map_err(|error| not_started(&format!("{}: {error}", cache.display())))?;
    let log = cache.join(CACHE_LOG_FILE);
    let program = std::env::current_exe().map_err(|error| not_started(&error))?;
    let mut command = Command::new("sh");
    command.args(["-c", "log=$1; shift; exec \"$@\" >>\"$log\" 2>&1", "margay"]).arg(&log).arg(program);
    command.args(arguments).arg("--foreground").stdin(Stdio::null()).process_group(0);
    let mut started = command.spawn().map_err(|error| not_started(&error))?;
    loop {
        if is_mounted(env, path)? {
            return Ok(());
        }
        if let Some(status) = started.try_wait().map_err(|error| not_started(&error))? {
            let text = files::read(env, &log, LOG_BYTES_MAX).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let last = text.trim_end().lines().last().unwrap_or_default();
            let message = last.strip_prefix("margay: ").unwrap_or(last);
            let message = format!("{message} (the log is {})", log.display());
            return Err(Failure { code: code_of(status), message });
        }
        env.clock.sleep(LOOK_EVERY);
    }
}
