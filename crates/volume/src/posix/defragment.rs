//! Bounds the number of a file's pieces, and of the dead bytes in its runs.
//!
//! Why:        scattered writes split a file into pieces, and each piece keeps its whole run alive.
//! Invariants: D1 no write fails because of it: pieces that cannot be moved stay, up to the limit of an object.
//! Not here:   dead segments (reclaim).

use std::collections::HashMap;

use margay_segment::{Extent, SegmentId};

use crate::api::Error;
use crate::open::Volume;
use crate::open_files::pieces::{Content, Piece};
use crate::open_files::{OpenFile, STREAM_RUN_BYTES, State};

/// A stretch is the excess of pieces plus this part of the maximum.
const STRETCH_PART: usize = 8;
/// A shorter hole in the stretch, in bytes, is filled with zeros.
const FILLED_HOLE_BYTES_MAX: u64 = 64 << 10;
/// Dead bytes that a file's runs may hold beyond twice its live ones.
const DEAD_BYTES_MAX: u64 = 64 << 20;
/// Bytes moved at a time to release sparse runs.
const MOVED_BYTES_MAX: u64 = 64 << 20;
/// Sparse runs are searched for after this many write-outs.
const WRITE_OUTS_BETWEEN: u64 = 8;
/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Volume {
    /// Called after a write-out.
    pub(crate) fn defragment(&self, file: &OpenFile, state: &mut State) {
        let pieces_max = self.options.file_pieces_max;
        let moved = if state.pieces.count() > pieces_max {
            let too_many = state.pieces.count() - pieces_max;
            let stretch = cheapest_stretch(state, too_many + pieces_max / STRETCH_PART);
            self.rewrite(file, state, &stretch)
        } else if state.write_outs.is_multiple_of(WRITE_OUTS_BETWEEN) {
            let sparse = in_sparse_runs(state);
            self.rewrite(file, state, &sparse)
        } else {
            Ok(())
        };
        if let Err(error) = moved {
            tracing::warn!(ino = file.ino.0, %error, "the pieces of a file stay where they are");
        }
    }

    /// Stores the remaining bytes of an encrypted object as unencrypted runs, since these will be published.
    pub(crate) fn decrypt(&self, file: &OpenFile, state: &mut State) -> Result<(), Error> {
        let encrypted = |(_, piece): &(u64, &Piece)| matches!(piece.content, Content::Encrypted(..));
        let parts: Vec<(u64, u64)> =
            state.pieces.iter().filter(encrypted).map(|(offset, piece)| (offset, piece.len)).collect();
        let run_bytes_max = self.options.run_bytes_max.max(1);
        for (mut offset, len) in parts {
            let end = offset + len;
            while offset < end {
                let len = run_bytes_max.min(end - offset);
                self.rewrite(file, state, &[(offset, len)])?;
                offset += len;
            }
        }
        Ok(())
    }

    /// Merges these parts of a file (offset and length, ascending) into one run.
    pub(crate) fn rewrite(&self, file: &OpenFile, state: &mut State, parts: &[(u64, u64)]) -> Result<(), Error> {
        let total: u64 = parts.iter().map(|(_, len)| len).sum();
        if total == 0 {
            return Ok(());
        }
        self.write_out(file, state)?;
        self.end_stream(state)?;
        let mut writer = self.begin_written_run(file, total)?;
        for (offset, len) in parts {
            let mut done = 0;
            while done < *len {
                let bytes = self.read_state(state, offset + done, COPY_BYTES.min(len - done) as usize)?;
                writer.write(&bytes)?;
                done += bytes.len() as u64;
            }
        }
        let pin = writer.pin();
        let run = writer.end()?;
        let mut skip = 0;
        for (offset, len) in parts {
            state.pieces.replace(*offset, Piece::stored(Extent { run, skip, len: *len }));
            skip += len;
        }
        state.written_out(run.segment, pin);
        Ok(())
    }
}

fn filled(piece: &Piece) -> u64 {
    match piece.content {
        Content::Hole if piece.len >= FILLED_HOLE_BYTES_MAX => 0,
        Content::Hole | Content::Stored(_) | Content::Memory(_) | Content::Encrypted(..) => piece.len,
    }
}

/// The stretch of this many pieces with the fewest bytes.
fn cheapest_stretch(state: &State, pieces: usize) -> Vec<(u64, u64)> {
    let parts: Vec<(u64, u64)> = state.pieces.iter().map(|(offset, piece)| (offset, filled(piece))).collect();
    let mut sum: u64 = parts.iter().take(pieces).map(|(_, len)| len).sum();
    let (mut best, mut best_sum) = (0, sum);
    for start in 1..=parts.len().saturating_sub(pieces) {
        sum = sum - parts[start - 1].1 + parts[start + pieces - 1].1;
        if sum < best_sum {
            (best, best_sum) = (start, sum);
        }
    }
    parts[best..].iter().take(pieces).copied().filter(|(_, len)| *len > 0).collect()
}

/// Parts in mostly dead runs, if the file holds too many dead bytes.
fn in_sparse_runs(state: &State) -> Vec<(u64, u64)> {
    let mut runs: HashMap<(SegmentId, u64), (u64, u64)> = HashMap::new();
    for (_, piece) in state.pieces.iter() {
        if let Some(extent) = piece.extent()
            && extent.run.len != STREAM_RUN_BYTES
        {
            let (len, named) = runs.entry((extent.run.segment, extent.run.offset)).or_default();
            (*len, *named) = (extent.run.len, *named + extent.len);
        }
    }
    let (held, named) = runs.values().fold((0, 0), |sum, (len, named)| (sum.0 + len, sum.1 + named));
    if held <= 2 * named + DEAD_BYTES_MAX {
        return Vec::new();
    }
    let mut parts = Vec::new();
    let mut moved = 0;
    for (offset, piece) in state.pieces.iter() {
        let Some(extent) = piece.extent() else { continue };
        let sparse = runs.get(&(extent.run.segment, extent.run.offset)).is_some_and(|(len, named)| named * 2 < *len);
        if sparse && moved + piece.len <= MOVED_BYTES_MAX {
            parts.push((offset, piece.len));
            moved += piece.len;
        }
    }
    parts
}
