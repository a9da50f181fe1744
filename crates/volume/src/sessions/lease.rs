//! Leases: jobs that one session at a time runs.
//!
//! Why:        a job runs once, however many processes there are, and a process that was paused must not continue a job
//!             that another one has taken over.
//! Invariants: L1 a lease is taken from a session only when that session's row is gone, which the batch asserts.
//!             L2 a batch under a lease asserts the lease row of its taking, so it commits only before the next taking;
//!                its conflict is reported as `LeaseLost` and not retried.
//!             L3 an epoch is never used twice.
//! Not here:   when a session is dead (beat), which jobs there are.

use margay_meta::RowVersion;
use margay_rows::key;
use margay_rows::record::{LeaseRecord, SessionRecord};

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;

/// The right to run the job of this name, until another session takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The row as of the taking; none if the engine is not shared.
    row: Option<(Vec<u8>, RowVersion)>,
    epoch: u64,
}

/// Result of one attempt to take a lease.
enum Taking {
    Mine(Lease),
    Another,
    /// Committed; the row is read again to learn its version.
    Taken,
}

impl Lease {
    /// The lease of a volume whose engine is not shared: it is never lost.
    pub const fn alone() -> Lease {
        Lease { row: None, epoch: 0 }
    }

    /// Larger than the epoch of any earlier holder.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes the draft commit only while the lease is held (L2).
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        if let Some((key, version)) = &self.row {
            draft.assert_lease(key.clone(), *version);
        }
    }
}

impl Volume {
    /// Takes the lease of this name, or returns it if this session holds it; `None` if another session holds it. Reads
    /// nothing if the engine is not shared.
    pub async fn lease(&self, name: &str) -> Result<Option<Lease>, Error> {
        if !self.engine.is_shared() {
            return Ok(Some(Lease::alone()));
        }
        loop {
            let (taking, cursor) = self.decide(Seen::default(), |seen| self.try_lease(name, seen)).await?;
            match taking {
                Taking::Mine(lease) => return Ok(Some(lease)),
                Taking::Another => return Ok(None),
                Taking::Taken => self.settle(cursor).await?,
            }
        }
    }

    /// As `lease`, on a thread that may block.
    pub fn lease_here(&self, name: &str) -> Result<Option<Lease>, Error> {
        if !self.engine.is_shared() {
            return Ok(Some(Lease::alone()));
        }
        loop {
            let taking = self.retry(|seen| match self.try_lease(name, seen)? {
                Decided::Committed(taking, done) => {
                    self.engine.wait_durable(done.cursor)?;
                    Ok(taking)
                }
                Decided::Commit(_, taking) | Decided::Nothing(taking) => Ok(taking),
            })?;
            match taking {
                Taking::Mine(lease) => return Ok(Some(lease)),
                Taking::Another => return Ok(None),
                Taking::Taken => {}
            }
        }
    }

    fn try_lease(&self, name: &str, seen: &mut Seen) -> Result<Decided<Taking>, Refused> {
        let (own, lease) = (self.sessions.number()?, key::lease(name));
        let row = self.get(&lease, seen)?;
        let record = row.as_ref().map_or(Ok(LeaseRecord::default()), |row| LeaseRecord::decode(&row.value))?;
        let mut draft = Draft::default();
        if record.holder == own {
            let row = row.map(|row| (lease, row.version));
            return Ok(Decided::Nothing(Taking::Mine(Lease { row, epoch: record.epoch })));
        }
        if record.holder.0 != 0 {
            let holder = key::session(record.holder);
            if let Some(alive) = self.get(&holder, seen)? {
                SessionRecord::decode(&alive.value)?;
                return Ok(Decided::Nothing(Taking::Another));
            }
            draft.assert_absent(holder);
        }
        draft.assert_unchanged(lease.clone(), row.map(|row| row.version));
        draft.assert_exists(key::session(own));
        let epoch = record.epoch.checked_add(1).ok_or_else(|| Error::Corrupt("no epochs are left".to_owned()))?;
        draft.put(lease, LeaseRecord { holder: own, epoch }.encode());
        self.finish(draft, Taking::Taken)
    }

    /// Whether no other session has taken the lease so far. An effect outside the volume can only check this before it
    /// happens; a commit asserts it.
    pub async fn still_holds(&self, lease: &Lease) -> Result<bool, Error> {
        let Some((key, version)) = &lease.row else { return Ok(true) };
        self.sessions.check()?;
        let mut seen = Seen::default();
        let row = self.read_now(&mut seen, |seen| self.get(key, seen)).await?;
        Ok(row.is_some_and(|row| row.version == *version))
    }
}
