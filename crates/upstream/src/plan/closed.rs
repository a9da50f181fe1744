//! Which dirty files have to be looked at to plan some of them.
//!
//! Why:        a plan for a few files that are due must not cost what all dirty files cost.
//! Invariants: the plan of a closed set is the plan of all files in which no other one is due: what a file waits for, what its
//!             write replaces and who wants the key of its removal is found by the keys that files share.

use std::collections::HashSet;

use super::Dirty;

/// Adds the files that share a key with one of these, and those that share one with them, and so on. `with_key` gives the files
/// that have, want or leave an object under a key.
pub fn close(due: Vec<Dirty>, mut with_key: impl FnMut(&str) -> Vec<Dirty>) -> Vec<Dirty> {
    let mut known: HashSet<_> = due.iter().map(|one| one.file).collect();
    let (mut closed, mut at) = (due, 0);
    while at < closed.len() {
        let keys: Vec<String> = closed[at].keys().map(str::to_owned).collect();
        for key in keys {
            closed.extend(with_key(&key).into_iter().filter(|one| known.insert(one.file)));
        }
        at += 1;
    }
    closed
}

impl Dirty {
    fn keys(&self) -> impl Iterator<Item = &str> {
        let base = self.base.as_ref().map(|base| &base.key);
        let keys = base.into_iter().chain(self.local.as_ref().map(|local| &local.key));
        keys.chain(self.leftovers.iter().map(|left| &left.key)).map(String::as_str)
    }
}
