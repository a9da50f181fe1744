//! The files and directories of which the bucket does not have the local state.
//!
//! Invariants: D1 memory has what the rows say, between two calls.
//!             D2 a file that the bucket never had and that is gone is forgotten. While a write of it may have succeeded
//!                (`UpstreamDirty::sent`) it is not: the bucket is asked first.
//!             D3 what is below a moved directory is dirty before anybody plans (`follow_moves`).
//! Locking:    the caller's (tracked).

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;
use margay_meta::{Batch, Engine, EngineError, Write};
use margay_rows::record::{UpstreamDirty, UpstreamKept, UpstreamObject};
use margay_rows::{Ino, key};

use super::changes::{Changed, entry_at, visit_entries};
use super::ends::{Epochs, read_kept};
use super::file::{File, OPEN_SENT_AFTER, SENT_AFTER_MAX};
use super::paths::Paths;
use super::rows::{damaged, visit_rows};
use super::table::Table;

/// A change is sent after this time, unless somebody waits for it: most files change again at once.
const DUE_AFTER: Duration = Duration::from_millis(250);
/// A removal is sent after this time: others that follow go with it.
const REMOVED_AFTER: Duration = Duration::from_secs(1);
/// A listing that began this long after a write shows it.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Keys of writes that are kept for listings in progress.
const RECENT_MAX: usize = 100_000;
/// The longest key of S3, in bytes.
const KEY_BYTES_MAX: usize = 1024;
/// ENAMETOOLONG of Linux.
const NAME_TOO_LONG: i32 = 36;
/// EPERM of Linux.
const NOT_PERMITTED: i32 = 1;
/// Rows of one batch.
const ROWS_PER_BATCH: usize = 1000;

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) table: Table,
    pub(crate) paths: Paths,
    pub(crate) epochs: Epochs,
    /// The last change.
    pub(crate) sequence: u64,
    /// Keys that this process has just written or removed, with the time.
    recent: VecDeque<(Duration, String)>,
    clock: Arc<dyn Clock>,
}

pub(crate) fn object_row(engine: &dyn Engine, ino: Ino) -> Result<Option<UpstreamObject>, EngineError> {
    let row = engine.get(&key::upstream_object(ino))?.value;
    row.map(|row| UpstreamObject::decode(&row.value)).transpose().map_err(damaged)
}

/// The rows of an object that a file has no more.
pub(crate) fn rows_of_object(ino: Ino, object: &UpstreamObject) -> impl Iterator<Item = Vec<u8>> + use<> {
    let bytes = (object.number != 0).then(|| key::upstream_bytes(object.number));
    std::iter::once(key::upstream_object(ino)).chain(bytes)
}

/// As `rows_of_object`, as their removal.
pub(crate) fn object_gone(ino: Ino, object: &UpstreamObject) -> impl Iterator<Item = Write> + use<> {
    rows_of_object(ino, object).map(|key| Write::Delete { key })
}

impl Files {
    /// Reads what is dirty.
    pub(crate) fn read(engine: &dyn Engine, paths: Paths, clock: Arc<dyn Clock>) -> Result<Files, EngineError> {
        let mut rows = Vec::new();
        visit_rows(engine, &key::all_upstream_dirty(), |key, value| {
            rows.push((key::parse_upstream(key)?, UpstreamDirty::decode(value)?));
            Ok(())
        })?;
        let epochs = Epochs::read(engine)?;
        let (sequence, mut kept) = (epochs.last().unwrap_or_default(), read_kept(engine)?);
        let mut files = Files { table: Table::default(), paths, epochs, sequence, recent: VecDeque::new(), clock };
        for (ino, dirty) in rows {
            files.sequence = files.sequence.max(dirty.changed);
            files.put_row(engine, ino, dirty, kept.remove(&ino).unwrap_or_default())?;
        }
        Ok(files)
    }

    fn put_row(
        &mut self,
        engine: &dyn Engine,
        ino: Ino,
        dirty: UpstreamDirty,
        kept: Vec<UpstreamKept>,
    ) -> Result<(), EngineError> {
        let mut file = File { kept, ..File::new(object_row(engine, ino)?, dirty, self.clock.monotonic()) };
        if let Some((directory, name)) = &file.dirty.name {
            let entry = entry_at(engine, &key::entry(*directory, name.as_bytes()))?;
            let found = entry.and_then(|entry| Changed::at((*directory, name), &entry));
            let found = found.filter(|found| found.ino == ino);
            let Some(found) = found else {
                return Err(EngineError::Corrupt(format!("file {} is not where its dirty row says", ino.0)));
            };
            file.state = found.state;
        }
        self.table.put(ino, file);
        Ok(())
    }

