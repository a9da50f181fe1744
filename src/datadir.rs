//! The data directory: recognized, locked, marked with its format.
//!
//! Layout:     `cache` is for the directory of a far bucket, `shared` for that of a server whose rows are in PostgreSQL. `<data>/{format, lock, keys, encryption-keys, sync-failed, control, connections, segments/, tree/}`, see
//!             docs/format/directory.md.
//! Invariants: D1 a directory that is not empty and lacks our format file is never written to.
//!             D2 one process at a time holds `lock`, for as long as its `DataDir` lives.
//!             D3 a failed sync leaves a note; the next opening that finds it rewrites the files.
//!             D4 a newer format is refused before anything is read or written.
//! Durability: the format file is written, synced and renamed into place before anything else is created.
//! Not here:   the keys (margay-accounts), the content of `segments/` and `tree/`.

pub mod cache;
pub mod moving;
mod shared;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_disks::{DiskWish, Disks, DisksError};
use margay_env::fault::FaultNote;
use margay_env::files;
use margay_env::{Env, LockHandle};

use self::cache::cache_of;
use crate::connections;
use crate::exit::Failure;

/// The newest format that this program reads and writes.
pub const FORMAT_VERSION: u32 = 1;
/// The format of a directory that is the cache of a far bucket. Its changes are on their way to the bucket, so only a program
/// that notes them may open it; older ones refuse the number.
const CACHE_FORMAT_VERSION: u32 = 2;
/// The format of a directory with segments whose rows are in PostgreSQL. Who takes it for a whole volume would find no row for any
/// of them, so older programs refuse the number.
const SHARED_FORMAT_VERSION: u32 = 3;
/// The format of a directory whose files have copies in others. A program that does not know of them would change this one alone.
const DISKS_FORMAT_VERSION: u32 = 4;
/// The format of a directory whose rows are on their way into PostgreSQL, and may be there or not.
const MOVING_FORMAT_VERSION: u32 = 5;
/// Names the bucket of a cache.
const CACHE_FILE: &str = "upstream";
/// The address at which a cache is served over S3.
pub const CACHE_SERVED_FILE: &str = "served";
/// The log of a mount in the background.
pub const CACHE_LOG_FILE: &str = "log";
/// First words of the format file.
const FORMAT_MAGIC: &str = "margay data directory, format ";
/// Names that an unmarked directory may hold: from an interrupted first start, of a fresh file system, or keys placed
/// there in advance.
const HARMLESS: [&str; 13] = [
    "lock",
    "format.new",
    "lost+found",
    FAULT_NOTE,
    margay_accounts::encryption_keys::FILE,
    margay_accounts::root_keys::FILE,
    margay_accounts::identities::KEY_FILE,
    CACHE_FILE,
    "upstream.new",
    CACHE_LOG_FILE,
    "disk-id",
    "disk-id.new",
    "disks.new",
];
/// Exists after a failed sync.
const FAULT_NOTE: &str = "sync-failed";
/// Files of the program that a failed sync may have kept from the disk.
const SMALL_FILES: [&str; 4] =
    ["format", "keys", margay_accounts::encryption_keys::FILE, margay_accounts::identities::KEY_FILE];
