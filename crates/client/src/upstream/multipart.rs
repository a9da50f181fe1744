//! Multipart uploads of large objects.
//!
//! Invariants: M1 a part is read only when its bytes fit the limit.
//!             M2 an upload stays at the store until it is completed or aborted, also when its task is dropped: who begins
//!                one remembers it (`OpenUpload`).
//!             M3 a copied part is of one state of its source, which the caller names by its ETag.
//! Not here:   the sizes of parts (`grid`), which parts are sent (the caller).

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::HeaderName;
use md5::{Digest, Md5};
use tokio::task::JoinSet;

use super::objects::{COPY_SOURCE_IF_MATCH, WRITE_ID, own_id};
use super::{Described, Grid, Metadata, StateOf, Upstream, nonsense};
use crate::client::{Answer, Ask, encode_into};
use crate::condition::{Condition, etag_value, range_header};
use crate::error::ClientError;
use crate::xml;

/// Parts of one object that are sent or copied concurrently.
const PARTS_AT_ONCE: usize = 16;
const COPY_SOURCE_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");

/// Bytes to send, which do not change meanwhile.
pub trait Source: Send + Sync + 'static {
    /// May be called for a range repeatedly, and concurrently.
    fn read(&self, range: Range<u64>) -> impl Future<Output = io::Result<Bytes>> + Send;
}

/// An upload that was begun. It is text: a later process can abort it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenUpload {
    pub key: String,
    pub id: String,
}

/// How a part of an object gets its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartOf {
    /// From the source of the upload.
    Sent,
    /// It is at the store already, with this ETag.
    There(String),
    /// From the same range of a state of an object: its key and its ETag.
    Copied(String, String),
}

impl OpenUpload {
    fn query(&self) -> String {
        let mut query = String::from("uploadId=");
        encode_into(&mut query, &self.id, false);
        query
    }
}

impl Upstream {
    /// Puts an object in parts and returns its ETag; what fails is aborted. If the task is dropped the upload stays (M2).
    pub async fn upload(
        &self,
        key: &str,
        grid: Grid,
        source: impl Source,
        condition: Condition<'_>,
        metadata: &Metadata,
    ) -> Result<String, ClientError> {
        let upload = self.begin_upload(key, metadata).await?;
        let sent = self.send_parts(&upload, grid, Arc::new(source), |_| PartOf::Sent, |_, _| ()).await;
        let outcome = match sent {
            Ok(etags) => self.complete_upload(&upload, &etags, condition, metadata).await,
            Err(error) => Err(error),
        };
        if outcome.is_err()
            && let Err(error) = self.abort_upload(&upload).await
        {
            tracing::warn!(%error, key, "the parts of an upload that failed stay at the store");
        }
        outcome
    }

    /// Begins an object of this metadata. Nobody sees it before it is completed.
    pub async fn begin_upload(&self, key: &str, metadata: &Metadata) -> Result<OpenUpload, ClientError> {
        let mut ask = Ask { query: "uploads=".to_owned(), ..self.ask(Method::POST, key) };
        ask.headers.extend(metadata.iter().cloned());
        let begun = self.send(&ask).await?;
        let id = xml::parse_field(&begun.body, "InitiateMultipartUploadResult", "UploadId");
        Ok(OpenUpload { key: key.to_owned(), id: id.map_err(|reason| nonsense(&ask, &reason))? })
    }

