//! Epochs: what was changed until a sync goes to the bucket before what is changed later.
//!
//! Why:        with `fsync=local` a sync returns before the bucket has anything. A program that syncs its journal before its
//!             database must find the same order in the bucket, whenever this machine burns.
//! Invariants: E1 an epoch ends with the last change before a sync returns. Syncs that were in progress together end one.
//!             E2 before a file of an epoch that has ended is changed, what it holds is kept, with its metadata, if the bucket has
//!                not got that: all changes of one state are of one epoch.
//!             E3 the row of an epoch's end is written after the changes before it and need not be synced: if it is lost, so is
//!                all that was changed later, and a process ends an epoch when it begins.
//!             E4 what the bucket refuses does not hold up later epochs, and neither does a removed file that somebody reads.
//! Locking:    the table of files. Keeping is done under it, on the thread that changes the file.
//! Not here:   rows (ends), which request may start (plan), bytes that are kept (margay-volume).

use std::io;
use std::ops::ControlFlow;

use margay_meta::{Engine, EngineError, Write};
use margay_rows::record::{Entry, FileEntry, UpstreamKept};
use margay_rows::{Ino, key};
use margay_volume::{Error, NamedFile, Volume};

use super::changes::{Changed, State, entry_at, time_of};
use super::ends::{kept_name, read_kept};
use super::{Files, Tracked, commit, entering};
use crate::{attributes, xattrs};

/// The bucket of the volume that has the bytes of kept states.
pub(crate) const KEPT: &str = "kept";
/// Epochs that wait for the bucket. With so many a sync waits.
pub(crate) const EPOCHS_MAX: usize = 1000;
/// ENOSPC of Linux.
const NO_SPACE: i32 = 28;

impl Files {
    /// The last change of the oldest epoch of which something is left; `None`: none has ended.
    pub(crate) fn epoch_end(&self) -> Option<u64> {
        self.epochs.0.range(self.table.first_in_epochs()?..).next().copied()
    }

    /// Ends an epoch with the last change, unless one has ended since the change that the caller has synced.
    pub(crate) fn end_epoch(&mut self, engine: &dyn Engine, synced: u64) -> Result<(), EngineError> {
        if self.epochs.has_ended(synced) || self.table.first_lacking().is_none() {
            return Ok(());
        }
        commit(engine, vec![Write::Put { key: key::upstream_epoch(self.sequence), value: vec![1] }])?;
        self.epochs.0.insert(self.sequence);
        Ok(())
    }

    /// Forgets epochs of which nothing is left.
    pub(crate) fn forget_epochs(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        let done = match self.table.first_in_epochs() {
            Some(first) => self.epochs.0.range(..first).copied().collect(),
            None => std::mem::take(&mut self.epochs.0),
        };
        if done.is_empty() {
            return Ok(());
        }
        self.epochs.0.retain(|last| !done.contains(last));
        commit(engine, done.into_iter().map(|last| Write::Delete { key: key::upstream_epoch(last) }).collect())
    }

    /// Files of these that are of an epoch that has ended, and that the bucket does not have so.
    pub(super) fn unkept(&mut self, engine: &dyn Engine, changed: &[Changed]) -> Result<Vec<Ino>, EngineError> {
        if self.epochs.0.is_empty() {
            return Ok(Vec::new());
        }
        let mut inos: Vec<Ino> = changed.iter().map(|one| one.ino).collect();
        for directory in changed.iter().filter(|one| one.is_directory && one.moved) {
            if let Some(path) = self.paths.of(engine, directory.ino)? {
                inos.extend(self.table.with_keys_below(&path).map(|(_, ino)| ino));
            }
        }
        inos.sort_unstable();
        inos.dedup();
        inos.retain(|ino| self.must_keep(*ino));
        Ok(inos)
    }

    fn must_keep(&self, ino: Ino) -> bool {
        let Some(file) = self.table.get(ino).filter(|file| self.epochs.has_ended(file.dirty.changed)) else {
            return false;
        };
        match file.kept.last() {
            Some(last) => last.changed != file.dirty.changed && file.dirty.name.is_some(),
            // What is in progress may take from the bucket what it has now.
            None => file.key.is_some() && file.state.is_some() && (file.in_progress || !file.has_now()),
        }
    }

