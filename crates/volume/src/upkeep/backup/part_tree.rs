//! Directories and entries that belong to a prefix of a bucket.
//!
//! Why:        entries refer to their directory by number, so whether a key has the prefix is decided once per
//!             directory.
//! Invariants: T1 the way consists of the directories that the prefix names completely; only the next step is kept in
//!                each.
//!             T2 the way exists only if something was found at its end: an implicit directory is never empty.
//! Not here:   rows (part).

use std::collections::{HashMap, HashSet};

use margay_rows::Ino;
use margay_rows::record::Entry;

use crate::cache::split;

/// How an entry belongs to the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Unchanged.
    Whole,
    /// As a step on the way to the prefix.
    Way,
    Not,
}

#[derive(Debug)]
pub(super) struct PartTree {
    root: Ino,
    /// Directories on the way: the first is the root. Each with the name of the next step.
    way: Vec<(Ino, String)>,
    /// The directory at the end of the way; `None` if it does not exist.
    end: Option<Ino>,
    /// Names in it must have this prefix.
    name: String,
    /// Directories below it, which belong to the part completely.
    below: HashSet<Ino>,
    found: bool,
}

impl PartTree {
    /// `records`: parent and sort name of every directory.
    pub(super) fn new(root: Ino, prefix: &str, records: &HashMap<Ino, (Ino, String)>) -> PartTree {
        let (directories, name) = split(prefix);
        let (mut way, mut end) = (Vec::new(), Some(root));
        for step in directories.split_inclusive('/') {
            let Some(directory) = end else { break };
            way.push((directory, step.to_owned()));
            let next = records.iter().find(|(_, (parent, name))| *parent == directory && name == step);
            end = next.map(|(ino, _)| *ino);
        }
        let mut tree = PartTree { root, way, end, name: name.to_owned(), below: HashSet::new(), found: false };
        if let Some(end) = end {
            tree.below = tree.all_below(end, records);
        }
        tree
    }

    fn all_below(&self, end: Ino, records: &HashMap<Ino, (Ino, String)>) -> HashSet<Ino> {
        let mut known: HashMap<Ino, bool> = HashMap::new();
        let mut climbed = Vec::new();
        for start in records.keys() {
            let mut at = *start;
            let belongs = loop {
                if let Some(belongs) = known.get(&at) {
                    break *belongs;
                }
                climbed.push(at);
                match records.get(&at) {
                    Some((parent, name)) if *parent == end => break name.starts_with(&self.name),
                    // A cycle is damage, which a check of the whole volume reports.
                    Some((parent, _)) if climbed.len() <= records.len() => at = *parent,
                    Some(_) | None => break false,
                }
            };
            known.extend(climbed.drain(..).map(|ino| (ino, belongs)));
        }
        known.into_iter().filter_map(|(ino, belongs)| belongs.then_some(ino)).collect()
    }

    pub(super) fn entry(&self, directory: Ino, name: &str) -> Kept {
        if self.below.contains(&directory) || self.end == Some(directory) && name.starts_with(&self.name) {
            Kept::Whole
        } else if self.way.iter().any(|(step, next)| *step == directory && next == name) {
            Kept::Way
        } else {
            Kept::Not
        }
    }

    /// The directory's key is the prefix.
    pub(super) fn is_prefix_itself(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Directory(entry) if self.end == Some(entry.ino)) && self.name.is_empty()
    }

    /// Something belongs to the part.
    pub(super) fn found(&mut self) {
        self.found = true;
    }

    /// Whether something was found at the end of the way.
    pub(super) fn any(&self) -> bool {
        self.found
    }

    /// The directories on the way that have its next step.
    pub(super) fn way(&self) -> impl Iterator<Item = Ino> + '_ {
        self.way.iter().filter(|_| self.found).map(|(ino, _)| *ino)
    }

    /// Whether a directory is there in the part.
    pub(super) fn has(&self, directory: Ino) -> bool {
        let on_way = || self.end == Some(directory) || self.way.iter().any(|(step, _)| *step == directory);
        directory == self.root || self.below.contains(&directory) || self.found && on_way()
    }
}
