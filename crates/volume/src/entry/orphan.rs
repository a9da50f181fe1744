//! Drains orphans: rows of deleted files and uploads.
//!
//! Why:        removing very many rows is split: the name is removed at once, the rest in bounded batches.
//! Invariants: O1 each batch asserts the orphan's row and changes its version, so two drainers cannot both release a
//!                run; after a crash `open` and reclaim continue.
//! Not here:   what becomes an orphan (release, multipart).

use std::ops::ControlFlow;

use margay_rows::record::{Orphan, PartRecord};
use margay_rows::{Ino, key};
use margay_segment::Extent;

use crate::api::Error;
use crate::draft::{Draft, Seen, distinct_runs};
use crate::driver::Decided;
use crate::entry::release::RELEASE_ROWS_MAX;
use crate::error::Refused;
use crate::open::Volume;
use crate::sessions::Lease;

/// Parts per batch; each may have many extents.
const PARTS_MAX: usize = 16;
/// Orphans read in one scan.
const ORPHANS_MAX: usize = 256;

impl Volume {
    /// Drains all orphans under a lease; returns their number.
    pub(crate) fn drain_orphans(&self, lease: &Lease) -> Result<usize, Error> {
        let mut range = key::orphans();
        let mut drained = 0;
        loop {
            let mut found = Vec::new();
            self.scan(&range, &mut Seen::default(), |row| {
                found.push(key::parse_ino(row.key)?.0);
                Ok(if found.len() < ORPHANS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
            let Some(last) = found.last() else { return Ok(drained) };
            range.0 = key::after(key::orphan(*last));
            for ino in found {
                self.drain_orphan(ino, lease)?;
                drained += 1;
            }
        }
    }

    /// Drains one orphan completely.
    fn drain_orphan(&self, ino: Ino, lease: &Lease) -> Result<(), Error> {
        while !self.retry(|seen| match self.try_drain(ino, lease, seen)? {
            Decided::Committed(done, _) | Decided::Commit(_, done) | Decided::Nothing(done) => Ok(done),
        })? {}
        Ok(())
    }

    /// Drains the orphan of a committed operation; on failure the next reclaim continues.
    pub(crate) async fn drain_soon(&self, ino: Ino) {
        // A part of that operation, and no job: O1 suffices.
        let lease = Lease::alone();
        loop {
            match self.decide(Seen::default(), |seen| self.try_drain(ino, &lease, seen)).await {
                Ok((true, _)) => return,
                Ok((false, _)) => {}
                Err(error) => {
                    tracing::warn!(orphan = ino.0, %error, "an orphan is not drained yet");
                    return;
                }
            }
        }
    }

    /// Drains one batch; true when nothing is left.
    fn try_drain(&self, ino: Ino, lease: &Lease, seen: &mut Seen) -> Result<Decided<bool>, Refused> {
        // Recorded in `seen`: rows that another drainer has removed since are not damage.
        let Some(row) = self.get(&key::orphan(ino), seen)? else { return Ok(Decided::Nothing(true)) };
        let mut draft = Draft::default();
        lease.assert_in(&mut draft);
        draft.assert_version(key::orphan(ino), row.version);
        let done = match Orphan::decode(&row.value)? {
            Orphan::File => self.draft_extents(&mut draft, ino)?,
            Orphan::Parts => self.draft_parts(&mut draft, ino)?,
        };
        // Rewritten, so that another drainer that read the same rows conflicts: it would subtract their runs twice.
        if done {
            draft.delete(key::orphan(ino));
        } else {
            draft.put(key::orphan(ino), row.value.to_vec());
        }
        self.finish(draft, done)
    }

    fn draft_extents(&self, draft: &mut Draft, ino: Ino) -> Result<bool, Error> {
        let rows = self.extent_rows(ino, 0, RELEASE_ROWS_MAX + 1, &mut Seen::default())?;
        let done = rows.len() <= RELEASE_ROWS_MAX;
        let (mut now, mut later): (Vec<Extent>, Vec<Extent>) = (Vec::new(), Vec::new());
        for (index, (offset, extent)) in rows.into_iter().enumerate() {
            if index < RELEASE_ROWS_MAX {
                draft.delete(key::extent(ino, offset));
                now.push(extent);
            } else {
                later.push(extent);
            }
        }
        // A run that rows of a later batch also refer to is released there. A file has at most `OBJECT_EXTENTS_MAX`
        // rows, so reading all of them is bounded.
        if !done {
            later.extend(
                self.extent_rows(ino, 0, usize::MAX, &mut Seen::default())?
                    .into_iter()
                    .skip(RELEASE_ROWS_MAX)
                    .map(|(_, one)| one),
            );
            let named: std::collections::HashSet<_> =
                later.iter().map(|extent| (extent.run.segment, extent.run.offset)).collect();
            now.retain(|extent| !named.contains(&(extent.run.segment, extent.run.offset)));
        }
        draft.disown_runs(ino, &distinct_runs(&now));
        Ok(done)
    }

    fn draft_parts(&self, draft: &mut Draft, upload: Ino) -> Result<bool, Error> {
        let mut parts = Vec::new();
        self.scan(&key::parts(upload), &mut Seen::default(), |row| {
            parts.push((row.key.to_vec(), row.version, PartRecord::decode(row.value)?));
            Ok(if parts.len() < PARTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        let done = parts.len() < PARTS_MAX;
        for (key, version, part) in parts {
            // Reclaim may move a part's runs meanwhile.
            draft.assert_version(key.clone(), version);
            release_part(draft, &part)?;
            draft.delete(key);
        }
        Ok(done)
    }
}

/// Drafts the release of a part's runs; the draft removes or replaces its row.
pub(crate) fn release_part(draft: &mut Draft, part: &PartRecord) -> Result<(), Error> {
    draft.disown_runs(part.ino, &distinct_runs(part.extents()?));
    Ok(())
}
