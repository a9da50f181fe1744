//! The time that expiry and locks trust: a clock that jumps ahead expires no object and no lock.
//!
//! Why:        a dead battery or a wrong time server can set the clock years ahead, which would expire everything.
//!             So the running server records the time, and does not trust a clock that is days ahead of the record.
//! Layout:     DIR/clock.json (docs/format/directory.md).
//! Invariants: K1 expiry trusts a clock that is at most `AHEAD_MAX` ahead of the record plus the time run since, or
//!                that has run evenly for `lifecycle.clock_wait_seconds`, or that the operator confirmed.
//!             K2 waiting alone never ends a lock.
//! Durability: the record is written at the start, every `NOTE_EVERY` and on a correction; an older one trusts less.
//! Not here:   what is due (`pass`), what a lock is (margay-volume).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_env::files;
use margay_env::{Env, Timestamp};
use margay_metrics::{Exposition, Kind};
use margay_volume::Volume;
use parking_lot::Mutex;
use serde_json::{Value, json};

const NAME: &str = "clock.json";
const BYTES_MAX: u64 = 4096;
/// How far a trusted clock may be ahead of the record: a machine that was off over a weekend continues by itself.
pub const AHEAD_MAX: Duration = Duration::from_secs(3 * 86_400);
/// How often the record is written.
const NOTE_EVERY: Duration = Duration::from_secs(600);

/// A trusted time, and the monotonic clock's time at that moment.
#[derive(Clone, Copy, Debug)]
struct Believed {
    wall: Timestamp,
    at: Duration,
}

impl Believed {
    /// The expected time now, if the wall clock runs as evenly as the monotonic clock.
    fn now(self, monotonic: Duration) -> Timestamp {
        plus(self.wall, monotonic.saturating_sub(self.at))
    }

    /// Advances to now; `false` when the clock shows a time that cannot be trusted.
    fn go_on(&mut self, now: Timestamp, monotonic: Duration) -> bool {
        let expected = self.now(monotonic);
        self.at = monotonic;
        let believed = now <= plus(expected, AHEAD_MAX);
        let near = plus(now, AHEAD_MAX) >= expected;
        // A clock that is set back by days does not move the record back.
        self.wall = if believed && near { now } else { expected };
        believed
    }
}

fn plus(time: Timestamp, length: Duration) -> Timestamp {
    Timestamp(time.0.saturating_add(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)))
}

#[derive(Debug)]
struct State {
    expiry: Believed,
    locks: Believed,
    /// When the clock was first seen ahead (monotonic), and its time then.
    waits: Option<Believed>,
    noted: Option<Duration>,
}

/// Watches the clock; shared by expiry, `margay status` and `margay clock`.
#[derive(Debug)]
pub struct ClockGuard {
    env: Env,
    volume: Arc<Volume>,
    path: PathBuf,
    /// Zero: only the operator's confirmation ends the wait.
    wait: Duration,
    state: Mutex<State>,
}

impl ClockGuard {
    /// Reads the record. Without one, as in a directory of an earlier version, the clock is trusted.
    pub fn open(env: &Env, volume: &Arc<Volume>, data: &Path, wait: Duration) -> Arc<ClockGuard> {
        let path = data.join(NAME);
        let note = files::read(env, &path, BYTES_MAX).ok().and_then(|bytes| {
            let note: Value = serde_json::from_slice(&bytes).ok()?;
            Some((Timestamp(note["expiry"].as_i64()?), Timestamp(note["locks"].as_i64()?)))
        });
        let (now, at) = (env.clock.now(), env.clock.monotonic());
        let (expiry, locks) = note.unwrap_or((now, now));
        let believed = |wall| Believed { wall, at };
        let state = State { expiry: believed(expiry), locks: believed(locks), waits: None, noted: None };
        let (env, volume) = (env.clone(), Arc::clone(volume));
        let guard = Arc::new(ClockGuard { env, volume, path, wait, state: Mutex::new(state) });
        guard.look();
        guard
    }

