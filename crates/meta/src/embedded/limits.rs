//! Options and limits of the embedded engine.
//!
//! Why:        every limit has a name and a unit in one place (docs/limits.md repeats them).

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the B-tree.
    pub tree_folder: PathBuf,
    /// Memory for pages of the B-tree, in bytes.
    pub tree_cache_bytes: usize,
    /// Length of one log file, in bytes. At most two files hold commits that are not in the tree: the active one and
    /// the one being folded; a third is prepared.
    pub log_file_bytes: u64,
    /// The active overlay is sealed at this estimated size, in bytes, even if its log has space.
    pub overlay_bytes_max: usize,
    /// Commits that nobody waits for are written and synced after this time.
    pub sync_interval: Duration,
    /// Longest time that a sync waits for further commits while they keep arriving.
    pub group_wait_max: Duration,
    /// Maximum number of commits that the feed caches while somebody reads it.
    pub tail_commits_max: usize,
    /// Maximum size of their keys, in bytes.
    pub tail_bytes_max: usize,
    /// Log files that the tree no longer needs are kept for the feed up to this size, in bytes; 0: only files that hold
    /// payload are kept.
    pub feed_log_bytes_max: u64,
    /// Whether several volumes use this engine.
    pub shared: bool,
    /// A sync failed in an earlier process (`margay_env::fault`): the page cache may differ from the disk, so files are
    /// rewritten before use.
    pub after_fault: bool,
    /// Log segments with smaller ids are foreign: a restored volume contains logs that hold payload.
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

/// Minimum length of a log file, in bytes; a batch must fit into one file.
pub const LOG_FILE_BYTES_MIN: u64 = 64 << 10;
/// Encoded commits in memory are written out at this size even if nobody waits, in bytes.
pub(super) const PENDING_BYTES_MAX: usize = 1 << 20;
