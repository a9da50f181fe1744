//! Small whole files of the program itself: read with a size limit, written durably.
//!
//! Durability: `write_new` syncs under a temporary name, renames, and syncs the directory.
//! Not here:   user data (margay-segment, margay-meta).

use std::io;
use std::path::{Path, PathBuf};

use crate::{Env, OpenMode};

/// The whole file; `InvalidData` when it is longer than `bytes_max`.
pub fn read(env: &Env, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = env.disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > bytes_max {
        let text = format!("it has {len} bytes, at most {bytes_max} were expected");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Creates or replaces the file as a whole, durably.
pub fn write_new(env: &Env, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let fresh: PathBuf = folder.join(name);
    replace_content(env, &fresh, bytes)?;
    env.disk.rename(&fresh, path)?;
    env.disk.sync_dir(folder)
}

/// Replaces the content of a file in place (created if absent); not atomic.
pub fn replace_content(env: &Env, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = env.disk.open(path, OpenMode::OpenOrCreate)?;
    file.set_len(0)?;
    file.write_all_at(bytes, 0)?;
    file.sync_data()
}

/// What a person can do about an error of the file system.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run as the user who owns it, or give this user read and write rights",
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::StorageFull => "free some space on this file system",
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system for writing",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "name a directory, not a file",
        _ => "check the disk and the path",
    }
}
