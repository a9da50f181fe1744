//! What must hold: which contents were written, which of them somebody replaced or removed who had seen them, and what happened.
//!
//! A content is a text of its own for each write, so where it is tells where each acknowledged byte is.

use std::collections::{BTreeMap, BTreeSet};

use crate::ops::Tree;
use crate::order::Order;
use crate::store::{Object, Objects};

/// What a seed promises, by its store and who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Conditions are honoured, anybody writes: nothing that was sent goes, unless who replaced or removed it had seen it.
    All,
    /// One mount writes: besides, everything is at its own name, and nothing that it removed comes back.
    OneWriter,
    /// Conditions are ignored and many write: a content may be overwritten within one round trip. Whole contents, and one tree in
    /// the end.
    Whole,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) promise: Promise,
    written: BTreeSet<String>,
    /// Those that may go.
    superseded: BTreeSet<String>,
    /// Those of them since all was sent or kept.
    recent: BTreeSet<String>,
    /// Those of them that need not go: the change failed, or a power cut may have taken it back.
    forgiven: BTreeSet<String>,
    there: BTreeSet<String>,
    /// By who and from where: contents that were copied elsewhere before they were removed.
    moved: BTreeMap<(String, String), String>,
    /// By who and where: what the bucket had there, by its headers, when somebody copied a content to it.
    copied: BTreeMap<(String, String), Option<BTreeMap<String, String>>>,
    /// By who: contents that a sync acknowledged which waits for the cache alone.
    synced: BTreeMap<String, BTreeSet<String>>,
    /// Of the only writer, if its syncs wait for its cache alone.
    pub(crate) order: Option<Order>,
    history: Vec<String>,
    violations: Vec<String>,
}

/// Objects with a content; those of probes are nobody's.
fn with_content(objects: &Objects) -> impl Iterator<Item = (&String, &Object)> {
    objects.iter().filter(|(key, object)| !object.body.is_empty() && !key.contains("-probe"))
}

/// As `with_content`, without those that were made of parts of open files and have no name yet: nobody relies on them.
fn kept(objects: &Objects) -> impl Iterator<Item = (&String, &Object)> {
    with_content(objects).filter(|(key, _)| !key.contains("-ahead-"))
}

/// Files of a bucket.
pub(crate) fn files(objects: &Objects) -> Tree {
    let is_file = |key: &str| !key.ends_with('/') && !key.starts_with(".margay-tmp/");
    let files = objects.iter().filter(|(key, _)| is_file(key));
    files.map(|(key, object)| (key.clone(), object.name.clone())).collect()
}

impl Oracle {
    pub(crate) fn new(promise: Promise) -> Oracle {
        let none = BTreeSet::new;
        let (history, violations) = (Vec::new(), Vec::new());
        Oracle {
            promise,
            written: none(),
            superseded: none(),
            recent: none(),
            forgiven: none(),
            there: none(),
            moved: BTreeMap::new(),
            copied: BTreeMap::new(),
            synced: BTreeMap::new(),
            order: None,
            history,
            violations,
        }
    }

    pub(crate) fn tell(&mut self, line: String) {
        self.history.push(line);
    }

    pub(crate) fn history(&self) -> &[String] {
        &self.history
    }

