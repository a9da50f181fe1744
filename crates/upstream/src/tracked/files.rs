//! The files and directories of which the bucket does not have the local state.
//!
//! Invariants: D1 memory has what the rows say, between two calls.
//!             D2 a file that the bucket never had and that is gone is forgotten. While a write of it may have succeeded
//!                (`UpstreamDirty::sent`) it is not: the bucket is asked first.
//!             D3 what is below a moved directory is dirty before anybody plans (`follow_moves`).
//! Locking:    the caller's (tracked).

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;
use margay_meta::{Batch, Engine, EngineError, Write};
use margay_rows::record::{UpstreamDirty, UpstreamLeftover, UpstreamObject};
use margay_rows::{Ino, key};

use super::changes::{Changed, State, damaged, entry_at, visit_entries};
use super::paths::Paths;
use crate::plan;

/// A change is sent after this time, unless somebody waits for it: most files change again at once.
const DUE_AFTER: Duration = Duration::from_millis(250);
/// A removal is sent after this time: others that follow go with it.
const REMOVED_AFTER: Duration = Duration::from_secs(1);
/// A file that is open is sent after this time: it probably changes again.
const OPEN_SENT_AFTER: Duration = Duration::from_secs(5);
/// A file is sent at the latest so long after the first change that the bucket lacks, and longer by its size.
const SENT_AFTER_MAX: Duration = Duration::from_secs(30);
const SENT_AFTER_MAX_BYTES_PER_SECOND: u64 = 8 << 20;
/// A listing that began this long after a write shows it.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Keys of writes that are kept for listings in progress.
const RECENT_MAX: usize = 100_000;
/// The longest key of S3, in bytes.
const KEY_BYTES_MAX: usize = 1024;
/// ENAMETOOLONG of Linux.
const NAME_TOO_LONG: i32 = 36;
/// Rows of one batch.
const ROWS_PER_BATCH: usize = 1000;

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) dirty: UpstreamDirty,
    pub(crate) object: Option<UpstreamObject>,
    pub(crate) state: Option<State>,
    /// The first change since the request in progress was made.
    pub(crate) since_sent: Option<u64>,
    pub(crate) in_progress: bool,
    /// The key that a write in progress makes.
    pub(crate) sending: Option<String>,
    /// Of the last change and of the next request, by the monotonic clock.
    pub(crate) changed_at: Duration,
    /// Of the first change that the bucket lacks.
    pub(crate) lacks_since: Duration,
    pub(crate) due_at: Duration,
    /// Somebody waits for it.
    pub(crate) now: bool,
    pub(crate) tries: u32,
    /// Why the bucket does not take it; it is tried again at `due_at`.
    pub(crate) failure: Option<String>,
    pub(crate) is_refused: bool,
    /// It is removed, and somebody still reads its bytes, which are in the bucket only.
    pub(crate) is_read: bool,
}

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) by_ino: HashMap<Ino, File>,
    pub(crate) paths: Paths,
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

impl File {
    fn new(object: Option<UpstreamObject>, dirty: UpstreamDirty, now: Duration) -> File {
        File {
            dirty,
            object,
            state: None,
            since_sent: None,
            in_progress: false,
            sending: None,
            changed_at: now,
            lacks_since: now,
            due_at: now,
            now: false,
            tries: 0,
            failure: None,
            is_refused: false,
            is_read: false,
        }
    }

    /// Whether it needs no row: it is nowhere, and no write of it may have succeeded (D2).
    pub(crate) fn is_nothing(&self) -> bool {
        let is_nowhere = self.dirty.name.is_none() && self.object.is_none() && self.dirty.leftovers.is_empty();
        is_nowhere && !self.in_progress && !self.dirty.moved && self.dirty.sent.is_none()
    }

    /// Whether all that is left of it is to be removed.
    pub(crate) fn is_removal(&self) -> bool {
        self.dirty.name.is_none() && !self.is_refused && !self.is_read
    }

    /// As the planner sees it; `key` is that of its name.
    pub(crate) fn planned(&self, ino: Ino, key: Option<String>, is_due: bool) -> plan::Dirty {
        let local = key.zip(self.state);
        plan::Dirty {
            file: ino.0,
            base: self.object.as_ref().map(|object| plan::Base {
                key: object.key.clone(),
                etag: object.etag.clone(),
                content: object.content,
                attributes: object.attributes,
            }),
            local: local.map(|(key, state)| plan::Local { key, content: state.content, attributes: state.attributes }),
            leftovers: self.dirty.leftovers.iter().map(leftover).collect(),
            since: self.dirty.since,
            since_sent: self.since_sent,
            changed: self.dirty.changed,
            is_due,
            is_refused: self.is_refused,
        }
    }
}

