//! Multipart uploads of large objects.
//!
//! Invariants: M1 a part is read only when its bytes fit the limit.  M2 a failed upload is aborted; if its task is
//!                dropped, the upload stays until the store expires it.
//! Not here:   the sizes of parts (`grid`).

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use tokio::task::JoinSet;

use super::{Grid, Metadata, Upstream, nonsense};
use crate::client::{Ask, encode_into};
use crate::condition::Condition;
use crate::error::ClientError;
use crate::xml;

/// Parts of one object that are sent concurrently.
const PARTS_AT_ONCE: u32 = 8;

/// Bytes to send, which do not change meanwhile.
pub trait Source: Send + Sync + 'static {
    /// May be called for a range repeatedly, and concurrently.
    fn read(&self, range: Range<u64>) -> impl Future<Output = io::Result<Bytes>> + Send;
}

impl Upstream {
    /// Puts an object in parts; returns its ETag.
    pub async fn upload(
        &self,
        key: &str,
        grid: Grid,
        source: impl Source,
        condition: Condition<'_>,
        metadata: &Metadata,
    ) -> Result<String, ClientError> {
        let mut ask = Ask { query: "uploads=".to_owned(), ..self.ask(Method::POST, key) };
        ask.headers.extend(metadata.iter().cloned());
        let begun = self.send(&ask).await?;
        let id = xml::parse_field(&begun.body, "InitiateMultipartUploadResult", "UploadId");
        let id = id.map_err(|reason| nonsense(&ask, &reason))?;
        let mut upload = String::from("uploadId=");
        encode_into(&mut upload, &id, false);
        let outcome = match self.send_parts(key, &upload, grid, Arc::new(source)).await {
            Ok(etags) => self.complete(key, &upload, &etags, condition).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            let ask = Ask { query: upload, ..self.ask(Method::DELETE, key) };
            if let Err(error) = self.send(&ask).await {
                tracing::warn!(%error, key, "the parts of an upload that failed stay at the store");
            }
        }
        outcome
    }

    /// Returns the ETags of the parts in order.
    async fn send_parts<S: Source>(
        &self,
        key: &str,
        upload: &str,
        grid: Grid,
        source: Arc<S>,
    ) -> Result<Vec<String>, ClientError> {
        let mut etags = vec![String::new(); grid.parts() as usize];
        let mut tasks = JoinSet::new();
        let mut numbers = 1..=grid.parts();
        loop {
            while tasks.len() < PARTS_AT_ONCE as usize
                && let Some(number) = numbers.next()
            {
                let ask = Ask { query: format!("partNumber={number}&{upload}"), ..self.ask(Method::PUT, key) };
                let (own, source) = (self.clone(), Arc::clone(&source));
                tasks.spawn(
                    async move { own.send_part(ask, grid.part(number), &*source).await.map(|etag| (number, etag)) },
                );
            }
            // When one fails, dropping the set cancels the others.
            match tasks.join_next().await {
                None => return Ok(etags),
                Some(sent) => {
                    let (number, etag) = sent.map_err(|error| ClientError::Source(io::Error::other(error)))??;
                    etags[number as usize - 1] = etag;
                }
            }
        }
    }

    async fn send_part(&self, mut ask: Ask, range: Range<u64>, source: &impl Source) -> Result<String, ClientError> {
        let len = range.end - range.start;
        let _held = self.0.room.hold(len).await?;
        ask.body = source.read(range).await.map_err(ClientError::Source)?;
        if ask.body.len() as u64 != len {
            let reason = format!("{} bytes instead of {len}", ask.body.len());
            return Err(ClientError::Source(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
        }
        let etag = self.send(&ask).await?.etag();
        if etag.is_empty() { Err(nonsense(&ask, "a part without an ETag")) } else { Ok(etag) }
    }

    async fn complete(
        &self,
        key: &str,
        upload: &str,
        etags: &[String],
        condition: Condition<'_>,
    ) -> Result<String, ClientError> {
        let body = Bytes::from(xml::complete_request(etags));
        let mut ask = Ask { query: upload.to_owned(), body, ..self.ask(Method::POST, key) };
        ask.headers.extend(condition.header()?);
        let (outcome, unsure) = self.send_unsure(&ask).await;
        match outcome {
            // The first attempt succeeded, and removed the upload or made the condition false.
            Err(error) if unsure && matches!(error.status(), Some(404 | 412)) => {
                let there =
                    self.describe(key).await?.filter(|there| Some(&there.etag) == etag_of_parts(etags).as_ref());
                there.map(|there| there.etag).ok_or(error)
            }
            Err(error) => Err(error),
            Ok(answer) => {
                answer.check_body(&format!("POST {key} to complete it"))?;
                xml::parse_field(&answer.body, "CompleteMultipartUploadResult", "ETag")
                    .map_err(|reason| nonsense(&ask, &reason))
            }
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
