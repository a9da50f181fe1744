//! The change log as names: which entries changed, for caches and followers.
//!
//! Why:        the engine tails keys; followers think in directories and names.
//! Invariants: every commit after the given one is there, or `TailLost` says to look at everything anew.
//! Not here:   who follows, and how far they are.

use margay_meta::{Cursor, TailLost};
use margay_rows::key;

use crate::open::Volume;

/// What one commit changed in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    pub cursor: Cursor,
    /// Number of the directory, and the sort name in it (a directory's ends in `/`).
    pub entries: Vec<(u64, String)>,
}

impl Volume {
    /// Commits after `after`, oldest first, at most `limit`; commits that changed no entry have an empty list.
    pub fn changes_since(&self, after: Cursor, limit: usize) -> Result<Vec<TreeChange>, TailLost> {
        let changes = self.engine.changes_since(after, limit)?;
        let entry = |key: &Vec<u8>| {
            let (directory, name) = key::parse_entry(key).ok().filter(|_| key::is_entry(key))?;
            Some((directory.0, name.to_owned()))
        };
        let named = |change: margay_meta::Change| TreeChange {
            cursor: change.cursor,
            entries: change.keys.iter().filter_map(entry).collect(),
        };
        Ok(changes.into_iter().map(named).collect())
    }
}
