//! Sets of numbered kinds, as bits: the settings of a bucket, the documents of an object.
//!
//! Why:        a row that is read anyway lists what else exists, so absent rows are never looked up.
//! Invariants: N1 a kind keeps its number for ever (`a_kind_has_its_place_as_number`); a decoded set contains only
//!                kinds that this program knows.
//! Not here:   the kinds (kinds).

use std::marker::PhantomData;

/// Kinds with numbers below 64.
pub trait Numbered: Copy + 'static {
    /// All kinds; the position of a kind is its number, so new ones are added at the end.
    const ALL: &'static [Self];

    /// The position of the kind in `ALL`.
    fn number(self) -> u8;
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOf<T> {
    bits: u64,
    of: PhantomData<T>,
}

impl<T> Default for SetOf<T> {
    fn default() -> SetOf<T> {
        SetOf { bits: 0, of: PhantomData }
    }
}

impl<T: Numbered> SetOf<T> {
    pub fn contains(self, kind: T) -> bool {
        self.bits & bit(kind) != 0
    }

    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// In the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = T> {
        T::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }

    pub fn insert(&mut self, kind: T) {
        self.bits |= bit(kind);
    }

    pub fn remove(&mut self, kind: T) {
        self.bits &= !bit(kind);
    }

    pub fn bits(self) -> u64 {
        self.bits
    }

    /// `None` if it contains a kind that this program does not know.
    pub fn from_bits(bits: u64) -> Option<SetOf<T>> {
        let all = T::ALL.iter().copied().collect::<SetOf<T>>();
        (bits & !all.bits == 0).then_some(SetOf { bits, of: PhantomData })
    }
}

impl<T: Numbered> FromIterator<T> for SetOf<T> {
    fn from_iter<I: IntoIterator<Item = T>>(kinds: I) -> SetOf<T> {
        let mut set = SetOf::default();
        kinds.into_iter().for_each(|kind| set.insert(kind));
        set
    }
}

fn bit<T: Numbered>(kind: T) -> u64 {
    const { assert!(T::ALL.len() <= 64, "a kind has a bit") };
    1 << kind.number()
}

/// The kind of this number, if this program knows it.
pub fn kind_of<T: Numbered>(number: u8) -> Option<T> {
    T::ALL.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use crate::kinds::{Document, Setting};

    use super::*;

    fn numbers_are_places<T: Numbered + PartialEq + std::fmt::Debug>() {
        assert!(T::ALL.len() <= 64);
        for (place, kind) in T::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.number()), place, "{kind:?}");
            assert_eq!(kind_of::<T>(kind.number()), Some(*kind));
        }
        let all: SetOf<T> = T::ALL.iter().copied().collect();
        assert_eq!(SetOf::<T>::from_bits(all.bits()).map(SetOf::bits), Some(all.bits()));
        assert!(SetOf::<T>::from_bits(1 << T::ALL.len()).is_none());
        assert_eq!(all.iter().collect::<Vec<T>>(), T::ALL);
    }

    #[test]
    fn a_kind_has_its_place_as_number() {
        numbers_are_places::<Setting>();
        numbers_are_places::<Document>();
    }
}
