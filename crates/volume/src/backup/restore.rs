//! Restoring: the rows of a moment into an empty engine.
//!
//! Why:        rows name segments by id, so copies of the segments under the same ids and the same rows are the volume.
//! Invariants: S1 the engine is empty and its own log segments have ids above those of the backup.
//!             S2 rows are put as they were, counters too; their versions are new, which only ever are compared.
//! Not here:   copies of the segments, the directory around it (the caller).

use std::path::Path;

use margay_env::Env;
use margay_meta::{Batch, Engine, Write};

use super::rows::read_rows;
use super::rows_of;
use crate::api::Error;
use crate::error::Refused;

/// Rows put in one batch.
pub const RESTORED_ROWS_PER_BATCH: usize = 2048;
/// Bytes of rows in one batch at most, as far as one row allows.
const BATCH_BYTES: usize = 1 << 20;

/// Puts every row of the moment and waits until they are durable; gives their number. `pace` is told it now and then.
pub fn restore_rows(
    env: &Env,
    backup: &Path,
    moment: &str,
    engine: &dyn Engine,
    mut pace: impl FnMut(u64),
) -> Result<u64, Error> {
    let file = rows_of(env, backup, moment)?;
    let mut batch = Batch::default();
    let (mut bytes, mut done) = (0, 0);
    let rows = read_rows(&*file, |key, value| {
        bytes += key.len() + value.len();
        batch.writes.push(Write::Put { key: key.to_vec(), value: value.to_vec() });
        if batch.writes.len() >= RESTORED_ROWS_PER_BATCH || bytes >= BATCH_BYTES {
            done += batch.writes.len() as u64;
            bytes = 0;
            commit(engine, std::mem::take(&mut batch))?;
            pace(done);
        }
        Ok(())
    })?;
    commit(engine, batch)?;
    engine.wait_durable(engine.last_seq())?;
    Ok(rows)
}

fn commit(engine: &dyn Engine, batch: Batch) -> Result<(), Error> {
    match engine.commit(batch).map_err(Refused::from) {
        Ok(_) => Ok(()),
        Err(Refused::Conflict) => Err(Error::Busy),
        Err(Refused::Error(error)) => Err(error),
    }
}
