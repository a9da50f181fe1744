//! Moves the live runs of mostly dead segments into the open pack, so that the old files can be removed.
//!
//! Invariants: see `reclaim` C2 and C3. The checksums of a run do not change when it moves; a run that fails
//!             verification is not moved.
//!             W1 the batch that moves a run uses only rows that it asserts. For a file with extent rows it asserts the
//!                entry, which is read before the extent rows: every change of the extents rewrites the entry, so the
//!                rows are complete. (The result of `gather` is not asserted and decides nothing: a concurrent write
//!                that splits an extent adds a row that refers to the run.)
//!             W2 it asserts that the run has no other back row: a concurrent copy conflicts, or its source does.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use margay_meta::Guard;
use margay_rows::Ino;
use margay_rows::key;
use margay_rows::record::data::{decode_extent_row, extent_row};
use margay_rows::record::{Data, PartRecord, file_of_row};
use margay_segment::format::PACK_HEADER_BYTES;
use margay_segment::{Extent, Kind, Run, RunLength, SegmentError, SegmentId, SegmentPin};

use super::gather::{Named, Naming, OWNERS_MAX};
use super::{LiveBytes, LiveTable, LogRelease, ReclaimBudget, Reclaimed};
use crate::api::Error;
use crate::draft::{Draft, Owning, Seen};
use crate::error::Refused;
use crate::open::Volume;
use crate::rests::NamedBytes;
use crate::sessions::Lease;

/// Runs of one file moved in one batch: its rows are read once for all of them.
const RUNS_PER_BATCH_MAX: usize = 256;
/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// A file occupies whole pages of the device.
const PAGE_BYTES: u64 = 4096;

/// A run and its copy, which nothing refers to yet.
#[derive(Debug)]
struct Copied<'a> {
    named: &'a Named,
    new: Run,
    _pin: SegmentPin,
}

