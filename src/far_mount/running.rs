//! A far mount's process, as its commands and pages see it.
//!
//! Invariants: R1 the outcome is told when nothing is sent any more and the cache is closed.
//! Not here:   mounting and ending (far_mount), the texts for people (text).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_env::{Env, Timestamp};
use margay_upstream::{Backlog, Far, Fsync, Writers, reason};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::administered::Seen;
use super::gateway::Served;
use super::registry;
use crate::admin::Healthy;
use crate::mounts::Mounts;
use crate::wiring::{self, Storage};

/// What pages and commands read.
#[derive(Debug)]
pub struct Running {
    pub env: Env,
    /// `s3://BUCKET/PREFIX`.
    pub source: String,
    pub endpoint: String,
    pub cache: PathBuf,
    /// `None`: it only sends.
    pub path: Option<PathBuf>,
    pub far: Arc<Far>,
    pub storage: Arc<Storage>,
    pub mounts: Arc<Mounts>,
    /// Start of the process, on both clocks.
    pub begun: (Duration, Timestamp),
    pub ending: Ending,
    /// Over S3.
    pub served: Option<Arc<Served>>,
    pub seen: Seen,
    /// Address of the page of metrics.
    pub page: Option<SocketAddr>,
}

/// The end of a mount: who wants it, and how it went.
#[derive(Debug)]
pub struct Ending {
    /// How long users of the mount may go on.
    wish: Mutex<Option<Duration>>,
    asked: Notify,
    /// Nothing is waited for any more.
    pub stopped: Arc<AtomicBool>,
    outcome: watch::Sender<Option<Value>>,
}

impl Default for Ending {
    fn default() -> Ending {
        let (wish, asked, stopped) = (Mutex::default(), Notify::new(), Arc::default());
        Ending { wish, asked, stopped, outcome: watch::channel(None).0 }
    }
}

impl Ending {
    /// Returns when somebody wants the end.
    pub async fn wished(&self) -> Duration {
        loop {
            let asked = self.asked.notified();
            if let Some(wait) = *self.wish.lock() {
                return wait;
            }
            asked.await;
        }
    }

    /// Ends it and returns how it went; `now`: what is left stays in the cache.
    pub async fn ask(&self, wait: Duration, now: bool) -> Value {
        if now {
            self.stopped.store(true, Ordering::SeqCst);
        }
        let mut outcome = self.outcome.subscribe();
        self.wish.lock().get_or_insert(wait);
        self.asked.notify_one();
        let ended = outcome.wait_for(Option::is_some).await;
        ended.ok().and_then(|ended| ended.clone()).unwrap_or_default()
    }

    pub(super) fn ended(&self, outcome: Value) {
        self.outcome.send_replace(Some(outcome));
    }
}

impl Healthy for Running {
    fn health(&self) -> Result<(), String> {
        Running::health(self)
    }
}

impl Running {
    /// The content of `margay status`; with `names` all conflicts are looked for.
    pub fn status(&self, names: bool) -> Value {
        let backlog = self.far.backlog();
        let conflicts = if names { self.far.conflicts().unwrap_or_default() } else { backlog.conflicts.clone() };
        let is_mounted = self.path.is_some() && !self.mounts.is_empty();
        let mut status = json!({
            "far": true,
            "version": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "source": self.source,
            "bucket": self.bucket().0,
            "prefix": self.bucket().1,
            "endpoint": self.endpoint,
            "cache": self.cache.display().to_string(),
            "path": self.path.as_ref().map(|path| path.display().to_string()),
            "mounted": is_mounted,
            "served": self.served.as_ref().map(|served| json!({ "endpoint": served.endpoint, "bucket": served.bucket })),
            "read_only": self.mounts.status()[0]["read_only"] == true,
            "fsync": if self.far.fsync() == Fsync::Local { "local" } else { "upstream" },
            "writers": if self.far.writers() == Writers::One { "one" } else { "many" },
            "open": self.far.opens().name(),
            "began": iso(self.begun.1),
            "uptime_seconds": self.uptime().as_secs(),
            "health": wiring::told(self.health()),
            "conflicts": conflicts,
            "store": self.far.store().map(|store| json!({ "name": store.name, "server": store.server })),
            "lists_attributes": self.far.lists_attributes(),
            "honoured": self.far.honoured().map(|known| known.into_iter().collect::<std::collections::BTreeMap<_, _>>()),
            "connection": self.connection(),
            "disk": self.disk(),
            "cache_size": self.far.cache_bytes_max(),
            "fetched_bytes": self.far.fetched_bytes(),
            "requests": self.requests(),
        });
        let more = self.waiting(&backlog);
        if let (Some(status), Value::Object(more)) = (status.as_object_mut(), more) {
            status.extend(more);
        }
        status
    }

    /// How the mount, or the process, ended; `goes_on`: the process serves S3.
    pub(super) fn ended(&self, error: Option<String>, goes_on: bool) -> Value {
        let left = self.far.backlog();
        json!({
            "sent": error.is_none(),
            "files": left.files,
            "bytes": left.bytes,
            "source": self.source,
            "cache": self.cache.display().to_string(),
            "goes_on": goes_on,
            "users": self.mounts.cut_off(),
            "error": error,
        })
    }

    /// Nobody looks for a cache that was not mounted and has nothing to send.
    pub(super) fn forget_if_empty(&self) {
        if self.far.backlog().files == 0 {
            registry::remove(&self.env, &self.cache);
        }
    }

