//! Reads parts of runs; every chunk is verified before a byte of it is returned.
//!
//! Why:        only chunks with requested bytes are read, and nothing unverified is returned.
//! Invariants: V1 a checksum table is verified against its run before its sums are used.
//!             V2 memory is allocated only after the run was found to fit its file.
//! Not here:   reading whole runs for the scrub (scrub).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::File;

use crate::buffers::Buffer;
use crate::checksum_table::ChecksumTable;
use crate::error::invalid;
use crate::folder::Folder;
use crate::segment::Segment;
use crate::{CHUNK_BYTES, Extent, Run, SegmentError};

/// Where bytes may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Wait for the device if needed.
    Device,
    /// Memory only.
    Memory,
}

/// Why a read returned no bytes.
#[derive(Debug)]
enum Miss {
    NotInMemory,
    Failed(SegmentError),
}

impl<E: Into<SegmentError>> From<E> for Miss {
    fn from(error: E) -> Miss {
        Miss::Failed(error.into())
    }
}

/// `None` only from [`Source::Memory`].
pub(crate) fn read(
    folder: &Folder,
    extent: &Extent,
    skip: u64,
    len: u64,
    source: Source,
) -> Result<Option<Bytes>, SegmentError> {
    match try_read(folder, extent, skip, len, source) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Miss::NotInMemory) => Ok(None),
        Err(Miss::Failed(error)) => Err(error),
    }
}

fn try_read(folder: &Folder, extent: &Extent, skip: u64, len: u64, source: Source) -> Result<Bytes, Miss> {
    let run = &extent.run;
    check_extent(extent)?;
    if skip.checked_add(len).is_none_or(|end| end > extent.len) {
        return Err(invalid("a read beyond the end of its extent").into());
    }
    if len == 0 {
        return Ok(Bytes::new());
    }
    let segment = folder.segment(run.segment)?;
    let file = match source {
        Source::Device => folder.file(&segment)?,
        Source::Memory => folder.open_file(&segment).ok_or(Miss::NotInMemory)?,
    };
    check_fits(run, &segment, &*file)?;
    let (first, last) = ((extent.skip + skip) / CHUNK_BYTES, (extent.skip + skip + len - 1) / CHUNK_BYTES);
    let (start, end) = (first * CHUNK_BYTES, ((last + 1) * CHUNK_BYTES).min(run.len));
    let chunks = match read_verified(folder, run, &*file, start..end, source) {
        // Another copy may be right, and is not in memory.
        Err(Miss::Failed(SegmentError::Corrupt { .. })) if source == Source::Memory && file.copy(1).is_some() => {
            return Err(Miss::NotInMemory);
        }
        Err(Miss::Failed(error @ SegmentError::Corrupt { .. })) => {
            read_copies(folder, run, &*file, start..end).ok_or(Miss::Failed(error))?
        }
        chunks => chunks?,
    };
    let from = extent.skip + skip - start;
    Ok(Bytes::from_owner(chunks).slice(from as usize..(from + len) as usize))
}

/// The chunks from the first copy of the file, on any disk, in which they are right; and puts them right in the others.
fn read_copies(folder: &Folder, run: &Run, file: &dyn File, range: std::ops::Range<u64>) -> Option<Buffer> {
    let copies = (0..).map_while(|index| file.copy(index));
    let chunks =
        copies.filter_map(|copy| read_verified(folder, run, &*copy, range.clone(), Source::Device).ok()).next()?;
    let (segment, offset) = (run.segment, run.offset + range.start);
    tracing::error!(
        ?segment,
        offset,
        bytes = chunks.len(),
        "one copy was damaged, another one is right: it is written again"
    );
    // It was read; a copy that cannot be written is found by others.
    if let Err(error) = file.write_all_at(&chunks, offset) {
        tracing::warn!(?segment, %error, "the damaged copy could not be written again");
    }
    Some(chunks)
}

/// Whole chunks of a run.
fn read_verified(
    folder: &Folder,
    run: &Run,
    file: &dyn File,
    range: std::ops::Range<u64>,
    source: Source,
) -> Result<Buffer, Miss> {
    let first = range.start / CHUNK_BYTES;
    let (chunks, table) = read_chunks(folder, run, file, range, source)?;
    match table {
        None => verify_chunk(run, &chunks, 0, run.crc)?,
        Some(table) => {
            for (chunk, index) in chunks.chunks(CHUNK_BYTES as usize).zip(first..) {
                verify_chunk(run, chunk, index * CHUNK_BYTES, table.sums[index as usize])?;
            }
        }
    }
    Ok(chunks)
}

/// Starts read-ahead of the first chunk and the checksum table, which are far apart, at the same time.
pub(crate) fn will_read(folder: &Folder, extent: &Extent) -> Result<(), SegmentError> {
    let run = &extent.run;
    check_extent(extent)?;
    if run.table_bytes() == 0 {
        return Ok(());
    }
    let segment = folder.segment(run.segment)?;
    let file = folder.file(&segment)?;
    check_fits(run, &segment, &*file)?;
    let chunk = extent.skip / CHUNK_BYTES * CHUNK_BYTES;
    file.will_read(run.offset + chunk, CHUNK_BYTES.min(run.len - chunk));
    if folder.tables.get(&(run.segment, run.offset)).is_none() {
        file.will_read(run.offset + run.len, run.table_bytes());
    }
    Ok(())
}