    /// What a file holds now, as it is to be sent; `None`: it has no name, or its directory is not here.
    fn state_to_keep(&mut self, engine: &dyn Engine, ino: Ino) -> Result<Option<UpstreamKept>, EngineError> {
        self.find_key(engine, ino)?;
        let Some(file) = self.table.get(ino) else { return Ok(None) };
        let (Some((directory, name)), Some(key), Some(state)) = (&file.dirty.name, &file.key, file.state) else {
            return Ok(None);
        };
        let Some(entry) = entry_at(engine, &key::entry(*directory, name.as_bytes()))? else { return Ok(None) };
        let metadata = match xattrs::whole(engine, None, &entry)? {
            (Entry::File(file), xattrs) => attributes::of_file(&file, &xattrs, ""),
            (Entry::Directory(entry), xattrs) => {
                attributes::of_directory(&entry, time_of(engine, entry.ino)?, &xattrs, "")
            }
            (Entry::Link(_), _) => return Ok(None),
        };
        let before = file.kept.last().map(|last| last.content);
        let before = before.or(file.object.as_ref().map(|object| object.content));
        let headers = metadata.into_iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()));
        Ok(Some(UpstreamKept {
            key: key.clone(),
            since: file.dirty.since,
            changed: file.dirty.changed,
            size: state.size,
            content: state.content,
            attributes: state.attributes,
            has_bytes: before != Some(state.content) && !key.ends_with('/'),
            headers: headers.collect(),
        }))
    }
}

impl Tracked {
    /// Lets the bytes of kept states go that no row names: their process ended before it did.
    pub(crate) fn tidy_kept(&self, volume: &Volume) -> Result<(), EngineError> {
        let (files, mut lost) = (self.files.lock(), Vec::new());
        let is_known = |ino: Ino, changed: u64| {
            let kept = files.table.get(ino).map_or(&[][..], |file| &file.kept);
            kept.iter().any(|one| one.changed == changed)
        };
        for (ino, kept) in read_kept(&*self.below)? {
            let lost_rows = kept.iter().filter(|one| !is_known(ino, one.changed));
            lost.extend(lost_rows.map(|one| Write::Delete { key: key::upstream_kept(ino, one.changed) }));
        }
        if !lost.is_empty() {
            commit(&*self.below, lost)?;
        }
        let Some((directory, _)) = self.kept.get() else { return Ok(()) };
        let ((start, end), mut names) = (key::entries(*directory), Vec::new());
        self.below.scan(&start, &end, &mut |row| {
            names.extend(key::parse_entry(row.key).ok().map(|(_, name)| name.to_owned()));
            ControlFlow::Continue(())
        })?;
        for name in names {
            let numbers =
                name.split_once('-').and_then(|(ino, changed)| Some((ino.parse().ok()?, changed.parse().ok()?)));
            if !numbers.is_some_and(|(ino, changed)| is_known(Ino(ino), changed)) {
                let gone = entering(|| volume.let_go(KEPT, &name, &[]));
                gone.map_err(|error| EngineError::Io(io::Error::other(error)))?;
            }
        }
        Ok(())
    }

    /// Keeps what a file holds (E2).
    pub(super) fn keep(&self, files: &mut Files, ino: Ino) -> Result<(), EngineError> {
        let Some(kept) = files.state_to_keep(&*self.below, ino)? else { return Ok(()) };
        let Some((directory, sort_name)) = files.table.get(ino).and_then(|file| file.dirty.name.clone()) else {
            return Ok(());
        };
        let row = key::upstream_kept(ino, kept.changed);
        let is_done = if kept.has_bytes {
            let volume = self.volume.get().and_then(std::sync::Weak::upgrade);
            let volume = volume.ok_or_else(|| EngineError::Unavailable("the volume has ended".to_owned()))?;
            let named = NamedFile { directory, sort_name: &sort_name, ino };
            let is_state = |file: &FileEntry| {
                let state = State::of_file(file);
                (state.content, state.attributes) == (kept.content, kept.attributes)
            };
            let (name, rows) = (kept_name(ino, &kept), [(row, Some(kept.encode()))]);
            entering(|| volume.keep(named, (KEPT, &name), is_state, &rows)).map_err(|error| match error {
                Error::Full => EngineError::Io(io::Error::from_raw_os_error(NO_SPACE)),
                error => EngineError::Io(io::Error::other(error)),
            })?
        } else {
            commit(&*self.below, vec![Write::Put { key: row, value: kept.encode() }])?;
            true
        };
        if is_done {
            files.table.edit(ino, |file| file.kept.push(kept));
        } else {
            tracing::warn!(
                key = kept.key,
                "what was synced could not be kept: a later state of it is sent in its place"
            );
        }
        Ok(())
    }
}
