//! Answers other processes about the own store.
//!
//! Locking:    none here; the store's own.
//! Not here:   what is asked (question), what is mended (copies), connections and their limits (margay-listener).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Limited};
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use margay_segment::{SegmentCopy, SegmentError, SegmentId, SegmentInfo, Store};

use crate::copies::HttpCopies;
use crate::key::ClusterKey;
use crate::question::{
    BYTES_SIGNATURE, CHECKSUM, CORRUPT, FAILURE, MISSING, OTHER_STORE, PATH, QUESTION, Question, REFUSED, SIGNATURE,
    What, encode_mended, encode_state,
};

/// The handler of the port.
#[derive(Clone, Debug)]
pub struct StorePort {
    own: Arc<Store>,
    key: ClusterKey,
    /// Knows where else a segment is; `None`: nothing is mended.
    copies: Option<Arc<HttpCopies>>,
}

impl StorePort {
    pub fn new(own: Arc<Store>, key: ClusterKey) -> StorePort {
        StorePort { own, key, copies: None }
    }

    /// Lets it mend what the own files lack.
    pub fn mending(self, copies: Arc<HttpCopies>) -> StorePort {
        StorePort { copies: Some(copies), ..self }
    }

    async fn answer(&self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        if (parts.method, parts.uri.path()) != (Method::POST, PATH) {
            return answer::plain(
                StatusCode::NOT_FOUND,
                "margay processes of one volume ask here; S3 has another address",
            );
        }
        let signed = |name| parts.headers.get(name).and_then(|digits| base16ct::lower::decode_vec(digits).ok());
        let (Some(asked), Some(signature)) = (signed(QUESTION), signed(SIGNATURE)) else {
            return failure(StatusCode::FORBIDDEN, REFUSED, "no signature");
        };
        if !self.key.is_of(&signature, &asked) {
            return failure(StatusCode::FORBIDDEN, REFUSED, "signed with the key of another volume");
        }
        let Some(question) = Question::decode(&asked) else {
            return failure(StatusCode::BAD_REQUEST, REFUSED, "this is no question, or one of a newer program");
        };
        let expected = question.what.bytes_behind();
        let Ok(bytes) = Limited::new(body, expected as usize).collect().await.map(Collected::to_bytes) else {
            return failure(StatusCode::BAD_REQUEST, REFUSED, "there are more bytes than the question says");
        };
        let is_signed = || {
            let signature = signed(BYTES_SIGNATURE);
            signature.is_some_and(|signature| self.key.of_bytes(&asked).is_of(&signature, &bytes))
        };
        if bytes.len() as u64 != expected || expected > 0 && !is_signed() {
            return failure(StatusCode::FORBIDDEN, REFUSED, "the bytes are not those that were sent");
        }
        let (own, copies) = (Arc::clone(&self.own), self.copies.clone());
        let answered = tokio::task::spawn_blocking(move || match (question.what, copies) {
            (What::Mend(id), Some(copies)) if own.name().number == question.store => mended(&copies, id),
            (What::Remove(id), Some(copies)) if own.name().number == question.store => {
                copies.remove_unnamed(id).map(|()| Bytes::new())
            }
            (What::Write { id, .. }, Some(copies)) => {
                copies.note_put(id);
                answer_to(&own, question, &bytes)
            }
            _ => answer_to(&own, question, &bytes),
        });
        let answered = answered.await;
        let answered = match (answered, question.what) {
            // Syncs are shared, and wait without a thread.
            (Ok(Ok(bytes)), What::Write { id, durably: true, .. }) => Ok(self.own.sync(id).await.map(|()| bytes)),
            (answered, _) => answered,
        };
        match answered {
            Ok(Ok(bytes)) => whole(bytes),
            Ok(Err(error)) => failed(&error),
            Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, "panic", &error.to_string()),
        }
    }
}

impl Handler for StorePort {
    fn handle(&self, request: Request<RequestBody>, _peer: Option<SocketAddr>) -> AnswerFuture {
        let own = self.clone();
        Box::pin(async move { own.answer(request).await })
    }
}

fn answer_to(own: &Store, question: Question, bytes: &[u8]) -> Result<Bytes, SegmentError> {
    let (name, segment) = (own.name(), question.what.segment());
    let number = name.number;
    if number != question.store {
        return Err(SegmentError::Unreachable(segment, question.store));
    }
    match question.what {
        What::Read { extent, skip, len } => own.read(&extent, skip, len),
        What::Verify(extent) => own.verify(&extent).map(|()| Bytes::new()),
        What::State(id) => own.state(id).map(|info| encode_state(&info).into()),
        What::Write { id, kind, offset, before, .. } => {
            if before > 0 && own.listed(id)?.len < before {
                return Err(SegmentError::Missing(id));
            }
            own.write_copy(id, kind, offset, bytes)?;
            Ok(Bytes::copy_from_slice(&name.generation.to_be_bytes()))
        }
        What::Seal(id) => own.seal_copy(id).map(|()| Bytes::new()),
        What::Remove(id) => own.remove_copy(id).map(|()| Bytes::new()),
        What::Punch { id, offset, len } => own.punch_copy(id, offset, len).map(|()| Bytes::new()),
        What::File { id, offset, len } => {
            let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            let count = own.source(id)?.file.read_at(&mut bytes, offset)?;
            bytes.truncate(count);
            Ok(bytes.into())
        }
        What::FileState(id) => {
            let SegmentCopy { kind, file, .. } = own.source(id)?;
            Ok(encode_state(&SegmentInfo { id, kind, len: file.len()?, open: false }).into())
        }
        What::Mend(_) => Err(io::Error::other("nothing is mended here").into()),
    }
}

/// Blocks this thread until it is done.
fn mended(copies: &HttpCopies, id: SegmentId) -> Result<Bytes, SegmentError> {
    let mended = copies.mend(id).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(encode_mended(mended.bad, mended.left).into())
}

fn whole(bytes: Bytes) -> Response<ResponseBody> {
    let checksum = HeaderValue::from(crc32c::crc32c(&bytes));
    let mut response = answer::text(StatusCode::OK, "application/octet-stream", bytes);
    response.headers_mut().insert(CHECKSUM, checksum);
    response
}

fn failed(error: &SegmentError) -> Response<ResponseBody> {
    let said = error.to_string();
    match error {
        SegmentError::Missing(_) => failure(StatusCode::NOT_FOUND, MISSING, &said),
        SegmentError::Unreachable(..) => failure(StatusCode::NOT_FOUND, OTHER_STORE, &said),
        SegmentError::Corrupt { .. } => failure(StatusCode::INTERNAL_SERVER_ERROR, CORRUPT, &said),
        SegmentError::Full | SegmentError::TooFewCopies(..) | SegmentError::Poisoned(_) | SegmentError::Io(_) => {
            failure(StatusCode::INTERNAL_SERVER_ERROR, "failed", &said)
        }
    }
}

fn failure(status: StatusCode, kind: &'static str, said: &str) -> Response<ResponseBody> {
    let mut response = answer::plain(status, said);
    response.headers_mut().insert(FAILURE, HeaderValue::from_static(kind));
    response
}
