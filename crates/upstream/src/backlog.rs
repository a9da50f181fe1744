//! What the bucket lacks, and why, for people and programs that wait for it.
//!
//! Invariants: B1 what is told of a cache that nobody has open is what its rows say: the next process goes on from there.
//! Locking:    the table of files, for as long as it is read.
//! Not here:   sending, texts for a terminal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;
use margay_meta::{Engine, EngineError};
use margay_rows::record::Bucket;
use margay_rows::{Ino, key};

use crate::reason::code_of;
use crate::tracked::{File, Files, KEPT, Paths, visit_rows};

/// Failures that are told.
const FAILURES_MAX: usize = 10;
/// Failing files that are looked at for that.
const FAILURES_READ_MAX: usize = 1000;
/// Begins what a conflict adds to a name: the time, such as `20261122T101500Z`, and the host follow.
const CONFLICT: &str = ".conflict-";

/// What the bucket lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub files: u64,
    /// Of files whose content is to be sent.
    pub bytes: u64,
    pub in_progress: u64,
    /// Age of the oldest change, counted from the start of this process at most.
    pub oldest: Option<Duration>,
    /// Keys that the bucket does not take.
    pub failing: u64,
    /// How many of them, or of the first thousand, have which code.
    pub codes: BTreeMap<String, u64>,
    /// Some of them; those that are refused come first.
    pub failures: Vec<Failing>,
    /// Syncs of which something is left; one goes after the other.
    pub epochs: u64,
    /// Names that this process has given to what was changed here and in the bucket.
    pub conflicts: Vec<String>,
}

/// A change that failed, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Empty, if its directory is gone.
    pub key: String,
    pub reason: String,
    /// The bucket answered that it does not take it.
    pub is_refused: bool,
    pub again_after: Duration,
}

pub(crate) fn backlog_of(files: &Files) -> Backlog {
    let (table, now) = (&files.table, files.now());
    let (bytes, in_progress) = table.totals();
    let oldest = table.oldest().map(|file| now.saturating_sub(file.lacks_since));
    let epochs = files.epochs.len() as u64;
    let (files, failing) = (table.len() as u64, table.failing_count());
    let mut backlog = Backlog { files, bytes, in_progress, oldest, failing, epochs, ..Backlog::default() };
    let mut found: Vec<&File> = table.failing().take(FAILURES_READ_MAX).map(|(_, file)| file).collect();
    for reason in found.iter().filter_map(|file| file.failure.as_deref()) {
        *backlog.codes.entry(code_of(reason).to_owned()).or_default() += 1;
    }
    found.sort_by_key(|file| !file.is_refused);
    let failures = found.into_iter().take(FAILURES_MAX).map(|file| Failing {
        key: key_of(file).to_owned(),
        reason: file.failure.clone().unwrap_or_default(),
        is_refused: file.is_refused,
        again_after: file.due_at.saturating_sub(now),
    });
    backlog.failures = failures.collect();
    backlog
}

/// As `backlog_of`, of some files; failures are not told.
pub(crate) fn backlog_below(files: &Files, inos: &[Ino]) -> Backlog {
    let now = files.now();
    let mut backlog = Backlog::default();
    for file in inos.iter().filter_map(|ino| files.table.get(*ino)) {
        backlog.files += 1;
        backlog.bytes += file.bytes_to_send();
        backlog.in_progress += u64::from(file.in_progress);
        backlog.failing += u64::from(file.failure.is_some());
        backlog.oldest = backlog.oldest.max(Some(now.saturating_sub(file.lacks_since)));
    }
    backlog
}

/// The key that a file has, or had.
fn key_of(file: &File) -> &str {
    let old = file.object.as_ref().map(|object| &object.key);
    let old = old.or(file.dirty.leftovers.first().map(|left| &left.key));
    file.key.as_ref().or(old).map_or("", String::as_str)
}

/// `clean`, `dirty N bytes` or `error CODE REASON`; of the top directory, that of everything.
pub(crate) fn state_of(files: &Files, ino: Ino) -> String {
    if ino == files.paths.root() {
        let backlog = backlog_of(files);
        return match backlog.failures.first() {
            Some(failing) => error_text(&failing.reason),
            None if backlog.files == 0 => "clean".to_owned(),
            None => format!("dirty {} bytes", backlog.bytes),
        };
    }
    let Some(file) = files.table.get(ino).filter(|_| files.lacks_of(ino, u64::MAX).0) else {
        return "clean".to_owned();
    };
    match &file.failure {
        Some(reason) => error_text(reason),
        None => format!("dirty {} bytes", file.state.map_or(0, |state| state.size)),
    }
}

