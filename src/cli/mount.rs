//! `margay mount`, `unmount` and `mounts`: requests to the server of a data directory; and the helper of mount(8).
//!
//! Not here: mounting (`mounts`), mounts of far buckets (far, far_commands).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use margay_env::Env;
use margay_fuse::mount_point;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

mod cache_limits;
mod far;
mod far_commands;
mod served;
mod store_options;
mod warm;

use super::arguments::DataArgs;
use super::reach::AdminArgs;
use crate::backup_location::StoreArgs;
use crate::control;
use crate::exit::Failure;
use crate::far_mount::text;
use crate::mounts::options::MountChoice;
use far_commands::Synced;
use store_options::StoreOptions;

const MOUNT_EXAMPLES: &str = "Examples:
  margay mount photos /mnt/photos
  margay mount photos/2026 /mnt/2026 -o ro,uid=1000,gid=1000,umask=027
  margay mount photos /mnt/photos --data /srv/margay --foreground
  margay mount new-bucket /mnt/new --create
  margay mount photos /mnt/photos -o shared
  margay mount s3://photos/2026 /mnt/far --endpoint https://s3.example --cache /var/cache/photos

A line of /etc/fstab, with /sbin/mount.margay and /sbin/mount.fuse.margay links to this program:
  photos  /mnt/photos  margay  data=/srv/margay,_netdev,nofail,x-systemd.requires=margay.service  0 0
  s3://photos/2026  /mnt/far  margay  endpoint=https://s3.example,cache=/var/cache/photos,profile=photos,_netdev,nofail  0 0

With -o fsync=local an s3:// mount's fsync waits for the cache alone, and the bucket gets what was synced in that order.
With -o open=always its open asks the bucket for the file each time, with open=ttl never; without it (open=3s) when what is known is older than 3 s.
With -o ttl=SECONDS a listing of a directory counts so long; without it 3 to 60 s, longer each time that nothing had changed.
Where several servers share a volume (docs/cluster.md), one of them at a time mounts a directory to write, and any number read-only: a second
one is refused. With -o shared others may write too, if they say so too: the last one that closes a file wins. Locks of files (flock, fcntl)
count at all servers with -o shared, and are refused on -o ro; -o locks=local gives those of this machine alone, which others do not see.
Options: ro, sync, writeback, plain, shared, locks=local, uid=, gid=, umask=, threads=, allow_other, suid, dev, noexec. A bucket that is
absent is made with --create or -o create only.";

const SYNC_EXAMPLES: &str = "Examples:
  margay sync /mnt/photos/holidays/beach.jpg
  margay sync /mnt/photos
  margay sync s3://photos/2026 --endpoint https://s3.example --cache /var/cache/photos

It ends with 0 when the bucket has the file; of a directory, when it has what is below that; of a mount point or a bucket, when
it has everything. A mount that runs is asked to send; what was refused is tried again at once. Otherwise the cache is opened
and all of it is sent without a mount.";

const UNMOUNT_EXAMPLES: &str = "Examples:
  margay unmount /mnt/photos
  margay unmount /mnt/photos --wait 60
  margay unmount /mnt/far --now

What was written is published first. A mount that programs still use when the time is over is detached all the same; the command names
them then, and ends with 1. umount(8) refuses a mount that is in use. Of an s3:// mount it waits until the bucket has everything and
the process has ended; with --now what is left stays in the cache, and `margay sync` or the next mount sends it.";

const MOUNTS_EXAMPLES: &str = "Examples:
  margay mounts
  margay mounts --data /srv/margay --json";

/// How often a command in the foreground checks that its mount still exists.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = MOUNT_EXAMPLES)]
pub(super) struct Mount {
    #[command(flatten)]
    data: DataArgs,
    /// BUCKET or BUCKET/PREFIX of a running server, or s3://BUCKET/PREFIX of any store
    bucket: String,
    /// Mount point; created if absent
    directory: PathBuf,
    /// Options as mount(8) takes them; may be repeated
    #[arg(short = 'o', value_name = "WORD,...")]
    options: Vec<String>,
    /// The same as -o ro
    #[arg(long)]
    read_only: bool,
    /// The same as -o sync
    #[arg(long)]
    sync: bool,
    /// Make the bucket when it is absent (also -o create)
    #[arg(long)]
    create: bool,
    /// Wait until it is unmounted; Ctrl-C unmounts
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Where an s3:// mount keeps what it read and what it has not sent [default: below ~/.cache/margay]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Bytes that the cache takes of the disk, such as 50GiB, at least 32MiB; what is not in the bucket yet counts but stays [default: 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_size: Option<u64>,
    /// Where an s3:// mount tells /health and /metrics, without a password
    #[arg(long, value_name = "HOST:PORT")]
    metrics_address: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = SYNC_EXAMPLES)]
