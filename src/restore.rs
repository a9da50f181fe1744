//! Creates new data directories from backups.
//!
//! Why:        a restore never changes existing data: it fills a new directory, which is then checked.
//! Invariants: K1 a directory that was not restored completely does not get its name, and no key is created for it.
//!             K2 new segments get ids above all ids of the backup, so the directory can be backed up to the same
//!                location.
//! Not here:   rows (margay-volume), the commands (`cli::backup`).

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use margay_accounts::key_files::{self, KEY_FILES};
use margay_env::{Env, OpenMode};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::{SegmentId, Store, StoreNumber, mark_name, segment_of_name};
use margay_volume::{BackupError, Error, KeyFile, Part, PartName, named_segments, restore_rows, segments_of};
use serde_json::{Value, json};

use crate::backup::{KEYS, copy_keys, list};
use crate::backup_location::{BackupLocation, Opened};
use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::settings::StorageLimits;
use crate::wiring::{Storage, engine_options, segment_options};

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// Findings that are listed in full.
const SHOWN_MAX: usize = 100;

/// Options of a restore.
#[derive(Clone, Debug)]
pub struct RestoreWish {
    pub backup: BackupLocation,
    /// The newest unless named.
    pub moment: Option<String>,
    /// Everything unless named.
    pub part: Option<PartName>,
}

/// Creates a new data directory from a moment of a backup and checks it; blocks. Must be called inside a tokio runtime.
pub fn restore(env: &Env, wish: &RestoreWish, data: &Path, limits: &StorageLimits) -> Result<Value, Failure> {
    let backup = wish.backup.open(env).map_err(Failure::failed)?;
    let all = list(&backup, &wish.backup)?;
    let moment = match &wish.moment {
        None => all.last().cloned().unwrap_or_default(),
        Some(moment) if all.contains(moment) => moment.clone(),
        Some(moment) => {
            return Err(Failure::failed(format!("there is no moment {moment}; there are: {}", all.join(", "))));
        }
    };
    let part = match &wish.part {
        None => None,
        Some(name) => Some(find_part(&backup, &wish.backup, &moment, name)?),
    };
    let rows = make_new(env, data, |dir| fill(dir, &backup, &moment, part.as_ref(), limits))?;
    // Reports damage in the backup now, not when somebody reads the data.
    let mut done = check(env, data, limits, true)?;
    done["moment"] = json!(moment);
    done["rows"] = json!(rows);
    Ok(done)
}

fn find_part(backup: &Opened, place: &BackupLocation, moment: &str, name: &PartName) -> Result<Part, Failure> {
    Part::find(&backup.env, &backup.path, moment, name.clone()).map_err(|error| match error {
        BackupError::NoBucket { .. } | BackupError::NoKeys(_) => {
            Failure::refused(format!("{error}; `margay restore --list` shows other moments"))
        }
        error => Failure::failed(format!("{place}: {error}")),
    })
}

/// Creates a data directory that gets its name when it is filled; an existing one is refused.
pub fn make_new<T>(env: &Env, data: &Path, fill: impl FnOnce(&DataDir) -> Result<T, String>) -> Result<T, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure::failed(format!("making {} failed: {error}", data.display()));
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
    let filled = {
        let dir = DataDir::open_or_create(env, &unfinished)?;
        fill(&dir).map_err(|error| fail(&error))?
    };
    env.disk.rename(&unfinished, data).map_err(|error| fail(&error))?;
    if let Some(parent) = data.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        env.disk.sync_dir(parent).map_err(|error| fail(&error))?;
    }
    Ok(filled)
}

/// Opens a new directory and reports its content and inconsistencies; with `bytes`, also data that fails its checksum.
pub fn check(env: &Env, data: &Path, limits: &StorageLimits, bytes: bool) -> Result<Value, Failure> {
    let fail = |error: Error| Failure::failed(format!("checking {} failed: {error}", data.display()));
    let storage = Storage::open_at_rest(DataDir::open(env, data)?, limits)?;
    let report = storage.volume.check(SHOWN_MAX, &Arc::default()).map_err(fail)?;
    let mut findings: Vec<String> = report.shown.into_iter().map(|finding| finding.what).collect();
    if bytes {
        let scrubbed = storage.volume.scrub(SHOWN_MAX, |_| ControlFlow::Continue(())).map_err(fail)?;
        findings.extend(scrubbed.shown.into_iter().map(|damaged| format!("{}: {}", damaged.what, damaged.error)));
    }
    let missing = missing_keys(&storage)?;
    storage.close()?;
    Ok(json!({
        "missing_keys": missing,
        "buckets": report.buckets,
        "files": report.files,
        "bytes": report.bytes,
        "findings": findings,
    }))
}

