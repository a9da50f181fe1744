//! The log of a load: its latencies as an interval log of HdrHistogram, which other programs read and add up, too.
//!
//! Why:        percentiles of several machines cannot be averaged; their histograms can be added.
//! Layout:     docs/load-log.md. One line per interval and series, the histogram in V2 with deflate and base64.
//! Invariants: L1 what is read was checked before the library sees it: sizes, bounds and counts, so a damaged file is an
//!             error and costs no more memory than its own histograms.
//! Not here:   files (`merge` and `show`), and what the counts mean (`stats`).

use std::fmt::Write as _;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

use super::series::Series;
use super::stats::{DIGITS, Grid, LATENCY_NS_MAX, LATENCY_NS_MIN, Stats, histogram};

/// Latencies are in nanoseconds; the maximum that a line shows to people is in milliseconds.
const SHOWN_DIVISOR: f64 = 1e6;
/// The most requests that a log may count: far from what a sum of many logs holds.
const COUNT_MAX: u64 = 1 << 40;
/// The most bytes of a histogram before deflate: 40 of header, and up to 8 for each of 22,528 buckets.
const HISTOGRAM_BYTES_MAX: u64 = 256 << 10;
/// The longest run and the longest interval, in seconds, and how long after its end requests may still have ended.
const MEASURED_SECONDS_MAX: u64 = 86_400;
const INTERVAL_SECONDS_MAX: u64 = 3600;
const LATE_SECONDS_MAX: u64 = 7200;

const COOKIE_DEFLATED: u32 = 0x1c84_9314;
const COOKIE: u32 = 0x1c84_9313;
const HEADER_BYTES: usize = 40;

/// Why a file is no log of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogError {
    #[error("this is no log of `margay bench load`: its head lacks StartTime or Measured")]
    Head,
    #[error("line {0}: not Tag=OPERATION,START,LENGTH,MAX,HISTOGRAM")]
    Line(usize),
    #[error("line {0}: a tag that no load writes")]
    Tag(usize),
    #[error("line {0}: a start outside of the run")]
    Start(usize),
    #[error("line {0}: a histogram that is damaged, or has other bounds than a load's")]
    Histogram(usize),
    #[error("line {0}: more requests than any load makes")]
    Count(usize),
}

/// A log: when its run began, and what it counted.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// Milliseconds since 1970.
    pub(super) started_ms: u64,
    pub(super) stats: Stats,
}

impl Log {
    pub(super) fn write(&self) -> String {
        let grid = self.stats.grid();
        let mut out =
            String::from("#[Latencies of margay bench load, in nanoseconds]\n#[Histogram log format version 1.3]\n");
        let (measured, interval) = (grid.measured.as_secs(), grid.interval.as_secs());
        let _ = write!(
            out,
            "#[Measured: {measured} s in intervals of {interval} s]\n\
             #[StartTime: {}.{:03} (seconds since epoch)]\n#[MaxValueDivisor: {SHOWN_DIVISOR:.1}]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
            self.started_ms / 1000,
            self.started_ms % 1000,
        );
        for (place, interval) in self.stats.intervals().iter().enumerate() {
            let (begin, length) = grid.bounds(place);
            for (series, counted) in interval {
                let (begin, length) = (begin.as_secs_f64(), length.as_secs_f64());
                let (max, encoded) = (counted.latency.max() as f64 / SHOWN_DIVISOR, encode(&counted.latency));
                let _ = writeln!(out, "Tag={},{begin:.3},{length:.3},{max:.3},{encoded}", series.tag());
            }
        }
        out
    }

