//! Mount points: finding, detaching, bind-mounting and tuning them.
//!
//! Why:        the transport can only mount. Dead mounts, bind mounts and the read-ahead setting need the kernel's own
//!             calls.
//! Invariants: B1 without the right to unmount, fusermount3 is called, as every FUSE program does.
//!             B2 a bind mount shows a directory inside the mount itself, whatever names a user has created in it.
//! Not here:   requests of the kernel (session).

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use margay_env::{Env, OpenMode};
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::CapabilitySet;

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// `major:minor` of the file system.
    pub device: String,
    pub path: PathBuf,
    /// [`MOUNT_KIND`] for margay's mounts.
    pub kind: String,
    pub source: String,
}

/// `kind` of margay's mounts.
pub const MOUNT_KIND: &str = "fuse.margay";
/// Bytes of /proc/self/mountinfo that are read at most.
const MOUNTINFO_BYTES_MAX: usize = 16 << 20;

/// All mounts of this mount namespace.
pub fn mounts(env: &Env) -> io::Result<Vec<MountLine>> {
    let file = env.disk.open("/proc/self/mountinfo".as_ref(), OpenMode::Read)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = file.read_at(&mut piece, bytes.len() as u64)?;
        if count == 0 || bytes.len() > MOUNTINFO_BYTES_MAX {
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
    }
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<MountLine> {
    use std::os::unix::ffi::OsStringExt;
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |bytes: &[u8]| String::from_utf8_lossy(&plain(bytes)).into_owned();
    let device = text(fields.nth(2)?);
    let path = PathBuf::from(std::ffi::OsString::from_vec(plain(fields.nth(1)?)));
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    Some(MountLine { device, path, kind: text(behind.next()?), source: text(behind.next()?) })
}

/// Undoes the octal escapes of blanks and similar bytes.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, next)) = rest.split_first() {
        let digits = next.get(..3).filter(|digits| digits.iter().all(|digit| matches!(digit, b'0'..=b'7')));
        match digits {
            Some(digits) if *first == b'\\' => {
                out.push(digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &next[3..];
            }
            _ => {
                out.push(*first);
                rest = next;
            }
        }
    }
    out
}

/// Detaches a mount whose server is gone, which answers only ENOTCONN.
pub fn clear_dead(path: &Path) -> io::Result<()> {
    // Unlike `stat`, `statfs` is never answered from the kernel's cache.
    match rustix::fs::statfs(path) {
        Err(Errno::NOTCONN) => {
            tracing::warn!(path = %path.display(), "the server of this mount died; it is detached");
            unmount(path, true)
        }
        _ => Ok(()),
    }
}

/// Unmounts the newest mount on a directory. `lazily` detaches it even while files are open; they work until they are
/// closed.
pub fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_by_helper(path, lazily),
        Err(error) => Err(error.into()),
    }
}

fn unmount_by_helper(path: &Path, lazily: bool) -> io::Result<()> {
    let helper = helper().ok_or_else(|| {
        io::Error::other("fusermount3 is missing, and only root, or who has CAP_SYS_ADMIN, unmounts without it")
    })?;
    let output = Command::new(helper).arg(if lazily { "-uz" } else { "-u" }).arg("--").arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if text.contains("busy") { Errno::BUSY.into() } else { io::Error::other(text) })
}

/// Whether this process may mount by itself. Not whether it is root: a service has the capability without being root, and the
/// root of a container is without it.
pub fn may_mount() -> bool {
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The program that mounts for users who are not root (`fusermount3`).
pub fn helper() -> Option<PathBuf> {
    let named = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&named).chain(["/bin", "/usr/bin", "/sbin"].map(PathBuf::from));
    folders
        .flat_map(|folder| ["fusermount3", "fusermount"].map(|name| folder.join(name)))
        .find(|path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok())
}

/// Bind-mounts a directory below a mount at a second path; root only. Neither a symbolic link nor another mount below
/// it can lead out of the mount: a user who may write in it must not choose what root exposes.
pub fn bind(mount: &Path, below: &Path, to: &Path, read_only: bool) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = rustix::fs::open(mount, flags, Mode::empty())?;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let from = rustix::fs::openat2(&mount, below, flags, Mode::empty(), within)?;
    rustix::mount::mount_bind(format!("/proc/self/fd/{}", from.as_raw_fd()), to)?;
    if read_only {
        // A remount replaces all flags, so the existing ones are passed again.
        let kept = rustix::fs::fstatvfs(&mount)?.f_flag;
        let mut flags = MountFlags::BIND | MountFlags::RDONLY;
        flags.set(MountFlags::NOSUID, kept.contains(StatVfsMountFlags::NOSUID));
        flags.set(MountFlags::NODEV, kept.contains(StatVfsMountFlags::NODEV));
        flags.set(MountFlags::NOEXEC, kept.contains(StatVfsMountFlags::NOEXEC));
        rustix::mount::mount_remount(to, flags, "")?;
    }
    Ok(())
}

/// Raises the kernel's read-ahead over its default of 128 KiB. Needs root, so a refusal is not an error.
pub(crate) fn set_read_ahead(env: &Env, path: &Path, bytes: u32) {
    let set = || -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let lines = mounts(env)?;
        let Some(line) = lines.iter().rev().find(|line| line.path == path) else { return Ok(()) };
        let file = format!("/sys/class/bdi/{}/read_ahead_kb", line.device);
        let file = env.disk.open(file.as_ref(), OpenMode::ReadWrite)?;
        file.write_all_at(format!("{}\n", bytes / 1024).as_bytes(), 0)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "the kernel's read-ahead stays at its default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = b"36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - fuse.margay margay:photos rw,user_id=0";
        let line = parse(line).unwrap();
        assert_eq!(line.path, Path::new("/mnt two"));
        assert_eq!((&*line.device, &*line.kind, &*line.source), ("98:0", "fuse.margay", "margay:photos"));
        for bad in [&b""[..], b"1 2", b"36 35 98:0 /mnt1 /mnt2 rw -", b"- - - - - -"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn the_root_of_this_machine_is_mounted() {
        let all = mounts(&Env::real()).unwrap();
        assert!(all.iter().any(|line| line.path == Path::new("/")));
    }
}
