//! What changed rows mean to this process: which of its caches and kernels have what is stale.
//!
//! Why:        the feed and a batch name keys; kernels think in directories and names, caches in buckets.
//! Not here:   reading the feed (follower).

use std::collections::HashSet;

use margay_meta::Change;
use margay_rows::key::{self, Table};
use margay_rows::kinds::Setting;
use margay_rows::{Ino, numbered::Numbered};

use crate::known::Known;
use crate::watch::Notice;

/// What kernels may know of these rows.
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

/// What commits of others make stale.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    /// Rows of buckets and of directories' entries, which paths lead over.
    pub(crate) steps: HashSet<Vec<u8>>,
    /// Rows that a directory's attributes are made of.
    pub(crate) attributes: Vec<Vec<u8>>,
    /// A bucket was made or removed, or changed.
    pub(crate) buckets: bool,
    /// Roots of the buckets with changed settings.
    pub(crate) settings: HashSet<Ino>,
    /// Roots of the buckets with changed quotas.
    pub(crate) quotas: HashSet<Ino>,
    pub(crate) identities: bool,
    pub(crate) events: bool,
}

impl Stale {
    pub(crate) fn note(&mut self, change: Change) {
        for key in change.keys {
            match Table::of(&key) {
                Some(Table::Bucket) => {
                    self.buckets = true;
                    self.steps.insert(key);
                }
                Some(Table::Entry) => self.note_entry(key),
                Some(Table::Directory | Table::Inode) => self.attributes.push(key),
                Some(Table::Setting) => {
                    // A damaged key is no setting's.
                    if let Ok((root, setting, _)) = key::parse_setting(&key) {
                        self.settings.insert(root);
                        if setting.number() == Setting::Quota.number() {
                            self.quotas.insert(root);
                        }
                    }
                }
                Some(Table::Identity) => self.identities = true,
                Some(Table::Event) => self.events = true,
                _ => {}
            }
        }
    }

    /// The times and the count of its directory go with it, since blind writes are not in the feed.
    fn note_entry(&mut self, key: Vec<u8>) {
        let Ok((parent, name)) = key::parse_entry(&key) else { return };
        self.attributes.push(key::times(parent));
        self.attributes.push(key::subdirectories(parent));
        if name.ends_with('/') {
            self.attributes.push(key.clone());
            self.steps.insert(key);
        }
    }
}
