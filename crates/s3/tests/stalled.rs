//! Requests that wait for a stalled engine hold no thread: the server continues to answer others.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use std::sync::Arc;
use std::time::Duration;

use margay_meta::distant::DistantEngine;
use server::Server;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const WAITING: usize = 1000;
/// Half of all GETs of the other volume are answered within this time. A few milliseconds are usual, but others may use this machine too.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Longer than the test may take.
const STALL: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_that_wait_hold_up_no_other() {
    let mut engine = None;
    let far = Server::start_over(|below, env| {
        let distant = Arc::new(DistantEngine::new(below, Arc::clone(&env.clock), Duration::ZERO));
        engine = Some(Arc::clone(&distant));
        distant
    })
    .await;
    let (near, engine) = (Server::start().await, engine.unwrap());
    for server in [&far, &near] {
        server.volume.create_bucket("bucket").await.unwrap();
        server.put("/bucket/key", "body").await.expect(200);
    }
    let blocked = engine.blocked();
    engine.set_round_trip(STALL);
    let mut waiting = Vec::new();
    for number in 0..WAITING {
        let mut stream = TcpStream::connect(far.address).await.unwrap();
        let request = match number % 4 {
            0 => far.put_bytes(&format!("/bucket/{number}"), 100),
            1 => far.request("DELETE", &format!("/bucket/{number}")).bytes(),
            2 => far.request("GET", "/bucket?list-type=2").bytes(),
            _ => far.request("GET", "/bucket/key").bytes(),
        };
        stream.write_all(&request).await.unwrap();
        waiting.push(stream);
    }
    while engine.waiting() < WAITING {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut times = Vec::new();
    for number in 0..100 {
        near.put(&format!("/bucket/{number}"), "body").await.expect(200);
        let began = near.env.clock.monotonic();
        near.get(&format!("/bucket/{number}")).await.expect(200);
        times.push(near.env.clock.monotonic() - began);
    }
    times.sort();
    assert!(times[times.len() / 2] <= ANSWER_MAX, "{:?} for a GET of the other volume", times[times.len() / 2]);
    assert_eq!((engine.waiting(), engine.blocked()), (WAITING, blocked), "all still wait, and none on a thread");
    for stream in &waiting {
        let answered = stream.try_read(&mut [0]);
        assert_eq!(answered.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "no request has its answer");
    }
}
