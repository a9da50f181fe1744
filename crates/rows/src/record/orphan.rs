//! An orphan: rows of a deleted file or upload that are too many for one batch and are still to be drained.
//!
//! Layout:     1, kind (1 = extent and header rows of a file, 2 = parts of an upload), flags
//! Invariants: O1 an orphan has no name; draining it twice is harmless.

use super::wire::{Damaged, Reader, Writer};

const LAYOUT: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphan {
    File { shared: bool },
    Parts,
}

impl Orphan {
    pub fn encode(self) -> Vec<u8> {
        let (kind, flags) = match self {
            Orphan::File { shared } => (1, u8::from(shared)),
            Orphan::Parts => (2, 0),
        };
        let mut writer = Writer::new(3);
        writer.raw(&[LAYOUT, kind, flags]);
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<Orphan, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let (kind, flags) = (reader.byte()?, reader.byte()?);
        reader.end()?;
        match kind {
            1 => Ok(Orphan::File { shared: flags & 1 != 0 }),
            2 => Ok(Orphan::Parts),
            _ => Err(Damaged("unknown kind of orphan")),
        }
    }
}
