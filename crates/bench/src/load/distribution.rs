//! Which of the prepared objects a request is about.
//!
//! Why:        caches and indexes behave differently under even, skewed and ordered access, so a load says which it is.
//! Invariants: D1 an index is below the number of keys. D2 choosing needs neither a table nor shared state, so that
//!             100 million keys cost what ten do. D3 popular keys of `zipf` are spread over all names.
//! Source:     zipf: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
//!             distributions" (1996). pareto: basho_bench's `pareto_int`, mean a fifth of the keys, shape 1.5.

use std::fmt;
use std::str::FromStr;

use crate::random::Rng;

/// A prime above the most keys, so that multiplying by it is one to one modulo their number.
const SPREAD: u64 = 2_654_435_761;
/// What YCSB takes, too.
const ZIPF_DEFAULT: f64 = 0.99;
const ZIPF_MAX: f64 = 5.0;
const PARETO_SHAPE: f64 = 1.5;
const PARETO_MEAN: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each key as often.
    Uniform,
    /// Every connection goes through its own part of the keys, in order, again and again.
    Sequential,
    /// The key of rank r comes in proportion to r to the power of minus this.
    Zipf(f64),
    /// About 80 % of the requests for the first 20 % of the keys.
    Pareto,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let exponent = |text: &str| text.parse().ok().filter(|exponent| (0.01..=ZIPF_MAX).contains(exponent));
        match text.split_once(':') {
            None if text == "uniform" => Ok(Distribution::Uniform),
            None if text == "sequential" => Ok(Distribution::Sequential),
            None if text == "pareto" => Ok(Distribution::Pareto),
            None if text == "zipf" => Ok(Distribution::Zipf(ZIPF_DEFAULT)),
            Some(("zipf", number)) if exponent(number).is_some() => {
                Ok(Distribution::Zipf(exponent(number).expect("seen in the guard")))
            }
            _ => Err(format!("{text:?} is none of uniform, sequential, pareto, zipf and zipf:EXPONENT (0.01 to 5)")),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => write!(out, "uniform"),
            Distribution::Sequential => write!(out, "sequential"),
            Distribution::Zipf(exponent) => write!(out, "zipf:{exponent}"),
            Distribution::Pareto => write!(out, "pareto"),
        }
    }
}

/// What one connection chooses with.
#[derive(Clone, Debug)]
pub(super) enum Chooser {
    Uniform { keys: u64 },
    Sequential { first: u64, count: u64, next: u64 },
    Zipf { keys: u64, zipf: Zipf },
    Pareto { keys: u64 },
}

impl Chooser {
    /// For connection `number` of so many.
    pub(super) fn new(distribution: Distribution, keys: u64, number: u64, connections: u64) -> Chooser {
        match distribution {
            Distribution::Uniform => Chooser::Uniform { keys },
            Distribution::Sequential => {
                let edge = |number| (u128::from(keys) * u128::from(number) / u128::from(connections)) as u64;
                let (first, end) = (edge(number), edge(number + 1));
                // With more connections than keys some share a key.
                Chooser::Sequential { first: first.min(keys - 1), count: (end - first).max(1), next: 0 }
            }
            Distribution::Zipf(exponent) => Chooser::Zipf { keys, zipf: Zipf::new(keys, exponent) },
            Distribution::Pareto => Chooser::Pareto { keys },
        }
    }

    /// The index of a key.
    pub(super) fn next(&mut self, rng: &mut Rng) -> u64 {
        match self {
            Chooser::Uniform { keys } => rng.below(*keys),
            Chooser::Sequential { first, count, next } => {
                let index = *first + *next;
                *next = (*next + 1) % *count;
                index
            }
            Chooser::Zipf { keys, zipf } => {
                let rank = zipf.rank(rng) - 1;
                (u128::from(rank) * u128::from(SPREAD) % u128::from(*keys)) as u64
            }
            Chooser::Pareto { keys } => loop {
                let scale = PARETO_MEAN * (PARETO_SHAPE - 1.0) * *keys as f64;
                let index = (((1.0 - rng.unit()).powf(-1.0 / PARETO_SHAPE) - 1.0) * scale) as u64;
                // The tail goes beyond the keys: about one draw in 36.
                if index < *keys {
                    return index;
                }
            },
        }
    }
}

