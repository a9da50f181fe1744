//! Verifies whole runs.
//!
//! Invariants: B1 a scrub reads the device in pieces of at most [`SCRUB_PIECE_BYTES`] and caches none of them.
//! Not here:   which runs are live, and the rate (volume).

use margay_env::File;

use crate::folder::Folder;
use crate::reader::{check_fits, corrupt, keep_table, table_sums, verify_chunk};
use crate::{CHUNK_BYTES, Run, SegmentError};

/// Bytes that a scrub reads at once; a whole number of chunks.
pub const SCRUB_PIECE_BYTES: u64 = 16 * CHUNK_BYTES;

pub(crate) fn verify_run(folder: &Folder, run: &Run) -> Result<(), SegmentError> {
    let segment = folder.segment(run.segment)?;
    let file = folder.file(&segment)?;
    check_fits(run, &segment, &*file)?;
    if file.copy(1).is_some() {
        return verify_copies(run, &*file);
    }
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

/// Verifies each copy; what is damaged in one is written again from one that is right.
fn verify_copies(run: &Run, file: &dyn File) -> Result<(), SegmentError> {
    let copies: Vec<_> = (0..).map_while(|index| file.copy(index)).collect();
    let results: Vec<_> = copies.iter().map(|copy| verify_run_in(&**copy, run)).collect();
    let Some(right) = results.iter().position(Result::is_ok) else {
        return results.into_iter().collect();
    };
    for (damaged, result) in copies.iter().zip(results) {
        let Err(error) = result else { continue };
        tracing::error!(%error, "one copy is damaged, another one is right: it is written again");
        if let Err(error) = write_again(run, &*copies[right], &**damaged) {
            // The run is right: its disk is looked at when it is read, and not the run given up.
            tracing::error!(%error, "the damaged copy could not be written again");
        }
    }
    Ok(())
}

fn write_again(run: &Run, right: &dyn File, damaged: &dyn File) -> std::io::Result<()> {
    let (mut at, end) = (run.offset, run.offset + run.len + run.table_bytes());
    let mut buffer = vec![0; SCRUB_PIECE_BYTES.min(end - at) as usize];
    while at < end {
        let piece = &mut buffer[..(end - at).min(SCRUB_PIECE_BYTES) as usize];
        right.read_exact_at(piece, at)?;
        damaged.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    damaged.sync_data()
}

/// Verifies a run in a file that is its segment or a copy of it, as a scrub does.
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

/// `sums` are the checksums of the chunks; none if the run has one chunk, whose checksum is the run's.
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