/// For a server that was killed and is not gone yet.
const DYING_TIME_MAX: Duration = Duration::from_secs(10);
/// How often to check whether it has exited.
const DYING_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum size of a small file, in bytes.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error(
        "{0} is in use by another margay{1}, a server or a command like compact; stop that one or wait until it has ended, or \
         give this one its own directory with --data DIR"
    )]
    Locked(PathBuf, String),
    #[error(
        "{0} is not empty and is no margay data directory (it holds {1:?} and no format file); \
         choose an empty or new directory with --data DIR"
    )]
    Foreign(PathBuf, String),
    #[error("{0} is the cache of {1}; use it with: margay mount {1} DIR --cache {0}")]
    Cache(PathBuf, String),
    #[error(
        "{0} has segments of a volume whose rows are in PostgreSQL: add --metadata postgres://... (a command without it: --set \
         metadata=postgres://...)"
    )]
    Shared(PathBuf),
    #[error(
        "{0} is being moved into PostgreSQL, and that has not ended: run margay cluster adopt --data {0} --metadata postgres://... again"
    )]
    Moving(PathBuf),
    #[error(
        "{0} has copies in other directories (margay disk ls): such a volume is not moved into PostgreSQL; put its objects into a new one"
    )]
    HasDisks(PathBuf),
    #[error("{0} is one of a volume in PostgreSQL already: start it with margay serve --metadata postgres://...")]
    Moved(PathBuf),
    #[error(
        "{0} holds a volume of its own; move it into PostgreSQL with margay cluster adopt, or choose an empty or new directory with --data DIR for one in PostgreSQL"
    )]
    NotShared(PathBuf),
    #[error("the cache {0} is in use{1}: unmount that mount, or name another directory with --cache DIR")]
    MountedCache(PathBuf, String),
    #[error(
        "the cache {0} is in use{1}, which serves it at {2}: stop that process, or name another directory with --cache DIR"
    )]
    ServedNow(PathBuf, String, String),
    #[error(
        "the cache {0} is still in use{1}, to send what is left: wait until that has ended; its log is {0}/{CACHE_LOG_FILE}"
    )]
    SendingCache(PathBuf, String),
    #[error("there is no cache in {0}: name the one of the mount with --cache DIR")]
    NoCache(PathBuf),
    #[error("{0} is the data directory of a server, not a cache; name another directory with --cache DIR")]
    ServedCache(PathBuf),
    #[error("{0} is not empty and is no cache (it holds {1:?}); name an empty or new directory with --cache DIR")]
    ForeignCache(PathBuf, String),
    #[error(
        "{0} has a format file that cannot be read ({1:?}); restore it, or name another directory with --cache DIR"
    )]
    UnreadableCache(PathBuf, String),
    #[error("{path} is the cache of {of}, not of {wanted}; choose another directory with --cache DIR")]
    OtherCache { path: PathBuf, of: String, wanted: String },
    #[error("{0} has format {1}, this margay reads up to {FORMAT_VERSION}; start it with a newer margay")]
    Newer(PathBuf, u32),
    #[error(
        "{0} has a format file that cannot be read ({1:?}); restore it, or choose another directory with --data DIR"
    )]
    Unreadable(PathBuf, String),
    #[error("{0} does not exist; name an existing data directory with --data DIR")]
    Absent(PathBuf),
    #[error(transparent)]
    Disks(#[from] DisksError),
    #[error("{path} cannot be used: {error}; {}", files::remedy(error))]
    Io { path: PathBuf, error: io::Error },
}

impl From<DataDirError> for Failure {
    fn from(error: DataDirError) -> Failure {
        match error {
            DataDirError::Io { .. } | DataDirError::Disks(DisksError::Io(..)) => Failure::failed(error.to_string()),
            _ => Failure::refused(error.to_string()),
        }
    }
}

/// A locked data directory of a known format.
#[derive(Debug)]
pub struct DataDir {
    pub path: PathBuf,
    /// Ports for all files in the directory: failed syncs leave a note in it.
    pub env: Env,
    note: Arc<FaultNote>,
    /// A sync failed in an earlier process, so data in the page cache need not be on the disk.
    pub after_fault: bool,
    /// Other directories of the volume.
    pub disks: Option<Disks>,
    lock: Option<Box<dyn LockHandle>>,
}

impl DataDir {
    /// Creates the directory if it is absent or empty, and locks it.
    pub fn open_or_create(env: &Env, path: &Path) -> Result<DataDir, DataDirError> {
        DataDir::open_or_create_with(env, path, &DiskWish::default())
    }

    /// As `open_or_create`, with copies in other directories.
    pub fn open_or_create_with(env: &Env, path: &Path, wanted: &DiskWish) -> Result<DataDir, DataDirError> {
        open_or_mark(env, path, FORMAT_VERSION, wanted, check_owner)
    }

    /// Whether this is a data directory already, of whatever format.
    pub fn is_marked(env: &Env, path: &Path) -> bool {
        env.disk.exists(&path.join("format")).unwrap_or(false)
    }

    /// Keeps the lock until this process ends. Who stops without waiting for all of its threads may still write after this
    /// value is dropped, and another process that waits for the lock must not begin before that.
    pub fn lock_until_exit(&mut self) {
        std::mem::forget(self.lock.take());
    }

    /// Called once all doubtful data after a failed sync was rewritten; removes the note.
    pub fn trust(&self) -> io::Result<()> {
        self.note.clear()
    }

    /// Locks an existing directory.
    pub fn open(env: &Env, path: &Path) -> Result<DataDir, DataDirError> {
        let fail = |error| DataDirError::Io { path: path.to_owned(), error };
        if !env.disk.exists(&path.join("format")).map_err(fail)? && !Disks::has(env, path).map_err(fail)? {
            if env.disk.exists(path).map_err(fail)? {
                check_owner(env, path)?;
            }
            return Err(DataDirError::Absent(path.to_owned()));
        }
        check_owner(env, path)?;
        let dir = lock(env, path)?;
        check_owner(env, path)?;
        with_disks(env, dir, &DiskWish::default())
    }

    /// The folder of segment files.
    pub fn segments(&self) -> PathBuf {
        self.path.join("segments")
    }

