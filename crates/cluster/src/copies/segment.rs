//! What was written to one segment, and which stores have it.
//!
//! Invariants: S1 a store has a beginning of the parts: they are sent in their order.
//!             S2 a store is sent to by one task at a time.
//!             S3 a part's bytes never change again, so a request that arrives late does no harm: what a run has reserved and not
//!                written is no part until nobody writes to the segment.
//! Locking:    `state` is a leaf.
//! Not here:   sending (send), how many stores there are to be (copies).

use std::ops::Range;

use event_listener::Event;
use margay_segment::format::{ALIGN_BYTES, PACK_HEADER_BYTES};
use margay_segment::{Kind, SegmentId, StoreNumber};
use parking_lot::Mutex;

/// File systems free whole blocks; usual ones have no larger ones.
const BLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct Copied {
    pub(super) id: SegmentId,
    pub(super) kind: Kind,
    /// It is written no more, and copied again.
    pub(super) is_repair: bool,
    state: Mutex<State>,
    /// A store has more, or has failed.
    pub(super) changed: Event,
}

#[derive(Debug, Default)]
struct State {
    /// Parts of the file, in the order in which they were written.
    parts: Vec<Range<u64>>,
    copies: Vec<OneCopy>,
    /// The parts are all of the file, or all that is right in it.
    is_finished: bool,
    /// What is right in the file is not known yet.
    is_unread: bool,
    /// The file lacks something that rows name, so who has all of the parts lacks it too.
    is_partial: bool,
}

#[derive(Debug)]
struct OneCopy {
    store: StoreNumber,
    /// So many of the parts are durable there.
    has: usize,
    is_sending: bool,
    /// Why nothing is sent.
    failure: Option<String>,
}

/// Stores of a segment, the own one apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// That have all.
    pub(super) have: usize,
    /// That have all or are sent to.
    pub(super) sending: usize,
    /// That are sent to and have not all.
    pub(super) sending_behind: usize,
}

/// What is to be sent.
pub(super) struct Lacking {
    pub(super) parts: Vec<Range<u64>>,
    /// The store has so many of the parts then.
    pub(super) until: usize,
    /// How long its copy is now, at least.
    pub(super) before: u64,
}

impl Copied {
    pub(super) fn new(id: SegmentId, kind: Kind) -> Copied {
        Copied { id, kind, is_repair: false, state: Mutex::default(), changed: Event::new() }
    }

    /// A segment that is written no more, of which these stores have all. Nothing is sent before `read`.
    pub(super) fn again(id: SegmentId, kind: Kind, stores: impl Iterator<Item = StoreNumber>) -> Copied {
        let copies = stores.map(|store| OneCopy { store, has: 1, is_sending: false, failure: None }).collect();
        // What it is, is not known, and counts as one part until then.
        let state =
            State { parts: vec![Range::default()], copies, is_finished: true, is_unread: true, is_partial: false };
        Copied { id, kind, is_repair: true, state: Mutex::new(state), changed: Event::new() }
    }

    /// These parts of the file are right, all of it if it is whole.
    pub(super) fn read(&self, parts: Vec<Range<u64>>, is_whole: bool) {
        let mut state = self.state.lock();
        assert!(state.is_unread && state.parts.len() == 1, "it is read once, before anything is sent");
        let all = parts.len();
        state.copies.iter_mut().filter(|copy| copy.has > 0).for_each(|copy| copy.has = all);
        (state.parts, state.is_unread, state.is_partial) = (parts, false, !is_whole);
    }

    pub(super) fn is_unread(&self) -> bool {
        self.state.lock().is_unread
    }

    pub(super) fn is_partial(&self) -> bool {
        self.state.lock().is_partial
    }

    pub(super) fn wrote(&self, part: Range<u64>) {
        let mut state = self.state.lock();
        assert!(!state.is_finished, "nothing is written to a segment that nobody writes to");
        if self.kind == Kind::Pack && state.parts.is_empty() {
            state.parts.push(0..PACK_HEADER_BYTES as u64);
        }
        state.parts.push(part);
    }

    /// Whether runs of the pack were begun before copies were made: what they write is no part before `finish`.
    pub(super) fn lacks_beginning(&self) -> bool {
        let is_first = |part: &Range<u64>| part.end > PACK_HEADER_BYTES as u64;
        self.kind == Kind::Pack
            && joined(&self.state.lock().parts).first().is_some_and(|part| part.start > 0 || !is_first(part))
    }

