//! The rows of one request: asked for once, used by everything that it asks of the volume.
//!
//! Why:        a request looks at its bucket and its object several times (may it, is it encrypted, what does it answer), and
//!             each look would be a call of the engine.
//! Invariants: E1 each answer of a view is of one moment while the request was under way; what was committed before it
//!                began is seen.  E2 a change uses the rows for its first try only, asserts them, and drops them.
//! How to use: `look` says what the request will do; calls through `view` use the rows that it brought, and read what it
//!             did not bring. Calls on the volume itself read for themselves.
//! Not here:   which rows are brought (ahead), the operations of a view (each beside that of the volume).

use margay_rows::key;
use parking_lot::Mutex;

use crate::ahead::Purpose;
use crate::api::Error;
use crate::open::Volume;
use crate::seen::Seen;

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
    /// Reads what a request will need, in one call.
    pub async fn look(&self, bucket: &str, purpose: Purpose<'_>) -> Result<RequestRows, Error> {
        let mut seen = Seen::default();
        self.look_ahead(bucket, purpose, &mut seen).await?;
        Ok(RequestRows(Mutex::new(seen)))
    }

    pub fn view<'r>(&'r self, rows: &'r RequestRows) -> View<'r> {
        View { volume: self, rows }
    }
}

impl View<'_> {
    /// Runs a read with the request's rows, of one moment, and answers when what it rests on is durable.
    pub(crate) async fn read<T>(
        self,
        mut read: impl FnMut(&Volume, &mut Seen) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut seen = std::mem::take(&mut *self.rows.0.lock());
        let found = self.volume.read_now(&mut seen, |seen| read(self.volume, seen)).await;
        let newest = seen.seq;
        *self.rows.0.lock() = seen;
        self.volume.settle(newest).await?;
        found
    }

    /// The rows for a change (E2); those of the bucket stay for what is told of it.
    pub(crate) fn take_for_change(self, bucket: &str) -> Seen {
        let mut rows = self.rows.0.lock();
        let stays = rows.only(&key::bucket(bucket));
        std::mem::replace(&mut *rows, stays)
    }
}
