//! Raw segments: one large run in a file of its own, payload first.
//!
//! Why:        offset N of the run is offset N of the file, so the kernel can read it directly.
//! Layout:     [payload][checksum table][owner][footer 64 B], see format.
//! Invariants: W1 a run of known length is allocated at its full length, so a full disk is detected before its payload.
//! Not here:   the payload (writer).

use std::sync::Arc;

use margay_env::File;

use crate::error::newer;
use crate::folder::Folder;
use crate::format::{self, FormatError, OWNER_BYTES_MAX, RAW_FOOTER_BYTES};
use crate::id::table_bytes;
use crate::segment::{Segment, WriterPin};
use crate::{Kind, Run, SegmentError};

/// Makes the file, with room for all of it.
pub(crate) fn create(
    folder: &Folder,
    len: u64,
    owner_bytes: usize,
) -> Result<(WriterPin, Arc<dyn File>), SegmentError> {
    let total = file_bytes(len, owner_bytes);
    let (segment, file) = folder.create(Kind::Raw, |_, file| Ok(file.allocate(0, total)?))?;
    let pin = segment.pin_writer();
    segment.seal();
    Ok((pin, file))
}

/// Makes an empty file, whose length is not known yet; W1 does not hold for it.
pub(crate) fn create_growing(folder: &Folder) -> Result<(WriterPin, Arc<dyn File>), SegmentError> {
    let (segment, file) = folder.create(Kind::Raw, |_, _| Ok(()))?;
    let pin = segment.pin_writer();
    segment.seal();
    Ok((pin, file))
}

pub(crate) fn file_bytes(len: u64, owner_bytes: usize) -> u64 {
    len + table_bytes(len) + (owner_bytes + RAW_FOOTER_BYTES) as u64
}

/// The owner and the run of a finished raw segment, from its footer.
pub(crate) fn read_footer(folder: &Folder, segment: &Segment) -> Result<(Vec<u8>, Run), SegmentError> {
    let file = folder.file(segment)?;
    let file_len = file.len()?;
    let tail_len = file_len.min((OWNER_BYTES_MAX + RAW_FOOTER_BYTES) as u64);
    let mut tail = vec![0; tail_len as usize];
    file.read_exact_at(&mut tail, file_len - tail_len)?;
    match format::decode_raw_footer(&tail, segment.id, file_len) {
        Ok((run, owner)) => Ok((owner.to_vec(), run)),
        Err(error @ FormatError::Newer(_)) => Err(newer(segment.id, error)),
        Err(FormatError::Damaged(what)) => {
            Err(SegmentError::Corrupt { segment: segment.id, offset: file_len - tail_len, what })
        }
    }
}
