//! The main port: S3, and one health page.
//!
//! Why:        load balancers often reach only the main port; `-` is not a valid bucket name, so `/-/health` hides
//!             nothing of S3.
//! Not here:   what S3 requests mean (margay-s3).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use margay_jobs::access_log::AccessLog;
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use margay_metrics::Requests;
use margay_s3::{Observer, RequestDone, S3Door};

use crate::admin;
use crate::server::Server;

/// Answers all requests on the S3 port.
#[derive(Debug)]
pub struct Front {
    pub server: Arc<Server>,
    pub door: Arc<S3Door>,
}

impl Handler for Front {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        if request.uri().path() == "/-/health" {
            let allowed = matches!(*request.method(), Method::GET | Method::HEAD);
            let server = Arc::clone(&self.server);
            return Box::pin(async move {
                if allowed {
                    admin::health(&server)
                } else {
                    answer::plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD")
                }
            });
        }
        let peer = peer.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let door = Arc::clone(&self.door);
        Box::pin(async move {
            door.handle(request, peer).await.map(|body| {
                let in_memory = body.bytes_in_memory();
                ResponseBody { in_memory, body: body.map_err(Into::into).boxed_unsync() }
            })
        })
    }
}

/// Counts requests and writes the access logs.
#[derive(Debug)]
pub struct Recorder {
    pub requests: Arc<Requests>,
    pub access_log: Arc<AccessLog>,
}

impl Observer for Recorder {
    fn wants_subject(&self) -> bool {
        self.access_log.wants_lines()
    }

    fn request_done(&self, done: &RequestDone<'_>) {
        self.requests.record(done.operation, done.status.as_u16(), done.total);
        self.access_log.note(done);
        tracing::debug!(
            target: "margay::access",
            peer = %done.peer,
            operation = done.operation,
            status = done.status.as_u16(),
            code = done.code,
            request_id = done.request_id,
            bytes_in = done.bytes_in,
            bytes_out = done.bytes_out,
            first_byte_us = u64::try_from(done.first_byte.as_micros()).unwrap_or(u64::MAX),
            total_us = u64::try_from(done.total.as_micros()).unwrap_or(u64::MAX),
            complete = done.complete,
            "request"
        );
    }
}
