//! The model: a local tree, a bucket that executes requests when they arrive, and what must hold at each instant.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use margay_upstream::plan::{
    Action, Bounds, Dirty, FileNumber, Local, PlannedRequest, Required, Sequence, close, finish, first_write, plan,
};

pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Makes the file, or gives it other content.
    Write(usize),
    Chmod(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    /// Another file gets the same content, by a new file or not.
    Copy(usize, usize),
    Unlink(usize),
    /// What is planned and due begins, up to so many requests.
    Begin(usize),
    /// The effect of one of those in progress happens at the store.
    Arrive(usize),
    /// Its answer comes.
    Answer(usize),
    /// The process stops: answers that did not come yet are lost. Here the effect is known afterwards (a look finds it).
    Restart,
    /// An epoch ends.
    Sync,
}

/// What a file held when an epoch ended.
#[derive(Clone, Debug)]
struct Kept {
    local: Local,
    since: Sequence,
    changed: Sequence,
}

/// What each name had in an epoch: contents and attributes, or nothing.
type Shown = BTreeMap<&'static str, BTreeSet<Option<(u64, u64)>>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    etag: String,
    file: FileNumber,
    content: u64,
    attributes: u64,
}

/// A request in progress; with the ETag once it has arrived.
pub(crate) struct Flying {
    pub(crate) request: PlannedRequest,
    arrived: Option<String>,
}

#[derive(Default)]
pub(crate) struct World {
    bucket: BTreeMap<String, Object>,
    /// The local tree: the file of each name.
    names: BTreeMap<String, FileNumber>,
    clean: HashMap<FileNumber, Dirty>,
    dirty: HashMap<FileNumber, Dirty>,
    pub(crate) flying: Vec<Flying>,
    /// When a file got its present content.
    born: HashMap<FileNumber, Sequence>,
    /// When a file left a key.
    left: HashMap<(FileNumber, String), Sequence>,
    kept: HashMap<FileNumber, Vec<Kept>>,
    epoch_ends: BTreeSet<Sequence>,
    /// Of each epoch, and which of them the bucket shows.
    epochs: Vec<Shown>,
    shown: usize,
    /// Numbers of files, contents, attributes and ETags.
    number: u64,
    sequence: Sequence,
}

impl World {
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Changes one file of the tree, within the present commit.
    fn change(&mut self, file: FileNumber, change: impl FnOnce(&mut Option<Local>)) {
        let sequence = self.sequence;
        let known = self.dirty.remove(&file).or_else(|| self.clean.remove(&file));
        let mut one = known.unwrap_or(Dirty { file, ..blank(sequence) });
        let has_ended = self.epoch_ends.last().is_some_and(|last| one.changed <= *last);
        let is_sent = |flying: &Flying| flying.request.file == file && flying.request.action != Action::Delete;
        let is_sent = self.flying.iter().any(is_sent);
        let kept = self.kept.entry(file).or_default();
        let is_kept = kept.last().map(|last| last.changed == one.changed);
        if let Some(local) = one.local.clone().filter(|_| has_ended && !is_kept.unwrap_or(!is_sent && !one.lacks())) {
            kept.push(Kept { local, since: one.since, changed: one.changed });
        }
        if !one.lacks() || has_ended {
            one.since = sequence;
        }
        change(&mut one.local);
        one.changed = sequence;
        if is_sent {
            one.since_sent.get_or_insert(sequence);
        }
        self.dirty.insert(file, one);
        self.sort(file);
    }

    /// Clean files have no row; the model keeps what a row would be made from.
    fn sort(&mut self, file: FileNumber) {
        let is_sent = self.flying.iter().any(|flying| flying.request.file == file);
        let is_sent = is_sent || self.kept.get(&file).is_some_and(|kept| !kept.is_empty());
        if let Some(one) = self.dirty.get(&file)
            && one.is_clean()
            && !is_sent
        {
            let one = self.dirty.remove(&file).unwrap();
            if one.local.is_some() {
                self.clean.insert(file, one);
            }
        }
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        self.sequence += 1;
        match *step {
            Step::Write(at) => {
                let content = self.next();
                self.write(NAMES[at], content);
            }
            Step::Chmod(at) => {
                let attributes = self.next();
                if let Some(file) = self.names.get(NAMES[at]).copied() {
                    self.change(file, |local| local.as_mut().unwrap().attributes = attributes);
                }
            }
            Step::Rename(from, to) if from != to => {
                let Some(file) = self.names.remove(NAMES[from]) else { return };
                self.unlink(to);
                self.give_name(file, NAMES[to]);
            }
            Step::Exchange(one, other) if one != other => {
                let (Some(first), Some(second)) = (self.names.get(NAMES[one]), self.names.get(NAMES[other])) else {
                    return;
                };
                let (first, second) = (*first, *second);
                self.give_name(first, NAMES[other]);
                self.give_name(second, NAMES[one]);
            }
            Step::Copy(from, to) => {
                if let Some(file) = self.names.get(NAMES[from]) {
                    let content = self.local(*file).content;
                    self.write(NAMES[to], content);
                }
            }
            Step::Unlink(at) => self.unlink(at),
            Step::Begin(count) => self.begin(count),
            Step::Arrive(at) => {
                if !self.flying.is_empty() {
                    let at = at % self.flying.len();
                    self.arrive(at);
                }
            }
            Step::Answer(at) => {
                if !self.flying.is_empty() {
                    let at = at % self.flying.len();
                    self.answer(at);
                }
            }
            Step::Restart => self.restart(),
            Step::Sync => self.sync(),
            Step::Rename(..) | Step::Exchange(..) => {}
        }
        self.note_shown();
    }

