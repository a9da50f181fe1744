//! Puts the parts together: the engine and the peers of a volume, the task that sends, and waiting for it.
//!
//! Examples:   `Far::open` with the engine of the cache, then `Volume::open` with `Far::engine` and `Far::peers`, then
//!             `Far::begin`.
//! Invariants: A1 one volume, one bucket, one process: the caller holds the lock of the directory.
//! Not here:   what is left (backlog), mounting, the command line.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use margay_client::upstream::{Flow, Meter, StoreName, Upstream};
use margay_env::Env;
use margay_meta::{Engine, EngineError};
use margay_rows::record::Bucket;
use margay_rows::{Ino, key};
use margay_segment::ReadOnly;
use margay_volume::posix::UpstreamSync;
use margay_volume::{Absences, Error, Evict, FileHeaders, Peers, Volume};

use crate::backlog::{Backlog, backlog_of, conflict_keys, conflict_names, due_now, forgive, state_of};
use crate::bytes::{DiskBlocks, FarPeers, FarStore, Objects};
use crate::evict::{Evictor, keep_within};
use crate::given::PutHeaders;
use crate::list::Listing;
use crate::opens::{Opens, Ttl, Writers};
use crate::patience::{NotSent, Patience};
use crate::runtime::Requests;
use crate::send::{PartSizes, Sender, Uploads};
use crate::tracked::{EPOCHS_MAX, KEPT, Lister, Paths, Tracked};
use crate::watch::watch;

/// How often progress is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a volume is to be with a bucket.
#[derive(Debug)]
pub struct FarOptions {
    pub upstream: Upstream,
    /// Empty, or ends in `/`.
    pub prefix: String,
    /// Of this cache directory: begins its write ids.
    pub id: String,
    pub host: String,
    pub cache: CacheOptions,
    pub parts: PartSizes,
    pub fsync: Fsync,
    pub opens: Opens,
    pub ttl: Ttl,
    pub writers: Writers,
}

/// What `fsync` waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// The bucket.
    #[default]
    Upstream,
    /// The disk of the cache. What was changed before goes to the bucket before what is changed later.
    Local,
}

/// How much of the disk the cache takes.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Where fetched blocks are kept.
    pub blocks: PathBuf,
    /// Half of it for what was written, half for what was fetched. While that much is not sent yet, writers wait; a file
    /// that is open and was not closed since it was written does not count, since it is sent when it is closed.
    pub bytes_max: u64,
}

#[derive(Debug)]
pub struct Far {
    pub(crate) env: Env,
    options: FarOptions,
    requests: Arc<Requests>,
    /// Threads of their own: a request that sends waits for bytes that are fetched.
    fetches: Arc<Requests>,
    pub(crate) tracked: Arc<Tracked>,
    store: Arc<ReadOnly<FarStore>>,
    disk: Arc<DiskBlocks>,
    evictor: Arc<Evictor>,
    sender: OnceLock<Arc<Sender>>,
    /// It begins without an answer of the bucket.
    is_cut_off: AtomicBool,
}

