//! In how many racks the copies of a segment are, and are to be.
//!
//! Why:        a pool that has a segment is in a rack too, as what counts its copies sees it.
//! Locking:    none here; what it reads are leaves.
//! Not here:   which store is chosen (targets).

use margay_segment::{SegmentId, StoreNumber};

use super::Inner;

impl Inner {
    /// Whether these stores, with the own one, are in as many racks as copies are to be in.
    pub(super) fn is_spread(&self, stores: &[StoreNumber]) -> bool {
        self.targets.numbers().racks_of(stores.iter().copied()) >= self.racks_wanted()
    }

    /// In so many racks copies are to be.
    pub(super) fn racks_wanted(&self) -> usize {
        let numbers = self.targets.numbers();
        usize::from(numbers.racks.max(numbers.copies.min(2)))
    }

    /// Pools that have a segment.
    pub(super) fn pools_with(&self, id: SegmentId) -> Vec<StoreNumber> {
        let (stores, numbers) = (self.stores.lock(), self.targets.numbers());
        stores.get(&id).into_iter().flatten().copied().filter(|store| numbers.is_pool(*store)).collect()
    }

    /// Whether a segment that these stores, its pools and the own one have can be in more racks.
    pub(super) fn may_spread(&self, id: SegmentId, others: &[StoreNumber]) -> bool {
        let all = [others, &self.pools_with(id), &[self.own_number()]].concat();
        !others.is_empty() && !self.is_spread(&all) && self.targets.choose_rack(id, &all, &[]).is_some()
    }

    /// In how many racks a segment is that these stores and the own one have.
    pub(super) fn racks_with(&self, others: &[StoreNumber]) -> u8 {
        let all = others.iter().copied().chain([self.own_number()]);
        u8::try_from(self.targets.numbers().racks_of(all)).unwrap_or(u8::MAX)
    }
}
