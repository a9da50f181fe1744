//! Quotas of buckets: setting them, and refusing what would exceed them.
//!
//! Why:        one bucket must not fill the disk for all others.
//! Invariants: Q1 a change that adds to a bucket reads its counters before it commits, so a bucket exceeds its quota by
//!                at most the changes in flight.
//!             Q2 a change that removes or adds nothing is never refused, nor is publishing data that was already
//!                written.
//! Not here:   the encoding of a quota (quota), counting (put_object and other changes).

use std::ops::ControlFlow;

use margay_meta::Cursor;
use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Setting;
use margay_rows::numbered::Numbered;

use crate::api::Error;
use crate::cache::Quota;
use crate::draft::Seen;
use crate::open::Volume;

impl Volume {
    /// The bucket's quota; no limits when none is set.
    pub async fn quota(&self, bucket: &str) -> Result<Quota, Error> {
        let stored = self.bucket_setting(bucket, Setting::Quota).await?;
        Ok(stored.map(|value| Quota::decode(&value)).transpose()?.unwrap_or_default())
    }

    /// Data above a new quota stays, and nothing can be added.
    pub async fn set_quota(&self, bucket: &str, quota: Quota) -> Result<(), Error> {
        if quota == Quota::default() {
            self.remove_bucket_setting(bucket, Setting::Quota).await
        } else {
            self.set_bucket_setting(bucket, Setting::Quota, &quota.encode()).await
        }
    }

    /// Reads all quotas when the volume opens.
    pub(crate) fn read_quotas(&self) -> Result<(), Error> {
        self.scan(&key::all_settings(), &mut Seen::default(), |row| {
            // A damaged one must not prevent opening.
            if row.key.get(9) == Some(&Setting::Quota.number())
                && let (Ok((root, ..)), Ok(quota)) = (key::parse_setting(row.key), Quota::decode(row.value))
            {
                self.quotas.set(root, quota, Cursor::default());
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Refuses a body larger than the whole bucket's quota before it is received.
    pub(crate) fn check_fits(&self, root: Ino, bytes: u64) -> Result<(), Error> {
        let most = self.quotas.of(root).and_then(|quota| quota.bytes);
        if most.is_some_and(|most| bytes > most) { Err(Error::QuotaExceeded) } else { Ok(()) }
    }

    /// Refuses to add objects or bytes beyond the quota (Q1, Q2).
    pub(crate) fn check_quota(&self, root: Ino, objects: i64, bytes: i64) -> Result<(), Error> {
        let Some(quota) = self.quotas.of(root) else { return Ok(()) };
        for (most, more, what) in [(quota.objects, objects, Counted::Objects), (quota.bytes, bytes, Counted::Bytes)] {
            let (Some(most), true) = (most, more > 0) else { continue };
            let used = self.counter(&key::usage(root, what), &mut Seen::default())?;
            if used.saturating_add(more as u64) > most {
                return Err(Error::QuotaExceeded);
            }
        }
        Ok(())
    }
}
