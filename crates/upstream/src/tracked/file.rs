//! A file or directory of which the bucket does not have the local state.
//!
//! Not here:   many of them, and their rows (files).

use std::time::Duration;

use margay_rows::Ino;
use margay_rows::record::{UpstreamDirty, UpstreamKept, UpstreamLeftover, UpstreamObject};

use super::changes::State;
use crate::plan;

/// A file that is open is sent after this time: it probably changes again.
pub(super) const OPEN_SENT_AFTER: Duration = Duration::from_secs(5);
/// A file is sent at the latest so long after the first change that the bucket lacks, and longer by its size.
pub(super) const SENT_AFTER_MAX: Duration = Duration::from_secs(30);
const SENT_AFTER_MAX_BYTES_PER_SECOND: u64 = 8 << 20;

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) dirty: UpstreamDirty,
    pub(crate) object: Option<UpstreamObject>,
    /// States of epochs that have ended, oldest first: they are sent before what is here now.
    pub(crate) kept: Vec<UpstreamKept>,
    pub(crate) state: Option<State>,
    /// The key of its name; `None` without a name, and while its directory is not there.
    pub(crate) key: Option<String>,
    /// The first change since the request in progress was made.
    pub(crate) since_sent: Option<u64>,
    pub(crate) in_progress: bool,
    /// Removals in progress of its objects.
    pub(crate) removing: u32,
    /// A removal of its objects may have been made that the rows do not know, or what it is to remove may be another object.
    pub(crate) removal_may_be_done: bool,
    /// The key that a write in progress makes.
    pub(crate) sending: Option<String>,
    /// Of the last change and of the next request, by the monotonic clock.
    pub(crate) changed_at: Duration,
    /// Of the first change that the bucket lacks.
    pub(crate) lacks_since: Duration,
    pub(crate) due_at: Duration,
    /// Somebody waits for it.
    pub(crate) now: bool,
    pub(crate) tries: u32,
    /// Why the bucket does not take it; it is tried again at `due_at`.
    pub(crate) failure: Option<String>,
    pub(crate) is_refused: bool,
    /// It is removed, and somebody still reads its bytes, which are in the bucket only.
    pub(crate) is_read: bool,
}

/// The state of a file that is to be sent next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next<'a> {
    pub(crate) key: &'a str,
    pub(crate) state: State,
    pub(super) since: u64,
    pub(crate) changed: u64,
}

impl File {
    pub(super) fn new(object: Option<UpstreamObject>, dirty: UpstreamDirty, now: Duration) -> File {
        File {
            dirty,
            object,
            kept: Vec::new(),
            state: None,
            key: None,
            since_sent: None,
            in_progress: false,
            removing: 0,
            removal_may_be_done: false,
            sending: None,
            changed_at: now,
            lacks_since: now,
            due_at: now,
            now: false,
            tries: 0,
            failure: None,
            is_refused: false,
            is_read: false,
        }
    }

    /// Whether it needs no row: it is nowhere, and no write of it may have succeeded (D2).
    pub(crate) fn is_nothing(&self) -> bool {
        let is_nowhere = self.dirty.name.is_none() && self.object.is_none() && self.dirty.leftovers.is_empty();
        is_nowhere && self.kept.is_empty() && !self.in_progress && !self.dirty.moved && self.dirty.sent.is_none()
    }

