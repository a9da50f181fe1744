//! Which processes use a mount: for people who wait for it to be unmounted.
//!
//! Why:        the kernel only says that it is busy.
//! Invariants: U1 links in /proc are read, nothing is opened or looked up in the mount itself, so a mount that hangs is no obstacle.
//! Not here:   mapped files whose descriptor is closed, processes that this user may not see.

use std::fmt::Write as _;
use std::path::Path;

use margay_env::proc::names;
use margay_env::{Env, OpenMode};

/// Processes that are named.
const NAMED_MAX: usize = 5;
/// Bytes of a process' name.
const NAME_BYTES_MAX: usize = 64;
/// What is told when no process can be seen that uses it.
pub const NOBODY_SEEN: &str = "no process that can be seen from here";

/// A process that uses a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub process: u32,
    pub name: String,
    /// What it has there, as the kernel shows it.
    pub place: String,
}

/// All processes that have their directory, their program or an open file below `path`, except this one.
pub fn find(env: &Env, path: &Path) -> Vec<Holder> {
    let own = std::process::id();
    let numbers = names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    numbers.filter(|process| *process != own).filter_map(|process| holder(env, process, path)).collect()
}

/// `find` as a part of a line.
pub fn text(env: &Env, path: &Path) -> String {
    let found = find(env, path);
    if found.is_empty() {
        return NOBODY_SEEN.to_owned();
    }
    let mut text = String::new();
    for Holder { process, name, place } in found.iter().take(NAMED_MAX) {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{name} (process {process}, {place})");
    }
    if let more @ 1.. = found.len().saturating_sub(NAMED_MAX) {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn holder(env: &Env, process: u32, path: &Path) -> Option<Holder> {
    let folder = Path::new("/proc").join(process.to_string());
    let open = folder.join("fd");
    let links = ["cwd", "root", "exe"].map(|name| folder.join(name));
    let files = names(&open).into_iter().map(|name| open.join(name));
    let place = links.into_iter().chain(files).find_map(|link| below(&link, path))?;
    Some(Holder { process, name: program(env, &folder.join("comm")), place })
}

/// The name of a program; empty if it has ended. The kernel tells no length of this file.
fn program(env: &Env, path: &Path) -> String {
    let mut bytes = [0; NAME_BYTES_MAX];
    let read = env.disk.open(path, OpenMode::Read).and_then(|file| file.read_at(&mut bytes, 0));
    String::from_utf8_lossy(&bytes[..read.unwrap_or(0)]).trim().to_owned()
}

/// Where a link leads, if that is in the mount.
fn below(link: &Path, path: &Path) -> Option<String> {
    use std::os::unix::ffi::OsStrExt;
    let target = rustix::fs::readlink(link, Vec::new()).ok()?;
    let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes()));
    target.starts_with(path).then(|| target.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_in_a_directory_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        assert_eq!(text(&Env::real(), &path), NOBODY_SEEN);
        let mut child = Command::new("sleep").arg("1000").current_dir(&path).stdin(Stdio::null()).spawn().unwrap();
        let found = find(&Env::real(), &path);
        child.kill().unwrap();
        child.wait().unwrap();
        let place = path.display().to_string();
        assert_eq!(found, [Holder { process: child.id(), name: "sleep".to_owned(), place }]);
    }
}