    /// A file that was entered together with its dirty row.
    pub(crate) fn begin(&mut self, engine: &dyn Engine, ino: Ino, dirty: UpstreamDirty) -> Result<(), EngineError> {
        self.put_row(engine, ino, dirty, Vec::new())?;
        self.find_key(engine, ino)
    }

    /// A process that ended may have sent any of them under their names, and made any of their removals.
    pub(crate) fn suspect(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        let mut writes = Vec::new();
        for ino in self.table.inos() {
            self.find_key(engine, ino)?;
            let suspected = self.table.edit(ino, |file| {
                file.removal_may_be_done = file.dirty.name.is_none() || !file.dirty.leftovers.is_empty();
                if file.dirty.sent.is_some() {
                    return None;
                }
                // No store has an object under a longer key.
                let key = file.next().map(|next| next.key).filter(|key| key.len() <= KEY_BYTES_MAX);
                file.dirty.sent = Some(key?.to_owned());
                Some(dirty_write(ino, file))
            });
            writes.extend(suspected.flatten());
        }
        writes.chunks(ROWS_PER_BATCH).try_for_each(|some| commit(engine, some.to_vec()))
    }

    /// None is known any more.
    pub(super) fn forget_keys(&mut self) {
        for ino in self.table.inos() {
            self.table.edit(ino, |file| file.key = None);
        }
    }

    /// Sets the key of a name whose directory was not there before.
    pub(crate) fn find_key(&mut self, engine: &dyn Engine, ino: Ino) -> Result<(), EngineError> {
        let Some(file) = self.table.get(ino).filter(|file| file.key.is_none()) else { return Ok(()) };
        if let Some((directory, name)) = &file.dirty.name
            && let Some(key) = self.paths.key(engine, (*directory, name))?
        {
            self.table.edit(ino, |file| file.key = Some(key));
        }
        Ok(())
    }

    /// Adds files below a directory that moves, of which a write to the old key may succeed: after a crash nothing else would
    /// tell of that key.
    pub(super) fn note_sent_below(
        &mut self,
        engine: &dyn Engine,
        directory: Ino,
        noted: &mut Vec<(Ino, File)>,
    ) -> Result<(), EngineError> {
        let Some(path) = self.paths.of(engine, directory)? else { return Ok(()) };
        for (key, ino) in self.table.with_keys_below(&path) {
            let sending = self.table.get(ino).filter(|file| file.sending.as_deref() == Some(key));
            if let Some(file) = sending.filter(|_| noted.iter().all(|(other, _)| *other != ino)) {
                let mut file = file.clone();
                file.dirty.sent = Some(key.to_owned());
                noted.push((ino, file));
            }
        }
        Ok(())
    }

    /// Whether the bucket lacks something that was changed up to this number, and why it refuses one of them.
    pub(crate) fn lacks(&self, sequence: u64) -> (bool, Option<String>) {
        let lacks = self.table.first_lacking().is_some_and(|first| first <= sequence);
        (lacks, self.table.refused(sequence).and_then(|one| one.failure.clone()))
    }

    /// As `lacks`, of one file: what is left under its old names does not count.
    pub(crate) fn lacks_of(&self, ino: Ino, sequence: u64) -> (bool, Option<String>) {
        let lacking = self.table.get(ino).filter(|file| file.lacks_until(sequence));
        let refused = lacking.filter(|file| file.is_refused).and_then(|file| file.failure.clone());
        (lacking.is_some(), refused)
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// This process has written or removed the object of this key, and that was answered then. Who counts it as later takes what
    /// others put there since for what was there before.
    pub(crate) fn note_recent(&mut self, key: &str, answered: Duration) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        let behind = self.recent.partition_point(|(at, _)| *at <= answered);
        self.recent.insert(behind, (answered, key.to_owned()));
    }

    /// Keys with this beginning of which a listing that began then may not show what the rows say: they are dirty, or were
    /// written since.
    pub(crate) fn touched(&self, beginning: &str, began: Duration) -> BTreeSet<String> {
        let since = began.saturating_sub(SHOWN_AFTER);
        let recent = self.recent.iter().rev().take_while(|(at, _)| *at >= since).map(|(_, key)| key.as_str());
        let mut touched: BTreeSet<String> =
            recent.filter(|key| key.starts_with(beginning)).map(str::to_owned).collect();
        touched.extend(self.table.with_keys_below(beginning).map(|(key, _)| key.to_owned()));
        touched
    }

