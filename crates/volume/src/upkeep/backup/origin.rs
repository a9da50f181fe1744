//! Detects whether a copy belongs to the segment of its name.
//!
//! Why:        every data directory numbers its segments from 1. Two that share a backup location would take each
//!             other's copies for damaged ones and overwrite them.
//! Invariants: O1 damage is never taken for another origin: only two intact marks can differ.
//! Not here:   what happens then (segments).

use std::io;

use margay_env::File;
use margay_meta::Cursor;
use margay_meta::embedded::log_origin;
use margay_segment::format::{
    OWNER_BYTES_MAX, PACK_HEADER_BYTES, RAW_FOOTER_BYTES, Salt, decode_pack_header, decode_raw_footer,
};
use margay_segment::{Kind, Run, SegmentId};

/// Bytes at the start of a log that identify its origin.
const LOG_HEADER_BYTES: usize = 64;

/// A value unique to one segment among all with its id.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Log(u64, Cursor),
    Pack(Salt),
    Raw(Run),
}

/// `None` when the file does not tell, because it is damaged or incomplete.
fn origin(file: &dyn File, id: SegmentId, kind: Kind) -> io::Result<Option<Origin>> {
    let head = |bytes: usize| -> io::Result<Vec<u8>> {
        let mut head = vec![0; bytes];
        let count = file.read_at(&mut head, 0)?;
        head.truncate(count);
        Ok(head)
    };
    Ok(match kind {
        Kind::Log => log_origin(&head(LOG_HEADER_BYTES)?, id).map(|(nonce, first)| Origin::Log(nonce, first)),
        Kind::Pack => decode_pack_header(&head(PACK_HEADER_BYTES)?, id).ok().map(Origin::Pack),
        Kind::Raw => {
            let len = file.len()?;
            let mut tail = vec![0; len.min((OWNER_BYTES_MAX + RAW_FOOTER_BYTES) as u64) as usize];
            let from = len - tail.len() as u64;
            file.read_exact_at(&mut tail, from)?;
            decode_raw_footer(&tail, id, len).ok().map(|(run, _)| Origin::Raw(run))
        }
    })
}

/// Whether a copy is of another segment with the same id.
pub(super) fn is_of_another(id: SegmentId, kind: Kind, source: &dyn File, copy: &dyn File) -> io::Result<bool> {
    let (source, copy) = (origin(source, id, kind)?, origin(copy, id, kind)?);
    Ok(source.zip(copy).is_some_and(|(source, copy)| source != copy))
}
