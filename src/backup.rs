//! Backups of a data directory, and new directories made from them.
//!
//! Why:        the running server makes its own backup: nobody else knows when its rows and segments are of one moment.
//! Layout:     docs/format/backup.md; what the volume writes, and `keys/` with the server's key files, if they were asked for.
//! Invariants: K1 a directory that was not restored whole does not get its name.
//! Not here:   rows and segments (margay-volume), the commands (`cli::backup`).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_env::{Env, OpenMode};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::Store;
use margay_volume::{moments, restore_rows, segments_of};
use serde_json::{Value, json};

use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::files;
use crate::settings::StorageLimits;
use crate::wiring::{Storage, engine_options, segment_options};

/// Key files of a data directory.
const KEY_FILES: [&str; 3] = ["keys", crate::encryption_keys::FILE, crate::identities::KEY_FILE];
/// Where they are in a backup.
const KEYS: &str = "keys";
/// Largest of them, in bytes.
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// What a backup is asked for.
#[derive(Clone, Debug)]
pub struct BackupWish {
    /// Absolute, since the server may run elsewhere.
    pub to: PathBuf,
    pub with_keys: bool,
}

impl BackupWish {
    pub fn to_json(&self) -> Value {
        json!({ "to": self.to.display().to_string(), "with_keys": self.with_keys })
    }

    pub fn from_json(value: &Value) -> Result<BackupWish, String> {
        let to = PathBuf::from(value["to"].as_str().ok_or("the request lacks to")?);
        if !to.is_absolute() {
            return Err("the backup's directory must be named by an absolute path".to_owned());
        }
        Ok(BackupWish { to, with_keys: value["with_keys"] == true })
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
    Ok(json!({
        "moment": report.moment,
        "rows": report.rows,
        "segments": report.segments,
        "copied_bytes": report.copied_bytes,
        "verified_bytes": report.verified_bytes,
        "keys": wish.with_keys,
    }))
}

/// The moments of a backup, oldest first.
pub fn list(env: &Env, backup: &Path) -> Result<Vec<String>, Failure> {
    let found = moments(env, backup).map_err(|error| Failure::failed(format!("{}: {error}", backup.display())))?;
    if found.is_empty() {
        return Err(Failure::failed(format!("{} holds no backup", backup.display())));
    }
    Ok(found)
}

/// Makes a new data directory from a moment of a backup (the newest, unless one is named) and checks it; blocks. Call it
/// inside a runtime.
pub fn restore(
    env: &Env,
    backup: &Path,
    moment: Option<&str>,
    data: &Path,
    limits: &StorageLimits,
) -> Result<Value, Failure> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::failed(format!("restoring to {} failed: {error}", data.display()));
    let all = list(env, backup)?;
    let moment = match moment {
        None => all.last().cloned().unwrap_or_default(),
        Some(moment) if all.iter().any(|known| known == moment) => moment.to_owned(),
        Some(moment) => {
            return Err(Failure::failed(format!("there is no moment {moment}; there are: {}", all.join(", "))));
        }
    };
    if env.disk.exists(data).map_err(|error| fail(&error))? {
        return Err(Failure::refused(format!("{} exists; name a new directory with --data DIR", data.display())));
    }
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(".restoring");
    let unfinished = data.with_file_name(name);
    if env.disk.exists(&unfinished).map_err(|error| fail(&error))? {
        let why = format!("{} is left of a restore that broke off; remove it, then try again", unfinished.display());
        return Err(Failure::refused(why));
    }
    let rows = {
        let dir = DataDir::open_or_create(env, &unfinished)?;
        fill(&dir, backup, &moment, limits).map_err(|error| fail(&error))?
    };
    env.disk.rename(&unfinished, data).map_err(|error| fail(&error))?;
    if let Some(parent) = data.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        env.disk.sync_dir(parent).map_err(|error| fail(&error))?;
    }
    let storage = Storage::open(DataDir::open(env, data)?, limits)?;
    let report = storage.volume.check(100, &Arc::default()).map_err(|error| fail(&error))?;
    storage.close()?;
    let findings: Vec<&String> = report.shown.iter().map(|finding| &finding.what).collect();
    Ok(json!({
        "moment": moment,
        "rows": rows,
        "buckets": report.buckets,
        "files": report.files,
        "bytes": report.bytes,
        "findings": findings,
    }))
}

fn fill(dir: &DataDir, backup: &Path, moment: &str, limits: &StorageLimits) -> Result<u64, String> {
    let env = &dir.env;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let keys = backup.join(KEYS);
    if env.disk.exists(&keys).map_err(|error| text(&error))? {
        copy_keys(env, &keys, &dir.path).map_err(|error| text(&error))?;
    }
    let (from, to) = (segments_of(backup), dir.segments());
    env.disk.create_dir_all(&to).map_err(|error| text(&error))?;
    for entry in env.disk.list(&from).map_err(|error| text(&error))? {
        copy_file(env, &from.join(&entry.name), &to.join(&entry.name)).map_err(|error| text(&error))?;
    }
    env.disk.sync_dir(&to).map_err(|error| text(&error))?;
    let segments = Store::open(env.clone(), segment_options(dir, limits)).map_err(|error| text(&error))?;
    let mut options = engine_options(dir, limits);
    options.first_log_min = segments.next_id().0;
    let engine = EmbeddedEngine::open(env.clone(), segments, options).map_err(|error| text(&error))?;
    let rows = restore_rows(env, backup, moment, &engine, |_| ()).map_err(|error| text(&error))?;
    engine.checkpoint().map_err(|error| text(&error))?;
    Ok(rows)
}

fn copy_file(env: &Env, from: &Path, to: &Path) -> std::io::Result<()> {
    let (from, to) = (env.disk.open(from, OpenMode::Read)?, env.disk.open(to, OpenMode::CreateNew)?);
    let (len, mut at, mut buffer) = (from.len()?, 0, Vec::new());
    while at < len {
        buffer.resize(COPY_BYTES.min(len - at) as usize, 0);
        from.read_exact_at(&mut buffer, at)?;
        to.write_all_at(&buffer, at)?;
        at += buffer.len() as u64;
    }
    to.sync_data()
}

/// Those that are there.
fn copy_keys(env: &Env, from: &Path, to: &Path) -> std::io::Result<()> {
    for name in KEY_FILES {
        if env.disk.exists(&from.join(name))? {
            let bytes = files::read(env, &from.join(name), KEY_FILE_BYTES_MAX)?;
            files::replace_content(env, &to.join(name), &bytes)?;
        }
    }
    env.disk.sync_dir(to)
}
