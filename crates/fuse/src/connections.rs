//! FUSE connections as the kernel lists them, and aborting them.
//!
//! Why:        a FUSE request that a server has read cannot be killed, nor can a thread that waits for a kernel lock
//!             held by such a request. So a server that dies in mid-request may never exit. Aborting the connection
//!             ends all of them.
//! Layout:     `fusectl` has a directory for each connection, named by the minor number of the mount's device.
//! Invariants: C1 the kernel reuses the number of a mount that is gone. A connection is therefore identified by its
//!                number and the creation time of its directory; only a connection that matches both is aborted.
//! Not here:   detecting that a server died (the binary).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use margay_env::Env;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::mount_point;

/// Where distributions mount `fusectl`.
const FOLDER: &str = "/sys/fs/fuse/connections";
/// `f_type` of `fusectl`.
const MAGIC: u64 = 0x6573_5543;

/// One mount's connection with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub minor: u32,
    /// When the kernel created the connection: seconds and nanoseconds since 1970.
    pub born: (i64, u32),
}

/// The kernel's list of connections. Creation times stay comparable while one of these exists or `fusectl` is mounted.
#[derive(Debug)]
pub struct Connections {
    folder: OwnedFd,
}

impl Connections {
    /// Opens the mounted `fusectl`, or else mounts a private one, which needs root.
    pub fn open() -> io::Result<Connections> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(folder) = rustix::fs::open(FOLDER, flags, Mode::empty())
            && rustix::fs::fstatfs(&folder)?.f_type as u64 == MAGIC
        {
            return Ok(Connections { folder });
        }
        let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let folder = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(Connections { folder })
    }

    /// The connection of the FUSE mount at `path`.
    pub fn of_mount(&self, env: &Env, path: &Path) -> io::Result<Connection> {
        let path = std::path::absolute(path)?;
        let lines = mount_point::mounts(env)?;
        let line = lines.iter().rev().find(|line| line.path == path).ok_or(io::ErrorKind::NotFound)?;
        let minor = line.device.split_once(':').and_then(|(_, minor)| minor.parse().ok());
        let minor = minor.ok_or(io::ErrorKind::InvalidData)?;
        let born = self.born(minor)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Connection { minor, born })
    }

    fn born(&self, minor: u32) -> io::Result<Option<(i64, u32)>> {
        match rustix::fs::statat(&self.folder, minor.to_string(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some((status.st_mtime, status.st_mtime_nsec as u32))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the connection still exists.
    pub fn has(&self, connection: &Connection) -> io::Result<bool> {
        Ok(self.born(connection.minor)? == Some(connection.born))
    }

    /// Aborts a connection: its requests fail, threads that wait for them continue, and its mount answers ENOTCONN.
    /// False when the connection no longer exists.
    pub fn cut(&self, connection: &Connection) -> io::Result<bool> {
        if !self.has(connection)? {
            return Ok(false);
        }
        let file = format!("{}/abort", connection.minor);
        // Opened for writing only: the user who mounted it has no other permission.
        match rustix::fs::openat(&self.folder, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => {
                rustix::io::write(&file, b"1\n")?;
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
