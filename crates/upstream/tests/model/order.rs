//! The order of syncs that wait for the cache alone: what each name may have held between two of them.
//!
//! What:       one mount writes, and nobody else. Each state that the bucket shows is one of an epoch, that is, each name has what it
//!             held at some time of it, and no state is of an older epoch than one before. After a crash each name has what it held
//!             since the last sync.
//! Not here:   who waits for the bucket (oracle).

use std::collections::{BTreeMap, BTreeSet};

use crate::ops::Tree;

/// What each name held; one that is not in it held nothing all the time.
type Epoch = BTreeMap<String, BTreeSet<Option<String>>>;

#[derive(Debug)]
pub(crate) struct Order {
    epochs: Vec<Epoch>,
    /// What the bucket showed.
    states: Vec<Tree>,
    tree: Tree,
    /// Whether `tree` is what the mount has: not after a crash, and not after a change that failed half way.
    pub(crate) is_known: bool,
    /// A process has ended: the next one ends an epoch when it begins.
    has_crashed: bool,
}

fn fits(epoch: &Epoch, state: &Tree) -> bool {
    let held = epoch.iter().all(|(name, held)| held.contains(&state.get(name).cloned()));
    held && state.keys().all(|name| epoch.contains_key(name))
}

impl Order {
    pub(crate) fn new(tree: Tree) -> Order {
        let mut order = Order { epochs: Vec::new(), states: Vec::new(), tree, is_known: true, has_crashed: false };
        order.ends();
        order
    }

    /// A sync of all has returned.
    pub(crate) fn ends(&mut self) {
        let epoch = self.tree.iter().map(|(name, content)| (name.clone(), BTreeSet::from([Some(content.clone())])));
        self.epochs.push(epoch.collect());
    }

    /// A name may hold this from now on: the change is about to be made.
    pub(crate) fn may_hold(&mut self, name: &str, content: Option<String>) {
        let before = self.tree.get(name).cloned();
        let epoch = self.epochs.last_mut().unwrap();
        epoch.entry(name.to_owned()).or_insert(BTreeSet::from([before])).insert(content);
    }

    pub(crate) fn may_remove(&mut self, name: &str) {
        self.may_hold(name, None);
    }

    /// Each file of one name, or below a directory, gets the other one's.
    pub(crate) fn may_rename(&mut self, from: &str, to: &str, exchanges: bool) {
        for (old, new) in self.moves(from, to, exchanges) {
            let (here, there) = (self.tree.get(&old).cloned(), self.tree.get(&new).cloned());
            self.may_hold(&new, here);
            self.may_hold(&old, if exchanges { there } else { None });
        }
    }

    fn moves(&self, from: &str, to: &str, exchanges: bool) -> Vec<(String, String)> {
        let below =
            |name: &str, of: &str| name == of || name.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
        let one = self.tree.keys().filter(|name| below(name, from));
        let one = one.map(|name| (name.clone(), format!("{to}{}", &name[from.len()..])));
        let other = self.tree.keys().filter(|name| exchanges && below(name, to));
        let other = other.map(|name| (format!("{from}{}", &name[to.len()..]), name.clone()));
        one.chain(other).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn has_written(&mut self, name: &str, content: &str) {
        self.tree.insert(name.to_owned(), content.to_owned());
        self.is_known = true;
    }

    pub(crate) fn has_removed(&mut self, name: &str) {
        self.tree.remove(name);
    }

    pub(crate) fn has_renamed(&mut self, from: &str, to: &str, exchanges: bool) {
        let moves = self.moves(from, to, exchanges);
        let taken: Vec<_> = moves.iter().map(|(old, new)| (self.tree.remove(old), self.tree.remove(new))).collect();
        for ((old, new), (here, there)) in moves.into_iter().zip(taken) {
            self.tree.extend(here.map(|content| (new, content)));
            self.tree.extend(there.filter(|_| exchanges).map(|content| (old, content)));
        }
    }

    /// The process has ended.
    pub(crate) fn crashes(&mut self) {
        (self.is_known, self.has_crashed) = (false, true);
    }

    /// What the mount has after a crash, or after a change that failed.
    pub(crate) fn is(&mut self, tree: &Tree) -> Result<(), String> {
        let last = self.epochs.last().unwrap();
        if !fits(last, tree) {
            return Err(format!(
                "after a crash or a failure there is {tree:?}, since the last sync there was {last:?}"
            ));
        }
        self.tree = tree.clone();
        self.is_known = true;
        if std::mem::take(&mut self.has_crashed) {
            self.ends();
        }
        Ok(())
    }

    /// The bucket has changed.
    pub(crate) fn look(&mut self, state: Tree) {
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
    }

    /// The end: says what is wrong.
    pub(crate) fn wrong(&self) -> Option<String> {
        let mut shown = 0;
        for state in &self.states {
            match self.epochs[shown..].iter().position(|epoch| fits(epoch, state)) {
                Some(later) => shown += later,
                None => {
                    let epochs = &self.epochs[shown..self.epochs.len().min(shown + 3)];
                    return Some(format!(
                        "the bucket showed {state:?}, which is no state of {shown} {epochs:?} or later"
                    ));
                }
            }
        }
        None
    }
}