    /// The folder of the engine's tree file.
    pub fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }
}

/// Creates the directory if it is absent, locks it if `check` has no objection, and gives a new one this format.
fn open_or_mark(
    env: &Env,
    path: &Path,
    format: u32,
    wanted: &DiskWish,
    check: impl Fn(&Env, &Path) -> Result<(), DataDirError>,
) -> Result<DataDir, DataDirError> {
    let fail = |error| DataDirError::Io { path: path.to_owned(), error };
    env.disk.create_private_dir(path).map_err(fail)?;
    check(env, path)?;
    let dir = lock(env, path)?;
    // Another process may have moved it, or made it something else, before it was locked.
    check(env, path)?;
    let dir = if format == FORMAT_VERSION { with_disks(env, dir, wanted)? } else { dir };
    if !dir.env.disk.exists(&path.join("format")).map_err(fail)? {
        mark(&dir.env, path, format).map_err(fail)?;
    }
    Ok(dir)
}

/// Opens the other directories of the volume of a locked one.
fn with_disks(env: &Env, dir: DataDir, wanted: &DiskWish) -> Result<DataDir, DataDirError> {
    let path = &*dir.path.clone();
    let fail = |error| DataDirError::Io { path: path.to_owned(), error };
    let is_one_of_several = check_format(env, path)? == Some(DISKS_FORMAT_VERSION);
    let mirror = wanted.mirror.as_deref().unwrap_or(path);
    if is_one_of_several && !Disks::has(env, path).map_err(fail)? && !Disks::has(env, mirror).map_err(fail)? {
        return Err(DisksError::NoRecord(path.to_owned()).into());
    }
    let Some(disks) = Disks::open(env, path, wanted)? else { return Ok(dir) };
    let DataDir { lock, .. } = dir;
    let dir = watch(&disks.env(env), path, lock).map_err(fail)?;
    let version = files::read(&dir.env, &path.join("format"), 4096).ok();
    let is_marked = version.is_some_and(|text| text == format!("{FORMAT_MAGIC}{DISKS_FORMAT_VERSION}\n").as_bytes());
    if !is_marked {
        mark(&dir.env, path, DISKS_FORMAT_VERSION).map_err(fail)?;
    }
    Ok(DataDir { disks: Some(disks), ..dir })
}

/// Refuses a foreign directory, and a cache, before a byte is written to it.
fn check_owner(env: &Env, path: &Path) -> Result<(), DataDirError> {
    match check_format(env, path)? {
        Some(CACHE_FORMAT_VERSION) => {
            let of = cache_of(env, path).map(|(of, _)| of).unwrap_or_default();
            Err(DataDirError::Cache(path.to_owned(), of.split_whitespace().next().unwrap_or_default().to_owned()))
        }
        Some(SHARED_FORMAT_VERSION) => Err(DataDirError::Shared(path.to_owned())),
        Some(MOVING_FORMAT_VERSION) => Err(DataDirError::Moving(path.to_owned())),
        _ => Ok(()),
    }
}

/// The format of a directory; `None`: it is new.
fn check_format(env: &Env, path: &Path) -> Result<Option<u32>, DataDirError> {
    let fail = |error| DataDirError::Io { path: path.to_owned(), error };
    let format = path.join("format");
    if !env.disk.exists(&format).map_err(fail)? {
        // One that is being filled from another directory.
        if Disks::has(env, path).map_err(fail)? {
            return Ok(None);
        }
        let entries = env.disk.list(path).map_err(fail)?;
        let foreign = entries.iter().map(|entry| entry.name.as_str()).filter(|name| !HARMLESS.contains(name)).min();
        return match foreign {
            Some(name) => Err(DataDirError::Foreign(path.to_owned(), name.to_owned())),
            None => Ok(None),
        };
    }
    let bytes = files::read(env, &format, 4096).map_err(fail)?;
    let text = String::from_utf8_lossy(&bytes);
    let version = text.strip_prefix(FORMAT_MAGIC).and_then(|rest| rest.trim_end().parse::<u32>().ok());
    match version {
        None | Some(0) => Err(DataDirError::Unreadable(path.to_owned(), text.chars().take(40).collect())),
        Some(version) if version > MOVING_FORMAT_VERSION => Err(DataDirError::Newer(path.to_owned(), version)),
        Some(version) => Ok(Some(version)),
    }
}

