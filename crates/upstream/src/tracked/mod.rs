//! The engine of a volume with an upstream: rows of a directory are read only when it was listed, and each change is noted.
//!
//! Why:        every operation of both doors reads and writes entries through the engine, so here is one place that none of
//!             them can pass by.
//! Invariants: T1 a row of a directory that was not listed is neither read nor written before it is (`Lister`), except by the
//!                thread that enters the listing.
//!             T2 a batch that makes, replaces, moves or removes an entry also puts the dirty row of each file and directory
//!                concerned; memory has the same after the commit.
//!             T3 a directory moves only when everything below it was listed: its keys are known.
//!             T4 a name whose key no store takes, or is one of temporary objects, is refused at the call, and so is a directory's rename that makes one below it
//!                too long.
//! Locking:    `files` is held over the commit of a batch with entries, so memory and rows agree. Listing is done before it
//!             is taken. Below it only the engine is called.
//! Not here:   listing (list), sending (send), which request is due (plan).

mod absences;
mod ages;
mod changes;
mod ends;
mod epochs;
mod file;
mod files;
mod paths;
mod rows;
mod settled;
mod table;

use self::ages::Ages;
pub(crate) use self::ages::Miss;
pub(crate) use self::changes::{MARKER, State, content_of, entry_at, time_of};
pub(crate) use self::ends::kept_name;
pub(crate) use self::epochs::{EPOCHS_MAX, KEPT};
pub(crate) use self::file::File;
pub(crate) use self::files::{Files, commit, dirty_write, object_gone, object_row, rows_of_object};
pub(crate) use self::paths::Paths;
pub(crate) use self::rows::visit_rows;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use margay_client::upstream::Upstream;
use margay_env::Clock;
use margay_meta::layer::{Asked, Layer};
use margay_meta::unready::{self, Wait};
use margay_meta::{Batch, CommitError, Committed, Engine, EngineError, Precondition, Write};
use margay_rows::record::{Entry, UpstreamObject};
use margay_rows::{Ino, key};
use margay_segment::SegmentError;
use margay_volume::Volume;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use self::changes::{Changed, changes_of, is_empty};
use self::settled::Settled;
use crate::bytes::{FarObject, Objects};
use crate::opens::Ttl;
use crate::refusal::Refusal;
use crate::runtime::is_of_requests;
use crate::silence::is_told;
use crate::told::Told;

/// Lists a directory, so that its rows are there.
pub(crate) trait Lister: Send + Sync + Debug {
    /// Blocks until the directory is listed, by whomever.
    fn list(&self, directory: Ino) -> Result<(), EngineError>;

    /// The bucket.
    fn upstream(&self) -> &Upstream;

    /// As `list`, without a thread of the caller.
    fn begin_list(self: Arc<Self>, directory: Ino) -> Wait;

    /// Compares a directory with the bucket again; blocks for a while at most. Ends with `Ages::ended`.
    fn refresh(self: Arc<Self>, directory: Ino);

    /// As `refresh`, without a thread of the caller.
    fn begin_refresh(self: Arc<Self>, directory: Ino) -> Wait;
}

thread_local! {
    /// This thread enters a listing.
    static ENTERING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `enter` as part of a listing: its rows are read and written as they are, and its changes are not noted.
pub(crate) fn entering<T>(enter: impl FnOnce() -> T) -> T {
    struct Ends(bool);
    impl Drop for Ends {
        fn drop(&mut self) {
            ENTERING.set(self.0);
        }
    }
    let _ends = Ends(ENTERING.replace(true));
    enter()
}

/// The directory of an entry's key.
fn directory_of(key: &[u8]) -> Option<Ino> {
    key::is_entry(key).then(|| key::parse_ino(key).ok()).flatten().map(|(directory, _)| directory)
}

/// That of a range of one directory; a range over many directories is a walk over what is here.
fn directory_of_range(start: &[u8], end: &[u8]) -> Option<Ino> {
    directory_of(start).filter(|directory| end <= key::entries(*directory).1.as_slice())
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) below: Arc<dyn Engine>,
    pub(crate) files: Mutex<Files>,
    /// Directories that were not listed.
    pub(crate) unlisted: RwLock<HashSet<Ino>>,
    /// A file became clean, or refused.
    pub(crate) settled: Settled,
    /// Something may be due.
    pub(crate) wake: Notify,
    /// Answers of the bucket: who waits sees that it lives.
    pub(crate) answers: AtomicU64,
    /// Why nothing is sent any more: a fault of the program.
    pub(crate) broken: OnceLock<String>,
    /// How old the listing of each directory is.
    pub(crate) ages: Ages,
    /// What was said of requests that fail.
    pub(crate) told: Told,
    /// Whether the bucket refuses to be listed.
    pub(crate) refusal: Arc<Refusal>,
    lister: OnceLock<Weak<dyn Lister>>,
    volume: OnceLock<Weak<Volume>>,
    /// The directory of kept bytes, which is not of the bucket's tree, and how the keys of its entries begin.
    kept: OnceLock<(Ino, Vec<u8>)>,
}

