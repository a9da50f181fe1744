//! One file in a bucket: appended to, and read sequentially.
//!
//! Invariants: F1 uploaded bytes are never written again. The tail that does not fill a piece stays in memory;
//!                `sync_data` uploads it, or a write that fills the piece.
//!             F2 memory holds at most one piece of unsent bytes and `BLOCKS_MAX` blocks of read ones.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::File;
use parking_lot::Mutex;

use super::pieces::{Chain, Piece};
use super::{Root, unsupported};

/// Bytes fetched per request.
const BLOCK_BYTES: u64 = 4 << 20;
/// Cached blocks: reading a run alternates between its checksums and its bytes.
const BLOCKS_MAX: usize = 3;

#[derive(Debug)]
pub(super) struct BucketFile {
    root: Arc<Root>,
    key: String,
    writable: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: Vec<Piece>,
    /// Written after the pieces, not uploaded yet.
    tail: Vec<u8>,
    /// By number, the most recently used last.
    blocks: Vec<(u64, Bytes)>,
    /// The file was read before: the first read fetches only the requested bytes, usually a header.
    was_read: bool,
}

impl State {
    /// Bytes in pieces.
    fn sent(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    fn len(&self) -> u64 {
        self.sent() + self.tail.len() as u64
    }
}

impl BucketFile {
    pub(super) fn new(root: Arc<Root>, key: String, chain: Chain, writable: bool) -> BucketFile {
        BucketFile { root, key, writable, state: Mutex::new(State { pieces: chain.pieces, ..State::default() }) }
    }

    fn changed(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Uploads the first bytes of the tail as one piece.
    fn send(&self, state: &mut State, count: usize) -> io::Result<()> {
        let piece = Piece::new(state.sent(), count as u64);
        let body = Bytes::copy_from_slice(&state.tail[..count]);
        self.root.put(&piece.key(&self.key), body)?;
        let empty = state.pieces.first().filter(|piece| piece.len == 0).copied();
        if let Some(empty) = empty.filter(|_| count > 0) {
            self.root.delete(&[empty.key(&self.key)])?;
            state.pieces.clear();
        }
        state.tail.drain(..count);
        state.pieces.push(piece);
        state.blocks.clear();
        Ok(())
    }

    /// Reads bytes from pieces.
    fn fetch(&self, state: &State, from: u64, to: u64) -> io::Result<Bytes> {
        let first = state.pieces.partition_point(|piece| piece.end() <= from);
        let mut parts = Vec::new();
        for piece in state.pieces[first..].iter().take_while(|piece| piece.offset < to) {
            let (begin, end) = (from.max(piece.offset), to.min(piece.end()));
            let key = piece.key(&self.key);
            parts.push(self.root.done(self.root.bucket.get_range(&key, begin - piece.offset, end - begin))?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
    }

    /// The block, from memory or from the bucket.
    fn block(&self, state: &mut State, number: u64) -> io::Result<Bytes> {
        let found = state.blocks.iter().position(|(known, _)| *known == number);
        let block = match found {
            Some(place) => state.blocks.remove(place).1,
            None => {
                let from = number * BLOCK_BYTES;
                self.fetch(state, from, (from + BLOCK_BYTES).min(state.sent()))?
            }
        };
        if state.blocks.len() == BLOCKS_MAX {
            state.blocks.remove(0);
        }
        state.blocks.push((number, block.clone()));
        Ok(block)
    }
}

impl File for BucketFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
        let (sent, end) = (state.sent(), state.len().min(offset.saturating_add(buffer.len() as u64)));
        if offset >= end {
            return Ok(0);
        }
        if offset >= sent {
            let from = (offset - sent) as usize;
            let count = (end - offset) as usize;
            buffer[..count].copy_from_slice(&state.tail[from..from + count]);
            return Ok(count);
        }
        let bytes = if std::mem::replace(&mut state.was_read, true) {
            let block = self.block(&mut state, offset / BLOCK_BYTES)?;
            block.slice((offset % BLOCK_BYTES) as usize..)
        } else {
            self.fetch(&state, offset, end.min(sent).min(offset + BLOCK_BYTES))?
        };
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        if count == buffer.len() || offset + count as u64 == state.len() {
            return Ok(count);
        }
        drop(state);
        Ok(count + self.read_at(&mut buffer[count..], offset + count as u64)?)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.changed()?;
        let mut state = self.state.lock();
        if offset != state.len() {
            return unsupported("be written anywhere but at their end");
        }
        let mut rest = buffer;
        while !rest.is_empty() {
            let room = self.root.piece_bytes - state.tail.len();
            let (now, later) = rest.split_at(room.min(rest.len()));
            state.tail.extend_from_slice(now);
            rest = later;
            if state.tail.len() == self.root.piece_bytes {
                self.send(&mut state, self.root.piece_bytes)?;
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.changed()?;
        let mut state = self.state.lock();
        let count = state.tail.len();
        if count > 0 || state.pieces.is_empty() { self.send(&mut state, count) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.changed()?;
        let mut state = self.state.lock();
        if len == state.len() {
            return Ok(());
        }
        if len > 0 {
            return unsupported("be cut");
        }
        self.root.remove_file(&self.key)?;
        *state = State::default();
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        unsupported("reserve space")
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        unsupported("have holes")
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
