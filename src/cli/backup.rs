//! `margay backup` and `margay restore`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use margay_client::credentials::Variables;
use margay_env::Env;
use margay_volume::PartName;
use serde_json::Value;

use super::adopt;
use super::arguments::DataArgs;
use crate::backup::{self, BackupWish};
use crate::backup_location::{BackupLocation, StoreArgs};
use crate::control;
use crate::exit::{Code, Failure};
use crate::progress::{Far, Line};
use crate::restore::{self, RestoreWish};
use crate::settings::parse::show_bytes;

const BACKUP_EXAMPLES: &str = "Examples:
  margay backup /mnt/backup
  margay backup /mnt/backup --data /srv/margay --json
  margay backup /mnt/backup --with-keys
  margay backup /mnt/backup --keep 7
  margay backup prune /mnt/backup --keep 7 --dry-run
  AWS_REGION=eu-central-1 margay backup s3://my-backups/photos-server
  margay backup s3://my-backups/photos-server --endpoint https://minio.example:9000 --ca /etc/ssl/minio.pem

A running server makes the backup itself, while clients go on; its user must be able to write to the directory. The next
backup to the same place copies only what is new and keeps the earlier moments. Everything is read again and
verified before the moment counts. Without --with-keys the key files of the data directory are left out: without
encryption-keys nobody can read objects that are encrypted at rest, and without identity-key users must get new keys.
--keep N removes older moments when the new one is whole; `prune` does it by itself. (A directory called prune is ./prune.)

s3://BUCKET/PREFIX is a bucket of any S3 store that keeps If-None-Match and If-Match (AWS, MinIO, margay); the bucket must be
there. Keys and region are found where AWS's tools find them (environment, profile, web identity, container, machine), by this command,
also when a running server makes the backup: then temporary keys must be valid until it ends. With --with-keys keep the bucket as secret as the key files.";

const PRUNE_EXAMPLES: &str = "Examples:
  margay backup prune /mnt/backup --keep 7
  margay backup prune /mnt/backup --keep 7 --dry-run --json
  margay backup prune s3://my-backups/photos-server --keep 7

Keeps the newest moments and removes the older ones, then the copies of segments that no moment that is left needs. It may be
broken off at any time: what is left is whole, and the next pruning goes on. It is refused while a backup runs.";

const RESTORE_EXAMPLES: &str = "Examples:
  margay restore /mnt/backup --list
  margay restore /mnt/backup --data /srv/margay-restored
  margay restore /mnt/backup --moment 01795372800-0000 --data /srv/margay-then
  margay restore /mnt/backup --bucket photos --prefix 2026/ --data /tmp/photos
  margay restore s3://my-backups/photos-server --data /srv/margay-restored
  margay restore /mnt/backup --data /srv/margay-restored --metadata postgres://margay@db/margay

Makes a new data directory; an existing one is never touched. --bucket restores one bucket with its settings and versions, and
--prefix only its keys that begin so; uploads under way, users and waiting events are left out. To bring it into a running
server, serve the new directory on another port and copy with any S3 tool:
  margay serve --data /tmp/photos --address 127.0.0.1:9100 --admin-address off
  rclone copy restored:photos margay:photos        # restored and margay: remotes with the endpoints of the two servers
With --metadata its rows are moved into that database then, as by margay cluster adopt. Everything that was restored is read and compared with its checksums. Exit code 4 when it does not fit together, or when the
backup itself is damaged.";

#[derive(Debug, clap::Args)]
#[command(after_help = BACKUP_EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Backup {
    #[command(subcommand)]
    other: Option<Other>,
    /// Directory of the backup, created if absent; or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE", required = true)]
    to: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// The database of a volume of several servers, if no server runs on the directory: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL")]
    metadata: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    /// Copy the key files too: keep the backup as secret as they are
    #[arg(long)]
    with_keys: bool,
    /// Afterwards keep only the newest N moments
    #[arg(long, value_name = "N")]
    keep: Option<NonZeroUsize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Remove old moments, and data that only they use
    Prune(Prune),
}

