//! The directory that is the cache of a far bucket: whose it is, and who has it open.
//!
//! Why:        changes in it are on their way to one bucket, so it belongs to that one for ever.
//! Invariants: C1 a cache is claimed for a bucket only after the bucket was reached: a mount that failed leaves no claim.
//!                One that was claimed is known to be of the bucket also while that does not answer.
//!             C2 a process that has unmounted and still sends is waited for, and not one that is mounted.
//! Not here:   what is in it (margay-upstream).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_client::target::plain_endpoint;
use margay_env::{Env, files};

use super::{
    CACHE_FILE, CACHE_FORMAT_VERSION, CACHE_SERVED_FILE, DataDir, DataDirError, FORMAT_VERSION, SMALL_FILE_BYTES_MAX,
    check_format, lock, mark,
};
use crate::connections;

/// How long a process that still sends is waited for.
const SENDING_TIME_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether it has ended.
const SENDING_LOOK_EVERY: Duration = Duration::from_millis(50);

/// A locked cache of this bucket, or a directory that can become it.
#[derive(Debug)]
pub struct LockedCache {
    dir: DataDir,
    source: String,
    is_marked: bool,
}

impl DataDir {
    /// Locks a directory for a bucket; it may be new. A process that still sends from it is waited for, and `tell` says so.
    pub fn lock_cache(
        env: &Env,
        path: &Path,
        source: &str,
        tell: &mut dyn FnMut(String),
    ) -> Result<LockedCache, DataDirError> {
        lock_within(env, path, source, (SENDING_TIME_MAX, tell))
    }

    /// Locks a cache that is there, without waiting. Returns its own text.
    pub fn open_cache(env: &Env, path: &Path, source: &str) -> Result<(DataDir, String), DataDirError> {
        lock_within(env, path, source, (Duration::ZERO, &mut |_| {}))?.claim()
    }
}

fn lock_within(
    env: &Env,
    path: &Path,
    source: &str,
    patience: (Duration, &mut dyn FnMut(String)),
) -> Result<LockedCache, DataDirError> {
    let fail = |error| DataDirError::Io { path: path.to_owned(), error };
    env.disk.create_private_dir(path).map_err(fail)?;
    // Before the lock, which puts a file there.
    cache_format(env, path)?;
    let dir = await_lock(env, path, patience)?;
    let is_marked = cache_format(env, path)?.is_some();
    if env.disk.exists(&path.join(CACHE_FILE)).map_err(fail)? {
        let (of, _) = cache_of(env, path).map_err(fail)?;
        if plain_source(&of) != plain_source(source) {
            return Err(DataDirError::OtherCache { path: path.to_owned(), of, wanted: source.to_owned() });
        }
    }
    Ok(LockedCache { dir, source: source.to_owned(), is_marked })
}

impl LockedCache {
    /// Whether it was claimed: the bucket was reached before.
    pub fn is_known(&self) -> Result<bool, DataDirError> {
        let DataDir { env, path, .. } = &self.dir;
        let is_there = env.disk.exists(&path.join(CACHE_FILE));
        is_there.map_err(|error| DataDirError::Io { path: path.clone(), error })
    }

    /// The cache is of its bucket from now on. Returns a text of its own, the same each time.
    pub fn claim(self) -> Result<(DataDir, String), DataDirError> {
        let LockedCache { dir, source, is_marked } = self;
        let path = dir.path.clone();
        let fail = |error| DataDirError::Io { path: path.clone(), error };
        let file = path.join(CACHE_FILE);
        if !dir.env.disk.exists(&file).map_err(fail)? {
            let mut id = [0; 8];
            dir.env.random.fill(&mut id);
            let text = format!("{source}\n{}\n", base16ct::lower::encode_string(&id));
            files::write_new(&dir.env, &file, text.as_bytes()).map_err(fail)?;
        }
        let (_, id) = cache_of(&dir.env, &path).map_err(fail)?;
        if !is_marked {
            mark(&dir.env, &path, CACHE_FORMAT_VERSION).map_err(fail)?;
        }
        Ok((dir, id))
    }
}

/// Refuses a directory that is no cache yet, before anything is made.
pub fn check_cache(env: &Env, path: &Path) -> Result<(), DataDirError> {
    let fail = |error| DataDirError::Io { path: path.to_owned(), error };
    let is_there = env.disk.exists(path).map_err(fail)? && cache_format(env, path)?.is_some();
    if is_there { Ok(()) } else { Err(DataDirError::NoCache(path.to_owned())) }
}

/// Waits until nobody sends from a cache; an error if somebody has it mounted, or sends for too long. A directory that can
/// be no cache is refused before anything is made in it.
pub fn await_cache(env: &Env, path: &Path, tell: &mut dyn FnMut(String)) -> Result<(), DataDirError> {
    let fail = |error| DataDirError::Io { path: path.to_owned(), error };
    if env.disk.exists(path).map_err(fail)? {
        cache_format(env, path)?;
    }
    if env.disk.exists(&path.join("lock")).map_err(fail)? {
        drop(await_lock(env, path, (SENDING_TIME_MAX, tell))?);
    }
    Ok(())
}

/// The bucket of a cache, and its own text.
pub(super) fn cache_of(env: &Env, path: &Path) -> io::Result<(String, String)> {
    let text = files::read(env, &path.join(CACHE_FILE), SMALL_FILE_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::to_owned);
    Ok((lines.next().unwrap_or_default(), lines.next().unwrap_or_default()))
}

/// Whether a directory is the cache of this bucket and its endpoint: the bucket was reached with it before.
pub fn is_cache_of(env: &Env, path: &Path, source: &str) -> bool {
    cache_of(env, path).is_ok_and(|(of, _)| plain_source(&of) == plain_source(source))
}

