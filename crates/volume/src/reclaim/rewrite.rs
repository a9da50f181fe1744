//! Moving the live runs of mostly dead segments into the open pack.
//!
//! Why:        what is left of a segment is copied out, so that the file can go.
//! Invariants: see `reclaim` C2 and C3. Checksums of a run do not change when it moves; a run that does not verify
//!             stays where it is.

use std::collections::HashSet;

use margay_segment::{Extent, Kind, Run, SegmentError, SegmentId, SegmentPin};

use super::gather::{Named, Naming};
use super::{LiveTable, LogRelease, ReclaimBudget, Reclaimed};
use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;
use crate::key::{self, Ino, Live};
use crate::open::Volume;
use crate::record::data::{decode_extent_row, extent_row};
use crate::record::{Data, PartRecord, file_of_row};
use crate::seen::Seen;

/// Runs with more owners than this stay where they are.
const OWNERS_MAX: usize = 256;
/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// A run, and its copy that nothing names yet.
#[derive(Debug)]
struct Copied<'a> {
    named: &'a Named,
    new: Run,
    _pin: SegmentPin,
}

impl Volume {
    /// True when something was moved.
    pub(super) fn rewrite_mostly_dead(
        &self,
        budget: &ReclaimBudget,
        logs: &dyn LogRelease,
        done: &mut Reclaimed,
    ) -> Result<bool, Error> {
        let before = self.live_table()?;
        let victims = self.victims(budget, logs, &before);
        if victims.is_empty() {
            return Ok(false);
        }
        let runs = self.named_runs(&victims)?;
        let mut copied = Vec::new();
        for named in runs.values() {
            if named.orphaned || named.owners.len() > OWNERS_MAX {
                done.skipped_runs += 1;
                continue;
            }
            match self.copy_run(named) {
                Ok(copy) => copied.push(copy),
                Err(SegmentError::Full) => {
                    tracing::warn!("no room to rewrite segments: giving back dead parts in place");
                    self.punch_dead(&victims, &runs, &before, done)?;
                    break;
                }
                Err(error @ (SegmentError::Corrupt { .. } | SegmentError::Missing(_))) => {
                    tracing::error!(%error, "a run cannot be moved");
                    done.damaged_runs += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.name_copies(&copied, done)?;
        Ok(!copied.is_empty())
    }

    /// The deadest first, as long as the budget lasts.
    fn victims(&self, budget: &ReclaimBudget, logs: &dyn LogRelease, table: &LiveTable) -> HashSet<SegmentId> {
        let mut candidates = Vec::new();
        for info in self.settled_segments(logs) {
            let live = table.get(&info.id).copied().unwrap_or_default().live().max(0) as u64;
            let used = self.store.allocated_bytes(info.id).unwrap_or(info.len).max(1);
            let percent = live.saturating_mul(100) / used;
            if info.kind != Kind::Raw && live > 0 && percent < budget.live_percent_min {
                candidates.push((percent, info.id, live));
            }
        }
        candidates.sort_unstable();
        let mut left = budget.move_bytes_max;
        let mut victims = HashSet::new();
        for (_, segment, live) in candidates {
            match left.checked_sub(live) {
                Some(rest) => left = rest,
                // At least one, or a small budget would never get anywhere.
                None if victims.is_empty() => left = 0,
                None => break,
            }
            victims.insert(segment);
        }
        victims
    }

    fn copy_run<'a>(&self, named: &'a Named) -> Result<Copied<'a>, SegmentError> {
        let old = named.run;
        let owner = named.owners.first().map_or(0, |(owner, _)| owner.0);
        let mut writer = self.store.begin_run(old.len, &owner.to_be_bytes())?;
        let mut offset = 0;
        while offset < old.len {
            let bytes = self.store.read(&Extent::whole(old), offset, COPY_BYTES.min(old.len - offset))?;
            writer.write(&bytes)?;
            offset += bytes.len() as u64;
        }
        let pin = self.store.pin(writer.segment())?;
        let new = writer.finish()?;
        assert_eq!((new.len, new.crc), (old.len, old.crc), "the same bytes have the same checksum");
        Ok(Copied { named, new, _pin: pin })
    }

    fn name_copies(&self, copied: &[Copied<'_>], done: &mut Reclaimed) -> Result<(), Error> {
        let segments: HashSet<SegmentId> = copied.iter().map(|copy| copy.new.segment).collect();
        segments.into_iter().try_for_each(|segment| self.store.sync_blocking(segment))?;
        for copy in copied {
            match self.try_name_copy(copy.named, &copy.new) {
                Ok(()) => {
                    done.moved_runs += 1;
                    done.moved_bytes += copy.new.len;
                }
                Err(Refused::Conflict) => done.skipped_runs += 1,
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn try_name_copy(&self, named: &Named, new: &Run) -> Result<(), Refused> {
        let old = &named.run;
        let mut draft = Draft::default();
        let mut owners: Vec<Ino> = Vec::new();
        for (owner, naming) in &named.owners {
            owners.push(*owner);
            self.draft_renaming(&mut draft, naming, old, new)?;
        }
        owners.sort_unstable();
        owners.dedup();
        self.draft_owners(&mut draft, &owners, old, new)?;
        draft.add(key::live(new.segment, Live::Gained), new.len as i64);
        draft.add(key::live(old.segment, Live::Lost), old.len as i64);
        self.commit(draft)?;
        Ok(())
    }

    /// Exactly these owners are listed, or the only one is not listed.
    fn draft_owners(&self, draft: &mut Draft, owners: &[Ino], old: &Run, new: &Run) -> Result<(), Refused> {
        let mut listed = Vec::new();
        let range = key::shares(old.segment, old.offset);
        self.scan(&range, &mut Seen::default(), |row| {
            listed.push((key::parse_share(row.key)?.2, row.key.to_vec(), row.version));
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        let complete = listed.iter().map(|(owner, ..)| owner).eq(owners) || (listed.is_empty() && owners.len() == 1);
        if !complete {
            return Err(Refused::Conflict);
        }
        draft.assert_only(&range, listed.iter().map(|(_, key, _)| key.clone()));
        for (owner, key, version) in listed {
            draft.assert_version(key.clone(), version);
            draft.delete(key);
            draft.put(key::share(new.segment, new.offset, owner), vec![1]);
        }
        Ok(())
    }

    /// Puts the new run in the place of the old one in one row, and makes its owner's version new.
    fn draft_renaming(&self, draft: &mut Draft, naming: &Naming, old: &Run, new: &Run) -> Result<(), Refused> {
        let renamed = |extent: &Extent| if extent.run == *old { Extent { run: *new, ..*extent } } else { *extent };
        let (row_key, entry) = match naming {
            Naming::Entry { key } | Naming::Part { key } => (key, None),
            Naming::Extent { key, entry } => (key, Some(entry)),
        };
        let row = self.engine.get(row_key)?.value.ok_or(Refused::Conflict)?;
        let value = match naming {
            Naming::Entry { .. } => {
                let mut file = file_of_row(&row.value)?.ok_or(Refused::Conflict)?;
                let Data::Extents(extents) = &mut file.data else { return Err(Refused::Conflict) };
                extents.iter_mut().for_each(|extent| *extent = renamed(extent));
                file.encode().value
            }
            Naming::Part { .. } => {
                let mut part = PartRecord::decode(&row.value)?;
                part.data = Data::Extents(part.extents()?.iter().map(renamed).collect());
                part.encode().0
            }
            Naming::Extent { .. } => extent_row(&renamed(&decode_extent_row(&row.value)?)),
        };
        if value == row.value {
            // It names other runs by now.
            return Err(Refused::Conflict);
        }
        draft.assert_version(row_key.clone(), row.version);
        draft.put(row_key.clone(), value);
        if let Some(entry) = entry {
            let row = self.engine.get(entry)?.value.ok_or(Refused::Conflict)?;
            let owner = key::parse_extent(row_key)?.0;
            if file_of_row(&row.value)?.is_none_or(|file| file.ino != owner) {
                return Err(Refused::Conflict);
            }
            draft.assert_version(entry.clone(), row.version);
            draft.put(entry.clone(), row.value.to_vec());
        }
        Ok(())
    }
}
