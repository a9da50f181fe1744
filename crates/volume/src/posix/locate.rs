//! Finds the row with a file's or a directory's attributes by number.
//!
//! Why:        a file is looked up at its recorded location, a directory through its record; both may be stale.
//! Invariants: L1 the returned row has this number: a location that was given to another file is not this file's.
//! Not here:   files without a name (open files).

use margay_meta::RowVersion;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Seen;
pub(crate) use crate::entry::Located;
use crate::known::Location;
use crate::open::Volume;
use crate::posix::api::PosixError;
use crate::posix::mount::Mount;
use margay_rows::record::{DirectoryEntry, DirectoryRecord, Entry};

#[derive(Clone, Debug)]
pub(crate) struct LocatedDirectory {
    /// 0 for the root of a bucket.
    pub(crate) parent: Ino,
    /// The row with its attributes: its entry, or the inode record of a bucket's root, which may be absent.
    pub(crate) row_key: Vec<u8>,
    pub(crate) version: Option<RowVersion>,
    pub(crate) entry: DirectoryEntry,
}

impl Mount {
    /// Whether the number belongs to a directory.
    pub(crate) fn is_directory(&self, ino: Ino) -> Result<bool, PosixError> {
        if let Some(location) = self.known.location(ino) {
            return Ok(location.parent == Ino(0) || location.sort_name.ends_with('/'));
        }
        Ok(self.volume.engine.get(&key::directory(ino)).map_err(Error::from)?.value.is_some())
    }

    /// `None` if the file has no name any more, or is unknown.
    pub(crate) fn locate_file(&self, ino: Ino) -> Result<Option<Located>, PosixError> {
        match self.known.location(ino) {
            Some(location) => Ok(self.volume.locate_at(ino, &location)?),
            None => Ok(self.volume.locate_file(ino)?),
        }
    }

    /// The file entry of this sort name.
    pub(crate) fn read_file(
        &self,
        parent: Ino,
        sort_name: &[u8],
        seen: &mut Seen,
    ) -> Result<Option<Located>, PosixError> {
        Ok(self.volume.file_at(parent, sort_name, seen)?)
    }

    /// `None` if the directory was removed.
    pub(crate) fn locate_directory(&self, ino: Ino, seen: &mut Seen) -> Result<Option<LocatedDirectory>, PosixError> {
        let Some(row) = self.volume.get(&key::directory(ino), seen)? else { return Ok(None) };
        let record = DirectoryRecord::decode(&row.value).map_err(Error::from)?;
        let root = record.parent == Ino(0);
        let row_key = if root { key::inode(ino) } else { key::entry(record.parent, record.sort_name.as_bytes()) };
        let row = self.volume.get(&row_key, seen)?;
        let (version, entry) = match row {
            Some(row) => match Entry::decode(&row.value).map_err(Error::from)? {
                Entry::Directory(entry) => (Some(row.version), entry),
                Entry::File(_) | Entry::Link(_) => {
                    return Err(Error::Corrupt("a file has the name of a directory".to_owned()).into());
                }
            },
            None if root => (None, DirectoryEntry { explicit: true, ..DirectoryEntry::implicit(ino) }),
            // Renamed or removed between the two reads.
            None => return Ok(None),
        };
        if entry.ino != ino {
            return Ok(None);
        }
        Ok(Some(LocatedDirectory { parent: record.parent, row_key, version, entry }))
    }
}

impl Volume {
    /// See [`Mount::locate_file`]; open files are located without a mount.
    pub(crate) fn locate_file(&self, ino: Ino) -> Result<Option<Located>, Error> {
        let Some(location) = self.known.location(ino) else { return Ok(None) };
        self.locate_at(ino, &location)
    }

    fn locate_at(&self, ino: Ino, location: &Location) -> Result<Option<Located>, Error> {
        let mut seen = Seen::default();
        let found = self.file_at(location.parent, location.sort_name.as_bytes(), &mut seen)?;
        if let Some(found) = found.filter(|found| found.file.ino == ino) {
            return Ok(Some(found));
        }
        match self.locate_record(ino)? {
            Some(found) => Ok(Some(found)),
            None => self.locate_moved(ino, seen.cursor),
        }
    }

    /// A file whose recorded name was removed may have others. The result is valid for its attributes and for adding a
    /// name; which name leads to it is unknown.
    fn locate_record(&self, ino: Ino) -> Result<Option<Located>, Error> {
        let key = key::inode(ino);
        let read = self.engine.get(&key)?;
        let Some(row) = read.value else { return Ok(None) };
        let file = Entry::decode(&row.value)?.file();
        Ok(file.map(|file| Located::direct(Ino(0), key, row.version, read.observed, file)))
    }
}
