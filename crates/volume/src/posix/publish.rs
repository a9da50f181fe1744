//! Publishing: a file's unpublished changes become the object's next version, in one commit.
//!
//! Why:        readers of the object see whole versions; a close costs no sync while its bytes fit in the log.
//! Invariants: U0 published data is unencrypted: writing to an encrypted object, where allowed, decrypts it.
//!             U1 the commit asserts the row that it was planned on; on a conflict the pieces are rebased on the new
//!                row.
//!             U2 a run was synced before a commit refers to it; other bytes are part of the commit.
//!             U3 a file without a name keeps its pieces, but is not published.
//!             U4 a run of another store that the row does not refer to is published only in the session in which the file
//!                has pinned it (`draft::stored_runs`, K2).
//! Locking:    the file's turn, then its state, during the commit; neither while bytes are synced.
//! Not here:   the rows of a version (plan), sharing (copy_range), back rows (back_rows), durability (`Mount::sync`).

use margay_meta::{Committed, Cursor};
use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Document;
use margay_rows::record::data::OBJECT_EXTENTS_MAX;
use margay_rows::record::{Data, FileEntry};
use margay_segment::{Extent, InQuarantine, Run, SegmentId, SegmentPin};
use md5::{Digest, Md5};

use crate::api::{ETag, Error};
use crate::draft::{Draft, Owning, Seen};
use crate::entry::Located;
use crate::error::Refused;
use crate::open::Volume;
use crate::open_files::{Base, OpenFile, State, content_number};
use crate::posix::api::PosixError;
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;
use crate::posix::plan::{Plan, plan};
use crate::posix::publish_version::Kept;
use crate::posix::write::name_memory;
use crate::upload::place;

/// Buffered bytes that travel with the commit; more go to a segment, which is synced first.
pub(crate) const PUBLISH_IN_LOG_BYTES_MAX: u64 = 1 << 20;
/// Rounds of syncing before the commit, while others continue to write; then writers wait.
const ROUNDS_MAX: usize = 4;
/// Stored checksums of an object, which a change of its bytes invalidates.
const CHECKSUM_HEADERS: &str = "x-amz-checksum-";

/// Another file, whose runs get this file as a further owner.
pub(crate) struct Sharing<'a> {
    pub(crate) source: &'a Located,
    /// Not dirty, and its base is the located version.
    pub(crate) state: &'a State,
}

/// The segments of a file that must be synced, with pins: while they are synced without the state's lock, another
/// publish may release overwritten data.
pub(crate) struct Unsynced {
    pins: Vec<SegmentPin>,
    /// The last write-out that they contain.
    pub(super) write_outs: u64,
}

impl Mount {
    /// Publishes unpublished changes: the object has a new version, visible to S3; durable later.
    pub fn flush(&self, handle: &Handle) -> Result<(), PosixError> {
        if self.options.sync { self.sync(handle) } else { self.volume.publish(&handle.file) }
    }

    /// Publishes unpublished changes and waits until they are durable.
    pub fn sync(&self, handle: &Handle) -> Result<(), PosixError> {
        self.volume.publish(&handle.file)?;
        self.volume.engine.wait_durable(self.volume.engine.last_cursor()).map_err(Error::from)?;
        self.sync_upstream(Some(handle.ino()))
    }

    /// Waits until the upstream has a file, or everything.
    pub(crate) fn sync_upstream(&self, file: Option<Ino>) -> Result<(), PosixError> {
        match &self.options.upstream {
            Some(upstream) => Ok(upstream.sync(file)?),
            None => Ok(()),
        }
    }
}

impl Volume {
    pub(crate) fn publish(&self, file: &OpenFile) -> Result<(), PosixError> {
        for round in 1..=ROUNDS_MAX {
            let Some(unsynced) = self.begin_publish(file)? else { return Ok(()) };
            self.sync_segments(&unsynced)?;
            let _turn = self.known.turn(file.ino);
            let mut state = file.state.write();
            state.unsynced.retain(|_, last| *last > unsynced.write_outs);
            if round == ROUNDS_MAX {
                self.settle_bytes(file, &mut state)?;
                self.sync_segments(&Unsynced::of(&state))?;
                state.unsynced.clear();
            }
            let settled = state.unsynced.is_empty() && state.stream.is_none() && !state.mixed();
            if settled && state.pieces.memory() <= self.in_log_bytes_max() {
                return self.publish_now(file, &mut state);
            }
        }
        Err(Error::Busy.into())
    }

