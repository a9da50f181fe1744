//! What a directory says of itself.
//!
//! Not here:   what follows from it (open, admit).

use std::io;
use std::path::Path;

use margay_env::{Env, files};

use crate::class::{FOLDERS, IDENTITY_FILE};
use crate::error::DisksError;
use crate::record::{self, Identity};

/// Names that an empty directory may have.
const HARMLESS: [&str; 4] = ["lost+found", "lock", "disk-id.new", "disks.new"];
/// Besides those, what the data directory of a process has that has not begun.
const OF_A_PROCESS: [&str; 3] = ["control", "connections", "format.new"];

/// Reads a small file; `None` if it is not there, or its directory cannot be read.
pub(crate) fn read_small<T>(
    env: &Env,
    root: &Path,
    name: &str,
    decode: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, DisksError> {
    let path = root.join(name);
    match files::read(env, &path, record::BYTES_MAX) {
        Ok(bytes) => match decode(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(why) => Err(DisksError::Damaged(path, why)),
        },
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "this disk cannot be read");
            }
            Ok(None)
        }
    }
}

pub(crate) fn identity(env: &Env, root: &Path) -> Result<Option<Identity>, DisksError> {
    read_small(env, root, IDENTITY_FILE, Identity::decode)
}

/// A path must fit into a line of the list.
pub(crate) fn check_path(root: &Path) -> Result<(), DisksError> {
    let is_line = |text: &str| text.len() <= record::PATH_BYTES_MAX && !text.contains(['\n', '\r']);
    if root.to_str().is_some_and(is_line) { Ok(()) } else { Err(DisksError::Path(root.to_owned())) }
}

/// Whether a directory has nothing but its mark: it became a member, and was not listed before all ended.
pub(crate) fn has_only_its_mark(env: &Env, root: &Path) -> bool {
    let is_empty = |folder: &str| match env.disk.list(&root.join(folder)) {
        Ok(entries) => entries.is_empty(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let names = env.disk.list(root).unwrap_or_default();
    let is_own =
        |name: &str| HARMLESS.contains(&name) || name == IDENTITY_FILE || (FOLDERS.contains(&name) && is_empty(name));
    names.iter().all(|entry| is_own(&entry.name))
}

/// A directory that becomes a member must have nothing of anybody.
pub(crate) fn check_empty(env: &Env, root: &Path) -> Result<(), DisksError> {
    check_names(env, root, &[])
}

/// As `check_empty`, for the data directory of this process.
pub(crate) fn check_empty_home(env: &Env, root: &Path) -> Result<(), DisksError> {
    check_names(env, root, &OF_A_PROCESS)
}

fn check_names(env: &Env, root: &Path, more: &[&str]) -> Result<(), DisksError> {
    let entries = match env.disk.list(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DisksError::Io(root.to_owned(), error)),
    };
    let is_foreign = |name: &&str| !HARMLESS.contains(name) && !more.contains(name);
    let foreign = entries.iter().map(|entry| entry.name.as_str()).filter(is_foreign).min();
    match foreign {
        Some(name) => Err(DisksError::NotEmpty(root.to_owned(), name.to_owned())),
        None => Ok(()),
    }
}
