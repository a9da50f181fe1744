//! The requests that may start now.
//!
//! Invariants: those of `plan`. The caller's requests in progress are taken into account, so that it may ask again whenever one ends.
//! Not here:   what a request changes when it is done (finish).

use std::collections::{HashMap, HashSet};

use super::{Action, Dirty, FileNumber, Occupant, PlannedRequest, Required, Sequence, occupants};

/// Files that wait, by the file that they wait for.
type Waits = HashMap<FileNumber, FileNumber>;

/// What concerns all dirty files, whichever are planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// See [`first_write`].
    pub first_write: Option<Sequence>,
    /// The last change of the epoch that is being sent; `None`: no epoch has ended of which something is left.
    pub epoch_end: Option<Sequence>,
}

impl Bounds {
    /// Whether an earlier epoch has to be done first (W6).
    /// A file of which an older state was given up counts from that one on: else it would wait for itself.
    pub fn is_later(&self, since: Sequence) -> bool {
        self.epoch_end.is_some_and(|end| since > end)
    }
}

struct Plan<'a> {
    bounds: Bounds,
    files: HashMap<FileNumber, &'a Dirty>,
    occupants: HashMap<&'a str, Occupant<'a>>,
    /// Keys that requests in progress write.
    written: HashSet<&'a str>,
    /// Keys that requests in progress read.
    read: HashSet<&'a str>,
    /// Files with a request in progress.
    busy: HashSet<FileNumber>,
    requests: Vec<PlannedRequest>,
    temporary: &'a str,
}

/// The first change that the bucket lacks a write of, of all dirty files.
pub fn first_write<'a>(dirty: impl IntoIterator<Item = &'a Dirty>) -> Option<Sequence> {
    // A write that was begun is not done.
    dirty.into_iter().filter(|one| one.lacks() && !one.is_refused).map(|one| one.since).min()
}

/// Requests that may start beside those in progress, oldest change first: a file at most one, a key at most one. Empty while
/// nothing is due, or everything due waits for what is in progress or refused. `dirty` is a closed set (`close`), and
/// `bounds` those of all files. `temporary` begins temporary keys, which no file of the tree has.
pub fn plan(dirty: &[Dirty], bounds: Bounds, in_progress: &[&PlannedRequest], temporary: &str) -> Vec<PlannedRequest> {
    let mut plan = Plan {
        bounds,
        files: dirty.iter().map(|one| (one.file, one)).collect(),
        occupants: occupants(dirty),
        written: in_progress.iter().map(|request| request.key.as_str()).collect(),
        read: in_progress.iter().filter_map(|request| request.source()).collect(),
        // A removal is of a key; the file may do something else meanwhile.
        busy: in_progress.iter().filter(|one| one.action != Action::Delete).map(|one| one.file).collect(),
        requests: Vec::new(),
        temporary,
    };
    assert_eq!(plan.files.len(), dirty.len(), "a file is dirty once");
    let waits = plan.waits();
    let due = plan.due(&waits);
    plan.writes(&due, &waits);
    plan.circles(&due, &waits);
    plan.removals(dirty);
    plan.requests
}

impl<'a> Plan<'a> {
    /// For each file whose key another one still needs, which one (W4).
    fn waits(&self) -> Waits {
        let mut waits = Waits::new();
        for one in self.files.values().filter(|one| one.lacks() && !self.bounds.is_later(one.since)) {
            let Some(local) = &one.local else { continue };
            if let Some(occupant) = self.occupants.get(local.key.as_str())
                && occupant.is_needed
                && occupant.by.file != one.file
            {
                waits.insert(one.file, occupant.by.file);
            }
        }
        waits
    }

