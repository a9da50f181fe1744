//! A response of JSON lines that has no end until one side ends it.
//!
//! Invariants: L1 at most `LINES_MAX` lines wait for a slow client: the sender waits then, and so it reads no further.
//!             L2 an empty line is sent each `PULSE` in which there was nothing to say, so a client that is gone is noticed.
//! Not here:   the lines (`top`, `watch`).

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use margay_listener::body::{BodyError, ResponseBody};
use serde_json::Value;
use tokio::sync::mpsc;

/// Lines that wait for a slow client.
const LINES_MAX: usize = 64;
/// Between two signs of life.
pub(super) const PULSE: Duration = Duration::from_secs(5);

/// Where lines go.
#[derive(Debug)]
pub(super) struct Lines(mpsc::Sender<Result<Bytes, BodyError>>);

/// The client is gone.
#[derive(Debug)]
pub(super) struct Gone;

impl Lines {
    pub(super) async fn send(&self, line: &Value) -> Result<(), Gone> {
        self.0.send(Ok(Bytes::from(format!("{line}\n")))).await.map_err(|_| Gone)
    }

    pub(super) async fn pulse(&self) -> Result<(), Gone> {
        self.0.send(Ok(Bytes::from_static(b"\n"))).await.map_err(|_| Gone)
    }
}

/// The response, and where its lines go.
pub(super) fn open() -> (Lines, Response<ResponseBody>) {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    let mut response = Response::new(ResponseBody::of_pieces(lines));
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/x-ndjson"));
    headers.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    // nginx else keeps lines back until its buffer is full.
    headers.insert("x-accel-buffering", http::HeaderValue::from_static("no"));
    (Lines(sender), response)
}
