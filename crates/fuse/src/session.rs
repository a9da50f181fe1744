//! The session with the kernel: mounting, threads that answer, unmounting.
//!
//! Why:        the only module that knows the transport, today fuser over /dev/fuse.
//! Invariants: S1 the mount has left the mount namespace before `Session` reports that it ended.
//!             S2 a session ends when anybody unmounts it.
//! Locking:    one lock over the end of the session, held for one step.
//! Not here:   what requests mean (operations).

mod adapter;
mod capabilities;
mod convert;
mod locks;
mod reply;
mod teller;
mod waiting_locks;
mod waits;
mod work;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{MountOption, SessionACL};
use margay_env::Env;
use parking_lot::{Condvar, Mutex};

use crate::absent::AbsentNames;
pub use crate::absent::KEEP_ABSENT_TIME_MAX;
use crate::metrics::Metrics;
use crate::mount_point;
use crate::protocol::{Kernel, Operations};
use teller::Teller;
use work::Adapter;

/// Largest request with data, in bytes; the kernel's own limit.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// The kernel's read-ahead, in bytes: enough to keep all answering threads and the disk busy.
pub const READ_AHEAD_BYTES: u32 = 8 << 20;
/// Requests that the kernel issues by itself (read-ahead, writeback) at once.
pub const BACKGROUND_MAX: u16 = 64;
/// Default number of threads that answer.
pub const THREADS: usize = 4;
/// Default number of inodes that the kernel may know.
pub const KNOWN_FILES_MAX: usize = 1_000_000;

/// How to mount.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What `mount` shows as the source.
    pub source: String,
    pub read_only: bool,
    /// Users other than the one who runs the server may use the mount.
    pub allow_other: bool,
    /// The kernel collects small writes and tracks file sizes itself until it writes them back.
    pub writeback: bool,
    /// Set-user-id bits are honoured.
    pub suid: bool,
    /// Device files work.
    pub dev: bool,
    /// No program on the mount can be executed.
    pub no_exec: bool,
    pub threads: usize,
    /// Metadata is on another machine: any request may hold its thread for long.
    pub waits: bool,
    /// Other processes change the same files.
    pub is_of_several: bool,
    /// The operations are asked for locks, since others must see them; else the kernel has them alone.
    pub asks_for_locks: bool,
    /// Inodes that the kernel may know before the pruner asks it to forget some.
    pub known_files_max: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            source: "margay".to_owned(),
            read_only: false,
            allow_other: mount_point::may_mount(),
            writeback: false,
            suid: false,
            dev: false,
            no_exec: false,
            threads: THREADS,
            waits: false,
            is_of_several: false,
            asks_for_locks: false,
            known_files_max: KNOWN_FILES_MAX,
        }
    }
}

/// Why a mount failed; each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(
        "there is no /dev/fuse: load the kernel module (modprobe fuse), or give the container the device and the right (--device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoDevice,
    #[error("/dev/fuse cannot be opened: {0}; run as root, or let this user open it")]
    DeviceRefused(io::Error),
    #[error(
        "this process may not mount: run it as root or with CAP_SYS_ADMIN (a container: --device /dev/fuse --cap-add SYS_ADMIN), \
         or install fusermount3 (package fuse3)"
    )]
    NoHelper,
    #[error("{0} cannot be mounted on: {1}")]
    BadPlace(PathBuf, io::Error),
    #[error("the kernel refused to mount on {path}: {error}{}", hint(error))]
    Refused { path: PathBuf, error: io::Error },
}

fn hint(error: &io::Error) -> &'static str {
    let text = error.to_string();
    if text.contains("user_allow_other") {
        "; add user_allow_other to /etc/fuse.conf or leave allow_other out"
    } else if error.kind() == io::ErrorKind::PermissionDenied || text.contains("not permitted") {
        "; run as root or with CAP_SYS_ADMIN, and in a container where AppArmor is in force with --security-opt apparmor=unconfined"
    } else {
        ""
    }
}

#[derive(Debug, Default)]
struct End {
    ended: Mutex<bool>,
    changed: Condvar,
}