    fn sync(&mut self) {
        self.note_shown();
        if self.dirty.is_empty() {
            (self.epochs, self.shown) = (Vec::new(), 0);
        } else {
            self.epoch_ends.insert(self.sequence);
        }
        self.epochs.push(Shown::new());
    }

    fn note_shown(&mut self) {
        let now = NAMES.map(|name| {
            let local = self.names.get(name).map(|file| self.local(*file));
            (name, local.map(|local| (local.content, local.attributes)))
        });
        if self.epochs.is_empty() {
            // As the bucket was before.
            let nothing = |name: &'static str| (name, BTreeSet::from([None]));
            self.epochs.push(NAMES.into_iter().map(nothing).collect());
        }
        let epoch = self.epochs.last_mut().unwrap();
        for (name, value) in now {
            epoch.entry(name).or_default().insert(value);
        }
    }

    /// W6: each name is as it was in one epoch, at its beginning or later, and never in an older one than before.
    fn shows_one_epoch(&mut self, request: &PlannedRequest) {
        let there = |name: &str| self.bucket.get(name).map(|object| (object.content, object.attributes));
        let fits = |epoch: &Shown| NAMES.iter().all(|name| epoch[name].contains(&there(name)));
        let found = self.epochs[self.shown..].iter().position(fits);
        let found = found.unwrap_or_else(|| panic!("{request:?} shows no state between two syncs: {:?}", self.bucket));
        self.shown += found;
    }

    /// A dirty file as the planner sees it: first comes what an ended epoch had.
    fn next_of(&self, one: &Dirty) -> Dirty {
        match self.kept.get(&one.file).and_then(|kept| kept.first()) {
            Some(kept) => {
                let local = Some(kept.local.clone());
                Dirty { local, since: kept.since, changed: kept.changed, ..one.clone() }
            }
            None => one.clone(),
        }
    }

    fn bounds(&self, dirty: &[Dirty]) -> Bounds {
        // What is in progress may bring a state that is not wanted any more.
        let is_sent = |one: &Dirty| self.flying.iter().any(|flying| flying.request.file == one.file);
        let lacking = dirty.iter().filter(|one| one.lacks() || one.local.is_none() || is_sent(one));
        let lacking = lacking.map(|one| one.since);
        let left = dirty.iter().flat_map(|one| &one.leftovers).map(|left| left.since);
        let first = lacking.chain(left).min();
        let epoch_end = first.and_then(|first| self.epoch_ends.range(first..).next().copied());
        Bounds { first_write: first_write(dirty), epoch_end }
    }

    /// The answer of a request is taken.
    fn finish(&mut self, request: &PlannedRequest, etag: &str) -> Vec<FileNumber> {
        let mut views = self.dirty.iter().map(|(file, one)| (*file, self.next_of(one))).collect();
        let changed = finish(&mut views, request, etag);
        for file in &changed {
            let (Some(view), Some(one)) = (views.get(file), self.dirty.get_mut(file)) else { continue };
            (one.base, one.leftovers, one.since_sent) = (view.base.clone(), view.leftovers.clone(), view.since_sent);
            let kept = self.kept.entry(*file).or_default();
            match kept.first_mut() {
                Some(kept) => kept.since = view.since,
                None => one.since = view.since,
            }
            self.drop_sent(*file);
        }
        changed
    }

