//! Looks at a directory of the mount whose files expire, so that the kernel knows all of them: names, attributes, pages.
//!
//! Why:      expiry takes objects away that nobody asked about; a kernel that was not told goes on showing them.
//! Not here: what lies there (upkeep).

#![allow(clippy::disallowed_methods, reason = "the mount is looked at as any program does")]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Failure, fail};

const PAUSE: Duration = Duration::from_millis(15);

#[derive(Debug)]
pub(super) struct Watcher {
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64, Failure>>>,
}

impl Watcher {
    pub(super) fn begin(folder: &Path) -> Watcher {
        let (stop, folder) = (Arc::new(AtomicBool::new(false)), folder.to_owned());
        let (stopped, looked_at) = (Arc::clone(&stop), folder.clone());
        let thread = std::thread::spawn(move || {
            let mut looks = 0;
            while !stopped.load(Ordering::Acquire) {
                looks += look(&looked_at)?.len() as u64;
                std::thread::sleep(PAUSE);
            }
            Ok(looks)
        });
        Watcher { folder, stop, thread: Some(thread) }
    }

    /// Nothing is left there in the bucket: nor may the mount show anything, at the latest when notices are no longer late.
    /// Gives how many files were looked at.
    pub(super) fn all_gone(mut self, time_max: Duration) -> Result<u64, Failure> {
        let looks = self.end()?;
        let began = Instant::now();
        loop {
            let shown = look(&self.folder)?;
            if shown.is_empty() {
                return Ok(looks);
            }
            if began.elapsed() > time_max {
                fail!("the mount shows what has expired: {shown:?}");
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn end(&mut self) -> Result<u64, Failure> {
        self.stop.store(true, Ordering::Release);
        let ended = self.thread.take().map_or(Ok(Ok(0)), JoinHandle::join);
        ended.unwrap_or_else(|_| Err(Failure::new("the watcher of what expires panicked")))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Whoever drops it has a failure of its own.
        let _ = self.end();
    }
}

/// The names, and a look at what is behind each; a file may be gone by then.
fn look(folder: &Path) -> Result<Vec<String>, Failure> {
    let broken = |what: &str, error: std::io::Error| Failure(format!("{what} of {}: {error}", folder.display()));
    let lines = match std::fs::read_dir(folder) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(broken("readdir", error)),
    };
    let mut names = Vec::new();
    for line in lines {
        let line = line.map_err(|error| broken("readdir", error))?;
        let read = std::fs::symlink_metadata(line.path()).and_then(|_| std::fs::read(line.path()));
        match read {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(broken("read", error)),
            _ => names.push(line.file_name().to_string_lossy().into_owned()),
        }
    }
    Ok(names)
}
