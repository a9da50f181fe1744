//! Sends queued events to the targets that the settings name.
//!
//! Why:        a target may be slow or down for hours; events wait in the volume's queue, and nothing else waits for
//!             them.
//! Invariants: N1 an event is removed from the queue only after its target answered 2xx: at-least-once delivery, also
//!                over a crash.
//!             N2 events of one key are sent in order; keys are hashed into `LANES` lanes, which send concurrently.
//!             N3 a failed event is retried, before any later one of its lane, after a pause that doubles.
//!             N4 where processes share a volume, one of them sends to a target, under a lease.
//! Not here:   the queue (margay-volume), messages (margay-s3), HTTP (`post`).

mod post;
#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use margay_client::endpoint::Endpoint;
use margay_metrics::{Exposition, Kind};
use margay_s3::notification::message;
use margay_volume::{Error, Lease, QueuedEvent, Volume};
use tokio::task::{JoinHandle, JoinSet};

use self::post::Lane;

/// Events of one target in flight, each of another lane.
const LANES: usize = 8;
/// Pause between two attempts to take the lease of a target.
const LEASE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events read at a time.
const PAGE_EVENTS: usize = 256;
/// The pause after the first failure; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A target from the settings: `NAME=URL`.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub endpoint: Endpoint,
}

impl Target {
    /// The error says what would have been valid.
    pub fn parse(text: &str) -> Result<Target, String> {
        // The text is not repeated: it may contain a password.
        let wrong = || "notify: a target is NAME=http://HOST[:PORT]/PATH".to_owned();
        let (name, url) = text.split_once('=').ok_or_else(wrong)?;
        let is_name = !name.is_empty() && name.len() <= 64;
        if !is_name || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
            return Err("notify: a name has letters, digits, - _ . and at most 64 of them".to_owned());
        }
        let endpoint = Endpoint::parse(url).map_err(|error| format!("notify: the URL of {name}: {error}"))?;
        Ok(Target { name: name.to_owned(), endpoint })
    }
}

/// Counters and state of one target.
#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    failed: AtomicU64,
    /// The last round had a failure.
    failing: AtomicBool,
}

/// What every message says about this server.
#[derive(Clone, Debug)]
pub struct Sender {
    pub region: String,
    pub owner: String,
}

/// The sending tasks; they end when it is dropped.
#[derive(Debug)]
pub struct Notifier {
    volume: Arc<Volume>,
    targets: Vec<(String, Arc<Counters>, JoinHandle<()>)>,
}

impl Notifier {
    /// Starts one task for each target; must be called inside a tokio runtime.
    pub fn start(volume: &Arc<Volume>, targets: Vec<Target>, sender: &Sender) -> Notifier {
        let start = |target: Target| {
            let counters = Arc::new(Counters::default());
            let (name, volume) = (target.name.clone(), Arc::clone(volume));
            let task = tokio::spawn(send_on(volume, target, sender.clone(), Arc::clone(&counters)));
            (name, counters, task)
        };
        Notifier { targets: targets.into_iter().map(start).collect(), volume: Arc::clone(volume) }
    }

    /// Stops sending; an event still in the queue is sent again by the next server.
    pub fn stop(&self) {
        self.targets.iter().for_each(|(_, _, task)| task.abort());
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        let waiting = self.volume.events_waiting();
        out.value("margay_events_waiting", Kind::Gauge, "Events that wait for their targets.", waiting);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        out.family("margay_events_delivered_total", Kind::Counter, "Events that a target has taken.");
        for (name, counters, _) in &self.targets {
            out.sample("margay_events_delivered_total", &[("target", name)], load(&counters.delivered));
        }
        out.family("margay_events_failed_total", Kind::Counter, "Attempts to deliver that failed.");
        for (name, counters, _) in &self.targets {
            out.sample("margay_events_failed_total", &[("target", name)], load(&counters.failed));
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends until its task is aborted.
async fn send_on(volume: Arc<Volume>, target: Target, sender: Sender, counters: Arc<Counters>) {
    let mut lanes: Vec<Lane> = (0..LANES).map(|_| Lane::new(target.endpoint.clone())).collect();
    let mut pause = PAUSE_MIN;
    loop {
        // Subscribed before the queue is read, so that no event is missed in between.
        let queued = volume.event_queued();
        let lease = match volume.lease(&format!("notify/{}", target.name)).await {
            Ok(Some(lease)) => Arc::new(lease),
            outcome => {
                if let Err(error) = outcome {
                    tracing::warn!(target_name = target.name, %error, "events are not delivered; trying again");
                }
                tokio::time::sleep(LEASE_LOOK_EVERY).await;
                continue;
            }
        };
        let outcome = round((&volume, &lease), &target, &sender, &mut lanes, &counters).await;
        let failed = match &outcome {
            Ok(Round { failure, .. }) => failure.clone(),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = failed {
            if !counters.failing.swap(true, Ordering::Relaxed) {
                tracing::warn!(target_name = target.name, error, "events are not delivered; trying again and again");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            continue;
        }
        pause = PAUSE_MIN;
        if counters.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(target_name = target.name, "events are delivered again");
        }
        if outcome.is_ok_and(|round| round.sent == 0) {
            queued.await;
        }
    }
}

/// Result of one page of events.
#[derive(Debug, Default)]
struct Round {
    sent: usize,
    failure: Option<String>,
}

/// Sends the oldest events, each lane until it fails, and removes the delivered ones.
async fn round(
    (volume, lease): (&Arc<Volume>, &Arc<Lease>),
    target: &Target,
    sender: &Sender,
    lanes: &mut Vec<Lane>,
    counters: &Counters,
) -> Result<Round, margay_volume::Error> {
    let mut waiting: Vec<Vec<QueuedEvent>> = (0..LANES).map(|_| Vec::new()).collect();
    for queued in volume.queued_events(&target.name, PAGE_EVENTS).await? {
        let mut hasher = DefaultHasher::new();
        (&queued.event.bucket, &queued.event.key).hash(&mut hasher);
        waiting[hasher.finish() as usize % LANES].push(queued);
    }
    let mut running = JoinSet::new();
    for (mut lane, events) in std::mem::take(lanes).into_iter().zip(waiting) {
        let (sender, volume, lease) = (sender.clone(), Arc::clone(volume), Arc::clone(lease));
        running.spawn(async move {
            let mut taken = Vec::with_capacity(events.len());
            for queued in &events {
                match volume.still_holds(&lease).await {
                    Ok(true) => {}
                    // Another process sends them now, and later ones of the lane (N2).
                    Ok(false) => return (lane, taken, Some(Error::LeaseLost.to_string())),
                    Err(error) => return (lane, taken, Some(error.to_string())),
                }
                if let Err(error) = lane.post(message(queued, &sender.region, &sender.owner)).await {
                    return (lane, taken, Some(error));
                }
                taken.push(queued.number);
            }
            (lane, taken, None)
        });
    }
    let mut round = Round::default();
    let mut numbers = Vec::new();
    while let Some(ended) = running.join_next().await {
        // The panic was already reported; the lane's events are sent again.
        let Ok((lane, taken, error)) = ended else { continue };
        lanes.push(lane);
        numbers.extend(taken);
        counters.failed.fetch_add(u64::from(error.is_some()), Ordering::Relaxed);
        round.failure = error.or(round.failure);
    }
    lanes.resize_with(LANES, || Lane::new(target.endpoint.clone()));
    round.sent = numbers.len();
    volume.forget_events(&target.name, &numbers, lease).await?;
    counters.delivered.fetch_add(numbers.len() as u64, Ordering::Relaxed);
    Ok(round)
}
