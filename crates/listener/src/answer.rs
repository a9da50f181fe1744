//! Answers that the program gives itself (health, metrics, control), outside S3.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::body::{BodyError, ResponseBody};

/// A body whose bytes are all in memory.
pub fn whole(bytes: impl Into<Bytes>) -> ResponseBody {
    let body = Full::new(bytes.into()).map_err(|never| -> BodyError { match never {} }).boxed_unsync();
    // Too short to count against the limit of unread bytes.
    ResponseBody { body, in_memory: None }
}

pub fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

pub fn plain(status: StatusCode, line: &str) -> Response<ResponseBody> {
    text(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

pub fn json(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    text(status, "application/json", format!("{value}\n"))
}
