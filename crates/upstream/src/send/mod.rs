//! Sends what the bucket lacks: asks the planner what may start, starts it, and takes the outcomes into the rows.
//!
//! Invariants: S1 a request is in progress from when it is planned until its outcome is in the rows; so the planner never sees
//!                a key twice.
//!             S2 a request is sent when the rows that it follows from are durable: after a crash nothing is looked for under a
//!                removed key, and what was written is known to be ours.
//!             S3 nothing is given up: what the bucket refuses is tried again, ever more seldom, and told.
//! Locking:    the table of files (tracked) for planning and outcomes, never over a request.
//! Not here:   which request is due (plan), conflicts (conflict).

mod conflict;
mod outcome;
mod probe;
mod request;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use margay_client::client::DELETE_KEYS_MAX;
use margay_client::upstream::Upstream;
use margay_env::Clock;
use margay_rows::Ino;
use margay_volume::Volume;
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub(crate) use self::probe::Honoured;
use crate::list::Listing;
use crate::plan::{self, Action, PlannedRequest};
use crate::tracked::Tracked;

/// Requests in progress.
const WIDTH: usize = 64;
/// The longest time until something is looked at again.
const IDLE: Duration = Duration::from_secs(1);

pub(crate) struct Sender {
    pub(crate) tracked: Arc<Tracked>,
    pub(crate) volume: Arc<Volume>,
    /// The volume's bucket.
    pub(crate) bucket: String,
    pub(crate) upstream: Upstream,
    /// Begins the write ids of this volume.
    pub(crate) id: String,
    /// In the write ids of this process: numbers of changes begin again with each.
    pub(crate) process: u64,
    /// Names conflict copies.
    pub(crate) host: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) listing: Arc<Listing>,
    /// What the store is known to check.
    pub(crate) honoured: Mutex<Honoured>,
    /// Keys of the volume that hold what was changed here and in the bucket.
    pub(crate) conflicts: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Sender to {:?}", self.upstream)
    }
}

/// A number for each request in progress.
type Ticket = u64;

#[derive(Default)]
struct Queue {
    next: Ticket,
    in_progress: HashMap<Ticket, PlannedRequest>,
    waiting: VecDeque<(Ticket, Work)>,
}

/// What is to be done next.
enum Work {
    Request(PlannedRequest),
    /// Ask whether a write to this key succeeded. In progress like a write to it.
    Ask(PlannedRequest),
}

