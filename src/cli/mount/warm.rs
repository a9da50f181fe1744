//! `margay warm`: reads what is below a path of a far mount, so that its cache has it.
//!
//! Why:        a train has no network, and a job on a thousand files should not wait for each.
//! Invariants: W1 no more is read than the cache keeps: half of its size, and no file larger than a quarter of that. What is left
//!                out is named.
//!             W2 what was fetched stays when it is broken off, and is not fetched again.
//! Not here:   what the cache keeps (margay-upstream).

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use margay_env::Env;
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use super::absolute;
use super::far_commands::{ask, find, not_far};
use crate::exit::Failure;
use crate::far_mount::text::{bytes, count};
use crate::progress::{Far, Line};

const EXAMPLES: &str = "Examples:
  margay warm /mnt/photos/2026
  margay warm /mnt/photos --json

Half of --cache-size is for what was read: more is not fetched, and a file larger than an eighth of --cache-size is not kept.
When it was broken off, the next one goes on: what is in the cache is not fetched again. It ends with 0 when everything is in
the cache.";

/// Files that are read at once.
const READERS: usize = 16;
const READ_BYTES: usize = 1 << 20;
/// Complaints that are printed.
const TOLD_MAX: usize = 20;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Warm {
    /// A file or a directory in the mount of an s3:// bucket
    path: PathBuf,
    /// Print how it went as JSON
    #[arg(long)]
    json: bool,
}

/// What is to be read, and what is not, with the reason.
#[derive(Default)]
struct Found {
    files: Vec<(PathBuf, u64)>,
    bytes: u64,
    left_out: Vec<(PathBuf, String)>,
}

/// What the cache keeps of fetched files.
struct Room {
    all: u64,
    file: u64,
}

pub(in crate::cli) fn run_warm(args: &Warm) -> Result<(), Failure> {
    let env = Env::real();
    let found = begin(&env, &args.path).inspect_err(|failure| {
        if args.json {
            println!("{:#}", json!({ "files": 0, "bytes": 0, "left_out": [], "error": failure.message }));
        }
    })?;
    let (count_all, bytes_all) = (found.files.len(), found.bytes);
    let (done, failed) = fetch(&env, found);
    let fetched = count_all - failed.iter().filter(|(_, _, was_read)| *was_read).count();
    if args.json {
        let failures = failed.iter().map(|(path, why, _)| json!({ "path": path.display().to_string(), "error": why }));
        let failures: Vec<_> = failures.collect();
        println!("{:#}", json!({ "files": fetched, "bytes": done, "left_out": failures }));
    } else {
        for (path, why, _) in failed.iter().take(TOLD_MAX) {
            eprintln!("margay: {}: {why}", path.display());
        }
        if failed.len() > TOLD_MAX {
            eprintln!("margay: and {} more", count((failed.len() - TOLD_MAX) as u64, "file"));
        }
        println!("{}, {} of {} are in the cache", count(fetched as u64, "file"), bytes(done), bytes(bytes_all));
    }
    match failed.len() as u64 {
        0 => Ok(()),
        left => Err(Failure::failed(format!("{} not in the cache", count(left, "file")))),
    }
}

/// What is to be read below a path of a mount.
fn begin(env: &Env, path: &Path) -> Result<Found, Failure> {
    let path = absolute(path)?;
    let place = path.display().to_string();
    let cache = find(env, Some(&place), None, None)?.ok_or_else(|| not_far(&place))?;
    let status = ask(&cache, "/status")?.filter(|status| status["mounted"] == true);
    let status = status.ok_or_else(|| Failure::failed(format!("{place} is not mounted: mount it first")))?;
    let all = status["cache_size"].as_u64().unwrap_or_default() / 2;
    look(&path, &Room { all, file: all / 4 })
}

fn look(path: &Path, room: &Room) -> Result<Found, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let top = fs::symlink_metadata(path).map_err(failed)?;
    let (mut found, mut open) = (Found::default(), vec![(path.to_owned(), top.clone())]);
    while let Some((path, metadata)) = open.pop() {
        if metadata.dev() != top.dev() {
            continue;
        }
        if metadata.is_file() {
            found.add(path, &metadata, room);
        } else if metadata.is_dir() {
            match names_in(&path) {
                Ok(below) => open.extend(below),
                Err(error) => found.left_out.push((path, error.to_string())),
            }
        }
    }
    found.files.sort_unstable();
    Ok(found)
}

fn names_in(path: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => found.push((entry.path(), metadata)),
            // Somebody removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // The last one is looked at next.
    found.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    Ok(found)
}

impl Found {
    fn add(&mut self, path: PathBuf, metadata: &Metadata, room: &Room) {
        let size = metadata.len();
        let why = if size > room.file {
            format!("{} are more than the cache keeps of one file ({})", bytes(size), bytes(room.file))
        } else if self.bytes + size > room.all {
            format!("no room: the cache keeps {} of what was read", bytes(room.all))
        } else {
            self.bytes += size;
            return self.files.push((path, size));
        };
        self.left_out.push((path, why));
    }
}

/// A path, why it is not in the cache, and whether it was to be read.
type Failed = (PathBuf, String, bool);

/// Reads them; returns how many bytes, and what is not in the cache.
fn fetch(env: &Env, found: Found) -> (u64, Vec<Failed>) {
    let (done, total, next) = (Arc::new(AtomicU64::new(0)), found.bytes, AtomicUsize::new(0));
    let failed: Mutex<Vec<Failed>> = Mutex::default();
    let shown = Arc::clone(&done);
    let _line = Line::follow(env, "warm", move || Some(Far::Bytes(shown.load(Ordering::Relaxed), total)));
    std::thread::scope(|scope| {
        for _ in 0..READERS.min(found.files.len()) {
            scope.spawn(|| {
                while let Some((path, _)) = found.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = read(path, &done) {
                        failed.lock().push((path.clone(), error.to_string(), true));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.extend(found.left_out.into_iter().map(|(path, why)| (path, why, false)));
    failed.sort_unstable();
    (done.load(Ordering::Relaxed), failed)
}

#[allow(clippy::disallowed_methods, reason = "a file of the mount, as any program reads it")]
fn read(path: &Path, done: &AtomicU64) -> io::Result<()> {
    let mut file = File::open(path)?;
    // What the kernel has may have left the cache.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        done.fetch_add(count as u64, Ordering::Relaxed);
    }
}