    /// What must be synced before the commit; `None` if there is nothing to publish.
    pub(crate) fn begin_publish(&self, file: &OpenFile) -> Result<Option<Unsynced>, Error> {
        let mut state = file.state.write();
        if !state.dirty() || !state.named {
            return Ok(None);
        }
        self.settle_bytes(file, &mut state)?;
        Ok(Some(Unsynced::of(&state)))
    }

    fn in_log_bytes_max(&self) -> u64 {
        // Minus the size of the checksum table.
        let payload = self.engine.payload_bytes_max() as u64;
        PUBLISH_IN_LOG_BYTES_MAX.min(payload - payload / 1024)
    }

    /// Ends the stream, decrypts, and writes out what is too much to travel with the commit.
    fn settle_bytes(&self, file: &OpenFile, state: &mut State) -> Result<(), Error> {
        self.end_stream(state)?;
        if state.mixed() {
            self.decrypt(file, state)?;
        }
        if state.pieces.memory() > self.in_log_bytes_max() {
            self.write_out(file, state)?;
            self.defragment(file, state);
        }
        Ok(())
    }

    pub(crate) fn sync_segments(&self, unsynced: &Unsynced) -> Result<(), Error> {
        unsynced.pins.iter().try_for_each(|pin| Ok(self.store.sync_blocking(pin.segment())?))
    }

    /// Commits; the file's turn is held and every run is synced.
    fn publish_now(&self, file: &OpenFile, state: &mut State) -> Result<(), PosixError> {
        if !state.dirty() || !state.named {
            return Ok(());
        }
        let before = state.pieces.memory();
        let done = self.retry(|seen| {
            let tried = self.try_publish(file, state, None, seen);
            tried.inspect_err(|_| {
                self.bucket_facts.forget(file.root);
                state.base.row = None;
            })
        });
        self.open_files.memory_changed(before, state.pieces.memory());
        Ok(done?)
    }

    /// One attempt, with every run synced. A removed name is not an error.
    pub(crate) fn try_publish(
        &self,
        file: &OpenFile,
        state: &mut State,
        sharing: Option<Sharing<'_>>,
        seen: &mut Seen,
    ) -> Result<(), Refused> {
        let kept = if sharing.is_none() { self.kept_row(file, state)? } else { None };
        let found = if kept.is_some() { kept } else { self.locate_file(file.ino)? };
        let Some(located) = found else {
            state.named = false;
            return Ok(());
        };
        located.note_in(seen);
        if state.base.version != Some(located.version) {
            self.rebase(state, &located)?;
        }
        if !state.data_pending && located.file.is_encrypted() {
            return self.publish_attributes(file, state, &located);
        }
        let plan = plan(&state.pieces)?;
        if plan.extents.len() > OBJECT_EXTENTS_MAX {
            return Err(Error::TooLarge.into());
        }
        let mut draft = Draft::default();
        draft.assert_version(located.row_key.clone(), located.version);
        let next = self.draft_next_version(&mut draft, file, state, &located)?;
        let mut new = self.next_version(state, &located, &mut draft)?;
        if next.kept.is_some() {
            new.version = next.version;
            self.draft_locks_left(&mut draft, &mut new);
        }
        let row = located.row_key.as_slice();
        let brought =
            Volume::draft_runs(&mut draft, (state, next.kept.as_ref()), &plan, (new.ino, row), sharing.as_ref());
        self.rest_on_pins(&mut draft, state, &brought)?;
        new.data = self.draft_extents_changed(&mut draft, state, &plan);
        let delta = (new.size as i64 - located.file.size as i64) * i64::from(new.links.max(1));
        draft.add(key::usage(file.root, Counted::Bytes), delta);
        let in_rows = new.data == Data::Rows;
        let write = place::put_entry(&mut draft, located.row_key.clone(), &mut new)?;
        plan.attach(&mut draft, (file.ino, row), &write);
        let done = self.commit_from_mount(&file.lease, draft)?;
        if next.kept.is_some() {
            state.own_version = Some(next.version);
        }
        if self.engine.is_shared() {
            // The kernel that wrote it has its pages.
            self.known.content_went(file.ino, content_number(&located.file.etag), content_number(&new.etag));
        }
        state.file = FileEntry { data: Data::Inline(Vec::new()), ..new };
        (state.data_pending, state.attributes_pending, state.dirty_since) = (false, false, None);
        self.published(state, plan, in_rows, done)?;
        if !located.linked() {
            state.base.row = Some((located.row_key.clone(), state.file.clone()));
        }
        Ok(())
    }

