//! Writes one run: bytes arrive in order and are written in large pieces; checksums are computed on the way.
//!
//! Invariants: R1 at most [`WRITE_BUFFER_BYTES`] of payload are buffered.  R2 a finished run has exactly the reserved
//!                length.
//!             R3 the end mark (or footer) is written with or after the last payload byte.
//! Durability: none here; `Store::sync(segment)` after `finish`.
//! Not here:   where the run goes (pack, raw).

use std::ops::Range;
use std::sync::Arc;

use margay_env::File;

use crate::error::invalid;
use crate::folder::Folder;
use crate::format::{self, OWNER_BYTES_MAX, RUN_END_BYTES, RunPlace, Salt};
use crate::pin::SegmentPin;
use crate::quarantine::Proof;
use crate::segment::WriterPin;
use crate::segments::RunWriter;
use crate::space::Grant;
use crate::{CHUNK_BYTES, RUN_BYTES_MAX, Run, SegmentError, SegmentId, pack, raw};

/// Payload that a writer buffers to write it in one piece, in bytes.
pub const WRITE_BUFFER_BYTES: usize = 256 * 1024;

/// Space that a file system may use for a run beyond its bytes, in bytes.
const ROUNDING_BYTES: u64 = 4096;

/// A run being written to a file of the folder.
#[derive(Debug)]
pub struct FolderRun {
    folder: Arc<Folder>,
    pin: WriterPin,
    file: Arc<dyn File>,
    end: End,
    grant: Grant,
    /// Where the payload begins in the file.
    offset: u64,
    /// Payload bytes that were reserved.
    len: u64,
    /// Payload bytes written so far.
    taken: u64,
    buffer: Vec<u8>,
    sums: ChunkSums,
    /// The length is determined at the end; space is reserved with each write.
    growing: bool,
    state: State,
}

/// What follows the payload.
#[derive(Debug)]
enum End {
    Pack { salt: Salt, place: RunPlace },
    Raw { owner: Vec<u8> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Writing,
    /// A write failed: the file's content is unknown.
    Broken,
    Finished,
}

/// Checksums of a payload that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkSums {
    done: Vec<u32>,
    current: u32,
    current_bytes: u64,
}

/// Turns a payload into a self-contained run: appends its checksum table, if it needs one, and returns the run's
/// checksum.
pub fn add_checksums(payload: &mut Vec<u8>) -> u32 {
    let mut sums = ChunkSums::default();
    sums.add(payload);
    let (crc, table) = sums.finish(payload.len() as u64);
    payload.extend_from_slice(&table);
    crc
}

pub(crate) fn begin(
    folder: &Arc<Folder>,
    len: u64,
    owner: &[u8],
    raw_bytes_min: u64,
) -> Result<FolderRun, SegmentError> {
    folder.check_poison()?;
    if len > RUN_BYTES_MAX {
        return Err(invalid(format!("a run of {len} bytes is longer than {RUN_BYTES_MAX}")));
    }
    if owner.len() > OWNER_BYTES_MAX {
        return Err(invalid(format!("an owner of {} bytes is longer than {OWNER_BYTES_MAX}", owner.len())));
    }
    // Slightly more than the run needs; the file system is exact.
    let mut grant = folder.space.grant(raw::file_bytes(len, owner.len()) + ROUNDING_BYTES)?;
    let (pin, file, end, offset) = if len >= raw_bytes_min {
        let (pin, file) = raw::create(folder, len, owner.len())?;
        grant.spend(u64::MAX);
        (pin, file, End::Raw { owner: owner.to_vec() }, 0)
    } else {
        let reserved = pack::reserve(folder, len, owner)?;
        let place = reserved.place;
        grant.spend(place.payload - place.header);
        (reserved.pin, reserved.file, End::Pack { salt: reserved.salt, place }, place.payload)
    };
    let buffer = Vec::with_capacity((len as usize).min(WRITE_BUFFER_BYTES));
    let (folder, sums) = (Arc::clone(folder), ChunkSums::default());
    let (growing, state) = (false, State::Writing);
    Ok(FolderRun { folder, pin, file, end, grant, offset, len, taken: 0, buffer, sums, growing, state })
}

