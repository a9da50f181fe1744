//! The lock object: a lease on the backup's files, held in the bucket itself.
//!
//! Why:        two concurrent backups to one location would corrupt each other's pieces.
//! Invariants: L1 the object is created only if absent, and renewed or taken over only if unchanged, by conditional
//!                writes. A store that ignores the conditions is refused.
//!             L2 its age is measured by the store's clock alone (`Last-Modified` against `Date`).
//!             L3 a holder trusts its lease only for `lease` after the start of its last renewal. That is far less than
//!                the age at which others take it over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{DATE, ETAG, HeaderName, LAST_MODIFIED};
use margay_env::LockHandle;
use parking_lot::Mutex;

use super::Root;
use crate::client::Answer;
use crate::condition::Condition;
use crate::error::ClientError;

/// Random bytes that distinguish two holders.
const NONCE_BYTES: usize = 16;

/// The holder's view of its lock.
#[derive(Debug)]
pub(super) struct Lease {
    root: std::sync::Weak<Root>,
    key: String,
    /// Content of the object, unique to this holder.
    text: Bytes,
    etag: Mutex<String>,
    /// When the last successful renewal began, on the monotonic clock.
    renewed: Mutex<Duration>,
    lost: AtomicBool,
}

#[derive(Debug)]
pub(super) struct BucketLock {
    root: Arc<Root>,
    lease: Arc<Lease>,
    /// Ends the renewal thread when dropped.
    stop: Option<Sender<()>>,
    renewals: Option<JoinHandle<()>>,
}

impl LockHandle for BucketLock {}

/// Takes the lock, or fails with `WouldBlock`.
pub(super) fn take(root: &Arc<Root>, key: &str) -> io::Result<BucketLock> {
    let text = Bytes::from(text(root));
    let began = root.clock.monotonic();
    let made = match root.bucket.get(key) {
        Err(error) if error.is_not_found() => put(root, key, &text, Condition::Absent)?,
        Ok(answer) => {
            if age(&answer.headers)? < root.times.takeover {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            tracing::warn!(key, "the lock of a backup was not renewed for long: it is taken over");
            put(root, key, &text, Condition::Same(&header(&answer.headers, &ETAG)))?
        }
        Err(error) => return root.done(Err(error)),
    };
    let etag = made.ok_or(io::ErrorKind::WouldBlock)?;
    // A second conditional creation must be refused.
    match root.bucket.put(key, text.clone(), Condition::Absent) {
        Err(error) if matches!(error.status(), Some(409 | 412)) => {}
        Err(error) => return root.done(Err(error)),
        Ok(_) => {
            root.done(root.bucket.delete(key))?;
            let why = "this store ignores If-None-Match, so nothing keeps two backups apart: use another store, or a \
                       directory";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
    }
    let lease = Arc::new(Lease {
        root: Arc::downgrade(root),
        key: key.to_owned(),
        text,
        etag: Mutex::new(etag),
        renewed: Mutex::new(began),
        lost: AtomicBool::new(false),
    });
    let (stop, stopped) = mpsc::channel();
    let (renewing, renewal) = (Arc::clone(&lease), root.times.renewal);
    let renewals = std::thread::Builder::new().name("margay-lock".to_owned()).spawn(move || {
        while stopped.recv_timeout(renewal) == Err(RecvTimeoutError::Timeout) {
            renewing.renew();
        }
    })?;
    *root.lease.lock() = Some(Arc::clone(&lease));
    Ok(BucketLock { root: Arc::clone(root), lease, stop: Some(stop), renewals: Some(renewals) })
}

/// Describes the holder for people.
fn text(root: &Root) -> String {
    let mut nonce = [0; NONCE_BYTES];
    root.random.fill(&mut nonce);
    let nonce = base16ct::lower::encode_string(&nonce);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("margay, process {} of {host}\n{nonce}\n", std::process::id())
}

/// Returns the new ETag; `None` when the condition does not hold.
fn put(root: &Root, key: &str, text: &Bytes, condition: Condition<'_>) -> io::Result<Option<String>> {
    match root.bucket.put(key, text.clone(), condition) {
        Ok(etag) => Ok(Some(etag)),
        // Also when the first attempt of a retried request succeeded.
        Err(error) if matches!(error.status(), Some(404 | 409 | 412)) => {
            let Answer { headers, body } = match root.bucket.get(key) {
                Err(error) if error.is_not_found() => return Ok(None),
                answer => root.done(answer)?,
            };
            Ok((body == *text).then(|| header(&headers, &ETAG)))
        }
        Err(error) => root.done(Err(error)),
    }
}

fn header(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// How long ago the object was written.
fn age(headers: &HeaderMap) -> io::Result<Duration> {
    let time = |name| {
        let nonsense = |_| io::Error::other(format!("the store's answer has no {name} that can be read"));
        httpdate::parse_http_date(&header(headers, name)).map_err(nonsense)
    };
    Ok(time(&DATE)?.duration_since(time(&LAST_MODIFIED)?).unwrap_or_default())
}

impl Lease {
    pub(super) fn is_held(&self) -> bool {
        let Some(root) = self.root.upgrade() else { return false };
        let since = root.clock.monotonic().saturating_sub(*self.renewed.lock());
        !self.lost.load(Ordering::Acquire) && since < root.times.lease
    }

    fn renew(&self) {
        let Some(root) = self.root.upgrade() else { return };
        let began = root.clock.monotonic();
        let etag = self.etag.lock().clone();
        match put(&root, &self.key, &self.text, Condition::Same(&etag)) {
            Ok(Some(etag)) => {
                *self.etag.lock() = etag;
                *self.renewed.lock() = began;
            }
            Ok(None) => {
                tracing::error!(key = self.key, "the lock of the backup is another's: the backup ends");
                self.lost.store(true, Ordering::Release);
            }
            Err(error) => tracing::warn!(%error, key = self.key, "the lock of the backup was not renewed"),
        }
    }

    /// Removes the lock if this holder still has it.
    fn release(&self, root: &Root) -> Result<(), ClientError> {
        let answer = match root.bucket.get(&self.key) {
            Err(error) if error.is_not_found() => return Ok(()),
            answer => answer?,
        };
        if answer.body == self.text { root.bucket.delete(&self.key) } else { Ok(()) }
    }
}

impl Drop for BucketLock {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(renewals) = self.renewals.take() {
            // It never panics; and if it did, the lock is still removed.
            let _ = renewals.join();
        }
        if self.lease.is_held()
            && let Err(error) = self.lease.release(&self.root)
        {
            tracing::warn!(%error, key = self.lease.key, "the lock of the backup stays until it is too old");
        }
        *self.root.lease.lock() = None;
    }
}