    /// Nobody writes to the segment any more: what was not announced becomes the last parts (S3).
    pub(super) fn finish(&self, len: u64) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.is_finished, true) {
            let gaps = gaps(&joined(&state.parts), len);
            state.parts.extend(gaps);
        }
    }

    pub(super) fn parts(&self) -> usize {
        self.state.lock().parts.len()
    }

    pub(super) fn count(&self) -> Count {
        self.count_of(self.parts())
    }

    /// Of those that have the first parts.
    pub(super) fn count_of(&self, parts: usize) -> Count {
        let mut count = Count::default();
        for copy in &self.state.lock().copies {
            let (has, sends) = (copy.has >= parts, copy.failure.is_none());
            count.have += usize::from(has);
            count.sending += usize::from(sends);
            count.sending_behind += usize::from(sends && !has);
        }
        count
    }

    /// Stores that have the first parts, and those that are sent to and have not.
    pub(super) fn stores_of(&self, parts: usize) -> (Vec<StoreNumber>, Vec<StoreNumber>) {
        let state = self.state.lock();
        let of = |keep: &dyn Fn(&OneCopy) -> bool| {
            state.copies.iter().filter(|copy| keep(copy)).map(|copy| copy.store).collect()
        };
        (of(&|copy| copy.has >= parts), of(&|copy| copy.has < parts && copy.failure.is_none()))
    }

    /// Stores that are sent to.
    pub(super) fn sent_to(&self) -> Vec<StoreNumber> {
        self.state.lock().copies.iter().filter(|copy| copy.failure.is_none()).map(|copy| copy.store).collect()
    }

    /// Stores that were chosen, whatever became of them.
    pub(super) fn tried(&self) -> Vec<StoreNumber> {
        self.state.lock().copies.iter().map(|copy| copy.store).collect()
    }

    /// Stores that are sent to and have not all yet.
    pub(super) fn slow(&self) -> Vec<StoreNumber> {
        let state = self.state.lock();
        let parts = state.parts.len();
        let slow = state.copies.iter().filter(|copy| copy.is_sending && copy.has < parts);
        slow.map(|copy| copy.store).collect()
    }

    pub(super) fn join(&self, store: StoreNumber) {
        let mut state = self.state.lock();
        if state.copies.iter().all(|copy| copy.store != store) {
            state.copies.push(OneCopy { store, has: 0, is_sending: false, failure: None });
        }
    }

    /// Sends again to stores that had failed.
    pub(super) fn revive(&self, is_usable: &dyn Fn(StoreNumber) -> bool) {
        for copy in &mut self.state.lock().copies {
            if copy.failure.is_some() && is_usable(copy.store) {
                copy.failure = None;
            }
        }
    }

    /// Stores that lack something and that nobody sends to; the caller does (S2).
    pub(super) fn behind(&self) -> Vec<StoreNumber> {
        let mut state = self.state.lock();
        if state.is_unread {
            return Vec::new();
        }
        let parts = state.parts.len();
        let behind = state.copies.iter_mut().filter(|copy| !copy.is_sending && copy.failure.is_none());
        let behind = behind.filter(|copy| copy.has < parts).map(|copy| {
            copy.is_sending = true;
            copy.store
        });
        behind.collect()
    }

    /// `None`: it has all, and the caller sends no more.
    pub(super) fn lacking(&self, store: StoreNumber) -> Option<Lacking> {
        let mut state = self.state.lock();
        let until = state.parts.len();
        let copy = state.copies.iter_mut().find(|copy| copy.store == store)?;
        assert!(copy.is_sending && copy.has <= until, "S1, S2");
        if copy.has == until {
            copy.is_sending = false;
            return None;
        }
        let has = copy.has;
        let before = state.parts[..has].iter().map(|part| part.end).max().unwrap_or(0);
        Some(Lacking { parts: joined(&state.parts[has..]), until, before })
    }

    pub(super) fn has(&self, store: StoreNumber, until: usize) {
        self.change(store, |copy| {
            assert!(copy.has <= until, "S1");
            copy.has = until;
        });
    }

    /// What the store had of it is gone.
    pub(super) fn lost(&self, store: StoreNumber) {
        self.change(store, |copy| copy.has = 0);
    }

    /// What stores have that are not part of the volume any more, or away for long, is nothing; those of them that counted until now.
    pub(super) fn gone(&self, is_gone: &dyn Fn(StoreNumber) -> bool) -> Vec<StoreNumber> {
        let mut gone = Vec::new();
        for copy in &mut self.state.lock().copies {
            if (copy.has > 0 || copy.failure.is_none()) && is_gone(copy.store) {
                // What is being sent to it fails, or counts until this is called again.
                (copy.has, copy.failure) = (0, Some("it is detached, or away for long".to_owned()));
                gone.push(copy.store);
            }
        }
        self.changed.notify(usize::MAX);
        gone
    }

    pub(super) fn failed(&self, store: StoreNumber, why: String) {
        self.change(store, |copy| (copy.is_sending, copy.failure) = (false, Some(why)));
    }

    fn change(&self, store: StoreNumber, change: impl FnOnce(&mut OneCopy)) {
        if let Some(copy) = self.state.lock().copies.iter_mut().find(|copy| copy.store == store) {
            change(copy);
        }
        self.changed.notify(usize::MAX);
    }

    /// Which stores fail, and why.
    pub(super) fn failures(&self) -> String {
        let state = self.state.lock();
        let failed = state.copies.iter().filter_map(|copy| Some((copy.store.0, copy.failure.as_ref()?)));
        let failed: Vec<String> = failed.map(|(store, why)| format!("store {store}: {why}")).collect();
        failed.join("; ")
    }
}

