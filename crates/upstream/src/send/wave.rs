//! The requests that may start now.
//!
//! Why:        a wave has as many as can soon be in progress: who calls `fsync` meanwhile comes next, and a plan costs what its
//!             wave costs, however many files are dirty.
//! Invariants: V1 what is planned is in progress before the lock is let go: no file and no key is planned twice.
//! Locking:    the table of files.
//! Not here:   the order of requests (plan), when a file is due (tracked).

use std::collections::HashSet;
use std::time::Duration;

use margay_meta::EngineError;
use margay_rows::Ino;

use super::{Queue, Sender, WIDTH, Work};
use crate::plan::{self, Action, Bounds, PlannedRequest};
use crate::tracked::{File, Files};

/// Files that are planned together.
const FILES_MAX: usize = 256;

/// Dirty files up to which tests check the table before each wave.
const CHECKED_MAX: usize = 200;

/// Where the next files to plan begin: by when they are due, and in an epoch by their changes.
struct Begin {
    due: (Duration, Ino),
    epoch: (u64, Ino),
}

impl Default for Begin {
    fn default() -> Begin {
        Begin { due: (Duration::ZERO, Ino(0)), epoch: (0, Ino(0)) }
    }
}

/// Files under plan.
#[derive(Default)]
struct Gathered {
    planned: Vec<plan::Dirty>,
    clean: Vec<Ino>,
    /// Writes that may have succeeded at a key where they are not wanted; to be asked for now.
    unsure: Vec<PlannedRequest>,
    /// Such writes of files that wait for their next try.
    unsure_later: Vec<PlannedRequest>,
}

impl Sender {
    /// Empty while nothing is due, or all that is due waits for what is in progress.
    pub(super) fn next_wave(&self, queue: &Queue) -> Vec<Work> {
        let mut files = self.tracked.files.lock();
        debug_assert!(files.table.len() > CHECKED_MAX || files.table.is_consistent(), "I1 of the table");
        let forgotten = files.forget_epochs(&*self.tracked.below);
        let (mut begin, mut wave) = (Begin::default(), Vec::new());
        let mut planned = forgotten;
        while planned.is_ok() && wave.len() < 2 * WIDTH {
            let Some(due) = self.due_after(&mut files, &mut begin) else { break };
            planned = self.plan(&mut files, queue, &wave, due).map(|work| wave.extend(work));
        }
        if let Err(error) = planned {
            tracing::error!(%error, "nothing is sent: rows cannot be read or written");
        }
        wave
    }

    /// The next files to plan, and where those after them begin. Of an epoch that has ended all are due.
    fn due_after(&self, files: &mut Files, begin: &mut Begin) -> Option<Vec<Ino>> {
        let now = files.now();
        let Some(end) = files.epoch_end() else {
            let some = files.table.due_after(begin.due, now, FILES_MAX);
            begin.due = *some.last()?;
            let due = some.iter().map(|(_, ino)| *ino);
            return Some(due.filter(|ino| files.is_due(*ino, now, |ino| self.volume.is_open(ino))).collect());
        };
        let some = files.table.in_epoch(begin.epoch, end, FILES_MAX);
        begin.epoch = *some.last()?;
        let mut due = Vec::new();
        for (_, ino) in some {
            if files.table.get(ino).is_some_and(|file| !file.now && file.failure.is_none()) {
                files.table.edit(ino, |file| file.now = true);
            }
            let is_looked_at = |file: &File| file.looked_at().is_some_and(|at| at <= now);
            if files.table.get(ino).is_some_and(is_looked_at) && files.is_due(ino, now, |ino| self.volume.is_open(ino))
            {
                due.push(ino);
            }
        }
        Some(due)
    }