/// Begins a run in a raw segment of its own whose length is not known yet.
pub(crate) fn begin_growing(folder: &Arc<Folder>, owner: &[u8]) -> Result<FolderRun, SegmentError> {
    folder.check_poison()?;
    if owner.len() > OWNER_BYTES_MAX {
        return Err(invalid(format!("an owner of {} bytes is longer than {OWNER_BYTES_MAX}", owner.len())));
    }
    let grant = folder.space.grant(ROUNDING_BYTES)?;
    let (pin, file) = raw::create_growing(folder)?;
    Ok(FolderRun {
        folder: Arc::clone(folder),
        pin,
        file,
        end: End::Raw { owner: owner.to_vec() },
        grant,
        offset: 0,
        len: RUN_BYTES_MAX,
        taken: 0,
        buffer: Vec::with_capacity(WRITE_BUFFER_BYTES),
        sums: ChunkSums::default(),
        growing: true,
        state: State::Writing,
    })
}

impl RunWriter for FolderRun {
    fn taken(&self) -> u64 {
        self.taken
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, SegmentError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.taken);
        let end = end.ok_or_else(|| invalid("a read beyond what was written"))?;
        let in_file = self.in_file();
        let from_file = end.min(in_file).saturating_sub(offset);
        let mut bytes = vec![0; from_file as usize];
        self.file.read_exact_at(&mut bytes, self.offset + offset)?;
        if end > in_file {
            let start = offset.max(in_file) - in_file;
            bytes.extend_from_slice(&self.buffer[start as usize..(end - in_file) as usize]);
        }
        Ok(bytes)
    }

    fn segment(&self) -> SegmentId {
        self.pin.segment()
    }

    fn written(&self) -> Range<u64> {
        let payload = self.offset + self.in_file();
        let end = match (&self.end, self.state) {
            (_, State::Writing | State::Broken) => payload,
            (End::Pack { place, .. }, State::Finished) => place.end_mark() + RUN_END_BYTES as u64,
            (End::Raw { owner }, State::Finished) => raw::file_bytes(self.taken, owner.len()),
        };
        let start = match &self.end {
            End::Pack { place, .. } => place.header,
            End::Raw { .. } => 0,
        };
        start..end
    }

    fn pin(&self) -> SegmentPin {
        SegmentPin::own(self.pin.pin())
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), SegmentError> {
        self.check()?;
        if bytes > self.len - self.taken {
            return Err(invalid("more bytes than the run has reserved"));
        }
        let not_in_file = self.buffer.len() as u64 + bytes;
        if self.growing && self.grant.left() < not_in_file {
            self.grant = self.folder.space.grant(not_in_file + ROUNDING_BYTES)?;
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), SegmentError> {
        self.reserve(bytes.len() as u64)?;
        let before = (self.taken, self.buffer.len(), self.sums.mark());
        let in_file = self.in_file();
        self.append(&mut bytes).inspect_err(|_| {
            if self.growing {
                // Earlier bytes stay valid, in the file or in the buffer.
                let flushed = self.in_file() > in_file;
                self.buffer.truncate(if flushed { 0 } else { before.1 });
                self.taken = before.0;
                self.sums.back_to(before.2);
            }
        })
    }

    fn end(&mut self) -> Result<Run, SegmentError> {
        self.check()?;
        let len = if self.growing { self.taken } else { self.len };
        if self.taken != len {
            return Err(invalid(format!("the run has {} of its {len} bytes", self.taken)));
        }
        let (crc, table) = if self.growing { self.sums.clone() } else { std::mem::take(&mut self.sums) }.finish(len);
        let run = Run { segment: self.segment(), offset: self.offset, len, crc };
        let waiting = self.buffer.len();
        self.buffer.extend_from_slice(&table);
        match &self.end {
            End::Pack { salt, place } => {
                self.buffer.extend_from_slice(&format::encode_run_end(*salt, place, crc));
            }
            End::Raw { owner } => self.buffer.extend_from_slice(&format::encode_raw_footer(&run, owner)),
        }
        let (start, end_bytes) = (self.offset + len - waiting as u64, self.buffer.len() as u64);
        let put = self.put_at(start).and_then(|()| self.cut_at(start + end_bytes));
        if let Err(error) = put {
            self.buffer.truncate(waiting);
            return Err(error);
        }
        self.state = State::Finished;
        Ok(run)
    }
}

impl FolderRun {
    /// As `end`, consuming the writer.
    pub fn finish(mut self) -> Result<Run, SegmentError> {
        self.end()
    }