    pub(crate) fn violation(&mut self, line: String) {
        self.history.push(format!("VIOLATION {line}"));
        self.violations.push(line);
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Somebody is about to write this.
    pub(crate) fn writes(&mut self, content: &str) {
        self.written.insert(content.to_owned());
    }

    /// Somebody who has seen it is about to replace or remove it.
    pub(crate) fn supersedes(&mut self, content: &str) {
        self.superseded.insert(content.to_owned());
        self.recent.insert(content.to_owned());
    }

    /// A sync of all has returned.
    pub(crate) fn settles(&mut self) {
        self.recent.clear();
    }

    /// Somebody copies this elsewhere, and then removes it here: a removal does not overtake the copy. If the bucket has it under
    /// another key yet, or has it not, what takes that key or is made of it is a write, as in `makes`.
    pub(crate) fn moves(&mut self, who: &str, (from, to): (&str, &str), content: &str, objects: &Objects) {
        let there = |key: &str| objects.get(key).map(|there| there.headers.clone());
        // The bucket may have the same content there, of another file.
        let copied = self.copied.remove(&(who.to_owned(), from.to_owned()));
        let is_unsent = copied.is_some_and(|copied| copied == there(from));
        self.copied.insert((who.to_owned(), to.to_owned()), there(to));
        if is_unsent || objects.get(from).is_none_or(|there| there.name != content) {
            self.superseded.insert(content.to_owned());
        }
        // For a while it is at both.
        self.forgives(content);
        self.moved.insert((who.to_owned(), from.to_owned()), content.to_owned());
    }

    /// Somebody is about to remove what another one has put where the first one had renamed it away: it has the same ETag, so no
    /// condition tells the two apart. Known, and not held.
    pub(crate) fn removes_put_back(&mut self, who: usize, key: &str, content: &str) {
        self.tell(format!("m{who} removes {content}, which another one has put back under {key}"));
        self.superseded.insert(content.to_owned());
    }

    /// Somebody makes something under this key, or moves a directory (`None`). What is sent for it replaces what was removed
    /// there, and a write waits for no other one: for a while the bucket may lack what was copied before.
    pub(crate) fn makes(&mut self, who: &str, key: Option<&str>) {
        let is_concerned = |own: &str, from: &str| own == who && key.is_none_or(|key| key == from);
        let concerned = self.moved.iter().filter(|((own, from), _)| is_concerned(own, from));
        self.superseded.extend(concerned.map(|(_, content)| content.clone()));
    }

    /// Somebody has read this: it was written as a whole.
    pub(crate) fn is_whole(&mut self, who: &str, content: &str) {
        if !content.is_empty() && !self.written.contains(content) {
            self.violation(format!("{who} has read {content:?}, which nobody wrote"));
        }
    }

    /// As `is_whole`, under a name.
    pub(crate) fn read(&mut self, who: &str, content: &str) {
        self.is_whole(who, content);
        let is_old = self.superseded.contains(content) && !self.forgiven.contains(content) && !content.is_empty();
        if self.promise == Promise::OneWriter && who == "m0" && is_old {
            self.violation(format!("{who} has read {content:?}, which it replaced or removed"));
        }
    }

    /// The bucket has changed.
    pub(crate) fn look(&mut self, why: &str, objects: &Objects) {
        let now: BTreeSet<String> = kept(objects).map(|(_, object)| object.name.clone()).collect();
        let torn = with_content(objects).map(|(_, object)| &object.name);
        let torn: Vec<String> = torn.filter(|content| !self.written.contains(*content)).cloned().collect();
        for content in torn {
            self.violation(format!("{why}: the bucket has {content:?}, which nobody wrote"));
        }
        let gone = self.there.difference(&now).filter(|content| !self.superseded.contains(*content));
        let gone: Vec<String> = gone.cloned().collect();
        for content in gone {
            if self.promise != Promise::Whole {
                let keys: Vec<_> = objects.keys().collect();
                self.violation(format!("{why}: {content} is nowhere, and nobody who saw it wanted that: {keys:?}"));
            }
        }
        self.there = now;
        if let Some(order) = &mut self.order {
            order.look(files(objects));
        }
    }

    /// A sync that waits for the cache alone has returned to `who`, who wrote these.
    pub(crate) fn is_kept(&mut self, who: &str, contents: impl IntoIterator<Item = String>) {
        self.synced.entry(who.to_owned()).or_default().extend(contents);
    }

    /// What a sync acknowledged is shown by the mount, or the bucket has it.
    pub(crate) fn keeps(&mut self, who: &str, shown: &Tree) {
        let Some(synced) = self.synced.get(who).filter(|_| self.promise != Promise::Whole) else { return };
        let is_here = |content: &String| self.there.contains(content) || shown.values().any(|shown| shown == content);
        let lost = synced.iter().filter(|content| !self.superseded.contains(*content) && !is_here(content));
        let lost: Vec<String> = lost.cloned().collect();
        if !lost.is_empty() {
            self.violation(format!("{who} was told that these are kept, and they are nowhere: {lost:?}"));
        }
    }

    /// The end: everything was sent.
    pub(crate) fn ends(&mut self) {
        let who: Vec<String> = self.synced.keys().cloned().collect();
        who.iter().for_each(|who| self.keeps(who, &Tree::new()));
        if let Some(wrong) = self.order.as_ref().and_then(Order::wrong) {
            self.violation(wrong);
        }
    }

    /// The caller was told that the bucket has this, under this key if nobody else writes.
    pub(crate) fn is_sent(&mut self, who: &str, key: &str, content: &str, objects: &Objects) {
        let is_at_key = objects.get(key).is_some_and(|object| object.name == content);
        let is_there = match self.promise {
            Promise::All => self.there.contains(content) || self.superseded.contains(content),
            Promise::OneWriter => is_at_key || self.superseded.contains(content),
            Promise::Whole => true,
        };
        if !is_there {
            self.violation(format!("{who} was told that {key} is sent, and the bucket has {content} not"));
        }
    }

    /// As `is_sent`, wherever it is by now.
    pub(crate) fn is_somewhere(&mut self, who: &str, content: &str) {
        // Nobody knows where an empty one has gone.
        let is_there = content.is_empty() || self.there.contains(content) || self.superseded.contains(content);
        if !is_there && self.promise != Promise::Whole {
            self.violation(format!("{who} was told that all is sent, and the bucket has {content} not"));
        }
    }

    /// The only writer shows what it has seen and the bucket has, however old a listing is.
    pub(crate) fn still_shows(&mut self, who: &str, seen: &BTreeSet<String>, shown: &BTreeSet<String>) {
        let missing = self.there.intersection(seen).filter(|content| !self.superseded.contains(*content));
        let missing: Vec<String> = missing.filter(|content| !shown.contains(*content)).cloned().collect();
        if self.promise == Promise::OneWriter && !missing.is_empty() {
            self.violation(format!("{who} does not show any more: {missing:?}"));
        }
    }

    /// At the end nothing is there of what the only writer replaced or removed, and nothing is there twice.
    pub(crate) fn nothing_is_left_over(&mut self, objects: &Objects) {
        let wanted_gone = self.superseded.difference(&self.forgiven);
        let back: Vec<String> = wanted_gone.filter(|content| self.there.contains(*content)).cloned().collect();
        if self.promise == Promise::OneWriter && !back.is_empty() {
            self.violation(format!("replaced or removed, and there again: {back:?}"));
        }
        let mut names: Vec<&String> = kept(objects).map(|(_, object)| &object.name).collect();
        names.sort_unstable();
        let twice = names.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0].clone());
        let twice: Vec<String> = twice.filter(|content| !self.forgiven.contains(content)).collect();
        if self.promise == Promise::OneWriter && !twice.is_empty() {
            self.violation(format!("under two names: {twice:?}"));
        }
    }

    /// The change of who superseded it failed.
    pub(crate) fn forgives(&mut self, content: &str) {
        self.forgiven.insert(content.to_owned());
    }

    /// A process ended: changes that nobody was told to be sent may be taken back.
    pub(crate) fn forgives_all(&mut self) {
        self.forgiven.extend(self.superseded.intersection(&self.there).cloned());
        self.forgiven.append(&mut self.recent);
    }
}
