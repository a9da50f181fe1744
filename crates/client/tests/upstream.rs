//! A store that fails in chosen ways, and what becomes of the requests to it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

#[path = "upstream/listen.rs"]
mod listen;
#[path = "upstream/store.rs"]
mod store;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use margay_client::upstream::{Grid, Limits, Source, Upstream, WRITE_ID, Wanted};
use margay_client::{ClientError, Condition};
use store::{Fault, Store};

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

async fn open(limits: Limits) -> (Arc<Store>, Upstream) {
    let (store, target) = Store::start().await;
    (store, Upstream::new(target, "far", limits))
}

fn is_nonsense<T>(outcome: Result<T, ClientError>) -> bool {
    matches!(outcome, Err(ClientError::Nonsense { .. }))
}

#[test]
fn ranges_are_of_the_state_that_is_wanted() {
    run(async {
        let (store, upstream) = open(Limits::default()).await;
        let etag = upstream.put("k", Bytes::from_static(b"0123456789"), Condition::Always).await.unwrap();
        let get = async |range, wanted| upstream.get("k", range, wanted).await;
        let fetched = get(2..5, Wanted::Same(&etag)).await.unwrap().unwrap();
        assert_eq!((&fetched.bytes[..], &fetched.etag, fetched.size), (&b"234"[..], &etag, 10));
        assert_eq!(get(8..100, Wanted::Any).await.unwrap().unwrap().bytes, "89");
        assert_eq!(get(10..20, Wanted::Any).await.unwrap_err().status(), Some(416));
        assert!(matches!(get(5..5, Wanted::Any).await, Err(ClientError::Usage(_))));
        assert!(get(0..1, Wanted::Other(&etag)).await.unwrap().is_none());
        assert!(get(0..1, Wanted::Other("\"x\"")).await.unwrap().is_some());
        assert_eq!(get(0..1, Wanted::Same("\"x\"")).await.unwrap_err().status(), Some(412));
        for fault in [Fault::WholeObject, Fault::OtherRange, Fault::OtherEtag, Fault::MoreBytes] {
            store.fail([fault]);
            assert!(is_nonsense(get(2..5, Wanted::Same(&etag)).await), "{fault:?}");
        }
        assert_eq!(upstream.describe("k").await.unwrap().map(|found| (found.etag, found.size)), Some((etag, 10)));
        upstream.delete("k").await.unwrap();
        upstream.delete("k").await.unwrap();
        assert_eq!(upstream.describe("k").await.unwrap(), None);
    });
}

