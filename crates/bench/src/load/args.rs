//! The options of `margay bench load`.

use crate::error::BenchError;
use crate::frame::FrameArgs;

use super::distribution::Distribution;
use super::mix::{Mix, Operation};
use super::preset::{Preset, Workload};
use super::sizes::Sizes;

/// The most connections of one run; each is a socket here and at the server.
const CONNECTIONS_MAX: u64 = 100_000;
/// The most objects made beforehand.
const KEYS_MAX: u64 = 100_000_000;
/// The most intervals of one run; each keeps a histogram per operation and thread.
const INTERVALS_MAX: u64 = 1000;
/// Intervals that a run has at most unless it is told how long one is.
const INTERVALS_DEFAULT: u64 = 120;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench load --mix put=100 --size 1k-4k
  margay bench load --mix get=95,put=5 --keys 10000 --distribution zipf:0.99 --size 4k:9,1m:1 --verify
  margay bench load --mix get=100 --rate 5000 --seconds 30     (open loop: latency counts from when a request was due)
  margay bench load --mix put=100 --size 64m --connections 8 --payload signed --json
  margay bench load --mix put=50,get=50 --seconds 5 --rival margay,minio --latency 10ms
  margay bench load --preset leofs-image --mix put=100 --report load/     (then with get=100, then with its own mix)

--report also writes load.hlog, the latencies in the log format of HdrHistogram: `margay bench merge` adds several up.")]
pub struct LoadArgs {
    #[command(flatten)]
    pub frame: FrameArgs,
    /// Sizes, keys, mix and distribution of a published run; other options change them
    #[arg(long, value_name = "NAME", value_enum)]
    pub preset: Option<Preset>,
    /// Connections, each with one request at a time [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub connections: Option<u64>,
    /// Threads that drive them [default: half of the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
    /// Measured time
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Time before that, under the same load, which is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub warmup_seconds: u64,
    /// Seconds that one point of the pictures stands for [default: 1, more when that makes over 120]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: Option<u64>,
    /// Bytes of an object: 4096, 4k, a range of which each is as likely, 1k-4k, or several by weight, 4k-32k:69,1m:4 [default: 4k]
    #[arg(long, value_name = "SIZE[:WEIGHT],...")]
    pub size: Option<Sizes>,
    /// Shares of put, get, head, list and delete [default: get=90,put=10]
    #[arg(long, value_name = "OP=N,...")]
    pub mix: Option<Mix>,
    /// Objects made beforehand when the mix reads [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    pub keys: Option<u64>,
    /// Which of them a request is about: uniform, sequential, pareto (80 % of requests for 20 % of keys), zipf[:EXPONENT] [default: uniform]
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<Distribution>,
    /// PUT writes over the objects made beforehand instead of making new ones
    #[arg(long)]
    pub overwrite: bool,
    /// Open loop: this many requests become due per second, whether or not earlier ones are answered
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// A request without an answer for this long is given up, and counts as an error
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
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

impl LoadArgs {
    /// The preset's workload, or the usual one, with what the options say.
    pub(super) fn workload(&self) -> Result<Workload, BenchError> {
        let base = self.preset.map(Preset::workload).unwrap_or_default();
        let mix = self.mix.clone().unwrap_or(base.mix);
        // The first phase of a published run makes its keys.
        let overwrite = self.overwrite || (base.overwrite && mix.reads());
        if overwrite && mix.has(Operation::Delete) {
            let reason = "what writes over the prepared objects makes no keys of its own that `delete` could take";
            return Err(BenchError::Usage(reason.to_owned()));
        }
        Ok(Workload {
            connections: self.connections.unwrap_or(base.connections),
            sizes: self.size.clone().unwrap_or(base.sizes),
            keys: self.keys.unwrap_or(base.keys),
            distribution: self.distribution.unwrap_or(base.distribution),
            verify: self.verify || base.verify,
            mix,
            overwrite,
        })
    }

    /// Seconds of one interval.
    pub(super) fn interval(&self) -> Result<u64, BenchError> {
        let interval = self.interval.unwrap_or_else(|| self.seconds.div_ceil(INTERVALS_DEFAULT));
        if self.seconds.div_ceil(interval) > INTERVALS_MAX {
            let least = self.seconds.div_ceil(INTERVALS_MAX);
            return Err(BenchError::Usage(format!(
                "more than {INTERVALS_MAX} intervals; give --interval {least} or more"
            )));
        }
        Ok(interval)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn parse(line: &str) -> LoadArgs {
        Line::try_parse_from(std::iter::once("load").chain(line.split_whitespace())).map(|line| line.load).unwrap()
    }

    #[test]
    fn options_change_what_a_preset_says() {
        let plain = parse("").workload().unwrap();
        assert_eq!((plain.keys, plain.sizes.to_string().as_str(), plain.overwrite), (1000, "4096", false));
        let preset = parse("--preset leofs-image --keys 7 --distribution pareto").workload().unwrap();
        assert_eq!((preset.keys, preset.distribution, preset.overwrite), (7, Distribution::Pareto, true));
        assert!(preset.sizes.to_string().starts_with("4096-8192:15,"));
        let load = parse("--preset leofs-image --mix put=100").workload().unwrap();
        assert!(!load.overwrite, "the first phase makes its keys");
        assert!(parse("--overwrite --mix put=1,delete=1").workload().is_err());
    }

    #[test]
    fn intervals_are_bounded() {
        for (line, interval) in [("", 1), ("--seconds 120", 1), ("--seconds 121", 2), ("--seconds 86400", 720)] {
            assert_eq!(parse(line).interval().unwrap(), interval, "{line}");
        }
        assert!(parse("--seconds 1001 --interval 1").interval().is_err());
    }
}