    /// Somebody waits for one file, or for all.
    pub(crate) fn send_now(&mut self, file: Option<Ino>) {
        for ino in file.map_or_else(|| self.table.inos(), |ino| vec![ino]) {
            self.table.edit(ino, |one| (one.now, one.is_read) = (true, false));
        }
    }

    /// Somebody waits for this one; what was refused is tried again.
    pub(crate) fn send_again(&mut self, ino: Ino) {
        let now = self.now();
        self.table.edit(ino, |one| {
            if one.failure.is_some() {
                (one.is_refused, one.failure, one.tries, one.due_at) = (false, None, 0, now);
            }
            (one.now, one.is_read) = (true, false);
        });
    }

    /// What becomes of changed files when the batch is committed. Names with keys that are too long for every store are refused,
    /// those of temporary objects, since who sends removes what it finds there, and files with the key of their directory.
    pub(super) fn note(&mut self, engine: &dyn Engine, changed: &[Changed]) -> Result<Vec<(Ino, File)>, EngineError> {
        if changed.iter().any(|one| one.name.as_ref().is_some_and(|(_, name)| name.is_empty())) {
            return Err(refused(NOT_PERMITTED));
        }
        self.sequence += 1;
        let noted = self.note_at(engine, changed, self.sequence)?;
        for key in noted.iter().filter_map(|(_, file)| file.key.as_deref()) {
            if key.len() > KEY_BYTES_MAX {
                return Err(refused(NAME_TOO_LONG));
            }
            if self.paths.is_temporary(key) {
                return Err(refused(NOT_PERMITTED));
            }
        }
        Ok(noted)
    }

    /// Refuses the move of a directory by which a key below it becomes too long, or a temporary one: it would never be sent.
    pub(super) fn check_moved(&mut self, engine: &dyn Engine, moved: &Changed) -> Result<(), EngineError> {
        let Some((directory, name)) = &moved.place else { return Ok(()) };
        let Some(path) = self.paths.key(engine, (*directory, name))? else { return Ok(()) };
        if self.paths.is_temporary(&path) {
            return Err(refused(NOT_PERMITTED));
        }
        if self.paths.of(engine, moved.ino)?.is_some_and(|before| path.len() <= before.len()) {
            return Ok(());
        }
        let (mut open, mut longest) = (vec![(moved.ino, path.len())], path.len());
        while longest <= KEY_BYTES_MAX
            && let Some((directory, len)) = open.pop()
        {
            visit_entries(engine, directory, &mut |below| {
                let len = len + below.place.map_or(0, |(_, name)| name.len());
                longest = longest.max(len);
                open.extend(below.is_directory.then_some((below.ino, len)));
            })?;
        }
        if longest > KEY_BYTES_MAX { Err(refused(NAME_TOO_LONG)) } else { Ok(()) }
    }

    fn note_at(
        &mut self,
        engine: &dyn Engine,
        changed: &[Changed],
        sequence: u64,
    ) -> Result<Vec<(Ino, File)>, EngineError> {
        let now = self.now();
        let mut noted = Vec::with_capacity(changed.len());
        for one in changed {
            let due_at = now + if one.name.is_some() { DUE_AFTER } else { REMOVED_AFTER };
            let mut file = match self.table.get(one.ino) {
                Some(file) => file.clone(),
                None => {
                    let dirty = UpstreamDirty { since: sequence, ..UpstreamDirty::default() };
                    File::new(object_row(engine, one.ino)?, dirty, now)
                }
            };
            if self.epochs.has_ended(file.dirty.changed) {
                // What it held then is kept, or is in the bucket (E2).
                file.dirty.since = sequence;
            }
            if file.in_progress {
                file.since_sent.get_or_insert(sequence);
            }
            if file.sending.is_some() {
                file.dirty.sent.clone_from(&file.sending);
            }
            file.key = match &one.name {
                Some((directory, name)) => self.paths.key(engine, (*directory, name))?,
                None => None,
            };
            (file.dirty.name, file.state) = (one.name.clone(), one.state);
            file.dirty.moved |= one.is_directory && one.moved;
            (file.dirty.changed, file.changed_at) = (sequence, now);
            file.due_at = due_at.min(file.lacks_since + SENT_AFTER_MAX);
            (file.tries, file.failure, file.is_refused) = (0, None, false);
            noted.push((one.ino, file));
        }
        Ok(noted)
    }

