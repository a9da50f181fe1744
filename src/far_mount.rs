//! A bucket of any store with a durable cache: as a file system, at an S3 address, or both.
//!
//! Why:        no server is needed: this process opens the cache directory, mounts or serves it, and sends what changes.
//! Invariants: R1 what was written and is not in the bucket is in the cache: a process that ends early says so, and the next
//!                one goes on.
//!             R2 a cache that belongs to the bucket already is opened also while that does not answer, or there are no keys for
//!                now. A bucket that refuses ends the start: keys that were withdrawn must not be found out days later. Who only
//!                sends has nothing to do without the bucket.
//! Layout:     `gateway` is the S3 door; `running` is what commands and pages see (`commands`, `administered`, `metrics`), `registry` names the caches of this user, `text`
//!             is for people, `at_rest` reads a cache that nobody has open.
//! Not here:   the order of sending (margay-upstream), options of a mount (mounts::options).

mod administered;
pub mod at_rest;
mod commands;
pub mod gateway;
mod metrics;
pub mod registry;
pub mod running;
pub mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_client::bucket::Bucket;
use margay_client::upstream::{Limits, Upstream};
use margay_env::Env;
use margay_jobs::reclaimer::Reclaimer;
use margay_listener::ConnectionLimits;
use margay_upstream::{CacheOptions, Far, FarOptions, Fsync, Opens, PartSizes, Ttl, Writers, is_of_the_bucket};
use margay_volume::Volume;
use margay_volume::posix::UpstreamSync;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::administered::Seen;
use self::commands::Doors;
use self::gateway::{Bound, Door, Gateway};
use self::registry::KnownCache;
use self::running::{Ending, Running};
use crate::backup_location::BucketLocation;
use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::mounts::options::MountChoice;
use crate::mounts::{MountWish, Mounts};
use crate::settings::StorageLimits;
use crate::wiring::{Storage, host_name};

/// The bucket of a new cache's volume, unless S3 clients see another name.
pub(crate) const CACHED: &str = "upstream";
/// The directory of fetched blocks in the cache.
const BLOCKS: &str = "blocks";
/// How often it is looked whether the mount is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a terminal or the log is told what is left at the end.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What sends has 64 requests of its own in progress; the others ask for what a listing does not tell.
const LIMITS: Limits = Limits { requests_max: 128, bytes_max: 128 << 20 };
/// A known cache waits so long for the bucket.
const KNOWN_TIME_MAX: Duration = Duration::from_secs(5);
/// Users of the mount get this long when a signal ends it.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(10);

/// A bucket and its cache.
#[derive(Debug)]
pub struct FarMount {
    pub place: BucketLocation,
    /// Absolute.
    pub cache: PathBuf,
    pub limits: StorageLimits,
    /// See [`CacheOptions`].
    pub cache_bytes_max: u64,
    pub connection: ConnectionLimits,
    /// Where metrics are told, without a password.
    pub metrics_address: Option<String>,
    pub fsync: Fsync,
    pub opens: Opens,
    pub ttl: Ttl,
    pub writers: Writers,
}

/// An opened cache that sends.
struct Opened {
    storage: Arc<Storage>,
    /// Of the volume.
    bucket: String,
    far: Arc<Far>,
    reclaimer: Reclaimer,
}

/// What is to be there of the bucket at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// An answer, or a cache that is known (R2).
    Known,
    Answer,
}

/// A bucket and its store in one line, as the cache records it.
pub(crate) fn source_of(place: &BucketLocation) -> String {
    format!("{place} {}", place.endpoint)
}

impl FarMount {
    /// Reaches the bucket once, so that what is wrong is said at once. `Some` says why it did not answer, where that is no
    /// hindrance. Blocks.
    fn reach(&self, is_known: bool) -> Result<Option<String>, String> {
        let bucket = Bucket::new(self.place.target()?, &self.place.bucket);
        let bucket = bucket.map_err(|error| format!("{}: {error}", self.place))?;
        let checked = if is_known { bucket.check_within(KNOWN_TIME_MAX) } else { bucket.check() };
        match checked {
            Ok(()) => Ok(None),
            Err(error) if is_known && error.is_unanswered() => Ok(Some(bucket.explain(&error))),
            Err(error) => Err(format!("{}: {}", self.place, bucket.explain(&error))),
        }
    }

    fn far_options(&self, id: String) -> Result<FarOptions, String> {
        let target = self.place.target()?;
        let upstream = Upstream::new(target, &self.place.bucket, LIMITS);
        let prefix = if self.place.prefix.is_empty() { String::new() } else { format!("{}/", self.place.prefix) };
        let cache = CacheOptions { blocks: self.cache.join(BLOCKS), bytes_max: self.cache_bytes_max };
        let (host, parts) = (host_name(), PartSizes::default());
        let (fsync, opens, ttl, writers) = (self.fsync, self.opens, self.ttl, self.writers);
        Ok(FarOptions { upstream, prefix, id, host, cache, parts, fsync, opens, ttl, writers })
    }