    pub(super) fn read(text: &str) -> Result<Log, LogError> {
        let (mut started_ms, mut grid) = (None, None);
        let mut lines = text.lines().enumerate().peekable();
        while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with(['#', '"'])) {
            if let Some(rest) = line.strip_prefix("#[StartTime: ") {
                started_ms = rest.split(' ').next().and_then(|seconds| milliseconds(seconds, u64::from(u32::MAX)));
            }
            if let Some(rest) = line.strip_prefix("#[Measured: ") {
                grid = read_grid(rest);
            }
        }
        let (Some(started_ms), Some(grid)) = (started_ms, grid) else { return Err(LogError::Head) };
        let (mut stats, mut count) = (Stats::new(grid), 0_u64);
        let end = grid.measured + Duration::from_secs(LATE_SECONDS_MAX);
        for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let number = index + 1;
            let fields: Vec<&str> = line.split(',').collect();
            let [tag, start, _, _, encoded] = fields[..] else { return Err(LogError::Line(number)) };
            let tag = tag.strip_prefix("Tag=").ok_or(LogError::Line(number))?;
            let series = Series::from_tag(tag).ok_or(LogError::Tag(number))?;
            let start = milliseconds(start, end.as_secs()).ok_or(LogError::Start(number))?;
            let latency = decode(encoded).ok_or(LogError::Histogram(number))?;
            count = count.saturating_add(latency.len());
            if count > COUNT_MAX {
                return Err(LogError::Count(number));
            }
            stats.add_histogram(grid.place(Duration::from_millis(start)), series, &latency);
        }
        Ok(Log { started_ms, stats })
    }
}

/// Seconds with three digits after the point, at most so many.
fn milliseconds(text: &str, seconds_max: u64) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let seconds: u64 = seconds.parse().ok().filter(|seconds| *seconds <= seconds_max)?;
    let fraction: u64 = fraction.parse().ok().filter(|_| fraction.len() == 3)?;
    Some(seconds * 1000 + fraction)
}

/// `10 s in intervals of 1 s]`
fn read_grid(text: &str) -> Option<Grid> {
    let (measured, interval) = text.strip_suffix(" s]")?.split_once(" s in intervals of ")?;
    let measured = measured.parse().ok().filter(|seconds| (1..=MEASURED_SECONDS_MAX).contains(seconds))?;
    let interval = interval.parse().ok().filter(|seconds| (1..=INTERVAL_SECONDS_MAX).contains(seconds))?;
    Some(Grid { interval: Duration::from_secs(interval), measured: Duration::from_secs(measured) })
}

fn encode(latency: &Histogram<u64>) -> String {
    // How far it grew depends on its history; a copy's bounds follow from its largest latency alone.
    let (mut copy, mut bytes) = (histogram(), Vec::new());
    copy.add(latency).expect("it grows as far as it must");
    V2DeflateSerializer::new().serialize(&copy, &mut bytes).expect("a vector takes all bytes, and counts fit an i64");
    BASE64_STANDARD.encode(&bytes)
}

fn decode(encoded: &str) -> Option<Histogram<u64>> {
    let bytes = BASE64_STANDARD.decode(encoded).ok()?;
    let (head, deflated) = bytes.split_first_chunk::<8>()?;
    let words = u64::from_be_bytes(*head);
    if words >> 32 != u64::from(COOKIE_DEFLATED) || words as u32 as usize != deflated.len() {
        return None;
    }
    let mut plain = Vec::new();
    flate2::read::ZlibDecoder::new(deflated).take(HISTOGRAM_BYTES_MAX + 1).read_to_end(&mut plain).ok()?;
    if plain.len() as u64 > HISTOGRAM_BYTES_MAX || !sound(&plain) {
        return None;
    }
    Deserializer::new().deserialize(&mut plain.as_slice()).ok()
}

/// Whether the library may be given this: a histogram of ours, as long as it says, with numbers that it can negate.
fn sound(plain: &[u8]) -> bool {
    let word = |at: usize| plain.get(at..at + 4).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
    let long = |at: usize| plain.get(at..at + 8).and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
    let Some(counts) = plain.get(HEADER_BYTES..) else { return false };
    word(0) == Some(COOKIE)
        && word(4).is_some_and(|length| length as usize == counts.len())
        && word(12) == Some(u32::from(DIGITS))
        && long(16) == Some(LATENCY_NS_MIN)
        && long(24).is_some_and(|high| high <= 2 * LATENCY_NS_MAX)
        // A number of nine bytes: the first eight say that more follows.
        && !counts.windows(8).any(|bytes| bytes.iter().all(|byte| byte & 0x80 != 0))
}

#[cfg(test)]
mod tests {
    use super::super::mix::Operation;
    use super::super::series::{Failure, FailureKind};
    use super::*;
    use crate::random::Rng;