    /// They are committed.
    pub(super) fn take(&mut self, engine: &dyn Engine, noted: Vec<(Ino, File)>) -> Result<(), EngineError> {
        for (ino, file) in noted {
            if file.is_nothing() {
                self.table.remove(ino);
            } else {
                self.table.put(ino, file);
                // Its directory may have come with the same batch.
                self.find_key(engine, ino)?;
            }
        }
        Ok(())
    }

    /// Whether a file should be sent now. One that is open waits longer; one whose bytes are read after its removal is removed
    /// when it is closed.
    pub(crate) fn is_due(&mut self, ino: Ino, now: Duration, is_open: impl Fn(Ino) -> bool) -> bool {
        let Some(file) = self.table.get(ino) else { return false };
        let is_read = file.dirty.name.is_none() && file.is_far() && is_open(ino);
        if is_read {
            self.table.edit(ino, |file| (file.is_read, file.now, file.due_at) = (true, false, now + OPEN_SENT_AFTER));
            return false;
        }
        let wait = (!file.now || file.is_refused) && file.waits_open(now) && is_open(ino);
        if wait || file.is_read || file.is_refused && file.due_at <= now {
            self.table.edit(ino, |file| {
                file.is_read = false;
                if wait {
                    file.due_at = now + DUE_AFTER;
                }
                // It is tried again.
                file.is_refused &= file.due_at > now;
            });
        }
        let file = self.table.get(ino);
        file.is_some_and(|file| file.now && !file.is_refused || file.due_at <= now)
    }

    /// Drops files of which the bucket has the state: they were changed back, or removed while a request for them was in
    /// progress that came to nothing.
    pub(crate) fn drop_clean(&mut self, engine: &dyn Engine, clean: &[Ino]) -> Result<(), EngineError> {
        if clean.is_empty() {
            return Ok(());
        }
        commit(engine, clean.iter().map(|ino| Write::Delete { key: key::upstream_dirty(*ino) }).collect())?;
        clean.iter().for_each(|ino| drop(self.table.remove(*ino)));
        Ok(())
    }

    /// Everything below directories that moved is dirty now (D3).
    pub(super) fn follow_moves(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        for directory in self.table.moved() {
            self.paths.forget();
            let Some(sequence) = self.table.get(directory).map(|file| file.dirty.changed) else { continue };
            let (mut open, mut below) = (vec![directory], Vec::new());
            while let Some(directory) = open.pop() {
                visit_entries(engine, directory, &mut |changed| {
                    open.extend(changed.is_directory.then_some(changed.ino));
                    below.push(changed);
                })?;
            }
            for some in below.chunks(ROWS_PER_BATCH) {
                let noted = self.note_at(engine, some, sequence)?;
                commit(engine, noted.iter().map(|(ino, file)| dirty_write(*ino, file)).collect())?;
                self.take(engine, noted)?;
            }
            let Some(mut file) = self.table.get(directory).cloned() else { continue };
            file.dirty.moved = false;
            commit(engine, vec![dirty_write(directory, &file)])?;
            self.take(engine, vec![(directory, file)])?;
        }
        Ok(())
    }
}

fn refused(errno: i32) -> EngineError {
    EngineError::Io(std::io::Error::from_raw_os_error(errno))
}

/// The write of a dirty row, or its removal.
pub(crate) fn dirty_write(ino: Ino, file: &File) -> Write {
    let key = key::upstream_dirty(ino);
    match file.is_nothing() {
        true => Write::Delete { key },
        false => Write::Put { key, value: file.dirty.encode() },
    }
}

/// Commits rows that nobody else writes.
pub(crate) fn commit(engine: &dyn Engine, writes: Vec<Write>) -> Result<(), EngineError> {
    debug_assert!(
        writes.iter().map(Write::key).collect::<HashSet<_>>().len() == writes.len(),
        "a row is written once, or the engine refuses all"
    );
    let batch = Batch { preconditions: Vec::new(), writes, payload: None };
    match engine.commit(batch) {
        Ok(_) => Ok(()),
        Err(margay_meta::CommitError::Failed(error)) => Err(error),
        Err(error) => Err(EngineError::Io(std::io::Error::other(error.to_string()))),
    }
}