    /// `name`: of the bucket, for S3 clients.
    async fn open(&self, env: &Env, name: Option<&str>, start: Start) -> Result<Opened, Failure> {
        // What is wrong with the address or the file of authorities no later start mends.
        self.place.target().map_err(Failure::usage)?;
        let (silent, (mut dir, id)) = tokio::task::block_in_place(|| {
            let tell = &mut |line: String| eprintln!("margay: {line}");
            let locked = DataDir::lock_cache(env, &self.cache, &source_of(&self.place), tell)?;
            let is_known = start == Start::Known && locked.is_known()?;
            let silent = self.reach(is_known).map_err(Failure::failed)?;
            Ok::<_, Failure>((silent, locked.claim()?))
        })?;
        if let Some(why) = &silent {
            let bucket = self.place.to_string();
            tracing::warn!(
                bucket,
                "the bucket does not answer ({why}): going on with the cache; what is not in it waits"
            );
        }
        // Requests that are in progress at the end are not waited for, and the next process waits for the lock.
        dir.lock_until_exit();
        let options = self.far_options(id).map_err(Failure::failed)?;
        let opened = self.open_storage(dir, options, name, silent).await;
        opened.map_err(|failure| at_rest::with_disk(env, &self.cache, &self.limits, failure))
    }

    async fn open_storage(
        &self,
        dir: DataDir,
        options: FarOptions,
        name: Option<&str>,
        silent: Option<String>,
    ) -> Result<Opened, Failure> {
        let (storage, far) = Storage::open_cache(dir, &self.limits, options)?;
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", self.cache.display()));
        if let Some(why) = silent {
            far.was_cut_off(why);
        }
        let bucket = bucket_of(&storage.volume, name).await.map_err(|error| failed(&error))?;
        far.begin(&storage.volume, &bucket).map_err(|error| failed(&error))?;
        let volume = Arc::clone(&storage.volume);
        let reclaimer =
            Reclaimer::start(&storage.env, volume, self.limits.reclaim()).map_err(|error| failed(&error))?;
        Ok(Opened { storage: Arc::new(storage), bucket, far, reclaimer })
    }

