//! What the embedded engine may use.
//!
//! Why: every limit has a name and a unit in one place (docs/limits.md repeats them).

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the B-tree.
    pub tree_folder: PathBuf,
    /// Memory for pages of the B-tree, in bytes.
    pub tree_cache_bytes: usize,
    /// Length of one log file, in bytes. At most two hold commits that are not in the tree: the active one and the
    /// one being folded; a third is kept ready.
    pub log_file_bytes: u64,
    /// The active overlay is sealed when it is estimated to hold this many bytes, even if its log has room.
    pub overlay_bytes_max: usize,
    /// Commits that nobody waits for are written and synced after this time.
    pub sync_interval: Duration,
    /// Longest time that a sync waits for company while others keep coming.
    pub group_wait_max: Duration,
    /// Commits that the feed keeps in memory while somebody follows it, in number.
    pub tail_commits_max: usize,
    /// The same in bytes of keys.
    pub tail_bytes_max: usize,
    /// Log files that the tree does not need any more are kept for the feed up to so many bytes; 0: only those that stay
    /// for their payload.
    pub feed_log_bytes_max: u64,
    /// Several volumes use this engine.
    pub shared: bool,
    /// A sync failed in an earlier life (`margay_env::fault`): what is read may not be on the disk, so it is written
    /// again before anything is built on it.
    pub after_fault: bool,
    /// Log segments with smaller ids belong to another life: a volume that is restored brings logs with payload along.
    pub first_log_min: u64,
}

impl Options {
    /// Defaults for a data directory's tree folder.
    pub fn new(tree_folder: PathBuf) -> Options {
        Options {
            tree_folder,
            tree_cache_bytes: 256 << 20,
            log_file_bytes: 60 << 20,
            overlay_bytes_max: 192 << 20,
            sync_interval: Duration::from_millis(1000),
            group_wait_max: Duration::from_millis(1),
            tail_commits_max: 65_536,
            tail_bytes_max: 16 << 20,
            feed_log_bytes_max: 0,
            shared: false,
            after_fault: false,
            first_log_min: 0,
        }
    }
}

/// Smallest log file accepted, in bytes; a batch must fit into one file.
pub const LOG_FILE_BYTES_MIN: u64 = 64 << 10;
/// Encoded commits waiting in memory are written out at this size even if nobody waits, in bytes.
pub(super) const PENDING_BYTES_MAX: usize = 1 << 20;
