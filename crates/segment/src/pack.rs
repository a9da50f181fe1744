//! Reserves space for small runs in the open pack.
//!
//! Why:        many writers fill one file concurrently, each in its own reserved range, and share its syncs.
//! Invariants: K1 reserved ranges never overlap and are contiguous.
//!             K2 a run's header is written before the next range is reserved, so a sync that makes a run durable makes
//!                every header before it durable: a walk from the file's start reaches each durable run.
//! Locking:    `Folder::pack` is held while a header is written (well under a page) or a new pack is created.
//! Not here:   the payload (writer), the layout (format).

use std::sync::Arc;

use margay_env::File;

use crate::error::invalid;
use crate::folder::Folder;
use crate::format::{self, PACK_HEADER_BYTES, RunPlace, Salt};
use crate::open_pack::OpenPack;
use crate::segment::WriterPin;
use crate::{Kind, SegmentError};

/// A range of a pack that belongs to one writer.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) pin: WriterPin,
    pub(crate) file: Arc<dyn File>,
    pub(crate) salt: Salt,
    pub(crate) place: RunPlace,
}

pub(crate) fn reserve(folder: &Folder, len: u64, owner: &[u8]) -> Result<Reserved, SegmentError> {
    let mut current = folder.pack.lock();
    if current.as_ref().is_none_or(|pack| pack.end >= folder.options.pack_bytes_max) {
        let next = create(folder)?;
        if let Some(full) = current.replace(next) {
            full.segment.seal();
        }
    }
    let pack = current.as_mut().expect("made above");
    let place = RunPlace::at(pack.end, owner.len(), len).ok_or_else(|| invalid("a run that no pack can hold"))?;
    assert!(place.header == pack.end && place.next > place.end_mark());
    let header = format::encode_run_header(pack.segment.id, pack.salt, &place, owner);
    // If this fails the range stays unreserved, and the next header goes to the same offset.
    pack.file.write_all_at(&header, place.header)?;
    pack.end = place.next;
    pack.segment.grow_len(place.payload);
    Ok(Reserved { pin: pack.segment.pin_writer(), file: Arc::clone(&pack.file), salt: pack.salt, place })
}

fn create(folder: &Folder) -> Result<OpenPack, SegmentError> {
    let salt = Salt(folder.env.random.next_u64());
    let (segment, file) = folder.create(Kind::Pack, |id, file| {
        file.write_all_at(&format::encode_pack_header(id, salt), 0)?;
        Ok(())
    })?;
    Ok(OpenPack { segment, file, salt, end: PACK_HEADER_BYTES as u64 })
}
