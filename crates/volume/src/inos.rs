//! Numbers for files, directories, uploads and parts.
//!
//! Why:        a number names rows, so it must never be used twice, also after a crash.
//! Invariants: I1 the counter row is raised by a commit before a number of the block is used in a later commit;
//!                a crash keeps a prefix of the commits, so it may skip numbers but not repeat them.
//!             I2 0 is never given out.
//! Locking:    the mutex is held over the commit that takes a new block.

use margay_meta::Engine;
use margay_rows::{Ino, key};
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

/// Numbers taken from the counter at once.
const BLOCK: u64 = 4096;
/// Tries to take a block while other processes take theirs.
const TRIES_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Inos {
    /// `next..end` are ours.
    block: Mutex<(u64, u64)>,
}

impl Inos {
    pub(crate) fn next(&self, engine: &dyn Engine) -> Result<Ino, Error> {
        self.next_above(0, engine)
    }

    /// A number larger than this one, which was given out before, perhaps by another process with a later block.
    pub(crate) fn next_above(&self, floor: u64, engine: &dyn Engine) -> Result<Ino, Error> {
        let mut block = self.block.lock();
        block.0 = block.0.max(floor.saturating_add(1)).min(block.1);
        if block.0 == block.1 {
            *block = take_block(engine)?;
        }
        block.0 += 1;
        assert!(block.0 <= block.1);
        Ok(Ino(block.0 - 1))
    }
}

fn take_block(engine: &dyn Engine) -> Result<(u64, u64), Error> {
    for _ in 0..TRIES_MAX {
        let row = engine.get(&key::inos())?.value;
        let next = match &row {
            None => 1,
            Some(row) => decode(&row.value)?,
        };
        let end = next.checked_add(BLOCK).ok_or_else(|| Error::Corrupt("no numbers are left".to_owned()))?;
        let mut draft = Draft::default();
        draft.assert_unchanged(key::inos(), row.map(|row| row.version));
        draft.put(key::inos(), end.to_be_bytes().to_vec());
        match draft.commit(engine) {
            Ok(_) => return Ok((next, end)),
            Err(Refused::Conflict) => {}
            Err(Refused::Error(error)) => return Err(error),
        }
    }
    Err(Error::Busy)
}

/// The first number that was never in a block.
pub(crate) fn decode(value: &[u8]) -> Result<u64, Error> {
    let bytes = value.try_into().map_err(|_| Error::Corrupt("the number counter is not eight bytes".to_owned()))?;
    match u64::from_be_bytes(bytes) {
        0 => Err(Error::Corrupt("the number counter is 0".to_owned())),
        next => Ok(next),
    }
}