    /// Files that are due, and those that they wait for, oldest first.
    fn due(&self, waits: &Waits) -> Vec<&'a Dirty> {
        let mut due = HashSet::new();
        for one in self.files.values().filter(|one| one.is_due && !self.bounds.is_later(one.since)) {
            let mut next = Some(one.file);
            while let Some(file) = next
                && due.insert(file)
            {
                next = waits.get(&file).copied();
            }
        }
        let mut due: Vec<_> = due.iter().map(|file| self.files[file]).collect();
        due.sort_unstable_by_key(|one| (one.since, one.file));
        due
    }

    fn writes(&mut self, due: &[&'a Dirty], waits: &Waits) {
        for one in due {
            if !one.lacks() || one.is_refused || waits.contains_key(&one.file) || self.busy.contains(&one.file) {
                continue;
            }
            let Some(local) = &one.local else { continue };
            if self.is_touched(&local.key) {
                continue;
            }
            let occupant = self.occupants.get(local.key.as_str());
            let required = occupant.map_or(Required::Absent, |there| Required::Etag(there.etag.to_owned()));
            let replaces = occupant.map(|there| there.by.file);
            let action = match &one.base {
                Some(base) if base.content == local.content => {
                    Action::Copy { from: base.key.clone(), etag: base.etag.clone() }
                }
                _ => Action::Put,
            };
            self.written.insert(&local.key);
            if let Some(base) = &one.base
                && action != Action::Put
            {
                self.read.insert(&base.key);
            }
            self.busy.insert(one.file);
            let (file, key) = (one.file, local.key.clone());
            let (content, attributes, changed) = (local.content, local.attributes, one.changed);
            self.requests.push(PlannedRequest { file, key, action, required, content, attributes, changed, replaces });
        }
    }

    /// Whether a request in progress uses the key (W2).
    fn is_touched(&self, key: &str) -> bool {
        self.written.contains(key) || self.read.contains(key)
    }

    /// Each file waits for at most one, so a walk finds the circle that it leads into; one file of it is set aside.
    fn circles(&mut self, due: &[&'a Dirty], waits: &Waits) {
        let mut done = HashSet::new();
        for one in due {
            let (mut path, mut at) = (Vec::new(), one.file);
            while done.insert(at) {
                path.push(at);
                let Some(next) = waits.get(&at) else { break };
                at = *next;
            }
            let Some(begin) = path.iter().position(|file| *file == at) else { continue };
            let circle = &path[begin..];
            if !waits.contains_key(&at) || circle.iter().any(|file| self.busy.contains(file)) {
                continue;
            }
            let first = circle.iter().min().map(|file| self.files[file]);
            if let Some(request) = first.and_then(|first| self.set_aside(first)) {
                self.busy.insert(request.file);
                self.requests.push(request);
            }
        }
    }

    fn set_aside(&self, one: &Dirty) -> Option<PlannedRequest> {
        let base = one.base.as_ref()?;
        Some(PlannedRequest {
            file: one.file,
            key: format!("{}{}-{}", self.temporary, one.file, one.changed),
            action: Action::SetAside { from: base.key.clone(), etag: base.etag.clone() },
            required: Required::Absent,
            content: base.content,
            attributes: base.attributes,
            changed: one.changed,
            replaces: None,
        })
    }

    fn removals(&mut self, dirty: &'a [Dirty]) {
        let lacking = dirty.iter().filter(|one| one.lacks() && !self.bounds.is_later(one.since));
        let wanted: HashSet<&str> =
            lacking.filter_map(|one| one.local.as_ref()).map(|local| local.key.as_str()).collect();
        for one in dirty.iter().filter(|one| one.is_due) {
            for (key, etag, since) in one.removals() {
                let waits = self.bounds.first_write.is_some_and(|first| first <= since) || self.bounds.is_later(since);
                if waits || wanted.contains(key) || self.is_touched(key) {
                    continue;
                }
                self.written.insert(key);
                self.requests.push(removal(one.file, key, etag, since));
            }
        }
    }
}

fn removal(file: FileNumber, key: &str, etag: &str, since: Sequence) -> PlannedRequest {
    PlannedRequest {
        file,
        key: key.to_owned(),
        action: Action::Delete,
        required: Required::Etag(etag.to_owned()),
        content: 0,
        attributes: 0,
        changed: since,
        replaces: Some(file),
    }
}