/// Parts that follow one another as one. Runs of a pack begin at multiples of `ALIGN_BYTES`, and nobody writes the bytes between them: with
/// a request for each run, a store that is behind by a thousand small objects was behind for seconds.
pub(super) fn joined(parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = parts.iter().filter(|part| !part.is_empty()).cloned().collect();
    parts.sort_unstable_by_key(|part| part.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for part in parts {
        match all.last_mut().filter(|last| last.end.next_multiple_of(ALIGN_BYTES) >= part.start) {
            Some(last) => last.end = last.end.max(part.end),
            None => all.push(part),
        }
    }
    all
}

/// Whole blocks within parts that may touch: less than that frees nothing.
pub(super) fn blocks_of(parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let blocks = joined(parts)
        .into_iter()
        .map(|part| part.start.next_multiple_of(BLOCK_BYTES)..part.end / BLOCK_BYTES * BLOCK_BYTES);
    blocks.filter(|part| part.start < part.end).collect()
}

/// What lies between parts that ascend, and behind them.
pub(super) fn gaps(parts: &[Range<u64>], len: u64) -> Vec<Range<u64>> {
    let starts = std::iter::once(0).chain(parts.iter().map(|part| part.end));
    let ends = parts.iter().map(|part| part.start).chain([len]);
    starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use margay_env::Env;
    use margay_segment::{Extent, Options, RunLength, Segments, Store, StoreName};

    use super::*;

    const ONE: StoreNumber = StoreNumber(1);
    const TWO: StoreNumber = StoreNumber(2);

    #[test]
    fn a_store_has_what_it_was_sent_and_one_that_failed_goes_on_where_it_was() {
        let copied = Copied::new(SegmentId(7), Kind::Pack);
        copied.wrote(64..100);
        assert!(!copied.lacks_beginning());
        copied.join(ONE);
        copied.join(TWO);
        copied.join(TWO);
        assert_eq!(copied.behind(), [ONE, TWO]);
        assert!(copied.behind().is_empty(), "one task sends to a store");
        let lacking = copied.lacking(ONE).unwrap();
        // The header goes with the first part.
        assert_eq!((&lacking.parts[0], lacking.parts.len(), lacking.until, lacking.before), (&(0..100), 1, 2, 0));
        copied.wrote(100..120);
        copied.wrote(200..210);
        copied.has(ONE, 2);
        assert_eq!(copied.count(), Count { have: 0, sending: 2, sending_behind: 2 });
        assert_eq!(copied.count_of(2), Count { have: 1, sending: 2, sending_behind: 1 });
        copied.failed(TWO, "gone".to_owned());
        assert_eq!(copied.count(), Count { have: 0, sending: 1, sending_behind: 1 });
        assert_eq!(copied.failures(), "store 2: gone");
        let lacking = copied.lacking(ONE).unwrap();
        assert_eq!((lacking.parts, lacking.until, lacking.before), (vec![100..120, 200..210], 4, 100));
        copied.lost(ONE);
        assert_eq!(copied.lacking(ONE).unwrap().parts, [0..120, 200..210]);
        copied.has(ONE, 4);
        assert!(copied.lacking(ONE).is_none());
        copied.revive(&|_| false);
        assert!(copied.behind().is_empty());
        copied.revive(&|store| store == TWO);
        assert_eq!(copied.behind(), [TWO]);
        assert_eq!(copied.lacking(TWO).unwrap().parts, [0..120, 200..210]);
        assert_eq!(joined(&[25..27, 1..1, 0..2, 2..3, 26..26]), [0..3, 25..27]);
        assert_eq!(joined(&[0..13, 16..20, 25..30]), [0..20, 25..30], "what aligns two runs is sent with them");
    }

    #[test]
    fn a_store_that_is_gone_has_nothing_and_gets_all_when_it_comes_back() {
        let copied = Copied::new(SegmentId(7), Kind::Pack);
        copied.wrote(64..100);
        [ONE, TWO].into_iter().for_each(|store| copied.join(store));
        assert_eq!(copied.behind(), [ONE, TWO]);
        [ONE, TWO].into_iter().for_each(|store| copied.has(store, 2));
        assert!(copied.lacking(ONE).is_none() && copied.lacking(TWO).is_none());
        assert_eq!(copied.count(), Count { have: 2, sending: 2, sending_behind: 0 });
        assert_eq!(copied.gone(&|store| store == TWO), [TWO]);
        assert_eq!(copied.count(), Count { have: 1, sending: 1, sending_behind: 0 });
        assert!(copied.gone(&|store| store == TWO).is_empty() && copied.behind().is_empty());
        assert_eq!((copied.sent_to(), copied.tried()), (vec![ONE], vec![ONE, TWO]));
        // One that had failed before has counted too.
        copied.failed(ONE, "gone".to_owned());
        assert_eq!((copied.gone(&|_| true), copied.count().have), (vec![ONE], 0));
        copied.revive(&|store| store == TWO);
        assert_eq!(copied.behind(), [TWO]);
        assert_eq!(copied.lacking(TWO).unwrap().parts, [Range { start: 0, end: 100 }]);
    }

    fn store(folder: &std::path::Path, number: u16) -> std::sync::Arc<Store> {
        let store = Store::open(Env::real(), Options::new(folder)).unwrap();
        store.attach(StoreName { number: StoreNumber(number), generation: 1, ..store.name() }).unwrap();
        store
    }

    /// What is sent now, as a request that may arrive later.
    fn request(from: &Store, copied: &Copied, to: StoreNumber) -> Vec<(u64, Vec<u8>)> {
        let lacking = copied.lacking(to).unwrap();
        copied.has(to, lacking.until);
        let read = |part: Range<u64>| {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            from.file(copied.id).unwrap().read_exact_at(&mut bytes, part.start).unwrap();
            (part.start, bytes)
        };
        lacking.parts.into_iter().map(read).collect()
    }

    #[test]
    fn a_request_that_arrives_last_overwrites_nothing() {
        for has_copies_from_the_start in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let (from, to) = (store(&folder.path().join("from"), 1), store(&folder.path().join("to"), 2));
            let mut early = from.begin(RunLength::Exact(5000), b"early").unwrap();
            let mut other = from.begin(RunLength::Exact(4000), b"other").unwrap();
            assert_eq!(early.segment(), other.segment());
            assert!(from.is_written(early.segment()));
            let copied = Copied::new(early.segment(), Kind::Pack);
            other.write(&[2; 4000]).unwrap();
            let second = other.end().unwrap();
            copied.wrote(other.written());
            copied.join(TWO);
            assert_eq!(copied.behind(), [TWO]);
            // Another writer has reserved what lies before it, and not written it.
            let late = request(&from, &copied, TWO);
            assert!(copied.lacks_beginning());
            early.write(&[1; 5000]).unwrap();
            let first = early.end().unwrap();
            if has_copies_from_the_start {
                copied.wrote(early.written());
                assert!(!copied.lacks_beginning());
            } else {
                from.seal(copied.id).unwrap();
                drop(other);
                assert!(from.is_written(copied.id), "one still writes");
                drop(early);
                let info = from.listed(copied.id).unwrap();
                assert!(!info.open && !from.is_written(copied.id));
                // Somebody reads it.
                let _pin = from.pin(copied.id).unwrap();
                assert!(from.listed(copied.id).unwrap().open && !from.is_written(copied.id));
                copied.finish(info.len);
                copied.finish(info.len);
            }
            for (offset, bytes) in request(&from, &copied, TWO).into_iter().chain(late) {
                to.write_copy(copied.id, Kind::Pack, offset, &bytes).unwrap();
            }
            assert!(copied.lacking(TWO).is_none());
            [first, second].into_iter().for_each(|run| to.verify(&Extent::whole(run)).unwrap());
        }
    }

    #[test]
    fn what_no_part_has_is_between_them_and_behind() {
        assert_eq!(gaps(&[2..5, 7..9], 20), [0..2, 5..7, 9..20]);
        assert_eq!(gaps(&[0..5, 7..9, 11..20], 20), [5..7, 9..11]);
        assert!(blocks_of(&[8000..9000, 5000..8000, 100..4000, 4096..4097]).is_empty());
        assert_eq!(blocks_of(&[8000..13_000, 0..4096, 5000..8000]), [0..4096, 8192..12_288]);
        assert!(gaps(&[], 0).is_empty() && gaps(&[0..2, 2..4], 4).is_empty());
    }
}
