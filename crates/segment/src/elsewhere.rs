//! Reads parts of runs from a copy of their segment that lies elsewhere, for example in a bucket.
//!
//! Why:        what comes from there is verified as what comes from the own folder is, before a byte of it is used.
//! Invariants: E1 only whole chunks are read, each against its checksum; the table of a run against the run.
//!             E2 memory is allocated only after the run was found to fit the copy.
//! Not here:   the own folder (reader), whole runs (scrub), where the copy is (the caller's `File`).

use bytes::Bytes;
use margay_env::File;

use crate::error::invalid;
use crate::reader::{check_extent, corrupt, table_sums, verify_chunk};
use crate::{CHUNK_BYTES, Extent, SegmentError};

/// `len` bytes of an extent behind its first `skip`. What the copy lacks is damage.
pub fn read_run_in(file: &dyn File, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
    check_extent(extent)?;
    if skip.checked_add(len).is_none_or(|end| end > extent.len) {
        return Err(invalid("a read beyond the end of its extent"));
    }
    if len == 0 {
        return Ok(Bytes::new());
    }
    let run = &extent.run;
    let end = run.offset.checked_add(run.len).and_then(|end| end.checked_add(run.table_bytes()));
    // E2.
    if end.is_none_or(|end| file.len().is_ok_and(|len| end > len)) {
        return Err(corrupt(run, 0, "the run reaches beyond its copy"));
    }
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, run.offset + at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => corrupt(run, at, "the copy ends early"),
            _ => error.into(),
        })?;
        Ok::<_, SegmentError>(bytes)
    };
    let (first, last) = ((extent.skip + skip) / CHUNK_BYTES, (extent.skip + skip + len - 1) / CHUNK_BYTES);
    let (start, end) = (first * CHUNK_BYTES, ((last + 1) * CHUNK_BYTES).min(run.len));
    let chunks = read(start, end - start)?;
    if run.table_bytes() == 0 {
        verify_chunk(run, &chunks, 0, run.crc)?;
    } else {
        let sums = table_sums(run, &read(run.len, run.table_bytes())?)?;
        for (chunk, index) in chunks.chunks(CHUNK_BYTES as usize).zip(first..) {
            verify_chunk(run, chunk, index * CHUNK_BYTES, sums[index as usize])?;
        }
    }
    let from = extent.skip + skip - start;
    Ok(Bytes::from(chunks).slice(from as usize..(from + len) as usize))
}
