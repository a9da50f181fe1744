//! A mount: the operations over the volume, its session with the kernel, and the threads beside it.
//!
//! Why:        the order in which a mount begins and ends.
//! Invariants: O1 the kernel is told of other doors' changes from before the first request on.
//!             O2 what was written is published before the end of a mount is told.
//!             O3 what the kernel had open and knew is let go when it unmounted, whoever made it do so.
//! Not here:   requests (operations).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_env::Env;
use margay_volume::posix::{Mount, PosixError};

use crate::door::{Door, Ownership};
use crate::metrics::Metrics;
use crate::mount_point;
use crate::notifier;
use crate::pruner;
use crate::session::{MountError, Session, SessionOptions};

/// How often files that are written and stay open are published.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// What `status` and metrics show of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountedState {
    pub open_files: usize,
    pub open_directories: usize,
    pub ended: bool,
}

/// A mount that is being answered. Dropping it detaches it.
#[derive(Debug)]
pub struct Mounted {
    door: Arc<Door>,
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    beside: Arc<Beside>,
    /// It is at no place any more, whatever else may be mounted there by now.
    unmounted: AtomicBool,
}

/// The threads beside a session.
#[derive(Debug, Default)]
struct Beside {
    stop: AtomicBool,
    published: AtomicBool,
}

impl Mounted {
    /// Mounts and begins to answer; calls `made` in between.
    pub fn new(
        mount: &Arc<Mount>,
        path: &Path,
        ownership: Ownership,
        options: &SessionOptions,
        env: &Env,
        made: &dyn Fn(),
    ) -> Result<Mounted, MountError> {
        let metrics = Arc::new(Metrics::default());
        let door = Arc::new(Door::new(Arc::clone(mount), ownership, options.writeback, env.clone()));
        // From here on notices gather, also those of changes before the kernel's first question.
        let watcher = Arc::new(mount.watch());
        let session = Session::mount(Arc::clone(&door), &metrics, path, options, env, made)?;
        let session = Arc::new(session);
        let beside = Arc::new(Beside::default());
        let refused = |error| MountError::Refused { path: path.to_owned(), error };
        let mounted = Mounted {
            door: Arc::clone(&door),
            session: Arc::clone(&session),
            metrics,
            beside: Arc::clone(&beside),
            unmounted: AtomicBool::new(false),
        };
        notifier::start(Arc::clone(&door), Arc::clone(&watcher), session.kernel(), Arc::clone(&mounted.metrics))
            .map_err(refused)?;
        pruner::start(Arc::clone(&door), session.kernel(), options.known_files_max, Arc::clone(&mounted.metrics))
            .map_err(refused)?;
        let thread = std::thread::Builder::new().name("fuse-publish".to_owned());
        thread
            .spawn(move || {
                publish(&door, &session, &beside);
                watcher.close();
                door.mount.stop_waiting();
            })
            .map_err(refused)?;
        Ok(mounted)
    }

    pub fn path(&self) -> &Path {
        self.session.path()
    }

    pub fn mount(&self) -> &Arc<Mount> {
        &self.door.mount
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn state(&self) -> MountedState {
        MountedState {
            open_files: self.door.files.len(),
            open_directories: self.door.directories.len(),
            ended: self.session.ended(),
        }
    }

    /// The session is over and all that was written is published.
    pub fn ended(&self) -> bool {
        self.beside.published.load(Ordering::Acquire)
    }

    /// Once it is unmounted everywhere: waits for the end of the session at most `longest`, and publishes what was
    /// written. False when files are still open: what is written later is lost when the server ends before they close.
    pub fn end(self, longest: Duration) -> bool {
        let ended = self.session.wait(longest);
        self.publish();
        self.unmounted.store(true, Ordering::Release);
        ended
    }

    fn publish(&self) {
        if let Err(error) = self.door.mount.publish_written(true) {
            tracing::error!(%error, path = %self.path().display(), "not everything that was written could be published");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.session.ended() && !self.unmounted.load(Ordering::Acquire) {
            let _ = mount_point::unmount(self.path(), true);
        }
        self.beside.stop.store(true, Ordering::Release);
    }
}

/// Publishes what was written every second, and all of it at the end.
fn publish(door: &Door, session: &Session, beside: &Beside) {
    loop {
        let ended = session.wait(PUBLISH_EVERY);
        let last = ended || beside.stop.load(Ordering::Acquire);
        match door.mount.publish_written(last) {
            Ok(()) | Err(PosixError::Unsupported) => {}
            Err(error) => {
                tracing::warn!(%error, path = %session.path().display(), "files that stay open could not be published");
            }
        }
        if ended {
            door.kernel_left();
        }
        if last {
            beside.published.store(true, Ordering::Release);
            return;
        }
    }
}
