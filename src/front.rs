//! The main port: S3, two pages for probes, and administration by signed requests.
//!
//! Why:        load balancers and operators often reach only the main port; `-` is not a valid bucket name, so `/-/health`,
//!             `/-/ready` and `/-/admin/` hide nothing of S3; where the host names a bucket, the path is a key's. The paths of MinIO's probes hide a
//!             few keys of a bucket called `minio` from those who do not sign.
//! Not here:   what S3 requests mean (margay-s3).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use margay_accounts::identities::Identities;
use margay_accounts::root_keys::RootKeys;
use margay_env::{Clock, Env};
use margay_jobs::access_log::{AccessLog, AccessLogOptions};
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use margay_metrics::Requests;
use margay_s3::{Observer, RequestDone, S3Door, SpanPlace};
use margay_volume::Volume;

use crate::admin::{self, Healthy};
use crate::administration::Remote;
use crate::server::Server;
use crate::settings::Settings;
use crate::spans::Spans;
use crate::trace::Trace;

/// Answers all requests on the S3 port.
#[derive(Debug)]
pub struct Front {
    pub process: Arc<dyn Healthy>,
    pub door: Arc<S3Door>,
    pub admin: Arc<Remote>,
}

impl Front {
    /// Of a server with a volume of its own.
    pub fn of(server: &Arc<Server>, settings: &Settings, door: S3Door) -> Front {
        let admin = Remote::new(server, &settings.region, settings.tls.is_some());
        Front { process: Arc::clone(server) as Arc<dyn Healthy>, door: Arc::new(door), admin: Arc::new(admin) }
    }
}

/// Paths of administration.
const ADMIN: &str = "/-/admin/";

/// The S3 door of a volume with these settings; `only_bucket` as in the door's options.
pub fn door(
    env: &Env,
    settings: &Settings,
    volume: &Arc<Volume>,
    (keys, identities): (&RootKeys, &Arc<Identities>),
    recorder: Recorder,
    only_bucket: Option<String>,
) -> S3Door {
    let options = margay_s3::Options {
        region: settings.region.clone(),
        domains: settings.domains.clone(),
        website_domains: settings.website_domains.clone(),
        auth: margay_s3::auth::Options { version_2: settings.auth.signature_v2, ..Default::default() },
        decoder: margay_s3::body::DecoderOptions { chunk_verification: settings.auth.chunk_verification },
        secure: settings.tls.is_some(),
        notification_targets: settings.notify.iter().map(|target| target.name.clone()).collect(),
        customer_keys: settings.tls.is_some() || settings.customer_keys_anywhere,
        select_dialect: settings.select_dialect,
        only_bucket,
        ..margay_s3::Options::default()
    };
    if !settings.auth.chunk_verification {
        tracing::warn!(
            "auth.chunk_verification is off: payload hashes and chunk signatures are not compared, so whoever can change \
             a request on its way can change the object that it stores"
        );
    }
    S3Door::new(Arc::clone(volume), Arc::new(keys.clone()), options, env.clone())
        .with_identities(Arc::clone(identities) as Arc<dyn margay_s3::identities::Identities>)
        .observed_by(Arc::new(recorder))
}

/// Everything belongs to the root account until a bucket says otherwise.
pub fn owner() -> String {
    margay_s3::Options::default().owner_id
}

pub fn access_log_options(settings: &Settings) -> AccessLogOptions {
    AccessLogOptions { file: settings.access_log.clone(), deliver_every: settings.access_log_every, owner: owner() }
}

fn is_admin(request: &Request<RequestBody>) -> bool {
    request.uri().path().starts_with(ADMIN)
}

impl Handler for Front {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        let allowed = matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path();
        let is_page = matches!(path, admin::HEALTH | admin::READY) && !self.door.names_bucket(&request);
        if is_page || (allowed && admin::is_minio_health(path) && is_unsigned(&request)) {
            let (process, path) = (Arc::clone(&self.process), path.to_owned());
            return Box::pin(async move {
                if allowed {
                    admin::probe(&*process, &path)
                } else {
                    answer::plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD")
                }
            });
        }
        let peer = peer.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        if is_admin(&request) && !self.door.names_bucket(&request) {
            let admin = Arc::clone(&self.admin);
            return Box::pin(async move { admin.answer(request, peer).await });
        }
        let door = Arc::clone(&self.door);
        Box::pin(async move {
            door.handle(request, peer).await.map(|body| {
                let in_memory = body.bytes_in_memory();
                ResponseBody { in_memory, body: body.map_err(Into::into).boxed_unsync() }
            })
        })
    }
}

/// Whether nobody signed it: a signed request for the key `health/live` means the bucket `minio`.
fn is_unsigned(request: &Request<RequestBody>) -> bool {
    !request.headers().contains_key(http::header::AUTHORIZATION)
        && !request.uri().query().is_some_and(|query| query.contains("Signature="))
}

/// Counts requests, shows them to those who watch, and writes the access logs.
#[derive(Debug)]
pub struct Recorder {
    pub requests: Arc<Requests>,
    pub access_log: Arc<AccessLog>,
    pub trace: Arc<Trace>,
    pub spans: Arc<Spans>,
    pub clock: Arc<dyn Clock>,
}

impl Recorder {
    pub fn of(server: &Server) -> Recorder {
        Recorder {
            requests: Arc::clone(&server.requests),
            access_log: Arc::clone(&server.access_log),
            trace: Arc::clone(&server.trace),
            spans: Arc::clone(&server.spans),
            clock: Arc::clone(&server.env.clock),
        }
    }
}

impl Observer for Recorder {
    fn wants_subject(&self) -> bool {
        self.access_log.wants_lines() || self.trace.is_watched()
    }

    fn span(&self, headers: &HeaderMap) -> Option<SpanPlace> {
        self.spans.place(headers)
    }

    fn request_done(&self, done: &RequestDone<'_>) {
        self.requests.record(done.operation, done.status.as_u16(), done.total);
        self.access_log.note(done);
        self.trace.note(done, &*self.clock);
        self.spans.note_request(done);
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