/// Key files that the volume was used with and that its directory lacks.
pub(crate) fn missing_keys(storage: &Storage) -> Result<Vec<&'static str>, Failure> {
    let mut missing = Vec::new();
    for of in KEY_FILES {
        let fail = |error: &dyn std::fmt::Display| Failure::failed(format!("looking for key files failed: {error}"));
        let known = storage.volume.key_fingerprints(of).map_err(|error| fail(&error))?;
        let path = storage.path().join(key_files::name(of));
        if known.fingerprints.is_some() && !storage.env.disk.exists(&path).map_err(|error| fail(&error))? {
            missing.push(key_files::name(of));
        }
    }
    Ok(missing)
}

/// Advice about missing key files, for people.
pub fn advice(done: &Value, data: &Path) -> Option<String> {
    let missing: Vec<&str> = done["missing_keys"].as_array()?.iter().filter_map(Value::as_str).collect();
    (!missing.is_empty()).then(|| {
        let (names, data) = (missing.join(", "), data.display());
        format!(
            "before {data} is served put its key files there: {names} ({} may also come from MARGAY_ACCESS_KEY and \
             MARGAY_SECRET_KEY). Without them: margay secrets forget --help",
            key_files::name(KeyFile::Root),
        )
    })
}

fn fill(
    dir: &DataDir,
    backup: &Opened,
    moment: &str,
    part: Option<&Part>,
    limits: &StorageLimits,
) -> Result<u64, String> {
    let env = &dir.env;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (source, backup) = (&backup.env, backup.path.as_path());
    let keys = backup.join(KEYS);
    if source.disk.exists(&keys).map_err(|error| text(&error))? {
        copy_keys(source, &keys, env, &dir.path).map_err(|error| text(&error))?;
    }
    let mut ends = match part {
        Some(part) => part.segments().clone(),
        None => named_segments(source, backup, moment).map_err(|error| text(&error))?,
    };
    let (from, to) = (segments_of(backup), dir.segments());
    env.disk.create_dir_all(&to).map_err(|error| text(&error))?;
    let mut largest = SegmentId(0);
    for entry in source.disk.list(&from).map_err(|error| text(&error))? {
        let Some((segment, _)) = segment_of_name(&entry.name) else { continue };
        // The folder is a first store, whatever stores there were: only its own numbers are given again.
        if segment.made_by() == StoreNumber(0) {
            largest = largest.max(segment);
        }
        if ends.remove(&segment).is_some() {
            copy_file(source, &from.join(&entry.name), env, &to.join(&entry.name)).map_err(|error| text(&error))?;
        }
    }
    if let Some(missing) = ends.keys().next() {
        return Err(format!("the backup lacks the copy of segment {missing:?}; try another moment"));
    }
    begin_ids_above(env, &to, largest).map_err(|error| text(&error))?;
    let engine = new_engine(dir, limits)?;
    let rows = match part {
        Some(part) => part.restore(source, backup, moment, &engine, |_| ()),
        None => restore_rows(source, backup, moment, &engine, |_| ()),
    };
    let rows = rows.map_err(|error| text(&error))?;
    engine.checkpoint().map_err(|error| text(&error))?;
    Ok(rows)
}

/// Reserves the ids up to this one, so that new segments get higher ones.
pub fn begin_ids_above(env: &Env, segments: &Path, largest: SegmentId) -> std::io::Result<()> {
    env.disk.open(&segments.join(mark_name(SegmentId(largest.0 + 1))), OpenMode::OpenOrCreate)?.sync_data()?;
    env.disk.sync_dir(segments)
}

/// An empty engine in a directory with existing segments; its own logs get higher ids.
pub fn new_engine(dir: &DataDir, limits: &StorageLimits) -> Result<EmbeddedEngine, String> {
    let segments = Store::open(dir.env.clone(), segment_options(dir, limits)).map_err(|error| error.to_string())?;
    let mut options = engine_options(dir, limits);
    options.first_log_min = segments.next_id().0;
    EmbeddedEngine::open(dir.env.clone(), segments, options).map_err(|error| error.to_string())
}

fn copy_file(source: &Env, from: &Path, target: &Env, to: &Path) -> std::io::Result<()> {
    let (from, to) = (source.disk.open(from, OpenMode::Read)?, target.disk.open(to, OpenMode::CreateNew)?);
    let (len, mut at, mut buffer) = (from.len()?, 0, Vec::new());
    while at < len {
        buffer.resize(COPY_BYTES.min(len - at) as usize, 0);
        from.read_exact_at(&mut buffer, at)?;
        to.write_all_at(&buffer, at)?;
        at += buffer.len() as u64;
    }
    to.sync_data()
}
