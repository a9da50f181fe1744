//! Answers other processes about the own store.
//!
//! Locking:    none here; the store's own.
//! Not here:   what is asked (question), connections and their limits (margay-listener).

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use margay_segment::{SegmentError, Segments};

use crate::key::ClusterKey;
use crate::question::{
    CHECKSUM, CORRUPT, FAILURE, MISSING, OTHER_STORE, PATH, QUESTION_BYTES, Question, REFUSED, SIGNATURE, What,
    encode_state,
};

/// The handler of the port.
#[derive(Clone, Debug)]
pub struct StorePort {
    own: Arc<dyn Segments>,
    key: ClusterKey,
}

impl StorePort {
    pub fn new(own: Arc<dyn Segments>, key: ClusterKey) -> StorePort {
        StorePort { own, key }
    }

    async fn answer(&self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        if (parts.method, parts.uri.path()) != (Method::POST, PATH) {
            return answer::plain(
                StatusCode::NOT_FOUND,
                "margay processes of one volume ask here; S3 has another address",
            );
        }
        let signature = parts.headers.get(SIGNATURE).and_then(|digits| base16ct::lower::decode_vec(digits).ok());
        let Some(signature) = signature else {
            return failure(StatusCode::FORBIDDEN, REFUSED, "no signature");
        };
        let body = match Limited::new(body, QUESTION_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return failure(StatusCode::BAD_REQUEST, REFUSED, "this is no question"),
        };
        if !self.key.is_of(&signature, &body) {
            return failure(StatusCode::FORBIDDEN, REFUSED, "signed with the key of another volume");
        }
        let Some(question) = Question::decode(&body) else {
            return failure(StatusCode::BAD_REQUEST, REFUSED, "this is no question, or one of a newer program");
        };
        let own = Arc::clone(&self.own);
        let asked = tokio::task::spawn_blocking(move || ask(&*own, question)).await;
        match asked {
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

fn ask(own: &dyn Segments, question: Question) -> Result<Bytes, SegmentError> {
    let (number, segment) = (own.name().number, question.what.segment());
    if number != question.store {
        return Err(SegmentError::Unreachable(segment, question.store));
    }
    match question.what {
        What::Read { extent, skip, len } => own.read(&extent, skip, len),
        What::Verify(extent) => own.verify(&extent).map(|()| Bytes::new()),
        What::State(id) => own.state(id).map(|info| encode_state(&info).into()),
    }
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
        SegmentError::Full | SegmentError::Poisoned(_) | SegmentError::Io(_) => {
            failure(StatusCode::INTERNAL_SERVER_ERROR, "failed", &said)
        }
    }
}

fn failure(status: StatusCode, kind: &'static str, said: &str) -> Response<ResponseBody> {
    let mut response = answer::plain(status, said);
    response.headers_mut().insert(FAILURE, HeaderValue::from_static(kind));
    response
}
