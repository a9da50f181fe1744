//! Calls of a mount, and operations of S3 beside them, as values.

use std::sync::Arc;

use margay_volume::posix::*;
use margay_volume::*;

use super::actions::{self, Action, Given};
use super::body_of;
use super::tree::{NEW, plain};

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

#[derive(Clone, Copy, Debug)]
pub enum Call {
    File(&'static str),
    Directory(&'static str),
    Symlink(&'static str),
    Unlink(&'static str),
    RemoveDirectory(&'static str),
    Rename(&'static str, &'static str, RenameMode),
    Link(&'static str, &'static str),
    /// Opened, written, published and closed.
    Write(&'static str, usize),
    /// Written, published and closed, of what was opened when the call was prepared.
    Publish(&'static str, usize),
    Truncate(&'static str, u64),
    /// As `Truncate`, of what was opened when the call was prepared.
    Shorten(&'static str, u64),
    Chmod(&'static str),
    Xattr(&'static str),
    /// Beside a directory of this name.
    FileBeside(&'static str),
    /// Of a directory, and a look at its name.
    RemoveAndLook(&'static str),
    S3(Action),
}

use Call::*;

/// A process: its volume and its mount.
#[derive(Debug)]
pub struct Side {
    pub volume: Arc<Volume>,
    pub mount: Arc<Mount>,
}

/// What a kernel has looked up before it calls: parents, names and numbers; and the file that is open.
#[derive(Debug)]
pub struct Prepared {
    places: Vec<(Ino, Name)>,
    found: Option<Attributes>,
    opened: Option<Handle>,
}

pub fn name_of(error: &PosixError) -> String {
    let text = format!("{error:?}");
    // A number of something that was removed says the same as its name.
    text.replace("Stale", "NotFound")
}

pub fn prepare(side: &Side, call: Call) -> Result<Prepared, PosixError> {
    let paths: &[&str] = match &call {
        File(path) | Directory(path) | Symlink(path) | Unlink(path) | RemoveDirectory(path) => &[path],
        Write(path, _) | Publish(path, _) | Chmod(path) | Xattr(path) => &[path],
        Truncate(path, _) | Shorten(path, _) => &[path],
        FileBeside(path) | RemoveAndLook(path) => &[path],
        Rename(from, to, _) | Link(from, to) => &[from, to],
        S3(_) => &[],
    };
    let mut places = Vec::new();
    for path in paths {
        let mut parent = side.mount.root();
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        for step in above.split('/').filter(|step| !step.is_empty()) {
            parent = side.mount.lookup(parent, &plain(step))?.ino;
        }
        let beside = matches!(call, FileBeside(_));
        places.push((parent, if beside { Name::Beside(name.to_owned()) } else { plain(name) }));
    }
    let opens = matches!(call, Publish(..) | Shorten(..));
    let by_number = opens || matches!(call, Link(..) | Write(..) | Truncate(..) | Chmod(_) | Xattr(_));
    let found = by_number.then(|| side.mount.lookup(places[0].0, &places[0].1)).transpose()?;
    let to_open = found.filter(|_| opens);
    let opened = to_open.map(|found| side.mount.open_file(found.ino, BOTH)).transpose()?;
    Ok(Prepared { places, found, opened })
}

fn write(mount: &Mount, handle: Handle, len: usize) -> Result<(), PosixError> {
    mount.write(&handle, 3, &body_of(len, len), false)?;
    mount.sync(&handle)?;
    mount.release(handle)
}

pub fn execute(side: &Side, given: &Given, call: Call, prepared: Prepared) -> Result<String, PosixError> {
    let mount = &side.mount;
    let number = || prepared.found.map(|found| found.ino).unwrap();
    let place = |which: usize| (prepared.places[which].0, &prepared.places[which].1);
    match call {
        S3(action) => return Ok(actions::run(&side.volume, given, action)),
        RemoveAndLook(_) => {
            mount.remove_directory(place(0).0, place(0).1)?;
            let found = mount.lookup(place(0).0, place(0).1).map(|found| found.kind);
            return Ok(format!("{found:?}"));
        }
        File(_) | FileBeside(_) => drop(mount.make_file(place(0).0, place(0).1, &NEW, FileKind::Regular, 0)?),
        Directory(_) => drop(mount.make_directory(place(0).0, place(0).1, &NEW)?),
        Symlink(_) => drop(mount.make_symlink(place(0).0, place(0).1, b"target", &NEW)?),
        Unlink(_) => mount.unlink(place(0).0, place(0).1)?,
        RemoveDirectory(_) => mount.remove_directory(place(0).0, place(0).1)?,
        Rename(_, _, mode) => mount.rename(place(0).0, place(0).1, place(1).0, place(1).1, mode)?,
        Link(..) => drop(mount.link(number(), place(1).0, place(1).1)?),
        Write(_, len) => write(mount, mount.open_file(number(), BOTH)?, len)?,
        Publish(_, len) => write(mount, prepared.opened.unwrap(), len)?,
        Truncate(_, size) | Shorten(_, size) => {
            let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
            mount.set_attributes(number(), &change)?;
            prepared.opened.map_or(Ok(()), |handle| mount.release(handle))?;
        }
        Chmod(_) => {
            let change = AttributeChange { rights: Some(0o711), ..AttributeChange::default() };
            mount.set_attributes(number(), &change)?;
        }
        Xattr(_) => mount.set_xattr(number(), b"user.x", b"1", SetXattr::Any, false)?,
    }
    Ok("done".to_owned())
}

/// The call, or why it could not be prepared, as a text.
pub fn finish(side: &Side, given: &Given, call: Call, prepared: Result<Prepared, PosixError>) -> String {
    prepared.and_then(|one| execute(side, given, call, one)).unwrap_or_else(|error| name_of(&error))
}

pub fn run(side: &Side, given: &Given, call: Call) -> String {
    finish(side, given, call, prepare(side, call))
}
