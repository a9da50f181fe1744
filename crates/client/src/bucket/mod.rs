//! One bucket: blocking calls with timeouts and retries.
//!
//! Why:        code that works with files is not async, and a remote store fails now and then.
//! Layout:     `advice` explains errors to people.
//! Invariants: B1 a call may be made on any thread, even inside a runtime: requests run on the bucket's own threads.
//!             B2 every call may be sent twice; if the first attempt made its condition false, the caller must handle
//!                that.
//! Not here:   connections (`calls`), retries (`retry`), the content of objects (`disk`).

mod advice;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::runtime::Runtime;

use crate::calls::{Calls, late};
use crate::client::{Answer, Ask, DELETE_KEYS_MAX, ListQuery, PAGE_KEYS_MAX};
use crate::condition::{Condition, range_header};
use crate::error::{ClientError, Refusal};
use crate::retry;
use crate::target::Target;
use crate::xml;

/// Threads that run a bucket's requests.
const THREADS: usize = 1;
/// Idle connections kept for reuse.
const IDLE_MAX: usize = 8;

/// A bucket of a store, and the credentials for it.
pub struct Bucket {
    calls: Arc<Calls>,
    name: String,
    /// Absent only while it is dropped.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bucket {} at {}", self.name, self.calls.target().url())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Without waiting: a bucket may be dropped inside another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    /// Sends no request yet.
    pub fn new(target: Arc<Target>, name: &str) -> io::Result<Bucket> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("margay-bucket")
            .enable_all()
            .build()?;
        let calls = Arc::new(Calls::new(target, IDLE_MAX));
        Ok(Bucket { calls, name: name.to_owned(), runtime: Some(runtime) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the bucket exists and may be listed; fails quickly.
    pub fn check(&self) -> Result<(), ClientError> {
        self.wait(self.question(), retry::CHECK_TRIES_MAX).map(drop)
    }

    /// As `check`, in this time, looking for keys included.
    pub fn check_within(&self, time_max: Duration) -> Result<(), ClientError> {
        let (calls, ask) = (Arc::clone(&self.calls), self.question());
        let tries_max = retry::CHECK_TRIES_MAX;
        wait_on(self.runtime(), async move {
            let once = || calls.once(&ask);
            let asked = retry::until_done(ClientError::is_passing, tries_max, None, once, tokio::time::sleep);
            let answer = tokio::time::timeout(time_max, asked).await;
            answer.unwrap_or_else(|_| Err(late(&ask, time_max))).map(drop)
        })
    }

    fn question(&self) -> Ask {
        let query = ListQuery { keys_max: 1, ..ListQuery::default() }.encode();
        Ask { query, ..self.ask(Method::GET, "") }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("a bucket that is used has its runtime")
    }

    pub fn get(&self, key: &str) -> Result<Answer, ClientError> {
        self.call(self.ask(Method::GET, key))
    }

    pub fn exists(&self, key: &str) -> Result<bool, ClientError> {
        match self.call(self.ask(Method::HEAD, key)) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A range of an object, which must contain all of it.
    pub fn get_range(&self, key: &str, offset: u64, len: u64) -> Result<Bytes, ClientError> {
        let ask = Ask { headers: vec![range_header(offset..offset + len)], ..self.ask(Method::GET, key) };
        let body = self.call(ask)?.body;
        if body.len() as u64 == len {
            return Ok(body);
        }
        let reason = format!("{} bytes instead of {len}", body.len());
        Err(ClientError::Nonsense { request: format!("GET {key}"), reason })
    }

    /// Returns the ETag.
    pub fn put(&self, key: &str, body: Bytes, condition: Condition<'_>) -> Result<String, ClientError> {
        let mut ask = Ask { body, ..self.ask(Method::PUT, key) };
        ask.headers.extend(condition.header()?);
        self.call(ask).map(|answer| answer.etag())
    }

    /// Copies an object within the store.
    pub fn copy(&self, from: &str, to: &str) -> Result<(), ClientError> {
        let answer = self.call(Ask::copy(&self.name, from, to))?;
        answer.check_body(&format!("PUT {to} as a copy of {from}"))
    }

    /// Succeeds if the object does not exist.
    pub fn delete(&self, key: &str) -> Result<(), ClientError> {
        match self.call(self.ask(Method::DELETE, key)) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes all of these keys, in any order.
    pub fn delete_all(&self, keys: &[String]) -> Result<(), ClientError> {
        for some in keys.chunks(DELETE_KEYS_MAX) {
            let ask = Ask::delete_many(&self.name, some.iter().map(String::as_str));
            let answer = self.call(ask)?;
            let request = format!("POST {}?delete", self.name);
            match xml::parse_delete_failure(&answer.body) {
                Ok(None) => {}
                Ok(Some((key, code))) => {
                    let message = format!("{key} was not deleted");
                    let refusal = Refusal { request, status: 200, code, message, region: String::new() };
                    return Err(ClientError::Refused(Box::new(refusal)));
                }
                Err(reason) => return Err(ClientError::Nonsense { request, reason }),
            }
        }
        Ok(())
    }

    /// All objects whose keys have this prefix, in key order.
    pub fn list(&self, prefix: &str) -> Result<Vec<xml::Entry>, ClientError> {
        let mut entries = Vec::new();
        let mut token = None;
        loop {
            let query = ListQuery {
                prefix,
                token: token.as_deref(),
                keys_max: PAGE_KEYS_MAX,
                encoded: true,
                ..ListQuery::default()
            };
            let answer = self.call(Ask { query: query.encode(), ..self.ask(Method::GET, "") })?;
            let page = xml::parse_page(&answer.body)
                .map_err(|reason| ClientError::Nonsense { request: format!("list {prefix}"), reason })?;
            entries.extend(page.entries);
            token = page.next_token.filter(|_| page.truncated);
            if token.is_none() {
                return Ok(entries);
            }
        }
    }

    fn ask(&self, method: Method, key: &str) -> Ask {
        Ask::new(method, &self.name, key)
    }

    fn call(&self, ask: Ask) -> Result<Answer, ClientError> {
        self.wait(ask, retry::TRIES_MAX)
    }

    fn wait(&self, ask: Ask, tries_max: u32) -> Result<Answer, ClientError> {
        let calls = Arc::clone(&self.calls);
        wait_on(self.runtime(), async move {
            retry::until_done(ClientError::is_passing, tries_max, None, || calls.once(&ask), tokio::time::sleep).await
        })
    }
}

/// Runs a future on the runtime's threads and blocks until it ends.
fn wait_on<T: Send + 'static>(runtime: &Runtime, work: impl Future<Output = T> + Send + 'static) -> T {
    let (done, outcome) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = done.send(work.await);
    });
    outcome.recv().expect("a call ends with its outcome")
}
