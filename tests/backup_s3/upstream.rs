//! A bucket of a real server as many tasks use it at once: conditions, ranges, parts, and what is under way.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use margay_client::Condition;
use margay_client::client::ListQuery;
use margay_client::upstream::{Grid, Limits, Source, Upstream, Wanted};

use crate::disk::{Store, target};

fn with_store<T>(limits: Limits, test: impl AsyncFnOnce(Upstream) -> T) -> T {
    let store = Store::new();
    let upstream = Upstream::new(target(&store.server), "copies", limits);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(upstream))
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, margay_client::ClientError>) -> Option<u16> {
    outcome.unwrap_err().status()
}

#[test]
fn conditions_and_ranges() {
    with_store(Limits::default(), async |upstream| {
        let put = async |text: &'static str, condition| upstream.put("d/k", text.into(), condition).await;
        assert_eq!(refused(put("x", Condition::Same("\"x\"")).await), Some(404));
        let one = put("0123456789", Condition::Absent).await.unwrap();
        assert_eq!(refused(put("x", Condition::Absent).await), Some(412));
        let two = put("9876543210", Condition::Same(&one)).await.unwrap();
        assert_eq!(refused(put("x", Condition::Same(&one)).await), Some(412));
        let get = async |range, wanted| upstream.get("d/k", range, wanted).await;
        let fetched = get(2..5, Wanted::Same(&two)).await.unwrap().unwrap();
        assert_eq!((&fetched.bytes[..], &fetched.etag, fetched.size), (&b"765"[..], &two, 10));
        assert_eq!(get(8..100, Wanted::Any).await.unwrap().unwrap().bytes, "10");
        assert_eq!(refused(get(2..5, Wanted::Same(&one)).await), Some(412));
        assert!(get(2..5, Wanted::Other(&two)).await.unwrap().is_none());
        assert_eq!(refused(get(10..11, Wanted::Any).await), Some(416));
        let query = ListQuery { prefix: "d/", ..ListQuery::default() };
        let page = upstream.list(&query).await.unwrap();
        assert_eq!(page.entries.iter().map(|entry| (&*entry.key, &entry.etag)).collect::<Vec<_>>(), [("d/k", &two)]);
        upstream.delete("d/k").await.unwrap();
        upstream.delete("d/k").await.unwrap();
        assert_eq!(upstream.describe("d/k").await.unwrap(), None);
    });
}

struct Pattern;

fn content(range: Range<u64>) -> Bytes {
    range.map(|at| (at.wrapping_mul(0x9e37_79b9) >> 16) as u8).collect::<Vec<_>>().into()
}

impl Source for Pattern {
    async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        Ok(content(range))
    }
}

#[test]
fn parts_of_a_grid_are_read_back_as_they_were_sent() {
    with_store(Limits { bytes_max: 20 << 20, ..Limits::default() }, async |upstream| {
        for size in [0, 5, (16 << 20) + 7] {
            let (key, grid) = (format!("big-{size}"), Grid::of(size));
            let etag = upstream.upload(&key, grid, Pattern, Condition::Absent, &Vec::new()).await.unwrap();
            let there = upstream.describe(&key).await.unwrap().unwrap();
            assert_eq!((there.size, &there.etag), (size, &etag));
            for number in (1..=grid.parts()).filter(|_| size > 0) {
                let fetched = upstream.get(&key, grid.part(number), Wanted::Same(&etag)).await.unwrap().unwrap();
                assert!(fetched.bytes == content(grid.part(number)), "part {number} of {size}");
            }
            assert_eq!(refused(upstream.upload(&key, grid, Pattern, Condition::Absent, &Vec::new()).await), Some(412));
            upstream.upload(&key, grid, Pattern, Condition::Same(&etag), &Vec::new()).await.unwrap();
        }
    });
}

#[test]
fn many_tasks_share_what_may_be_under_way() {
    let limits = Limits { requests_max: 64, bytes_max: 1 << 20 };
    with_store(limits, async |upstream| {
        let tasks: Vec<_> = (0..300u64)
            .map(|number| {
                let upstream = upstream.clone();
                tokio::spawn(async move {
                    let (key, range) = (format!("k{number}"), number..number + 40_000);
                    upstream.put(&key, content(range.clone()), Condition::Absent).await.unwrap();
                    let fetched = upstream.get(&key, 0..40_000, Wanted::Any).await.unwrap().unwrap();
                    assert!(fetched.bytes == content(range), "{key}");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}