    pub(crate) fn next(&self) -> Option<Next<'_>> {
        if let Some(kept) = self.kept.first() {
            let state = State { content: kept.content, attributes: kept.attributes, size: kept.size };
            return Some(Next { key: &kept.key, state, since: kept.since, changed: kept.changed });
        }
        let (since, changed) = (self.dirty.since, self.dirty.changed);
        Some(Next { key: self.key.as_ref()?, state: self.state?, since, changed })
    }

    /// Whether the object is in the state that its file has now.
    pub(super) fn has_now(&self) -> bool {
        let now = self.key.as_ref().zip(self.state);
        now.is_some_and(|(key, state)| self.is_sent(key, (state.content, state.attributes)))
    }

    fn is_sent(&self, key: &str, (content, attributes): (u64, u64)) -> bool {
        let there = self.object.as_ref().map(|object| (object.key.as_str(), object.content, object.attributes));
        there == Some((key, content, attributes))
    }

    /// The first change of which something is left to do.
    pub(crate) fn lacking_since(&self) -> u64 {
        let kept = self.kept.first().map(|kept| kept.since);
        let left = self.dirty.leftovers.iter().map(|left| left.since);
        let now = (!self.has_now()).then_some(self.dirty.since);
        kept.into_iter().chain(left).chain(now).min().unwrap_or(self.dirty.since)
    }

    /// Whether something is left of what was changed up to this number, leftovers apart.
    pub(super) fn lacks_until(&self, sequence: u64) -> bool {
        let kept = self.kept.first().map(|kept| kept.since);
        let now = self.lacks_now().then_some(self.dirty.since);
        kept.into_iter().chain(now).any(|since| since <= sequence)
    }

    fn lacks_now(&self) -> bool {
        self.key.is_some() && self.state.is_some() && !self.has_now()
    }

    /// The first kept state, if the bucket has it.
    fn first_sent(&self) -> Option<&UpstreamKept> {
        self.kept.first().filter(|kept| self.is_sent(&kept.key, (kept.content, kept.attributes)))
    }

    /// As `first_sent`, if nothing is in progress: a request that was to bring another state failed.
    pub(crate) fn sent_kept(&self) -> Option<&UpstreamKept> {
        self.first_sent().filter(|_| !self.in_progress)
    }

    /// Takes away the first kept states that the bucket has.
    pub(crate) fn drop_sent(&mut self) -> Vec<UpstreamKept> {
        let mut sent = Vec::new();
        while self.first_sent().is_some() {
            sent.push(self.kept.remove(0));
        }
        sent
    }

    /// Takes away the first kept states whose bytes its object had.
    pub(crate) fn drop_without_bytes(&mut self) -> Vec<UpstreamKept> {
        let has_own = |kept: &UpstreamKept| kept.has_bytes || kept.key.ends_with('/');
        self.give_up(self.kept.iter().take_while(|kept| !has_own(kept)).count())
    }

    /// Takes away all kept states.
    pub(crate) fn give_up_kept(&mut self) -> Vec<UpstreamKept> {
        self.give_up(self.kept.len())
    }

    /// It goes here because it went in the bucket: its removal is of its last change, and no earlier epoch waits for it (W6).
    pub(crate) fn lose_name(&mut self) {
        assert!(self.kept.is_empty(), "what was kept of it is given up first");
        (self.dirty.name, self.key, self.state) = (None, None, None);
        self.dirty.since = self.dirty.changed;
    }

    /// What waits for a state that is not sent waits for the next one (W3). A file that was removed has none: its removal is of
    /// the epoch in which it was removed, and no earlier one waits for it (W6).
    fn give_up(&mut self, count: usize) -> Vec<UpstreamKept> {
        let gone: Vec<UpstreamKept> = self.kept.drain(..count).collect();
        let has_next = !self.kept.is_empty() || self.dirty.name.is_some();
        if let Some(first) = gone.first().filter(|_| has_next) {
            let next = self.kept.first_mut().map_or(&mut self.dirty.since, |kept| &mut kept.since);
            *next = first.since.min(*next);
        }
        gone
    }

    /// Whether it waits until it is closed, should it be open.
    pub(super) fn waits_open(&self, now: Duration) -> bool {
        let extra = self.state.map_or(0, |state| state.size / SENT_AFTER_MAX_BYTES_PER_SECOND);
        self.lacks_since + SENT_AFTER_MAX + Duration::from_secs(extra) > now
            && self.due_at <= now
            && self.changed_at + OPEN_SENT_AFTER > now
    }

    /// Whether all that is left of it are removals that wait for writes that were due before them.
    pub(crate) fn is_held_up(&self, first_write: Option<u64>) -> bool {
        // One of which nothing is left waits for nothing: the epoch of that write may wait for it.
        let has_any = self.object.is_some() || !self.dirty.leftovers.is_empty();
        let waits = has_any && self.is_removal() && self.dirty.sent.is_none();
        let Some(first) = first_write.filter(|_| waits) else { return false };
        let mut removals = self.dirty.leftovers.iter().map(|left| left.since);
        removals.all(|since| first <= since) && (self.object.is_none() || first <= self.dirty.changed)
    }

    /// Whether its object may have the only copy of its bytes.
    pub(crate) fn is_far(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.number != 0)
    }

    /// Whether all that is left of it is to be removed.
    pub(crate) fn is_removal(&self) -> bool {
        self.dirty.name.is_none() && self.kept.is_empty() && !self.is_refused && !self.is_read
    }

    /// Every key at which the bucket has, gets or loses something of it.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let object = self.object.as_ref().map(|object| &object.key);
        let keys = [self.key.as_ref(), object, self.dirty.sent.as_ref(), self.sending.as_ref()].into_iter().flatten();
        let kept = self.kept.iter().map(|kept| &kept.key);
        keys.chain(kept).chain(self.dirty.leftovers.iter().map(|left| &left.key)).map(String::as_str)
    }

    /// When the planner is to look at it; `None` while its request is in progress.
    pub(crate) fn looked_at(&self) -> Option<Duration> {
        let waits = self.in_progress || self.removing > 0 && !self.lacks();
        (!waits).then_some(if self.now && !self.is_refused { Duration::ZERO } else { self.due_at })
    }

    /// Whether removals that became due later wait for it.
    pub(super) fn holds_removals(&self) -> bool {
        !self.is_refused && self.lacks()
    }

    /// Of its content, if the bucket does not have that.
    pub(crate) fn bytes_to_send(&self) -> u64 {
        let has = |content: u64| self.object.as_ref().is_some_and(|object| object.content == content);
        let kept: u64 = self.kept.iter().filter(|kept| kept.has_bytes).map(|kept| kept.size).sum();
        kept + self.state.filter(|state| !has(state.content)).map_or(0, |state| state.size)
    }

    /// As `plan::Dirty::lacks`.
    pub(super) fn lacks(&self) -> bool {
        self.next().is_some_and(|next| !self.is_sent(next.key, (next.state.content, next.state.attributes)))
    }

    /// Whether the bucket has what is here, and no more.
    pub(crate) fn is_done(&self) -> bool {
        let is_open = self.in_progress || self.dirty.moved || self.dirty.sent.is_some();
        let is_gone = self.dirty.name.is_none() && self.object.is_none();
        !is_open
            && self.kept.is_empty()
            && self.dirty.leftovers.is_empty()
            && (is_gone || self.key.is_some() && !self.lacks())
    }

    /// As the planner sees it.
    pub(crate) fn planned(&self, ino: Ino, is_due: bool) -> plan::Dirty {
        let next = self.next();
        plan::Dirty {
            file: ino.0,
            base: self.object.as_ref().map(|object| plan::Base {
                key: object.key.clone(),
                etag: object.etag.clone(),
                content: object.content,
                attributes: object.attributes,
            }),
            local: next.map(|next| plan::Local {
                key: next.key.to_owned(),
                content: next.state.content,
                attributes: next.state.attributes,
            }),
            leftovers: self.dirty.leftovers.iter().map(leftover).collect(),
            since: next.map_or(self.dirty.since, |next| next.since),
            since_sent: self.since_sent,
            changed: next.map_or(self.dirty.changed, |next| next.changed),
            is_due,
            is_refused: self.is_refused,
        }
    }
}

