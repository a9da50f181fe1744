//! Opening a file for reading, with what `open=always` promises.
//!
//! Checked:    with `open=always` the bucket is asked for a file before it is opened, and for a name before it is missing; what is read
//!             is what the object had when that began, or later, and what is missing was missing at some time of it. Nothing is said
//!             where the product says nothing: a file or a name that is changed or open here, one that this mount has written
//!             within two seconds, a file that got another name after it was looked up, a request of this mount that was lost or failed meanwhile, an object that is gone, and what took
//!             so long in real time that the bucket was taken for silent.
//! Not here:   `open=3s` and `open=ttl`, whose promises are of times (opened).

use std::collections::BTreeSet;
use std::time::Duration;

use margay_env::Clock;
use margay_env::real::RealClock;
use margay_upstream::Opens;
use margay_volume::Ino;
use margay_volume::posix::*;

use super::{Done, READ, User, plain, split};

/// Requests that wait for longer in real time seem to be of a silent bucket.
const REAL_TIME_MAX: Duration = Duration::from_millis(400);

/// What the bucket had under a key, at any time of a call that had to ask for it.
type States = BTreeSet<Option<String>>;

impl User {
    /// Opens and reads what is under a key.
    pub(crate) fn read(&self, key: &str) -> Done<String> {
        let (directory, name) = split(key);
        let directory = self.at(directory)?;
        let (found, states) = self.watched(key, None, || self.mount.lookup(directory, &plain(name)));
        if let (Err(PosixError::NotFound), Some(states)) = (&found, states)
            && !states.contains(&None)
        {
            let wrong = format!("{} was told that {key} is missing, and there was {states:?}", self.name);
            self.sim.world().oracle.violation(wrong);
        }
        self.read_at(key, found?.ino)
    }

    /// The content under a key, which is this file. As a kernel does, it looks the name up again if another file has it by now.
    pub(super) fn read_at(&self, key: &str, ino: Ino) -> Done<String> {
        match self.read_once(key, ino) {
            Err(PosixError::Stale) => self.read_once(key, self.at(key)?),
            read => read,
        }
    }

    fn read_once(&self, key: &str, ino: Ino) -> Done<String> {
        let (handle, states) = self.watched(key, Some(ino), || self.mount.open_file(ino, READ));
        let handle = handle?;
        let content = self.content(&handle);
        self.mount.release(handle)?;
        let content = content?;
        if let Some(states) =
            states.filter(|states| !states.contains(&None) && !states.contains(&Some(content.clone())))
            && !self.has_moved(key, ino)
        {
            let wrong = format!("{} opened {key}, read {content}, and there was {states:?}", self.name);
            self.sim.world().oracle.violation(wrong);
        }
        Ok(content)
    }

    /// A call that asks for a file with `open=always`, or for a name that is not here, and what the bucket had meanwhile, if
    /// that says anything.
    fn watched<T>(&self, key: &str, file: Option<Ino>, call: impl FnOnce() -> Done<T>) -> (Done<T>, Option<States>) {
        if self.opens != Opens::Always || !self.may_check(key, file) {
            return (call(), None);
        }
        let clock = RealClock::new();
        let began = clock.monotonic();
        self.sim.world().watch(self.process, key);
        let done = call();
        let is_slow = clock.monotonic() - began > REAL_TIME_MAX || self.is_silent();
        let watch = self.sim.world().unwatch(self.process);
        let Some(watch) = watch.filter(|watch| !watch.has_failed && !is_slow && !self.is_dead()) else {
            return (done, None);
        };
        // A name that is here needs no question, and a file that has gone since it was listed is looked up again.
        if matches!((&done, file), (Ok(_), Some(_)) | (Err(PosixError::NotFound), None)) {
            if watch.was_asked {
                self.sim.world().oracle.tell(format!("{} {} {key}", self.name, crate::OPEN_ASKED));
            } else if file.is_none_or(|file| !self.has_moved(key, file)) {
                self.sim.world().oracle.violation(format!("{} opened {key} and did not ask", self.name));
            }
        }
        (done, Some(watch.states))
    }

    /// Whether a file that was looked up under a name has another one by now, as one of a conflict has: it is opened all the same.
    fn has_moved(&self, key: &str, file: Ino) -> bool {
        let has_name = self.mount.attributes(file).is_ok_and(|attributes| attributes.links > 0);
        has_name && self.at(key).is_ok_and(|now| now != file)
    }

    fn is_silent(&self) -> bool {
        self.far.meter().contact().silent.is_some_and(|silence| silence.since > REAL_TIME_MAX)
    }

    /// Whether this mount must ask for the file, and believe what it is told.
    fn may_check(&self, key: &str, file: Option<Ino>) -> bool {
        let is_dirty = file.is_some_and(|file| self.far.state(file) != "clean")
            || self.far.details().contains(&format!("{key:?}"));
        let is_open = self.open.lock().unwrap().as_ref().is_some_and(|open| file.is_some_and(|file| open.is(file)));
        !is_dirty && !is_open && !self.is_silent() && !self.sim.world().is_recent(self.process, key)
    }
}