    fn plan(
        &self,
        files: &mut Files,
        queue: &Queue,
        wave: &[Work],
        mut due: Vec<Ino>,
    ) -> Result<Vec<Work>, EngineError> {
        let bounds = Bounds { first_write: files.table.first_write(), epoch_end: files.epoch_end() };
        // What older writes or epochs hold up needs no plan.
        let is_held_up = |file: &File| file.is_held_up(bounds.first_write) || bounds.is_later(file.lacking_since());
        due.retain(|ino| files.table.get(*ino).is_some_and(|file| !is_held_up(file)));
        let is_removal = |ino: &Ino| files.table.get(*ino).is_some_and(File::is_removal);
        // One request removes a thousand: when one removal is due, all go that have not failed.
        if due.iter().any(is_removal) {
            due.retain(|ino| !is_removal(ino) || files.table.get(*ino).is_some_and(|file| file.failure.is_some()));
            let goes_too = |ino: Ino, file: &File| {
                file.failure.is_none() && !is_held_up(file) && !(file.is_far() && self.volume.is_open(ino))
            };
            let removals = files.table.removals();
            due.extend(removals.filter(|ino| files.table.get(*ino).is_some_and(|file| goes_too(*ino, file))));
        }
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let gathered = self.gather(files, &due)?;
        files.drop_clean(&*self.tracked.below, &gathered.clean)?;
        self.tracked.settled.notify(gathered.clean.iter().copied());
        let in_progress = queue.in_progress.values().chain(wave.iter().map(Work::request));
        let in_progress: Vec<&PlannedRequest> =
            in_progress.chain(&gathered.unsure).chain(&gathered.unsure_later).collect();
        let temporary = files.paths.temporary(&self.id, self.process);
        let planned = plan::plan(&gathered.planned, bounds, &in_progress, &temporary);
        for request in &planned {
            files.table.edit(Ino(request.file), |file| match request.action {
                Action::Delete => file.removing += 1,
                _ => (file.in_progress, file.sending) = (true, Some(request.key.clone())),
            });
        }
        for request in &gathered.unsure {
            files.table.edit(Ino(request.file), |file| file.in_progress = true);
        }
        Ok(gathered.unsure.into_iter().map(Work::Ask).chain(planned.into_iter().map(Work::Request)).collect())
    }

    /// What the plan of these files needs.
    fn gather(&self, files: &mut Files, due: &[Ino]) -> Result<Gathered, EngineError> {
        for ino in due {
            files.find_key(&*self.tracked.below, *ino)?;
        }
        let row = |ino: Ino, is_due| {
            let file = files.table.get(ino)?;
            // A directory that is being removed: what was in it is dirty again when it is gone.
            (file.dirty.name.is_none() || file.key.is_some()).then(|| file.planned(ino, is_due))
        };
        let asked = due.iter().filter_map(|ino| row(*ino, true)).collect();
        let is_due: HashSet<Ino> = due.iter().copied().collect();
        let closed = plan::close(asked, |key| {
            let sharing = files.table.with_key(key).into_iter();
            sharing.filter(|ino| !is_due.contains(ino)).filter_map(|ino| row(ino, false)).collect()
        });
        let mut gathered = Gathered::default();
        for planned in closed {
            let ino = Ino(planned.file);
            let Some(file) = files.table.get(ino) else { continue };
            // Where it is written again, the condition of that write tells.
            let tells =
                |sent: &&String| planned.lacks() && planned.local.as_ref().is_some_and(|local| local.key == **sent);
            let sent = file.dirty.sent.as_ref().filter(|sent| !tells(sent) && !file.in_progress);
            // What is found there ends the wait for a kept state too.
            if let Some(sent) = sent.or_else(|| file.sent_kept().map(|kept| &kept.key)) {
                // One of a later epoch is not due: what is of this one may wait for its key.
                let waits = file.failure.is_some() && !planned.is_due && file.due_at > files.now();
                let into = if waits { &mut gathered.unsure_later } else { &mut gathered.unsure };
                into.push(write_to(ino, sent, file.dirty.changed));
            }
            let is_clean = planned.is_clean() && file.kept.is_empty();
            match is_clean && !file.in_progress && !file.dirty.moved && file.dirty.sent.is_none() {
                true => gathered.clean.push(ino),
                false => gathered.planned.push(planned),
            }
        }
        Ok(gathered)
    }
}

/// As the planner sees a write whose outcome is asked for.
fn write_to(ino: Ino, key: &str, changed: u64) -> PlannedRequest {
    PlannedRequest {
        file: ino.0,
        key: key.to_owned(),
        action: Action::Put,
        required: plan::Required::Absent,
        content: 0,
        attributes: 0,
        changed,
        replaces: None,
    }
}