impl Volume {
    /// True if something was moved.
    pub(super) fn rewrite_mostly_dead(
        &self,
        (budget, logs): (&ReclaimBudget, &dyn LogRelease),
        lease: &Lease,
        done: &mut Reclaimed,
    ) -> Result<bool, Error> {
        let before = self.live_table()?;
        let victims = self.victims(budget, logs, &before)?;
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
                // Its dead ranges can still be punched.
                Err(SegmentError::Full) => break,
                Err(error @ (SegmentError::Corrupt { .. } | SegmentError::Missing(_))) => {
                    tracing::error!(%error, "a run cannot be moved");
                    done.damaged_runs += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.name_copies(&copied, lease, done)?;
        Ok(!copied.is_empty())
    }

    /// The most dead ones first, within the budget; none if their copies would take as much of the device.
    fn victims(
        &self,
        budget: &ReclaimBudget,
        logs: &dyn LogRelease,
        table: &LiveTable,
    ) -> Result<BTreeSet<SegmentId>, Error> {
        let mut candidates = Vec::new();
        for info in self.settled_segments(logs).into_iter().chain(self.left_packs()?) {
            if info.kind == Kind::Raw {
                continue;
            }
            let used = self.store.allocated_bytes(info.id).unwrap_or(info.len).max(1);
            let counters = table.get(&info.id).copied().unwrap_or_default();
            let mut live = counters.live();
            // A run with several owners counts for each of them.
            if percent(live, used) >= budget.live_percent_min
                && percent(counters.live_at_least(), used) < budget.live_percent_min
            {
                live = self.counted_bytes(info.id, counters)?.payload;
            }
            if live > 0 && percent(live, used) < budget.live_percent_min {
                candidates.push((percent(live, used), info.id, live, used));
            }
        }
        candidates.sort_unstable();
        let is_all_wanted = budget.live_percent_min > 100;
        let mut left = budget.move_bytes_max;
        let (mut victims, mut taken, mut given) = (BTreeSet::new(), PACK_HEADER_BYTES as u64, 0);
        for (_, segment, live, used) in candidates {
            // Frames of small runs are no dead bytes: their copies have them too.
            let needed = self.counted_bytes(segment, table.get(&segment).copied().unwrap_or_default())?.in_pack;
            if !is_all_wanted && percent(needed, used) >= budget.live_percent_min {
                continue;
            }
            match left.checked_sub(live) {
                Some(rest) => left = rest,
                // At least one, or a small budget would never make progress.
                None if victims.is_empty() => left = 0,
                None => break,
            }
            (taken, given) = (needed.saturating_add(taken), used.saturating_add(given));
            victims.insert(segment);
        }
        // A small pack would else be rewritten again and again: the rest of its last page counts as dead.
        if !is_all_wanted && given.div_ceil(PAGE_BYTES) <= taken.div_ceil(PAGE_BYTES) {
            victims.clear();
        }
        Ok(victims)
    }

    /// Referenced bytes of a segment according to its back rows; read again when its counters have changed.
    fn counted_bytes(&self, segment: SegmentId, counters: LiveBytes) -> Result<NamedBytes, Error> {
        if let Some((of, bytes)) = self.counted.lock().get(&segment)
            && *of == counters.all()
        {
            return Ok(*bytes);
        }
        let bytes = self.named_bytes(segment)?;
        self.counted.lock().insert(segment, (counters.all(), bytes));
        Ok(bytes)
    }

    fn copy_run<'a>(&self, named: &'a Named) -> Result<Copied<'a>, SegmentError> {
        let old = named.run;
        let owner = named.owners.first().map_or(0, |(owner, _)| owner.0);
        let mut writer = self.store.begin(RunLength::Exact(old.len), &owner.to_be_bytes())?;
        let mut offset = 0;
        while offset < old.len {
            let bytes = self.store.read(&Extent::whole(old), offset, COPY_BYTES.min(old.len - offset))?;
            assert!(!bytes.is_empty(), "a read within a run returns bytes");
            writer.write(&bytes)?;
            offset += bytes.len() as u64;
        }
        assert_eq!(offset, old.len, "a copy has the length of its run");
        let pin = writer.pin();
        let new = writer.end()?;
        assert_eq!((new.len, new.crc), (old.len, old.crc), "the same bytes have the same checksum");
        Ok(Copied { named, new, _pin: pin })
    }

    fn name_copies(&self, copied: &[Copied<'_>], lease: &Lease, done: &mut Reclaimed) -> Result<(), Error> {
        let segments: HashSet<SegmentId> = copied.iter().map(|copy| copy.new.segment).collect();
        segments.into_iter().try_for_each(|segment| self.store.sync_blocking(segment))?;
        for group in by_owners(copied) {
            match self.try_name_copies(&group, lease) {
                Ok(()) => {
                    done.moved_runs += group.len() as u64;
                    done.moved_bytes += group.iter().map(|copy| copy.new.len).sum::<u64>();
                }
                Err(Refused::Conflict) => done.skipped_runs += group.len() as u64,
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// One batch for copies with the same owners.
    fn try_name_copies(&self, group: &[&Copied<'_>], lease: &Lease) -> Result<(), Refused> {
        let mut draft = Draft::default();
        lease.assert_in(&mut draft);
        let mut moves =
            Moves { to: group.iter().map(|copy| (place(&copy.named.run), copy.new)).collect(), named: HashSet::new() };
        let namings = group.iter().flat_map(|copy| &copy.named.owners);
        let mut drafted = BTreeSet::new();
        for (owner, naming) in namings {
            if drafted.insert((owner, naming)) {
                self.draft_renaming(&mut draft, *owner, naming, &mut moves)?;
            }
        }
        for copy in group {
            if copy.named.owners.iter().any(|(owner, _)| !moves.named.contains(&(*owner, place(&copy.named.run)))) {
                // It refers to other runs by now.
                return Err(Refused::Conflict);
            }
            draft_owners(&mut draft, copy);
        }
        self.commit(draft)?;
        Ok(())
    }

    /// Replaces the old runs by the new ones in all of this owner's references, and changes its version.
    fn draft_renaming(&self, draft: &mut Draft, owner: Ino, naming: &Naming, moves: &mut Moves) -> Result<(), Refused> {
        let (Naming::Entry { key } | Naming::Part { key } | Naming::Rows { entry: key }) = naming;
        // Before the extent rows: see W1.
        let row = self.engine.get(key)?.value.ok_or(Refused::Conflict)?;
        let value = match naming {
            Naming::Entry { .. } => {
                let mut file = file_of_row(&row.value)?.filter(|file| file.ino == owner).ok_or(Refused::Conflict)?;
                let Data::Extents(extents) = &mut file.data else { return Err(Refused::Conflict) };
                extents.iter_mut().for_each(|extent| *extent = moves.renamed(owner, extent));
                file.encode().value
            }
            Naming::Part { .. } => {
                let mut part = PartRecord::decode(&row.value)?;
                if part.ino != owner {
                    return Err(Refused::Conflict);
                }
                part.data = Data::Extents(part.extents()?.iter().map(|extent| moves.renamed(owner, extent)).collect());
                part.encode().0
            }
            Naming::Rows { .. } => {
                let file = file_of_row(&row.value)?.ok_or(Refused::Conflict)?;
                if file.ino != owner || file.data != Data::Rows {
                    return Err(Refused::Conflict);
                }
                self.draft_rows_renamed(draft, owner, moves)?;
                row.value.to_vec()
            }
        };
        draft.assert_version(key.clone(), row.version);
        draft.put(key.clone(), value);
        Ok(())
    }

    /// The same in every extent row of a file, whose entry the draft asserts.
    fn draft_rows_renamed(&self, draft: &mut Draft, owner: Ino, moves: &mut Moves) -> Result<(), Refused> {
        self.scan(&key::extents(owner), &mut Seen::default(), |row| {
            let old = decode_extent_row(row.value)?;
            let new = moves.renamed(owner, &old);
            if new != old {
                draft.assert_version(row.key.to_vec(), row.version);
                draft.put(row.key.to_vec(), extent_row(&new));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100) / whole
}

/// Moves the back rows of a run to its copy, and asserts that there is no other owner. The owners' rows assert that
/// they still refer to it.
fn draft_owners(draft: &mut Draft, copy: &Copied<'_>) {
    let (old, new) = (copy.named.run, copy.new);
    let owners: BTreeMap<Ino, &Naming> = copy.named.owners.iter().map(|(owner, naming)| (*owner, naming)).collect();
    let backs = owners.keys().map(|owner| key::back(old.segment, old.offset, *owner));
    // A new owner asserts the row of an existing one, which this draft puts.
    draft.assert_only(&key::backs_of_run(old.segment, old.offset), backs, Guard::Written);
    let mut owning = Owning::First;
    for (owner, naming) in owners {
        let row = match naming {
            Naming::Entry { key } | Naming::Part { key } => Some(key.as_slice()),
            Naming::Rows { .. } => None,
        };
        assert_ne!(place(&old), place(&new), "a copy is elsewhere");
        draft.disown_runs(owner, &[old]);
        draft.own_runs(owner, row, &[new], owning);
        owning = Owning::OneMore;
    }
}

/// The location of a run.
type RunPlace = (SegmentId, u64);

fn place(run: &Run) -> RunPlace {
    (run.segment, run.offset)
}

/// The runs moved in one batch.
#[derive(Debug)]
struct Moves {
    to: HashMap<RunPlace, Run>,
    /// Which owners refer to which of them.
    named: HashSet<(Ino, RunPlace)>,
}

impl Moves {
    fn renamed(&mut self, owner: Ino, extent: &Extent) -> Extent {
        let Some(run) = self.to.get(&place(&extent.run)).filter(|run| run.len == extent.run.len) else {
            return *extent;
        };
        self.named.insert((owner, place(&extent.run)));
        Extent { run: *run, ..*extent }
    }
}

/// Groups copies: runs owned by one file alone go together, as far as a batch can hold them; any other run goes alone.
fn by_owners<'a, 'b>(copied: &'a [Copied<'b>]) -> Vec<Vec<&'a Copied<'b>>> {
    let mut alone: BTreeMap<Ino, Vec<&Copied<'b>>> = BTreeMap::new();
    let mut groups = Vec::new();
    for copy in copied {
        match copy.named.owners.as_slice() {
            [(owner, _)] => alone.entry(*owner).or_default().push(copy),
            _ => groups.push(vec![copy]),
        }
    }
    let chunks = alone.values().flat_map(|copies| copies.chunks(RUNS_PER_BATCH_MAX));
    groups.extend(chunks.map(<[_]>::to_vec));
    groups
}
