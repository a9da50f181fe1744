//! How old listings are, and when a directory is compared with the bucket again.
//!
//! Why:        other programs change the bucket, and nobody tells.
//! Invariants: G1 one comparison of a directory at a time; meanwhile others use what is here.
//!             G2 a listing counts for longer each time that nothing had changed, within what `Ttl` says.
//!             G3 a directory that is empty here is removed by a listing of up to `EMPTY_AGE_MAX`. What others put there meanwhile stays:
//!                removing a directory removes its own object alone, and the next listing above shows theirs.
//!             G4 what is opened was seen within `RECENT`: by a listing of its directory, where that has at most as many pages as files
//!                were opened within `OPENS_WITHIN`, else by a HEAD.
//!             G5 of a name that is not here, the absence counts for as long as what is opened does; then it is asked for, as G4 says.
//!                While this mount makes many files in a directory, what is asked for their names stays below a hundredth of them,
//!                and nobody waits for it.
//!             G6 whether a name is missing is known while the listing counts; later, if the bucket is silent, or has answered nothing
//!                since a comparison began, it is not.
//!             G7 a file whose object was another one when it was read is asked for when it is opened next.
//! Locking:    short mutexes, one at a time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use margay_client::upstream::Contact;
use margay_env::Clock;
use margay_rows::Ino;
use parking_lot::Mutex;

use crate::opens::Ttl;

/// What was seen within this time counts for whoever opens a file.
const RECENT: Duration = Duration::from_secs(3);
/// For the removal of an empty directory.
const EMPTY_AGE_MAX: Duration = Duration::from_secs(60);
/// So long a removal takes, once it was begun.
const REMOVAL: Duration = Duration::from_secs(1);

/// Files that are remembered as replaced.
const REPLACED_MAX: usize = 10_000;
/// Files that are opened within this time share a listing.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

/// A directory in which so many files were made here within `RECENT` is being filled.
const FILLED_FROM: usize = 4;
/// Files that were made there pay for one page of a listing.
const MADE_PER_PAGE: usize = 100;
/// A kernel keeps the absence of a name that was not asked for so long: who looks before he makes a file needs it.
const ABSENCE_KEPT: Duration = Duration::from_secs(1);

/// What is done for a name that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// What is known counts.
    Absent,
    /// The caller must compare the directory with the bucket.
    Compare,
    /// As `Compare`, and nobody waits for it.
    CompareApart,
    /// The caller asks for the name alone.
    Ask,
}

#[derive(Debug)]
struct Listed {
    at: Duration,
    /// How long it counts; 0: it was not listed by this process.
    age: Duration,
    /// When the comparison in progress began.
    in_progress: Option<Duration>,
    /// The last comparison ended without an answer of the bucket.
    is_unanswered: bool,
    /// Of the last listing.
    pages: usize,
    /// Files in it that were asked for since, and when.
    asked: Vec<(Ino, Duration)>,
    /// Names that were not here and were asked for since, and when.
    missed: Vec<(String, Duration)>,
    /// When the last files were made here, `FILLED_FROM` at most.
    made_at: VecDeque<Duration>,
    /// Files that were made here since it was listed.
    made: usize,
}

impl Listed {
    fn new(at: Duration, age: Duration) -> Listed {
        let (asked, missed, made_at) = (Vec::new(), Vec::new(), VecDeque::new());
        Listed { at, age, in_progress: None, is_unanswered: false, pages: 1, asked, missed, made_at, made: 0 }
    }

    /// Whether the caller must compare it: nobody does.
    fn begin(&mut self, now: Duration) -> bool {
        let is_free = self.in_progress.is_none();
        self.in_progress.get_or_insert(now);
        is_free
    }

    fn is_being_filled(&self, now: Duration) -> bool {
        let first = self.made_at.front().filter(|_| self.made_at.len() == FILLED_FROM);
        first.is_some_and(|first| now.saturating_sub(*first) < RECENT)
    }

    /// Whether a listing costs no more than single requests, for one more after this many.
    fn is_cheap(&self, lately: usize) -> bool {
        self.age == Duration::ZERO || lately + 1 >= self.pages
    }
}

#[derive(Debug)]
pub(crate) struct Ages {
    clock: Arc<dyn Clock>,
    ttl: Ttl,
    listed: Mutex<HashMap<Ino, Listed>>,
    /// Files whose objects were found to be others (G7).
    replaced: Mutex<HashSet<Ino>>,
}

impl Ages {
    pub(super) fn new(clock: Arc<dyn Clock>, ttl: Ttl) -> Ages {
        Ages { clock, ttl, listed: Mutex::default(), replaced: Mutex::default() }
    }