impl Far {
    pub fn open(env: Env, engine: Arc<dyn Engine>, options: FarOptions) -> Result<Far, EngineError> {
        let (requests, fetches) = (Arc::new(Requests::begin()?), Arc::new(Requests::begin()?));
        let paths = Paths::below(&options.prefix);
        let tracked = Arc::new(Tracked::open(engine, paths, Arc::clone(&env.clock), options.ttl)?);
        let objects = Arc::clone(&tracked) as Arc<dyn Objects>;
        let disk = DiskBlocks::open(env.clone(), &options.cache.blocks, options.cache.bytes_max / 2)?;
        let disk = Arc::new(disk);
        let kept = Some(Arc::clone(&disk));
        let store = Arc::new(ReadOnly(FarStore::new(options.upstream.clone(), Arc::clone(&fetches), objects, kept)));
        let (clock, upstream) = (Arc::clone(&env.clock), options.upstream.clone());
        let evictor = Arc::new(Evictor::new(Arc::clone(&tracked), clock, upstream, options.cache.bytes_max / 2));
        let (sender, is_cut_off) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Far { env, options, requests, fetches, tracked, store, disk, evictor, sender, is_cut_off })
    }

    /// The engine of the volume.
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.tracked) as Arc<dyn Engine>
    }

    /// The other store of the volume.
    pub fn peers(&self) -> Arc<dyn Peers> {
        Arc::new(FarPeers(Arc::clone(&self.store)))
    }

    /// What the volume asks for room.
    pub fn evict(&self) -> Arc<dyn Evict> {
        Arc::clone(&self.evictor) as Arc<dyn Evict>
    }

    /// What the volume asks of the headers of objects.
    pub fn file_headers(&self) -> Arc<dyn FileHeaders> {
        Arc::new(PutHeaders)
    }

    /// What the volume asks about names that are not here.
    pub fn absences(&self) -> Arc<dyn Absences> {
        Arc::clone(&self.tracked) as Arc<dyn Absences>
    }

    /// The bucket was asked before the beginning, and did not answer. Nothing is sent before it does.
    pub fn was_cut_off(&self, why: String) {
        self.is_cut_off.store(true, Ordering::SeqCst);
        self.meter().was_silent(why);
    }

    /// Lets about so many bytes go that the bucket has too; returns how many went.
    pub fn evict_sent(&self, bytes: u64) -> Result<u64, String> {
        self.evictor.evict_sent(bytes)
    }

    /// See [`CacheOptions`].
    pub fn cache_bytes_max(&self) -> u64 {
        self.options.cache.bytes_max
    }

    /// Bytes of fetched blocks on disk.
    pub fn fetched_bytes(&self) -> u64 {
        self.disk.bytes()
    }

    /// Begins to send. The bucket of the volume exists.
    pub fn begin(&self, volume: &Arc<Volume>, bucket: &str) -> Result<(), EngineError> {
        let row = self.tracked.below.get(&key::bucket(bucket))?.value;
        let row = row.ok_or_else(|| EngineError::Corrupt(format!("bucket {bucket} is missing")))?;
        let root = Bucket::decode(&row.value).map_err(|error| EngineError::Corrupt(error.to_string()))?.root;
        {
            let mut files = self.tracked.files.lock();
            files.paths.set_root(root);
            files.suspect(&*self.tracked.below)?;
        }
        self.tracked.begin(root)?;
        self.begin_epochs(volume)?;
        let (upstream, requests) = (self.options.upstream.clone(), Arc::clone(&self.requests));
        let tracked = || Arc::clone(&self.tracked);
        let listing = Arc::new(Listing::new(
            tracked(),
            Arc::clone(volume),
            bucket,
            upstream.clone(),
            requests,
            Arc::clone(&self.env.clock),
            self.options.opens,
        ));
        let lister: Arc<dyn Lister> = Arc::clone(&listing) as Arc<dyn Lister>;
        self.tracked.set_lister(Arc::downgrade(&lister));
        let sender = Arc::new(Sender {
            tracked: tracked(),
            volume: Arc::clone(volume),
            bucket: bucket.to_owned(),
            upstream,
            id: self.options.id.clone(),
            process: self.env.random.next_u64(),
            host: self.options.host.clone(),
            clock: Arc::clone(&self.env.clock),
            listing,
            sizes: self.options.parts,
            uploads: Uploads::read(&*self.tracked.below)?,
            honoured: parking_lot::Mutex::default(),
            conflicts: parking_lot::Mutex::default(),
            writers: self.options.writers,
            awaits_answer: self.is_cut_off.load(Ordering::SeqCst),
        });
        assert!(self.sender.set(Arc::clone(&sender)).is_ok(), "it begins once");
        self.evictor.begin(volume);
        let broken = Arc::clone(&self.tracked);
        self.requests.spawn_watched(sender.run(), move |why| broken.break_off(why));
        self.requests.spawn(keep_within(Arc::clone(&self.evictor)));
        let answered = tracked();
        self.requests.spawn(watch(self.options.upstream.clone(), move || {
            due_now(&mut answered.files.lock());
            answered.wake.notify_one();
        }));
        Ok(())
    }

    /// What an earlier process synced, or wrote, goes before what this one writes.
    fn begin_epochs(&self, volume: &Arc<Volume>) -> Result<(), EngineError> {
        let below = &*self.tracked.below;
        let is_local = self.options.fsync == Fsync::Local;
        let mut row = below.get(&key::bucket(KEPT))?.value;
        if row.is_none() && is_local {
            let own = Arc::clone(volume);
            let made = self.requests.wait(async move { own.create_bucket(KEPT).await });
            if let Some(Err(error)) = made {
                return Err(EngineError::Io(std::io::Error::other(error)));
            }
            row = below.get(&key::bucket(KEPT))?.value;
        }
        let Some(row) = row else { return Ok(()) };
        let bucket = Bucket::decode(&row.value).map_err(|error| EngineError::Corrupt(error.to_string()))?;
        self.tracked.set_kept(volume, bucket.root);
        self.tracked.tidy_kept(volume)?;
        let mut files = self.tracked.files.lock();
        let last = files.sequence;
        if is_local || files.epochs.len() > 0 { files.end_epoch(below, last) } else { Ok(()) }
    }

    /// Ends an epoch, so that what is changed from now on goes to the bucket later; waits while too many wait.
    fn end_epoch(&self, file: Option<Ino>) -> Result<(), NotSent> {
        let mut files = self.tracked.files.lock();
        let synced = match file {
            Some(ino) => files.table.get(ino).map(|file| file.dirty.changed),
            None => Some(files.sequence),
        };
        // The bucket has it.
        let Some(synced) = synced else { return Ok(()) };
        let mut patience = Patience::begin(&self.tracked, &files);
        while files.epochs.len() >= EPOCHS_MAX {
            patience.look(&self.tracked, &files, || None)?;
            self.tracked.wake.notify_one();
            self.tracked.settled.of(None).wait_for(&mut files, LOOK_EVERY);
        }
        files.end_epoch(&*self.tracked.below, synced).map_err(|error| NotSent::Refused(error.to_string()))?;
        self.tracked.wake.notify_one();
        Ok(())
    }

    /// What `fsync` waits for.
    pub fn fsync(&self) -> Fsync {
        self.options.fsync
    }

    /// Who changes objects.
    pub fn writers(&self) -> Writers {
        self.options.writers
    }

    /// What `open` asks the bucket for.
    pub fn opens(&self) -> Opens {
        self.options.opens
    }

    /// Blocks until the bucket has what the volume had at the call, of one file or of all; `progress` is told now and then
    /// and ends the wait with false. Of one file its content, its attributes and its name are waited for; of all also that
    /// nothing is left under an old name.
    pub fn flush(&self, file: Option<Ino>, progress: &mut dyn FnMut(&Backlog) -> bool) -> Result<(), NotSent> {
        self.wait(file, &mut || progress(&self.backlog()))
    }

    fn wait(&self, file: Option<Ino>, goes_on: &mut dyn FnMut() -> bool) -> Result<(), NotSent> {
        let mut files = self.tracked.files.lock();
        let sequence = files.sequence;
        files.send_now(file);
        self.tracked.wake.notify_one();
        // With many threads in fsync, each is woken by its own file alone.
        let settled = self.tracked.settled.of(file);
        let mut patience = Patience::begin(&self.tracked, &files);
        loop {
            let (lacks, refused) = match file {
                Some(ino) => files.lacks_of(ino, sequence),
                None => files.lacks(sequence),
            };
            if !lacks {
                return Ok(());
            }
            if let Some(refused) = refused {
                return Err(NotSent::Refused(refused));
            }
            let failing = || files.table.failing().find_map(|(_, one)| one.failure.clone());
            patience.look(&self.tracked, &files, failing)?;
            settled.wait_for(&mut files, LOOK_EVERY);
            drop(files);
            if !goes_on() {
                return Err(NotSent::Stopped);
            }
            files = self.tracked.files.lock();
        }
    }

    /// As `flush` of all, and of what sending changes: what was changed on both sides gets another name here, and is sent
    /// under it.
    pub fn drain(&self, progress: &mut dyn FnMut(&Backlog) -> bool) -> Result<(), NotSent> {
        loop {
            self.flush(None, progress)?;
            if !self.tracked.files.lock().lacks(u64::MAX).0 {
                return Ok(());
            }
        }
    }

    /// Breaks off what is in progress; nothing is sent or fetched any more. The rows say what is left.
    pub fn stop(&self) {
        self.requests.stop();
        self.fetches.stop();
    }

    /// Looks at once at what is due, and wakes who waits: for a caller whose clock jumps.
    pub fn look(&self) {
        let files = self.tracked.files.lock().table.inos();
        self.tracked.settled.notify(files);
        self.tracked.wake.notify_one();
        if let Some(sender) = self.sender.get() {
            sender.uploads.looks.notify_waiters();
        }
    }

    /// Everything about what is left, for people who look for a fault.
    pub fn details(&self) -> String {
        format!("{:#?}", self.tracked.files.lock().table)
    }

    pub fn backlog(&self) -> Backlog {
        let mut backlog = backlog_of(&self.tracked.files.lock());
        if let Some(sender) = self.sender.get() {
            backlog.conflicts.clone_from(&sender.conflicts.lock());
        }
        backlog
    }

    /// Names of conflicts of all times, as far as they are here; reads every name.
    pub fn conflicts(&self) -> Result<Vec<String>, EngineError> {
        let names = conflict_names(&*self.tracked.below)?;
        conflict_keys(&mut self.tracked.files.lock(), &*self.tracked.below, &names)
    }

    /// Sends a file by its number, or everything, and blocks until the bucket has it; `progress` as for `flush`. What was
    /// refused is tried again at once: who asks may have removed the cause.
    pub fn send(&self, file: Option<u64>, progress: &mut dyn FnMut(&Backlog) -> bool) -> Result<(), NotSent> {
        let file = file.map(Ino);
        forgive(&mut self.tracked.files.lock(), file);
        match file {
            Some(_) => self.flush(file, progress),
            None => self.drain(progress),
        }
    }

    /// Why nothing is sent any more until the next process: a fault of the program.
    pub fn broken(&self) -> Option<&str> {
        self.tracked.broken.get().map(String::as_str)
    }

    /// Why the bucket refuses to be listed, if it does.
    pub fn refused(&self) -> Option<String> {
        self.tracked.refusal.why()
    }

    /// Counters of the requests.
    pub fn meter(&self) -> &Meter {
        self.options.upstream.meter()
    }

    /// Requests in progress, and how many may be.
    pub fn flow(&self) -> Flow {
        self.options.upstream.flow()
    }

    /// Who answers; `None`: it has not answered yet.
    pub fn store(&self) -> Option<&StoreName> {
        self.options.upstream.store()
    }

    /// The conditions that the store honours; `None`: it has not answered yet.
    pub fn honoured(&self) -> Option<[(&'static str, bool); 4]> {
        self.sender.get().and_then(|sender| sender.honoured.lock().named())
    }

    /// Whether the store's listings have attributes; `None`: not known yet.
    pub fn lists_attributes(&self) -> Option<bool> {
        self.sender.get()?.listing.pages.tells_metadata()
    }
}

