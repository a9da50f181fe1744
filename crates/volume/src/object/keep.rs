//! Keeps the bytes that a file has now under a name of another bucket, and lets them go again.
//!
//! Why:        what a file held when it was synced is sent to a far bucket before what it holds later (margay-upstream).
//! Invariants: K1 no byte is copied: both refer to the same runs, and each owns them.
//!             K2 the batch asserts the row of the file, so what is kept is of one state; the caller's rows come with it.
//! Not here:   which files, and when (margay-upstream); copies that S3 asks for (copy_object).

use margay_rows::key::{self, Counted};
use margay_rows::record::FileEntry;

use crate::api::{Error, Headers};
use crate::draft::{Draft, Owning, Seen, distinct_runs};
use crate::object::NamedFile;
use crate::object::callers_rows::CallersRows;
use crate::object::put_object::count;
use crate::open::Volume;
use crate::upload::place::{self, NewRuns};

impl Volume {
    /// Gives the bytes of a file another name, in the top directory of a bucket that nobody else changes, and writes the
    /// caller's rows in the same batch. False, if the file is not under its name, has not the state that `is_state` tells, or
    /// the other name is taken. Durable later.
    pub fn keep(
        &self,
        named: NamedFile<'_>,
        (bucket, kept): (&str, &str),
        is_state: impl Fn(&FileEntry) -> bool,
        rows: &CallersRows,
    ) -> Result<bool, Error> {
        let mut seen = Seen::default();
        let root = self.bucket_row(bucket, &mut seen)?.0.root;
        let found = self.file_at(named.directory, named.sort_name.as_bytes(), &mut seen)?;
        let is_file = |file: &FileEntry| file.ino == named.ino && !file.is_encrypted() && is_state(file);
        let Some(found) = found.filter(|found| !found.linked() && is_file(&found.file)) else { return Ok(false) };
        let extents = self.extents_of(&found.file, &mut seen)?;
        let (mut draft, ino, entry) = (Draft::default(), self.new_ino()?, key::entry(root, kept.as_bytes()));
        draft.assert_version(found.row_key.clone(), found.version);
        draft.assert_absent(entry.clone());
        let runs = distinct_runs(extents.as_deref().unwrap_or_default());
        let data = match extents {
            None => found.file.data.clone(),
            Some(extents) => place::place_extents(&mut draft, ino, extents),
        };
        let (size, etag) = (found.file.size, found.file.etag);
        let mut file = FileEntry::new(ino, size, etag, found.file.modified, data, Headers::new());
        file.part_rows = false;
        place::put_new_file(&mut draft, entry, file, NewRuns::stored(runs, Owning::OneMore))?;
        draft.add(key::usage(root, Counted::Objects), 1);
        draft.add(key::usage(root, Counted::Bytes), size as i64);
        self.commit_with(draft, rows)
    }

    /// Removes what was kept, and writes the caller's rows in the same batch; false if nothing has the name.
    pub fn let_go(&self, bucket: &str, kept: &str, rows: &CallersRows) -> Result<bool, Error> {
        let mut seen = Seen::default();
        let root = self.bucket_row(bucket, &mut seen)?.0.root;
        let Some(found) = self.file_at(root, kept.as_bytes(), &mut seen)? else { return Ok(false) };
        let mut draft = Draft::default();
        self.drop_name(&mut draft, &found, &mut seen)?;
        count(&mut draft, root, Some(&found.file), None);
        draft.delete(found.entry_key);
        self.commit_with(draft, rows)
    }
}
