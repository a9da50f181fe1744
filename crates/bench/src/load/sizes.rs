//! How large objects are: a size, a range, or ranges by weight.

use std::fmt;
use std::str::FromStr;

use crate::random::Rng;
use crate::weighted::Weighted;

/// The largest object that one PUT may carry, in bytes.
const OBJECT_BYTES_MAX: u64 = 5 << 30;

/// Sizes of objects in bytes, both ends included, each as likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    pub least: u64,
    pub most: u64,
}

impl SizeRange {
    fn draw(self, rng: &mut Rng) -> u64 {
        self.least + rng.below(self.most - self.least + 1)
    }
}

/// A number of bytes such as 4096, 4k, 64m or 1g.
pub(crate) fn byte_count(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit) = match lower.char_indices().last() {
        Some((at, 'k')) => (&lower[..at], 1 << 10),
        Some((at, 'm')) => (&lower[..at], 1 << 20),
        Some((at, 'g')) => (&lower[..at], 1 << 30),
        _ => (lower.as_str(), 1),
    };
    digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit))
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    match byte_count(text) {
        Some(bytes) if bytes <= OBJECT_BYTES_MAX => Ok(bytes),
        _ => Err(format!("{text:?} is no size up to 5g, such as 4096, 4k or 64m")),
    }
}

impl FromStr for SizeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeRange, String> {
        let (least, most) = match text.split_once('-') {
            Some((least, most)) => (parse_bytes(least)?, parse_bytes(most)?),
            None => (parse_bytes(text)?, parse_bytes(text)?),
        };
        if least > most {
            Err(format!("{text}: the range ends before it begins"))
        } else {
            Ok(SizeRange { least, most })
        }
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(out, "{}", self.least)
        } else {
            write!(out, "{}-{}", self.least, self.most)
        }
    }
}

/// Ranges of sizes by weight; a range without one has weight 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Weighted<SizeRange>);

impl Sizes {
    /// The size of an object, in bytes.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        self.0.pick(rng.below(self.0.total())).draw(rng)
    }

    /// Whether an object may be this large.
    pub(super) fn hold(&self, bytes: u64) -> bool {
        self.0.parts().iter().any(|(range, weight)| *weight > 0 && (range.least..=range.most).contains(&bytes))
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let part = |part: &str| {
            let (range, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight = weight.trim().parse().map_err(|_| format!("{part:?}: give sizes as SIZE[:WEIGHT],..."))?;
            Ok((range.parse()?, weight))
        };
        Weighted::new(text.split(',').map(part).collect::<Result<_, String>>()?).map(Sizes)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.parts();
        for (index, (range, weight)) in parts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match parts.len() {
                1 => write!(out, "{range}")?,
                _ => write!(out, "{comma}{range}:{weight}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_or_refused() {
        assert_eq!("4k".parse(), Ok(SizeRange { least: 4096, most: 4096 }));
        assert_eq!("1k-4K".parse(), Ok(SizeRange { least: 1024, most: 4096 }));
        assert_eq!("0-64m".parse(), Ok(SizeRange { least: 0, most: 64 << 20 }));
        for wrong in ["", "k", "4k-1k", "-1", "1.5k", "6g", "99999999999999999999g", "4\u{e9}"] {
            assert!(wrong.parse::<SizeRange>().is_err(), "{wrong}");
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
        for wrong in ["4k:", "4k:0", "4k:-1", "4k:1,", "4k:1:1", "4k:99999999999"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
        for (text, shown) in [("4k", "4096"), ("1-2:3", "1-2"), ("1k:2,2-9:3", "1024:2,2-9:3"), ("1,2", "1:1,2:1")] {
            let sizes: Sizes = text.parse().unwrap();
            assert_eq!(sizes.to_string(), shown);
            assert_eq!(shown.parse::<Sizes>().unwrap().to_string(), shown, "what is shown can be given");
        }
    }

    #[test]
    fn sizes_come_by_their_weights() {
        let sizes: Sizes = "1-10:1,100:0,1000-1001:3".parse().unwrap();
        let mut rng = Rng::new(5);
        let mut large = 0;
        for _ in 0..40_000 {
            let bytes = sizes.draw(&mut rng);
            assert!((1..=10).contains(&bytes) || (1000..=1001).contains(&bytes));
            assert!(sizes.hold(bytes));
            large += u32::from(bytes >= 1000);
        }
        assert!((29_500..30_500).contains(&large), "{large}");
        assert!(!sizes.hold(0) && !sizes.hold(11) && !sizes.hold(100) && !sizes.hold(1002));
    }
}
