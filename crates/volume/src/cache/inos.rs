//! Allocates numbers for files, directories, uploads and parts.
//!
//! Why:        a number identifies rows, so it must never be used twice, even after a crash.
//! Invariants: I1 a commit raises the counter row before a number of the block is used in a later commit; a crash keeps
//!                a prefix of the commits, so numbers may be skipped but never repeated.
//!             I2 0 is never allocated.
//! Locking:    a leaf lock; if two threads take a block at the same time, one block is used and the other skipped.

use margay_meta::{Ask, Engine, ReadAnswer, ReadLimit, Row};
use margay_rows::{Ino, key};
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::{Draft, at_hand};
use crate::error::Refused;

/// Numbers taken from the counter at once.
const BLOCK: u64 = 4096;
/// Attempts to take a block while other processes take theirs.
const TRIES_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Inos {
    /// `next..end` may be allocated.
    block: Mutex<(u64, u64)>,
}

impl Inos {
    pub(crate) fn next(&self, engine: &dyn Engine) -> Result<Ino, Error> {
        self.next_above(0, engine)
    }

    /// A number greater than `floor`, which was allocated before, perhaps by another process with a later block.
    pub(crate) fn next_above(&self, floor: u64, engine: &dyn Engine) -> Result<Ino, Error> {
        for _ in 0..TRIES_MAX {
            if let Some(ino) = self.at_hand(floor) {
                return Ok(ino);
            }
            if at_hand::lacks_numbers() {
                return Err(Error::Unread);
            }
            self.give(take_block(engine)?);
        }
        Err(Error::Busy)
    }

    /// Takes numbers from the counter without blocking the thread.
    pub(crate) async fn refill(&self, engine: &dyn Engine) -> Result<(), Error> {
        for _ in 0..TRIES_MAX {
            let asks = vec![Ask::Get { key: key::inos() }];
            let answers = engine.begin_read(asks, ReadLimit::default()).await?.answers;
            let (draft, block) = draft_block(answers.into_iter().next().and_then(ReadAnswer::row))?;
            match draft.commit_later(engine, Box::new(|_| ())).await {
                Ok(_) => {
                    self.give(block);
                    return Ok(());
                }
                Err(Refused::Conflict) => {}
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        Err(Error::Busy)
    }

    fn give(&self, new: (u64, u64)) {
        let mut block = self.block.lock();
        if block.0 == block.1 || new.0 > block.0 {
            *block = new;
        }
    }

    fn at_hand(&self, floor: u64) -> Option<Ino> {
        let mut block = self.block.lock();
        block.0 = block.0.max(floor.saturating_add(1)).min(block.1);
        if block.0 == block.1 {
            return None;
        }
        block.0 += 1;
        assert!(block.0 <= block.1);
        Some(Ino(block.0 - 1))
    }
}

fn take_block(engine: &dyn Engine) -> Result<(u64, u64), Error> {
    for _ in 0..TRIES_MAX {
        let (draft, block) = draft_block(engine.get(&key::inos())?.value)?;
        match draft.commit(engine) {
            Ok(_) => return Ok(block),
            Err(Refused::Conflict) => {}
            Err(Refused::Error(error)) => return Err(error),
        }
    }
    Err(Error::Busy)
}

/// Drafts the allocation of the next block after the counter's row, and returns it.
fn draft_block(row: Option<Row>) -> Result<(Draft, (u64, u64)), Error> {
    let next = row.as_ref().map_or(Ok(1), |row| decode(&row.value))?;
    let end = next.checked_add(BLOCK).ok_or_else(|| Error::Corrupt("no numbers are left".to_owned()))?;
    let mut draft = Draft::default();
    draft.assert_unchanged(key::inos(), row.map(|row| row.version));
    draft.put(key::inos(), end.to_be_bytes().to_vec());
    Ok((draft, (next, end)))
}

/// The first number that was never part of a block.
pub(crate) fn decode(value: &[u8]) -> Result<u64, Error> {
    let bytes = value.try_into().map_err(|_| Error::Corrupt("the number counter is not eight bytes".to_owned()))?;
    match u64::from_be_bytes(bytes) {
        0 => Err(Error::Corrupt("the number counter is 0".to_owned())),
        next => Ok(next),
    }
}
