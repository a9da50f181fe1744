//! What a batch changes of files and directories.
//!
//! Invariants: C1 a file that a batch removes under one name and makes under another one has moved; one that it only
//!                removes is gone.
//!             C2 headers and extended attributes that are rows change with the entry's change time, so that tells of them.
//! Not here:   what becomes of it (files).

use std::collections::HashMap;
use std::ops::ControlFlow;

use margay_env::Timestamp;
use margay_meta::{Batch, Engine, EngineError, Write};
use margay_rows::record::{DirectoryEntry, Entry, FileEntry};
use margay_rows::{Ino, key};
use margay_volume::ETag;
use md5::{Digest, Md5};

use super::rows::{damaged, visit_rows};
use crate::xattrs;

/// A directory, and a sort name in it.
pub(crate) type Name = (Ino, String);

/// A file or directory that a batch changes.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) ino: Ino,
    /// Where it is here; `None`: it is gone.
    pub(crate) place: Option<Name>,
    /// Where it should be in the bucket; `None`: nowhere.
    pub(crate) name: Option<Name>,
    /// Its content and its attributes.
    pub(crate) state: Option<State>,
    pub(crate) is_directory: bool,
    pub(crate) moved: bool,
    pub(crate) is_new: bool,
}

/// Numbers that differ after each change of the content, and of the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) content: u64,
    pub(crate) attributes: u64,
    pub(crate) size: u64,
}

/// The content of each marker.
pub(crate) const MARKER: u64 = 1;

fn number(digest: Md5) -> u64 {
    let digest = digest.finalize();
    u64::from_be_bytes(std::array::from_fn(|index| digest[index]))
}

pub(crate) fn content_of(etag: &ETag, size: u64) -> u64 {
    let mut digest = Md5::new();
    digest.update(etag.digest);
    digest.update(etag.parts.to_be_bytes());
    digest.update(size.to_be_bytes());
    number(digest)
}

impl State {
    pub(crate) fn of_file(file: &FileEntry) -> State {
        let mut digest = Md5::new();
        digest.update(format!("{:o} {} {} {} {}", file.mode, file.uid, file.gid, file.modified.0, file.device));
        let headers = file.headers.iter().filter(|(name, _)| !name.starts_with("x-amz-checksum-"));
        for (name, value) in headers.filter(|_| !file.header_rows) {
            digest.update(format!("\n{name}: {value}"));
        }
        if file.xattrs || file.header_rows {
            // It is raised with each change of a row.
            digest.update(format!("\n{}", file.changed.0));
        }
        State { content: content_of(&file.etag, file.size), attributes: number(digest), size: file.size }
    }

    pub(crate) fn of_directory(entry: &DirectoryEntry) -> State {
        // `changed` is raised when its times or extended attributes are set, and not by what changes in it.
        let changed = entry.changed.map_or(0, |changed| changed.0);
        let digest = Md5::new_with_prefix(format!("{:o} {} {} {changed}", entry.mode, entry.uid, entry.gid));
        State { content: MARKER, attributes: number(digest), size: 0 }
    }
}

impl Changed {
    /// The file or directory under a name; `None` for a name that no bucket has (a hard link).
    pub(crate) fn at((directory, name): (Ino, &str), entry: &Entry) -> Option<Changed> {
        let name = || (directory, name.to_owned());
        Some(match entry {
            Entry::File(file) => Changed {
                ino: file.ino,
                place: Some(name()),
                name: Some(name()),
                state: Some(State::of_file(file)),
                is_directory: false,
                moved: false,
                is_new: false,
            },
            // An implicit one is there as long as there is something in it.
            Entry::Directory(entry) => Changed {
                ino: entry.ino,
                place: Some(name()),
                name: entry.explicit.then(name),
                state: entry.explicit.then(|| State::of_directory(entry)),
                is_directory: true,
                moved: false,
                is_new: false,
            },
            Entry::Link(_) => return None,
        })
    }
}

