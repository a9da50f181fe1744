//! The segment files of one data directory: made, read, removed.
//!
//! Why:        the one door to stored data; everything behind it works on files and bytes only.
//! Invariants: S1-S3 (see the crate).  S4 after a failed sync nothing is written any more; reads go on.
//! Durability: a run is durable when `sync` of its segment, called after `finish`, returned Ok.
//! Not here:   the bytes (format), the parts of the work (pack, raw, writer, reader, sync, scrub, walk).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use margay_env::{Env, File, Space};

use crate::error::invalid;
use crate::folder::Folder;
use crate::names::{self, Name};
use crate::quarantine::{Proof, QuarantineHold, Quarantined, Walk};
use crate::reader::{self, Source};
use crate::segment::Segment;
use crate::sync::Syncer;
use crate::{
    Extent, FolderRun, Kind, Options, Run, RunLength, SegmentCopy, SegmentError, SegmentId, SegmentInfo, SegmentPin,
    StoreName, WalkedRun, punch, raw, scrub, walk, writer,
};

/// A log leaves this part of its own length of the disk free.
const LOG_LEAVES_PART: u64 = 64;

/// Cheap to share; all calls may run concurrently.
#[derive(Debug)]
pub struct Store {
    folder: Arc<Folder>,
    syncer: Syncer,
}

impl Store {
    /// Opens the folder (made when absent), finds every segment file and continues ids after the largest.
    pub fn open(env: Env, options: Options) -> Result<Arc<Store>, SegmentError> {
        let folder = Arc::new(Folder::open(env, options)?);
        let syncer = Syncer::start(&folder)?;
        Ok(Arc::new(Store { folder, syncer }))
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// A new id; never reused, even across restarts (the caller creates the file before referring to the id).
    pub fn next_id(&self) -> SegmentId {
        self.folder.next_id()
    }

    /// The name of the folder.
    pub fn name(&self) -> StoreName {
        self.folder.name()
    }

    /// Whether `attach` was called.
    pub fn is_attached(&self) -> bool {
        self.folder.is_attached()
    }

    /// Sets the name that the volume has for the folder, durably: new ids use its number.
    pub fn attach(&self, name: StoreName) -> Result<(), SegmentError> {
        self.folder.attach(name)
    }

    /// Makes the file of a log segment for `meta`: allocated to `len` bytes, its name durable. Open until `seal`.
    /// `Full` without an attempt if that would leave less than `len / LOG_LEAVES_PART` bytes: a file system allocates what
    /// it has before it refuses, so that a small write at the same time would find nothing.
    pub fn create_log(&self, len: u64) -> Result<(SegmentId, Arc<dyn File>), SegmentError> {
        if self.folder.space.now()?.free_bytes < len.saturating_add(len / LOG_LEAVES_PART) {
            return Err(SegmentError::Full);
        }
        let (segment, file) = self.folder.create(Kind::Log, |_, file| Ok(file.allocate(0, len)?))?;
        self.sync_blocking(segment.id)?;
        Ok((segment.id, file))
    }

    /// Gives no id of the own number up to this one again, durably: rows of the volume know it, whatever the folder shows.
    pub fn skip_ids(&self, last: SegmentId) -> Result<(), SegmentError> {
        self.folder.skip_ids(last)
    }

    /// Log segments that exist, ordered by id.
    pub fn logs(&self) -> Vec<SegmentInfo> {
        self.segments().into_iter().filter(|info| info.kind == Kind::Log).collect()
    }

    /// Every segment, ordered by id.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.folder.list().iter().map(|segment| segment.info()).collect()
    }

    /// Size and free space of the file system with the folder.
    pub fn space(&self) -> Result<Space, SegmentError> {
        self.folder.space.now()
    }

    /// Free bytes that data writes leave for other uses.
    pub fn reserve_bytes(&self) -> u64 {
        self.folder.options.reserve_bytes
    }

    /// Number of writes refused for lack of space since the start.
    pub fn refused(&self) -> u64 {
        self.folder.space.refused()
    }

    /// Bytes of data that fit now: without the reserve, and without grants to writers.
    pub fn available_bytes(&self) -> Result<u64, SegmentError> {
        self.folder.space.available()
    }