/// One mount that answers requests.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    notifier: fuser::Notifier,
    device: Arc<OwnedFd>,
    end: Arc<End>,
}

impl Session {
    /// Mounts on an existing directory and starts to answer. A dead mount on it is detached first. `mounted` is called
    /// after the mount exists and before any request can have been answered.
    pub fn mount<O: Operations>(
        operations: Arc<O>,
        metrics: &Arc<Metrics>,
        path: &Path,
        options: &SessionOptions,
        env: &Env,
        mounted: &dyn Fn(),
    ) -> Result<Session, MountError> {
        mount_point::clear_dead(path).map_err(|error| MountError::BadPlace(path.to_owned(), error))?;
        check_place(path)?;
        check_device()?;
        let absent = Arc::new(AbsentNames::default());
        let adapter = Adapter::new(operations, Arc::clone(metrics), options, Arc::clone(&absent), env);
        let refused = |error| MountError::Refused { path: path.to_owned(), error };
        let session = fuser::Session::new(adapter, path, &config(options)).map_err(refused)?;
        mounted();
        let notifier = session.notifier();
        let device = Arc::new(session.as_fd().try_clone_to_owned().map_err(refused)?);
        let end = Arc::new(End::default());
        let seen = Arc::clone(&end);
        let place = path.to_owned();
        let run = move || {
            if let Err(error) = session.run() {
                tracing::error!(%error, path = %place.display(), "the session with the kernel broke off");
            }
            *seen.ended.lock() = true;
            seen.changed.notify_all();
        };
        std::thread::Builder::new().name("fuse-session".to_owned()).spawn(run).map_err(refused)?;
        mount_point::set_read_ahead(env, path, READ_AHEAD_BYTES);
        let session = Session { path: path.to_owned(), notifier, device, end };
        session.try_absent_names(&absent);
        Ok(session)
    }

    fn try_absent_names(&self, absent: &AbsentNames) {
        use rustix::fs::{AtFlags, Mode, OFlags};
        absent.try_kernel(&*self.kernel(), &|name| {
            let root = rustix::fs::open(&self.path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            match rustix::fs::statat(&root, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The handle that invalidates the kernel's caches.
    pub fn kernel(&self) -> Box<dyn Kernel> {
        Box::new(Teller { notifier: self.notifier.clone(), device: Arc::clone(&self.device) })
    }

    pub fn ended(&self) -> bool {
        *self.end.ended.lock()
    }

    /// Waits for the end of the session; false on timeout.
    pub fn wait(&self, longest: Duration) -> bool {
        let mut ended = self.end.ended.lock();
        if !*ended {
            self.end.changed.wait_while_for(&mut ended, |ended| !*ended, longest);
        }
        *ended
    }
}

fn config(options: &SessionOptions) -> fuser::Config {
    let mut config = fuser::Config::default();
    let either = |on: bool, yes: MountOption, no: MountOption| if on { yes } else { no };
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        // fuser drops its own `Subtype` when it mounts without the helper.
        MountOption::CUSTOM("subtype=margay".to_owned()),
        MountOption::DefaultPermissions,
        either(options.read_only, MountOption::RO, MountOption::RW),
        either(options.suid, MountOption::Suid, MountOption::NoSuid),
        either(options.dev, MountOption::Dev, MountOption::NoDev),
        either(options.no_exec, MountOption::NoExec, MountOption::Exec),
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

fn check_place(path: &Path) -> Result<(), MountError> {
    let bad = |error| MountError::BadPlace(path.to_owned(), error);
    let status = rustix::fs::stat(path).map_err(|error| bad(error.into()))?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::Directory {
        return Err(bad(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    Ok(())
}

/// Without the right to mount the helper is needed, and the device always.
fn check_device() -> Result<(), MountError> {
    use rustix::fs::{Mode, OFlags};
    match rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {}
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::NXIO) => {
            return Err(MountError::NoDevice);
        }
        Err(error) => return Err(MountError::DeviceRefused(error.into())),
    }
    if !mount_point::may_mount() && mount_point::helper().is_none() {
        return Err(MountError::NoHelper);
    }
    Ok(())
}