    /// The file according to its cached row, if that suffices for a publish; the commit asserts the row.
    fn kept_row(&self, file: &OpenFile, state: &State) -> Result<Option<Located>, Error> {
        let (Some((row_key, row)), Some(version), Some(location)) =
            (&state.base.row, state.base.version, self.known.location(file.ino))
        else {
            return Ok(None);
        };
        let is_here = *row_key == key::entry(location.parent, location.sort_name.as_bytes());
        // A version that is kept needs its data.
        let keeps = self.bucket_state(file.root)?.keeps();
        let is_enough = is_here && !keeps && !row.is_encrypted() && row.links <= 1;
        let located = || Located::direct(location.parent, row_key.clone(), version, state.readable, row.clone());
        Ok(is_enough.then(located))
    }

    /// Only attributes of an encrypted file were changed: its bytes stay unchanged.
    fn publish_attributes(&self, file: &OpenFile, state: &mut State, located: &Located) -> Result<(), Refused> {
        let mut draft = Draft::default();
        draft.assert_version(located.row_key.clone(), located.version);
        self.bucket_state(file.root)?.assert_in(&mut draft);
        let mut new = self.next_version(state, located, &mut draft)?;
        (new.size, new.data) = (located.file.size, located.file.data.clone());
        place::put_entry(&mut draft, located.row_key.clone(), &mut new)?;
        let done = self.commit_from_mount(&file.lease, draft)?;
        state.file = FileEntry { data: Data::Inline(Vec::new()), ..new };
        (state.attributes_pending, state.dirty_since, state.base.version) = (false, None, Some(done.version));
        state.base.row = None;
        Ok(())
    }

    /// Others have changed the row: adopts what was not changed here.
    pub(crate) fn rebase(&self, state: &mut State, located: &Located) -> Result<(), Refused> {
        let now = self.load(located)?.ok_or(Refused::Conflict)?;
        let old: std::collections::HashMap<u64, Extent> = state.base.extents.iter().copied().collect();
        let mut moved: std::collections::HashMap<(SegmentId, u64), Run> = std::collections::HashMap::new();
        for (offset, extent) in &now.base.extents {
            if let Some(before) = old.get(offset)
                && before.run != extent.run
                && (before.run.len, before.run.crc, before.skip) == (extent.run.len, extent.run.crc, extent.skip)
            {
                moved.insert((before.run.segment, before.run.offset), extent.run);
            }
        }
        if state.data_pending {
            for extent in state.pieces.extents_mut() {
                if let Some(run) = moved.get(&(extent.run.segment, extent.run.offset)) {
                    extent.run = *run;
                }
            }
        } else {
            state.pieces = now.pieces;
        }
        now.pins.into_values().for_each(|pin| state.keep(pin));
        state.take_over(&now.file);
        state.base = now.base;
        state.readable = state.readable.max(located.observed);
        Ok(())
    }

    /// The entry of the next version, without its data.
    fn next_version(&self, state: &State, located: &Located, draft: &mut Draft) -> Result<FileEntry, Error> {
        let mut new = FileEntry { data: Data::Inline(Vec::new()), ..located.file.clone() };
        (new.modified, new.changed) = (state.file.modified, state.file.changed);
        if state.attributes_pending {
            (new.mode, new.uid, new.gid) = (state.file.mode, state.file.uid, state.file.gid);
            new.accessed = state.file.accessed;
        }
        new.size = state.pieces.end();
        if state.data_pending {
            if new.part_rows {
                self.delete_rows(draft, &key::part_rows(new.ino))?;
            }
            (new.etag, new.part_rows) = (next_etag(&new), false);
            self.drop_checksums(&mut new, draft)?;
            if new.is_encrypted() {
                draft.delete(key::document(new.ino, Document::Encryption));
                new.documents.remove(Document::Encryption);
            }
        }
        Ok(new)
    }

    fn drop_checksums(&self, file: &mut FileEntry, draft: &mut Draft) -> Result<(), Error> {
        file.headers.retain(|name, _| !name.starts_with(CHECKSUM_HEADERS));
        if file.header_rows {
            let start = key::header(file.ino, CHECKSUM_HEADERS);
            let end = key::successor(&start).expect("a table byte is never 0xff");
            self.delete_rows(draft, &(start, end))?;
        }
        Ok(())
    }

