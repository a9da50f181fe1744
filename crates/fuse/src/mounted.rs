//! One mount: the operations over the volume, the session with the kernel, and the threads beside it.
//!
//! Why:        this module fixes the order in which a mount starts and ends.
//! Invariants: O1 changes by other doors are recorded from before the kernel's first request.
//!             O2 all written data is published before `ended` is true.
//!             O3 after an unmount all handles and inode references of the kernel are released, whoever unmounted.
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

/// How often files that stay open after a write are published.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// What `status` and metrics show of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountedState {
    pub open_files: usize,
    pub open_directories: usize,
    pub ended: bool,
}

/// A mount that answers requests. Dropping it detaches it.
#[derive(Debug)]
pub struct Mounted {
    door: Arc<Door>,
    session: Arc<Session>,
    metrics: Arc<Metrics>,
    beside: Arc<Beside>,
    /// The mount was removed from its path; another mount may be there by now.
    unmounted: AtomicBool,
}

/// State shared with the threads beside a session.
#[derive(Debug, Default)]
struct Beside {
    stop: AtomicBool,
    published: AtomicBool,
}

impl Mounted {
    /// Mounts and starts to answer; calls `made` once the mount exists.
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
        // From here on notices are queued, including those of changes before the kernel's first request.
        let watcher = Arc::new(mount.watch());
        let session = Session::mount(Arc::clone(&door), &metrics, path, options, env, made)?;
        let session = Arc::new(session);
        door.begin(session.kernel());
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

    /// The session has ended and all written data is published.
    pub fn ended(&self) -> bool {
        self.beside.published.load(Ordering::Acquire)
    }

    /// After the mount was removed everywhere: waits up to `longest` for the session to end and publishes written data.
    /// False when files are still open; data written to them later is lost if the server exits before they are closed.
    pub fn end(self, longest: Duration) -> bool {
        let ended = self.session.wait(longest);
        self.publish();
        self.unmounted.store(true, Ordering::Release);
        if ended {
            give_up(&self.door, self.path());
        }
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

/// Lets other servers mount it to write, now that nothing is written here any more.
fn give_up(door: &Door, path: &Path) {
    if let Err(error) = door.mount.give_up() {
        tracing::warn!(%error, path = %path.display(), "other servers can mount it to write once this one has ended");
    }
}

/// Publishes written data every second, and all of it at the end.
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
            give_up(door, session.path());
        }
        if last {
            beside.published.store(true, Ordering::Release);
            return;
        }
    }
}