fn error_text(reason: &str) -> String {
    format!("error {} {reason}", code_of(reason)).replace(char::is_control, " ")
}

/// What was refused is tried again now: a person says that the cause is gone.
pub(crate) fn forgive(files: &mut Files, file: Option<Ino>) {
    let now = files.now();
    let failed: Vec<Ino> = files.table.failing().map(|(ino, _)| ino).collect();
    for ino in failed.into_iter().filter(|ino| file.is_none_or(|file| file == *ino)) {
        files.table.edit(ino, |one| (one.is_refused, one.failure, one.tries, one.due_at) = (false, None, 0, now));
    }
}

/// What failed without a refusal is due: the bucket answers again.
pub(crate) fn due_now(files: &mut Files) {
    let now = files.now();
    let failed: Vec<Ino> = files.table.failing().filter(|(_, one)| !one.is_refused).map(|(ino, _)| ino).collect();
    for ino in failed {
        files.table.edit(ino, |one| (one.tries, one.due_at) = (0, now));
    }
}

/// A directory, and a name in it.
pub(crate) type ConflictName = (Ino, String);

/// Names that conflicts have made, as far as their directories are here; reads every name.
pub(crate) fn conflict_names(engine: &dyn Engine) -> Result<Vec<ConflictName>, EngineError> {
    let mut names = Vec::new();
    visit_rows(engine, &key::all_entries(), |key, _| {
        let (directory, name) = key::parse_entry(key)?;
        if is_conflict(name) {
            names.push((directory, name.to_owned()));
        }
        Ok(())
    })?;
    Ok(names)
}

/// Their keys in the volume.
pub(crate) fn conflict_keys(
    files: &mut Files,
    engine: &dyn Engine,
    names: &[ConflictName],
) -> Result<Vec<String>, EngineError> {
    let mut keys = Vec::new();
    for (directory, name) in names {
        let key = files.paths.key(engine, (*directory, name))?;
        keys.extend(key.map(|key| files.paths.local(&key).to_owned()));
    }
    keys.sort_unstable();
    Ok(keys)
}

fn is_conflict(name: &str) -> bool {
    let Some(at) = name.rfind(CONFLICT) else { return false };
    let mark = &name.as_bytes()[at + CONFLICT.len()..];
    let form = b"00000000T000000Z-";
    let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    mark.len() > form.len() && mark.iter().zip(form).all(fits)
}

/// Whether a bucket of a cache's volume, by its name, is the one that the far bucket is: the other has kept states.
pub fn is_of_the_bucket(name: &str) -> bool {
    name != KEPT
}

/// What the rows of a cache say that nobody has open, and its conflicts.
pub fn at_rest(engine: &dyn Engine, prefix: &str, clock: Arc<dyn Clock>) -> Result<Backlog, EngineError> {
    let mut root = None;
    visit_rows(engine, &key::buckets(), |key, value| {
        if is_of_the_bucket(key::parse_bucket(key)?) {
            root = Some(Bucket::decode(value)?.root);
        }
        Ok(())
    })?;
    // Of a mount that ended before it began.
    let Some(root) = root else { return Ok(Backlog::default()) };
    let mut files = Files::read(engine, Paths::below(prefix), clock)?;
    files.paths.set_root(root);
    for ino in files.table.inos() {
        files.find_key(engine, ino)?;
    }
    let conflicts = conflict_keys(&mut files, engine, &conflict_names(engine)?)?;
    // When it was changed is not in the rows.
    Ok(Backlog { conflicts, oldest: None, ..backlog_of(&files) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_conflicts_are_known() {
        for name in ["a.txt.conflict-20261122T101500Z-host", "a.conflict-20261122T101500Z-h-2"] {
            assert!(is_conflict(name), "{name}");
        }
        for name in ["a.conflict-", "a.conflict-20261122T101500Z-", "conflict-20261122T101500Z-h", "a.conflict-2026-h"]
        {
            assert!(!is_conflict(name), "{name}");
        }
    }
}
