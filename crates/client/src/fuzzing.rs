//! Entry points of the fuzz targets: what a store answers, as arbitrary bytes.
//!
//! Layout:     answers follow each other, separated by a line `--`; each is a status, lines `name: value`, an empty line, the body.
//!             A status that is no number is a lost answer, and so is what follows the last one.
//! Invariants: Z1 any answers give a value or an error.  Z2 what is returned is what was asked for: the bytes of the range, of the
//!                wanted ETag, and a page that can be gone on from.
//! Not here:   the targets themselves and their seeds (fuzz/).

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::client::{Answer, Ask, ListQuery};
use crate::condition::Condition;
use crate::error::{ClientError, Refusal};
use crate::upstream::{Carried, Carrier, Grid, Limits, Metadata, Source, StateOf, Upstream, WRITE_ID, Wanted};
use crate::xml;

const KEY: &str = "d/a";
const ETAG: &str = "\"e\"";

/// Documents of a store: listings, errors, answers to removals and to uploads.
pub fn documents(bytes: &[u8]) {
    if let Ok(page) = xml::parse_page(bytes) {
        assert!(!page.truncated || page.next_token.is_some(), "a page can be gone on from");
    }
    let _ = xml::parse_buckets(bytes);
    let (code, message) = xml::parse_error(bytes);
    assert!(code.len() + message.len() <= bytes.len() * 4, "texts are of the document");
    if let Ok(failures) = xml::parse_delete_failures(bytes) {
        assert_eq!(xml::parse_delete_failure(bytes), Ok(failures.first().cloned()));
    }
    for (root, name) in [
        ("InitiateMultipartUploadResult", "UploadId"),
        ("CompleteMultipartUploadResult", "ETag"),
        ("CopyObjectResult", "ETag"),
    ] {
        if let Ok(text) = xml::parse_field(bytes, root, name) {
            assert!(!text.is_empty());
        }
    }
}

/// Gives the answers in turn.
#[derive(Debug)]
pub struct Script(Mutex<VecDeque<Vec<u8>>>);

/// A bucket whose store answers so.
pub fn scripted(bytes: &[u8]) -> Upstream {
    let mut answers = VecDeque::from([Vec::new()]);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line {
            b"--\n" => answers.push_back(Vec::new()),
            line => answers.back_mut().expect("there is one").extend_from_slice(line),
        }
    }
    Upstream::carried(Arc::new(Script(Mutex::new(answers))), "b", Limits::default())
}

fn lost(ask: &Ask) -> ClientError {
    ClientError::Timeout { request: format!("{} {}", ask.method, ask.key), seconds: 1 }
}

/// As a connection gives it.
fn answered(ask: &Ask, bytes: &[u8]) -> Result<Answer, ClientError> {
    let (status, mut headers, mut rest) = (bytes.split(|byte| *byte == b'\n').next(), HeaderMap::new(), bytes);
    let status = status.and_then(|status| std::str::from_utf8(status).ok()?.trim().parse::<u16>().ok());
    let Some(status) = status.filter(|status| (100..600).contains(status)) else { return Err(lost(ask)) };
    let mut is_first = true;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() {
            break;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if let (false, Ok(name), Ok(value)) =
            (is_first, HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            headers.append(name, value);
        }
        is_first = false;
    }
    let body = Bytes::copy_from_slice(rest);
    if (200..300).contains(&status) {
        return Ok(Answer { headers, body });
    }
    let (code, message) = xml::parse_error(&body);
    let (request, region) = (format!("{} {}", ask.method, ask.key), String::new());
    Err(ClientError::Refused(Box::new(Refusal { request, status, code, message, region })))
}

impl Carrier for Script {
    fn carry(&self, ask: &Ask) -> Carried {
        let next = self.0.lock().pop_front();
        let outcome = next.map_or_else(|| Err(lost(ask)), |bytes| answered(ask, &bytes));
        Box::pin(std::future::ready(outcome))
    }

    fn pause(&self, _length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

struct Ten;

impl Source for Ten {
    fn read(&self, range: Range<u64>) -> impl Future<Output = io::Result<Bytes>> + Send {
        let len = usize::try_from(range.end - range.start).expect("a part of ten bytes");
        std::future::ready(Ok(Bytes::from(vec![b'x'; len])))
    }
}

/// Runs what needs the timer and tasks of a runtime.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime without sockets").block_on(future)
}

/// Answers to each request of a far mount. The first byte says which one.
pub fn answers(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let upstream = scripted(rest);
    let metadata: Metadata = vec![(WRITE_ID, HeaderValue::from_static("1-2-3.4"))];
    let body = Bytes::from_static(b"content");
    run(async {
        match which % 8 {
            0 => drop(upstream.describe(KEY).await),
            1 => {
                let range = u64::from(which / 16)..u64::from(which / 16) + 7;
                if let Ok(Some(fetched)) = upstream.get(KEY, range.clone(), Wanted::Same(ETAG)).await {
                    let expected = range.end.min(fetched.size).saturating_sub(range.start);
                    assert_eq!((fetched.bytes.len() as u64, fetched.etag.as_str()), (expected, ETAG));
                }
            }
            2 => {
                let query = ListQuery { prefix: "d/", delimiter: Some("/"), encoded: true, ..ListQuery::default() };
                drop(upstream.list(&query).await);
            }
            3 => drop(upstream.put_object(KEY, body, Condition::Same(ETAG), &metadata).await),
            4 => {
                let source = StateOf { key: "d/b", etag: ETAG };
                let copied = upstream.copy_object(source, KEY, Condition::Absent, Some(&metadata)).await;
                assert!(copied.is_err() || bytes.len() > 4, "an answer without a document is no copy");
            }
            5 => {
                let states = [StateOf { key: KEY, etag: ETAG }, StateOf { key: "d/b", etag: ETAG }];
                drop(upstream.delete_objects(&states).await);
            }
            6 => drop(upstream.upload(KEY, Grid::of(10), Ten, Condition::Absent, &metadata).await),
            _ => drop(upstream.put(KEY, body, Condition::Absent).await),
        }
    });
}
