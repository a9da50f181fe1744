//! Runs with several owners.
//!
//! Why:        a copy moves no data: it becomes one more owner of the source's runs.
//! Invariants: H1 when a run gets its second owner, a row is written for both; later owners write their own.
//!             H2 the source gets the shared flag in the same batch, so a removal of the source that did
//!                not know of the copy conflicts.
//! Not here:   the end of an owner (release).

use margay_rows::record::data::OBJECT_EXTENTS_MAX;
use margay_rows::record::{Data, FileEntry};
use margay_rows::{Ino, key};
use margay_segment::Extent;

use crate::api::Error;
use crate::draft::Draft;
use crate::names::Located;
use crate::open::Volume;
use crate::release::distinct_runs;
use crate::seen::Seen;

/// The value of a share row; its key says it all.
pub(crate) const SHARE_ROW: &[u8] = &[1];

impl Volume {
    /// All extents of a file, in order; `None` when its bytes are inline.
    pub(crate) fn extents_of(&self, file: &FileEntry) -> Result<Option<Vec<Extent>>, Error> {
        match &file.data {
            Data::Inline(_) => Ok(None),
            Data::Extents(extents) => Ok(Some(extents.clone())),
            Data::Rows => {
                let rows = self.extent_rows(file.ino, 0, OBJECT_EXTENTS_MAX + 1, &mut Seen::default())?;
                Ok(Some(rows.into_iter().map(|(_, extent)| extent).collect()))
            }
        }
    }

    /// Drafts that `new` names these extents' runs too.
    pub(crate) fn share_runs(
        &self,
        draft: &mut Draft,
        source: &Located,
        new: Ino,
        extents: &[Extent],
    ) -> Result<(), Error> {
        source.assert_in(draft);
        if !source.file.shared {
            source.draft_change(draft, |file| file.shared = true)?;
        }
        for run in distinct_runs(extents) {
            draft.put(key::share(run.segment, run.offset, source.file.ino), SHARE_ROW.to_vec());
            draft.put(key::share(run.segment, run.offset, new), SHARE_ROW.to_vec());
        }
        Ok(())
    }

    /// Drafts that `new` takes the place of `old` as an owner, where `old` is listed as one. A copy lists it without
    /// changing its entry, so that it is not listed is asserted, too.
    pub(crate) fn hand_over(&self, draft: &mut Draft, old: Ino, new: Ino, extents: &[Extent]) -> Result<(), Error> {
        for run in distinct_runs(extents) {
            let mine = key::share(run.segment, run.offset, old);
            if self.row(&mine)?.value.is_some() {
                draft.assert_exists(mine.clone());
                draft.delete(mine);
                draft.put(key::share(run.segment, run.offset, new), SHARE_ROW.to_vec());
            } else {
                draft.assert_absent(mine);
            }
        }
        Ok(())
    }
}