#[test]
fn passing_trouble_is_waited_out() {
    run(async {
        let (store, upstream) = open(Limits::default()).await;
        store.fail([Fault::Refuse(503), Fault::LostBefore, Fault::Refuse(429)]);
        upstream.put("k", Bytes::from_static(b"x"), Condition::Always).await.unwrap();
        assert_eq!(store.requests.load(Ordering::SeqCst), 4);
        store.fail([Fault::Refuse(403)]);
        assert_eq!(upstream.get("k", 0..1, Wanted::Any).await.unwrap_err().status(), Some(403));
        assert_eq!(store.requests.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn a_condition_that_the_first_sending_made_false_is_seen_through() {
    run(async {
        let (store, upstream) = open(Limits::default()).await;
        let put = async |text: &'static str, condition| {
            upstream.put("k", Bytes::from_static(text.as_bytes()), condition).await
        };
        store.fail([Fault::LostAfter]);
        let one = put("one", Condition::Absent).await.unwrap();
        store.fail([Fault::LostAfter]);
        let two = put("two", Condition::Same(&one)).await.unwrap();
        assert_eq!(store.content("k"), "two");
        // Somebody else's object stays a refusal, whatever was lost.
        for faults in [vec![], vec![Fault::LostBefore]] {
            store.fail(faults);
            assert_eq!(put("three", Condition::Same(&one)).await.unwrap_err().status(), Some(412));
            assert_eq!(put("three", Condition::Absent).await.unwrap_err().status(), Some(412));
        }
        // The same bytes of somebody else are no success when nothing was lost.
        assert_eq!(put("two", Condition::Absent).await.unwrap_err().status(), Some(412));
        assert_eq!(upstream.describe("k").await.unwrap().unwrap().etag, two);
    });
}

#[test]
fn requests_and_bytes_under_way_are_bounded() {
    run(async {
        const KIB: usize = 1 << 10;
        let limits = Limits { requests_max: 4, bytes_max: 64 << 10 };
        let (store, upstream) = open(limits).await;
        upstream.put("k", Bytes::from(vec![7; 64 * KIB]), Condition::Always).await.unwrap();
        store.slow(Duration::from_millis(5));
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let upstream = upstream.clone();
                tokio::spawn(async move {
                    upstream.get("k", 0..KIB as u64, Wanted::Any).await.unwrap().unwrap().bytes.len()
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), KIB);
        }
        assert_eq!(store.at_once_max.load(Ordering::SeqCst), 4, "all of the slots are used, and no more");
        // What was read and is kept counts until it is dropped.
        let half = 32 * KIB as u64;
        let one = upstream.get("k", 0..half, Wanted::Any).await.unwrap();
        let other = upstream.get("k", half..2 * half, Wanted::Any).await.unwrap();
        let mut third = std::pin::pin!(upstream.get("k", 0..1, Wanted::Any));
        let soon = Duration::from_millis(200);
        assert!(tokio::time::timeout(soon, third.as_mut()).await.is_err(), "there is no place for it");
        drop(one);
        assert!(third.await.unwrap().is_some());
        drop(other);
        let too_much = upstream.get("k", 0..64 * KIB as u64 + 1, Wanted::Any).await;
        assert!(matches!(too_much, Err(ClientError::Usage(_))), "what never fits is not waited for");
    });
}

#[test]
fn a_body_is_read_when_there_is_room_for_it() {
    run(async {
        const LEN: u64 = 64 << 10;
        let (_store, upstream) = open(Limits { bytes_max: LEN, ..Limits::default() }).await;
        let (none, body) = (Vec::new(), Bytes::from(vec![7; LEN as usize]));
        let first = upstream.put_object_of("a", LEN, std::future::pending(), Condition::Always, &none);
        let mut first = Box::pin(first);
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, first.as_mut()).await.is_err(), "its body is being read");
        let is_read = AtomicBool::new(false);
        let read = async {
            is_read.store(true, Ordering::SeqCst);
            Ok(body.clone())
        };
        let second = upstream.put_object_of("b", LEN, read, Condition::Always, &none);
        let mut second = Box::pin(second);
        assert!(tokio::time::timeout(soon, second.as_mut()).await.is_err() && !is_read.load(Ordering::SeqCst));
        // What is fetched has room of its own: the first body may be what it is for.
        assert!(upstream.get("none", 0..LEN, Wanted::Any).await.unwrap_err().is_not_found());
        drop(first);
        second.await.unwrap();
        let unread = std::future::ready(Err(io::Error::other("the disk is gone")));
        let unread = upstream.put_object_of("c", LEN, unread, Condition::Always, &none).await;
        assert!(matches!(unread, Err(ClientError::Source(_))));
    });
}

/// Bytes that say where they are; fails from a place on.
struct Counted {
    fails_from: u64,
}

impl Source for Counted {
    async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.end > self.fails_from {
            return Err(io::Error::other("the disk is gone"));
        }
        Ok(content(range))
    }
}

fn content(range: Range<u64>) -> Bytes {
    range.map(|at| (at.wrapping_mul(0x9e37_79b9) >> 16) as u8).collect::<Vec<_>>().into()
}

const WHOLE: Counted = Counted { fails_from: u64::MAX };