/// Whole chunks of a run, unverified, and the verified table if the run has one.
fn read_chunks(
    folder: &Folder,
    run: &Run,
    file: &dyn File,
    range: std::ops::Range<u64>,
    source: Source,
) -> Result<(Buffer, Option<ChecksumTable>), Miss> {
    let table_bytes = run.table_bytes();
    let cached = if table_bytes == 0 { None } else { folder.tables.get(&(run.segment, run.offset)) };
    let cached = match cached {
        Some(table) if table.crc == run.crc && table.sums.len() as u64 == table_bytes / 4 => Some(table),
        _ => None,
    };
    // The table follows the payload: a read that reaches the end includes it.
    let along = if cached.is_none() && range.end == run.len { table_bytes } else { 0 };
    let len = (range.end - range.start) as usize;
    let mut bytes = folder.buffers.take(len + along as usize);
    fill(run, file, &mut bytes, run.offset + range.start, source)?;
    if table_bytes == 0 || cached.is_some() {
        return Ok((bytes, cached));
    }
    let table = if along > 0 {
        let table = keep_table(folder, run, &bytes[len..])?;
        bytes.truncate(len);
        table
    } else {
        read_table(folder, run, file, source)?
    };
    Ok((bytes, Some(table)))
}

fn read_table(folder: &Folder, run: &Run, file: &dyn File, source: Source) -> Result<ChecksumTable, Miss> {
    let mut bytes = vec![0; run.table_bytes() as usize];
    fill(run, file, &mut bytes, run.offset + run.len, source)?;
    Ok(keep_table(folder, run, &bytes)?)
}

/// Verifies a table and caches it.
pub(crate) fn keep_table(folder: &Folder, run: &Run, bytes: &[u8]) -> Result<ChecksumTable, SegmentError> {
    let table = ChecksumTable { crc: run.crc, sums: table_sums(run, bytes)? };
    let weight = bytes.len() + TABLE_OVERHEAD_BYTES;
    folder.tables.insert((run.segment, run.offset), table.clone(), weight);
    Ok(table)
}

/// The sums of a run's chunks from its table, which is verified.
pub(crate) fn table_sums(run: &Run, bytes: &[u8]) -> Result<Arc<[u32]>, SegmentError> {
    if crc32c::crc32c(bytes) != run.crc {
        return Err(corrupt(run, run.len, "the checksum table does not match its run"));
    }
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "a table has four bytes per chunk");
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}

/// Approximate overhead of a cached table, in bytes.
const TABLE_OVERHEAD_BYTES: usize = 128;

fn fill(run: &Run, file: &dyn File, buffer: &mut [u8], offset: u64, source: Source) -> Result<(), Miss> {
    let result = match source {
        Source::Device => file.read_exact_at(buffer, offset),
        Source::Memory => match file.read_cached_at(buffer, offset) {
            Ok(count) if count == buffer.len() => Ok(()),
            // A short read: the rest may be on the device, or missing; the blocking read finds out.
            Ok(_) => return Err(Miss::NotInMemory),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Miss::NotInMemory),
            Err(error) => Err(error),
        },
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(corrupt(run, offset.saturating_sub(run.offset), "the file ends early").into())
        }
        other => Ok(other?),
    }
}

pub(crate) fn verify_chunk(run: &Run, chunk: &[u8], start: u64, crc: u32) -> Result<(), SegmentError> {
    if crc32c::crc32c(chunk) == crc { Ok(()) } else { Err(corrupt(run, start, "bytes do not match their checksum")) }
}

/// `within` counts from the payload's begin.
pub(crate) fn corrupt(run: &Run, within: u64, what: &'static str) -> SegmentError {
    SegmentError::Corrupt { segment: run.segment, offset: run.offset.saturating_add(within), what }
}

/// Extents come from stored metadata: an impossible one is damage, not a bug of the caller.
pub(crate) fn check_extent(extent: &Extent) -> Result<(), SegmentError> {
    if extent.skip.checked_add(extent.len).is_none_or(|end| end > extent.run.len) {
        return Err(corrupt(&extent.run, 0, "the extent reaches beyond its run"));
    }
    Ok(())
}

/// A run from stored metadata must lie within its file.
pub(crate) fn check_fits(run: &Run, segment: &Segment, file: &dyn File) -> Result<(), SegmentError> {
    let end = run.offset.checked_add(run.len).and_then(|end| end.checked_add(run.table_bytes()));
    let end = end.ok_or_else(|| corrupt(run, 0, "the run has an impossible length"))?;
    if end > segment.len() {
        // The owner of a log may have extended it.
        segment.grow_len(file.len()?);
        if end > segment.len() {
            return Err(corrupt(run, 0, "the run reaches beyond its file"));
        }
    }
    Ok(())
}
