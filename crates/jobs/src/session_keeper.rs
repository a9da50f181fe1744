//! Renews this process's session on a shared engine, and runs the follower of the change feed.
//!
//! Why:        other processes declare a process dead whose beat stands still, and their commits make its caches stale.
//! Invariants: B1 a process that was declared dead opens a new session at its next beat, and then holds no lease.
//! Not here:   the beat and the follower (margay-volume).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_env::Env;
use margay_volume::{Error, FOLLOW_EVERY_MAX, Volume};
use parking_lot::{Condvar, Mutex};

/// Period of reads of the feed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const _: () = assert!(LOOK_EVERY.as_millis() <= FOLLOW_EVERY_MAX.as_millis());

#[derive(Debug, Default)]
struct Stopping {
    stop: Mutex<bool>,
    changed: Condvar,
}

/// The thread; none if the engine is not shared. Dropping it ends the session.
#[derive(Debug)]
pub struct SessionKeeper {
    stopping: Arc<Stopping>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SessionKeeper {
    pub fn start(env: &Env, volume: &Arc<Volume>) -> std::io::Result<SessionKeeper> {
        let stopping = Arc::new(Stopping::default());
        if !volume.engine().is_shared() {
            return Ok(SessionKeeper { stopping, thread: Mutex::default() });
        }
        let (inner, env, volume) = (Arc::clone(&stopping), env.clone(), Arc::clone(volume));
        let body = move || keep(&inner, &env, &volume);
        let thread = std::thread::Builder::new().name("session".to_owned()).spawn(body)?;
        Ok(SessionKeeper { stopping, thread: Mutex::new(Some(thread)) })
    }

    /// Ends the session; call it when no request reads any more.
    pub fn end(&self) {
        *self.stopping.stop.lock() = true;
        self.stopping.changed.notify_all();
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

fn keep(stopping: &Stopping, env: &Env, volume: &Volume) {
    let mut beat_at = env.clock.monotonic();
    loop {
        {
            let mut stop = stopping.stop.lock();
            if !*stop {
                stopping.changed.wait_for(&mut stop, LOOK_EVERY);
            }
            if *stop {
                break;
            }
        }
        if env.clock.monotonic() >= beat_at {
            beat_at = env.clock.monotonic() + volume.beat_every();
            if let Err(error) = beat(volume) {
                tracing::warn!(%error, "this process cannot say that it lives");
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
