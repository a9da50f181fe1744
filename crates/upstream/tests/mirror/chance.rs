//! Numbers by a seed, and from the environment.

#[derive(Default)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn by(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    pub(crate) fn of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize].clone()
    }
}

/// A number from the environment: a night's seeds.
pub(crate) fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}
