//! The options of `margay bench load`.

use std::str::FromStr;

use crate::frame::FrameArgs;

/// The largest object that one PUT may carry, in bytes.
const OBJECT_BYTES_MAX: u64 = 5 << 30;
/// The most connections of one run; each is a socket here and at the server.
const CONNECTIONS_MAX: u64 = 100_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench load --mix put=100 --size 1k-4k
  margay bench load --mix get=95,put=5 --keys 10000 --size 1k --verify
  margay bench load --mix get=100 --rate 5000 --seconds 30     (open loop: latency counts from when a request was due)
  margay bench load --mix put=100 --size 64m --connections 8 --payload signed --json")]
pub struct LoadArgs {
    #[command(flatten)]
    pub frame: FrameArgs,
    /// Connections, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub connections: u64,
    /// Threads that drive them [default: half of the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
    /// Measured time
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Time before that, under the same load, which is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub warmup_seconds: u64,
    /// Bytes of an object, or a range of which each is as likely: 4096, 4k, 1k-4k, 64m
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub size: SizeRange,
    /// Shares of put, get, head, list and delete
    #[arg(long, value_name = "OP=N,...", default_value = "get=90,put=10")]
    pub mix: Mix,
    /// Objects made beforehand when the mix reads
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// PUT writes over the objects made beforehand instead of making new ones
    #[arg(long)]
    pub overwrite: bool,
    /// Open loop: this many requests become due per second, whether or not earlier ones are answered
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// What the signature of a PUT or GET covers
    #[arg(long, value_enum, default_value_t = PayloadMode::Unsigned)]
    pub payload: PayloadMode,
    /// Send the measured requests without any signature
    #[arg(long)]
    pub anonymous: bool,
    /// Check the content of every GET
    #[arg(long)]
    pub verify: bool,
    /// The same seed gives the same choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PayloadMode {
    /// Only the headers (UNSIGNED-PAYLOAD)
    Unsigned,
    /// Headers and the SHA-256 of the body
    Signed,
}

/// Sizes of objects in bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    pub least: u64,
    pub most: u64,
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

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Put,
    Get,
    Head,
    List,
    Delete,
}

impl Operation {
    pub const ALL: [Operation; 5] =
        [Operation::Put, Operation::Get, Operation::Head, Operation::List, Operation::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Head => "head",
            Operation::List => "list",
            Operation::Delete => "delete",
        }
    }
}

/// Shares of the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    shares: Vec<(Operation, u64)>,
    total: u64,
}

impl Mix {
    /// The operation for a number below [`Mix::total`].
    pub fn pick(&self, number: u64) -> Operation {
        assert!(number < self.total, "a share of the total");
        let mut rest = number;
        for &(operation, share) in &self.shares {
            if rest < share {
                return operation;
            }
            rest -= share;
        }
        unreachable!("the shares make up the total")
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether an operation has a share.
    pub fn has(&self, operation: Operation) -> bool {
        self.shares.iter().any(|&(named, share)| named == operation && share > 0)
    }

    /// Whether objects must be there before the load begins.
    pub fn reads(&self) -> bool {
        [Operation::Get, Operation::Head, Operation::List].into_iter().any(|operation| self.has(operation))
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mut shares: Vec<(Operation, u64)> = Vec::new();
        for part in text.split(',') {
            let wrong = || format!("{part:?}: give the mix as put=N,get=N,head=N,list=N,delete=N");
            let (name, share) = part.split_once('=').ok_or_else(wrong)?;
            let operation = Operation::ALL.into_iter().find(|op| op.name() == name.trim()).ok_or_else(wrong)?;
            let share: u32 = share.trim().parse().map_err(|_| wrong())?;
            if shares.iter().any(|(seen, _)| *seen == operation) {
                return Err(format!("{name} is named twice"));
            }
            shares.push((operation, u64::from(share)));
        }
        let total = shares.iter().map(|(_, share)| share).sum();
        if total == 0 { Err("the shares add up to nothing".to_owned()) } else { Ok(Mix { shares, total }) }
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
        }
    }

    #[test]
    fn mixes_are_read_or_refused() {
        let mix: Mix = "get=95,put=5".parse().unwrap();
        assert!(mix.reads());
        let puts = (0..mix.total()).filter(|&number| mix.pick(number) == Operation::Put).count();
        assert_eq!((mix.total(), puts), (100, 5));
        assert!(!"put=1,delete=1".parse::<Mix>().unwrap().reads());
        for wrong in ["", "get", "get=x", "fly=1", "get=0", "get=1,get=2", "get=1,"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
