//! Walks a pack: visits every run that its headers describe.
//!
//! Why:        fsck and reclaim must know the content of a pack without the metadata.
//! Invariants: N1 every durable run is visited (its header and all before it are durable, see pack).
//!             N2 a damaged or missing header affects only its own run: the walk searches for the next intact one.
//! Not here:   verifying payloads (scrub).

use std::ops::{ControlFlow, Range};

use margay_env::File;

use crate::error::{invalid, newer};
use crate::folder::Folder;
use crate::format::{self, ALIGN_BYTES, FormatError, OWNER_BYTES_MAX, PACK_HEADER_BYTES, RunPlace, Salt};
use crate::segment::Segment;
use crate::{Kind, Run, SegmentError, SegmentId};

/// Bytes read at once while looking for headers.
const WINDOW_BYTES: usize = 64 * 1024;

/// A run as described by its header in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkedRun {
    pub owner: Vec<u8>,
    /// `None` if the run was never finished, or was punched: its space is dead.
    pub run: Option<Run>,
    /// The run's whole range in the file, from its header to the next one, in bytes.
    pub range: Range<u64>,
}

pub(crate) fn walk_pack(
    folder: &Folder,
    segment: &Segment,
    visit: &mut dyn FnMut(WalkedRun) -> ControlFlow<()>,
) -> Result<(), SegmentError> {
    if segment.kind != Kind::Pack {
        return Err(invalid(format!("segment {:?} is not a pack", segment.id)));
    }
    walk_file(&*folder.file(segment)?, segment.id, visit)
}

pub(crate) fn walk_file(
    file: &dyn File,
    id: SegmentId,
    visit: &mut dyn FnMut(WalkedRun) -> ControlFlow<()>,
) -> Result<(), SegmentError> {
    let file_len = file.len()?;
    let mut window = Window { file, start: 0, bytes: Vec::new() };
    let salt = format::decode_pack_header(window.at(0, PACK_HEADER_BYTES)?, id).map_err(|error| match error {
        FormatError::Newer(_) => newer(id, error),
        FormatError::Damaged(what) => SegmentError::Corrupt { segment: id, offset: 0, what },
    })?;
    let mut at = PACK_HEADER_BYTES as u64;
    while at < file_len {
        let bytes = window.at(at, format::RUN_HEADER_BYTES + OWNER_BYTES_MAX)?;
        let Ok((place, owner)) = format::decode_run_header(bytes, id, salt, at) else {
            at += ALIGN_BYTES;
            continue;
        };
        let owner = owner.to_vec();
        let run = read_end(file, id, salt, &place)?;
        let walked = WalkedRun { owner, run, range: place.header..place.next.min(file_len.max(place.payload)) };
        if visit(walked).is_break() {
            return Ok(());
        }
        at = place.next;
    }
    Ok(())
}

fn read_end(file: &dyn File, id: SegmentId, salt: Salt, place: &RunPlace) -> Result<Option<Run>, SegmentError> {
    let mut mark = [0; format::RUN_END_BYTES];
    let count = file.read_at(&mut mark, place.end_mark())?;
    let crc = format::decode_run_end(&mark[..count], salt, place);
    Ok(crc.map(|crc| Run { segment: id, offset: place.payload, len: place.len, crc }))
}

/// A stretch of the file in memory, moved forward as needed.
struct Window<'a> {
    file: &'a dyn File,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Bytes from `at` on: `wanted` of them, fewer only at the end of the file.
    fn at(&mut self, at: u64, wanted: usize) -> Result<&[u8], SegmentError> {
        let end = self.start + self.bytes.len() as u64;
        if at < self.start || at + wanted as u64 > end {
            // A header is usually all that is needed here; a search reads on and gets whole windows.
            let adjoining = at > self.start && at <= end;
            self.bytes.resize(if adjoining { WINDOW_BYTES } else { wanted }, 0);
            let mut filled = 0;
            while filled < self.bytes.len() {
                match self.file.read_at(&mut self.bytes[filled..], at + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            self.bytes.truncate(filled);
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from..self.bytes.len().min(from + wanted)])
    }
}
