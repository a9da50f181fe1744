//! What the tree should hold, and names to change it by: few, so that they meet.
//!
//! Invariants: a name is a file's or a directory's, never both, so that each key is one plain path.

use std::collections::{BTreeMap, BTreeSet};

use margay_env::sim::SimRandom;

use super::Change;
use crate::blob::Blob;

const DIRECTORIES: u64 = 4;
const FILES: u64 = 6;
const DEPTH_MAX: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct Model {
    objects: BTreeMap<String, Blob>,
}

impl Model {
    pub(super) fn get(&self, key: &str) -> Option<Blob> {
        self.objects.get(key).copied()
    }

    fn any_directory(random: &mut SimRandom, depth: u64) -> String {
        (0..depth).map(|_| format!("d{}/", random.below(DIRECTORIES))).collect()
    }

    pub(super) fn any_key(&self, random: &mut SimRandom) -> String {
        let depth = random.below(DEPTH_MAX);
        format!("{}f{}", Model::any_directory(random, depth), random.below(FILES))
    }

    /// A key that has an object.
    pub(super) fn some_key(&self, random: &mut SimRandom) -> Option<String> {
        let count = self.objects.len() as u64;
        (count > 0).then(|| self.objects.keys().nth(random.below(count) as usize).cloned()).flatten()
    }

    pub(super) fn any_directories(&self, random: &mut SimRandom) -> (String, String) {
        let depth = |random: &mut SimRandom| 1 + random.below(DEPTH_MAX - 1);
        let (one, other) = (depth(random), depth(random));
        (Model::any_directory(random, one), Model::any_directory(random, other))
    }

    fn below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = (&'a String, &'a Blob)> {
        self.objects.range(directory.to_owned()..).take_while(move |(key, _)| key.starts_with(directory))
    }

    /// S3 moves a directory that has objects to a place that has none and is not inside it.
    pub(super) fn may_rename_directory(&self, from: &str, to: &str) -> bool {
        let occupied = self.below(to).next().is_some();
        from != to && !to.starts_with(from) && !occupied && self.below(from).next().is_some() && !from.starts_with(to)
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(key, blob) => {
                self.objects.insert(key.clone(), *blob);
            }
            Change::Delete(key) => {
                self.objects.remove(key);
            }
            Change::Rename(from, to) => {
                if let Some(blob) = self.objects.remove(from) {
                    self.objects.insert(to.clone(), blob);
                }
            }
            Change::RenameDirectory(from, to) => {
                let moved: Vec<_> = self.below(from).map(|(key, blob)| (key.clone(), *blob)).collect();
                for (key, blob) in moved {
                    self.objects.remove(&key);
                    self.objects.insert(format!("{to}{}", &key[from.len()..]), blob);
                }
            }
        }
    }

    /// Names of the files in a directory, in order, and of the directories that objects below it need.
    pub(super) fn lines(&self, directory: &str) -> (Vec<String>, BTreeSet<String>) {
        let (mut files, mut directories) = (Vec::new(), BTreeSet::new());
        for (key, _) in self.below(directory) {
            match key[directory.len()..].split_once('/') {
                Some((name, _)) => {
                    directories.insert(name.to_owned());
                }
                None => files.push(key[directory.len()..].to_owned()),
            }
        }
        (files, directories)
    }
}
