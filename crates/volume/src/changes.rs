//! Maps changed rows to the caches and kernels of this process that they make stale.
//!
//! Why:        the feed and batches name keys; kernels need directories and names, caches need buckets.
//! Not here:   reading the feed (follower).

use std::collections::HashSet;

use margay_meta::{Change, Cursor};
use margay_rows::Ino;
use margay_rows::key::{self, Table};

use crate::known::Known;
use crate::watch::Notice;

/// Notices for kernels that may have cached these rows.
pub(crate) fn notice<'k>(keys: impl Iterator<Item = &'k [u8]>, known: &Known) -> Notice {
    let mut notice = Notice::default();
    for key in keys {
        if key::is_entry(key)
            && let Ok((parent, name)) = key::parse_entry(key)
            && known.contains(parent)
        {
            notice.entries.push((parent, name.to_owned()));
        } else if key::is_inode(key)
            && let Ok((ino, _)) = key::parse_ino(key)
            && known.contains(ino)
        {
            notice.files.push(ino);
        }
    }
    notice
}

/// Stale caches after commits of other processes.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    /// Rows of buckets and entries, which cached paths depend on.
    pub(crate) steps: HashSet<Vec<u8>>,
    /// Rows that may be kept (`cache/kept_rows`).
    pub(crate) rows: Vec<Vec<u8>>,
    /// A bucket was created, removed or changed.
    pub(crate) buckets: bool,
    /// Roots of the buckets with changed settings.
    pub(crate) settings: HashSet<Ino>,
    pub(crate) identities: bool,
    /// Commits that queued events (positive) or removed them.
    pub(crate) events: Vec<(Cursor, i64)>,
}

/// How many events a commit queued, or removed (negative): one that removes them writes nothing else.
fn events_of(change: &Change) -> i64 {
    let events = change.keys.iter().filter(|key| Table::of(key) == Some(Table::Event)).count();
    let count = i64::try_from(events).unwrap_or(i64::MAX);
    if events == change.keys.len() { -count } else { count }
}

impl Stale {
    /// What also matters if it is an own commit.
    pub(crate) fn note_events(&mut self, change: &Change) {
        match events_of(change) {
            0 => {}
            events => self.events.push((change.cursor, events)),
        }
    }

    pub(crate) fn note(&mut self, change: Change) {
        for key in change.keys {
            match Table::of(&key) {
                Some(Table::Bucket) => {
                    self.buckets = true;
                    self.steps.insert(key);
                }
                Some(Table::Entry) => self.note_entry(key),
                Some(Table::Directory | Table::Inode) => self.rows.push(key),
                Some(Table::Setting) => {
                    // A damaged key belongs to no setting.
                    if let Ok((root, ..)) = key::parse_setting(&key) {
                        self.settings.insert(root);
                    }
                }
                Some(Table::Identity) => self.identities = true,
                _ => {}
            }
        }
    }

    /// Also covers the times and the counter of the entry's directory, because the feed does not show what was added to or
    /// raised.
    fn note_entry(&mut self, key: Vec<u8>) {
        let Ok((parent, name)) = key::parse_entry(&key) else { return };
        self.rows.push(key::times(parent));
        self.rows.push(key::subdirectories(parent));
        if name.ends_with('/') {
            self.steps.insert(key.clone());
        }
        self.rows.push(key);
    }
}