    /// The time that expiry may use; `None` while the clock is ahead.
    pub fn look(&self) -> Option<Timestamp> {
        let (now, monotonic) = (self.env.clock.now(), self.env.clock.monotonic());
        let mut state = self.state.lock();
        state.locks.go_on(now, monotonic);
        let lock_time = state.locks;
        self.volume.set_lock_time(lock_time.wall, lock_time.at);
        let believed = state.expiry.go_on(now, monotonic) || self.has_waited(&mut state, now, monotonic);
        if believed && state.waits.take().is_some() {
            tracing::warn!("the clock is believed again: expiry goes on");
            state.noted = None;
        }
        if state.noted.is_none_or(|noted| monotonic >= noted + NOTE_EVERY) {
            state.noted = Some(monotonic);
            self.note(&state);
        }
        believed.then_some(now)
    }

    /// Whether a clock that is ahead has run evenly for long enough to be trusted.
    fn has_waited(&self, state: &mut State, now: Timestamp, monotonic: Duration) -> bool {
        let evenly = |since: &Believed| {
            let expected = since.now(monotonic);
            now <= plus(expected, AHEAD_MAX) && plus(now, AHEAD_MAX) >= expected
        };
        let Some(since) = state.waits.filter(evenly) else {
            let days = (now.0 - state.expiry.wall.0) / (86_400 * 1_000_000_000);
            tracing::error!(
                days,
                "the clock is days ahead of the newest time that was noted: nothing expires. If it is right, say \
                 `margay clock confirm`"
            );
            state.waits = Some(Believed { wall: now, at: monotonic });
            return false;
        };
        let waited = !self.wait.is_zero() && monotonic.saturating_sub(since.at) >= self.wait;
        if waited {
            state.expiry = Believed { wall: now, at: monotonic };
        }
        waited
    }

    /// The operator confirms that the clock is right.
    pub fn confirm(&self) -> Value {
        {
            let mut state = self.state.lock();
            let believed = Believed { wall: self.env.clock.now(), at: self.env.clock.monotonic() };
            (state.expiry, state.locks, state.noted) = (believed, believed, None);
        }
        tracing::warn!("the operator confirmed the clock");
        self.look();
        self.status()
    }

    fn note(&self, state: &State) {
        let note = json!({ "expiry": state.expiry.wall.0, "locks": state.locks.wall.0 });
        if let Err(error) = files::write_new(&self.env, &self.path, note.to_string().as_bytes()) {
            tracing::warn!(%error, path = %self.path.display(), "the time cannot be noted");
        }
    }

    /// What `margay status` shows.
    pub fn status(&self) -> Value {
        let (waits, expiry_ahead, locks_ahead, left) = self.measure();
        json!({
            "believed": !waits && locks_ahead <= AHEAD_MAX.as_secs(),
            "expiry_waits": waits,
            "expiry_waits_seconds": left,
            "ahead_seconds": expiry_ahead,
            "ahead_of_locks_seconds": locks_ahead,
        })
    }

    pub(super) fn write_metrics(&self, out: &mut Exposition) {
        let (waits, expiry_ahead, locks_ahead, _) = self.measure();
        let help = "1 while nothing expires because the clock is days ahead of the newest time noted.";
        out.value("margay_expiry_waits", Kind::Gauge, help, u8::from(waits));
        let help = "How far the clock is ahead of what expiry believes.";
        out.value("margay_clock_ahead_seconds", Kind::Gauge, help, expiry_ahead);
        let help = "How far the clock is ahead of what ends locks.";
        out.value("margay_clock_ahead_of_locks_seconds", Kind::Gauge, help, locks_ahead);
    }

    fn measure(&self) -> (bool, u64, u64, Option<u64>) {
        let (now, monotonic) = (self.env.clock.now(), self.env.clock.monotonic());
        let state = self.state.lock();
        let ahead = |believed: Believed| {
            u64::try_from(now.0.saturating_sub(believed.now(monotonic).0) / 1_000_000_000).unwrap_or(0)
        };
        let left = state
            .waits
            .filter(|_| !self.wait.is_zero())
            .map(|since| self.wait.saturating_sub(monotonic.saturating_sub(since.at)).as_secs());
        (state.waits.is_some(), ahead(state.expiry), ahead(state.locks), left)
    }
}