impl Tracked {
    /// Reads what is dirty and what is not listed.
    pub(crate) fn open(
        below: Arc<dyn Engine>,
        paths: Paths,
        clock: Arc<dyn Clock>,
        ttl: Ttl,
    ) -> Result<Tracked, EngineError> {
        let mut unlisted = HashSet::new();
        visit_rows(&*below, &key::all_upstream_unlisted(), |key, _| {
            unlisted.insert(key::parse_upstream(key)?);
            Ok(())
        })?;
        let mut files = Files::read(&*below, paths, Arc::clone(&clock))?;
        files.follow_moves(&*below)?;
        Ok(Tracked {
            below,
            files: Mutex::new(files),
            unlisted: RwLock::new(unlisted),
            settled: Settled::default(),
            wake: Notify::new(),
            answers: AtomicU64::new(0),
            broken: OnceLock::new(),
            ages: Ages::new(Arc::clone(&clock), ttl),
            told: Told::default(),
            refusal: Arc::new(Refusal::new(clock)),
            lister: OnceLock::new(),
            volume: OnceLock::new(),
            kept: OnceLock::new(),
        })
    }

    /// Nothing is sent any more; who waits is told.
    pub(crate) fn break_off(&self, why: String) {
        tracing::error!(
            why,
            "sending has ended by a fault of the program: what is written is kept in the cache; unmount and mount again, and \
             report the fault"
        );
        // The first one led to the others.
        let _ = self.broken.set(why);
        self.settled.notify([]);
    }

    /// The directory and the name of an object's key; `None` if the directory is not here.
    pub(crate) fn name_of(&self, object_key: &str) -> Result<Option<(Ino, String)>, EngineError> {
        let (mut directory, local) = {
            let files = self.files.lock();
            (files.paths.root(), files.paths.local(object_key).to_owned())
        };
        let split = local.strip_suffix('/').unwrap_or(&local).rfind('/').map_or(0, |slash| slash + 1);
        let (path, name) = local.split_at(split);
        for part in path.split_inclusive('/') {
            match entry_at(&*self.below, &key::entry(directory, part.as_bytes()))? {
                Some(Entry::Directory(entry)) => directory = entry.ino,
                _ => return Ok(None),
            }
        }
        Ok(Some((directory, name.to_owned())))
    }

    /// The bucket has answered.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// The root of a new volume is listed when its rows are needed.
    pub(crate) fn begin(&self, root: Ino) -> Result<(), EngineError> {
        if self.below.get(&key::upstream_begun())?.value.is_some() {
            return Ok(());
        }
        let put = |key| Write::Put { key, value: vec![1] };
        commit(&*self.below, vec![put(key::upstream_unlisted(root)), put(key::upstream_begun())])?;
        self.unlisted.write().insert(root);
        Ok(())
    }

    pub(crate) fn set_lister(&self, lister: Weak<dyn Lister>) {
        assert!(self.lister.set(lister).is_ok(), "a volume has one lister");
    }

    /// Bytes of kept states go to this directory of the volume.
    pub(crate) fn set_kept(&self, volume: &Arc<Volume>, directory: Ino) {
        let is_first = self.volume.set(Arc::downgrade(volume)).is_ok()
            && self.kept.set((directory, key::entries(directory).0)).is_ok();
        assert!(is_first, "a volume has one directory of kept bytes");
    }

