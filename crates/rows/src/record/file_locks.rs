//! The locks that programs of several servers have on one file.
//!
//! Layout:     1, varint count, then of each lock: varint number of the mount's lease, varint owner, varint open file, varint process,
//!             varint first byte, varint last byte, byte kind (0: shared, 1: exclusive)
//! Invariants: K1 locks of one owner do not overlap.  K2 exclusive locks overlap no lock of another owner.
//! Not here:   who may have a lock, and when its owner counts as dead (volume).

use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;

const LAYOUT: u8 = 1;
/// Locks of one file at once: each is up to 56 bytes of its row, and a row has 64 KiB.
pub const FILE_LOCKS_MAX: usize = 1000;

/// One lock; ranges are of bytes, and the last byte is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// The number of the lease of its mount: it holds as long as that lease.
    pub lease: Ino,
    /// Who has it, as the kernel of that mount names it.
    pub owner: u64,
    /// The open file through which it was taken, as that mount numbers them; never used again.
    pub handle: u64,
    /// Its process at that machine; for people.
    pub process: u32,
    pub first: u64,
    /// `u64::MAX` or `i64::MAX`: to the end, wherever that will be.
    pub last: u64,
    pub exclusive: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLocksRecord {
    pub locks: Vec<FileLock>,
}

impl FileLocksRecord {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.locks.len() <= FILE_LOCKS_MAX, "who adds a lock counts them");
        let mut writer = Writer::new(8 + 24 * self.locks.len());
        writer.byte(LAYOUT);
        writer.varint(self.locks.len() as u64);
        for lock in &self.locks {
            writer.varint(lock.lease.0);
            writer.varint(lock.owner);
            writer.varint(lock.handle);
            writer.varint(lock.process.into());
            writer.varint(lock.first);
            writer.varint(lock.last);
            writer.byte(lock.exclusive.into());
        }
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<FileLocksRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let count: usize = reader.small()?;
        if count > FILE_LOCKS_MAX {
            return Err(Damaged("a file has too many locks"));
        }
        let locks = (0..count).map(|_| lock(&mut reader)).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(FileLocksRecord { locks })
    }
}

fn lock(reader: &mut Reader<'_>) -> Result<FileLock, Damaged> {
    let (lease, owner, handle) = (Ino(reader.varint()?), reader.varint()?, reader.varint()?);
    let process = reader.small()?;
    let (first, last) = (reader.varint()?, reader.varint()?);
    let exclusive = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Damaged("unknown kind of a lock")),
    };
    if first > last {
        return Err(Damaged("a lock ends before it begins"));
    }
    Ok(FileLock { lease, owner, handle, process, first, last, exclusive })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_round_trip() {
        let one = FileLock {
            lease: Ino(300),
            owner: u64::MAX,
            handle: 9,
            process: 77,
            first: 0,
            last: u64::MAX,
            exclusive: true,
        };
        let record = FileLocksRecord { locks: vec![one, FileLock { first: 5, last: 5, exclusive: false, ..one }] };
        assert_eq!(FileLocksRecord::decode(&record.encode()), Ok(record));
        assert_eq!(FileLocksRecord::decode(&[1, 0]), Ok(FileLocksRecord::default()));
        let bad: [&[u8]; 5] =
            [&[1, 1], &[2, 0], &[1, 1, 1, 1, 1, 1, 5, 4, 0], &[1, 1, 1, 1, 1, 1, 4, 5, 2], &[1, 0, 0]];
        assert!(bad.iter().all(|bytes| FileLocksRecord::decode(bytes).is_err()));
    }
}
