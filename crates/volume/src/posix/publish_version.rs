//! Versioning on publish: keeps the content from before a file was opened and written.
//!
//! Why:        the last close after a write creates a version. Earlier publishes of the same open session (fsync,
//!             flush) belong to that version, since the first of them created it.
//! Invariants: V1 the file keeps its number, because kernels know it; the old content gets a new number, takes over the
//!                runs that the file no longer refers to, and shares the others.
//! Not here:   the new version (publish), the rows of versions (versions).

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Document;
use margay_rows::record::{Data, FileEntry, Version};
use margay_segment::Run;

use crate::api::{Error, Versioning};
use crate::draft::{Draft, Owning, Seen};
use crate::entry::Located;
use crate::error::Refused;
use crate::open::Volume;
use crate::open_files::{OpenFile, State};
use crate::upload::place;

/// The version that an open file publishes, and its old content, if that is kept.
#[derive(Debug)]
pub(crate) struct NextVersion {
    pub(crate) version: Version,
    pub(crate) kept: Option<Kept>,
}

/// The old content of an open file, under a number of its own.
#[derive(Debug)]
pub(crate) struct Kept {
    ino: Ino,
    /// Its version row, and whether it contains the extents.
    row: Vec<u8>,
    in_row: bool,
}

impl Kept {
    /// Drafts the owners of the kept content's runs: `lost` are no longer in the file, `both` are shared.
    pub(crate) fn draft_runs(&self, draft: &mut Draft, file: Ino, lost: &[Run], both: &[Run]) {
        let row = self.in_row.then_some(self.row.as_slice());
        draft.hand_over_runs(file, (self.ino, row), lost);
        draft.own_runs(self.ino, row, both, Owning::OneMore);
    }
}

impl Volume {
    /// Decides which version a publish creates, and drafts it except for the file's own rows.
    pub(crate) fn draft_next_version(
        &self,
        draft: &mut Draft,
        file: &OpenFile,
        state: &State,
        located: &Located,
    ) -> Result<NextVersion, Error> {
        let (old, same) = (&located.file, NextVersion { version: located.file.version, kept: None });
        let bucket = self.bucket_state(file.root)?;
        bucket.assert_in(draft);
        let stays = match bucket.versioning {
            Versioning::Never => true,
            Versioning::Enabled => state.own_version == Some(old.version) && !self.is_file_locked(old)?,
            Versioning::Suspended => old.version.is_null,
        };
        // A hard-linked file has no single key; a file located by its record alone has no known name.
        if stays || !state.data_pending || old.links > 1 || located.parent == Ino(0) {
            return Ok(same);
        }
        let (parent, name) = key::parse_entry(&located.entry_key)?;
        let Some(key) = self.key_of(parent, name)? else { return Ok(same) };
        let key = bucket.object(&key);
        let version = self.newest_version(&key, Some(located), &mut Seen::default())?;
        key.assert_newest(draft, version.sequence);
        located.assert_in(draft);
        if version.is_null {
            self.draft_end_of_null_row(draft, &key, &mut Seen::default())?;
        }
        let ino = self.new_ino()?;
        let mut kept = FileEntry { ino, links: 1, ..old.clone() };
        if old.data == Data::Rows {
            let extents = state.base.extents.iter().map(|(_, extent)| *extent).collect();
            kept.data = place::place_extents(draft, ino, extents);
        }
        self.draft_rows_of_copy(draft, old, ino)?;
        let row = key.row(old.version.sequence);
        let in_row = kept.data != Data::Rows;
        if !in_row {
            draft.locate_extent_rows(ino, &row);
        }
        draft.add(key::usage(file.root, Counted::Bytes), old.size as i64);
        key.draft_row(draft, old.version.sequence, old.version.is_null, kept.encode().value);
        Ok(NextVersion { version, kept: Some(Kept { ino, row, in_row }) })
    }

    /// Gives the version of a closed session the bucket's default retention; the file's turn is held.
    pub(crate) fn lock_closed(&self, file: &OpenFile) -> Result<(), Error> {
        let Some(own) = file.state.read().own_version else { return Ok(()) };
        self.retry(|_| {
            let bucket = self.bucket_state(file.root)?;
            let Some(located) = self.locate_file(file.ino)?.filter(|located| located.file.version == own) else {
                return Ok(());
            };
            if bucket.retention.is_none() || located.file.documents.contains(Document::Retention) {
                return Ok(());
            }
            let mut draft = Draft::default();
            bucket.assert_in(&mut draft);
            located.assert_in(&mut draft);
            let mut new = located.file.clone();
            self.draft_locks(&mut draft, &bucket, &mut new)?;
            place::put_file(&mut draft, located.row_key.clone(), new)?;
            let done: Result<_, Refused> = self.commit_from_mount(&file.lease, draft).map(|_| ());
            done.inspect_err(|_| self.bucket_facts.forget(file.root))
        })
    }
}