fn leftover(left: &UpstreamLeftover) -> plan::Leftover {
    plan::Leftover { key: left.key.clone(), etag: left.etag.clone(), since: left.since }
}

impl Files {
    /// Reads what is dirty.
    pub(crate) fn read(engine: &dyn Engine, paths: Paths, clock: Arc<dyn Clock>) -> Result<Files, EngineError> {
        let (mut rows, mut failed) = (Vec::new(), None);
        let (start, end) = key::all_upstream_dirty();
        engine.scan(&start, &end, &mut |row| {
            match key::parse_upstream(row.key).and_then(|ino| Ok((ino, UpstreamDirty::decode(row.value)?))) {
                Ok(read) => rows.push(read),
                Err(error) => failed = Some(damaged(error)),
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let mut files = Files { by_ino: HashMap::new(), paths, sequence: 0, recent: VecDeque::new(), clock };
        for (ino, dirty) in rows {
            files.sequence = files.sequence.max(dirty.changed);
            let mut file = File::new(object_row(engine, ino)?, dirty, files.clock.monotonic());
            if let Some((directory, name)) = &file.dirty.name {
                let entry = entry_at(engine, &key::entry(*directory, name.as_bytes()))?;
                let found = entry.and_then(|entry| Changed::at((*directory, name), &entry));
                let found = found.filter(|found| found.ino == ino);
                let Some(found) = found else {
                    return Err(EngineError::Corrupt(format!("file {} is not where its dirty row says", ino.0)));
                };
                file.state = found.state;
            }
            files.by_ino.insert(ino, file);
        }
        Ok(files)
    }

    /// A process that ended may have sent any of them under their names.
    pub(crate) fn suspect(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        let mut writes = Vec::new();
        for (ino, file) in self.by_ino.iter_mut().filter(|(_, file)| file.dirty.sent.is_none()) {
            if let Some((directory, name)) = &file.dirty.name {
                // No store has an object under a longer key.
                let key = self.paths.key(engine, (*directory, name))?;
                file.dirty.sent = key.filter(|key| key.len() <= KEY_BYTES_MAX);
                writes.push(dirty_write(*ino, file));
            }
        }
        writes.chunks(ROWS_PER_BATCH).try_for_each(|some| commit(engine, some.to_vec()))
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
        for (ino, file) in &self.by_ino {
            let Some(key) = file.sending.as_ref().filter(|key| key.starts_with(&path)) else { continue };
            if noted.iter().all(|(other, _)| other != ino) {
                let mut file = file.clone();
                file.dirty.sent = Some(key.clone());
                noted.push((*ino, file));
            }
        }
        Ok(())
    }

    /// How many files the bucket lacks something of that was changed up to this number, and why it refuses one of them.
    pub(crate) fn lacks(&self, sequence: u64) -> (u64, Option<String>) {
        let lacking = || self.by_ino.values().filter(|one| one.dirty.since <= sequence && !one.is_read);
        let refused = lacking().find(|one| one.is_refused).and_then(|one| one.failure.clone());
        (lacking().count() as u64, refused)
    }

    /// As `lacks`, of one file: what is left under its old names does not count.
    pub(crate) fn lacks_of(&mut self, engine: &dyn Engine, ino: Ino, sequence: u64) -> (u64, Option<String>) {
        let Some(file) = self.by_ino.get(&ino).filter(|file| file.dirty.since <= sequence) else { return (0, None) };
        let Some((directory, name)) = file.dirty.name.clone() else { return (0, None) };
        let is_refused = file.is_refused.then(|| file.failure.clone()).flatten();
        // A name that cannot be read counts as lacking.
        let Ok(key) = self.paths.key(engine, (directory, &name)) else { return (1, is_refused) };
        let lacks = key.is_some() && self.by_ino[&ino].planned(ino, key, false).lacks();
        (u64::from(lacks), is_refused.filter(|_| lacks))
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// This process has written or removed the object of this key.
    pub(crate) fn note_recent(&mut self, key: &str) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((self.now(), key.to_owned()));
    }

    /// Keys with this beginning of which a listing that began then may not show what the rows say: they are dirty, or were
    /// written since.
    pub(crate) fn touched(
        &mut self,
        engine: &dyn Engine,
        beginning: &str,
        began: Duration,
    ) -> Result<BTreeSet<String>, EngineError> {
        let since = began.saturating_sub(SHOWN_AFTER);
        let recent = self.recent.iter().rev().take_while(|(at, _)| *at >= since).map(|(_, key)| key.as_str());
        let mut touched: BTreeSet<String> =
            recent.filter(|key| key.starts_with(beginning)).map(str::to_owned).collect();
        for file in self.by_ino.values() {
            let named = match &file.dirty.name {
                Some((directory, name)) => self.paths.key(engine, (*directory, name))?,
                None => None,
            };
            let object = file.object.as_ref().map(|object| &object.key);
            let keys = [named.as_ref(), object, file.dirty.sent.as_ref(), file.sending.as_ref()].into_iter().flatten();
            let keys = keys.chain(file.dirty.leftovers.iter().map(|left| &left.key));
            touched.extend(keys.filter(|key| key.starts_with(beginning)).cloned());
        }
        Ok(touched)
    }

    /// Refuses names with keys that are too long for every store.
    pub(super) fn check_keys(&mut self, engine: &dyn Engine, changed: &[Changed]) -> Result<(), EngineError> {
        for (directory, name) in changed.iter().filter_map(|one| one.name.as_ref()) {
            let key = self.paths.key(engine, (*directory, name))?;
            if key.is_some_and(|key| key.len() > KEY_BYTES_MAX) {
                return Err(EngineError::Io(std::io::Error::from_raw_os_error(NAME_TOO_LONG)));
            }
        }
        Ok(())
    }

    /// What becomes of changed files when the batch is committed.
    pub(super) fn note(&mut self, engine: &dyn Engine, changed: &[Changed]) -> Result<Vec<(Ino, File)>, EngineError> {
        self.sequence += 1;
        self.note_at(engine, changed, self.sequence)
    }

    fn note_at(
        &self,
        engine: &dyn Engine,
        changed: &[Changed],
        sequence: u64,
    ) -> Result<Vec<(Ino, File)>, EngineError> {
        let now = self.now();
        let mut noted = Vec::with_capacity(changed.len());
        for one in changed {
            let due_at = now + if one.name.is_some() { DUE_AFTER } else { REMOVED_AFTER };
            let mut file = match self.by_ino.get(&one.ino) {
                Some(file) => file.clone(),
                None => {
                    let dirty = UpstreamDirty { since: sequence, ..UpstreamDirty::default() };
                    File::new(object_row(engine, one.ino)?, dirty, now)
                }
            };
            if file.in_progress {
                file.since_sent.get_or_insert(sequence);
            }
            if file.sending.is_some() {
                file.dirty.sent.clone_from(&file.sending);
            }
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
    pub(super) fn take(&mut self, noted: Vec<(Ino, File)>) {
        for (ino, file) in noted {
            if file.is_nothing() {
                self.by_ino.remove(&ino);
            } else {
                self.by_ino.insert(ino, file);
            }
        }
    }

    /// Whether a file should be sent now. One that is open waits longer; one whose bytes are read after its removal is removed
    /// when it is closed.
    pub(crate) fn is_due(&mut self, ino: Ino, now: Duration, is_open: impl Fn(Ino) -> bool) -> bool {
        let Some(file) = self.by_ino.get_mut(&ino) else { return false };
        let is_far = file.object.as_ref().is_some_and(|object| object.number != 0);
        file.is_read = file.dirty.name.is_none() && is_far && is_open(ino);
        if file.is_read {
            file.due_at = now + OPEN_SENT_AFTER;
            return false;
        }
        if file.now && !file.is_refused {
            return true;
        }
        let extra = file.state.map_or(0, |state| state.size / SENT_AFTER_MAX_BYTES_PER_SECOND);
        if file.lacks_since + SENT_AFTER_MAX + Duration::from_secs(extra) > now
            && file.due_at <= now
            && file.changed_at + OPEN_SENT_AFTER > now
            && is_open(ino)
        {
            file.due_at = now + DUE_AFTER;
        }
        if file.due_at <= now {
            // It is tried again.
            file.is_refused = false;
        }
        file.due_at <= now
    }

    /// Drops files of which the bucket has the state: they were changed back, or removed while a request for them was in
    /// progress that came to nothing.
    pub(crate) fn drop_clean(&mut self, engine: &dyn Engine, clean: &[Ino]) -> Result<(), EngineError> {
        if clean.is_empty() {
            return Ok(());
        }
        commit(engine, clean.iter().map(|ino| Write::Delete { key: key::upstream_dirty(*ino) }).collect())?;
        clean.iter().for_each(|ino| drop(self.by_ino.remove(ino)));
        Ok(())
    }

    /// Everything below directories that moved is dirty now (D3).
    pub(super) fn follow_moves(&mut self, engine: &dyn Engine) -> Result<(), EngineError> {
        let moved = self.by_ino.iter().filter(|(_, file)| file.dirty.moved);
        let moved: Vec<(Ino, u64)> = moved.map(|(ino, file)| (*ino, file.dirty.changed)).collect();
        for (directory, sequence) in moved {
            self.paths.forget();
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
                self.take(noted);
            }
            let mut file = self.by_ino[&directory].clone();
            file.dirty.moved = false;
            commit(engine, vec![dirty_write(directory, &file)])?;
            self.take(vec![(directory, file)]);
        }
        Ok(())
    }
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
