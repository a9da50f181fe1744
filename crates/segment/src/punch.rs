//! Punches holes for dead bytes inside a segment that stays; they then read as zeros.
//!
//! Why:        on a full disk nothing can be copied out of a mostly dead segment, but a hole needs no space.
//! Invariants: H1 every hole is allowed by `may_leave`: the walk found no run there (quarantine Q1).
//!             H2 in a pack a hole is punched only where the end mark matches exactly the caller's run.
//!             H3 headers stay: of a pack and of each of its runs, so that it can be walked, and of a log.
//! Durability: a hole is not synced. Its bytes were dead at a durable commit.
//! Not here:   choosing segments and checking the counters (volume::reclaim).

use std::ops::Range;

use margay_env::File;

use crate::error::invalid;
use crate::format::{self, PACK_HEADER_BYTES, RUN_END_BYTES, RunPlace};
use crate::quarantine::{Leaving, Proof, Walk, may_leave};
use crate::segment::Segment;
use crate::{Kind, Run, SegmentError, SegmentId};

/// A hole frees whole blocks of the file system; usual ones have no larger blocks.
const BLOCK_BYTES: u64 = 4096;

/// The run fits its file.
pub(crate) fn punch_run(segment: &Segment, file: &dyn File, run: &Run, walk: &Walk) -> Result<(), SegmentError> {
    if segment.kind != Kind::Pack {
        return Err(invalid("only a pack gives single runs back"));
    }
    check_end_mark(segment, file, run)?;
    // The end mark is punched too: a walk then takes the run for an unfinished one.
    let part = run.offset..run.offset + run.len + run.table_bytes() + RUN_END_BYTES as u64;
    punch(segment.id, file, &part, walk)
}

pub(crate) fn punch_log(segment: &Segment, file: &dyn File, walk: &Walk) -> Result<(), SegmentError> {
    if segment.kind != Kind::Log || segment.is_open() {
        return Err(invalid(format!("segment {:?} is no sealed log", segment.id)));
    }
    // The header lies in the first block.
    for gap in walk.gaps(segment.id, BLOCK_BYTES..file.len()?) {
        let part = gap.start.next_multiple_of(BLOCK_BYTES)..gap.end / BLOCK_BYTES * BLOCK_BYTES;
        if !part.is_empty() {
            punch(segment.id, file, &part, walk)?;
        }
    }
    Ok(())
}

fn punch(id: SegmentId, file: &dyn File, part: &Range<u64>, walk: &Walk) -> Result<(), SegmentError> {
    may_leave(Leaving::Part(id, part), Proof::Walked(walk))?;
    Ok(file.punch_hole(part.start, part.end - part.start)?)
}

fn check_end_mark(segment: &Segment, file: &dyn File, run: &Run) -> Result<(), SegmentError> {
    let mut header = [0; PACK_HEADER_BYTES];
    let count = file.read_at(&mut header, 0)?;
    let salt = format::decode_pack_header(&header[..count], segment.id)
        .map_err(|_| not_there(run, "the pack header does not decode"))?;
    // The end mark contains the header's offset, which the run does not: search for the header just before the payload.
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
    if found { Ok(()) } else { Err(not_there(run, "no finished run of this name is here")) }
}

fn not_there(run: &Run, what: &'static str) -> SegmentError {
    SegmentError::Corrupt { segment: run.segment, offset: run.offset, what }
}