    fn some_log(seed: u64) -> Log {
        let mut rng = Rng::new(seed);
        let grid = Grid { interval: Duration::from_secs(2), measured: Duration::from_secs(9) };
        let mut stats = Stats::new(grid);
        for _ in 0..2000 {
            let operation = Operation::ALL[rng.below(5) as usize];
            let what = ["503 SlowDown", "x"][rng.below(2) as usize].to_owned();
            let failure = (rng.below(10) == 0).then_some(Failure { kind: FailureKind::Refused, what });
            let (ended, nanos) = (Duration::from_millis(rng.below(12_000)), 1 << rng.below(41));
            stats.add(Series { operation, failure }, ended, Duration::from_nanos(nanos + rng.below(nanos)), 0);
        }
        Log { started_ms: 1_700_000_000_123, stats }
    }

    #[test]
    fn what_was_written_is_read() {
        for seed in 0..5 {
            let log = some_log(seed);
            let text = log.write();
            let read = Log::read(&text).unwrap();
            assert_eq!((read.started_ms, read.stats.grid()), (log.started_ms, log.stats.grid()));
            assert_eq!((read.stats.rows(), read.stats.failures()), (log.stats.rows(), log.stats.failures()));
            assert_eq!(read.stats.timelines(), log.stats.timelines());
            assert!(read.write() == text, "{text}");
        }
    }

    #[test]
    fn the_library_reads_the_lines_as_well() {
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
        let log = some_log(1);
        let text = log.write();
        let entries: Vec<_> = IntervalLogIterator::new(text.as_bytes()).collect::<Result<_, _>>().unwrap();
        let intervals = entries.iter().filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval),
            _ => None,
        });
        let tags: Vec<&str> = intervals.filter_map(|interval| interval.tag()).map(|tag| tag.as_str()).collect();
        assert_eq!(tags.len(), text.lines().filter(|line| line.starts_with("Tag=")).count());
        assert!(tags.contains(&"get") && tags.contains(&"put:refused:503-SlowDown"));
    }

    #[test]
    fn a_damaged_log_is_an_error() {
        let text = some_log(2).write();
        let lines: Vec<&str> = text.lines().collect();
        let with = |from: &str, to: &str| Log::read(&text.replacen(from, to, 1)).map(|_| ()).unwrap_err();
        assert_eq!(with("Measured", "Meant"), LogError::Head);
        assert_eq!(with("9 s in", "0 s in"), LogError::Head);
        assert_eq!(with("StartTime: 1", "StartTime: -1"), LogError::Head);
        assert_eq!(with("Tag=put,", "Tag=fly,"), LogError::Tag(7));
        assert_eq!(with("Tag=put,0", "Tag=put,99999"), LogError::Start(7));
        assert_eq!(with("Tag=put,", "put,"), LogError::Line(7));
        assert_eq!(with("HISTFAAA", "HISTFAAB"), LogError::Histogram(7));
        let mut rng = Rng::new(4);
        let line = lines[6];
        for _ in 0..2000 {
            let mut bytes = line.as_bytes().to_vec();
            let at = line.len() - 1 - rng.below(line.len() as u64 - 40) as usize;
            bytes[at] = b"Aa0/+z"[rng.below(6) as usize];
            let damaged = format!("{}\n{}\n", lines[..6].join("\n"), String::from_utf8(bytes).unwrap());
            let _ = Log::read(&damaged);
        }
    }

    #[test]
    fn hostile_histograms_do_not_reach_the_library() {
        let mut plain = Vec::new();
        hdrhistogram::serialization::V2Serializer::new().serialize(&histogram(), &mut plain).unwrap();
        assert!(sound(&plain));
        let changed = |at: usize, bytes: &[u8]| {
            let mut plain = plain.clone();
            plain[at..at + bytes.len()].copy_from_slice(bytes);
            sound(&plain)
        };
        assert!(!changed(4, &u32::MAX.to_be_bytes()), "a length that is not there");
        assert!(!changed(12, &5_u32.to_be_bytes()) && !changed(24, &u64::MAX.to_be_bytes()));
        let mut longest = plain.clone();
        longest.truncate(HEADER_BYTES);
        longest.extend([0xff; 9]);
        longest[4..8].copy_from_slice(&9_u32.to_be_bytes());
        assert!(!sound(&longest), "the smallest number of all cannot be negated");
    }
}
