//! Reads an open file.
//!
//! Why:        the result is assembled from pieces; a single extent is one read of the store without a copy.
//! Invariants: R1 the store verifies its bytes. A payload that the log has not written yet is taken from the cache, or
//!                waited for.
//! Locking:    the file's state, shared, also while waiting for the store.
//! Not here:   GET (reader).

use bytes::Bytes;
use margay_segment::{Extent, Kind};

use crate::api::Error;
use crate::open::Volume;
use crate::open_files::State;
use crate::open_files::pieces::{Content, Piece};
use crate::posix::api::PosixError;
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;

impl Mount {
    /// At most `len` bytes; fewer only at the end of the file.
    pub fn read(&self, handle: &Handle, offset: u64, len: usize) -> Result<Bytes, PosixError> {
        if !handle.flags.read {
            return Err(PosixError::BadHandle);
        }
        Ok(self.volume.read_state(&handle.file.state.read(), offset, len)?)
    }
}

impl Volume {
    pub(crate) fn read_state(&self, state: &State, offset: u64, len: usize) -> Result<Bytes, Error> {
        let end = offset.saturating_add(len as u64).min(state.pieces.end());
        let mut parts = state.pieces.within(offset, end);
        let Some((_, len, piece, skip)) = parts.next() else { return Ok(Bytes::new()) };
        if offset + len == end
            && let Content::Stored(extent) = &piece.content
        {
            return self.read_extent(state, extent, skip, len);
        }
        let mut bytes = Vec::with_capacity((end - offset) as usize);
        self.append(state, piece, skip, len, &mut bytes)?;
        for (_, len, piece, skip) in parts {
            self.append(state, piece, skip, len, &mut bytes)?;
        }
        Ok(bytes.into())
    }

    fn append(&self, state: &State, piece: &Piece, skip: u64, len: u64, into: &mut Vec<u8>) -> Result<(), Error> {
        match &piece.content {
            Content::Hole => into.resize(into.len() + len as usize, 0),
            Content::Memory(bytes) => into.extend_from_slice(&bytes[skip as usize..(skip + len) as usize]),
            Content::Stored(extent) => into.extend_from_slice(&self.read_extent(state, extent, skip, len)?),
            Content::Encrypted(content, start) => {
                // A payload in the log is read from the disk.
                self.engine.wait_durable(state.readable)?;
                content.read_into(start + skip, len, into)?;
            }
        }
        Ok(())
    }

    fn read_extent(&self, state: &State, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, Error> {
        if let Some(stream) = state.stream.as_ref().filter(|stream| stream.writer.segment() == extent.run.segment) {
            return Ok(stream.writer.read(extent.skip + skip, len)?.into());
        }
        if state.readable > self.engine.durable_cursor() {
            if let Some(payload) = self.fresh.get(&extent.run) {
                let start = (extent.skip + skip) as usize;
                return Ok(payload.slice(start..start + len as usize));
            }
            if self.store.state(extent.run.segment)?.kind == Kind::Log {
                self.engine.wait_durable(state.readable)?;
            }
        }
        Ok(self.store.read(extent, skip, len)?)
    }
}