    /// Whether it is an entry of the bucket's tree.
    fn is_entry(&self, key: &[u8]) -> bool {
        key::is_entry(key) && self.kept.get().is_none_or(|(_, beginning)| !key.starts_with(beginning))
    }

    /// Lists the directory, unless it was listed (T1), and not too long ago. What sends uses what is here: with all its threads
    /// waiting for a comparison, nothing would be compared. A thread that must not wait is given what to wait for (`unready`).
    fn gate(&self, directory: Ino) -> Result<(), EngineError> {
        self.listed(directory)?;
        if self.is_free(directory) || is_of_requests() || unready::is_hurried() {
            return Ok(());
        }
        if self.ages.is_old(directory)
            && let Some(lister) = self.lister()
            // It is asked by others (N1 of silence).
            && !is_told(&lister.upstream().meter().contact())
            && self.ages.begin(directory)
        {
            unready::leave(|| Arc::clone(&lister).begin_refresh(directory))?;
            lister.refresh(directory);
        }
        Ok(())
    }

    /// Of a directory that is empty here, a listing that is not too old counts for its removal (G3): with one request each, a
    /// tree that was emptied here would go at one directory a round trip.
    pub(crate) fn will_remove(&self, directory: Ino) {
        // Where something is in it, others may have removed that.
        if self.ages.is_old(directory) && is_empty(&*self.below, directory).unwrap_or(false) {
            self.ages.will_remove(directory);
        }
    }

    /// Lists the directory, unless it was listed, at any time.
    fn listed(&self, directory: Ino) -> Result<(), EngineError> {
        if self.is_free(directory) || !self.unlisted.read().contains(&directory) {
            return Ok(());
        }
        let lister = self.lister();
        let lister = lister.ok_or_else(|| EngineError::Unavailable("the bucket cannot be listed".to_owned()))?;
        unready::leave(|| Arc::clone(&lister).begin_list(directory))?;
        lister.list(directory)
    }

    /// As `gate` of a directory that is changed. A thread that must not wait has read what it changes; what the change makes is
    /// not there before, and no news of it can be waited for.
    fn gate_changed(&self, directory: Ino) -> Result<(), EngineError> {
        if unready::is_wanted() { self.listed(directory) } else { self.gate(directory) }
    }

    /// Whether its rows are not those of a listing, or not yet.
    fn is_free(&self, directory: Ino) -> bool {
        ENTERING.get() || self.kept.get().is_some_and(|(kept, _)| *kept == directory)
    }

    /// The bucket of which this directory is a listing.
    fn upstream_of_listed(&self, directory: Ino) -> Option<Upstream> {
        let lister = self.lister().filter(|_| !self.is_free(directory))?;
        Some(lister.upstream().clone())
    }

    fn lister(&self) -> Option<Arc<dyn Lister>> {
        self.lister.get().and_then(Weak::upgrade)
    }

    fn gate_batch(&self, batch: &Batch) -> Result<(), EngineError> {
        for precondition in &batch.preconditions {
            let directory = match precondition {
                Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => {
                    directory_of(key)
                }
                Precondition::RangeEmpty { start, end, .. } => directory_of_range(start, end),
            };
            directory.map_or(Ok(()), |directory| self.gate_changed(directory))?;
        }
        let mut changed = batch.writes.iter().filter_map(|write| directory_of(write.key()));
        changed.try_for_each(|directory| self.gate_changed(directory))
    }