/// The bucket of a cache and its endpoint, as it was claimed for them.
pub fn cache_source(env: &Env, path: &Path) -> io::Result<String> {
    Ok(cache_of(env, path)?.0)
}

/// Whether a process has the directory open.
pub fn is_in_use(env: &Env, path: &Path) -> bool {
    matches!(env.disk.lock(&path.join("lock")), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// `None`: it is new.
fn cache_format(env: &Env, path: &Path) -> Result<Option<u32>, DataDirError> {
    match check_format(env, path) {
        Ok(Some(FORMAT_VERSION)) => Err(DataDirError::ServedCache(path.to_owned())),
        Err(DataDirError::Foreign(path, name)) => Err(DataDirError::ForeignCache(path, name)),
        Err(DataDirError::Unreadable(path, text)) => Err(DataDirError::UnreadableCache(path, text)),
        found => found,
    }
}

/// Waits for the lock for so long, and tells once that it does.
fn await_lock(
    env: &Env,
    path: &Path,
    (time_max, tell): (Duration, &mut dyn FnMut(String)),
) -> Result<DataDir, DataDirError> {
    let deadline = env.clock.monotonic() + time_max;
    let mut is_told = false;
    loop {
        let holder = match lock(env, path) {
            Err(DataDirError::Locked(_, holder)) => holder,
            Ok(dir) => {
                // Left by a process that was killed.
                let _ = env.disk.remove(&path.join(CACHE_SERVED_FILE));
                return Ok(dir);
            }
            done => return done,
        };
        let path = PathBuf::from(path);
        if connections::is_mounted(env, &path) {
            return Err(DataDirError::MountedCache(path, holder));
        }
        if let Ok(endpoint) = files::read(env, &path.join(CACHE_SERVED_FILE), SMALL_FILE_BYTES_MAX) {
            return Err(DataDirError::ServedNow(path, holder, String::from_utf8_lossy(&endpoint).into_owned()));
        }
        if env.clock.monotonic() >= deadline {
            return Err(DataDirError::SendingCache(path, holder));
        }
        if !is_told {
            is_told = true;
            let seconds = time_max.as_secs();
            let path = path.display();
            tell(format!("the cache {path} is still in use{holder}, to send what is left; waiting up to {seconds} s"));
        }
        env.clock.sleep(SENDING_LOOK_EVERY);
    }
}

/// Two ways to write one endpoint are the same source.
fn plain_source(source: &str) -> String {
    match source.rsplit_once(' ') {
        Some((place, endpoint)) => {
            format!("{place} {}", plain_endpoint(endpoint).unwrap_or_else(|_| endpoint.to_owned()))
        }
        None => source.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test lays out the disk as a user would")]
mod tests {
    use super::*;

    fn open(path: &Path, source: &str) -> Result<String, DataDirError> {
        DataDir::lock_cache(&Env::real(), path, source, &mut |_| {})?.claim().map(|(_, id)| id)
    }

    #[test]
    fn a_cache_belongs_to_one_bucket_and_no_server_serves_it() {
        let folder = tempfile::tempdir().unwrap();
        let id = open(folder.path(), "s3://b/p https://s3.example").unwrap();
        assert_eq!((id.len(), open(folder.path(), "s3://b/p https://S3.example:443/").unwrap()), (16, id));
        for other in ["s3://other https://s3.example", "s3://b/p http://s3.example", "s3://b/p https://s3.example:444"]
        {
            assert!(matches!(open(folder.path(), other), Err(DataDirError::OtherCache { .. })), "{other}");
        }
        let refused = DataDir::open_or_create(&Env::real(), folder.path()).unwrap_err().to_string();
        assert!(refused.contains("margay mount s3://b/p DIR --cache"), "{refused}");
        let served = tempfile::tempdir().unwrap();
        drop(DataDir::open_or_create(&Env::real(), served.path()).unwrap());
        let foreign = tempfile::tempdir().unwrap();
        std::fs::write(foreign.path().join("letter"), "").unwrap();
        for other in [served.path(), foreign.path()] {
            assert!(await_cache(&Env::real(), other, &mut |_| {}).is_err());
            let refused = open(other, "s3://b").unwrap_err().to_string();
            assert!(refused.contains("--cache DIR") && !refused.contains("--data"), "{refused}");
        }
    }

    #[test]
    fn a_mount_that_failed_claims_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        assert!(matches!(check_cache(&Env::real(), &path), Err(DataDirError::NoCache(_))));
        let locked = DataDir::lock_cache(&Env::real(), &path, "s3://b/p https://s3.example", &mut |_| {}).unwrap();
        assert!(!locked.is_known().unwrap());
        drop(locked);
        assert!(matches!(check_cache(&Env::real(), &path), Err(DataDirError::NoCache(_))));
        open(&path, "s3://other https://s3.example").unwrap();
        check_cache(&Env::real(), &path).unwrap();
        let known = DataDir::lock_cache(&Env::real(), &path, "s3://other https://s3.example", &mut |_| {}).unwrap();
        assert!(known.is_known().unwrap());
        let is_of = |source| is_cache_of(&Env::real(), &path, source);
        assert!(is_of("s3://other https://s3.example:443") && !is_of("s3://b/p https://s3.example"));
    }

    #[test]
    fn who_still_sends_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let source = "s3://b/p https://s3.example";
        let (held, _) = DataDir::lock_cache(&env, folder.path(), source, &mut |_| {}).unwrap().claim().unwrap();
        let mut held = Some(held);
        let mut told = Vec::new();
        // It ends as soon as it is waited for.
        await_cache(&env, folder.path(), &mut |line| {
            told.push(line);
            held = None;
        })
        .unwrap();
        let process = std::process::id().to_string();
        assert!(told.len() == 1 && told[0].contains(&process), "{told:?}");
    }
}
