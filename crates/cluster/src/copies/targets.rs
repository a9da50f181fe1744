//! Which stores get copies.
//!
//! Why:        rows say which stores a process has open; what fails is left alone for a while.
//! Invariants: T1 a segment's stores are chosen by its id, so that each store has about as many copies as any other.
//!             T2 a store in a rack that has no copy yet comes before any other that can be asked.
//!             T3 a store that is suspended, or is a gateway's own, gets nothing new; what it has counts. Only a write that would fail for
//!                want of another store goes to one that is suspended and still there.
//! Not here:   when a segment needs another store (copies, upkeep).

use std::collections::HashMap;
use std::time::Duration;

use margay_segment::{Kind, SegmentId, StoreNumber};
use margay_volume::{CopiesRecord, Error, known_stores, read_copies};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Inner;

/// A store that has failed is not asked again for so long.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// Copies at a store that was not open for so long are made elsewhere too.
const LONG_GONE_AFTER: Duration = Duration::from_secs(600);

/// How much a store is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nobody waits for it: one that has failed is left alone for a while.
    Spare,
    /// Somebody waits, and would be answered sooner: one that has failed may be there again.
    Sooner,
    /// Without it a write fails: one that is suspended is better than none.
    Write,
}

impl Need {
    /// Of one more beside those that are sent to.
    pub(super) fn of(sending: usize, needed: usize, more: usize) -> Need {
        match sending {
            _ if sending < needed => Need::Write,
            _ if sending < needed + more => Need::Sooner,
            _ => Need::Spare,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Targets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    numbers: CopiesRecord,
    /// Other stores that a process has open, with their generations.
    live: HashMap<StoreNumber, u64>,
    failed: HashMap<StoreNumber, Instant>,
    /// When a store was seen open the last time.
    seen: HashMap<StoreNumber, Instant>,
    began: Option<Instant>,
    /// Bytes of the segments that a store has, as rows said when copies were moved last.
    fill: HashMap<StoreNumber, u64>,
}

impl State {
    /// A pool counts as open, and may be silent all the same.
    fn is_open(&self, store: StoreNumber) -> bool {
        (self.live.contains_key(&store) || self.numbers.is_pool(store)) && !self.numbers.detached.contains(&store)
    }

    /// Whether it may get copies (T3).
    fn is_target(&self, store: StoreNumber) -> bool {
        self.is_usable(store) && self.takes_new(store)
    }

    fn takes_new(&self, store: StoreNumber) -> bool {
        !self.numbers.suspended.contains(&store) && self.numbers.takes_copies(store)
    }

    fn is_usable(&self, store: StoreNumber) -> bool {
        let is_left_alone = self.failed.get(&store).is_some_and(|at| at.elapsed() < LEFT_ALONE);
        self.is_open(store) && !is_left_alone
    }
}

impl Targets {
    /// Reads the rows.
    pub(super) fn look(&self, inner: &Inner) -> Result<(), Error> {
        let numbers = read_copies(&*inner.peers.engine)?;
        let own = inner.own_number();
        let known = known_stores(&*inner.peers.engine)?;
        let others = known.into_iter().filter(|known| known.number != own && known.address.is_some());
        let live: HashMap<StoreNumber, u64> = others.map(|known| (known.number, known.generation)).collect();
        inner.peers.pools.set(&numbers.pools);
        if numbers.copies > 1 && self.numbers().copies < 2 {
            seal_packs(inner);
        }
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.began.get_or_insert(now);
        state.seen.extend(live.keys().map(|store| (*store, now)));
        (state.numbers, state.live) = (numbers, live);
        Ok(())
    }

    pub(super) fn numbers(&self) -> CopiesRecord {
        self.0.lock().numbers.clone()
    }

    /// Other stores that a process has open, and how often they were opened.
    pub(super) fn live(&self) -> HashMap<StoreNumber, u64> {
        self.0.lock().live.clone()
    }

    /// Whether a store was not open for so long that what it has is copied elsewhere.
    pub(super) fn is_long_gone(&self, store: StoreNumber) -> bool {
        let state = self.0.lock();
        let last = state.seen.get(&store).copied().or(state.began);
        let is_suspended = state.numbers.suspended.contains(&store);
        !is_suspended && !state.numbers.is_pool(store) && last.is_some_and(|last| last.elapsed() >= LONG_GONE_AFTER)
    }

    pub(super) fn is_usable(&self, store: StoreNumber) -> bool {
        self.0.lock().is_usable(store)
    }

    /// Whether a process has the store open, also if it has just failed.
    pub(super) fn is_open(&self, store: StoreNumber) -> bool {
        self.0.lock().is_open(store)
    }

    /// Whether new copies may go there once it is reached (T3).
    pub(super) fn takes_new(&self, store: StoreNumber) -> bool {
        self.0.lock().takes_new(store)
    }

    /// Stores that may get copies now.
    pub(super) fn usable(&self, except: &[StoreNumber]) -> Vec<StoreNumber> {
        let state = self.0.lock();
        let usable = state.live.keys().copied().filter(|store| !except.contains(store) && state.is_target(*store));
        usable.collect()
    }

    /// A store for a segment (T1, T2), which is at `has`.
    pub(super) fn choose(
        &self,
        id: SegmentId,
        (has, except): (&[StoreNumber], &[StoreNumber]),
        need: Need,
    ) -> Option<StoreNumber> {
        let state = self.0.lock();
        let may_be = |store: &StoreNumber| match need {
            Need::Spare => state.is_target(*store),
            Need::Sooner => state.is_open(*store) && state.takes_new(*store),
            Need::Write => state.is_open(*store) && state.numbers.takes_copies(*store),
        };
        let is_new = |store: &StoreNumber| !has.contains(store) && !except.contains(store);
        let open = state.live.keys().copied().filter(|store| is_new(store) && may_be(store));
        let is_rack_new =
            |store: StoreNumber| has.iter().all(|one| state.numbers.rack(*one) != state.numbers.rack(store));
        open.max_by_key(|store| (state.is_target(*store), is_rack_new(*store), weight(id, *store)))
    }

    /// As `choose`, only in a rack that has no copy.
    pub(super) fn choose_rack(
        &self,
        id: SegmentId,
        has: &[StoreNumber],
        except: &[StoreNumber],
    ) -> Option<StoreNumber> {
        let store = self.choose(id, (has, except), Need::Spare)?;
        let numbers = self.numbers();
        has.iter().all(|one| numbers.rack(*one) != numbers.rack(store)).then_some(store)
    }

    /// 0: not known.
    pub(super) fn fill(&self, store: StoreNumber) -> u64 {
        self.0.lock().fill.get(&store).copied().unwrap_or_default()
    }

    pub(super) fn filled(&self, fill: HashMap<StoreNumber, u64>) {
        self.0.lock().fill = fill;
    }

    /// Whether no other server with a lower number runs that is part of the volume.
    pub(super) fn is_lowest_of_live(&self, own: StoreNumber) -> bool {
        let state = self.0.lock();
        state.live.keys().all(|store| *store > own || !state.is_open(*store))
    }

    pub(super) fn failed(&self, store: StoreNumber) {
        self.0.lock().failed.insert(store, Instant::now());
    }
}

/// What was written before copies are made is copied whole, once nothing is added to it: in a pack that went on, it would come last, and
/// rows would name the copy before.
fn seal_packs(inner: &Inner) {
    let own = inner.own_number();
    let open = inner.own.segments().into_iter().filter(|info| info.open && info.kind == Kind::Pack);
    for info in open.filter(|info| info.id.made_by() == own) {
        if let Err(error) = inner.own.seal(info.id) {
            tracing::warn!(segment = ?info.id, %error, "a pack is sealed later");
        }
    }
}

/// The store with the highest weight has the segment (rendezvous hashing).
pub(super) fn weight(id: SegmentId, store: StoreNumber) -> u64 {
    // The finalizer of SplitMix64: each bit of the input changes half of those of the output.
    let mut bits = id.0 ^ u64::from(store.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use margay_volume::Role;

    use super::*;

    #[test]
    fn stores_get_about_as_many_segments_each_and_one_that_fails_gets_none() {
        let targets = Targets::default();
        targets.0.lock().live = (1..=4).map(|number| (StoreNumber(number), 1)).collect();
        let mut counts = [0; 5];
        for id in 1..=4000 {
            let store = targets.choose(SegmentId(id), (&[], &[]), Need::Spare).unwrap();
            counts[usize::from(store.0)] += 1;
            let next = targets.choose(SegmentId(id), (&[store], &[]), Need::Spare).unwrap();
            assert_ne!(next, store);
        }
        assert!(counts[1..].iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        targets.failed(StoreNumber(2));
        targets.0.lock().numbers.detached = vec![StoreNumber(3)];
        let mut usable = targets.usable(&[StoreNumber(1)]);
        usable.sort_unstable();
        assert_eq!(usable, [StoreNumber(4)]);
        // One that failed, if there is no other one.
        let rest = [StoreNumber(1), StoreNumber(4)];
        assert_eq!(targets.choose(SegmentId(1), (&rest, &[]), Need::Write), Some(StoreNumber(2)));
        assert_eq!(targets.choose(SegmentId(1), (&[], &rest), Need::Spare), None, "nobody waits for it");
        assert_eq!(targets.choose(SegmentId(1), (&rest, &[StoreNumber(2)]), Need::Write), None);
        assert!(targets.is_open(StoreNumber(2)) && !targets.is_open(StoreNumber(3)));
    }

    #[test]
    fn a_rack_without_a_copy_comes_first_and_a_suspended_store_gets_none() {
        let targets = Targets::default();
        {
            let mut state = targets.0.lock();
            state.live = (1..=4).map(|number| (StoreNumber(number), 1)).collect();
            let racks = [(0, "a"), (1, "a"), (2, "a"), (3, "b")];
            state.numbers.rack_of =
                racks.into_iter().map(|(store, rack)| (StoreNumber(store), rack.to_owned())).collect();
        }
        let [zero, three, four] = [0, 3, 4].map(StoreNumber);
        for id in (1..200).map(SegmentId) {
            let first = targets.choose(id, (&[zero], &[]), Need::Spare).unwrap();
            // Store 4 has no rack, which is a rack too.
            assert!([three, four].contains(&first), "{first:?}");
            let second = targets.choose(id, (&[zero, first], &[]), Need::Spare).unwrap();
            assert!([three, four].contains(&second) && first != second);
            assert!(targets.choose_rack(id, &[zero, first, second], &[]).is_none());
            assert!(targets.choose(id, (&[zero, first, second], &[]), Need::Spare).is_some());
        }
        targets.0.lock().numbers.suspended = vec![three];
        for id in (1..200).map(SegmentId) {
            assert_eq!(targets.choose(id, (&[zero], &[]), Need::Spare), Some(four));
            assert_ne!(targets.choose(id, (&[zero, four], &[]), Need::Spare), Some(three));
        }
        assert!(targets.is_usable(three) && !targets.is_long_gone(three));
        // Nor for a write that waits for one that stands still.
        assert_eq!(targets.choose(SegmentId(9), (&[1, 2, 4].map(StoreNumber), &[]), Need::Sooner), None);
        targets.0.lock().numbers.role_of = [(three, Role::Endpoint), (four, Role::Gateway)].into();
        // It has no place for what others write, whatever they lack.
        let others = [1, 2].map(StoreNumber);
        assert_eq!(targets.choose(SegmentId(9), (&others, &[]), Need::Write), Some(three));
        assert_eq!(targets.choose(SegmentId(9), (&[1, 2, 3].map(StoreNumber), &[]), Need::Write), None);
        assert!(targets.is_usable(four) && !targets.usable(&[]).contains(&four));
        targets.0.lock().numbers.role_of.clear();
        // Better than none.
        let others = [1, 2, 4].map(StoreNumber);
        assert_eq!(targets.choose(SegmentId(9), (&others, &[]), Need::Spare), None);
        assert_eq!(targets.choose(SegmentId(9), (&others, &[]), Need::Write), Some(three));
    }
}