    /// Lists everything below a directory (T3).
    fn gate_below(&self, directory: Ino) -> Result<(), EngineError> {
        let (mut open, mut refused) = (vec![directory], None);
        while let Some(directory) = open.pop() {
            match self.gate_changed(directory) {
                // What else must be waited for begins now.
                Err(error) if unready::is_left() => refused = Some(error),
                gated => {
                    gated?;
                    open.extend(changes::directories_in(&*self.below, directory)?);
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Commits a batch that changes entries, with the dirty rows (T2).
    fn commit_noted(&self, mut batch: Batch) -> Result<Committed, CommitError> {
        loop {
            let mut files = self.files.lock();
            let changed = changes_of(&*self.below, &batch, &|key| self.is_entry(key)).map_err(CommitError::Failed)?;
            let moved = |one: &&Changed| one.is_directory && one.moved;
            let unlisted = changed.iter().filter(moved).map(|one| one.ino).find(|ino| !self.is_listed_below(*ino));
            if let Some(directory) = unlisted {
                drop(files);
                self.gate_below(directory).map_err(CommitError::Failed)?;
                continue;
            }
            for directory in changed.iter().filter(moved) {
                files.check_moved(&*self.below, directory).map_err(CommitError::Failed)?;
            }
            for ino in files.unkept(&*self.below, &changed).map_err(CommitError::Failed)? {
                self.keep(&mut files, ino).map_err(CommitError::Failed)?;
            }
            let mut noted = files.note(&*self.below, &changed).map_err(CommitError::Failed)?;
            for directory in changed.iter().filter(moved).map(|one| one.ino) {
                files.note_sent_below(&*self.below, directory, &mut noted).map_err(CommitError::Failed)?;
            }
            batch.writes.extend(noted.iter().map(|(ino, file)| dirty_write(*ino, file)));
            let done = self.below.commit(batch)?;
            // A new one is as it was made.
            changed.iter().filter(|one| one.is_directory).for_each(|one| self.ages.made(one.ino));
            let come = changed.iter().filter(|one| one.is_new || one.moved).filter_map(|one| one.place.as_ref());
            come.for_each(|(directory, _)| self.ages.filled(*directory));
            let followed = files.take(&*self.below, noted).and_then(|()| files.follow_moves(&*self.below));
            if followed.is_err() {
                // Some may be those from before the move.
                files.forget_keys();
            }
            drop(files);
            self.wake.notify_one();
            if let Err(error) = followed {
                tracing::error!(%error, "what is below a moved directory is sent after a restart");
            }
            return Ok(done);
        }
    }

    fn is_listed_below(&self, directory: Ino) -> bool {
        let unlisted = self.unlisted.read();
        if unlisted.is_empty() {
            return true;
        }
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            if unlisted.contains(&directory) {
                return false;
            }
            match changes::directories_in(&*self.below, directory) {
                Ok(below) => open.extend(below),
                Err(_) => return false,
            }
        }
        true
    }
}

impl Layer for Tracked {
    fn below(&self) -> &dyn Engine {
        &*self.below
    }

    fn will_read(&self, asked: Asked<'_>) -> Result<(), EngineError> {
        let directory = match asked {
            Asked::Row(key) => directory_of(key),
            Asked::Range(start, end) => directory_of_range(start, end),
        };
        directory.map_or(Ok(()), |directory| self.gate(directory))
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        if ENTERING.get() {
            return self.below.commit(batch);
        }
        if unready::is_left() {
            return Err(CommitError::Failed(unready::again()));
        }
        self.gate_batch(&batch).map_err(CommitError::Failed)?;
        match batch.writes.iter().any(|write| self.is_entry(write.key())) {
            true => self.commit_noted(batch),
            false => self.below.commit(batch),
        }
    }
}

impl Objects for Tracked {
    fn find(&self, number: u64) -> Result<Option<FarObject>, SegmentError> {
        let failed = |error: String| SegmentError::Io(std::io::Error::other(error));
        let Some(ino) = self.with_bytes(number)? else { return Ok(None) };
        let row = self.below.get(&key::upstream_object(ino)).map_err(|error| failed(error.to_string()))?;
        let Some(row) = row.value else { return Ok(None) };
        let object = UpstreamObject::decode(&row.value).map_err(|error| failed(error.to_string()))?;
        Ok(Some(FarObject { key: object.key, etag: object.etag, size: object.size }))
    }

    fn note_replaced(&self, number: u64) {
        if let Ok(Some(ino)) = self.with_bytes(number) {
            self.ages.note_replaced(ino);
        }
    }
}

impl Tracked {
    /// The file with these bytes in the bucket.
    fn with_bytes(&self, number: u64) -> Result<Option<Ino>, SegmentError> {
        let failed = |error: String| SegmentError::Io(std::io::Error::other(error));
        let row = self.below.get(&key::upstream_bytes(number)).map_err(|error| failed(error.to_string()))?;
        let Some(row) = row.value else { return Ok(None) };
        let ino = row.value.as_ref().try_into().map(u64::from_be_bytes).map_err(|_| failed("a number".to_owned()))?;
        Ok(Some(Ino(ino)))
    }
}
