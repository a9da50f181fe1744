//! What must hold: which contents were written, which of them somebody replaced or removed who had seen them, and what happened.
//!
//! A content is a text of its own for each write, so where it is tells where each acknowledged byte is.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::Objects;

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
    /// Those of the only writer that went since it was told that everything is sent.
    recent: BTreeSet<String>,
    /// Those of them that need not go: the change failed, or a power cut may have taken it back.
    forgiven: BTreeSet<String>,
    there: BTreeSet<String>,
    /// By who and from where: contents that were copied elsewhere before they were removed.
    moved: BTreeMap<(String, String), String>,
    history: Vec<String>,
    violations: Vec<String>,
}

/// The contents of a bucket; those of probes are nobody's.
fn contents(objects: &Objects) -> BTreeSet<String> {
    let files = objects.iter().filter(|(key, object)| !object.body.is_empty() && !key.contains("-probe"));
    files.map(|(_, object)| String::from_utf8_lossy(&object.body).into_owned()).collect()
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

    /// What this one changed is on its disk.
    pub(crate) fn is_durable(&mut self, who: &str) {
        if who == "m0" {
            self.recent.clear();
        }
    }

    /// Somebody copies this elsewhere, and then removes it here: a removal does not overtake the copy. If the bucket has it under
    /// another key yet, what takes that key is a write, as in `makes`.
    pub(crate) fn moves(&mut self, who: &str, from: &str, content: &str, objects: &Objects) {
        if objects.get(from).is_none_or(|there| there.body != content.as_bytes()) {
            self.superseded.insert(content.to_owned());
        }
        // For a while it is at both.
        self.forgives(content);
        self.moved.insert((who.to_owned(), from.to_owned()), content.to_owned());
    }

    /// Somebody makes something under this key, or moves a directory (`None`). What is sent for it replaces what was removed
    /// there, and a write waits for no other one: for a while the bucket may lack what was copied before.
    pub(crate) fn makes(&mut self, who: &str, key: Option<&str>) {
        let is_concerned = |own: &str, from: &str| own == who && key.is_none_or(|key| key == from);
        let concerned = self.moved.iter().filter(|((own, from), _)| is_concerned(own, from));
        self.superseded.extend(concerned.map(|(_, content)| content.clone()));
    }

    /// Somebody has read this: it was written as a whole.
    pub(crate) fn read(&mut self, who: &str, content: &str) {
        if !content.is_empty() && !self.written.contains(content) {
            self.violation(format!("{who} has read {content:?}, which nobody wrote"));
        }
        let is_old = self.superseded.contains(content) && !self.forgiven.contains(content) && !content.is_empty();
        if self.promise == Promise::OneWriter && who == "m0" && is_old {
            self.violation(format!("{who} has read {content:?}, which it replaced or removed"));
        }
    }

    /// The bucket has changed.
    pub(crate) fn look(&mut self, why: &str, objects: &Objects) {
        let now = contents(objects);
        let torn: Vec<String> = now.difference(&self.written).cloned().collect();
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
    }

    /// The caller was told that the bucket has this, under this key if nobody else writes.
    pub(crate) fn is_sent(&mut self, who: &str, key: &str, content: &str, objects: &Objects) {
        let is_at_key = objects.get(key).is_some_and(|object| object.body == content.as_bytes());
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
        let is_there = self.there.contains(content) || self.superseded.contains(content);
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
        let files = objects.iter().filter(|(key, object)| !object.body.is_empty() && !key.contains("-probe"));
        let mut bodies: Vec<&[u8]> = files.map(|(_, object)| &*object.body).collect();
        bodies.sort_unstable();
        let twice = bodies.windows(2).filter(|two| two[0] == two[1]);
        let twice = twice.map(|two| String::from_utf8_lossy(two[0]).into_owned());
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
