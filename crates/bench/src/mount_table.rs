//! What is mounted, and taking mounts off.
//!
//! Invariants: the kernel's list is asked, not the file system: one that hangs cannot hang this.

#![allow(clippy::disallowed_methods, reason = "reads /proc")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use margay_env::Env;

const MOUNTS: &str = "/proc/self/mountinfo";
/// For what uses a mount to let go of it, and how often it is tried.
const BUSY_TIME: Duration = Duration::from_secs(10);
const BUSY_STEP: Duration = Duration::from_millis(100);

pub(crate) fn is_mounted(path: &Path) -> bool {
    mount_points().iter().any(|mount| mount == path)
}

/// The mounts below a directory, those in others before these.
pub(crate) fn below(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        mount_points().into_iter().filter(|mount| mount.starts_with(path) && mount != path).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found
}

fn mount_points() -> Vec<PathBuf> {
    let list = fs::read(MOUNTS).unwrap_or_default();
    list.split(|&byte| byte == b'\n').map(|line| mount_point(line).into()).collect()
}

/// The fifth field of a line, where the kernel writes spaces and the like as `\040`.
fn mount_point(line: &[u8]) -> std::ffi::OsString {
    let field = line.split(|&byte| byte == b' ').nth(4).unwrap_or_default();
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits {
            Some(digits) => {
                path.push(digits.iter().fold(0, |value: u8, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                path.push(byte);
                rest = after;
            }
        }
    }
    OsStr::from_bytes(&path).to_owned()
}

/// Unmounts, if it is a mount; whether it is none afterwards.
pub(crate) fn unmount(env: &Env, path: &Path) -> bool {
    let began = env.clock.monotonic();
    while is_mounted(path) && env.clock.monotonic() - began < BUSY_TIME {
        if !run("umount", &[], path) && !run("fusermount3", &["-u"], path) {
            std::thread::sleep(BUSY_STEP);
        }
    }
    !is_mounted(path)
}

/// Unmounts whatever still uses it; whether it is no mount afterwards.
pub(crate) fn detach(path: &Path) -> bool {
    if is_mounted(path) {
        let _ = run("umount", &["-l"], path) || run("fusermount3", &["-uz"], path);
    }
    !is_mounted(path)
}

fn run(program: &str, options: &[&str], path: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(options).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_known() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(folder.path()));
        assert!(below(Path::new("/")).contains(&PathBuf::from("/proc")) && below(folder.path()).is_empty());
        assert!(unmount(&Env::real(), folder.path()) && detach(folder.path()), "what is no mount is left alone");
        let line = b"36 35 98:0 /mnt1 /a\\040b\\134c rw,noatime - ext3 /dev/root rw";
        assert_eq!(mount_point(line), OsStr::new("/a b\\c"));
        assert_eq!(mount_point(b""), OsStr::new(""));
    }
}
