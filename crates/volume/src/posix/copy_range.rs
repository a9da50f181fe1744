//! `copy_file_range`: the target refers to the source's extents.
//!
//! Why:        a copy inside the tree moves no data.
//! Invariants: R1 shared data was published by its first owner before, whose row the commit asserts.
//!             R2 where sharing is impossible (short, no name, being written) bytes are copied.
//! Locking:    the turns of both files, then both states; no other operation holds two states.
//! Not here:   owners of runs (back_rows).

use std::sync::Arc;

use margay_rows::record::data::OBJECT_EXTENTS_MAX;

use crate::api::Error;
use crate::error::Refused;
use crate::open::Volume;
use crate::open_files::pieces::{Content, Piece};
use crate::open_files::{OpenFile, State};
use crate::posix::api::PosixError;
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;
use crate::posix::piece_limit::CUT_PIECES_MAX;
use crate::posix::publish::Sharing;
use crate::posix::write::FILE_BYTES_MAX;

/// Shorter ranges are copied: an extent costs more than their bytes.
const SHARE_BYTES_MIN: u64 = 64 << 10;
/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Mount {
    /// Shares extents where possible; returns the number of bytes copied.
    pub fn copy_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: u64,
        kill_privileges: bool,
    ) -> Result<u64, PosixError> {
        if !from.flags.read || !to.flags.write || to.flags.append {
            return Err(PosixError::BadHandle);
        }
        let len = len.min(from.file.state.read().pieces.end().saturating_sub(from_offset));
        if len == 0 {
            return Ok(0);
        }
        if to_offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(PosixError::FileTooLarge);
        }
        let volume = &self.volume;
        volume.make_local(&to.file, &mut to.file.state.write())?;
        if from.file.ino == to.file.ino {
            let apart = from_offset + len <= to_offset || to_offset + len <= from_offset;
            return if apart {
                volume.copy_inside(&to.file, from_offset, to_offset, len, kill_privileges)
            } else {
                Err(PosixError::Invalid)
            };
        }
        // A file whose bytes are elsewhere shares none: each goes its own way there.
        if !volume.options.local_before_write
            && len >= SHARE_BYTES_MIN
            && volume.share_range((&from.file, from_offset), (&to.file, to_offset), len, kill_privileges)?
        {
            return Ok(len);
        }
        volume.copy_bytes((&from.file, from_offset), (&to.file, to_offset), len, kill_privileges)
    }
}

impl Volume {
    fn copy_bytes(
        &self,
        (from, at): (&OpenFile, u64),
        (to, to_at): (&OpenFile, u64),
        len: u64,
        kill_privileges: bool,
    ) -> Result<u64, PosixError> {
        let mut done = 0;
        while done < len {
            let some = (len - done).min(COPY_BYTES) as usize;
            let bytes = self.read_state(&from.state.read(), at + done, some)?;
            if bytes.is_empty() {
                break;
            }
            let mut state = to.state.write();
            match self.put_bytes(to, &mut state, to_at + done, &bytes, || ()) {
                // The bytes copied so far are returned.
                Err(_) if done > 0 => break,
                other => other?,
            }
            self.touched(&mut state, kill_privileges);
            done += bytes.len() as u64;
        }
        Ok(done)
    }

    /// A single owner may refer to a run several times.
    fn copy_inside(
        &self,
        file: &OpenFile,
        at: u64,
        to: u64,
        len: u64,
        kill_privileges: bool,
    ) -> Result<u64, PosixError> {
        self.check_room()?;
        let mut state = file.state.write();
        self.write_out(file, &mut state)?;
        self.end_stream(&mut state)?;
        let len = len.min(state.pieces.end().saturating_sub(at));
        self.check_growth(file, &state, to + len)?;
        let mut named = parts(&state, at, len);
        // Merging pieces to make room changes them.
        self.make_room_for_pieces(file, &mut state, named.len() + CUT_PIECES_MAX)?;
        named = parts(&state, at, len);
        put_parts(&mut state, named, at, to);
        self.touched(&mut state, kill_privileges);
        Ok(len)
    }