    /// Takes away what ended epochs had of a file and the bucket has now.
    fn drop_sent(&mut self, file: FileNumber) {
        let Some(one) = self.dirty.get(&file) else { return };
        let there = one.base.as_ref().map(|base| (&base.key, base.content, base.attributes));
        let is_sent = |kept: &Kept| there == Some((&kept.local.key, kept.local.content, kept.local.attributes));
        let kept = self.kept.entry(file).or_default();
        while kept.first().is_some_and(is_sent) {
            kept.remove(0);
        }
    }

    /// A request that was to bring another state came to nothing.
    fn drop_all_sent(&mut self) {
        let files: Vec<_> = self.dirty.keys().copied().collect();
        for file in files {
            if self.flying.iter().all(|flying| flying.request.file != file) {
                self.drop_sent(file);
                self.sort(file);
            }
        }
    }

    fn local(&self, file: FileNumber) -> &Local {
        self.dirty.get(&file).or_else(|| self.clean.get(&file)).unwrap().local.as_ref().unwrap()
    }

    fn write(&mut self, name: &str, content: u64) {
        let file = match self.names.get(name).copied() {
            Some(file) => {
                self.change(file, |local| local.as_mut().unwrap().content = content);
                file
            }
            None => self.create(name, content),
        };
        self.born.insert(file, self.sequence);
    }

    fn create(&mut self, name: &str, content: u64) -> FileNumber {
        let (file, attributes) = (self.next(), self.next());
        self.names.insert(name.to_owned(), file);
        let key = name.to_owned();
        self.change(file, |local| *local = Some(Local { key, content, attributes }));
        file
    }

    fn give_name(&mut self, file: FileNumber, name: &str) {
        let old = self.local(file).key.clone();
        self.left.insert((file, old), self.sequence);
        self.names.insert(name.to_owned(), file);
        self.change(file, |local| local.as_mut().unwrap().key = name.to_owned());
    }

    fn unlink(&mut self, at: usize) {
        if let Some(file) = self.names.remove(NAMES[at]) {
            self.left.insert((file, NAMES[at].to_owned()), self.sequence);
            self.change(file, |local| *local = None);
        }
    }

    pub(crate) fn begin(&mut self, count: usize) {
        self.drop_all_sent();
        let mut dirty: Vec<_> = self.dirty.values().map(|one| self.next_of(one)).collect();
        dirty.sort_by_key(|one| one.file);
        let flying: Vec<_> = self.flying.iter().map(|flying| flying.request.clone()).collect();
        let in_progress: Vec<_> = flying.iter().collect();
        let bounds = self.bounds(&dirty);
        let planned = plan(&dirty, bounds, &in_progress, crate::TEMPORARY);
        closed_sets_are_planned_alike(&dirty, bounds, &in_progress);
        for (at, request) in planned.iter().enumerate() {
            let others = flying.iter().chain(&planned[..at]);
            for other in others {
                assert_ne!(request.key, other.key, "two requests of a key");
                let are_writes = ![&request.action, &other.action].contains(&&Action::Delete);
                assert!(!are_writes || request.file != other.file, "two requests of a file");
            }
            let is_removal = request.action == Action::Delete;
            let is_wanted = bounds.epoch_end.is_none() && self.names.contains_key(&request.key);
            assert!(!is_removal || !is_wanted, "a name of the tree is removed");
        }
        for request in planned.into_iter().take(count) {
            self.flying.push(Flying { request, arrived: None });
        }
    }

    fn arrive(&mut self, at: usize) {
        if self.flying[at].arrived.is_some() {
            return;
        }
        let request = self.flying[at].request.clone();
        let there = self.bucket.get(&request.key);
        match &request.required {
            Required::Absent => assert!(there.is_none(), "{request:?} finds {there:?}"),
            Required::Etag(etag) => assert_eq!(there.map(|there| &there.etag), Some(etag), "{request:?}"),
        }
        let etag = format!("etag-{}", self.next());
        match &request.action {
            Action::Delete => {
                let removed = self.bucket.remove(&request.key).unwrap();
                self.content_is_elsewhere(&removed, &request);
            }
            Action::Put => self.put(&request, request.content, request.attributes, &etag),
            Action::Copy { from, etag: required } | Action::SetAside { from, etag: required } => {
                let source = self.bucket.get(from).unwrap_or_else(|| panic!("{request:?} copies nothing"));
                assert_eq!((&source.etag, source.file), (required, request.file), "{request:?}");
                let is_aside = matches!(request.action, Action::SetAside { .. });
                let (content, attributes) = (source.content, source.attributes);
                assert_eq!(content, request.content);
                self.put(&request, content, if is_aside { attributes } else { request.attributes }, &etag);
            }
        }
        self.flying[at].arrived = Some(etag);
        self.no_file_is_nowhere(&request);
        self.shows_one_epoch(&request);
    }

