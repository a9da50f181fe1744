//! How many copies of each segment a volume of several servers has, and which stores are gone for good.
//!
//! Layout:     1, byte copies, byte write, varint count, then for each detached store varint number, ascending
//! Invariants: C1 `1 <= write <= copies <= COPIES_MAX`.
//! Not here:   which stores have a segment (segment).

use margay_segment::StoreNumber;

use super::wire::{Damaged, Reader, Writer};

const LAYOUT: u8 = 1;
/// Most copies of a segment.
const COPIES_MAX: u8 = 8;
/// Most stores that an operator may have detached.
const DETACHED_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesRecord {
    /// Stores that each segment is to be at.
    pub copies: u8,
    /// Stores that must have bytes before the commit that refers to them.
    pub write: u8,
    /// Stores that never come back: what they had is copied elsewhere.
    pub detached: Vec<StoreNumber>,
}

impl Default for CopiesRecord {
    fn default() -> CopiesRecord {
        CopiesRecord { copies: 1, write: 1, detached: Vec::new() }
    }
}

impl CopiesRecord {
    /// Whether the numbers fit each other (C1).
    pub fn is_valid(&self) -> bool {
        (1..=self.copies).contains(&self.write) && self.copies <= COPIES_MAX && self.detached.len() <= DETACHED_MAX
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_valid(), "C1");
        assert!(self.detached.is_sorted_by(|one, next| one < next), "detached stores ascend");
        let mut writer = Writer::new(8 + 3 * self.detached.len());
        writer.raw(&[LAYOUT, self.copies, self.write]);
        writer.varint(self.detached.len() as u64);
        self.detached.iter().for_each(|store| writer.varint(store.0.into()));
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<CopiesRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let (copies, write) = (reader.byte()?, reader.byte()?);
        let count = reader.small::<usize>()?;
        if count > DETACHED_MAX {
            return Err(Damaged("too many detached stores"));
        }
        let detached = (0..count).map(|_| Ok(StoreNumber(reader.small()?))).collect::<Result<Vec<_>, Damaged>>()?;
        reader.end()?;
        let record = CopiesRecord { copies, write, detached };
        if !record.is_valid() || !record.detached.is_sorted_by(|one, next| one < next) {
            return Err(Damaged("numbers of copies do not fit each other"));
        }
        Ok(record)
    }
}
