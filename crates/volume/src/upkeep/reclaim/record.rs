//! Maintenance of the own segments' rows.
//!
//! Why:        sealing or removing a file changes its row, but belongs to no commit.
//! Not here:   the content of the rows (segment_rows).

use margay_meta::Cursor;
use margay_rows::key;
use margay_segment::SegmentId;

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::error::Refused;
use crate::open::Volume;
use crate::sessions::Lease;
use crate::stores::Rows;

/// Rows written in one batch.
const ROWS_PER_BATCH: usize = 1024;

impl Volume {
    /// Gives every own segment a row that says where it is, durably: else only the store that made it is asked for it.
    pub fn record_all_segments(&self) -> Result<(), Error> {
        let _alone = self.upkeep.lock();
        if let Some(lease) = self.reclaim_lease()? {
            self.record_segments(&lease)?;
        }
        Ok(self.engine.wait_durable(self.engine.last_cursor())?)
    }

    /// Whether rows of own segments lag behind their copies. That follows no commit, so it is to be looked for while nothing is
    /// committed, too.
    pub fn has_stale_rows(&self) -> bool {
        !self.stores.is_alone() && !self.segment_rows.stale().0.is_empty()
    }

    /// Updates the rows of own segments from their files.
    pub(super) fn record_segments(&self, lease: &Lease) -> Result<(), Error> {
        let (rows, gone) = self.segment_rows.stale();
        unless_full(self.write_segment_rows(rows, lease))?;
        let gone: Vec<SegmentId> = self.unnamed(&gone, &mut Seen::default())?.into_iter().collect();
        unless_full(self.forget_counters(&gone, lease)).map(|_| ())
    }

    /// Records that nothing refers to these segments any more. Returns once that is durable.
    pub(super) fn record_removed(&self, segments: &[SegmentId], lease: &Lease) -> Result<(), Error> {
        match unless_full(self.write_segment_rows(self.segment_rows.removed(segments), lease))? {
            Some(seq) => Ok(self.engine.wait_durable(seq)?),
            None => Ok(()),
        }
    }

    fn write_segment_rows(&self, rows: Rows, lease: &Lease) -> Result<Cursor, Error> {
        let mut last = Cursor::default();
        for some in rows.chunks(ROWS_PER_BATCH) {
            last = self.retry(|_| -> Result<Cursor, Refused> {
                let mut draft = Draft::default();
                lease.assert_in(&mut draft);
                for (id, record) in some {
                    draft.put(key::segment(*id), record.encode());
                }
                Ok(self.commit(draft)?.cursor)
            })?;
            self.segment_rows.written(some.to_vec());
        }
        Ok(last)
    }
}

/// On a disk too full for rows, space is freed all the same; the rows follow later.
fn unless_full<T>(done: Result<T, Error>) -> Result<Option<T>, Error> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(Error::Full) => Ok(None),
        Err(error) => Err(error),
    }
}
