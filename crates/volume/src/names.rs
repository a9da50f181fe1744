//! Files by their names: where a file's attributes are, and names that come and go.
//!
//! Why:        a file with one name has its attributes in the entry, one with several in an inode record that its
//!             entries lead to; whoever changes or removes a name must treat both alike.
//! Invariants: L1 an inode record holds the number of entries that lead to it; each change of one asserts the
//!                record's version, so two that go at once conflict and the last one knows that it is the last.
//!             L2 a file that has had several names keeps its inode record until the last of them goes.
//!             L3 one batch may change a record several times: each step begins with what the batch holds of it.
//! Not here:   directories and counters (paths, put_object), what becomes of a file's data (release).

use margay_meta::{Cursor, RowVersion};
use margay_rows::record::entry::encode_link;
use margay_rows::record::{Entry, FileEntry};
use margay_rows::{Ino, key};

use crate::api::{Error, VersionId};
use crate::draft::Draft;
use crate::open::Volume;
use crate::seen::Seen;

/// Times that an entry is read again because its inode record went meanwhile.
const TRIES_MAX: usize = 64;

/// A file that has a name here.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) parent: Ino,
    /// The entry that names it, and its version; when only the inode record was looked up, that.
    pub(crate) entry_key: Vec<u8>,
    pub(crate) entry_version: RowVersion,
    /// The row with its attributes: the entry itself, or the inode record of a file with several names.
    pub(crate) row_key: Vec<u8>,
    pub(crate) version: RowVersion,
    /// The newest commit that what was read rests on: once it is durable a payload can be read.
    pub(crate) observed: Cursor,
    pub(crate) file: FileEntry,
    /// What S3 calls it; `None` in a bucket that never kept versions, and where nobody asks.
    pub(crate) version_id: Option<VersionId>,
}

impl Located {
    /// A file whose attributes are in its entry.
    pub(crate) fn direct(parent: Ino, key: Vec<u8>, version: RowVersion, observed: Cursor, file: FileEntry) -> Located {
        let entry_key = key.clone();
        Located { parent, entry_key, entry_version: version, row_key: key, version, observed, file, version_id: None }
    }

    /// A version that is not current; it has no directory.
    pub(crate) fn of_version(row_key: Vec<u8>, version: RowVersion, observed: Cursor, file: FileEntry) -> Located {
        Located::direct(Ino(0), row_key, version, observed, file)
    }

    /// Its attributes are in an inode record.
    pub(crate) fn linked(&self) -> bool {
        key::is_inode(&self.row_key)
    }

    /// The name leads to this file, and its attributes are as they were read.
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        draft.assert_version(self.entry_key.clone(), self.entry_version);
        if self.linked() {
            draft.assert_version(self.row_key.clone(), self.version);
        }
    }

    /// Notes the file's rows as read: an error is believed only while they are unchanged.
    pub(crate) fn note_in(&self, seen: &mut Seen) {
        seen.remembered(&self.entry_key, self.entry_version);
        if self.linked() {
            seen.remembered(&self.row_key, self.version);
        }
    }

    /// The attributes as the draft leaves them so far (L3); `None` when it removes them.
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
    /// The file of this sort name; `None` when there is none.
    pub(crate) fn file_at(&self, parent: Ino, sort_name: &[u8], seen: &mut Seen) -> Result<Option<Located>, Error> {
        let entry_key = key::entry(parent, sort_name);
        for _ in 0..TRIES_MAX {
            let Some(row) = self.get(&entry_key, seen)? else { return Ok(None) };
            let ino = match Entry::decode(&row.value)? {
                Entry::File(file) => {
                    return Ok(Some(Located::direct(parent, entry_key, row.version, seen.cursor, file)));
                }
                Entry::Directory(_) => return Err(Error::Corrupt("a directory has the name of a file".to_owned())),
                Entry::Link(ino) => ino,
            };
            let row_key = key::inode(ino);
            if let Some(inode) = self.get(&row_key, seen)? {
                let file = Entry::decode(&inode.value)?.file();
                let file = file.ok_or_else(|| Error::Corrupt("an inode record holds no file".to_owned()))?;
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
            // Absent when the last name went between the two reads.
            if self.row(&entry_key)?.value.is_some_and(|again| again.version == row.version) {
                return Err(Error::Corrupt(format!("a name leads to file {}, which has no record", ino.0)));
            }
            seen.forget_ahead();
        }
        Err(Error::Busy)
    }

    /// Drafts that a file loses this name; with its last name the file goes. The entry's row is left to the caller,
    /// who removes it or puts another one there, and counts.
    pub(crate) fn drop_name(&self, draft: &mut Draft, located: &Located) -> Result<(), Error> {
        located.assert_in(draft);
        if !located.linked() {
            return self.release_file(draft, &located.file);
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
                self.release_file(draft, &file)
            }
            None => Ok(()),
        }
    }

    /// Drafts that a file has one more name, at `key`, which the caller asserts to be free, and counts. Gives its
    /// attributes from then on.
    pub(crate) fn add_name(&self, draft: &mut Draft, located: &Located, key: Vec<u8>) -> Result<FileEntry, Error> {
        located.assert_in(draft);
        let mut file =
            located.drafted(draft)?.ok_or_else(|| Error::Corrupt("a link to a file that goes".to_owned()))?;
        file.links += 1;
        file.changed = self.now();
        draft.put(key::inode(file.ino), file.encode().value);
        // A file that was found by its record has other entries, which lead to it already.
        if !located.linked() && !key::is_inode(&located.entry_key) {
            draft.put(located.entry_key.clone(), encode_link(file.ino));
            draft.relocate_file(&file, &key::inode(file.ino));
        }
        draft.put(key, encode_link(file.ino));
        Ok(file)
    }

    /// Drafts that a name is at `key` instead, as the version and with the documents of `there`; what was there is the
    /// caller's matter.
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
