//! Whether a copy is of the segment that it is called after.
//!
//! Why:        every data directory numbers its segments from 1. Two that are backed up to one place would take each
//!             other's copies for damaged ones and write over them.
//! Invariants: O1 damage is never taken for another origin: only two marks that both are whole can differ.
//! Not here:   what is done then (segments).

use std::io;

use margay_env::File;
use margay_meta::Seq;
use margay_meta::embedded::log_origin;
use margay_segment::format::{
    OWNER_BYTES_MAX, PACK_HEADER_BYTES, RAW_FOOTER_BYTES, Salt, decode_pack_header, decode_raw_footer,
};
use margay_segment::{Kind, Run, SegmentId};

/// Bytes at the beginning of a log that tell where it is from.
const LOG_HEADER_BYTES: usize = 64;

/// What only one segment of that id has.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    Log(u64, Seq),
    Pack(Salt),
    Raw(Run),
}

/// `None` when the file does not say: it is damaged, or not whole.
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

/// Whether a copy is of another segment that has the same id.
pub(super) fn is_of_another(id: SegmentId, kind: Kind, source: &dyn File, copy: &dyn File) -> io::Result<bool> {
    let (source, copy) = (origin(source, id, kind)?, origin(copy, id, kind)?);
    Ok(source.zip(copy).is_some_and(|(source, copy)| source != copy))
}