    /// `Err` says what ends this process's work.
    pub fn health(&self) -> Result<(), String> {
        self.storage.health()?;
        match self.far.broken() {
            Some(why) => Err(format!("sending has ended by a fault of the program: {why}")),
            None => Ok(()),
        }
    }

    /// What waits below a directory, or at all.
    pub fn waiting_below(&self, directory: Option<u64>) -> Value {
        match directory.filter(|directory| !self.far.is_top(*directory)) {
            Some(directory) => self.waiting(&self.far.backlog_below(directory)),
            None => self.waiting(&self.far.backlog()),
        }
    }

    fn bucket(&self) -> (&str, &str) {
        let place = self.source.strip_prefix("s3://").unwrap_or(&self.source);
        place.split_once('/').unwrap_or((place, ""))
    }

    fn waiting(&self, backlog: &Backlog) -> Value {
        let rate = self.far.meter().rate();
        let is_old = backlog.oldest.is_some_and(|oldest| oldest + Duration::from_secs(1) >= self.uptime());
        let mut waiting = waiting_json(backlog);
        waiting["waiting"]["oldest_since"] = json!(backlog.oldest.map(|oldest| iso(self.before(oldest))));
        waiting["waiting"]["oldest_is_of_an_earlier_process"] = json!(is_old);
        waiting["waiting"]["bytes_per_second"] = json!(rate.bytes as u64);
        waiting["waiting"]["objects_per_second"] = json!((rate.objects * 10.0).round() / 10.0);
        let is_silent = self.far.meter().contact().silent.is_some();
        let left = left_seconds(backlog, rate.bytes, rate.objects).filter(|_| !is_silent);
        waiting["waiting"]["left_seconds"] = json!(left);
        waiting
    }

    fn connection(&self) -> Value {
        let contact = self.far.meter().contact();
        let silent = contact.silent.as_ref();
        json!({
            "answers": silent.is_none(),
            "last_answer_seconds": contact.last_answer.map(|age| age.as_secs()),
            "offline_since": silent.map(|silence| iso(self.before(silence.since))),
            "offline_seconds": silent.map(|silence| silence.since.as_secs()),
            "error": silent.map(|silence| silence.error.clone().unwrap_or_else(|| "a request waits".to_owned())),
            "refused": self.far.refused(),
        })
    }

    /// Of the cache; nothing, if that cannot be read.
    fn disk(&self) -> Value {
        let reserve = self.storage.segments.reserve_bytes();
        let space = self.storage.segments.space().ok();
        space.map_or(Value::Null, |space| {
            json!({ "total_bytes": space.total_bytes, "free_bytes": space.free_bytes, "reserve_bytes": reserve })
        })
    }

    fn requests(&self) -> Value {
        let flow = self.far.flow();
        json!({
            "in_progress": flow.in_progress,
            "limit": flow.limit,
            "limit_max": flow.limit_max,
            "limit_halved": flow.halved,
        })
    }

    fn before(&self, age: Duration) -> Timestamp {
        Timestamp(self.env.clock.now().0.saturating_sub(age.as_nanos() as i64))
    }

    pub fn uptime(&self) -> Duration {
        self.env.clock.monotonic().saturating_sub(self.begun.0)
    }
}

/// What waits and what fails.
pub fn waiting_json(backlog: &Backlog) -> Value {
    let failures = backlog.failures.iter().map(|one| {
        let code = reason::code_of(&one.reason);
        json!({
            "key": one.key,
            "code": code,
            "reason": one.reason,
            "refused": one.is_refused,
            "again_seconds": one.again_after.as_secs(),
            "advice": reason::advice(code),
        })
    });
    json!({
        "waiting": {
            "files": backlog.files,
            "bytes": backlog.bytes,
            "in_progress": backlog.in_progress,
            "syncs": backlog.epochs,
            "oldest_seconds": backlog.oldest.map(|oldest| oldest.as_secs()),
        },
        "failing": backlog.failing,
        "failures": failures.collect::<Vec<_>>(),
    })
}

/// `None`: nothing moves, so nobody knows.
fn left_seconds(backlog: &Backlog, bytes_per_second: f64, objects_per_second: f64) -> Option<u64> {
    let time = |left: u64, rate: f64| match (left, rate > 0.0) {
        (0, _) => Some(0.0),
        (left, true) => Some(left as f64 / rate),
        (_, false) => None,
    };
    let (bytes, objects) = (time(backlog.bytes, bytes_per_second)?, time(backlog.files, objects_per_second)?);
    Some(bytes.max(objects).ceil() as u64)
}

/// To the second.
fn iso(at: Timestamp) -> String {
    margay_s3::time::iso(Timestamp(at.seconds() * 1_000_000_000)).replace(".000Z", "Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_slower_one() {
        let backlog = Backlog { files: 100, bytes: 1000, ..Backlog::default() };
        assert_eq!(left_seconds(&backlog, 10.0, 50.0), Some(100));
        assert_eq!(left_seconds(&backlog, 1000.0, 1.0), Some(100));
        assert_eq!(left_seconds(&backlog, 0.0, 1.0), None);
        assert_eq!(left_seconds(&Backlog::default(), 0.0, 0.0), Some(0));
        assert_eq!(iso(Timestamp(1_763_710_764_123_000_000)), "2025-11-21T07:39:24Z");
    }
}
