//! Verifying whole runs, and giving the space of dead ones back.
//!
//! Invariants: B1 a scrub reads the device in pieces of at most [`SCRUB_PIECE_BYTES`] and keeps none of them.
//!             B2 a hole is punched only where the end mark shows exactly the run that the caller named.
//! Not here:   which runs are live, and how fast to go (volume).

use margay_env::File;

use crate::error::invalid;
use crate::folder::Folder;
use crate::format::{self, PACK_HEADER_BYTES, RUN_END_BYTES, RunPlace};
use crate::reader::{check_fits, corrupt, keep_table, table_sums, verify_chunk};
use crate::segment::Segment;
use crate::{CHUNK_BYTES, Kind, Run, SegmentError};

/// Read in one piece by a scrub, in bytes; a whole number of chunks.
pub const SCRUB_PIECE_BYTES: u64 = 16 * CHUNK_BYTES;

pub(crate) fn verify_run(folder: &Folder, run: &Run) -> Result<(), SegmentError> {
    let segment = folder.segment(run.segment)?;
    let file = folder.file(&segment)?;
    check_fits(run, &segment, &*file)?;
    let mut buffer = vec![0; run.len.min(SCRUB_PIECE_BYTES).max(run.table_bytes()) as usize];
    let table = if run.table_bytes() == 0 {
        None
    } else {
        let bytes = &mut buffer[..run.table_bytes() as usize];
        read_piece(run, &*file, bytes, run.len)?;
        Some(keep_table(folder, run, bytes)?)
    };
    verify_chunks(run, &*file, &mut buffer, table.as_ref().map(|table| &*table.sums))
}

/// As a scrub does, in a file that is the run's segment or a copy of it.
pub fn verify_run_in(file: &dyn File, run: &Run) -> Result<(), SegmentError> {
    let end = run.offset.checked_add(run.len).and_then(|end| end.checked_add(run.table_bytes()));
    if end.is_none_or(|end| end > file.len().unwrap_or(0)) {
        return Err(corrupt(run, 0, "the run reaches beyond its file"));
    }
    let mut buffer = vec![0; run.len.min(SCRUB_PIECE_BYTES).max(run.table_bytes()) as usize];
    let mut sums = None;
    if run.table_bytes() > 0 {
        let bytes = &mut buffer[..run.table_bytes() as usize];
        read_piece(run, file, bytes, run.len)?;
        sums = Some(table_sums(run, bytes)?);
    }
    verify_chunks(run, file, &mut buffer, sums.as_deref())
}

/// `sums` of the chunks, or none where the run's own is that of its one chunk.
fn verify_chunks(run: &Run, file: &dyn File, buffer: &mut [u8], sums: Option<&[u32]>) -> Result<(), SegmentError> {
    let mut start = 0;
    while start < run.len {
        let piece = &mut buffer[..(run.len - start).min(SCRUB_PIECE_BYTES) as usize];
        read_piece(run, file, piece, start)?;
        for (chunk, index) in piece.chunks(CHUNK_BYTES as usize).zip(start / CHUNK_BYTES..) {
            let crc = sums.map_or(run.crc, |sums| sums[index as usize]);
            verify_chunk(run, chunk, index * CHUNK_BYTES, crc)?;
        }
        start += piece.len() as u64;
    }
    Ok(())
}

fn read_piece(run: &Run, file: &dyn File, buffer: &mut [u8], within: u64) -> Result<(), SegmentError> {
    file.read_exact_at(buffer, run.offset + within).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => corrupt(run, within, "the file ends early"),
        _ => error.into(),
    })
}

/// Gives the space of a dead run back; what is left of it reads as zeros.
pub(crate) fn punch(folder: &Folder, run: &Run) -> Result<(), SegmentError> {
    folder.check_poison()?;
    let segment = folder.segment(run.segment)?;
    let file = folder.file(&segment)?;
    check_fits(run, &segment, &*file)?;
    let mut bytes = run.len + run.table_bytes();
    match segment.kind {
        Kind::Raw => return Err(invalid("a raw segment is removed as a whole")),
        Kind::Pack => {
            check_end_mark(&segment, &*file, run)?;
            // The mark goes too: a walker then takes the run for an unfinished one.
            bytes += RUN_END_BYTES as u64;
        }
        Kind::Log => {}
    }
    if bytes > 0 {
        file.punch_hole(run.offset, bytes)?;
    }
    Ok(())
}

fn check_end_mark(segment: &Segment, file: &dyn File, run: &Run) -> Result<(), SegmentError> {
    let mut header = [0; PACK_HEADER_BYTES];
    let count = file.read_at(&mut header, 0)?;
    let salt = format::decode_pack_header(&header[..count], segment.id)
        .map_err(|_| corrupt(run, 0, "the pack header does not decode"))?;
    // The mark names the header's place, which the run does not know: look for the header just before the payload.
    let longest = (format::RUN_HEADER_BYTES + format::OWNER_BYTES_MAX) as u64;
    let from = run.offset.saturating_sub(longest).max(PACK_HEADER_BYTES as u64).next_multiple_of(format::ALIGN_BYTES);
    let mut before = vec![0; run.offset.saturating_sub(from) as usize];
    file.read_exact_at(&mut before, from)?;
    let mut mark = [0; RUN_END_BYTES];
    let count = file.read_at(&mut mark, run.offset + run.len + run.table_bytes())?;
    let fits = |place: RunPlace| {
        place.payload == run.offset
            && place.len == run.len
            && format::decode_run_end(&mark[..count], salt, &place) == Some(run.crc)
    };
    let found = (0..before.len()).step_by(format::ALIGN_BYTES as usize).any(|at| {
        let header = format::decode_run_header(&before[at..], segment.id, salt, from + at as u64);
        header.is_ok_and(|(place, _)| fits(place))
    });
    if found { Ok(()) } else { Err(corrupt(run, 0, "no finished run of this name is here")) }
}
