//! An orphan: rows of a deleted file or upload that are too many for one batch and are still to be drained.
//!
//! Layout:     1, kind (1 = extent and header rows of a file, 2 = parts of an upload), flags
//! Invariants: O1 an orphan has no name; draining it twice is harmless.

use super::wire::{Damaged, Reader};

const LAYOUT: u8 = 1;
/// In formats 1 to 3 this byte told whether a run had other owners.
const NO_FLAGS: u8 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphan {
    File,
    Parts,
}

impl Orphan {
    pub fn encode(self) -> Vec<u8> {
        let kind = match self {
            Orphan::File => 1,
            Orphan::Parts => 2,
        };
        vec![LAYOUT, kind, NO_FLAGS]
    }

    pub fn decode(value: &[u8]) -> Result<Orphan, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let kind = reader.byte()?;
        reader.byte()?;
        reader.end()?;
        match kind {
            1 => Ok(Orphan::File),
            2 => Ok(Orphan::Parts),
            _ => Err(Damaged("unknown kind of orphan")),
        }
    }
}
