//! Restore: writes the rows of a moment into an empty engine.
//!
//! Why:        rows refer to segments by id, so the same rows with copies of the segments under the same ids are the
//!             volume.
//! Invariants: S1 the engine is empty and its own log segments have ids above those of the backup.
//!             S2 rows are written unchanged, including counters; their versions are new, which is fine as they are
//!                only compared.
//! Not here:   choosing rows (part), copies of the segments and the directory (the caller).

use std::path::Path;

use margay_env::Env;
use margay_meta::{Batch, Engine, Write, is_plain};

use super::rows::read_rows;
use super::rows_of;
use crate::api::Error;
use crate::driver::counters::eight_bytes;
use crate::error::Refused;

/// Rows put in one batch.
pub const RESTORED_ROWS_PER_BATCH: usize = 2048;
/// Bytes of rows in one batch at most, as far as one row allows.
const BATCH_BYTES: usize = 1 << 20;

/// Writes every row of the moment and waits until they are durable; returns their number. `pace` receives it now and
/// then.
pub fn restore_rows(
    env: &Env,
    backup: &Path,
    moment: &str,
    engine: &dyn Engine,
    pace: impl FnMut(u64),
) -> Result<u64, Error> {
    let mut putting = Putting::new(engine, pace);
    read_rows(&mut rows_of(env, backup, moment)?, |key, value| putting.put(key.to_vec(), value.to_vec()))?;
    putting.finish()
}

/// Writes rows into an empty engine in batches.
#[derive(Debug)]
pub struct Putting<'a, P> {
    engine: &'a dyn Engine,
    batch: Batch,
    /// Of the rows in the batch.
    bytes: usize,
    rows: u64,
    pace: P,
}

impl<'a, P: FnMut(u64)> Putting<'a, P> {
    /// `pace` receives the number of rows written, now and then.
    pub fn new(engine: &'a dyn Engine, pace: P) -> Putting<'a, P> {
        Putting { engine, batch: Batch::default(), bytes: 0, rows: 0, pace }
    }

    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Error> {
        // These rows hold former locations, not the new ones.
        if margay_rows::key::is_segment(&key) {
            return Ok(());
        }
        self.bytes += key.len() + value.len();
        self.batch.writes.push(match is_plain(&key) {
            true => Write::Put { key, value },
            false => Write::Set { key, value: eight_bytes(&value)? },
        });
        if self.batch.writes.len() >= RESTORED_ROWS_PER_BATCH || self.bytes >= BATCH_BYTES {
            self.commit()?;
            (self.pace)(self.rows);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        self.rows += self.batch.writes.len() as u64;
        match self.engine.commit(std::mem::take(&mut self.batch)).map_err(Refused::from) {
            Ok(_) => Ok(()),
            Err(Refused::Conflict) => Err(Error::Busy),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    /// Waits until all of them are durable; gives their number.
    pub fn finish(&mut self) -> Result<u64, Error> {
        self.commit()?;
        self.engine.wait_durable(self.engine.last_cursor())?;
        Ok(self.rows)
    }
}
