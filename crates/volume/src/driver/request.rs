//! The rows of one request: read once, and used for all of its reads of the volume.
//!
//! Why:        a request reads its bucket and its object several times (authorization, encryption, the answer), and
//!             each read would be an engine call. `look` announces what it will do; calls through `view` use the
//!             prefetched rows.
//! Invariants: E1 each answer of a view is of one moment during the request; commits before its start are visible.
//!             E2 a change uses the rows for its first attempt only, asserts them, and drops them.
//! Not here:   which rows are prefetched (ahead), the operations of a view (each beside that of the volume).

use margay_rows::key;
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Seen;
use crate::driver::ahead::Purpose;
use crate::open::Volume;

/// Rows that a request has read.
#[derive(Debug, Default)]
pub struct RequestRows(Mutex<Seen>);

/// The volume as one request sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'r> {
    pub(crate) volume: &'r Volume,
    rows: &'r RequestRows,
}

impl Volume {
    /// Prefetches the rows of a request, in one call.
    pub async fn look(&self, bucket: &str, purpose: Purpose<'_>) -> Result<RequestRows, Error> {
        let rows = RequestRows::default();
        self.look_into(&rows, bucket, purpose).await?;
        Ok(rows)
    }

    /// As `look`; into the rows of a request that has none yet.
    pub async fn look_into(&self, rows: &RequestRows, bucket: &str, purpose: Purpose<'_>) -> Result<(), Error> {
        let mut seen = Seen::default();
        self.look_ahead(bucket, purpose, &mut seen).await?;
        *rows.0.lock() = seen;
        Ok(())
    }

    pub fn view<'r>(&'r self, rows: &'r RequestRows) -> View<'r> {
        View { volume: self, rows }
    }
}

impl View<'_> {
    /// Runs a read with the request's rows, of one moment, and returns when everything it depends on is durable.
    pub(crate) async fn read<T>(
        self,
        mut read: impl FnMut(&Volume, &mut Seen) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut seen = std::mem::take(&mut *self.rows.0.lock());
        let found = self.volume.read_now(&mut seen, |seen| read(self.volume, seen)).await;
        let newest = seen.cursor;
        *self.rows.0.lock() = seen;
        self.volume.settle(newest).await?;
        found
    }

    /// The rows for a change (E2); those of the bucket stay for the response.
    pub(crate) fn take_for_change(self, bucket: &str) -> Seen {
        let mut rows = self.rows.0.lock();
        let stays = rows.only(&key::bucket(bucket));
        std::mem::replace(&mut *rows, stays)
    }
}