    fn put(&mut self, request: &PlannedRequest, content: u64, attributes: u64, etag: &str) {
        let object = Object { etag: etag.to_owned(), file: request.file, content, attributes };
        self.bucket.insert(request.key.clone(), object);
    }

    /// W3: what a removal removes, and another file had before, was sent for that file before. What was set aside is no copy of
    /// the tree's making.
    fn content_is_elsewhere(&self, removed: &Object, request: &PlannedRequest) {
        let Some(left) = self.left.get(&(request.file, request.key.clone())) else { return };
        let has = |one: &&Dirty| one.local.as_ref().is_some_and(|local| local.content == removed.content);
        if let Some(one) = self.dirty.values().filter(has).find(|one| self.born[&one.file] < *left) {
            let is_there = self.bucket.values().any(|object| object.content == removed.content);
            assert!(is_there, "{request:?} overtook the write of {one:?}");
        }
    }

    /// W1.
    fn no_file_is_nowhere(&self, request: &PlannedRequest) {
        for one in self.dirty.values().chain(self.clean.values()) {
            let is_here = one.local.is_some() || self.kept.get(&one.file).is_some_and(|kept| !kept.is_empty());
            if is_here && one.base.is_some() {
                let is_there = self.bucket.values().any(|object| object.file == one.file);
                assert!(is_there, "{one:?} is nowhere after {request:?}");
            }
        }
    }

    pub(crate) fn answer(&mut self, at: usize) {
        self.arrive(at);
        let Flying { request, arrived } = self.flying.remove(at);
        for file in self.finish(&request, &arrived.unwrap()) {
            self.sort(file);
        }
    }

    /// Requests that arrived are found by what the caller wrote into them; the others never arrive.
    fn restart(&mut self) {
        let flying = std::mem::take(&mut self.flying);
        for Flying { request, arrived } in flying {
            if let Some(etag) = arrived {
                self.finish(&request, &etag);
            }
        }
        for one in self.dirty.values_mut() {
            one.since_sent = None;
        }
        let files: Vec<_> = self.dirty.keys().copied().collect();
        files.into_iter().for_each(|file| self.sort(file));
    }

    /// All answers come; returns the number of requests.
    pub(crate) fn settle(&mut self) -> usize {
        let mut count = 0;
        loop {
            self.begin(usize::MAX);
            if self.flying.is_empty() {
                break;
            }
            self.answer(0);
            count += 1;
            assert!(count < 1000, "it does not end");
        }
        assert!(self.dirty.is_empty(), "nothing more is planned, but this is left: {:#?}", self.dirty);
        count
    }

    pub(crate) fn is_as_the_tree(&self) {
        let of_tree: BTreeMap<_, _> = self
            .names
            .iter()
            .map(|(name, file)| (name.clone(), (self.local(*file).content, self.local(*file).attributes)))
            .collect();
        let of_bucket: BTreeMap<_, _> =
            self.bucket.iter().map(|(key, object)| (key.clone(), (object.content, object.attributes))).collect();
        assert_eq!(of_bucket, of_tree);
    }
}

/// A plan for one file needs only the files that share keys with it.
fn closed_sets_are_planned_alike(dirty: &[Dirty], bounds: Bounds, in_progress: &[&PlannedRequest]) {
    for due in dirty.iter().map(|one| one.file) {
        let dirty: Vec<Dirty> = dirty.iter().map(|one| Dirty { is_due: one.file == due, ..one.clone() }).collect();
        let touches = |one: &Dirty, key: &str| {
            let keys = one.base.iter().map(|base| &base.key).chain(one.local.iter().map(|local| &local.key));
            keys.chain(one.leftovers.iter().map(|left| &left.key)).any(|other| other == key)
        };
        let with_key = |key: &str| dirty.iter().filter(|one| touches(one, key)).cloned().collect();
        let closed = close(dirty.iter().filter(|one| one.is_due).cloned().collect(), with_key);
        let all = plan(&dirty, bounds, in_progress, crate::TEMPORARY);
        let some = plan(&closed, bounds, in_progress, crate::TEMPORARY);
        assert_eq!(some, all, "file {due} of {dirty:#?}");
    }
}

pub(crate) fn blank(sequence: Sequence) -> Dirty {
    Dirty {
        file: 0,
        base: None,
        local: None,
        leftovers: vec![],
        since: sequence,
        since_sent: None,
        changed: sequence,
        is_due: true,
        is_refused: false,
    }
}
