//! Renews this process's session on a shared engine, and runs the follower of the change feed.
//!
//! Why:        other processes declare a process dead whose beat stands still, and their commits make its caches stale.
//! Invariants: B1 a process that was declared dead opens a new session at its next beat, and then holds no lease.
//!             B2 a process whose last beat is older than `SILENCE_MAX` is not ready: its requests wait or fail.
//! Not here:   the beat and the follower (margay-volume).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_env::Env;
use margay_volume::{Error, FOLLOW_EVERY_MAX, Volume};
use parking_lot::{Condvar, Mutex};

/// Period of reads of the feed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Age of the last beat from which on the engine counts as away. A fail-over that goes well is shorter for most requests.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);

const _: () = assert!(LOOK_EVERY.as_millis() <= FOLLOW_EVERY_MAX.as_millis());

#[derive(Debug)]
struct Kept {
    env: Env,
    stop: Mutex<bool>,
    changed: Condvar,
    last: Mutex<LastBeat>,
}

/// When the engine took a beat for the last time, on the monotonic clock, and why it has not since.
#[derive(Debug)]
struct LastBeat {
    at: Duration,
    refused: Option<String>,
}

/// The thread; none if the engine is not shared. Dropping it ends the session.
#[derive(Debug)]
pub struct SessionKeeper {
    kept: Arc<Kept>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SessionKeeper {
    pub fn start(env: &Env, volume: &Arc<Volume>) -> std::io::Result<SessionKeeper> {
        // The session was opened just now.
        let last = LastBeat { at: env.clock.monotonic(), refused: None };
        let (stop, changed, last) = (Mutex::new(false), Condvar::new(), Mutex::new(last));
        let kept = Arc::new(Kept { env: env.clone(), stop, changed, last });
        if !volume.engine().is_shared() {
            return Ok(SessionKeeper { kept, thread: Mutex::default() });
        }
        let (inner, volume) = (Arc::clone(&kept), Arc::clone(volume));
        let body = move || keep(&inner, &volume);
        let thread = std::thread::Builder::new().name("session".to_owned()).spawn(body)?;
        Ok(SessionKeeper { kept, thread: Mutex::new(Some(thread)) })
    }

    /// `Err` says for how long the engine has not answered (B2). An engine of this process alone always answers.
    pub fn ready(&self) -> Result<(), String> {
        if self.thread.lock().is_none() {
            return Ok(());
        }
        let last = self.kept.last.lock();
        let silence = self.kept.env.clock.monotonic().saturating_sub(last.at);
        if silence <= SILENCE_MAX {
            return Ok(());
        }
        let why = last.refused.as_deref().unwrap_or("a call that has not ended");
        Err(format!("the metadata has not answered for {} s: {why}", silence.as_secs()))
    }

    /// Ends the session; call it when no request reads any more.
    pub fn end(&self) {
        *self.kept.stop.lock() = true;
        self.kept.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

impl Drop for SessionKeeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn keep(kept: &Kept, volume: &Volume) {
    let env = &kept.env;
    let mut beat_at = env.clock.monotonic();
    loop {
        {
            let mut stop = kept.stop.lock();
            if !*stop {
                kept.changed.wait_for(&mut stop, LOOK_EVERY);
            }
            if *stop {
                break;
            }
        }
        if env.clock.monotonic() >= beat_at {
            beat_at = env.clock.monotonic() + volume.beat_every();
            match beat(volume) {
                Ok(()) => *kept.last.lock() = LastBeat { at: env.clock.monotonic(), refused: None },
                Err(error) => {
                    kept.last.lock().refused = Some(error.to_string());
                    tracing::warn!(%error, "this process cannot say that it lives");
                }
            }
        }
        if let Err(error) = follow(volume) {
            tracing::warn!(%error, "changes of other processes cannot be followed; the next look tries again");
        }
    }
    if let Err(error) = volume.close_session() {
        tracing::warn!(%error, "the session stays behind; others take it for dead in a while");
    }
}

fn beat(volume: &Volume) -> Result<(), Error> {
    match volume.beat() {
        Err(Error::Fenced) => volume.open_session(),
        outcome => outcome.map(drop),
    }
}

fn follow(volume: &Volume) -> Result<(), Error> {
    while !volume.follow_once()?.is_newest {}
    Ok(())
}