#[derive(Debug, clap::Args)]
#[command(after_help = PRUNE_EXAMPLES)]
struct Prune {
    /// Directory of the backup, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    backup: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Snapshots to keep: the newest N
    #[arg(long, value_name = "N")]
    keep: NonZeroUsize,
    /// Only report what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(super) struct Restore {
    /// Directory of the backup, or s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    backup: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    data: DataArgs,
    /// An empty database for the rows, which several servers can share then: postgres://USER@HOST,HOST/DATABASE
    #[arg(long, value_name = "URL")]
    metadata: Option<String>,
    /// Which moment; the newest unless named
    #[arg(long, value_name = "NAME")]
    moment: Option<String>,
    /// Only this bucket
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Only its keys that begin with this
    #[arg(long, value_name = "PREFIX", requires = "bucket", default_value = "")]
    prefix: String,
    /// Only list the moments
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run_backup(args: &Backup) -> Result<(), Failure> {
    let env = Env::real();
    if let Some(Other::Prune(prune)) = &args.other {
        return run_prune(&env, prune);
    }
    let to = args.to.as_deref().ok_or_else(|| Failure::usage("name the place of the backup"))?;
    let to = place(to, &args.store)?;
    let wish = BackupWish { to, with_keys: args.with_keys, keep: args.keep };
    let done = ask_or_do(&env, args, &wish)?;
    if args.json {
        println!("{done:#}");
        return Ok(());
    }
    let number = |name: &str| done[name].as_u64().unwrap_or_default();
    println!(
        "moment {}: {} rows, {} segments; {} copied, {} read again and right",
        done["moment"].as_str().unwrap_or_default(),
        number("rows"),
        number("segments"),
        show_bytes(number("copied_bytes")),
        show_bytes(number("verified_bytes")),
    );
    if args.keep.is_some() {
        show_pruned(&done["pruned"], false);
    }
    if !args.with_keys {
        eprintln!("margay: the key files are not in the backup; keep copies of them elsewhere, or add --with-keys");
    }
    Ok(())
}

/// The location that command line and environment name.
fn place(named: &Path, store: &StoreArgs) -> Result<BackupLocation, Failure> {
    let env = Env::real();
    BackupLocation::parse(&env, named, store, &Variables::of_process(&env)).map_err(Failure::usage)
}

fn run_prune(env: &Env, args: &Prune) -> Result<(), Failure> {
    let done = backup::prune(env, &place(&args.backup, &args.store)?, args.keep, args.dry_run)?;
    if args.json {
        println!("{done:#}");
    } else {
        show_pruned(&done, args.dry_run);
    }
    Ok(())
}

fn show_pruned(done: &Value, dry: bool) {
    let number = |name: &str| done[name].as_u64().unwrap_or_default();
    let (gone, went) = (done["moments"].as_array(), if dry { "would be removed" } else { "removed" });
    gone.into_iter().flatten().filter_map(Value::as_str).for_each(|moment| println!("moment {moment} {went}"));
    println!(
        "{} moments kept; {} copies of segments {went}, {}",
        number("kept"),
        number("segments"),
        show_bytes(number("bytes")),
    );
}

fn ask_or_do(env: &Env, args: &Backup, wish: &BackupWish) -> Result<Value, Failure> {
    let settings = args.data.settings_with_metadata(env, args.metadata.as_deref())?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    runtime.block_on(async {
        {
            let (here, data) = (tokio::runtime::Handle::current(), settings.data.clone());
            let ask = move || here.block_on(control::ask(&data, Method::GET, "/status")).ok().flatten();
            let far = move || ask().and_then(|status| Far::from_json(&status["storage"]["backup"]));
            let _line = Line::follow(env, "backup", far);
            let wish = wish.to_json().map_err(Failure::failed)?;
            let asked = control::ask_with(&settings.data, Method::POST, "/backup", Some(&wish)).await?;
            if let Some(done) = asked {
                return Ok(done);
            }
        }
        let to = wish.to.open(env).map_err(Failure::failed)?;
        let storage = super::works::open_at_rest(env, &settings)?;
        let followed = Arc::clone(&storage);
        let _line = Line::follow(env, "backup", move || followed.backed_up.now());
        let done = backup::make(&storage, wish, &to).map_err(Failure::failed)?;
        storage.close()?;
        Ok(done)
    })
}

pub(super) fn run_restore(args: &Restore) -> Result<(), Failure> {
    let env = Env::real();
    let from = place(&args.backup, &args.store)?;
    if args.list {
        let moments = backup::list(&from.open(&env).map_err(Failure::failed)?, &from)?;
        if args.json {
            println!("{:#}", serde_json::json!({ "moments": moments }));
        } else {
            moments.iter().for_each(|moment| println!("{moment}"));
        }
        return Ok(());
    }
    super::keep_private();
    let settings = args.data.settings_with_metadata(&env, args.metadata.as_deref())?;
    adopt::check_empty(&settings)?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let _inside = runtime.enter();
    let part = args.bucket.clone().map(|bucket| PartName { bucket, prefix: args.prefix.clone() });
    let wish = RestoreWish { backup: from, moment: args.moment.clone(), part };
    let done = restore::restore(&env, &wish, &settings.data, &settings.storage)?;
    let number = |name: &str| done[name].as_u64().unwrap_or_default();
    let findings = done["findings"].as_array().map_or(0, Vec::len);
    if args.json {
        println!("{done:#}");
    } else {
        done["findings"].as_array().into_iter().flatten().filter_map(Value::as_str).for_each(|what| println!("{what}"));
        println!(
            "moment {}: {} buckets, {} files with {} in {}; {findings} findings",
            done["moment"].as_str().unwrap_or_default(),
            number("buckets"),
            number("files"),
            show_bytes(number("bytes")),
            settings.data.display(),
        );
    }
    if let Some(advice) = restore::advice(&done, &settings.data) {
        eprintln!("margay: {advice}");
    }
    if findings > 0 {
        let message = "what was restored does not fit together; try an earlier moment".to_owned();
        return Err(Failure { code: Code::Found, message });
    }
    adopt::after(&env, &settings)
}
