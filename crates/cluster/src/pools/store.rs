//! A pool as a store of the volume: its segments are read, and nothing else.
//!
//! Invariants: S1 only bytes that match the checksums of their run are returned (B3). What does not is asked for once more, past what is
//!                kept in memory, before it counts as damaged.
//!             S2 no answer is `Unreachable`, never `Missing` (B4), and for a moment after that nobody waits for another one.
//! Not here:   writing (copies), the requests (objects).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::File;
use margay_segment::{
    Extent, Kind, OtherStore, SegmentCopy, SegmentError, SegmentId, SegmentInfo, StoreIdentity, StoreName, StoreNumber,
    read_run_in, segment_name, verify_run_in,
};

use super::blocks::BLOCK_BYTES;
use super::{PoolError, PoolObjects, Pools};

/// Blocks that are one request.
const BLOCKS_AT_ONCE: u64 = 8;

#[derive(Clone, Debug)]
pub(crate) struct PoolStore {
    pools: Arc<Pools>,
    number: StoreNumber,
}

/// An object as a file that is only read.
#[derive(Debug)]
struct ObjectFile {
    pools: Arc<Pools>,
    objects: Arc<PoolObjects>,
    id: SegmentId,
    /// Keeps what it reads in memory.
    is_kept: bool,
}

impl PoolStore {
    pub(crate) fn new(pools: &Arc<Pools>, number: StoreNumber) -> PoolStore {
        PoolStore { pools: Arc::clone(pools), number }
    }

    fn file(&self, id: SegmentId, is_kept: bool) -> Result<ObjectFile, SegmentError> {
        let objects = self.pools.objects(self.number).filter(|_| !self.pools.is_silent(self.number));
        let objects = objects.ok_or(SegmentError::Unreachable(id, self.number))?;
        Ok(ObjectFile { pools: Arc::clone(&self.pools), objects, id, is_kept })
    }

    /// What a read that failed means (S2).
    fn meaning(&self, id: SegmentId, error: SegmentError) -> SegmentError {
        let SegmentError::Io(io) = &error else { return error };
        match io.kind() {
            io::ErrorKind::NotFound => SegmentError::Missing(id),
            io::ErrorKind::HostUnreachable => {
                self.pools.has_answered(self.number, false);
                self.pools.tell_unreachable(self.number, &io.to_string());
                SegmentError::Unreachable(id, self.number)
            }
            _ => error,
        }
    }
}

fn failed(error: PoolError) -> io::Error {
    let kind = match error {
        PoolError::Missing => io::ErrorKind::NotFound,
        PoolError::Unreachable(_) => io::ErrorKind::HostUnreachable,
        PoolError::Own(_) | PoolError::Damaged(_) => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error.to_string())
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "an object of a pool is only read"))
}

impl ObjectFile {
    fn object(&self) -> (StoreNumber, SegmentId) {
        (self.objects.number, self.id)
    }

    fn fetch(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let (objects, id) = (Arc::clone(&self.objects), self.id);
        let fetched = self.pools.block(async move { objects.read(id, start..end).await });
        let fetched = fetched.unwrap_or_else(|| Err(PoolError::Unreachable("the process ends".to_owned())));
        if fetched.is_ok() {
            self.pools.has_answered(self.objects.number, true);
        }
        fetched.map_err(failed)
    }

    /// The blocks from this one on that are not in memory, in one request; the first of them.
    fn fetch_blocks(&self, first: u64, last: u64) -> io::Result<Bytes> {
        let blocks = &self.pools.blocks;
        let most = last.min(first + BLOCKS_AT_ONCE - 1);
        let end = (first..=most).take_while(|index| blocks.get(self.object(), *index).is_none()).last();
        let end = (end.unwrap_or(first) + 1) * BLOCK_BYTES;
        let bytes = self.fetch(first * BLOCK_BYTES, end.min(self.len()?))?;
        let mut index = first;
        let (mut rest, mut found) = (bytes, Bytes::new());
        while !rest.is_empty() {
            let block = rest.split_to(rest.len().min(BLOCK_BYTES as usize));
            if index == first {
                found = block.clone();
            }
            // A copy: the bytes of a whole answer would stay as long as one of its blocks.
            blocks.put(self.object(), index, Bytes::copy_from_slice(&block));
            index += 1;
        }
        Ok(found)
    }
}

impl File for ObjectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = self.len()?;
        if offset >= len || buffer.is_empty() {
            return Ok(0);
        }
        let end = len.min(offset + buffer.len() as u64);
        if !self.is_kept {
            let bytes = self.fetch(offset, end)?;
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            return Ok(count);
        }
        let (index, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        let block = match self.pools.blocks.get(self.object(), index) {
            Some(block) => block,
            None => self.fetch_blocks(index, last)?,
        };
        let from = ((offset - index * BLOCK_BYTES) as usize).min(block.len());
        let count = (block.len() - from).min((end - offset) as usize);
        buffer[..count].copy_from_slice(&block[from..from + count]);
        Ok(count)
    }

    fn write_all_at(&self, _buffer: &[u8], _offset: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let (blocks, object) = (&self.pools.blocks, self.object());
        if let Some(length) = blocks.length(object) {
            return Ok(length);
        }
        let (objects, id) = (Arc::clone(&self.objects), self.id);
        let state = self.pools.block(async move { objects.state(id).await });
        let state = state.unwrap_or_else(|| Err(PoolError::Unreachable("the process ends".to_owned())));
        let state = state.and_then(|state| state.ok_or(PoolError::Missing)).map_err(failed)?;
        blocks.put_length(object, state.len);
        Ok(state.len)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}

impl OtherStore for PoolStore {
    fn name(&self) -> StoreName {
        StoreName { identity: StoreIdentity([0; 16]), number: self.number, generation: 0 }
    }

    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        let id = extent.run.segment;
        let file = self.file(id, true)?;
        // Of a pool that does not tell its length nothing is known.
        let read = file.len().map_err(SegmentError::Io).and_then(|_| read_run_in(&file, extent, skip, len));
        let read = match read {
            // S1.
            Err(SegmentError::Corrupt { .. }) => {
                self.pools.blocks.forget(file.object());
                read_run_in(&file, extent, skip, len)
            }
            read => read,
        };
        read.map_err(|error| self.meaning(id, error))
    }

    fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        let id = extent.run.segment;
        let file = self.file(id, false)?;
        let verified = file.len().map_err(SegmentError::Io).and_then(|_| verify_run_in(&file, &extent.run));
        verified.map_err(|error| self.meaning(id, error))
    }

    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        let objects = self.file(id, false)?.objects;
        let state = self.pools.block(async move { objects.state(id).await });
        match state {
            Some(Ok(Some(info))) => Ok(info),
            Some(Ok(None)) => Err(SegmentError::Missing(id)),
            Some(Err(error)) => Err(self.meaning(id, SegmentError::Io(failed(error)))),
            None => Err(SegmentError::Unreachable(id, self.number)),
        }
    }

    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        let info = self.state(id)?;
        let kind: Kind = info.kind;
        Ok(SegmentCopy { name: segment_name(id, kind), kind, file: Arc::new(self.file(id, false)?) })
    }
}