    /// Mounts at an absolute path, or serves S3, or both, and returns when that has ended and everything is in the bucket.
    /// Without an S3 door the end of the mount is the end.
    pub async fn run(
        &self,
        env: &Env,
        mount: Option<(&Path, &MountChoice)>,
        gateway: Option<&Gateway>,
    ) -> Result<(), Failure> {
        let (mut terminate, mut interrupt) = signals()?;
        let page = self.bind_page().await?;
        let bound = match gateway {
            Some(gateway) => Some(gateway.bind(env).await?),
            None => None,
        };
        let opened = self.open(env, gateway.map(|gateway| gateway.bucket.as_str()), Start::Known).await?;
        let wish = mount.map(|(path, choice)| MountWish::new(&opened.bucket, path, choice.clone()));
        let wish = wish.transpose().map_err(Failure::failed)?;
        let mut running = self.running(env, &opened, wish.as_ref().map(|wish| wish.path.clone()));
        if let Some(bound) = &bound {
            (running.served, running.seen) = (Some(Arc::clone(&bound.served)), bound.seen.clone());
        }
        running.page = page.as_ref().and_then(|page| page.local_addr().ok());
        let running = Arc::new(running);
        // Before the mount: who sees that may ask at once.
        let doors = Doors::open(&running, page, self.connection);
        let door = match self.open_doors(&running, wish.as_ref(), gateway.zip(bound)).await {
            Ok(door) => door,
            Err(failure) => {
                tokio::task::block_in_place(|| running.mounts.unmount_all(UNMOUNT_TIME_MAX));
                doors.close(&running).await;
                running.forget_if_empty();
                return Err(failure);
            }
        };
        crate::ready::tell();
        let wait = loop {
            tokio::select! {
                _ = terminate.recv() => break Some(UNMOUNT_TIME_MAX),
                _ = interrupt.recv() => break Some(UNMOUNT_TIME_MAX),
                wait = running.ending.wished() => break Some(wait),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if gateway.is_none() && tokio::task::block_in_place(|| running.mounts.is_empty()) {
                break None;
            }
        };
        stop_at(terminate, interrupt, &running.ending.stopped);
        // Those who watch have no end of their own, and the doors wait for what runs.
        running.seen.trace.close();
        if let Some((gateway, door)) = gateway.zip(door) {
            door.close(gateway, env, &self.cache).await;
        }
        running.seen.spans.close().await;
        let ended = tokio::task::block_in_place(|| {
            if let Some(wait) = wait {
                running.mounts.unmount_all(wait);
            }
            opened.end(&running)
        });
        doors.close(&running).await;
        ended
    }

    async fn open_doors(
        &self,
        running: &Arc<Running>,
        wish: Option<&MountWish>,
        gateway: Option<(&Gateway, Bound)>,
    ) -> Result<Option<Door>, Failure> {
        tokio::task::block_in_place(|| {
            self.entry(running).enter(&running.env);
            wish.map_or(Ok(()), |wish| running.mounts.mount(wish)).map_err(Failure::failed)
        })?;
        match gateway {
            Some((gateway, bound)) => gateway.open(bound, running).await.map(Some),
            None => Ok(None),
        }
    }

    /// Sends what an earlier mount left in the cache, without mounting.
    pub async fn send_backlog(&self, env: &Env) -> Result<(), Failure> {
        let (terminate, interrupt) = signals()?;
        let opened = self.open(env, None, Start::Answer).await?;
        let running = Arc::new(self.running(env, &opened, None));
        let doors = Doors::open(&running, None, self.connection);
        stop_at(terminate, interrupt, &running.ending.stopped);
        let ended = tokio::task::block_in_place(|| opened.end(&running));
        doors.close(&running).await;
        ended
    }

    async fn bind_page(&self) -> Result<Option<TcpListener>, Failure> {
        let Some(address) = &self.metrics_address else { return Ok(None) };
        Ok(Some(margay_listener::bind(address, "--metrics-address").await?))
    }

    fn running(&self, env: &Env, opened: &Opened, path: Option<PathBuf>) -> Running {
        let (far, storage) = (Arc::clone(&opened.far), Arc::clone(&opened.storage));
        let mounts = Mounts::new(env, &self.cache, &storage.volume, self.limits.known_files_max);
        let mounts = mounts.with_upstream(Arc::clone(&far) as Arc<dyn UpstreamSync>, self.place.to_string());
        Running {
            env: env.clone(),
            source: self.place.to_string(),
            endpoint: self.place.endpoint.clone(),
            cache: self.cache.clone(),
            path,
            far,
            storage,
            mounts: Arc::new(mounts),
            begun: (env.clock.monotonic(), env.clock.now()),
            ending: Ending::default(),
            served: None,
            seen: Seen::bare(env),
            page: None,
        }
    }

    fn entry(&self, running: &Running) -> KnownCache {
        let (source, endpoint) = (running.source.clone(), running.endpoint.clone());
        KnownCache { cache: running.cache.clone(), source, endpoint, path: running.path.clone() }
    }
}

/// The bucket of a cache's volume: made if it is new, and renamed if S3 clients are to see another name.
async fn bucket_of(volume: &Volume, name: Option<&str>) -> Result<String, margay_volume::Error> {
    // The other one has kept states.
    let found = volume.list_buckets("", None, 2).await?;
    let found = found.into_iter().map(|bucket| bucket.name).find(|name| is_of_the_bucket(name));
    match (found, name) {
        (Some(found), Some(name)) if found != name => volume.rename_bucket(&found, name).await?,
        (Some(found), _) => return Ok(found),
        (None, name) => drop(volume.create_bucket(name.unwrap_or(CACHED)).await?),
    }
    Ok(name.unwrap_or(CACHED).to_owned())
}

fn signals() -> Result<(Signal, Signal), Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")));
    Ok((listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
}

/// The next signal sets it.
fn stop_at(mut terminate: Signal, mut interrupt: Signal, stopped: &Arc<AtomicBool>) {
    let own = Arc::clone(stopped);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        own.store(true, Ordering::SeqCst);
    });
}

impl Opened {
    /// Waits until the bucket has everything, or until it is stopped; tells who waits for it.
    fn end(self, running: &Running) -> Result<(), Failure> {
        let (mut told, clock) = (None, &running.env.clock);
        let sent = self.far.drain(&mut |_| {
            let now = clock.monotonic();
            // Its first second is no news.
            if now.saturating_sub(*told.get_or_insert(now)) >= TELL_EVERY {
                eprintln!("margay: sending: {}", text::waiting(&running.status(false)));
                told = Some(now);
            }
            !running.ending.stopped.load(Ordering::SeqCst)
        });
        self.reclaimer.stop();
        let closed = self.storage.close();
        let error = sent.as_ref().err().map(ToString::to_string).or(closed.as_ref().err().map(ToString::to_string));
        if error.is_none() {
            registry::remove(&running.env, &running.cache);
        }
        running.ending.ended(running.ended(error, false));
        closed?;
        let left = self.far.backlog();
        let kept = at_rest::left(&running.cache, left.files, left.bytes);
        sent.map_err(|error| Failure::failed(format!("{kept}: {error}")))
    }
}