/// Ranks from 1 to `count`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    count: f64,
    exponent: f64,
    /// The area under the curve up to the middle after rank 1, less its bar; and up to the end.
    from: f64,
    to: f64,
    /// Draws so close above their rank need no second look.
    surely: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { count: count as f64, exponent, from: 0.0, to: 0.0, surely: 0.0 };
        zipf.from = zipf.area(1.5) - 1.0;
        zipf.to = zipf.area(zipf.count + 0.5);
        zipf.surely = 2.0 - zipf.place(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of the height from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-9 { x.ln() } else { (x.powf(power) - 1.0) / power }
    }

    /// The inverse of the area.
    fn place(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-9 { area.exp() } else { (1.0 + area * power).max(0.0).powf(1.0 / power) }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.to + rng.unit() * (self.from - self.to);
            let x = self.place(area);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.surely || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn counts(distribution: Distribution, keys: u64) -> Vec<u64> {
        let (mut counts, mut rng) = (vec![0; keys as usize], Rng::new(3));
        let mut chooser = Chooser::new(distribution, keys, 0, 1);
        (0..DRAWS).for_each(|_| counts[chooser.next(&mut rng) as usize] += 1);
        counts
    }

    #[test]
    fn zipf_comes_in_its_proportions_on_scattered_keys() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let (keys, mut found) = (1000_u64, counts(Distribution::Zipf(exponent), 1000));
            let hottest = (1..keys).map(|rank| rank * SPREAD % keys).take(4);
            let neighbours: Vec<u64> = hottest.filter(|index| *index < 5).collect();
            assert!(neighbours.is_empty(), "the popular ones are not the first names");
            found.sort_unstable_by(|a, b| b.cmp(a));
            let sum: f64 = (1..=keys).map(|rank| (rank as f64).powf(-exponent)).sum();
            for rank in [1_usize, 2, 3, 10] {
                let wanted = DRAWS as f64 * (rank as f64).powf(-exponent) / sum;
                let got = found[rank - 1] as f64;
                assert!((got - wanted).abs() < 6.0 * wanted.sqrt() + 1.0, "{exponent} rank {rank}: {got} of {wanted}");
            }
        }
    }

    #[test]
    fn pareto_is_eighty_to_twenty() {
        let counts = counts(Distribution::Pareto, 1000);
        let first = counts[..200].iter().sum::<u64>() as f64 / DRAWS as f64;
        assert!((0.80..0.86).contains(&first), "{first}");
        assert!(counts[900..].iter().sum::<u64>() > 0);
    }

    #[test]
    fn uniform_leaves_nobody_out() {
        let counts = counts(Distribution::Uniform, 100);
        assert!(counts.iter().all(|count| (1700..2300).contains(count)), "{counts:?}");
    }

    #[test]
    fn sequential_parts_cover_all_keys_once() {
        let mut rng = Rng::new(1);
        for (keys, connections) in [(10, 3), (7, 7), (1, 1), (100, 64)] {
            let mut seen: Vec<u64> = Vec::new();
            for number in 0..connections {
                let mut chooser = Chooser::new(Distribution::Sequential, keys, number, connections);
                let first = chooser.next(&mut rng);
                seen.push(first);
                loop {
                    match chooser.next(&mut rng) {
                        again if again == first => break,
                        index => seen.push(index),
                    }
                }
            }
            assert_eq!(seen, (0..keys).collect::<Vec<_>>(), "{keys} keys, {connections} connections");
        }
        let mut crowded = Chooser::new(Distribution::Sequential, 2, 9, 10);
        assert!((0..4).all(|_| crowded.next(&mut rng) < 2));
    }

    #[test]
    fn few_keys_are_enough() {
        for distribution in ["uniform", "sequential", "zipf", "zipf:1", "zipf:5", "pareto"] {
            let distribution: Distribution = distribution.parse().unwrap();
            for keys in [1, 2, 3] {
                let (mut chooser, mut rng) = (Chooser::new(distribution, keys, 0, 1), Rng::new(9));
                assert!((0..1000).all(|_| chooser.next(&mut rng) < keys), "{distribution} of {keys}");
            }
        }
        for wrong in ["", "zipf:", "zipf:0", "zipf:6", "zipf:NaN", "pareto:1", "even"] {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
        }
    }
}
