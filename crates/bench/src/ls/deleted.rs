//! What deleted keys cost later listings: nothing, one hopes.
//!
//! Why:        in log-structured stores a prefix whose keys were just deleted lists slower than a full one, and a
//!             recursive removal (list first, delete it, again) gets slower with every step.
//! Invariants: the same requests go to a prefix that was always empty, in turn, so drift hits both.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::error::BenchError;
use crate::ls::pages::Prefix;
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::summary::Summary;
use margay_client::client::{Client, ListQuery, PAGE_KEYS_MAX};

/// The deletion is reported in this many equal stretches, to show a curve if there is one.
const STRETCHES: u64 = 10;

/// The order in which keys are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    Forward,
    Reverse,
    Random,
}

impl Order {
    pub const ALL: [Order; 3] = [Order::Forward, Order::Reverse, Order::Random];

    pub fn name(self) -> &'static str {
        match self {
            Order::Forward => "forward",
            Order::Reverse => "reverse",
            Order::Random => "random",
        }
    }

    /// The `step`-th index to delete of `count`.
    fn index(self, step: u64, count: u64) -> u64 {
        match self {
            Order::Forward => step,
            Order::Reverse => count - 1 - step,
            Order::Random => shuffled(step, count),
        }
    }
}

/// A fixed shuffle of `0..count`: every index once, far from its neighbours.
pub(super) fn shuffled(step: u64, count: u64) -> u64 {
    let mut stride = (count as f64 * 0.618_033_988_75) as u64 | 1;
    while gcd(stride, count) != 1 {
        stride += 2;
    }
    let mixed = u128::from(step) * u128::from(stride) % u128::from(count);
    mixed as u64
}

fn gcd(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { gcd(right, left % right) }
}

/// One stretch of the deletion.
#[derive(Clone, Debug, Serialize)]
pub struct Stretch {
    /// Keys deleted when the stretch ends.
    pub deleted: u64,
    pub delete: Summary,
    /// "List first" right after each delete.
    pub list_first: Summary,
    /// The same request to a prefix that was always empty.
    pub baseline: Summary,
    /// Median against median.
    pub ratio: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct DeletedReport {
    pub order: Order,
    pub keys: u64,
    pub stretches: Vec<Stretch>,
    /// The prefix after all its keys are gone, asked for a whole page.
    pub emptied: Summary,
    pub always_empty: Summary,
    pub emptied_ratio: f64,
}

impl DeletedReport {
    /// The worst of all ratios to the prefix that was always empty.
    pub fn worst_ratio(&self) -> f64 {
        self.stretches.iter().map(|stretch| stretch.ratio).fold(self.emptied_ratio, f64::max)
    }
}

struct Probe<'a> {
    scratch: &'a Scratch,
    client: Client,
}

impl Probe<'_> {
    /// Times one listing and checks its first key.
    async fn list(&mut self, prefix: &str, keys_max: u32, first: Option<&str>) -> Result<Duration, BenchError> {
        let clock = &self.scratch.env().clock;
        let query = ListQuery { prefix, keys_max, ..ListQuery::default() };
        let began = clock.monotonic();
        let document = self.client.list_document(&self.scratch.bucket, &query).await?;
        let spent = clock.monotonic() - began;
        let wrong = |reason| BenchError::Nonsense { request: format!("list first of {prefix}"), reason };
        let page = margay_client::xml::parse_page(&document).map_err(wrong)?;
        let found = page.entries.first().map(|entry| entry.key.as_str());
        if found == first { Ok(spent) } else { Err(wrong(format!("{found:?} where {first:?} belongs"))) }
    }

    async fn delete(&mut self, key: &str) -> Result<Duration, BenchError> {
        let clock = &self.scratch.env().clock;
        let began = clock.monotonic();
        self.client.delete(&self.scratch.bucket, key).await?;
        Ok(clock.monotonic() - began)
    }
}

/// Fills a prefix with `keys` keys, deletes them in `order` with a listing after each, and lists the empty prefix.
pub(super) async fn measure(
    scratch: &Scratch,
    order: Order,
    keys: u64,
    samples: usize,
) -> Result<DeletedReport, BenchError> {
    let prefix = Prefix { name: format!("deleted-{}/", order.name()), keys };
    let naming = prefix.clone();
    let label = format!("fill {}", prefix.name);
    scratch.fill_small(&label, keys, Arc::new(move |index| naming.key(shuffled(index, keys)))).await?;
    let mut probe = Probe { scratch, client: scratch.client() };
    let empty = format!("empty-{}/", order.name());
    let stretches = delete_all(&mut probe, &prefix, order, &empty).await?;
    let (mut emptied, mut always_empty) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        scratch.stop().check()?;
        emptied.push(probe.list(&prefix.name, PAGE_KEYS_MAX, None).await?);
        always_empty.push(probe.list(&empty, PAGE_KEYS_MAX, None).await?);
    }
    let (emptied, always_empty) = (Summary::of(&emptied), Summary::of(&always_empty));
    let emptied_ratio = ratio(&emptied, &always_empty);
    Ok(DeletedReport { order, keys, stretches, emptied, always_empty, emptied_ratio })
}

async fn delete_all(
    probe: &mut Probe<'_>,
    prefix: &Prefix,
    order: Order,
    empty: &str,
) -> Result<Vec<Stretch>, BenchError> {
    let progress = Progress::new(probe.scratch.env(), format!("delete {}", prefix.name), prefix.keys);
    let mut left: std::collections::BTreeSet<u64> = (0..prefix.keys).collect();
    let mut stretches = Vec::new();
    let (mut deletes, mut lists, mut baselines) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..prefix.keys {
        probe.scratch.stop().check()?;
        let index = order.index(step, prefix.keys);
        deletes.push(probe.delete(&prefix.key(index)).await?);
        left.remove(&index);
        let first = left.first().map(|&index| prefix.key(index));
        lists.push(probe.list(&prefix.name, 1, first.as_deref()).await?);
        baselines.push(probe.list(empty, 1, None).await?);
        progress.add(1);
        if (step + 1) * STRETCHES / prefix.keys > step * STRETCHES / prefix.keys {
            let (list_first, baseline) = (Summary::of(&lists), Summary::of(&baselines));
            let ratio = ratio(&list_first, &baseline);
            stretches.push(Stretch { deleted: step + 1, delete: Summary::of(&deletes), list_first, baseline, ratio });
            (deletes, lists, baselines) = (Vec::new(), Vec::new(), Vec::new());
        }
    }
    assert!(left.is_empty(), "an order names every key once");
    Ok(stretches)
}

fn ratio(measured: &Summary, baseline: &Summary) -> f64 {
    if baseline.median_ms > 0.0 { measured.median_ms / baseline.median_ms } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_names_every_key_once() {
        for count in [1, 2, 3, 10, 618, 1000, 10_000] {
            for order in Order::ALL {
                let mut seen: Vec<u64> = (0..count).map(|step| order.index(step, count)).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..count), "{order:?} of {count}");
            }
        }
    }
}