    /// Succeeds if there is no such upload any more.
    pub async fn abort_upload(&self, upload: &OpenUpload) -> Result<(), ClientError> {
        let ask = Ask { query: upload.query(), ..self.ask(Method::DELETE, &upload.key) };
        match self.send(&ask).await {
            Err(error) if error.status() != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Brings the missing parts of an object to the store, which has the others; `part_of` tells how, by the number. Returns
    /// the ETags of all, in order. What was sent is told to `sent`, also if another part fails.
    pub async fn send_parts<S: Source>(
        &self,
        upload: &OpenUpload,
        grid: Grid,
        source: Arc<S>,
        part_of: impl Fn(u32) -> PartOf,
        mut sent: impl FnMut(u32, &str),
    ) -> Result<Vec<String>, ClientError> {
        let mut etags = vec![String::new(); grid.parts() as usize];
        let (mut tasks, mut numbers) = (JoinSet::new(), 1..=grid.parts());
        loop {
            while tasks.len() < PARTS_AT_ONCE
                && let Some(number) = numbers.next()
            {
                let part = match part_of(number) {
                    PartOf::There(etag) => {
                        etags[number as usize - 1] = etag;
                        continue;
                    }
                    part => part,
                };
                let (own, upload, source) = (self.clone(), upload.clone(), Arc::clone(&source));
                tasks.spawn(async move {
                    let range = grid.part(number);
                    let etag = match part {
                        PartOf::Copied(key, etag) => {
                            own.copy_part(&upload, number, StateOf { key: &key, etag: &etag }, Some(range)).await
                        }
                        _ => own.send_part(&upload, number, range, &*source).await,
                    };
                    (number, etag)
                });
            }
            // When one fails, dropping the set cancels the others.
            match tasks.join_next().await {
                None => return Ok(etags),
                Some(done) => {
                    let (number, etag) = done.map_err(|error| ClientError::Source(io::Error::other(error)))?;
                    let etag = etag?;
                    sent(number, &etag);
                    etags[number as usize - 1] = etag;
                }
            }
        }
    }

    /// Sends a range of the source as a part; returns its ETag.
    pub async fn send_part(
        &self,
        upload: &OpenUpload,
        number: u32,
        range: Range<u64>,
        source: &impl Source,
    ) -> Result<String, ClientError> {
        let len = range.end - range.start;
        let _held = self.0.room.hold_sent(len).await?;
        let query = format!("partNumber={number}&{}", upload.query());
        let mut ask = Ask { query, ..self.ask(Method::PUT, &upload.key) };
        ask.body = source.read(range).await.map_err(ClientError::Source)?;
        if ask.body.len() as u64 != len {
            let reason = format!("{} bytes instead of {len}", ask.body.len());
            return Err(ClientError::Source(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
        }
        let etag = self.send(&ask).await?.etag();
        if etag.is_empty() { Err(nonsense(&ask, "a part without an ETag")) } else { Ok(etag) }
    }

    /// Makes a state of an object, or a range of it, a part; returns its ETag.
    pub async fn copy_part(
        &self,
        upload: &OpenUpload,
        number: u32,
        from: StateOf<'_>,
        range: Option<Range<u64>>,
    ) -> Result<String, ClientError> {
        let mut ask = Ask::copy(&self.0.bucket, from.key, &upload.key);
        ask.query = format!("partNumber={number}&{}", upload.query());
        ask.headers.push((COPY_SOURCE_IF_MATCH, etag_value(from.etag)?));
        if let Some(range) = range {
            let (_, range) = range_header(range);
            ask.headers.push((COPY_SOURCE_RANGE, range));
        }
        let answer = self.send(&ask).await?;
        answer.check_body(&format!("PUT {} as a copied part", upload.key))?;
        xml::parse_field(&answer.body, "CopyPartResult", "ETag").map_err(|reason| nonsense(&ask, &reason))
    }

    /// Makes the object of all parts; returns its ETag. `metadata`: what the upload was begun with. If the answer was lost, the
    /// write id in it tells the object (O3): an earlier one may have the same bytes. Without one, as at a key that nobody else
    /// writes, the ETag does.
    pub async fn complete_upload(
        &self,
        upload: &OpenUpload,
        etags: &[String],
        condition: Condition<'_>,
        metadata: &Metadata,
    ) -> Result<String, ClientError> {
        let (key, body) = (&upload.key, Bytes::from(xml::complete_request(etags)));
        let mut ask = Ask { query: upload.query(), body, ..self.ask(Method::POST, key) };
        ask.headers.extend(condition.header()?);
        let completed = |answer: Answer| {
            answer.check_body(&format!("POST {key} to complete it"))?;
            xml::parse_field(&answer.body, "CompleteMultipartUploadResult", "ETag")
                .map_err(|reason| nonsense(&ask, &reason))
        };
        let (outcome, unsure) = self.send_unsure(&ask).await;
        match outcome {
            // The first attempt succeeded, and removed the upload or made the condition false.
            Err(error) if unsure && matches!(error.status(), Some(404 | 412)) => {
                let is_own = |there: &Described| match own_id(metadata) {
                    Some(own) => there.headers.get(WRITE_ID) == Some(own),
                    None => Some(&there.etag) == etag_of_parts(etags).as_ref(),
                };
                let Some(there) = self.describe(key).await?.filter(is_own) else { return Err(error) };
                // The same bytes may be there from another upload.
                if let Err(error) = self.abort_upload(upload).await {
                    tracing::warn!(%error, key, "the parts of an upload that has ended stay at the store");
                }
                Ok(there.etag)
            }
            Err(error) => Err(error),
            Ok(answer) => completed(answer),
        }
    }
}

/// The ETag that most stores give an object of these parts; `None` if theirs are not MD5.
fn etag_of_parts(etags: &[String]) -> Option<String> {
    let mut all = Md5::new();
    for etag in etags {
        let digits = etag.trim_matches('"').as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        all.update(bytes.filter(|bytes| bytes.len() == 16)?);
    }
    Some(format!("\"{:x}-{}\"", all.finalize(), etags.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_etag_of_parts_is_that_of_their_digests() {
        let part = |text: &str| format!("\"{:x}\"", Md5::digest(text));
        let digests = [Md5::digest("a"), Md5::digest("b")].concat();
        let expected = format!("\"{:x}-2\"", Md5::digest(digests));
        assert_eq!(etag_of_parts(&[part("a"), part("b")]), Some(expected));
        for odd in ["", "\"\"", "\"zz\"", "\"0cc175b9c0f1b6a831c399e269772661-1\"", "\u{e9}"] {
            assert_eq!(etag_of_parts(&[odd.to_owned()]), None, "{odd}");
        }
    }
}
