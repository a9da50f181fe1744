//! The body of a request on its way to an operation.
//!
//! Why:        an operation asks for a document or for pieces; this verifies that they are what the client announced,
//!             before the operation may make them visible.
//! Invariants: P1 nothing is read before the operation asks, so a refused request never causes a `100 Continue`.
//!             P2 memory is bounded: `DOCUMENT_BYTES_MAX`, or the hashing backlog and one piece.
//!             P3 the unread rest of a body is drained within limits, so that the client receives the response.
//! Not here:   framing and digests (body), hashing threads (hashing), timeouts of the client (the listener).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use margay_volume::{PART_BYTES_MAX, Staged, Upload};

use crate::auth::{ChunkChain, PayloadForm};
use crate::body::{Computed, Decoder, DecoderOptions, DigestPlan, Want, WireBody, WireError, announced_bytes};
use crate::error::{Code, S3Error};
use crate::hashing::Hashing;

/// Maximum size of an XML document, in bytes: 10,000 parts with checksums, or 1000 long escaped keys.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Bytes of an unread body that are drained at most.
const DRAIN_BYTES_MAX: u64 = 256 << 20;
/// Time limit of draining.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// The body as received; its unread rest is drained on drop.
pub(crate) struct Wire {
    body: Option<WireBody>,
    received: Arc<AtomicU64>,
    /// The client waits for `100 Continue`.
    waits: bool,
}

impl Wire {
    /// `received` counts the received bytes.
    pub(crate) fn new(body: WireBody, headers: &HeaderMap, received: Arc<AtomicU64>) -> Wire {
        Wire { body: Some(body), received, waits: headers.contains_key(http::header::EXPECT) }
    }

    /// The raw body as a whole, if it is not larger than this.
    pub(crate) async fn whole(self, bytes_max: usize) -> Result<Bytes, S3Error> {
        let body = http_body_util::Limited::new(self, bytes_max).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|_| too_long())
    }
}

impl Body for Wire {
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        let this = self.get_mut();
        this.waits = false;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                this.received.fetch_add(len as u64, Ordering::Relaxed);
            }
            // Nothing is left to drain.
            None | Some(Err(_)) => this.body = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream() && !self.waits) else { return };
        // Otherwise a client that is still sending would see a connection reset instead of the response.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drain(body));
        }
    }
}

async fn drain(mut body: WireBody) {
    let bounded = async {
        let mut drained = 0;
        while let Some(Ok(frame)) = body.frame().await {
            drained += frame.data_ref().map_or(0, Bytes::len) as u64;
            if drained > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // An unfinished body closes the connection when it is dropped.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, bounded).await;
}

/// How many payload bytes will follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Exactly(u64),
    /// Known only at the end: the file of a form, or a body of unknown length.
    AtMost(u64),
}

/// An unread body.
pub(crate) struct Payload {
    pub wire: Wire,
    pub form: PayloadForm,
    pub chain: Option<ChunkChain>,
    pub options: DecoderOptions,
    /// Set when the head does not tell the payload's length.
    pub len_max: Option<u64>,
}

impl Payload {
    /// Payload bytes announced in the head.
    pub(crate) fn announced(&self, headers: &HeaderMap) -> Result<Option<u64>, S3Error> {
        Ok(announced_bytes(headers, &self.form)?)
    }

    /// The payload's length; `None` when it is not announced.
    pub(crate) fn length(&self, headers: &HeaderMap) -> Result<Option<Length>, S3Error> {
        match self.len_max {
            Some(len_max) => Ok(Some(Length::AtMost(len_max))),
            None if self.comes_in_unknown_length(headers) => Ok(Some(Length::AtMost(PART_BYTES_MAX))),
            None => Ok(self.announced(headers)?.map(Length::Exactly)),
        }
    }

    /// Whether the client declares an unknown length, as `curl -T -` does, rather than omitting it.
    fn comes_in_unknown_length(&self, headers: &HeaderMap) -> bool {
        !self.form.is_chunked()
            && !headers.contains_key(http::header::CONTENT_LENGTH)
            && headers.contains_key(http::header::TRANSFER_ENCODING)
    }

    /// The whole body of a request with an XML document, verified against its digests; `digests` is false where the
    /// checksum headers describe something else.
    pub(crate) async fn document(self, headers: &HeaderMap, digests: bool) -> Result<Bytes, S3Error> {
        if self.announced(headers)?.is_some_and(|bytes| bytes > DOCUMENT_BYTES_MAX) {
            return Err(too_long());
        }
        let plan = match (digests, &self.form) {
            (true, form) => DigestPlan::read(headers, form, Want::default())?,
            (false, form) => DigestPlan::read(&only_body_headers(headers), form, Want::default())?,
        };
        let mut digests = plan.digests();
        let mut decoder = Decoder::new(self.wire, headers, &self.form, self.chain, self.options)?;
        let mut document = BytesMut::new();
        while let Some(piece) = decoder.next().await? {
            if (document.len() + piece.len()) as u64 > DOCUMENT_BYTES_MAX {
                return Err(too_long());
            }
            digests.update(&piece);
            document.extend_from_slice(&piece);
        }
        digests.finish(&decoder.finish()?)?;
        Ok(document.freeze())
    }

    /// Receives the whole body into an upload; returns when it is durable and every announcement about it was verified.
    pub(crate) async fn receive(
        self,
        headers: &HeaderMap,
        want: Want,
        length: Length,
        mut upload: Upload,
    ) -> Result<(Staged, Computed), S3Error> {
        let mut plan = DigestPlan::read(headers, &self.form, want)?;
        if !self.options.chunk_verification {
            plan = plan.without_payload_hash();
        }
        let mut decoder = Decoder::new(self.wire, headers, &self.form, self.chain, self.options)?;
        let (Length::Exactly(most) | Length::AtMost(most)) = length;
        let mut hashing = Hashing::new(plan.digests(), most);
        while let Some(piece) = decoder.next().await? {
            hashing.take(piece.clone()).await?;
            upload.write(piece).await?;
        }
        let trailers = decoder.finish()?;
        // Verified before the last bytes are synced: a wrong body costs no sync.
        let computed = hashing.finish().await?.finish(&trailers)?;
        if matches!(length, Length::Exactly(len) if computed.bytes != len) {
            return Err(Code::IncompleteBody.into());
        }
        Ok((upload.finish().await?, computed))
    }
}

fn too_long() -> S3Error {
    S3Error::from(Code::MaxMessageLengthExceeded).with("MaxMessageLengthBytes", DOCUMENT_BYTES_MAX.to_string())
}

/// Headers whose checksums describe this body and not the object that it is about.
fn only_body_headers(headers: &HeaderMap) -> HeaderMap {
    let kept = ["content-md5", "x-amz-trailer"];
    headers
        .iter()
        .filter(|(name, _)| kept.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
