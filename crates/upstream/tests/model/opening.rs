//! Opening a file for reading, with what `open=always` promises.
//!
//! Checked:    with `open=always` the bucket is asked, and what is read is what the object had when `open` was called, or later.
//!             Nothing is said where the product says nothing: a file that is changed or open here, one that this mount has written
//!             within two seconds, a request of this mount that was lost or failed meanwhile, an object that is not there, and an
//!             `open` that took so long in real time that the bucket was taken for silent.
//! Not here:   `open=3s` and `open=ttl`, whose promises are of times (opened).

use std::time::Duration;

use margay_env::Clock;
use margay_env::real::RealClock;
use margay_upstream::Opens;
use margay_volume::Ino;
use margay_volume::posix::*;

use super::{Done, READ, User};

/// Requests that wait for longer in real time seem to be of a silent bucket.
const REAL_TIME_MAX: Duration = Duration::from_millis(400);

impl User {
    /// The content under a key, which is this file. As a kernel does, it looks the name up again if another file has it by now.
    pub(super) fn read_at(&self, key: &str, ino: Ino) -> Done<String> {
        match self.read_once(key, ino) {
            Err(PosixError::Stale) => self.read_once(key, self.at(key)?),
            read => read,
        }
    }

    fn read_once(&self, key: &str, ino: Ino) -> Done<String> {
        let (clock, is_watched) = (RealClock::new(), self.opens == Opens::Always && self.may_check(key, ino));
        let began = clock.monotonic();
        if is_watched {
            self.sim.world().watch(self.process, key);
        }
        let opened = self.mount.open_file(ino, READ);
        let watch = if is_watched { self.sim.world().unwatch(self.process) } else { None };
        let handle = opened?;
        let read = self.content(&handle);
        self.mount.release(handle)?;
        let content = read?;
        let is_slow = clock.monotonic() - began > REAL_TIME_MAX || self.is_silent();
        let Some(watch) = watch.filter(|watch| !watch.has_failed && !is_slow && !self.is_dead()) else {
            return Ok(content);
        };
        let mut world = self.sim.world();
        if !watch.was_asked {
            world.oracle.violation(format!("{} opened {key} and did not ask", self.name));
        } else if !watch.states.contains(&None) && !watch.states.contains(&Some(content.clone())) {
            let states = &watch.states;
            world.oracle.violation(format!("{} opened {key}, read {content}, and there was {states:?}", self.name));
        } else {
            world.oracle.tell(format!("{} {} {key}", self.name, crate::OPEN_ASKED));
        }
        Ok(content)
    }

    fn is_silent(&self) -> bool {
        self.far.meter().contact().silent.is_some_and(|silence| silence.since > REAL_TIME_MAX)
    }

    /// Whether this mount must ask for the file, and believe what it is told.
    fn may_check(&self, key: &str, ino: Ino) -> bool {
        let is_dirty = self.far.state(ino) != "clean" || self.far.details().contains(&format!("{key:?}"));
        let is_open = self.open.lock().unwrap().as_ref().is_some_and(|open| open.is(ino));
        !is_dirty && !is_open && !self.is_silent() && !self.sim.world().is_recent(self.process, key)
    }
}
