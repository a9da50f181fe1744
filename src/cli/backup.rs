//! `margay backup` and `margay restore`.

use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use margay_env::Env;
use serde_json::Value;

use super::arguments::DataArgs;
use crate::backup::{self, BackupWish};
use crate::control;
use crate::exit::{Code, Failure};
use crate::progress::{Far, Line};
use crate::settings::parse::show_bytes;

const BACKUP_EXAMPLES: &str = "Examples:
  margay backup /mnt/backup
  margay backup /mnt/backup --data /srv/margay --json
  margay backup /mnt/backup --with-keys

A running server makes the backup itself, while clients go on; its user must be able to write to the directory. The next
backup to the same directory copies only what is new and keeps the earlier moments. Everything is read again and
verified before the moment counts. Without --with-keys the key files of the data directory are left out: without
encryption-keys nobody can read objects that are encrypted at rest, and without identity-key users must get new keys.";

const RESTORE_EXAMPLES: &str = "Examples:
  margay restore /mnt/backup --list
  margay restore /mnt/backup --data /srv/margay-restored
  margay restore /mnt/backup --moment 01795372800-0000 --data /srv/margay-then

Makes a new data directory; an existing one is never touched. To get back single buckets or keys, restore to a new directory,
serve it on another port, and copy them with any S3 tool. Exit code 4 when what was restored does not fit together.";

#[derive(Debug, clap::Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub(super) struct Backup {
    /// Directory of the backup; made when absent
    to: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Copy the key files too: keep the backup as secret as they are
    #[arg(long)]
    with_keys: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(super) struct Restore {
    /// Directory of the backup
    backup: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Which moment; the newest unless named
    #[arg(long, value_name = "NAME")]
    moment: Option<String>,
    /// Only list the moments
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run_backup(args: &Backup) -> Result<(), Failure> {
    let env = Env::real();
    let to = std::path::absolute(&args.to)
        .map_err(|error| Failure::failed(format!("{} cannot be named: {error}", args.to.display())))?;
    let wish = BackupWish { to, with_keys: args.with_keys };
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
    if !args.with_keys {
        eprintln!("margay: the key files are not in the backup; keep copies of them elsewhere, or add --with-keys");
    }
    Ok(())
}

fn ask_or_do(env: &Env, args: &Backup, wish: &BackupWish) -> Result<Value, Failure> {
    let settings = args.data.settings(env)?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    runtime.block_on(async {
        {
            let (here, data) = (tokio::runtime::Handle::current(), settings.data.clone());
            let ask = move || here.block_on(control::ask(&data, Method::GET, "/status")).ok().flatten();
            let far = move || ask().and_then(|status| Far::from_json(&status["storage"]["backup"]));
            let _line = Line::follow(env, "backup", far);
            let asked = control::ask_with(&settings.data, Method::POST, "/backup", Some(&wish.to_json())).await?;
            if let Some(done) = asked {
                return Ok(done);
            }
        }
        let storage = super::works::open_at_rest(env, &settings)?;
        let followed = Arc::clone(&storage);
        let _line = Line::follow(env, "backup", move || followed.backed_up.now());
        let done = backup::make(&storage, wish).map_err(Failure::failed)?;
        storage.close()?;
        Ok(done)
    })
}

pub(super) fn run_restore(args: &Restore) -> Result<(), Failure> {
    let env = Env::real();
    if args.list {
        let moments = backup::list(&env, &args.backup)?;
        if args.json {
            println!("{:#}", serde_json::json!({ "moments": moments }));
        } else {
            moments.iter().for_each(|moment| println!("{moment}"));
        }
        return Ok(());
    }
    super::keep_private();
    let settings = args.data.settings(&env)?;
    let runtime = super::runtime(settings.storage.io_threads_max)?;
    let _inside = runtime.enter();
    let moment = args.moment.as_deref();
    let done = backup::restore(&env, &args.backup, moment, &settings.data, &settings.storage)?;
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
    if findings > 0 {
        let message = "what was restored does not fit together; try an earlier moment".to_owned();
        return Err(Failure { code: Code::Found, message });
    }
    Ok(())
}
