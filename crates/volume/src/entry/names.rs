//! Files and their names (hard links): where a file's attributes are, adding and removing names.
//!
//! Why:        a file with one name has its attributes in the entry; one with several names has them in an inode record
//!             that its entries refer to. Changes of names must treat both alike.
//! Invariants: L1 an inode record counts the entries that refer to it; each change of a name asserts the record's
//!                version, so of two concurrent removals one conflicts, and the last one knows that it is the last.
//!             L2 a file that once had several names keeps its inode record until its last name is removed.
//!             L3 a batch may change a record several times: each step starts from the batch's current value.
//! Not here:   directories and counters (paths, put_object), releasing a file's data (release).

use margay_meta::{Cursor, RowVersion};
use margay_rows::record::entry::encode_link;
use margay_rows::record::{Entry, FileEntry};
use margay_rows::{Ino, key};

use crate::api::{Error, VersionId};
use crate::draft::{Draft, Seen};
use crate::open::Volume;

/// Attempts to read an entry whose inode record was removed meanwhile.
const TRIES_MAX: usize = 64;

/// A file found by one of its names.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) parent: Ino,
    /// The entry that leads to it, and its version; the inode record if only that was read.
    pub(crate) entry_key: Vec<u8>,
    pub(crate) entry_version: RowVersion,
    /// The row with its attributes: the entry, or the inode record of a file with several names.
    pub(crate) row_key: Vec<u8>,
    pub(crate) version: RowVersion,
    /// The newest commit that the rows depend on: once it is durable, a payload can be read.
    pub(crate) observed: Cursor,
    pub(crate) file: FileEntry,
    /// Its version id for S3; `None` in a bucket that never had versioning, or where it is not needed.
    pub(crate) version_id: Option<VersionId>,
}

impl Located {
    /// A file whose attributes are in its entry.
    pub(crate) fn direct(parent: Ino, key: Vec<u8>, version: RowVersion, observed: Cursor, file: FileEntry) -> Located {
        let entry_key = key.clone();
        Located { parent, entry_key, entry_version: version, row_key: key, version, observed, file, version_id: None }
    }

    /// A noncurrent version; it has no directory.
    pub(crate) fn of_version(row_key: Vec<u8>, version: RowVersion, observed: Cursor, file: FileEntry) -> Located {
        Located::direct(Ino(0), row_key, version, observed, file)
    }

    /// Its attributes are in an inode record.
    pub(crate) fn linked(&self) -> bool {
        key::is_inode(&self.row_key)
    }

    /// Asserts that the name leads to this file, and that its attributes are as read.
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        let linked = self.linked();
        assert!(linked || self.entry_key == self.row_key, "a file with one name has its attributes in its entry");
        draft.assert_version(self.entry_key.clone(), self.entry_version);
        if linked {
            draft.assert_version(self.row_key.clone(), self.version);
        }
    }

    /// Records the file's rows as read: an error counts only while they are unchanged.
    pub(crate) fn note_in(&self, seen: &mut Seen) {
        seen.remembered(&self.entry_key, self.entry_version);
        if self.linked() {
            seen.remembered(&self.row_key, self.version);
        }
    }

    /// The attributes after the draft's changes so far (L3); `None` if it removes them.
    pub(crate) fn drafted(&self, draft: &Draft) -> Result<Option<FileEntry>, Error> {
        if draft.deletes(&self.row_key) {
            return Ok(None);
        }
        match draft.value(&self.row_key) {
            Some(value) => Ok(Entry::decode(value)?.file()),
            None => Ok(Some(self.file.clone())),
        }
    }
}