    /// Information about a segment; one in quarantine is restored.
    pub fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        Ok(self.folder.segment(id)?.info())
    }

    /// As `state`, but one in quarantine is `Missing` and stays there.
    pub fn listed(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        Ok(self.folder.listed(id)?.info())
    }

    /// Whether bytes may be added to a segment: it is the open pack, or a run of it is being written. `SegmentInfo::open` is true also
    /// while somebody reads it.
    pub fn is_written(&self, id: SegmentId) -> bool {
        self.folder.listed(id).is_ok_and(|segment| segment.is_written())
    }

    /// The segment's file, open for reading and writing.
    pub fn file(&self, id: SegmentId) -> Result<Arc<dyn File>, SegmentError> {
        let segment = self.folder.segment(id)?;
        self.folder.file(&segment)
    }

    /// Reserves space for a run of exactly `len` payload bytes. `owner` goes into the run's header, for fsck.
    pub fn begin_run(&self, len: u64, owner: &[u8]) -> Result<FolderRun, SegmentError> {
        writer::begin(&self.folder, len, owner, self.folder.options.raw_bytes_min)
    }

    /// As `begin_run`, for a run of any kind of length.
    pub(crate) fn begin_of(&self, length: RunLength, owner: &[u8]) -> Result<FolderRun, SegmentError> {
        match length {
            RunLength::Exact(len) => self.begin_run(len, owner),
            RunLength::ExactAlone(len) => writer::begin(&self.folder, len, owner, 0),
            RunLength::Growing => writer::begin_growing(&self.folder, owner),
        }
    }

    /// `Full` if this many bytes of data would not fit now.
    pub fn check_space(&self, bytes: u64) -> Result<(), SegmentError> {
        self.folder.space.grant(bytes).map(drop)
    }

    /// Starts write-back of a segment without waiting.
    pub fn start_sync(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.folder.check_poison()?;
        drop(self.syncer.ask(self.folder.segment(id)?));
        Ok(())
    }

    /// Keeps a segment `open`. Take it before `RunWriter::finish` and drop it once metadata refers to the run, so that
    /// reclaim cannot treat the segment as dead in between.
    pub fn pin(&self, id: SegmentId) -> Result<SegmentPin, SegmentError> {
        Ok(SegmentPin::own(self.folder.segment(id)?.pin()))
    }

    /// As `pin`, but a segment in quarantine is `Missing` and stays there; a pinned one is not moved there.
    pub fn pin_listed(&self, id: SegmentId) -> Result<SegmentPin, SegmentError> {
        Ok(SegmentPin::own(self.folder.pin_listed(id)?))
    }

    /// Seals a pack or log early: no further run begins in it. Succeeds if it is sealed already, as one in quarantine is, which stays
    /// there: whoever seals it late does not need it.
    pub fn seal(&self, id: SegmentId) -> Result<(), SegmentError> {
        let segment = match self.folder.listed(id) {
            Err(SegmentError::Missing(_)) if self.folder.quarantine.has(id) => return Ok(()),
            found => found?,
        };
        let mut pack = self.folder.pack.lock();
        if pack.as_ref().is_some_and(|pack| pack.segment.id == id) {
            *pack = None;
        }
        segment.seal();
        Ok(())
    }

    /// Retires a log whose records are in the tree: it stays as a segment for its payload, truncated to `len` bytes.
    pub fn retire_log(&self, id: SegmentId, len: u64) -> Result<(), SegmentError> {
        let segment = self.folder.segment(id)?;
        if segment.kind != Kind::Log {
            return Err(invalid(format!("segment {id:?} is not a log")));
        }
        self.file(id)?.set_len(len)?;
        segment.cut_len(len);
        segment.seal();
        Ok(())
    }

    /// Resolves when everything written to the segment before the call is durable (syncs are shared).
    pub async fn sync(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.folder.check_poison()?;
        self.syncer.ask(self.folder.segment(id)?).wait(&self.folder).await
    }

    /// As `sync`, blocking this thread.
    pub fn sync_blocking(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.folder.check_poison()?;
        self.syncer.ask(self.folder.segment(id)?).wait_blocking(&self.folder)
    }

    /// Counts removals of stored bytes since the start, before they happen. A caller that reads this count, finds the
    /// location of bytes in a row, pins their segment, and finds the count unchanged, has a valid pin; otherwise it
    /// must read the row again.
    pub fn removals(&self) -> u64 {
        self.folder.removals()
    }

    /// Counts a removal; called before checking whether the segment is pinned, by callers that punch holes.
    pub fn begin_removal(&self) {
        self.folder.begin_removal();
    }

    /// Reads and verifies `len` bytes of the extent from `skip` within the extent on. Blocks on the device.
    pub fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        let bytes = reader::read(&self.folder, extent, skip, len, Source::Device)?;
        Ok(bytes.expect("the device always answers with bytes or an error"))
    }

    /// As `read`, but `None` if the bytes are not in the page cache.
    pub fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError> {
        reader::read(&self.folder, extent, skip, len, Source::Memory)
    }

    /// A hint that the extent will be read from its start; does not wait. Short runs are read in one piece anyway.
    pub fn will_read(&self, extent: &Extent) -> Result<(), SegmentError> {
        reader::will_read(&self.folder, extent)
    }

    /// Moves a segment that is dead by its counters to quarantine; open readers keep their bytes. Refused while the
    /// segment is open. False, without effect, if it was taken back before: its proofs disagree.
    ///
    /// Not synced: after a crash the segment may be back in the folder.
    pub fn set_aside(&self, id: SegmentId) -> Result<bool, SegmentError> {
        let segment = self.folder.listed(id)?;
        self.folder.set_aside(&segment)
    }

    /// The segments in quarantine, ordered by id.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.folder.quarantine.state.lock().held.values().map(|held| held.shown).collect()
    }

    /// Bytes of the device that they occupy.
    pub fn quarantined_bytes(&self) -> u64 {
        self.folder.quarantine.state.lock().held.values().map(|held| held.shown.used_bytes).sum()
    }

    /// Takes a segment back from quarantine; false if it is not there.
    pub fn take_back(&self, id: SegmentId) -> Result<bool, SegmentError> {
        self.folder.take_back(id)
    }

    /// Number of segments taken back from quarantine since the start; any indicates a wrong counter.
    pub fn taken_back(&self) -> u64 {
        self.folder.quarantine.taken_back.load(Ordering::Relaxed)
    }

    /// The file of a segment, for copying; a segment in quarantine stays there.
    pub fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        self.folder.source(id)
    }

    /// Keeps every segment that is in quarantine, now or later, until the guard is dropped.
    pub fn hold_quarantine(&self) -> QuarantineHold {
        self.folder.quarantine.hold()
    }

    /// Begins the second proof. Take the snapshot of the rows afterwards.
    pub fn begin_walk(&self) -> Walk {
        // First the count, then the settled segments: what is moved to quarantine in between is not covered.
        let up_to = self.folder.quarantine.state.lock().count;
        let settled = self.segments().into_iter().filter(|info| !info.open).map(|info| info.id).collect();
        Walk::begin(up_to, settled)
    }

    /// Unlinks a segment in quarantine and returns its description. Ids are not reused.
    ///
    /// Not synced: after a crash the segment may exist again.
    pub fn release(&self, id: SegmentId, walk: &Walk) -> Result<Quarantined, SegmentError> {
        self.folder.release(id, Proof::Walked(walk))
    }

    /// Removes a log that holds no payload; refused while it is open.
    pub fn remove_log(&self, id: SegmentId, proof: Proof<'_>) -> Result<(), SegmentError> {
        let segment = self.folder.listed(id)?;
        self.folder.begin_removal();
        if segment.is_open() {
            return Err(invalid(format!("segment {id:?} is still being written")));
        }
        self.folder.remove(&segment, proof)
    }

    /// Bytes of the device that the segment occupies.
    pub fn allocated_bytes(&self, id: SegmentId) -> Result<u64, SegmentError> {
        Ok(self.file(id)?.allocated_bytes()?)
    }

    /// Bytes of the device that the segments of each kind occupy; asks the file system about every file.
    pub fn used_bytes(&self) -> Result<Vec<(Kind, u64)>, SegmentError> {
        let mut used = [Kind::Log, Kind::Pack, Kind::Raw].map(|kind| (kind, 0));
        for entry in self.folder.env.disk.list(&self.folder.options.folder)? {
            if let Some(Name::Segment(_, kind)) = names::parse(&entry.name) {
                used.iter_mut().filter(|(of, _)| *of == kind).for_each(|(_, bytes)| *bytes += entry.used_bytes);
            }
        }
        Ok(used.into())
    }

    /// Visits the runs of a pack in the order of their offsets, until the visitor breaks.
    pub fn walk_pack(
        &self,
        id: SegmentId,
        visit: &mut dyn FnMut(WalkedRun) -> ControlFlow<()>,
    ) -> Result<(), SegmentError> {
        walk::walk_pack(&self.folder, &*self.folder.segment(id)?, visit)
    }

    /// The owner and the run of a raw segment; `Corrupt` when it was never finished.
    pub fn raw_run(&self, id: SegmentId) -> Result<(Vec<u8>, Run), SegmentError> {
        let segment = self.folder.segment(id)?;
        if segment.kind != Kind::Raw {
            return Err(invalid(format!("segment {id:?} is not raw")));
        }
        raw::read_footer(&self.folder, &segment)
    }

    /// Reads the whole run that the extent is part of and checks every checksum.
    pub fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        reader::check_extent(extent)?;
        scrub::verify_run(&self.folder, &extent.run)
    }

    /// Punches a dead run in a pack. Refused while somebody holds the quarantine.
    pub fn punch_run(&self, run: &Run, walk: &Walk) -> Result<(), SegmentError> {
        let (segment, file) = self.punchable(run.segment)?;
        reader::check_fits(run, &segment, &*file)?;
        punch::punch_run(&segment, &*file, run, walk)
    }

    /// Punches a sealed log except its header and the runs that the walk found. Its records are lost: only for a log
    /// that is never replayed again. Refused while somebody holds the quarantine.
    pub fn punch_log(&self, id: SegmentId, walk: &Walk) -> Result<(), SegmentError> {
        let (segment, file) = self.punchable(id)?;
        punch::punch_log(&segment, &*file, walk)
    }

    pub(crate) fn punchable(&self, id: SegmentId) -> Result<(Arc<Segment>, Arc<dyn File>), SegmentError> {
        if self.folder.quarantine.is_held() {
            return Err(invalid("no space is given back inside segments while a backup is made"));
        }
        self.folder.check_poison()?;
        let segment = self.folder.segment(id)?;
        let file = self.folder.file(&segment)?;
        Ok((segment, file))
    }

    /// Why writes are refused, when a sync has failed.
    pub fn fault(&self) -> Option<String> {
        self.folder.fault()
    }
}
