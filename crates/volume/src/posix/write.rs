//! Writes: bytes are buffered in memory, and written to the store when they are many.
//!
//! Why:        small writes are collected until the file is published, so that they become one run.
//! Invariants: W1 a write that returns an error has changed nothing.
//!             W2 memory is bounded: per file by `Options::file_memory_bytes_max` and one write, in total by
//!                `Options::memory_bytes_max` and one write per writer.
//!             W3 an acknowledged write is not lost: the next reader, publisher or writer waits for the state, and
//!                bytes that the store refuses stay buffered until a publish retries and reports.
//! Locking:    the file's state, also while the bytes of an acknowledged write are being stored.
//! Not here:   publishing (publish), the run of a stream (stream).

use margay_segment::{Extent, Run, RunLength, RunWriter};

use crate::api::{Error, OBJECT_BYTES_MAX};
use crate::open::Volume;
use crate::open_files::pieces::Content;
use crate::open_files::{OpenFile, State};
use crate::posix::api::{PosixError, WriteFlags};
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;
use crate::posix::piece_limit::CUT_PIECES_MAX;

/// Largest file, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = OBJECT_BYTES_MAX;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_MAY_RUN: u32 = 0o010;

impl Mount {
    /// Writes all bytes, or fails. With `OpenFlags::append` at the end, whatever the offset.
    pub fn write(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
        kill_privileges: bool,
    ) -> Result<usize, PosixError> {
        let flags = WriteFlags { kill_privileges, ..WriteFlags::default() };
        self.write_taken(handle, offset, bytes, flags, || ())?;
        Ok(bytes.len())
    }

    /// As `write`, and calls `taken` once, unless it returns an error, as soon as the bytes cannot be refused any more.
    /// That may be long before it returns: the writer prepares the next bytes while these are stored.
    pub fn write_taken(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        taken: impl FnOnce(),
    ) -> Result<(), PosixError> {
        if !handle.flags.write {
            return Err(PosixError::BadHandle);
        }
        if bytes.is_empty() {
            taken();
            return Ok(());
        }
        // Refused at once where it is known that nothing of it can be published.
        handle.file.lease.check()?;
        let mut state = handle.file.state.write();
        self.volume.make_local(&handle.file, &mut state)?;
        let offset = if handle.flags.append && !flags.page { state.pieces.end() } else { offset };
        self.volume.put_bytes(&handle.file, &mut state, offset, bytes, taken)?;
        self.volume.touched(&mut state, flags.kill_privileges);
        Ok(())
    }
}

impl Volume {
    /// Puts bytes into a file's stream or buffer.
    pub(crate) fn put_bytes(
        &self,
        file: &OpenFile,
        state: &mut State,
        offset: u64,
        bytes: &[u8],
        taken: impl FnOnce(),
    ) -> Result<(), PosixError> {
        let len = bytes.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(PosixError::FileTooLarge);
        }
        self.check_content_room()?;
        self.check_growth(file, state, offset + len)?;
        self.make_room_for_pieces(file, state, CUT_PIECES_MAX)?;
        let mut streams = self.stream_takes(state, offset, len)?;
        if !streams && state.pieces.memory() > 0 {
            let all_many = self.open_files.memory() + len > self.options.memory_bytes_max;
            if all_many || state.pieces.memory() + len > self.options.file_memory_bytes_max {
                self.make_memory_free(file, state)?;
                streams = self.stream_takes(state, offset, len)?;
            }
        }
        taken();
        if streams {
            self.put_into_stream(file, state, offset, bytes);
        } else {
            self.put_into_memory(state, offset, bytes);
        }
        Ok(())
    }

    pub(crate) fn put_into_memory(&self, state: &mut State, offset: u64, bytes: &[u8]) {
        let before = state.pieces.memory();
        state.pieces.write(offset, bytes);
        self.open_files.memory_changed(before, state.pieces.memory());
    }

    /// Refuses to extend a file beyond its bucket's quota. Unpublished data of others is not counted.
    pub(crate) fn check_growth(&self, file: &OpenFile, state: &State, end: u64) -> Result<(), Error> {
        if end <= state.pieces.end() {
            return Ok(());
        }
        let published = state.base.extents.last().map_or(0, |(offset, extent)| offset + extent.len);
        self.check_newest_quota(file.root, 0, end.saturating_sub(published) as i64)
    }

    /// Records that the content changed.
    pub(crate) fn touched(&self, state: &mut State, kill_privileges: bool) {
        state.data_pending = true;
        self.touched_attributes(state, kill_privileges);
        state.file.modified = state.file.changed;
    }

    fn touched_attributes(&self, state: &mut State, kill_privileges: bool) {
        state.file.changed = self.now();
        state.dirty_since.get_or_insert_with(|| self.monotonic());
        if kill_privileges {
            let rights = without_privileges(state.file.mode);
            state.attributes_pending |= rights != state.file.mode;
            state.file.mode = rights;
        }
    }

    /// Clears set-id bits, if any, without another change.
    pub(crate) fn drop_privileges(&self, state: &mut State, kill_privileges: bool) {
        if kill_privileges && without_privileges(state.file.mode) != state.file.mode {
            self.touched_attributes(state, true);
        }
    }

    /// Begins a run for bytes of an open file. They may be written over soon: where they are many they have a segment of
    /// their own, which then is not kept by other runs in it.
    pub(crate) fn begin_written_run(&self, file: &OpenFile, len: u64) -> Result<Box<dyn RunWriter>, Error> {
        let owner = file.ino.0.to_be_bytes();
        let many = len >= self.options.file_memory_bytes_max / 2;
        let length = if many { RunLength::ExactAlone(len) } else { RunLength::Exact(len) };
        Ok(self.store.begin(length, &owner)?)
    }

    /// Writes all buffered bytes to the store as one run; they are not durable yet.
    pub(crate) fn write_out(&self, file: &OpenFile, state: &mut State) -> Result<(), Error> {
        let total = state.pieces.memory();
        if total == 0 {
            return Ok(());
        }
        self.open_files.note_large(file.ino);
        let mut writer = self.begin_written_run(file, total)?;
        for (_, piece) in state.pieces.iter() {
            if let Content::Memory(bytes) = &piece.content {
                writer.write(bytes)?;
            }
        }
        let pin = writer.pin();
        let run = writer.end()?;
        name_memory(state, &run);
        state.written_out(run.segment, pin);
        self.open_files.memory_changed(total, 0);
        Ok(())
    }
}

/// Replaces the buffered bytes by references into this run.
pub(crate) fn name_memory(state: &mut State, run: &Run) {
    let mut skip = 0;
    state.pieces.map_contents(|_, piece| match &piece.content {
        Content::Memory(_) => {
            skip += piece.len;
            Some(Content::Stored(Extent { run: *run, skip: skip - piece.len, len: piece.len }))
        }
        Content::Hole | Content::Stored(_) | Content::Encrypted(..) => None,
    });
    assert_eq!(skip, run.len, "a run holds all that was in memory");
}

/// Permissions without set-user-id, and without set-group-id where it gives privileges.
pub(crate) fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !SET_USER_ID;
    if mode & GROUP_MAY_RUN != 0 { mode & !SET_GROUP_ID } else { mode }
}