impl Sender {
    /// Sends until the task is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        self.probe().await;
        let (mut queue, mut tasks) = (Queue::default(), JoinSet::new());
        loop {
            let woken = self.tracked.wake.notified();
            if queue.waiting.is_empty() {
                queue.extend(self.plan(&queue));
            }
            while tasks.len() < WIDTH {
                let some = queue.next_together();
                if some.is_empty() {
                    break;
                }
                let own = Arc::clone(&self);
                tasks.spawn(async move {
                    let (tickets, work): (Vec<Ticket>, Vec<Work>) = some.into_iter().unzip();
                    own.work(work).await;
                    tickets
                });
            }
            tokio::select! {
                Some(done) = tasks.join_next() => match done {
                    Ok(tickets) => tickets.iter().for_each(|ticket| drop(queue.in_progress.remove(ticket))),
                    Err(error) => {
                        tracing::error!(%error, "a request ended without an outcome; nothing more is sent");
                        return;
                    }
                },
                () = woken => {}
                () = tokio::time::sleep(self.next_due()) => {}
            }
        }
    }

    async fn work(&self, work: Vec<Work>) {
        let mut requests = Vec::with_capacity(work.len());
        for one in work {
            match one {
                Work::Request(request) => requests.push(request),
                Work::Ask(request) => self.ask(&request).await,
            }
        }
        if !requests.is_empty() {
            self.send(requests).await;
        }
    }

    fn plan(&self, queue: &Queue) -> Vec<Work> {
        let mut files = self.tracked.files.lock();
        let inos: Vec<Ino> = files.by_ino.keys().copied().collect();
        let now = files.now();
        let due = inos.iter().filter(|ino| files.is_due(**ino, now, |ino| self.volume.is_open(ino))).copied();
        let due: HashSet<Ino> = due.collect();
        if due.is_empty() {
            return Vec::new();
        }
        // One request removes a thousand: when one removal is due, all go.
        let removes = due.iter().any(|ino| files.by_ino[ino].is_removal());
        let (mut dirty, mut clean, mut unsure) = (Vec::with_capacity(inos.len()), Vec::new(), Vec::new());
        for ino in inos {
            let name = files.by_ino[&ino].dirty.name.clone();
            let key = match &name {
                None => None,
                Some((directory, name)) => match files.paths.key(&*self.tracked.below, (*directory, name)) {
                    Ok(key) => key,
                    Err(error) => {
                        tracing::error!(%error, "nothing is sent: names cannot be read");
                        return Vec::new();
                    }
                },
            };
            let file = &files.by_ino[&ino];
            // A directory that is being removed: it is dirty again when it is gone.
            if name.is_some() && key.is_none() {
                continue;
            }
            let planned = file.planned(ino, key, due.contains(&ino) || removes && file.is_removal());
            // Where it is written again, the condition of that write tells.
            let tells =
                |sent: &&String| planned.lacks() && planned.local.as_ref().is_some_and(|local| local.key == **sent);
            if let Some(sent) = file.dirty.sent.as_ref().filter(|sent| !tells(sent) && !file.in_progress) {
                unsure.push(write_to(ino, sent, file.dirty.changed));
            }
            match planned.is_clean() && !file.in_progress && !file.dirty.moved && file.dirty.sent.is_none() {
                true => clean.push(ino),
                false => dirty.push(planned),
            }
        }
        if let Err(error) = files.drop_clean(&*self.tracked.below, &clean) {
            tracing::error!(%error, "rows of files that are clean stay");
        }
        self.tracked.settled.notify_all();
        let mut in_progress: Vec<PlannedRequest> = queue.in_progress.values().cloned().collect();
        in_progress.extend(unsure.iter().cloned());
        let planned = plan::plan(&dirty, &in_progress, &files.paths.temporary(&self.id, self.process));
        for request in planned.iter().filter(|request| request.action != Action::Delete) {
            if let Some(file) = files.by_ino.get_mut(&Ino(request.file)) {
                (file.in_progress, file.sending) = (true, Some(request.key.clone()));
            }
        }
        for request in &unsure {
            if let Some(file) = files.by_ino.get_mut(&Ino(request.file)) {
                file.in_progress = true;
            }
        }
        unsure.into_iter().map(Work::Ask).chain(planned.into_iter().map(Work::Request)).collect()
    }

    fn next_due(&self) -> Duration {
        let files = self.tracked.files.lock();
        let now = files.now();
        // What is due and not in progress waits for something that ends, or is due later.
        let due = files.by_ino.values().map(|file| file.due_at).filter(|due| *due > now).min();
        let wait = due.map_or(IDLE, |due| due.saturating_sub(now));
        wait.clamp(Duration::from_millis(5), IDLE)
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

impl Queue {
    fn extend(&mut self, work: Vec<Work>) {
        for one in work {
            let (Work::Request(request) | Work::Ask(request)) = &one;
            self.next += 1;
            self.in_progress.insert(self.next, request.clone());
            self.waiting.push_back((self.next, one));
        }
    }

    /// The next request, or as many removals as one request takes.
    fn next_together(&mut self) -> Vec<(Ticket, Work)> {
        let is_removal = |work: &Work| matches!(work, Work::Request(request) if request.action == Action::Delete);
        let Some(first) = self.waiting.pop_front() else { return Vec::new() };
        let mut some = vec![first];
        if !is_removal(&some[0].1) {
            return some;
        }
        while some.len() < DELETE_KEYS_MAX
            && let Some(at) = self.waiting.iter().position(|(_, work)| is_removal(work))
        {
            some.extend(self.waiting.remove(at));
        }
        some
    }
}