pub(crate) fn entry_at(engine: &dyn Engine, entry_key: &[u8]) -> Result<Option<Entry>, EngineError> {
    let row = engine.get(entry_key)?.value;
    row.map(|row| Entry::decode(&row.value)).transpose().map_err(damaged)
}

/// When a directory, or what is in it, was changed last.
pub(crate) fn time_of(engine: &dyn Engine, directory: Ino) -> Result<Timestamp, EngineError> {
    let row = engine.get(&key::times(directory))?.value;
    let time = row.and_then(|row| Some(u64::from_le_bytes(row.value.as_ref().try_into().ok()?)));
    Ok(Timestamp(time.and_then(|time| i64::try_from(time).ok()).unwrap_or_default()))
}

/// Numbers of the directories in a directory, as far as they are here.
pub(crate) fn directories_in(engine: &dyn Engine, directory: Ino) -> Result<Vec<Ino>, EngineError> {
    let mut found = Vec::new();
    visit_entries(engine, directory, &mut |changed| {
        if changed.is_directory {
            found.push(changed.ino);
        }
    })?;
    Ok(found)
}

/// Whether nothing is in a directory, as far as it is here, but its own object.
pub(super) fn is_empty(engine: &dyn Engine, directory: Ino) -> Result<bool, EngineError> {
    let ((start, end), own, mut is_empty) = (key::entries(directory), key::entry(directory, b""), true);
    engine.scan(&start, &end, &mut |row| {
        is_empty = row.key == own;
        if is_empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(is_empty)
}

/// Everything in a directory, as far as it is here.
pub(crate) fn visit_entries(
    engine: &dyn Engine,
    directory: Ino,
    visit: &mut dyn FnMut(Changed),
) -> Result<(), EngineError> {
    visit_rows(engine, &key::entries(directory), |key, value| {
        let changed = Changed::at(key::parse_entry(key)?, &Entry::decode(value)?);
        changed.into_iter().for_each(&mut *visit);
        Ok(())
    })
}

/// What the batch changes, if it is committed now, of the entries that `is_entry` tells.
pub(crate) fn changes_of(
    engine: &dyn Engine,
    batch: &Batch,
    is_entry: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<Changed>, EngineError> {
    let (mut before, mut after) = (HashMap::new(), HashMap::new());
    for write in batch.writes.iter().filter(|write| is_entry(write.key())) {
        let (directory, name) = key::parse_entry(write.key()).map_err(damaged)?;
        let old_entry = entry_at(engine, write.key())?;
        if let Some(old) = old_entry.as_ref().and_then(|entry| Changed::at((directory, name), entry)) {
            before.insert(old.ino, ((directory, name.to_owned()), old));
        }
        if let Write::Put { value, .. } = write {
            let entry = Entry::decode(value).map_err(damaged)?;
            xattrs::check(engine, batch, old_entry.as_ref(), &entry)?;
            if let Some(new) = Changed::at((directory, name), &entry) {
                after.insert(new.ino, ((directory, name.to_owned()), new));
            }
        }
    }
    let gone = before.iter().filter(|(ino, _)| !after.contains_key(ino));
    let gone = gone.map(|(ino, (_, old))| Changed {
        ino: *ino,
        place: None,
        name: None,
        state: None,
        is_directory: old.is_directory,
        moved: false,
        is_new: false,
    });
    let mut changed: Vec<Changed> = gone.collect();
    for (ino, (name, mut new)) in after {
        let old = before.get(&ino);
        new.is_new = old.is_none();
        new.moved = old.is_some_and(|(old, _)| *old != name);
        // Reclaim moves bytes, a read raises a time: the bucket has neither.
        let is_same = old.is_some_and(|(_, old)| (&old.name, old.state) == (&new.name, new.state));
        if new.moved || !is_same {
            changed.push(new);
        }
    }
    changed.sort_unstable_by_key(|one| one.ino);
    Ok(changed)
}
