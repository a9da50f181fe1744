//! Creates a directory.
//!
//! Why:        as a new file, with a record that leads back to its name.
//! Invariants: M1 as create; the directory is explicit, so it stays when it is empty.

use margay_rows::record::{DirectoryEntry, DirectoryRecord};
use margay_rows::{Ino, key};

use crate::draft::Draft;
use crate::posix::api::{Attributes, FileKind, Name, NewFile, PosixError};
use crate::posix::attributes::directory_attributes;
use crate::posix::mount::Mount;

impl Mount {
    /// Counts one lookup.
    pub fn make_directory(&self, parent: Ino, name: &Name, new: &NewFile) -> Result<Attributes, PosixError> {
        self.volume.check_room()?;
        let (entry, now, sort_name) = self.change(|one| {
            let resolved = self.resolve_for_new(parent, name, one)?;
            if resolved.found.is_some() {
                return Err(PosixError::Exists.into());
            }
            let directory = self.directory(parent, one)?;
            let now = self.volume.now();
            let mut draft = Draft::default();
            let key = resolved.draft_free(&mut draft, &directory, FileKind::Directory)?;
            let inherited = self.inherit(new, &directory, FileKind::Directory)?;
            let entry = DirectoryEntry {
                explicit: true,
                mode: inherited.rights,
                uid: new.uid,
                gid: inherited.gid,
                xattrs: inherited.has_xattrs(),
                ..DirectoryEntry::implicit(self.volume.new_ino()?)
            };
            inherited.draft(&mut draft, entry.ino);
            let sort_name = resolved.sort_name(FileKind::Directory);
            let record = DirectoryRecord { parent, sort_name: sort_name.clone() };
            self.draft_change_in(&mut draft, &directory, now.0);
            draft.add(key::subdirectories(parent), 1);
            draft.put(key, entry.encode());
            draft.put(key::directory(entry.ino), record.encode());
            draft.max(key::times(entry.ino), now.0.max(0) as u64);
            let done = self.commit(draft)?;
            Ok(((entry, now, sort_name), Some(done)))
        })?;
        self.known.remember(entry.ino, parent, &sort_name);
        Ok(directory_attributes(&entry, now, 0))
    }
}
