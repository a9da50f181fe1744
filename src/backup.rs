//! Backups of a data directory: made, listed, pruned.
//!
//! Why:        the running server makes its own backup: nobody else knows when its rows and segments are of one moment.
//! Layout:     docs/format/backup.md; what the volume writes, and `keys/` with the server's key files, if they were asked for.
//! Not here:   rows and segments (margay-volume), new directories made from a backup (`restore`), the commands
//!             (`cli::backup`).

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use margay_env::Env;
use margay_volume::{BackupError, Pruned, moments};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::files;
use crate::wiring::Storage;

/// Key files of a data directory.
pub(crate) const KEY_FILES: [&str; 3] = ["keys", crate::encryption_keys::FILE, crate::identities::KEY_FILE];
/// Where they are in a backup.
pub(crate) const KEYS: &str = "keys";
/// Largest of them, in bytes.
pub(crate) const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

/// What a backup is asked for.
#[derive(Clone, Debug)]
pub struct BackupWish {
    /// Absolute, since the server may run elsewhere.
    pub to: PathBuf,
    pub with_keys: bool,
    /// Moments to keep, the new one among them; all when absent.
    pub keep: Option<NonZeroUsize>,
}

impl BackupWish {
    pub fn to_json(&self) -> Value {
        json!({ "to": self.to.display().to_string(), "with_keys": self.with_keys, "keep": self.keep })
    }

    pub fn from_json(value: &Value) -> Result<BackupWish, String> {
        let to = PathBuf::from(value["to"].as_str().ok_or("the request lacks to")?);
        if !to.is_absolute() {
            return Err("the backup's directory must be named by an absolute path".to_owned());
        }
        let keep = value["keep"].as_u64().and_then(|keep| NonZeroUsize::new(usize::try_from(keep).ok()?));
        Ok(BackupWish { to, with_keys: value["with_keys"] == true, keep })
    }
}

/// Makes a backup; blocks until it is made. The error is one line.
pub fn make(storage: &Storage, wish: &BackupWish) -> Result<Value, String> {
    let fail = |error: &dyn std::fmt::Display| format!("the backup in {} failed: {error}", wish.to.display());
    if wish.to.starts_with(storage.path()) {
        return Err("a backup inside the data directory would be lost with it: name another place".to_owned());
    }
    let live: u64 = storage.volume.live_bytes().map_err(|error| fail(&error))?.values().sum();
    // Copied at most once, and read again.
    let running = storage.backed_up.begin(live.saturating_mul(2));
    let report = storage.volume.backup(&wish.to, |done| {
        running.at(done);
        if storage.stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = report.map_err(|error| fail(&error))?;
    if wish.with_keys {
        let keys = wish.to.join(KEYS);
        storage.env.disk.create_dir_all(&keys).map_err(|error| fail(&error))?;
        copy_keys(&storage.env, storage.path(), &keys).map_err(|error| fail(&error))?;
    }
    let pruned = match wish.keep {
        Some(keep) => {
            let pruned = margay_volume::prune(&storage.env, &wish.to, keep, false);
            pruned_json(
                &pruned.map_err(|error| fail(&format!("the new moment is whole, pruning was not done: {error}")))?,
            )
        }
        None => Value::Null,
    };
    Ok(json!({
        "moment": report.moment,
        "rows": report.rows,
        "segments": report.segments,
        "copied_bytes": report.copied_bytes,
        "verified_bytes": report.verified_bytes,
        "keys": wish.with_keys,
        "pruned": pruned,
    }))
}

fn pruned_json(pruned: &Pruned) -> Value {
    json!({
        "moments": pruned.moments,
        "kept": pruned.kept,
        "segments": pruned.segments,
        "bytes": pruned.bytes,
    })
}

/// Removes all moments but the newest `keep`, and what only they name; `dry`: only tells.
pub fn prune(env: &Env, backup: &Path, keep: NonZeroUsize, dry: bool) -> Result<Value, Failure> {
    // Not a backup: said before anything is made there.
    list(env, backup)?;
    let pruned = margay_volume::prune(env, backup, keep, dry).map_err(|error| {
        let message = format!("the backup in {} was not pruned: {error}", backup.display());
        if matches!(error, BackupError::InUse) { Failure::refused(message) } else { Failure::failed(message) }
    });
    Ok(pruned_json(&pruned?))
}

/// The moments of a backup, oldest first.
pub fn list(env: &Env, backup: &Path) -> Result<Vec<String>, Failure> {
    let found = moments(env, backup).map_err(|error| Failure::failed(format!("{}: {error}", backup.display())))?;
    if found.is_empty() {
        return Err(Failure::failed(format!("{} holds no backup", backup.display())));
    }
    Ok(found)
}

/// Those that are there.
pub(crate) fn copy_keys(env: &Env, from: &Path, to: &Path) -> std::io::Result<()> {
    for name in KEY_FILES {
        if env.disk.exists(&from.join(name))? {
            let bytes = files::read(env, &from.join(name), KEY_FILE_BYTES_MAX)?;
            files::replace_content(env, &to.join(name), &bytes)?;
        }
    }
    env.disk.sync_dir(to)
}