impl Drop for Far {
    /// Nothing is sent any more; the rows say what is left.
    fn drop(&mut self) {
        self.stop();
    }
}

impl UpstreamSync for Far {
    fn sync(&self, file: Option<Ino>) -> Result<(), Error> {
        let synced = match self.options.fsync {
            Fsync::Upstream => self.wait(file, &mut || true),
            Fsync::Local => self.end_epoch(file),
        };
        synced.map_err(|error| {
            if let Some(left_out) = self.tracked.told.is_news(self.env.clock.monotonic(), "fsync", &error.to_string()) {
                tracing::error!(%error, left_out, "an fsync did not reach the bucket");
            }
            Error::Io(std::io::Error::other(error))
        })
    }

    fn state(&self, file: Ino) -> String {
        state_of(&self.tracked.files.lock(), file)
    }

    fn will_open(&self, directory: Ino, file: Ino) {
        if let Some(sender) = self.sender.get() {
            sender.listing.look_before_open(directory, file);
        }
    }

    fn will_miss(&self, directory: Ino, name: &str) -> bool {
        self.sender.get().is_some_and(|sender| sender.listing.look_for(directory, name))
    }

    fn fresh_for(&self, directory: Ino) -> Duration {
        self.tracked.ages.left(directory)
    }

    fn absent_for(&self, directory: Ino) -> Duration {
        match self.options.opens {
            Opens::Listed => self.tracked.ages.left(directory),
            Opens::Recent => self.tracked.ages.absence_left(directory),
            Opens::Always => Duration::ZERO,
        }
    }

    fn will_remove(&self, directory: Ino) {
        self.tracked.will_remove(directory);
    }
}
