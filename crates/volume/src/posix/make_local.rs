//! Brings the bytes of a file into the own store, before it is written.
//!
//! Why:        bytes that are in a bucket are those of the object as it was sent last. Once the file is written and sent again,
//!             they are elsewhere or nowhere; a file that is only read leaves them there.
//! Invariants: B1 only where `Options::local_before_write` asks for it.
//!             B2 the content stays the same, so a failure half way changes nothing that anybody sees.
//! Locking:    the caller holds the file's state, also while the bytes are fetched.

use crate::open::Volume;
use crate::open_files::{OpenFile, State};
use crate::posix::api::PosixError;

/// Bytes that are brought at once.
const BRING_BYTES: u64 = 1 << 20;

impl Volume {
    pub(crate) fn make_local(&self, file: &OpenFile, state: &mut State) -> Result<(), PosixError> {
        if !self.options.local_before_write || state.pins.keys().all(|segment| self.stores.is_own(*segment)) {
            return Ok(());
        }
        let mut offset = 0;
        while let Some((start, end)) = self.elsewhere(state, offset) {
            offset = start;
            while offset < end {
                let bytes = self.read_state(state, offset, BRING_BYTES.min(end - offset) as usize)?;
                assert!(!bytes.is_empty(), "a piece has bytes");
                self.put_bytes(file, state, offset, &bytes, || ())?;
                offset += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// The first stretch from `offset` on that is in another store.
    fn elsewhere(&self, state: &State, offset: u64) -> Option<(u64, u64)> {
        let is_elsewhere = |segment| segment != margay_segment::SegmentId(0) && !self.stores.is_own(segment);
        state.pieces.within(offset, state.pieces.end()).find_map(|(start, len, piece, _)| {
            piece.extent().filter(|extent| is_elsewhere(extent.run.segment)).map(|_| (start, start + len))
        })
    }
}