impl Volume {
    /// The file with this sort name, if any.
    pub(crate) fn file_at(&self, parent: Ino, sort_name: &[u8], seen: &mut Seen) -> Result<Option<Located>, Error> {
        let entry_key = key::entry(parent, sort_name);
        for _ in 0..TRIES_MAX {
            let Some(row) = self.get(&entry_key, seen)? else { return Ok(None) };
            let ino = match Entry::decode(&row.value)? {
                Entry::File(file) => {
                    self.entry_hints.note(&entry_key, &file, false);
                    return Ok(Some(Located::direct(parent, entry_key, row.version, seen.cursor, file)));
                }
                Entry::Directory(_) => return Err(Error::Corrupt("a directory has the name of a file".to_owned())),
                Entry::Link(ino) => ino,
            };
            let row_key = key::inode(ino);
            if let Some(inode) = self.get(&row_key, seen)? {
                let file = Entry::decode(&inode.value)?.file();
                let file = file.ok_or_else(|| Error::Corrupt("an inode record holds no file".to_owned()))?;
                self.entry_hints.note(&entry_key, &file, true);
                let (entry_version, version) = (row.version, inode.version);
                let version_id = None;
                let observed = seen.cursor;
                return Ok(Some(Located {
                    parent,
                    entry_key,
                    entry_version,
                    row_key,
                    version,
                    observed,
                    file,
                    version_id,
                }));
            }
            // Missing if the last name was removed between the two reads.
            if self.row(&entry_key)?.value.is_some_and(|again| again.version == row.version) {
                return Err(Error::Corrupt(format!("a name leads to file {}, which has no record", ino.0)));
            }
            seen.forget_ahead();
        }
        Err(Error::Busy)
    }

    /// Drafts the removal of this name; with its last name the file is released. The caller removes or replaces the
    /// entry's row, and counts.
    pub(crate) fn drop_name(&self, draft: &mut Draft, located: &Located, seen: &mut Seen) -> Result<(), Error> {
        located.assert_in(draft);
        if !located.linked() {
            return self.release_file(draft, &located.file, seen);
        }
        match located.drafted(draft)? {
            Some(mut file) if file.links > 1 => {
                file.links -= 1;
                file.changed = self.now();
                draft.put(located.row_key.clone(), file.encode().value);
                Ok(())
            }
            Some(file) => {
                draft.delete(located.row_key.clone());
                self.release_file(draft, &file, seen)
            }
            None => Ok(()),
        }
    }

    /// Drafts another name of the file at `key`, which the caller asserts to be free, and counts. Returns the new
    /// attributes.
    pub(crate) fn add_name(&self, draft: &mut Draft, located: &Located, key: Vec<u8>) -> Result<FileEntry, Error> {
        located.assert_in(draft);
        let mut file =
            located.drafted(draft)?.ok_or_else(|| Error::Corrupt("a link to a file that goes".to_owned()))?;
        file.links += 1;
        file.changed = self.now();
        draft.put(key::inode(file.ino), file.encode().value);
        // A file found by its record already has entries that refer to the record.
        if !located.linked() && !key::is_inode(&located.entry_key) {
            draft.put(located.entry_key.clone(), encode_link(file.ino));
            draft.relocate_file(&file, &key::inode(file.ino));
        }
        draft.put(key, encode_link(file.ino));
        Ok(file)
    }

    /// Drafts that the name moves to `key`, with the version and documents of `there`; the caller handles what was at
    /// `key`.
    pub(crate) fn move_name(
        &self,
        draft: &mut Draft,
        located: &Located,
        key: Vec<u8>,
        there: &FileEntry,
    ) -> Result<(), Error> {
        located.assert_in(draft);
        let mut file = located.drafted(draft)?.ok_or_else(|| Error::Corrupt("a file moves that goes".to_owned()))?;
        file.changed = self.now();
        (file.version, file.documents) = (there.version, there.documents);
        draft.delete(located.entry_key.clone());
        if located.linked() {
            draft.put(key, encode_link(file.ino));
            draft.put(located.row_key.clone(), file.encode().value);
        } else {
            draft.relocate_file(&file, &key);
            draft.put(key, file.encode().value);
        }
        Ok(())
    }
}
