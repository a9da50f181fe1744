//! A bucket of any store, mounted as a file system with a durable cache.
//!
//! Why:        no server is needed: this process opens the cache directory, mounts it, and sends what changes.
//! Invariants: R1 what was written and is not in the bucket is in the cache: a process that ends early says so, and the next
//!                one goes on.
//! Not here:   the order of sending (margay-upstream), options of a mount (mounts::options).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_client::bucket::Bucket;
use margay_client::upstream::{Limits, Upstream};
use margay_env::Env;
use margay_jobs::reclaimer::Reclaimer;
use margay_upstream::{Backlog, CacheOptions, Far, FarOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::backup_location::BucketLocation;
use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::mounts::options::MountChoice;
use crate::mounts::{MountWish, Mounts};
use crate::settings::StorageLimits;
use crate::wiring::Storage;

/// The bucket of the cache's volume.
const CACHED: &str = "upstream";
/// The directory of fetched blocks in the cache.
const BLOCKS: &str = "blocks";
/// How often it is looked whether the mount is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);
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
}

/// An opened cache that sends.
struct Opened {
    storage: Storage,
    far: Arc<Far>,
    reclaimer: Reclaimer,
}

impl FarMount {
    /// The bucket and its store in one line, as the cache records it.
    fn source(&self) -> String {
        format!("{} {}", self.place, self.place.endpoint)
    }

    fn far_options(&self, id: String) -> Result<FarOptions, String> {
        let target = self.place.target()?;
        let token = self.place.session_token.as_deref();
        let bucket = Bucket::new(Arc::clone(&target), token, &self.place.bucket);
        let bucket = bucket.map_err(|error| format!("{}: {error}", self.place))?;
        bucket.check().map_err(|error| format!("{}: {}", self.place, bucket.explain(&error)))?;
        let upstream = Upstream::new(target, token, &self.place.bucket, Limits::default());
        let upstream = upstream.map_err(|error| format!("{}: {error}", self.place))?;
        let prefix = if self.place.prefix.is_empty() { String::new() } else { format!("{}/", self.place.prefix) };
        let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
        let cache = CacheOptions { blocks: self.cache.join(BLOCKS), bytes_max: self.cache_bytes_max };
        Ok(FarOptions { upstream, prefix, id, host: host.unwrap_or_else(|| "here".to_owned()), cache })
    }

    async fn open(&self, env: &Env) -> Result<Opened, Failure> {
        let (dir, id) = DataDir::open_cache(env, &self.cache, &self.source())?;
        let options = tokio::task::block_in_place(|| self.far_options(id)).map_err(Failure::failed)?;
        let (storage, far) = Storage::open_cache(dir, &self.limits, options)?;
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", self.cache.display()));
        match storage.volume.head_bucket(CACHED).await {
            Err(margay_volume::Error::NoSuchBucket) => {
                storage.volume.create_bucket(CACHED).await.map_err(|error| failed(&error))?;
            }
            found => drop(found.map_err(|error| failed(&error))?),
        }
        far.begin(&storage.volume, CACHED).map_err(|error| failed(&error))?;
        let volume = Arc::clone(&storage.volume);
        let reclaimer =
            Reclaimer::start(&storage.env, volume, self.limits.reclaim()).map_err(|error| failed(&error))?;
        Ok(Opened { storage, far, reclaimer })
    }

    /// Mounts at an absolute path, and returns when it was unmounted and everything is in the bucket.
    pub async fn run(&self, env: &Env, path: &Path, choice: &MountChoice) -> Result<(), Failure> {
        let (mut terminate, mut interrupt) = signals()?;
        let opened = self.open(env).await?;
        let wish = MountWish::new(CACHED, path, choice.clone()).map_err(Failure::failed)?;
        let mounts = Mounts::new(env, &self.cache, &opened.storage.volume, self.limits.known_files_max);
        let far = Arc::clone(&opened.far);
        let mounts = mounts.with_upstream(far);
        tokio::task::block_in_place(|| mounts.mount(&wish)).map_err(Failure::failed)?;
        crate::ready::tell();
        let is_asked = loop {
            tokio::select! {
                _ = terminate.recv() => break true,
                _ = interrupt.recv() => break true,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if tokio::task::block_in_place(|| mounts.is_empty()) {
                break false;
            }
        };
        let stopped = stop_at(terminate, interrupt);
        tokio::task::block_in_place(|| {
            if is_asked {
                mounts.unmount_all(UNMOUNT_TIME_MAX);
            }
            opened.end(&self.cache, &stopped)
        })
    }

    /// Sends what an earlier mount left in the cache, without mounting.
    pub async fn send_backlog(&self, env: &Env) -> Result<(), Failure> {
        let (terminate, interrupt) = signals()?;
        let opened = self.open(env).await?;
        let stopped = stop_at(terminate, interrupt);
        tokio::task::block_in_place(|| opened.end(&self.cache, &stopped))
    }
}

fn signals() -> Result<(Signal, Signal), Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")));
    Ok((listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
}

/// Is set by the next signal.
fn stop_at(mut terminate: Signal, mut interrupt: Signal) -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&stopped);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        own.store(true, Ordering::SeqCst);
    });
    stopped
}

impl Opened {
    /// Waits until the bucket has everything, or until it is stopped.
    fn end(self, cache: &Path, stopped: &AtomicBool) -> Result<(), Failure> {
        let mut told = String::new();
        let sent = self.far.drain(&mut |backlog| {
            let line = line(backlog);
            if line != told {
                eprintln!("margay: {line}");
                told = line;
            }
            !stopped.load(Ordering::SeqCst)
        });
        self.reclaimer.stop();
        self.storage.close()?;
        sent.map_err(|error| {
            let left = self.far.backlog().files;
            Failure::failed(format!(
                "{left} changes are not in the bucket yet, and are kept in {}: {error}; mount it again, or use: margay sync",
                cache.display()
            ))
        })
    }
}

fn line(backlog: &Backlog) -> String {
    format!("sending: {} files with {} bytes are left", backlog.files, backlog.bytes)
}
