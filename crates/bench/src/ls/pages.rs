//! How long one page of 1000 keys takes, wherever it lies in a prefix.
//!
//! Why:        a page must cost what it returns, not what the prefix holds; the round trip itself is taken off by a
//!             HEAD of the bucket over the same warm connection, measured in turn with the pages.
//! Invariants: every page is checked after its clock stopped: the right keys, all of them, in order.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::error::BenchError;
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::summary::{Summary, median, ms};
use margay_client::client::{Client, ListQuery, PAGE_KEYS_MAX};
use margay_client::xml;

/// Prefixes up to this size are listed whole several times, larger ones once.
const WHOLE_REPEAT_KEYS_MAX: u64 = 100_000;
/// Unmeasured rounds before the samples.
const WARMUP_ROUNDS: usize = 3;

/// A prefix that holds `keys` objects named by their number.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    pub name: String,
    pub keys: u64,
}

impl Prefix {
    pub(super) fn key(&self, index: u64) -> String {
        format!("{}{index:08}", self.name)
    }
}

/// One kind of page.
#[derive(Clone, Debug, Serialize)]
pub struct PageRow {
    /// `first`, `middle` or `last`.
    pub page: &'static str,
    pub delimiter: bool,
    /// Keys that the page returned.
    pub keys: u64,
    pub page_time: Summary,
    /// Median less the median of HEAD.
    pub net_median_ms: f64,
    /// 99th percentile less the median of HEAD.
    pub net_p99_ms: f64,
}

/// Everything measured about one prefix.
#[derive(Clone, Debug, Serialize)]
pub struct PrefixReport {
    pub keys: u64,
    pub head: Summary,
    pub pages: Vec<PageRow>,
    /// All pages one after the other by continuation token: median of the runs.
    pub whole_ms: f64,
    pub whole_runs: usize,
}

struct Kind {
    page: &'static str,
    delimiter: bool,
    first: u64,
    samples: Vec<Duration>,
}

impl Kind {
    fn expected(&self, prefix: &Prefix) -> u64 {
        u64::from(PAGE_KEYS_MAX).min(prefix.keys - self.first)
    }
}

fn kinds(prefix: &Prefix) -> Vec<Kind> {
    let page = u64::from(PAGE_KEYS_MAX);
    let last = prefix.keys.saturating_sub(page);
    let mut kinds = Vec::new();
    for delimiter in [false, true] {
        for (page, first) in [("first", 0), ("middle", last / 2), ("last", last)] {
            kinds.push(Kind { page, delimiter, first, samples: Vec::new() });
        }
    }
    kinds
}

/// Checks that a page holds exactly the keys from `first` on.
fn check(prefix: &Prefix, document: &Bytes, first: u64, expected: u64) -> Result<(), BenchError> {
    let wrong = |reason: String| BenchError::Nonsense { request: format!("list {} from {first}", prefix.name), reason };
    let page = xml::parse_page(document).map_err(wrong)?;
    if page.entries.len() as u64 != expected || !page.prefixes.is_empty() {
        return Err(wrong(format!(
            "{} keys and {} prefixes instead of {expected} keys",
            page.entries.len(),
            page.prefixes.len()
        )));
    }
    for (entry, index) in page.entries.iter().zip(first..) {
        if entry.key != prefix.key(index) {
            return Err(wrong(format!("{} where {} belongs", entry.key, prefix.key(index))));
        }
    }
    let more = first + expected < prefix.keys;
    // MinIO says that more follows after a full last page; what then follows is empty, and clients live with it.
    if more && !page.truncated { Err(wrong("it is said to be the last page".to_owned())) } else { Ok(()) }
}

/// Times the pages of a prefix, `samples` times each, in turn with HEAD; then whole listings, `runs` times.
pub(super) async fn measure(
    scratch: &Scratch,
    prefix: &Prefix,
    samples: usize,
    runs: usize,
) -> Result<PrefixReport, BenchError> {
    let clock = &scratch.env().clock;
    let mut client = scratch.client();
    let mut kinds = kinds(prefix);
    let mut heads = Vec::with_capacity(samples);
    let progress = Progress::new(scratch.env(), format!("pages of {}", prefix.name), samples as u64);
    for round in 0..samples + WARMUP_ROUNDS {
        for kind in &mut kinds {
            scratch.stop().check()?;
            let began = clock.monotonic();
            client.head_bucket(&scratch.bucket).await?;
            let head = clock.monotonic() - began;
            let start_after = (kind.first > 0).then(|| prefix.key(kind.first - 1));
            let query = ListQuery {
                prefix: &prefix.name,
                delimiter: kind.delimiter.then_some("/"),
                start_after: start_after.as_deref(),
                keys_max: PAGE_KEYS_MAX,
                ..ListQuery::default()
            };
            let began = clock.monotonic();
            let document = client.list_document(&scratch.bucket, &query).await?;
            let page = clock.monotonic() - began;
            check(prefix, &document, kind.first, kind.expected(prefix))?;
            if round >= WARMUP_ROUNDS {
                heads.push(head);
                kind.samples.push(page);
            }
        }
        progress.add(1);
    }
    drop(progress);
    let head = Summary::of(&heads);
    let pages = kinds.iter().map(|kind| row(prefix, kind, &head)).collect();
    let whole_runs = if prefix.keys <= WHOLE_REPEAT_KEYS_MAX { runs } else { 1 };
    let mut whole = Vec::new();
    for _ in 0..whole_runs {
        whole.push(ms(whole_listing(scratch, &mut client, prefix).await?));
    }
    Ok(PrefixReport { keys: prefix.keys, head, pages, whole_ms: median(whole), whole_runs })
}

fn row(prefix: &Prefix, kind: &Kind, head: &Summary) -> PageRow {
    let page_time = Summary::of(&kind.samples);
    PageRow {
        page: kind.page,
        delimiter: kind.delimiter,
        keys: kind.expected(prefix),
        net_median_ms: page_time.median_ms - head.median_ms,
        net_p99_ms: page_time.p99_ms - head.median_ms,
        page_time,
    }
}

/// Time spent waiting for all pages of a prefix.
async fn whole_listing(scratch: &Scratch, client: &mut Client, prefix: &Prefix) -> Result<Duration, BenchError> {
    let clock = &scratch.env().clock;
    let progress = Progress::new(scratch.env(), format!("whole {}", prefix.name), prefix.keys);
    let mut spent = Duration::ZERO;
    let mut token: Option<String> = None;
    let mut seen = 0;
    loop {
        scratch.stop().check()?;
        let query = ListQuery { prefix: &prefix.name, token: token.as_deref(), ..ListQuery::default() };
        let began = clock.monotonic();
        let document = client.list_document(&scratch.bucket, &query).await?;
        spent += clock.monotonic() - began;
        let expected = u64::from(PAGE_KEYS_MAX).min(prefix.keys - seen);
        check(prefix, &document, seen, expected)?;
        seen += expected;
        progress.add(expected);
        if seen == prefix.keys {
            return Ok(spent);
        }
        token = xml::parse_page(&document)
            .map_err(|reason| BenchError::Nonsense { request: format!("list {}", prefix.name), reason })?
            .next_token;
    }
}
