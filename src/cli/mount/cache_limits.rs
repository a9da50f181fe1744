//! Limits of the storage in a cache: its disk may be small, and so may be its size.
//!
//! Why:        the limits of a server's data directory are for disks of many gigabytes; a reserve of 256 MiB and two log files of
//!             60 MiB leave nothing of a disk of 300 MB.
//! Invariants: L1 a limit is lowered here, never raised: a setting that asks for less counts.
//! Not here:   how much is kept (margay-upstream).

use std::path::Path;
use std::time::Duration;

use margay_env::Env;

use crate::exit::Failure;
use crate::settings::StorageLimits;

/// Of a cache, unless the command says another size.
const CACHE_BYTES_DEFAULT: u64 = 10 << 30;
/// The smallest cache: half of it is for blocks of a MiB, and log files come on top.
const CACHE_BYTES_MIN: u64 = 32 << 20;
/// Of dead segments of a cache in quarantine: what is let go is in the bucket, so it need not be kept beside that, and no other
/// process reads here. It covers a removal that is on its way.
const QUARANTINE_TIME_MAX: Duration = Duration::from_secs(2);
/// The reserve, the log and a pack are at most this share of the disk, and of the cache.
const SHARE: u64 = 16;
/// The log must hold the largest batch, of a directory that is listed or moved.
const LOG_BYTES_MIN: u64 = 16 << 20;
/// The reserve is this and the log at least: what the metadata asks to be free before rows are added, and some for a fold. With
/// less, files could not be made on a disk that content has filled.
const RESERVE_BYTES_MIN: u64 = 48 << 20;
const PACK_BYTES_MIN: u64 = 4 << 20;

/// The size of a cache.
pub(super) fn size(wanted: Option<u64>) -> Result<u64, Failure> {
    match wanted {
        Some(bytes) if bytes < CACHE_BYTES_MIN => {
            let least = CACHE_BYTES_MIN >> 20;
            Err(Failure::usage(format!("a cache of {bytes} bytes is too small: give it {least}MiB or more")))
        }
        wanted => Ok(wanted.unwrap_or(CACHE_BYTES_DEFAULT)),
    }
}

/// Bytes of the disk that a directory is on, or will be on.
pub(super) fn disk_bytes(env: &Env, directory: &Path) -> u64 {
    let spaces = directory.ancestors().filter(|path| !path.as_os_str().is_empty());
    let space = spaces.map(|path| env.disk.space(path)).find_map(Result::ok);
    space.map_or(u64::MAX, |space| space.total_bytes)
}

/// Lowers limits for a cache of this size on a disk of that size.
pub(super) fn fit(limits: &mut StorageLimits, cache_bytes: u64, disk_bytes: u64) {
    let (of_disk, of_cache) = (disk_bytes / SHARE, cache_bytes.min(disk_bytes) / SHARE);
    limits.quarantine_time = limits.quarantine_time.min(QUARANTINE_TIME_MAX);
    limits.log_bytes_max = limits.log_bytes_max.min(of_cache.max(LOG_BYTES_MIN));
    limits.reserve_bytes = limits.reserve_bytes.min(of_disk.max(RESERVE_BYTES_MIN + limits.log_bytes_max));
    limits.pack_bytes_max = limits.pack_bytes_max.min(of_cache.max(PACK_BYTES_MIN));
    limits.raw_bytes_min = limits.raw_bytes_min.min(limits.pack_bytes_max);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fitted(cache_mib: u64, disk_mib: u64) -> [u64; 3] {
        let resolved = crate::cli::arguments::DataArgs { data: None, config: None, set: Vec::new() };
        let mut limits = resolved.settings(&Env::real()).unwrap().storage;
        fit(&mut limits, cache_mib * MIB, disk_mib * MIB);
        [limits.reserve_bytes, limits.log_bytes_max, limits.pack_bytes_max].map(|bytes| bytes / MIB)
    }

    #[test]
    fn a_small_disk_has_small_limits_and_a_large_one_those_of_the_settings() {
        assert_eq!(fitted(10 << 10, 1 << 20), [256, 120, 256]);
        assert_eq!(fitted(10 << 10, 300), [66, 18, 18]);
        assert_eq!(fitted(32, 1 << 20), [256, 16, 4]);
        assert_eq!(fitted(32, 64), [64, 16, 4]);
    }

    #[test]
    fn a_tiny_cache_is_refused() {
        assert_eq!(size(None).unwrap(), CACHE_BYTES_DEFAULT);
        assert_eq!(size(Some(CACHE_BYTES_MIN)).unwrap(), CACHE_BYTES_MIN);
        let refused = size(Some(0)).unwrap_err();
        assert!(refused.message.contains("32MiB"), "{}", refused.message);
    }
}
