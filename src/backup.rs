//! Backups of a data directory: creating, listing and pruning them.
//!
//! Why:        the running server makes its own backup, because only it can take rows and segments from one moment.
//! Layout:     docs/format/backup.md; the volume's part, and on request `keys/` with the server's key files.
//! Not here:   rows and segments (margay-volume), restoring (`restore`), the commands (`cli::backup`).

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_env::files;
use margay_volume::{BackupError, Pruned, ReadCondition, moments};
use serde_json::{Value, json};

use crate::backup_location::{BackupLocation, Opened};
use crate::exit::Failure;
use crate::wiring::Storage;

/// Key files of a data directory.
pub(crate) const KEY_FILES: [&str; 3] =
    [margay_accounts::root_keys::FILE, margay_accounts::encryption_keys::FILE, margay_accounts::identities::KEY_FILE];
/// Where they are in a backup.
pub(crate) const KEYS: &str = "keys";
/// Maximum size of a key file, in bytes.
pub(crate) const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

/// Options of a backup.
#[derive(Clone, Debug)]
pub struct BackupWish {
    pub to: BackupLocation,
    pub with_keys: bool,
    /// Number of moments (snapshots) to keep, including the new one; all when absent.
    pub keep: Option<NonZeroUsize>,
}

impl BackupWish {
    pub fn to_json(&self) -> Result<Value, String> {
        Ok(json!({ "to": self.to.to_json()?, "with_keys": self.with_keys, "keep": self.keep }))
    }

    pub fn from_json(value: &Value) -> Result<BackupWish, String> {
        let to = BackupLocation::from_json(&value["to"])?;
        let keep = value["keep"].as_u64().and_then(|keep| NonZeroUsize::new(usize::try_from(keep).ok()?));
        Ok(BackupWish { to, with_keys: value["with_keys"] == true, keep })
    }
}

/// Makes a backup of a running server. The error is one line.
pub async fn make_of_running(storage: Arc<Storage>, wish: BackupWish) -> Result<Value, String> {
    let (env, to) = (storage.env.clone(), wish.to.clone());
    let opened = Arc::new(apart(move || to.open(&env)).await?);
    if let BackupLocation::Bucket(place) = &wish.to {
        // The target may be this very volume under another name or route. So a random object is written there; it must
        // not appear in this volume.
        let marked = Arc::clone(&opened);
        if let Some(key) = apart(move || marked.put_mark()).await? {
            let found = storage.volume.head_object(&place.bucket, &key, &ReadCondition::default()).await;
            let marked = Arc::clone(&opened);
            apart(move || marked.remove_mark(&key)).await?;
            if found.is_ok() {
                return Err(format!(
                    "{place} is a bucket of this very server: a backup in it would be lost with it; name another store"
                ));
            }
        }
    }
    apart(move || make(&storage, &wish, &opened)).await
}

/// Runs blocking work on another thread.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| format!("the backup broke off: {error}"))?
}

/// Makes a backup; blocks until it is complete. The error is one line.
pub fn make(storage: &Storage, wish: &BackupWish, to: &Opened) -> Result<Value, String> {
    let fail = |error: &dyn std::fmt::Display| format!("the backup in {} failed: {error}", wish.to);
    if matches!(&wish.to, BackupLocation::Directory(path) if path.starts_with(storage.path())) {
        return Err("a backup inside the data directory would be lost with it: name another place".to_owned());
    }
    let live: u64 = storage.volume.live_bytes().map_err(|error| fail(&error))?.values().sum();
    // At most all live data is copied, and then read again.
    let running = storage.backed_up.begin(live.saturating_mul(2));
    let report = storage.volume.backup(&to.env, &to.path, |done| {
        running.at(done);
        if storage.stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = report.map_err(|error| fail(&format!("{error}{}", remedy(&error, &wish.to))))?;
    if wish.with_keys {
        let keys = to.path.join(KEYS);
        to.env.disk.create_dir_all(&keys).map_err(|error| fail(&error))?;
        copy_keys(&storage.env, storage.path(), &to.env, &keys).map_err(|error| fail(&error))?;
    }
    let pruned = match wish.keep {
        Some(keep) => {
            let pruned = margay_volume::prune(&to.env, &to.path, keep, false);
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

/// Further advice when the lock is an object in a bucket.
fn remedy(error: &BackupError, place: &BackupLocation) -> &'static str {
    match (error, place) {
        (BackupError::InUse, BackupLocation::Bucket(_)) => {
            "; what a killed one left in the bucket ends 3 minutes after its last sign of life (the object lock says whose it is)"
        }
        _ => "",
    }
}

fn pruned_json(pruned: &Pruned) -> Value {
    json!({
        "moments": pruned.moments,
        "kept": pruned.kept,
        "segments": pruned.segments,
        "bytes": pruned.bytes,
    })
}

/// Removes all moments except the newest `keep`, and data that only they use; `dry` only reports.
pub fn prune(env: &Env, place: &BackupLocation, keep: NonZeroUsize, dry: bool) -> Result<Value, Failure> {
    let backup = place.open(env).map_err(Failure::failed)?;
    // Reports a missing backup before anything is created there.
    list(&backup, place)?;
    let pruned = margay_volume::prune(&backup.env, &backup.path, keep, dry).map_err(|error| {
        let message = format!("the backup in {place} was not pruned: {error}{}", remedy(&error, place));
        if matches!(error, BackupError::InUse) { Failure::refused(message) } else { Failure::failed(message) }
    });
    Ok(pruned_json(&pruned?))
}

/// The moments of a backup, oldest first.
pub fn list(backup: &Opened, place: &BackupLocation) -> Result<Vec<String>, Failure> {
    let found = moments(&backup.env, &backup.path).map_err(|error| Failure::failed(format!("{place}: {error}")))?;
    if found.is_empty() {
        return Err(Failure::failed(format!("{place} holds no backup")));
    }
    Ok(found)
}

/// Copies the key files that exist.
pub(crate) fn copy_keys(source: &Env, from: &Path, target: &Env, to: &Path) -> std::io::Result<()> {
    for name in KEY_FILES {
        if source.disk.exists(&from.join(name))? {
            let bytes = files::read(source, &from.join(name), KEY_FILE_BYTES_MAX)?;
            files::replace_content(target, &to.join(name), &bytes)?;
        }
    }
    target.disk.sync_dir(to)
}
