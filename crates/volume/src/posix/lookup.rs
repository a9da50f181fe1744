//! Looks up a name, and a directory's parent.
//!
//! Why:        the most frequent operation of a mount: one call reads both entries that a name may be.
//! Invariants: L1 a found file's location is recorded: a move between reading and recording is detected, since the
//!                file's turn is held over both.
//!             L2 a name is absent only if the store that gets what the volume has, says so, too.
//! Locking:    the file's turn, only if its location is not recorded yet.

use margay_rows::Ino;

use crate::draft::Seen;
use crate::posix::api::{Attributes, Name, PosixError};
use crate::posix::attributes::stored_attributes;
use crate::posix::locate::Located;
use crate::posix::mount::Mount;
use crate::posix::resolve::Found;

impl Mount {
    /// Counts one lookup on success.
    pub fn lookup(&self, parent: Ino, name: &Name) -> Result<Attributes, PosixError> {
        let mut asked = false;
        loop {
            let (closes, moves) = (self.volume.open_files.closes(), self.volume.known.moves());
            let resolved = self.consistent(|seen| {
                let resolved = self.resolve(parent, name, seen)?;
                Ok((resolved.name, resolved.found.ok_or(PosixError::NotFound)?))
            });
            let (name, found) = match resolved {
                // L2; once, since others may remove it again and again.
                Err(PosixError::NotFound) if !asked && self.may_be_upstream(parent, name) => {
                    asked = true;
                    continue;
                }
                resolved => resolved?,
            };
            match found {
                Found::Directory(directory) => {
                    let attributes = self.directory_attributes(&directory.entry)?;
                    self.known.remember(attributes.ino, parent, &(name + "/"));
                    return Ok(attributes);
                }
                Found::File(located) if self.remember(&located, &name, moves)? => {
                    let again = || self.read_file(located.parent, name.as_bytes(), &mut Seen::default());
                    return self.seen_since(closes, stored_attributes(&located.file), again);
                }
                Found::File(_) => {}
            }
        }
    }

    /// Whether a name that is not here may be here by now.
    fn may_be_upstream(&self, parent: Ino, name: &Name) -> bool {
        match (&self.options.upstream, name) {
            (Some(upstream), Name::Plain(name)) => upstream.will_miss(parent, name),
            _ => false,
        }
    }

    /// Counts one lookup of a file that was read at this location when the move count was `moves`; false if it is no
    /// longer there.
    pub(crate) fn remember(&self, located: &Located, name: &str, moves: u64) -> Result<bool, PosixError> {
        let (known, ino) = (&self.known, located.file.ino);
        if known.remember_again(ino, located.parent, name) {
            return Ok(true);
        }
        let _turn = self.volume.known.turn(ino);
        if self.volume.known.moves() != moves {
            let row = self.volume.engine.get(&located.entry_key).map_err(crate::api::Error::from)?.value;
            if row.is_none_or(|row| row.version != located.entry_version) {
                return Ok(false);
            }
        }
        known.remember(ino, located.parent, name);
        Ok(true)
    }

    /// A directory's parent; the root's is the root.
    pub fn parent(&self, directory: Ino) -> Result<Ino, PosixError> {
        if directory == self.root {
            return Ok(directory);
        }
        let found = self.locate_directory(directory, &mut Seen::default())?.ok_or(PosixError::Stale)?;
        Ok(if found.is_root() { directory } else { found.parent })
    }
}
