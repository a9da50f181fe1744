//! Objects with their metadata: what a file system keeps of a file besides its bytes.
//!
//! Why:        a rename is a copy that keeps the bytes, a `chmod` a copy of an object onto itself with other headers.
//! Invariants: O1 a copy is of one state of its source, which the caller names by its ETag.
//!             O2 an answer 200 with an error inside is an error.
//!             O3 an outcome that was lost counts as success only if the object has the write id that was sent.
//! Not here:   bodies in parts (multipart), listings.

use std::future::Future;
use std::io;

use bytes::Bytes;
use http::Method;
use http::header::{HeaderName, HeaderValue};

use super::{Upstream, nonsense};
use crate::client::{Answer, Ask};
use crate::condition::{Condition, etag_value};
use crate::error::ClientError;
use crate::xml;
pub use crate::xml::holds as goes_together;

/// Headers of an object.
pub type Metadata = Vec<(HeaderName, HeaderValue)>;

/// A text of the caller that belongs to one write, so that it recognizes its object when the answer was lost.
pub const WRITE_ID: HeaderName = HeaderName::from_static("x-amz-meta-margay-w");

pub(super) const COPY_SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");

/// A state of an object.
#[derive(Clone, Copy, Debug)]
pub struct StateOf<'a> {
    pub key: &'a str,
    pub etag: &'a str,
}

impl Upstream {
    /// Puts an object with its metadata in one request; returns its ETag.
    pub async fn put_object(
        &self,
        key: &str,
        body: Bytes,
        condition: Condition<'_>,
        metadata: &Metadata,
    ) -> Result<String, ClientError> {
        let len = body.len() as u64;
        self.put_object_of(key, len, std::future::ready(Ok(body)), condition, metadata).await
    }

    /// As `put_object`, of a body that is read when there is room for its `len` bytes.
    pub async fn put_object_of(
        &self,
        key: &str,
        len: u64,
        body: impl Future<Output = io::Result<Bytes>>,
        condition: Condition<'_>,
        metadata: &Metadata,
    ) -> Result<String, ClientError> {
        let _held = self.0.room.hold_sent(len).await?;
        let body = body.await.map_err(ClientError::Source)?;
        let mut ask = Ask { body, ..self.ask(Method::PUT, key) };
        ask.headers.extend(metadata.iter().cloned());
        ask.headers.extend(condition.header()?);
        self.written(&ask, key, metadata, |answer| Ok(answer.etag())).await
    }

    /// Copies a state of an object to a key; `metadata` replaces that of the source. Returns the ETag of the copy.
    pub async fn copy_object(
        &self,
        source: StateOf<'_>,
        key: &str,
        condition: Condition<'_>,
        metadata: Option<&Metadata>,
    ) -> Result<String, ClientError> {
        let mut ask = Ask::copy(&self.0.bucket, source.key, key);
        ask.headers.push((COPY_SOURCE_IF_MATCH, etag_value(source.etag)?));
        if let Some(metadata) = metadata {
            ask.headers.push((DIRECTIVE, HeaderValue::from_static("REPLACE")));
            ask.headers.extend(metadata.iter().cloned());
        }
        ask.headers.extend(condition.header()?);
        let sent = metadata.cloned().unwrap_or_default();
        self.written(&ask, key, &sent, |answer| copied(&ask, &answer)).await
    }

    /// Deletes up to [`crate::client::DELETE_KEYS_MAX`] objects, each if it still has this ETag; returns the keys that
    /// were not deleted, with the code of the reason. A store may ignore the ETags. See [`goes_together`] for the keys.
    pub async fn delete_objects(&self, states: &[StateOf<'_>]) -> Result<Vec<(String, String)>, ClientError> {
        let ask = self.ask_to_delete(states);
        self.deleted(&ask, states.len(), self.send(&ask).await?)
    }

    /// As `delete_objects`, and not again after an attempt that may have succeeded: meanwhile the same bytes may be under the key
    /// as another object, with the same ETag.
    pub async fn delete_objects_once(&self, states: &[StateOf<'_>]) -> Result<Vec<(String, String)>, ClientError> {
        let ask = self.ask_to_delete(states);
        self.deleted(&ask, states.len(), self.send_once(&ask).await?)
    }

    /// As `delete_objects_once`, of one object with any key; returns the code of the reason if it was not deleted.
    pub async fn delete_object_once(&self, state: StateOf<'_>) -> Result<Option<String>, ClientError> {
        let mut ask = self.ask(Method::DELETE, state.key);
        ask.headers.extend(Condition::Same(state.etag).header()?);
        match self.send_once(&ask).await {
            Ok(_) => {
                self.0.meter.removed(1);
                Ok(None)
            }
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) if matches!(error.status(), Some(403 | 412)) => Ok(error.code().map(str::to_owned)),
            Err(error) => Err(error),
        }
    }

    fn ask_to_delete(&self, states: &[StateOf<'_>]) -> Ask {
        let body = xml::delete_states_request(states.iter().map(|state| (state.key, state.etag)));
        Ask::delete_documents(&self.0.bucket, body)
    }

    fn deleted(&self, ask: &Ask, count: usize, answer: Answer) -> Result<Vec<(String, String)>, ClientError> {
        let kept = xml::parse_delete_failures(&answer.body).map_err(|reason| nonsense(ask, &reason))?;
        self.0.meter.removed(count.saturating_sub(kept.len()));
        Ok(kept)
    }

    /// Sends a write. If its answer was lost and its condition no longer holds, the object may be this write's (O3).
    async fn written(
        &self,
        ask: &Ask,
        key: &str,
        metadata: &Metadata,
        etag_of: impl Fn(Answer) -> Result<String, ClientError>,
    ) -> Result<String, ClientError> {
        let (outcome, unsure) = self.send_unsure(ask).await;
        match outcome {
            Ok(answer) => etag_of(answer),
            Err(error) if unsure && matches!(error.status(), Some(404 | 412)) => {
                let own = own_id(metadata);
                let there = self.describe(key).await?;
                let is_own = |headers: &http::HeaderMap| own.is_some() && headers.get(WRITE_ID) == own;
                there.filter(|there| is_own(&there.headers)).map(|there| there.etag).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }
}

/// The write id that a write gives its object.
pub(super) fn own_id(metadata: &Metadata) -> Option<&HeaderValue> {
    metadata.iter().find(|(name, _)| *name == WRITE_ID).map(|(_, id)| id)
}

fn copied(ask: &Ask, answer: &Answer) -> Result<String, ClientError> {
    answer.check_body(&format!("PUT {} as a copy", ask.key))?;
    xml::parse_field(&answer.body, "CopyObjectResult", "ETag").map_err(|reason| nonsense(ask, &reason))
}
