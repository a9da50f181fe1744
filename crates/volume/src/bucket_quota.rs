//! Quotas of buckets: setting them, and refusing what would exceed them.
//!
//! Why:        one bucket must not fill the disk of all.
//! Invariants: Q1 what adds to a bucket looks at its counters before it commits, so a bucket exceeds its quota by no
//!                more than what is under way at that moment.
//!             Q2 what takes away, or adds nothing, is never refused, and neither is publishing what was written.
//! Not here:   the form of a quota (quota), counting (put_object and the other changes).

use std::ops::ControlFlow;

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Setting;
use margay_rows::numbered::Numbered;

use crate::api::Error;
use crate::open::Volume;
use crate::quota::Quota;
use crate::seen::Seen;

impl Volume {
    /// The quota of a bucket; nothing is limited where none is set.
    pub async fn quota(&self, bucket: &str) -> Result<Quota, Error> {
        let stored = self.bucket_setting(bucket, Setting::Quota).await?;
        Ok(stored.map(|value| Quota::decode(&value)).transpose()?.unwrap_or_default())
    }

    /// What is over the new quota stays, and nothing can be added to it.
    pub async fn set_quota(&self, bucket: &str, quota: Quota) -> Result<(), Error> {
        if quota == Quota::default() {
            self.remove_bucket_setting(bucket, Setting::Quota).await
        } else {
            self.set_bucket_setting(bucket, Setting::Quota, &quota.encode()).await
        }
    }

    /// Reads all quotas, at opening.
    pub(crate) fn read_quotas(&self) -> Result<(), Error> {
        self.scan(&key::all_settings(), &mut Seen::default(), |row| {
            // A damaged one must not keep the volume from opening.
            if row.key.get(9) == Some(&Setting::Quota.number())
                && let (Ok((root, ..)), Ok(quota)) = (key::parse_setting(row.key), Quota::decode(row.value))
            {
                self.quotas.set(root, quota, row.version);
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Refuses a body that is larger than the whole bucket may be, before it is received.
    pub(crate) fn check_fits(&self, root: Ino, bytes: u64) -> Result<(), Error> {
        let most = self.quotas.of(root).and_then(|quota| quota.bytes);
        if most.is_some_and(|most| bytes > most) { Err(Error::QuotaExceeded) } else { Ok(()) }
    }

    /// Refuses to add so many objects and bytes to a bucket when they would be more than its quota (Q1, Q2).
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
