//! Enters objects of another store into a directory, with the caller's rows about them in the same batch.
//!
//! Why:        a directory of a far bucket gets its entries when it is listed; their bytes stay there until they are read.
//! Invariants: I1 an entry is made only where there is none, or where the file is that the caller names: it knows that nothing of
//!                that one is only here.
//!             I2 a file owns the runs that stand for its bytes, as any file; so they are counted and found by the walk.
//! Not here:   listing, reading such bytes (the store of another number: stores), what differs later (margay-upstream).

use margay_env::Timestamp;
use margay_meta::Guard;
use margay_rows::key::{self, Counted};
use margay_rows::record::{Data, DirectoryEntry, DirectoryRecord, Entry, FileEntry};
use margay_rows::{Ino, record};
use margay_segment::{Extent, RUN_BYTES_MAX, Run, SegmentId};

use crate::api::{ETag, Error, Headers};
use crate::draft::{Draft, Owning, Seen};
use crate::object::callers_rows::CallersRows;
use crate::object::put_object::count;
use crate::open::Volume;
use crate::upload::place::{NewRuns, put_new_file};

/// An entry to make.
#[derive(Clone, Debug)]
pub struct Imported {
    /// From [`Volume::new_number`].
    pub ino: Ino,
    /// A directory's ends in `/`.
    pub sort_name: String,
    /// Rights; of a file also its kind.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: Timestamp,
    /// Extended attributes that are not headers, each as [`crate::posix::imported_xattr`] has it.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub kind: ImportedKind,
}

#[derive(Clone, Debug)]
pub enum ImportedBytes {
    /// In the segment that stands for them.
    Far(SegmentId),
    /// The object has none: they come from what else it says.
    Here(Vec<u8>),
}

#[derive(Clone, Debug)]
pub enum ImportedKind {
    File {
        size: u64,
        etag: ETag,
        device: u32,
        headers: Headers,
        bytes: ImportedBytes,
    },
    /// `explicit`: it stays when it is empty.
    Directory {
        explicit: bool,
    },
}

impl Imported {
    /// The entry of a file, with this data; `None` for a directory.
    pub fn file(&self, data: Data) -> Option<FileEntry> {
        let ImportedKind::File { size, etag, device, headers, .. } = &self.kind else { return None };
        let mut file = FileEntry::new(self.ino, *size, *etag, self.modified, data, headers.clone());
        (file.mode, file.uid, file.gid, file.device) = (self.mode, self.uid, self.gid, *device);
        // The rows of its parts are at the other store.
        file.part_rows = false;
        file.xattrs = !self.xattrs.is_empty();
        Some(file)
    }

    /// The entry of a directory; `None` for a file.
    pub fn directory(&self) -> Option<DirectoryEntry> {
        let ImportedKind::Directory { explicit } = self.kind else { return None };
        let mut entry = DirectoryEntry { explicit, ..DirectoryEntry::implicit(self.ino) };
        (entry.mode, entry.uid, entry.gid) = (self.mode, self.uid, self.gid);
        entry.xattrs = !self.xattrs.is_empty();
        Some(entry)
    }
}

impl Volume {
    /// A number for a new file or directory; none is given twice.
    pub fn new_number(&self) -> Result<Ino, Error> {
        self.new_ino()
    }

    /// Makes entries in a directory, and writes the caller's rows in the same batch; false if
    /// the directory or one of the names is not free for it. Durable later.
    pub fn import(
        &self,
        bucket: &str,
        directory: Ino,
        entries: &[Imported],
        rows: &CallersRows,
    ) -> Result<bool, Error> {
        self.import_over(bucket, directory, &[], entries, rows)
    }