pub(super) struct Sync {
    #[command(flatten)]
    data: DataArgs,
    /// A path in a mount, or s3://BUCKET/PREFIX as it was mounted
    #[arg(required_unless_present = "cache")]
    place: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
    /// The cache of the mount [default: that of the place]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Print how it went as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = UNMOUNT_EXAMPLES)]
pub(super) struct Unmount {
    #[command(flatten)]
    data: DataArgs,
    directory: PathBuf,
    /// Seconds to wait for programs that use it, before it is detached
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
    /// Of an s3:// mount: do not wait until the bucket has everything
    #[arg(long)]
    now: bool,
    /// Print how it went as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = MOUNTS_EXAMPLES)]
pub(super) struct Mounts {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_size(text: &str) -> Result<u64, String> {
    crate::settings::parse::parse_bytes(text)
        .ok_or_else(|| format!("{text} is no number of bytes: write 500MiB or 50GiB"))
}

impl Mount {
    /// The options as mount(8) takes them, those with a flag of their own included; and those of the store.
    fn words(&self) -> Result<(String, StoreOptions), Failure> {
        let mut words: Vec<String> = self.options.iter().flat_map(|one| one.split(',')).map(str::to_owned).collect();
        words.extend(self.read_only.then(|| "ro".to_owned()));
        words.extend(self.sync.then(|| "sync".to_owned()));
        let (store, cache) = (self.store.clone(), self.cache.clone());
        let flags = StoreOptions { store, cache, cache_size: self.cache_size, ..StoreOptions::default() };
        let store = flags.take(&mut words)?;
        Ok((words.join(","), store))
    }
}

pub(super) fn run_mount(args: &Mount) -> Result<(), Failure> {
    if args.bucket.starts_with("s3://") {
        if args.create {
            return Err(Failure::usage(
                "--create is for a bucket of a running server; make one elsewhere with its own tools",
            ));
        }
        return far::run(args);
    }
    let (mut options, store) = args.words()?;
    store.expect_none()?;
    let create = take_create(&mut options) || args.create;
    if args.metrics_address.is_some() {
        return Err(Failure::usage("--metrics-address belongs to s3://BUCKET/PREFIX".to_owned()));
    }
    MountChoice::parse(&options).map_err(Failure::usage)?;
    let data = args.data.settings(&Env::real())?.data;
    let path = absolute(&args.directory)?;
    super::runtime(1)?.block_on(async {
        ask_to_mount(&data, &args.bucket, &path, (&options, create)).await?;
        if args.foreground { stay(&data, &path).await } else { Ok(()) }
    })
}

pub(super) fn run_sync(args: &Sync) -> Result<(), Failure> {
    let sent = far_commands::sync(args).and_then(|done| match done {
        Synced::Done(told) => Ok(told),
        Synced::Left(cache) => far::run_sync(args, &cache).map(|()| json!({ "sent": true })),
    });
    far_commands::tell(args.json, "sent", sent.map(Some)).map(drop)
}

pub(super) fn run_unmount(args: &Unmount) -> Result<(), Failure> {
    let data = args.data.settings(&Env::real())?.data;
    let path = absolute(&args.directory)?;
    if far_commands::unmount(args, &path)? {
        return Ok(());
    }
    let done = super::runtime(1)?.block_on(ask_to_unmount(&data, &path, args.wait));
    far_commands::tell(args.json, "unmounted", done.map(|()| Some(json!({ "unmounted": true })))).map(drop)
}

pub(super) fn run_mounts(args: &Mounts) -> Result<(), Failure> {
    let (settings, reach) = args.admin.reach()?;
    // Who names a server asks for its mounts.
    let is_named = args.admin.data.data.is_some() || reach.is_there();
    let far = if is_named { Vec::new() } else { far_commands::rows(&settings)? };
    let served = super::runtime(1)?.block_on(reach.ask(&settings, Method::GET, "/mounts", None))?;
    let mut rows = match served {
        Some(Value::Array(rows)) => rows,
        _ if far.is_empty() => return Err(Failure::no_server(&settings.data)),
        _ => Vec::new(),
    };
    if args.json {
        rows.extend(far);
        println!("{:#}", Value::Array(rows));
        return Ok(());
    }
    for row in &rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let way = if row["read_only"] == true { "ro" } else { "rw" };
        let lost = if row["taken_over"] == true { "; taken over by another server: unmount it" } else { "" };
        println!("{}/{} on {} ({way}{lost})", text("bucket"), text("prefix"), text("path"));
    }
    far.iter().for_each(|row| print!("{}", text::row(row)));
    Ok(())
}

pub(super) use far_commands::status;
pub(super) use served::{FarArgs, run as run_serve};
pub(super) use warm::{Warm, run_warm};

/// Whether mount(8) calls. A mount that is not in fstab has the kind that the kernel names, `fuse.margay`: without a helper of
/// that name mount(8) calls mount.fuse(8), and that calls `margay SOURCE DIR -o remount,...`.
pub(super) fn is_helper(own: &OsStr, arguments: &[OsString]) -> bool {
    let name = Path::new(own).file_name().unwrap_or_default();
    let has_remount = |words: &OsString| words.to_string_lossy().split(',').any(|word| word == "remount");
    let is_remount = || match arguments {
        [_, directory, flag, words] => Path::new(directory).is_absolute() && flag == "-o" && has_remount(words),
        _ => false,
    };
    name == "mount.margay" || name == "mount.fuse.margay" || is_remount()
}

/// Called by mount(8): `mount.margay BUCKET DIR [-sfnv] [-o WORDS] [-t KIND]`.
pub(super) fn run_helper(arguments: &[OsString]) -> Result<(), Failure> {
    let mut places = Vec::new();
    let mut options = Vec::new();
    let mut data = None;
    let mut pretend = false;
    let mut rest = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-o" => {
                for word in rest.next().unwrap_or_default().split(',') {
                    match word.strip_prefix("data=") {
                        Some(directory) => data = Some(directory.to_owned()),
                        None => options.push(word.to_owned()),
                    }
                }
            }
            "-t" | "-N" => drop(rest.next()),
            flags if flags.starts_with('-') => pretend |= flags.contains('f'),
            _ => places.push(argument),
        }
    }
    let [bucket, directory] = places.as_slice() else {
        return Err(Failure::usage("mount.margay BUCKET DIR [-o WORDS]: mount(8) calls this"));
    };
    if pretend {
        return Ok(());
    }
    let path = absolute(Path::new(directory))?;
    if options.iter().any(|word| word == "remount") {
        return margay_fuse::remount(&path, &options)
            .map_err(|error| Failure::failed(format!("{} cannot be remounted: {error}", path.display())));
    }
    let store = StoreOptions::default().take(&mut options)?;
    if bucket.starts_with("s3://") {
        return far::run_helper(bucket, &path, &options.join(","), &store);
    }
    store.expect_none()?;
    let data = DataArgs { data, config: None, set: Vec::new() }.settings(&Env::real())?.data;
    let mut options = options.join(",");
    let create = take_create(&mut options);
    super::runtime(1)?.block_on(ask_to_mount(&data, bucket, &path, (&options, create)))
}

