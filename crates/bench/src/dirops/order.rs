//! The orders in which the files of a directory are gone through.

use crate::random::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Forward,
    Reverse,
    /// The same seed gives the same order.
    Random {
        seed: u64,
    },
}

impl Order {
    /// Every number below `count`, once.
    pub(super) fn numbers(self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        match self {
            Order::Forward => {}
            Order::Reverse => numbers.reverse(),
            Order::Random { seed } => {
                let mut random = Rng::new(seed);
                for last in (1..numbers.len()).rev() {
                    numbers.swap(last, random.below(last as u64 + 1) as usize);
                }
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_names_each_file_once() {
        for order in [Order::Forward, Order::Reverse, Order::Random { seed: 1 }] {
            let mut numbers = order.numbers(100);
            assert_eq!(order == Order::Forward, numbers.is_sorted());
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        }
        assert_ne!(Order::Random { seed: 1 }.numbers(100), Order::Random { seed: 2 }.numbers(100));
    }
}