    /// Whether the caller must compare it with the bucket now. After a start every directory is old.
    pub(super) fn begin(&self, directory: Ino) -> bool {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let one = listed.entry(directory).or_insert(Listed::new(Duration::ZERO, Duration::ZERO));
        let is_old = now.saturating_sub(one.at) >= one.age;
        is_old && one.begin(now)
    }

    /// How long its listing still counts.
    pub(crate) fn left(&self, directory: Ino) -> Duration {
        let now = self.clock.monotonic();
        let listed = self.listed.lock();
        listed.get(&directory).map_or(Duration::ZERO, |one| (one.at + one.age).saturating_sub(now))
    }

    pub(super) fn is_old(&self, directory: Ino) -> bool {
        self.left(directory) == Duration::ZERO
    }

    /// It is empty, and about to be removed (G3). One that this process never looked at is still old.
    pub(super) fn will_remove(&self, directory: Ino) {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory).filter(|one| one.age > Duration::ZERO) else { return };
        let old = now.saturating_sub(one.at);
        if old < EMPTY_AGE_MAX {
            one.age = one.age.max(old + REMOVAL);
        }
    }

    /// It was compared, or that failed (`None`); says whether something differed.
    pub(crate) fn ended(&self, directory: Ino, differed: Option<bool>) {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory) else { return };
        let age = match differed {
            Some(true) => self.ttl.least,
            // It was compared before it was old, to open a file.
            _ if now.saturating_sub(one.at) < one.age => one.age,
            _ => (one.age * 2).clamp(self.ttl.least, self.ttl.most),
        };
        let made_at = std::mem::take(&mut one.made_at);
        *one = Listed { pages: one.pages, made_at, ..Listed::new(now, age) };
    }

    /// The comparison that ended had no answer: the next one is due when the bucket has one.
    pub(crate) fn unanswered(&self, directory: Ino) {
        if let Some(one) = self.listed.lock().get_mut(&directory) {
            (one.age, one.is_unanswered) = (self.ttl.least, true);
        }
    }

    /// Whether a name that is not here may be in the directory (G6).
    pub(crate) fn doubts(&self, directory: Ino, contact: &Contact) -> bool {
        let now = self.clock.monotonic();
        let listed = self.listed.lock();
        let Some(one) = listed.get(&directory) else { return contact.silent.is_some() };
        let has_answered = |began: Duration| contact.last_answer.is_some_and(|age| age <= now.saturating_sub(began));
        let is_old = now.saturating_sub(one.at) >= one.age;
        let waits = one.in_progress.is_some_and(|began| !has_answered(began));
        one.is_unanswered || is_old && (contact.silent.is_some() || waits)
    }

    /// It was listed as a whole.
    pub(crate) fn was_listed(&self, directory: Ino, pages: usize) {
        let at = self.clock.monotonic();
        self.listed.lock().insert(directory, Listed { pages, ..Listed::new(at, self.ttl.least) });
    }

    /// It was made or moved here.
    pub(super) fn made(&self, directory: Ino) {
        let at = self.clock.monotonic();
        self.listed.lock().entry(directory).or_insert(Listed::new(at, self.ttl.least));
    }

    /// A listing has so many pages.
    pub(crate) fn has_pages(&self, directory: Ino, pages: usize) {
        if let Some(one) = self.listed.lock().get_mut(&directory) {
            one.pages = pages;
        }
    }

    /// Whether a file of a directory was seen within the time for which a listing counts at least (G4).
    pub(crate) fn was_seen(&self, directory: Ino, file: Ino) -> bool {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory).filter(|one| one.age > Duration::ZERO) else { return false };
        let is_young = |at: Duration| now.saturating_sub(at) < RECENT;
        one.asked.retain(|(_, at)| is_young(*at));
        is_young(one.at) || one.asked.iter().any(|(asked, _)| *asked == file)
    }

    /// Whether the caller must compare the directory with the bucket before it opens a file in it; else it asks for the file alone.
    pub(crate) fn begin_for_open(&self, directory: Ino) -> bool {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let one = listed.entry(directory).or_insert(Listed::new(Duration::ZERO, Duration::ZERO));
        let lately = one.asked.iter().filter(|(_, at)| now.saturating_sub(*at) < OPENS_WITHIN).count();
        one.is_cheap(lately) && one.begin(now)
    }

    /// As `begin`, however old the listing is.
    pub(crate) fn begin_now(&self, directory: Ino) -> bool {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let one = listed.entry(directory).or_insert(Listed::new(Duration::ZERO, Duration::ZERO));
        one.begin(now)
    }

    /// A file was made here, or moved here.
    pub(super) fn filled(&self, directory: Ino) {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory) else { return };
        one.made += 1;
        if one.made_at.len() == FILLED_FROM {
            one.made_at.pop_front();
        }
        one.made_at.push_back(now);
    }

    /// Whether the absence of a name counts: it was seen lately, or many files are made in the directory (G5).
    pub(crate) fn is_absent(&self, directory: Ino, name: &str) -> bool {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let Some(one) = listed.get_mut(&directory) else { return false };
        let is_young = |at: Duration| now.saturating_sub(at) < RECENT;
        one.missed.retain(|(_, at)| is_young(*at));
        let is_known =
            one.age > Duration::ZERO && is_young(one.at) || one.missed.iter().any(|(missed, _)| missed == name);
        is_known || one.is_being_filled(now) && one.made < MADE_PER_PAGE * one.pages
    }

    /// What the caller must do for a name whose absence does not count.
    pub(crate) fn begin_for_missed(&self, directory: Ino) -> Miss {
        let now = self.clock.monotonic();
        let mut listed = self.listed.lock();
        let one = listed.entry(directory).or_insert(Listed::new(Duration::ZERO, Duration::ZERO));
        let lately = one.missed.iter().filter(|(_, at)| now.saturating_sub(*at) < OPENS_WITHIN).count();
        match (one.is_being_filled(now), one.in_progress.is_some()) {
            // One comparison serves all names.
            (true, true) => Miss::Absent,
            (is_filled, false) if is_filled || one.is_cheap(lately) => {
                one.begin(now);
                if is_filled { Miss::CompareApart } else { Miss::Compare }
            }
            _ => Miss::Ask,
        }
    }

    /// The bucket was asked for a name that was not here.
    pub(crate) fn missed(&self, directory: Ino, name: &str) {
        let now = self.clock.monotonic();
        if let Some(one) = self.listed.lock().get_mut(&directory) {
            one.missed.push((name.to_owned(), now));
        }
    }

    /// How long a kernel may keep that a name is absent.
    pub(crate) fn absence_left(&self, directory: Ino) -> Duration {
        let now = self.clock.monotonic();
        let listed = self.listed.lock();
        let Some(one) = listed.get(&directory) else { return Duration::ZERO };
        let young = (one.at + RECENT).saturating_sub(now).max(ABSENCE_KEPT);
        young.min((one.at + one.age).saturating_sub(now))
    }

    /// Its object is not the one that was listed.
    pub(super) fn note_replaced(&self, file: Ino) {
        let mut replaced = self.replaced.lock();
        if replaced.len() >= REPLACED_MAX {
            replaced.clear();
        }
        replaced.insert(file);
    }

    /// Whether that was found since it was asked for last.
    pub(crate) fn was_replaced(&self, file: Ino) -> bool {
        self.replaced.lock().remove(&file)
    }

    /// The bucket was asked for a file.
    pub(crate) fn asked(&self, directory: Ino, file: Ino) {
        let now = self.clock.monotonic();
        if let Some(one) = self.listed.lock().get_mut(&directory) {
            one.asked.push((file, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_client::upstream::Silence;
    use margay_env::Timestamp;
    use margay_env::sim::SimClock;

    #[test]
    fn what_does_not_change_is_compared_ever_more_seldom() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::default());
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
    fn with_a_time_that_was_set_listings_count_so_long() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::fixed(10).unwrap());
        let directory = Ino(5);
        ages.was_listed(directory, 1);
        for differed in [Some(false), Some(false), Some(true), None] {
            clock.advance(Duration::from_millis(9_999));
            assert!(!ages.begin(directory), "{differed:?}");
            clock.advance(Duration::from_millis(1));
            assert!(ages.begin(directory), "{differed:?}");
            assert!(!ages.was_seen(directory, Ino(6)), "what is opened has a time of its own");
            ages.ended(directory, differed);
        }
    }

    #[test]
    fn a_name_is_missing_only_if_a_listing_that_counts_says_so() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        clock.advance(Duration::from_secs(100));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::default());
        let answers = |age| Contact { last_answer: Some(Duration::from_secs(age)), silent: None };
        let silence = Silence { since: Duration::from_secs(1), error: None };
        let silent = Contact { silent: Some(silence), ..answers(5) };
        let directory = Ino(5);
        assert!(ages.doubts(directory, &silent) && !ages.doubts(directory, &answers(9)), "never listed here");
        ages.was_listed(directory, 1);
        assert!(!ages.doubts(directory, &silent), "it still counts");
        clock.advance(RECENT);
        assert!(ages.doubts(directory, &silent) && !ages.doubts(directory, &answers(9)));
        assert!(ages.begin(directory));
        clock.advance(Duration::from_secs(2));
        assert!(ages.doubts(directory, &answers(3)), "no answer since the comparison began");
        assert!(!ages.doubts(directory, &answers(1)), "it takes long");
        ages.ended(directory, None);
        ages.unanswered(directory);
        assert!(ages.doubts(directory, &answers(0)), "nothing was seen");
        clock.advance(RECENT);
        assert!(ages.begin(directory));
        ages.ended(directory, Some(false));
        assert!(!ages.doubts(directory, &silent));
    }

    #[test]
    fn files_are_asked_for_until_a_listing_costs_no_more() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::default());
        let (small, large) = (Ino(5), Ino(6));
        ages.was_listed(small, 1);
        ages.was_listed(large, 3);
        assert!(ages.was_seen(small, Ino(10)) && ages.was_seen(large, Ino(10)), "they were just listed");
        clock.advance(RECENT);
        assert!(!ages.was_seen(small, Ino(10)) && ages.begin_for_open(small) && !ages.begin_for_open(small));
        for file in [10, 11] {
            assert!(!ages.was_seen(large, Ino(file)) && !ages.begin_for_open(large));
            ages.asked(large, Ino(file));
            assert!(ages.was_seen(large, Ino(file)));
        }
        assert!(ages.begin_for_open(large), "the third file costs as many requests as pages");
        ages.ended(large, Some(false));
        assert!(ages.was_seen(large, Ino(12)));
        clock.advance(RECENT);
        assert!(!ages.was_seen(large, Ino(10)) && !ages.begin_for_open(large), "those of before are forgotten");
    }

    #[test]
    fn names_that_are_missed_cost_a_hundredth_of_the_files_that_are_made() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::default());
        let (small, large) = (Ino(5), Ino(6));
        ages.was_listed(small, 1);
        ages.was_listed(large, 3);
        assert!(ages.is_absent(small, "a") && ages.is_absent(large, "a"), "they were just listed");
        clock.advance(RECENT);
        assert!(!ages.is_absent(small, "a"));
        assert_eq!([ages.begin_for_missed(small), ages.begin_for_missed(small)], [Miss::Compare, Miss::Ask]);
        ages.ended(small, Some(false));
        assert!(ages.is_absent(small, "a") && ages.is_absent(small, "b"), "one listing serves all");
        for name in ["a", "b"] {
            assert!(!ages.is_absent(large, name));
            assert_eq!(ages.begin_for_missed(large), Miss::Ask);
            ages.missed(large, name);
            assert!(ages.is_absent(large, name));
        }
        assert_eq!(ages.begin_for_missed(large), Miss::Compare, "the third name costs as many requests as pages");
        ages.ended(large, Some(false));
        clock.advance(RECENT);
        assert!(!ages.is_absent(large, "a"), "those of before are forgotten");
        (1..FILLED_FROM).for_each(|_| ages.filled(large));
        assert!(!ages.is_absent(large, "a"), "a few files are no load");
        (FILLED_FROM..3 * MADE_PER_PAGE).for_each(|_| ages.filled(large));
        assert!(ages.is_absent(large, "a"));
        ages.filled(large);
        assert!(!ages.is_absent(large, "a"), "they pay for a listing");
        assert_eq!([ages.begin_for_missed(large), ages.begin_for_missed(large)], [Miss::CompareApart, Miss::Absent]);
        ages.ended(large, Some(false));
        clock.advance(RECENT);
        assert!(!ages.is_absent(large, "a"), "it is filled no more");
    }

    #[test]
    fn a_kernel_keeps_an_absence_for_a_short_time() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::default());
        let directory = Ino(5);
        assert_eq!(ages.absence_left(directory), Duration::ZERO);
        ages.was_listed(directory, 1);
        ages.ended(directory, Some(false));
        assert_eq!(ages.absence_left(directory), RECENT);
        clock.advance(RECENT);
        ages.ended(directory, Some(false));
        clock.advance(Duration::from_secs(1));
        assert_eq!(ages.absence_left(directory), RECENT - Duration::from_secs(1));
        clock.advance(Duration::from_secs(3));
        assert_eq!(ages.absence_left(directory), ABSENCE_KEPT, "the listing counts for longer");
        clock.advance(Duration::from_secs(2));
        assert_eq!(ages.absence_left(directory), Duration::ZERO);
    }

    #[test]
    fn a_removal_takes_an_older_listing() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let ages = Ages::new(Arc::clone(&clock) as Arc<dyn Clock>, Ttl::default());
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
