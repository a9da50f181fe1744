//! The options of `margay bench auth`; the defaults are those of LeoFS' comparison.

use super::case::Case;
use crate::frame::FrameArgs;
use crate::load::SizeRange;

/// The most objects of a case; a sample of 16 bytes is kept of each.
const KEYS_MAX: u64 = 10_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench auth                                        (writes 50,000 objects per PUT case: about 10 GB each)
  margay bench auth --keys 5000 --report DIR               (CSV, and a picture of five panels for each case)
  margay bench auth --cases v2,v4,v4chunk --endpoint http://127.0.0.1:9001 --json
  margay bench auth --keys 5000 --rival margay,minio
  margay bench auth --cases unsigned,v2,v4 --size 1k --keys 200000

A case that the server refuses is reported with its answer and left out. `v4chunk-nohash` needs a server that does not
check chunks.")]
pub struct AuthArgs {
    #[command(flatten)]
    pub frame: FrameArgs,
    /// What to send, in this order
    #[arg(
        long,
        value_name = "CASE,...",
        value_delimiter = ',',
        value_enum,
        default_value = "unsigned,v2,v4,v4chunk,v4chunk-nohash,get-unsigned,get-v2,get-v4"
    )]
    pub cases: Vec<Case>,
    /// Connections, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub connections: u64,
    /// Threads that drive them [default: half of the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
    /// Objects; each case writes every one once, or reads as many
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    pub keys: u64,
    /// Bytes of an object, or a range of which each is as likely
    #[arg(long, value_name = "SIZE", default_value = "128k-256k")]
    pub size: SizeRange,
    /// End a case after this time, even if keys are left
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Seconds that one line of the CSV and one point of the picture stand for
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// The same seed gives the same sizes and bodies
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}