fn leftover(left: &UpstreamLeftover) -> plan::Leftover {
    plan::Leftover { key: left.key.clone(), etag: left.etag.clone(), since: left.since }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As below, where somebody else removed it.
    #[test]
    fn a_file_that_lost_its_name_lacks_what_was_changed_last() {
        let dirty =
            UpstreamDirty { name: Some((Ino(1), "a".to_owned())), since: 1, changed: 2, ..UpstreamDirty::default() };
        let mut file = File::new(None, dirty, Duration::ZERO);
        assert_eq!(file.lacking_since(), 1);
        file.lose_name();
        assert_eq!((file.lacking_since(), file.is_removal()), (2, true));
    }

    /// Once the epoch waited for the removal, and the removal for the end of the epoch.
    #[test]
    fn a_removed_file_lacks_what_it_held_no_longer_when_that_is_given_up() {
        let dirty = UpstreamDirty { since: 4, changed: 4, ..UpstreamDirty::default() };
        let mut file = File::new(None, dirty, Duration::ZERO);
        let (key, headers) = ("d/b".to_owned(), Vec::new());
        let kept =
            UpstreamKept { key, since: 1, changed: 2, size: 1, content: 1, attributes: 1, has_bytes: false, headers };
        file.kept.push(kept);
        assert_eq!((file.lacking_since(), file.give_up_kept().len()), (1, 1));
        assert_eq!(file.lacking_since(), 4);
    }
}