fn lock(env: &Env, path: &Path) -> Result<DataDir, DataDirError> {
    let file = path.join("lock");
    match take_lock(env, path, &file) {
        Ok(lock) => {
            // The previous owner of these mounts is gone.
            connections::cut_left(env, path);
            // Only for the message of a second server; without it that line lacks the process id.
            let _ = files::replace_content(env, &file, format!("{}\n", std::process::id()).as_bytes());
            watch(env, path, Some(lock)).map_err(|error| DataDirError::Io { path: path.to_owned(), error })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let holder = files::read(env, &file, 64).unwrap_or_default();
            let holder = String::from_utf8_lossy(&holder).trim().parse::<u32>();
            let holder = holder.map_or(String::new(), |process| format!(" (process {process})"));
            Err(DataDirError::Locked(path.to_owned(), holder))
        }
        Err(error) => Err(DataDirError::Io { path: path.to_owned(), error }),
    }
}

/// Aborts the mounts of a dying server that hangs in them, and waits for it to exit.
fn take_lock(env: &Env, path: &Path, file: &Path) -> io::Result<Box<dyn LockHandle>> {
    let deadline = env.clock.monotonic() + DYING_TIME_MAX;
    loop {
        match env.disk.lock(file) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if env.clock.monotonic() >= deadline || !connections::cut_of_dying(env, path) {
                    return Err(error);
                }
                env.clock.sleep(DYING_LOOK_EVERY);
            }
            done => return done,
        }
    }
}

/// From here on failed syncs leave a note; small files that an earlier failure left in doubt are rewritten.
fn watch(env: &Env, path: &Path, lock: Option<Box<dyn LockHandle>>) -> io::Result<DataDir> {
    let (env, note) = FaultNote::watch(env, &path.join(FAULT_NOTE));
    let found = note.found()?;
    if let Some(what) = &found {
        tracing::warn!(%what, "a sync failed when this directory was last in use: what it left unsure is written again");
        for name in SMALL_FILES {
            let file = path.join(name);
            if env.disk.exists(&file)? {
                files::write_new(&env, &file, &files::read(&env, &file, SMALL_FILE_BYTES_MAX)?)?;
            }
        }
    }
    Ok(DataDir { path: path.to_owned(), env, note, after_fault: found.is_some(), disks: None, lock })
}

fn mark(env: &Env, path: &Path, version: u32) -> io::Result<()> {
    files::write_new(env, &path.join("format"), format!("{FORMAT_MAGIC}{version}\n").as_bytes())?;
    // The directory's own name, so that a power loss does not remove it.
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => env.disk.sync_dir(parent),
        Some(_) => env.disk.sync_dir(Path::new(".")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test lays out the disk as a user would")]
mod tests {
    use super::*;

    fn start(path: &Path) -> Result<DataDir, DataDirError> {
        DataDir::open_or_create(&Env::real(), path)
    }

    #[test]
    fn a_new_directory_is_marked_locked_and_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        assert!(matches!(DataDir::open(&Env::real(), &path), Err(DataDirError::Absent(_))));
        let first = start(&path).unwrap();
        let error = start(&path).unwrap_err();
        assert!(matches!(&error, DataDirError::Locked(..)));
        let line = error.to_string();
        assert!(line.contains(&std::process::id().to_string()) && line.contains("--data DIR"), "{line}");
        assert!(!line.contains('\n'));
        drop(first);
        drop(start(&path).unwrap());
        drop(DataDir::open(&Env::real(), &path).unwrap());
        assert_eq!(std::fs::read_to_string(path.join("format")).unwrap(), "margay data directory, format 1\n");
    }

    #[test]
    fn a_new_directory_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        drop(start(&path).unwrap());
        let rights = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(rights(&path), 0o700);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        drop(start(&path).unwrap());
        assert_eq!(rights(&path), 0o750, "its rights are the owner's choice");
    }

    #[test]
    fn a_foreign_directory_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("photos")).unwrap();
        assert!(matches!(start(folder.path()), Err(DataDirError::Foreign(_, name)) if name == "photos"));
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["photos"]);
    }

    #[test]
    fn a_first_start_that_was_cut_short_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["lock", "format.new"] {
            std::fs::File::create(folder.path().join(name)).unwrap();
        }
        start(folder.path()).unwrap();
    }

    #[test]
    fn newer_and_unreadable_formats_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mark = |text: &str| std::fs::write(folder.path().join("format"), text).unwrap();
        mark("margay data directory, format 6\n");
        assert!(matches!(start(folder.path()), Err(DataDirError::Newer(_, 6))));
        mark("margay data directory, format 4\n");
        for opened in [start(folder.path()), DataDir::open(&Env::real(), folder.path())] {
            assert!(matches!(opened, Err(DataDirError::Disks(DisksError::NoRecord(_)))), "its list is not there");
        }
        for text in ["", "margay data directory, format 0\n", "PK\u{3}\u{4}", "margay data directory, format x"] {
            mark(text);
            assert!(matches!(start(folder.path()), Err(DataDirError::Unreadable(..))), "{text:?}");
        }
    }
}
