//! What a publish keeps: the content that was there before a file was opened and written.
//!
//! Why:        the last close after a write makes a version. What an open file publishes before that (fsync, flush) is the
//!             same version, since its first publish made it.
//! Invariants: the file keeps its number, because kernels know it; what it was gets a new one, takes over the runs that the
//!             file no longer names, and shares the others.
//! Not here:   the version that comes (publish), the rows of versions (versions).

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Document;
use margay_rows::record::{Data, FileEntry, Version};
use margay_segment::Extent;

use crate::api::{Error, Versioning};
use crate::draft::Draft;
use crate::error::Refused;
use crate::names::Located;
use crate::open::Volume;
use crate::open_files::{OpenFile, State};
use crate::place;
use crate::seen::Seen;
use crate::share::SHARE_ROW;

/// The version that an open file publishes, and the number of what it was, if that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextVersion {
    pub(crate) version: Version,
    pub(crate) kept: Option<Ino>,
}

impl Volume {
    /// Decides which version a publish makes, and drafts it but for the file's own rows.
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
        // Of several names none is the key; which one leads to a record alone is not known.
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
        // Whether it shares runs with what comes is known there; a flag too many costs a look.
        kept.shared = matches!(old.data, Data::Extents(_) | Data::Rows) && old.size > 0;
        draft.add(key::usage(file.root, Counted::Bytes), old.size as i64);
        key.draft_row(draft, old.version.sequence, old.version.is_null, kept.encode().value);
        Ok(NextVersion { version, kept: Some(ino) })
    }

    /// Drafts who owns the runs of what was kept: `lost` are those that the file names no more, `both` the others.
    pub(crate) fn draft_runs_kept(
        &self,
        draft: &mut Draft,
        (file, kept): (&FileEntry, Ino),
        lost: &[Extent],
        both: &[Extent],
    ) -> Result<(), Error> {
        if file.shared {
            self.hand_over(draft, file.ino, kept, lost)?;
        }
        for extent in both {
            for owner in [file.ino, kept] {
                draft.put(key::share(extent.run.segment, extent.run.offset, owner), SHARE_ROW.to_vec());
            }
        }
        Ok(())
    }

    /// Gives the version that an open file made the retention of its bucket, now that it is closed; its turn is held.
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
            self.draft_locks(&mut draft, bucket.object_lock, bucket.retention, &mut new)?;
            place::put_file(&mut draft, located.row_key.clone(), new, None)?;
            let done: Result<_, Refused> = self.commit_from_mount(draft).map(|_| ());
            done.inspect_err(|_| self.bucket_states.forget(file.root))
        })
    }
}
