//! Values for those who watch the server that no other part keeps: space, buckets, the certificate.
//!
//! Why:        alerts need the room that is left as numbers, beside the counters of each part.
//! Invariants: M1 at most `BUCKETS_READ_MAX` buckets are read for a page and `BUCKETS_SHOWN_MAX` are on it, however many there are.
//!             M2 buckets are read at most each `BUCKETS_EVERY`, and a page never waits for them longer than `BUCKETS_TIME_MAX`: the
//!                page must be there above all when something is wrong.
//! Locking:    one lock, held for a copy.
//! Not here:   results of checks (`checks`), counters of requests (margay-metrics).

use std::path::Path;
use std::time::Duration;

use margay_env::Env;
use margay_listener::tls::Tls;
use margay_metrics::{Exposition, Kind};
use margay_volume::Volume;
use parking_lot::Mutex;

use crate::buckets::{self, BucketUse};

/// Buckets that are read, the first by name.
pub const BUCKETS_READ_MAX: usize = 1000;
/// Buckets on the page, the largest.
pub const BUCKETS_SHOWN_MAX: usize = 100;
/// How old their numbers may be.
const BUCKETS_EVERY: Duration = Duration::from_secs(15);
/// The longest that a page waits for them.
const BUCKETS_TIME_MAX: Duration = Duration::from_secs(2);

/// Buckets as they were when they were read.
#[derive(Clone, Debug, Default)]
struct KnownBuckets {
    /// On the monotonic clock.
    at: Option<Duration>,
    count: usize,
    shown: Vec<BucketUse>,
}

/// What is kept for pages.
#[derive(Debug, Default)]
pub struct Watched {
    buckets: Mutex<KnownBuckets>,
}

impl Watched {
    /// Reads the buckets if their numbers are old.
    pub async fn look(&self, env: &Env, volume: &Volume) {
        let now = env.clock.monotonic();
        if self.buckets.lock().at.is_some_and(|at| now.saturating_sub(at) < BUCKETS_EVERY) {
            return;
        }
        let read = tokio::time::timeout(BUCKETS_TIME_MAX, buckets::first(volume, BUCKETS_READ_MAX)).await;
        match read {
            Ok(Ok(mut all)) => {
                let count = all.len();
                all.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
                all.truncate(BUCKETS_SHOWN_MAX);
                *self.buckets.lock() = KnownBuckets { at: Some(now), count, shown: all };
            }
            Ok(Err(error)) => tracing::debug!(%error, "buckets cannot be read for the metrics"),
            Err(_) => tracing::debug!("buckets take too long to read for the metrics"),
        }
    }

    pub fn write(&self, out: &mut Exposition) {
        let known = self.buckets.lock().clone();
        if known.at.is_none() {
            return;
        }
        let help = "Buckets; more than 1000 are not counted.";
        out.value("margay_buckets", Kind::Gauge, help, known.count);
        let mut each = |name, help, value: &dyn Fn(&BucketUse) -> Option<u64>| {
            out.family(name, Kind::Gauge, help);
            for bucket in &known.shown {
                if let Some(value) = value(bucket) {
                    out.sample(name, &[("bucket", &bucket.name)], value);
                }
            }
        };
        each("margay_bucket_bytes", "Bytes of a bucket, of the 100 largest.", &|bucket| Some(bucket.bytes));
        each("margay_bucket_objects", "Objects of such a bucket.", &|bucket| Some(bucket.objects));
        each("margay_bucket_quota_bytes", "Its quota of bytes, if it has one.", &|bucket| bucket.bytes_max);
        each("margay_bucket_quota_objects", "Its quota of objects, if it has one.", &|bucket| bucket.objects_max);
    }
}

/// Room in the file system of a data directory.
pub fn write_space(env: &Env, data: &Path, out: &mut Exposition) {
    let Ok(space) = env.disk.space(data) else { return };
    let help = "Free bytes of the file system with the data directory.";
    out.value("margay_data_free_bytes", Kind::Gauge, help, space.free_bytes);
    out.value("margay_data_total_bytes", Kind::Gauge, "All bytes of it.", space.total_bytes);
}

/// When the certificate ends.
pub fn write_certificate(tls: Option<&Tls>, out: &mut Exposition) {
    let Some(end) = tls.and_then(Tls::ends_at) else { return };
    let help = "When the certificate of the S3 address ends, since 1970.";
    out.value("margay_certificate_expiry_timestamp_seconds", Kind::Gauge, help, end);
}
