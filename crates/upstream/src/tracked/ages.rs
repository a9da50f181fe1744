//! How old listings are, and when a directory is compared with the bucket again.
//!
//! Why:        other programs change the bucket, and nobody tells.
//! Invariants: G1 one comparison of a directory at a time; meanwhile others use what is here.
//!             G2 a listing counts for longer each time that nothing had changed.
//!             G3 a directory that is empty here is removed by a listing of up to `AGE_MAX`. What others put there meanwhile stays:
//!                removing a directory removes its own object alone, and the next listing above shows theirs.
//! Locking:    one short mutex.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;
use margay_rows::Ino;
use parking_lot::Mutex;

/// How long a listing counts at least, and at most.
const AGE_MIN: Duration = Duration::from_secs(3);
const AGE_MAX: Duration = Duration::from_secs(60);
/// So long a removal takes, once it was begun.
const REMOVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Listed {
    at: Duration,
    /// How long it counts.
    age: Duration,
    in_progress: bool,
}

#[derive(Debug)]
pub(crate) struct Ages {
    clock: Arc<dyn Clock>,
    listed: Mutex<HashMap<Ino, Listed>>,
}

impl Ages {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Ages {
        Ages { clock, listed: Mutex::default() }
    }

    /// Whether the caller must compare it with the bucket now. After a start every directory is old.
    pub(super) fn begin(&self, directory: Ino) -> bool {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let one =
            listed.entry(directory).or_insert(Listed { at: Duration::ZERO, age: Duration::ZERO, in_progress: false });
        let is_old = now.saturating_sub(one.at) >= one.age;
        is_old && !std::mem::replace(&mut one.in_progress, true)
    }

    pub(super) fn is_old(&self, directory: Ino) -> bool {
        let now = self.clock.monotonic();
        let listed = self.listed.lock();
        listed.get(&directory).is_none_or(|one| now.saturating_sub(one.at) >= one.age)
    }

    /// It is empty, and about to be removed (G3). One that this process never looked at is still old.
    pub(super) fn will_remove(&self, directory: Ino) {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory).filter(|one| one.age > Duration::ZERO) else { return };
        let old = now.saturating_sub(one.at);
        if old < AGE_MAX {
            one.age = one.age.max(old + REMOVAL);
        }
    }

    /// It was compared, or that failed (`None`); says whether something differed.
    pub(crate) fn ended(&self, directory: Ino, differed: Option<bool>) {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory) else { return };
        let age = if differed == Some(true) { AGE_MIN } else { (one.age * 2).clamp(AGE_MIN, AGE_MAX) };
        *one = Listed { at: now, age, in_progress: false };
    }

    /// It was listed as a whole.
    pub(crate) fn was_listed(&self, directory: Ino) {
        let at = self.clock.monotonic();
        self.listed.lock().insert(directory, Listed { at, age: AGE_MIN, in_progress: false });
    }

    /// It was made or moved here.
    pub(super) fn made(&self, directory: Ino) {
        let at = self.clock.monotonic();
        self.listed.lock().entry(directory).or_insert(Listed { at, age: AGE_MIN, in_progress: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_env::Timestamp;
    use margay_env::sim::SimClock;

    #[test]
    fn what_does_not_change_is_compared_ever_more_seldom() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let directory = Ino(5);
        assert!(ages.begin(directory) && !ages.begin(directory), "one at a time");
        for (seconds, differed) in
            [(3, Some(false)), (6, None), (12, Some(false)), (24, None), (48, None), (60, None), (3, Some(true))]
        {
            ages.ended(directory, differed);
            clock.advance(Duration::from_millis(seconds * 1000 - 1));
            assert!(!ages.begin(directory), "{seconds} s");
            clock.advance(Duration::from_millis(1));
            assert!(ages.begin(directory), "{seconds} s");
        }
        ages.made(Ino(6));
        assert!(!ages.begin(Ino(6)));
    }

    #[test]
    fn a_removal_takes_an_older_listing() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>);
        for (seconds, is_known, begins) in [(59, true, false), (60, true, true), (59, false, true)] {
            let directory = Ino(seconds * 2 + u64::from(is_known));
            if is_known {
                ages.made(directory);
            }
            clock.advance(Duration::from_secs(seconds));
            assert!(ages.is_old(directory));
            ages.will_remove(directory);
            assert_eq!(ages.begin(directory), begins, "{seconds} s, {is_known}");
        }
    }
}
