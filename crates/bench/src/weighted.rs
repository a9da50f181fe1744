//! A choice by weights: a mix of operations, a mix of sizes.
//!
//! Invariants: the weights add up to more than nothing, and to less than a u64 holds.

/// Things with their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Weighted<T> {
    parts: Vec<(T, u32)>,
    total: u64,
}

impl<T> Weighted<T> {
    /// Err when all weights are 0.
    pub(crate) fn new(parts: Vec<(T, u32)>) -> Result<Weighted<T>, String> {
        let total = parts.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if total == 0 { Err("the shares add up to nothing".to_owned()) } else { Ok(Weighted { parts, total }) }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn parts(&self) -> &[(T, u32)] {
        &self.parts
    }

    /// The thing for a number below [`Weighted::total`].
    pub(crate) fn pick(&self, number: u64) -> &T {
        assert!(number < self.total, "a share of the total");
        let mut rest = number;
        for (thing, weight) in &self.parts {
            if rest < u64::from(*weight) {
                return thing;
            }
            rest -= u64::from(*weight);
        }
        unreachable!("the shares make up the total")
    }
}