#[test]
fn large_objects_are_sent_as_parts_of_a_grid() {
    run(async {
        let (store, upstream) = open(Limits { bytes_max: 20 << 20, ..Limits::default() }).await;
        let grid = Grid::of((20 << 20) + 1);
        store.fail([Fault::None, Fault::Refuse(500), Fault::LostAfter]);
        let etag = upstream.upload("big", grid, WHOLE, Condition::Absent, &Vec::new()).await.unwrap();
        assert!(store.content("big") == content(0..grid.size()), "the parts are not in their order");
        assert_eq!((grid.parts(), upstream.describe("big").await.unwrap().unwrap().etag), (3, etag.clone()));
        assert!(store.bytes_at_once_max.load(Ordering::SeqCst) <= 20 << 20);
        let refused = upstream.upload("big", grid, WHOLE, Condition::Absent, &Vec::new()).await.unwrap_err();
        assert_eq!((refused.status(), store.uploads()), (Some(412), 0), "it is taken back");
        let unread =
            upstream.upload("big", grid, Counted { fails_from: 9 << 20 }, Condition::Always, &Vec::new()).await;
        assert!(matches!(unread, Err(ClientError::Source(_))) && store.uploads() == 0);
        assert_eq!(upstream.describe("big").await.unwrap().unwrap().etag, etag);
    });
}

#[test]
fn an_upload_whose_end_was_lost_has_ended() {
    run(async {
        let (store, upstream) = open(Limits::default()).await;
        for (key, condition) in [("always", Condition::Always), ("absent", Condition::Absent)] {
            store.fail([Fault::None, Fault::None, Fault::LostAfter]);
            let etag = upstream.upload(key, Grid::of(5), WHOLE, condition, &Vec::new()).await.unwrap();
            assert_eq!((store.content(key), store.uploads()), (content(0..5), 0));
            assert_eq!(upstream.describe(key).await.unwrap().unwrap().etag, etag);
        }
        store.fail([Fault::None, Fault::None, Fault::ErrorInside]);
        let refused = upstream.upload("late", Grid::of(5), WHOLE, Condition::Always, &Vec::new()).await.unwrap_err();
        assert!(refused.kind().contains("InternalError"), "{refused}");
        assert_eq!(store.uploads(), 0);
    });
}

#[test]
fn the_end_of_an_upload_is_not_taken_for_that_of_an_earlier_one_with_the_same_bytes() {
    run(async {
        let (store, upstream) = open(Limits::default()).await;
        let upload = async |id: &'static str| {
            let metadata = vec![(WRITE_ID, HeaderValue::from_static(id))];
            upstream.upload("k", Grid::of(5), WHOLE, Condition::Absent, &metadata).await
        };
        store.fail([Fault::None, Fault::None, Fault::LostAfter]);
        upload("1-2-3.4").await.unwrap();
        store.fail([Fault::None, Fault::None, Fault::LostBefore]);
        assert_eq!(upload("1-2-3.5").await.unwrap_err().status(), Some(412));
        let there = upstream.describe("k").await.unwrap().unwrap();
        assert_eq!(there.headers.get(WRITE_ID).unwrap(), "1-2-3.4");
        assert_eq!(store.uploads(), 0);
    });
}

#[test]
fn a_store_that_is_too_busy_gets_fewer_requests() {
    run(async {
        let (store, upstream) = open(Limits::default()).await;
        store.slow(Duration::from_millis(3));
        store.busy_above(8);
        let put = |number: usize| {
            let upstream = upstream.clone();
            tokio::spawn(async move {
                let body = Bytes::from_static(b"x");
                // One that was refused too often is sent again by who has the file.
                while upstream.put(&format!("k{number}"), body.clone(), Condition::Always).await.is_err() {}
            })
        };
        for some in 0..20 {
            let tasks: Vec<_> = (0..64).map(|number| put(some * 64 + number)).collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
        let flow = upstream.flow();
        assert!(flow.limit <= 16 && flow.halved >= 3, "{flow:?}");
        assert_eq!(flow.in_progress, 0);
        store.busy_above(0);
        for number in 0..200 {
            put(number).await.unwrap();
        }
        assert!(upstream.flow().limit > flow.limit);
    });
}