    /// As `import`; these files and empty directories (sort name and number) go first, and entries may have their names. False
    /// also if one of them is not under its name, or not empty.
    pub fn import_over(
        &self,
        bucket: &str,
        directory: Ino,
        gone: &[(String, Ino)],
        entries: &[Imported],
        rows: &CallersRows,
    ) -> Result<bool, Error> {
        let mut seen = Seen::default();
        let root = self.bucket_row(bucket, &mut seen)?.0.root;
        let mut draft = Draft::default();
        draft.assert_exists(key::directory(directory));
        for (sort_name, ino) in gone {
            if sort_name.ends_with('/') {
                if !self.draft_directory_gone(&mut draft, (directory, sort_name), *ino, &mut seen)? {
                    return Ok(false);
                }
                continue;
            }
            let found = self.file_at(directory, sort_name.as_bytes(), &mut seen)?;
            let Some(found) = found.filter(|found| found.file.ino == *ino && !found.linked()) else { return Ok(false) };
            self.drop_name(&mut draft, &found, &mut seen)?;
            count(&mut draft, root, Some(&found.file), None);
            if entries.iter().all(|one| one.sort_name != *sort_name) {
                draft.delete(found.entry_key);
            }
            draft.max(key::times(directory), self.now().0.max(0) as u64);
        }
        for one in entries {
            if gone.iter().all(|(sort_name, _)| *sort_name != one.sort_name) {
                draft.assert_absent(key::entry(directory, one.sort_name.as_bytes()));
            }
            match &one.kind {
                ImportedKind::File { .. } => draft_file(&mut draft, (directory, root), one)?,
                ImportedKind::Directory { .. } => draft_directory(&mut draft, directory, one),
            }
            for (name, value) in &one.xattrs {
                draft.put(key::xattr(one.ino, name), value.clone());
            }
        }
        self.commit_with(draft, rows)
    }
}

impl Volume {
    /// Drafts the removal of a directory, which asserts that nothing is in it; false if it is not under its name.
    fn draft_directory_gone(
        &self,
        draft: &mut Draft,
        (directory, sort_name): (Ino, &str),
        ino: Ino,
        seen: &mut Seen,
    ) -> Result<bool, Error> {
        let entry_key = key::entry(directory, sort_name.as_bytes());
        let Some(row) = self.get(&entry_key, seen)? else { return Ok(false) };
        let Entry::Directory(entry) = Entry::decode(&row.value)? else { return Ok(false) };
        if entry.ino != ino {
            return Ok(false);
        }
        draft.assert_version(entry_key.clone(), row.version);
        draft.assert_empty(key::entries(ino), Guard::Key(entry_key.clone()));
        draft.delete(entry_key);
        draft.add(key::subdirectories(directory), -1);
        draft.max(key::times(directory), self.now().0.max(0) as u64);
        self.release_directory(draft, &entry)?;
        Ok(true)
    }
}

fn draft_file(draft: &mut Draft, (directory, root): (Ino, Ino), one: &Imported) -> Result<(), Error> {
    assert!(!one.sort_name.ends_with('/'), "the name of a file has no slash at its end");
    let (runs, inline) = match &one.kind {
        ImportedKind::File { bytes: ImportedBytes::Far(segment), size, .. } => (runs_of(*segment, *size), Vec::new()),
        ImportedKind::File { bytes: ImportedBytes::Here(bytes), .. } => (Vec::new(), bytes.clone()),
        ImportedKind::Directory { .. } => unreachable!("it is a file"),
    };
    let data = match runs.is_empty() {
        true => Data::Inline(inline),
        false => Data::Extents(runs.iter().copied().map(Extent::whole).collect()),
    };
    let file = one.file(data).expect("it is a file");
    let (entry, size) = (key::entry(directory, one.sort_name.as_bytes()), file.size);
    put_new_file(draft, entry, file, NewRuns::stored(runs, Owning::First))?;
    draft.add(key::usage(root, Counted::Objects), 1);
    draft.add(key::usage(root, Counted::Bytes), size as i64);
    Ok(())
}

fn draft_directory(draft: &mut Draft, directory: Ino, one: &Imported) {
    assert!(one.sort_name.ends_with('/'), "the sort name of a directory ends in a slash");
    let entry = one.directory().expect("it is a directory");
    let record = DirectoryRecord { parent: directory, sort_name: one.sort_name.clone() };
    draft.add(key::subdirectories(directory), 1);
    draft.put(key::entry(directory, one.sort_name.as_bytes()), entry.encode());
    draft.put(key::directory(one.ino), record.encode());
    draft.max(key::times(one.ino), one.modified.0.max(0) as u64);
}

/// An object of 5 TiB has 80 runs; the record of a file holds as many as a part's.
pub(super) fn runs_of(segment: SegmentId, size: u64) -> Vec<Run> {
    let count = size.div_ceil(RUN_BYTES_MAX);
    assert!(count <= record::data::PART_EXTENTS_MAX as u64, "no store has an object of so many bytes");
    let run = |index: u64| {
        let offset = index * RUN_BYTES_MAX;
        Run { segment, offset, len: RUN_BYTES_MAX.min(size - offset), crc: 0 }
    };
    (0..count).map(run).collect()
}
