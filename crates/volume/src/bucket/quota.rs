//! Quotas of buckets: setting them, and refusing what would exceed them.
//!
//! Why:        one bucket must not fill the disk for all others.
//! Invariants: Q1 a change that adds to a bucket reads its counters at most `COUNTERS_AGE_MAX` before it commits, so a
//!                bucket exceeds its quota by at most the changes in flight and those of that time.
//!             Q2 a change that removes or adds nothing is never refused, nor is publishing data that was already
//!                written.
//!             Q3 a change is under the quota of the version of the bucket's row that its commit asserts.
//! Not here:   the encoding of a quota (cache/quota), counting (put_object and other changes).

use std::time::Duration;

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Setting;

use crate::api::Error;
use crate::cache::{BucketState, Quota};
use crate::draft::Seen;
use crate::driver::counters::count_of;
use crate::open::Volume;

/// How old a prefetched counter may be that admits a change: a body may take an hour to arrive.
const COUNTERS_AGE_MAX: Duration = Duration::from_secs(1);

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

    /// Refuses to add objects or bytes beyond the quota (Q1, Q2). Counters that were fetched ahead can be too old to
    /// refuse, so then they are read again.
    pub(crate) fn check_quota(
        &self,
        bucket: &BucketState,
        (objects, bytes): (i64, i64),
        seen: &Seen,
    ) -> Result<(), Error> {
        let Quota { objects: objects_max, bytes: bytes_max } = bucket.quota;
        for (most, more, what) in [(objects_max, objects, Counted::Objects), (bytes_max, bytes, Counted::Bytes)] {
            let (Some(most), true) = (most, more > 0) else { continue };
            let fits = |used: u64| used.saturating_add(more as u64) <= most;
            let key = key::usage(bucket.root, what);
            if let Some(row) = seen.counter_ahead(&key, self.env.clock.monotonic(), COUNTERS_AGE_MAX)
                && fits(count_of(row)?)
            {
                continue;
            }
            if !fits(self.counter(&key, &mut Seen::default())?) {
                return Err(Error::QuotaExceeded);
            }
        }
        Ok(())
    }

    /// As `check_quota`, by the newest cached quota (bucket_states, S2).
    pub(crate) fn check_newest_quota(&self, root: Ino, objects: i64, bytes: i64) -> Result<(), Error> {
        match self.bucket_state(root) {
            Ok(bucket) => self.check_quota(&bucket, (objects, bytes), &Seen::default()),
            // A file that is open still can be written.
            Err(Error::NoSuchBucket) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