    /// Runs of other stores that the file's row does not refer to, because another process has replaced them there, are
    /// kept by the file's pins alone (U4).
    fn rest_on_pins(&self, draft: &mut Draft, state: &State, runs: &[Run]) -> Result<(), Error> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        let pin = |run: &Run| state.pins.get(&run.segment).expect("every segment that a piece names is pinned (O2)");
        if let Some(oldest) = runs.iter().filter_map(|run| pin(run).since()).min() {
            draft.rest_on(self.sessions.of_pin(Cursor(oldest))?);
        }
        Ok(())
    }

    /// Drafts the runs that the new version, in this row, adds, and those that it drops. Gives the added ones that no row
    /// is asserted to refer to.
    fn draft_runs(
        draft: &mut Draft,
        (state, kept): (&State, Option<&Kept>),
        plan: &Plan,
        (ino, row): (Ino, &[u8]),
        sharing: Option<&Sharing<'_>>,
    ) -> Vec<Run> {
        let old = runs_of(&state.base.extents);
        let next = runs_of(&plan.extents);
        let (both, lost): (Vec<Run>, Vec<Run>) =
            old.values().partition(|run| next.contains_key(&(run.segment, run.offset)));
        match kept {
            None => draft.disown_runs(ino, &lost),
            Some(kept) => kept.draft_runs(draft, ino, &lost, &both),
        }
        let in_rows = plan.data() == Data::Rows;
        let naming = (!in_rows).then_some(row);
        if in_rows != state.base.in_rows {
            // Both forms have few runs.
            draft.relocate_runs(ino, naming, &both);
            match in_rows {
                true => draft.locate_extent_rows(ino, row),
                false => draft.delete(key::location(ino)),
            }
        }
        let sources = sharing.map(|sharing| runs_of(&sharing.state.base.extents)).unwrap_or_default();
        let gained = next.iter().filter(|(place, _)| !old.contains_key(*place));
        let (shared, new): (Vec<Run>, Vec<Run>) =
            gained.map(|(_, run)| *run).partition(|run| sources.contains_key(&(run.segment, run.offset)));
        draft.own_runs(ino, naming, &new, Owning::First);
        draft.own_runs(ino, naming, &shared, Owning::OneMore);
        if let Some(sharing) = sharing {
            sharing.source.assert_in(draft);
        }
        new
    }

    /// Writes the changed extent rows, and returns the data of the entry.
    fn draft_extents_changed(&self, draft: &mut Draft, state: &State, plan: &Plan) -> Data {
        let ino = state.file.ino;
        let data = plan.data();
        let old: std::collections::BTreeMap<u64, Extent> =
            if state.base.in_rows { state.base.extents.iter().copied().collect() } else { Default::default() };
        let rows: &[(u64, Extent)] = if data == Data::Rows { &plan.extents } else { &[] };
        let mut kept = std::collections::HashSet::new();
        for (index, (offset, extent)) in rows.iter().enumerate() {
            kept.insert(*offset);
            if plan.in_payload(index) || old.get(offset) != Some(extent) {
                draft.put(key::extent(ino, *offset), margay_rows::record::data::extent_row(extent));
            }
        }
        for offset in old.keys().filter(|offset| !kept.contains(*offset)) {
            draft.delete(key::extent(ino, *offset));
        }
        data
    }

    /// Updates the state after the commit.
    fn published(&self, state: &mut State, plan: Plan, in_rows: bool, done: Committed) -> Result<(), Error> {
        let version = Some(done.version);
        let (Some(bytes), Some(run)) = (plan.payload_bytes(), done.payload.and_then(|at| plan.payload_run(at))) else {
            let extents = if plan.inline.is_some() { Vec::new() } else { plan.extents };
            state.base = Base { version, extents, in_rows, row: None };
            state.drop_pins();
            return Ok(());
        };
        self.fresh.hold(&run, bytes, done.cursor, self.engine.durable_cursor());
        state.pins.insert(run.segment, self.store.pin(run.segment, InQuarantine::TakeBack)?);
        state.readable = done.cursor;
        name_memory(state, &run);
        state.base = Base { version, extents: plan.placed(&run), in_rows, row: None };
        state.drop_pins();
        Ok(())
    }
}

impl Unsynced {
    fn of(state: &State) -> Unsynced {
        let pin = |segment| state.pins.get(segment).cloned().expect("a segment that is not synced is pinned");
        Unsynced { pins: state.unsynced.keys().map(pin).collect(), write_outs: state.write_outs }
    }
}

/// Existing runs by location.
fn runs_of(extents: &[(u64, Extent)]) -> std::collections::BTreeMap<(SegmentId, u64), Run> {
    // Holes, and a payload without a location, have segment 0.
    let placed = extents.iter().map(|(_, extent)| extent.run).filter(|run| run.segment != SegmentId(0));
    placed.map(|run| ((run.segment, run.offset), run)).collect()
}

/// A digest that no earlier version had, computed without reading the bytes.
fn next_etag(file: &FileEntry) -> ETag {
    let mut digest = Md5::new();
    digest.update(file.ino.0.to_be_bytes());
    digest.update(file.changed.0.to_be_bytes());
    digest.update(file.etag.digest);
    ETag { digest: digest.finalize().into(), parts: 1 }
}