    /// False if bytes must be copied instead.
    fn share_range(
        &self,
        (from, at): (&OpenFile, u64),
        (to, to_at): (&OpenFile, u64),
        len: u64,
        kill_privileges: bool,
    ) -> Result<bool, PosixError> {
        self.check_room()?;
        self.publish(from)?;
        self.publish(to)?;
        let _turns = self.known.turns(from.ino, to.ino);
        let source = from.state.write();
        let mut target = to.state.write();
        let still = |state: &State| state.named && !state.dirty();
        // Bytes that no other file can refer to.
        let unshareable = |state: &State| state.pieces.memory() + state.pieces.encrypted() > 0;
        if !still(&source) || !still(&target) || unshareable(&source) || unshareable(&target) {
            return Ok(false);
        }
        let shared = parts(&source, at, len);
        if shared.iter().map(|(_, piece)| piece.len).sum::<u64>() != len {
            return Ok(false);
        }
        self.check_growth(to, &target, to_at + len)?;
        if target.pieces.count() + shared.len() + CUT_PIECES_MAX > OBJECT_EXTENTS_MAX {
            return Ok(false);
        }
        for (_, piece) in &shared {
            if let Some(extent) = piece.extent() {
                let segment = extent.run.segment;
                // The source's own pin: the segment may have no reference by a row any more.
                let pin = source.pins.get(&segment).expect("every segment that a piece names is pinned (O2)");
                target.keep(pin.clone());
            }
        }
        target.readable = target.readable.max(source.readable);
        put_parts(&mut target, shared, at, to_at);
        self.touched(&mut target, kill_privileges);
        let done = self.retry(|seen| {
            let located = self.locate_file(from.ino)?.filter(|located| Some(located.version) == source.base.version);
            // The source lost its name, or reclaim moved it: references must match the current row.
            let located = located.ok_or(Refused::Error(Error::PreconditionFailed))?;
            self.try_publish(to, &mut target, Some(Sharing { source: &located, state: &source }), seen)
                .inspect_err(|_| self.bucket_facts.forget(to.root))
        });
        match done {
            Ok(()) if target.named => Ok(true),
            // Nothing was committed: the target's row is unchanged, and bytes overwrite the shared pieces.
            Ok(()) | Err(Error::PreconditionFailed | Error::Busy) => {
                let reloaded = self.reload(to, &mut target);
                reloaded.map(|()| false)
            }
            Err(error) => {
                self.reload(to, &mut target)?;
                Err(error.into())
            }
        }
    }

    /// Loads the content from the row again.
    pub(super) fn reload(&self, file: &OpenFile, state: &mut State) -> Result<(), PosixError> {
        let Some(located) = self.locate_file(file.ino)? else {
            state.named = false;
            return Ok(());
        };
        if let Some(fresh) = self.load(&located)? {
            self.open_files.memory_changed(state.pieces.memory(), fresh.pieces.memory());
            // The count of write-outs continues: a concurrent publish must not take later ones for those that it has
            // synced.
            *state = State { own_version: state.own_version, write_outs: state.write_outs, ..fresh };
        }
        Ok(())
    }
}

/// Pieces of a range as references, with their offsets in it.
fn parts(state: &State, at: u64, len: u64) -> Vec<(u64, Piece)> {
    let part = |(offset, len, piece, skip): (u64, u64, &Piece, u64)| {
        let content = match &piece.content {
            Content::Hole => Content::Hole,
            Content::Stored(extent) => {
                Content::Stored(margay_segment::Extent { run: extent.run, skip: extent.skip + skip, len })
            }
            Content::Memory(bytes) => Content::Memory(bytes[skip as usize..(skip + len) as usize].to_vec()),
            Content::Encrypted(content, start) => Content::Encrypted(Arc::clone(content), start + skip),
        };
        (offset, Piece { len, content })
    };
    state.pieces.within(at, at + len).map(part).collect()
}

/// Inserts parts of a range that began at `at` into the one that begins at `to`.
fn put_parts(state: &mut State, parts: Vec<(u64, Piece)>, at: u64, to: u64) {
    for (offset, piece) in parts {
        state.pieces.replace(offset - at + to, piece);
    }
}
