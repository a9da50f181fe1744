//! The kernel's ends of mounts, and cutting them.
//!
//! Why:        a request of the kernel cannot be killed once a server has read it, and neither can a thread that waits
//!             for a lock which such a request holds: a server that dies in the middle may never be gone. Cutting the
//!             connection ends all of these requests.
//! Layout:     `fusectl` has a directory for each connection, named by the minor number of the mount's device.
//! Invariants: C1 a number is used again once its mount is gone, so it names a connection only together with the time
//!                at which its directory was made; nothing else is cut.
//! Not here:   who died (the binary).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use margay_env::Env;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::mount_point;

/// Where distributions mount it.
const FOLDER: &str = "/sys/fs/fuse/connections";
/// `f_type` of `fusectl`.
const MAGIC: u64 = 0x6573_5543;

/// One mount's connection with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub minor: u32,
    /// When the kernel made it: seconds and nanoseconds since 1970.
    pub born: (i64, u32),
}

/// The kernel's list of connections. Its times count for as long as one of these lives, or it is mounted.
#[derive(Debug)]
pub struct Connections {
    folder: OwnedFd,
}

impl Connections {
    /// The list that is mounted, or else one that nobody else sees, which only root can have.
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

    /// The connection of what is mounted at a place.
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

    /// Whether it is still there.
    pub fn has(&self, connection: &Connection) -> io::Result<bool> {
        Ok(self.born(connection.minor)? == Some(connection.born))
    }

    /// Ends a connection: each of its requests fails, whoever waits for one goes on, and its mount answers ENOTCONN.
    /// False when there is no such connection any more.
    pub fn cut(&self, connection: &Connection) -> io::Result<bool> {
        if !self.has(connection)? {
            return Ok(false);
        }
        let file = format!("{}/abort", connection.minor);
        // For writing only: whoever mounted it may do no more.
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
