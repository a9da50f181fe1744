//! Sends what the bucket lacks: asks the planner what may start, starts it, and takes the outcomes into the rows.
//!
//! Invariants: S1 a request is in progress from when it is planned until its outcome is in the rows; so the planner never sees
//!                a key twice.
//!             S2 a request is sent when the rows that it follows from are durable: after a crash nothing is looked for under a
//!                removed key, and what was written is known to be ours.
//!             S3 nothing is given up: what the bucket refuses is tried again, ever more seldom, and told.
//!             S4 a panic here, of a request or of the planner, ends all sending, and everybody who waits is told (`broken` of
//!                tracked): what it has left undone is not known, and the next process finds it out.
//! Locking:    the table of files (tracked) for planning and outcomes, never over a request.
//! Not here:   which request may start (wave), conflicts (conflict), objects of directories (marker, adopt).

mod adopt;
mod ahead;
mod conflict;
mod follow;
mod kept;
mod listed;
mod marker;
mod outcome;
mod parts;
mod probe;
mod removal;
mod request;
mod uploads;
mod wave;
mod write_id;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use margay_client::client::DELETE_KEYS_MAX;
use margay_client::upstream::Upstream;
use margay_env::Clock;
use margay_meta::Cursor;
use margay_rows::Ino;
use margay_volume::Volume;
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub(crate) use self::probe::Honoured;
pub use self::uploads::PartSizes;
pub(crate) use self::uploads::Uploads;
use crate::list::Listing;
use crate::opens::Writers;
use crate::plan::{Action, PlannedRequest};
use crate::tracked::Tracked;

/// Requests in progress.
const WIDTH: usize = 64;
/// How often it is looked whether a bucket answers that did not at the beginning.
const AWAITED_EVERY: Duration = Duration::from_millis(200);
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
    pub(crate) sizes: PartSizes,
    pub(crate) uploads: Uploads,
    /// What the store is known to check.
    pub(crate) honoured: Mutex<Honoured>,
    /// Keys of the volume that hold what was changed here and in the bucket.
    pub(crate) conflicts: Mutex<Vec<String>>,
    /// Who changes objects.
    pub(crate) writers: Writers,
    /// The process began without an answer of the bucket: it is waited for (B3 of probe).
    pub(crate) awaits_answer: bool,
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
    /// All rows that the last wave follows from.
    rows: Cursor,
}

/// What is to be done next.
enum Work {
    Request(PlannedRequest),
    /// Ask whether a write to this key succeeded. In progress like a write to it.
    Ask(PlannedRequest),
}

impl Work {
    fn request(&self) -> &PlannedRequest {
        let (Work::Request(request) | Work::Ask(request)) = self;
        request
    }
}

impl Sender {
    /// Sends until the task is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        while self.awaits_answer && self.upstream.meter().contact().silent.is_some() {
            tokio::time::sleep(AWAITED_EVERY).await;
        }
        self.probe().await;
        tokio::spawn(Arc::clone(&self).send_ahead());
        let (mut queue, mut tasks) = (Queue::default(), JoinSet::new());
        loop {
            let woken = self.tracked.wake.notified();
            if queue.waiting.is_empty() {
                let wave = self.next_wave(&queue);
                queue.rows = self.tracked.below.last_cursor();
                queue.extend(wave);
            }
            while tasks.len() < WIDTH {
                let some = queue.next_together();
                if some.is_empty() {
                    break;
                }
                let (own, rows) = (Arc::clone(&self), queue.rows);
                tasks.spawn(async move {
                    let (tickets, work): (Vec<Ticket>, Vec<Work>) = some.into_iter().unzip();
                    own.work(work, rows).await;
                    tickets
                });
            }
            tokio::select! {
                Some(done) = tasks.join_next() => match done {
                    Ok(tickets) => self.ended_all(&mut queue, &tickets),
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    // The process ends.
                    Err(_) => return,
                },
                () = woken => {}
                () = tokio::time::sleep(self.next_due()) => {}
            }
        }
    }

    /// Their outcomes are in the rows.
    fn ended_all(&self, queue: &mut Queue, tickets: &[Ticket]) {
        let mut files = self.tracked.files.lock();
        let ended = tickets.iter().filter_map(|ticket| queue.in_progress.remove(ticket));
        for request in ended.filter(|request| request.action == Action::Delete) {
            files.table.edit(Ino(request.file), |file| file.removing = file.removing.saturating_sub(1));
        }
    }

    fn next_due(&self) -> Duration {
        let files = self.tracked.files.lock();
        let now = files.now();
        // What is due and not in progress waits for something that ends, or is due later.
        let wait = files.table.next_due(now).map_or(IDLE, |due| due.saturating_sub(now));
        wait.clamp(Duration::from_millis(5), IDLE)
    }

    async fn work(&self, work: Vec<Work>, rows: Cursor) {
        let mut requests = Vec::with_capacity(work.len());
        for one in work {
            match one {
                Work::Request(request) => requests.push(request),
                Work::Ask(request) => self.ask(&request).await,
            }
        }
        if !requests.is_empty() {
            self.send(requests, rows).await;
        }
    }
}

impl Queue {
    fn extend(&mut self, work: Vec<Work>) {
        for one in work {
            self.next += 1;
            self.in_progress.insert(self.next, one.request().clone());
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