/// Takes the word `create` out of the options, which are those of the mount itself.
fn take_create(options: &mut String) -> bool {
    let (taken, left): (Vec<&str>, Vec<&str>) = options.split(',').partition(|word| *word == "create");
    let is_there = !taken.is_empty();
    *options = left.join(",");
    is_there
}

async fn ask_to_mount(data: &Path, bucket: &str, path: &Path, (options, create): (&str, bool)) -> Result<(), Failure> {
    let wish = json!({ "bucket": bucket, "path": path, "options": options, "create": create });
    control::ask_with(data, Method::POST, "/mount", Some(&wish)).await?.ok_or_else(|| Failure::no_server(data))?;
    Ok(())
}

async fn ask_to_unmount(data: &Path, path: &Path, seconds: u64) -> Result<(), Failure> {
    let wish = json!({ "path": path, "seconds": seconds });
    let Some(done) = control::ask_with(data, Method::POST, "/unmount", Some(&wish)).await? else {
        // Its server is gone, so the mount is detached here.
        return mount_point::unmount(path, true)
            .map_err(|error| Failure::failed(format!("{} cannot be unmounted: {error}", path.display())));
    };
    if done["calm"] == false {
        return Err(far_commands::detached(path, done["users"].as_str().unwrap_or("others")));
    }
    Ok(())
}

/// Waits until the mount is unmounted, or until a signal asks to unmount it.
async fn stay(data: &Path, path: &Path) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    loop {
        tokio::select! {
            _ = terminate.recv() => return ask_to_unmount(data, path, 10).await,
            _ = interrupt.recv() => return ask_to_unmount(data, path, 10).await,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let mounts = control::ask(data, Method::GET, "/mounts").await?;
        let Some(Value::Array(rows)) = mounts else { return Err(Failure::no_server(data)) };
        if !rows.iter().any(|row| row["path"].as_str() == path.to_str()) {
            return Ok(());
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let written = std::path::absolute(path);
    let written = written.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(written.canonicalize().unwrap_or(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_and_its_helpers_are_known() {
        let calls =
            |own: &str, words: &str| is_helper(own.as_ref(), &words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(calls("/sbin/mount.margay", "s3://b /mnt") && calls("/sbin/mount.fuse.margay", "s3://b /mnt -o rw"));
        assert!(calls("margay", "s3://b/p /mnt -o rw,remount,nosuid") && calls("margay", "photos /mnt -o remount"));
        for other in ["s3://b/p /mnt -o rw", "mount b /mnt -o remount", "s3://b mnt -o remount", "sync /mnt"] {
            assert!(!calls("/usr/bin/margay", other), "{other}");
        }
    }
}
