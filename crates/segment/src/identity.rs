//! The identity of a folder, and its store number in the volume.
//!
//! Why:        a segment id begins with the number of its store, so that no two stores create the same id; a copied
//!             folder must not continue with the original's number.
//! Layout:     the file `identity`, one slot of 64 bytes, at 0 or 512; docs/format/segment.md.
//! Invariants: I3 the slot with the larger generation is valid, where an earlier version wrote both; a slot that does not
//!                decode is ignored.
//! Durability: the content is durable when `write` returns.
//! Not here:   whether the volume agrees (volume::stores).

use std::io;
use std::path::Path;

use margay_env::{Disk, Env, OpenMode, files};

use crate::error::invalid;
use crate::{SegmentError, StoreIdentity, StoreName, StoreNumber};

const FILE: &str = "identity";
const MAGIC: [u8; 8] = *b"mgystor\n";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 64;
/// By generation, even and odd. Earlier versions wrote in place, so the other slot may have an older generation.
const SLOTS_AT: [u64; 2] = [0, 512];

/// Reads the identity; `None` if the folder was never attached, or the identity is lost.
pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<StoreName>, SegmentError> {
    let file = match disk.open(&folder.join(FILE), OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut newest: Option<StoreName> = None;
    let mut written = false;
    for at in SLOTS_AT {
        let mut slot = [0; SLOT_BYTES];
        let mut filled = 0;
        while filled < SLOT_BYTES {
            match file.read_at(&mut slot[filled..], at + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        written |= slot.iter().any(|byte| *byte != 0);
        match decode(&slot)? {
            Some(name) if newest.is_none_or(|newest| name.generation > newest.generation) => newest = Some(name),
            _ => {}
        }
    }
    if newest.is_none() && written {
        // Either an earlier version's first write was interrupted, and no row knows it; or it is damaged, and its row shows
        // that this is another folder.
        tracing::warn!(path = %folder.join(FILE).display(), "the identity of the segment folder does not decode");
    }
    Ok(newest)
}

/// Replaces the identity. The file is made anew: if the sync of an earlier process failed, only the page cache may have the
/// old one, and syncing that again would not make it durable.
pub(crate) fn write(env: &Env, folder: &Path, name: &StoreName) -> Result<(), SegmentError> {
    let at = SLOTS_AT[(name.generation % 2) as usize] as usize;
    let mut content = vec![0; at + SLOT_BYTES];
    content[at..].copy_from_slice(&encode(name));
    Ok(files::write_new(env, &folder.join(FILE), &content)?)
}

/// One slot:
/// ```text
///  0  8 magic "mgystor\n"   8  4 version      12  4 number of the store
/// 16 16 identity           32  8 generation   40 20 zero   60  4 CRC-32C of bytes 0..60
/// ```
fn encode(name: &StoreName) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[0..8].copy_from_slice(&MAGIC);
    slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
    slot[12..16].copy_from_slice(&u32::from(name.number.0).to_le_bytes());
    slot[16..32].copy_from_slice(&name.identity.0);
    slot[32..40].copy_from_slice(&name.generation.to_le_bytes());
    let crc = crc32c::crc32c(&slot[..60]);
    slot[60..].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// `None` for an incomplete slot.
fn decode(slot: &[u8; SLOT_BYTES]) -> Result<Option<StoreName>, SegmentError> {
    let four = |at: usize| u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
    if slot[..8] != MAGIC || four(60) != crc32c::crc32c(&slot[..60]) {
        return Ok(None);
    }
    let version = four(8);
    if version != VERSION {
        return Err(invalid(format!("the folder's identity has format {version}, this program knows {VERSION}")));
    }
    let Ok(number) = u16::try_from(four(12)) else { return Ok(None) };
    let (mut identity, mut generation) = ([0; 16], [0; 8]);
    identity.copy_from_slice(&slot[16..32]);
    generation.copy_from_slice(&slot[32..40]);
    let generation = u64::from_le_bytes(generation);
    Ok(Some(StoreName { identity: StoreIdentity(identity), number: StoreNumber(number), generation }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slot_survives_and_a_changed_byte_is_noticed(
            identity: [u8; 16], number: u16, generation: u64, at in 0..SLOT_BYTES, flip in 1..=255u8,
        ) {
            let name = StoreName { identity: StoreIdentity(identity), number: StoreNumber(number), generation };
            let mut slot = encode(&name);
            prop_assert_eq!(decode(&slot).unwrap(), Some(name));
            slot[at] ^= flip;
            prop_assert_eq!(decode(&slot).unwrap(), None);
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: [u8; 32]) {
            let mut slot = [0; SLOT_BYTES];
            slot[..32].copy_from_slice(&bytes);
            let _ = decode(&slot);
        }
    }
}