    /// Payload bytes that are in the file.
    fn in_file(&self) -> u64 {
        self.taken - self.buffer.len() as u64
    }

    fn append(&mut self, bytes: &mut &[u8]) -> Result<(), SegmentError> {
        // Piece by piece, so that a piece stays in the processor's cache from its checksum to its write.
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(WRITE_BUFFER_BYTES - self.buffer.len()));
            self.sums.add(part);
            if part.len() == WRITE_BUFFER_BYTES {
                // A whole piece needs no copy.
                self.put(part)?;
                self.taken += part.len() as u64;
            } else {
                self.buffer.extend_from_slice(part);
                self.taken += part.len() as u64;
                if self.buffer.len() == WRITE_BUFFER_BYTES {
                    self.put_buffer()?;
                }
            }
            *bytes = rest;
        }
        Ok(())
    }

    /// A write that failed may have left bytes behind the end of a growing run.
    fn cut_at(&self, end: u64) -> Result<(), SegmentError> {
        if self.growing && self.file.len()? > end {
            self.file.set_len(end)?;
        }
        Ok(())
    }

    fn put_buffer(&mut self) -> Result<(), SegmentError> {
        self.put_at(self.offset + self.taken - self.buffer.len() as u64)
    }

    /// Writes the buffer at an offset of the file and empties it.
    fn put_at(&mut self, at: u64) -> Result<(), SegmentError> {
        let buffer = std::mem::take(&mut self.buffer);
        let put = self.put_bytes(&buffer, at);
        self.buffer = buffer;
        put?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the next bytes of the payload, bypassing the (empty) buffer.
    fn put(&mut self, bytes: &[u8]) -> Result<(), SegmentError> {
        assert!(self.buffer.is_empty(), "bytes leave in order");
        self.put_bytes(bytes, self.offset + self.taken)
    }

    fn put_bytes(&mut self, bytes: &[u8], at: u64) -> Result<(), SegmentError> {
        if let Err(error) = self.file.write_all_at(bytes, at) {
            // A growing run writes the same offset again.
            if !self.growing {
                self.state = State::Broken;
            }
            return Err(error.into());
        }
        self.grant.spend(bytes.len() as u64);
        self.pin.target().grow_len(at + bytes.len() as u64);
        Ok(())
    }

    fn check(&self) -> Result<(), SegmentError> {
        self.folder.check_poison()?;
        if self.state == State::Broken {
            return Err(invalid("an earlier write to this run failed"));
        }
        Ok(())
    }
}

impl Drop for FolderRun {
    fn drop(&mut self) {
        let unfinished = self.state != State::Finished;
        if unfinished && matches!(self.end, End::Raw { .. }) {
            // If this fails the file is dead space without references, which reclaim finds.
            let _ = self.folder.remove(self.pin.target(), Proof::Abandoned);
        }
    }
}

impl ChunkSums {
    /// The current state, for restoring it.
    fn mark(&self) -> (usize, u32, u64) {
        (self.done.len(), self.current, self.current_bytes)
    }

    fn back_to(&mut self, (done, current, current_bytes): (usize, u32, u64)) {
        self.done.truncate(done);
        (self.current, self.current_bytes) = (current, current_bytes);
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let part = bytes.len().min((CHUNK_BYTES - self.current_bytes) as usize);
            self.current = crc32c::crc32c_append(self.current, &bytes[..part]);
            self.current_bytes += part as u64;
            bytes = &bytes[part..];
            if self.current_bytes == CHUNK_BYTES {
                self.end_chunk();
            }
        }
    }

    fn end_chunk(&mut self) {
        self.done.push(std::mem::take(&mut self.current));
        self.current_bytes = 0;
    }

    /// The run's checksum and its table's bytes (none for a short run).
    pub(crate) fn finish(mut self, len: u64) -> (u32, Vec<u8>) {
        if self.current_bytes > 0 {
            self.end_chunk();
        }
        assert_eq!(self.done.len() as u64, len.div_ceil(CHUNK_BYTES), "one checksum per chunk");
        if len <= CHUNK_BYTES {
            return (self.done.first().copied().unwrap_or(0), Vec::new());
        }
        let table: Vec<u8> = self.done.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        (crc32c::crc32c(&table), table)
    }
}
