//! Counts and latencies of the kernel's requests.
//!
//! Why:        a request costs two clock readings and three additions without a lock.
//! Invariants: N1 the set of operations is fixed, so memory is bounded (`every_request_has_its_own_place`).
//! Not here:   the text of /metrics (the binary).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! requests {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A request of the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Request { $($variant),* }

        impl Request {
            pub const ALL: &[Request] = &[$(Request::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Request::$variant => $name),* }
            }
        }
    };
}

requests! {
    Lookup = "lookup", Forget = "forget", GetAttributes = "getattr", SetAttributes = "setattr",
    ReadSymlink = "readlink", MakeFile = "mknod", MakeDirectory = "mkdir", MakeSymlink = "symlink", Link = "link",
    Unlink = "unlink", RemoveDirectory = "rmdir", Rename = "rename", Create = "create", Open = "open", Read = "read",
    Write = "write", Flush = "flush", Sync = "fsync", Release = "release", Allocate = "fallocate", Seek = "lseek",
    CopyRange = "copy_file_range", OpenDirectory = "opendir", ReadDirectory = "readdir",
    ReadDirectoryPlus = "readdirplus", ReleaseDirectory = "releasedir", SyncDirectory = "fsyncdir",
    GetXattr = "getxattr", SetXattr = "setxattr", ListXattrs = "listxattr", RemoveXattr = "removexattr",
    Statistics = "statfs", Lock = "setlk", Unlock = "unlock", LockedBy = "getlk",
}

/// Upper bounds of the histogram's buckets, in microseconds.
pub const BUCKETS_US: [u64; 14] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 20_000, 100_000, 1_000_000];

#[derive(Debug, Default)]
struct Series {
    count: AtomicU64,
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; BUCKETS_US.len()],
}

/// All requests of one mount, or of several.
#[derive(Debug)]
pub struct Metrics {
    series: Vec<Series>,
    /// Invalidation notices that were handled.
    pub(crate) notices: AtomicU64,
    /// Inodes that the kernel forgot because the pruner asked.
    pub(crate) pruned: AtomicU64,
}

/// One line of [`Metrics::read`].
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub name: &'static str,
    pub count: u64,
    /// Of them, answered with an error number.
    pub failed: u64,
    pub seconds: f64,
    pub buckets: [u64; BUCKETS_US.len()],
}

impl Default for Metrics {
    fn default() -> Metrics {
        let series = Request::ALL.iter().map(|_| Series::default()).collect();
        Metrics { series, notices: AtomicU64::new(0), pruned: AtomicU64::new(0) }
    }
}

impl Metrics {
    pub fn record(&self, request: Request, took: Duration, failed: bool) {
        let series = &self.series[request as usize];
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        series.count.fetch_add(1, Ordering::Relaxed);
        series.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if failed {
            series.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(bucket) = BUCKETS_US.iter().position(|end| nanoseconds <= end * 1000) {
            series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Operations with at least one request.
    pub fn read(&self) -> Vec<Measured> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Request::ALL
            .iter()
            .zip(&self.series)
            .filter(|(_, series)| load(&series.count) > 0)
            .map(|(request, series)| Measured {
                name: request.name(),
                count: load(&series.count),
                failed: load(&series.failed),
                seconds: load(&series.nanoseconds) as f64 / 1e9,
                buckets: std::array::from_fn(|index| load(&series.buckets[index])),
            })
            .collect()
    }

    /// Inodes that the kernel forgot because the pruner asked.
    pub fn pruned(&self) -> u64 {
        self.pruned.load(Ordering::Relaxed)
    }

    /// Changes by other doors of which the kernel was notified.
    pub fn notices(&self) -> u64 {
        self.notices.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_with_their_time() {
        let metrics = Metrics::default();
        metrics.record(Request::Lookup, Duration::from_micros(3), false);
        metrics.record(Request::Lookup, Duration::from_secs(100), true);
        let all = metrics.read();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].name, all[0].count, all[0].failed), ("lookup", 2, 1));
        assert_eq!(all[0].buckets.iter().sum::<u64>(), 1);
        assert_eq!(all[0].buckets[2], 1);
        assert!(all[0].seconds > 100.0);
    }

    #[test]
    fn every_request_has_its_own_place() {
        for (index, request) in Request::ALL.iter().enumerate() {
            assert_eq!(*request as usize, index);
        }
    }
}
