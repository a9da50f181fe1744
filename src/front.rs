//! The main port: S3, and one health page.
//!
//! Why:        load balancers often reach only the main port; `-` is not a valid bucket name, so `/-/health` hides
//!             nothing of S3.
//! Not here:   what S3 requests mean (margay-s3).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use margay_accounts::identities::Identities;
use margay_accounts::root_keys::RootKeys;
use margay_env::Env;
use margay_jobs::access_log::{AccessLog, AccessLogOptions};
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::{AnswerFuture, Handler};
use margay_metrics::Requests;
use margay_s3::{Observer, RequestDone, S3Door};
use margay_volume::Volume;

use crate::admin::{self, Healthy};
use crate::settings::Settings;

/// Answers all requests on the S3 port.
#[derive(Debug)]
pub struct Front {
    pub process: Arc<dyn Healthy>,
    pub door: Arc<S3Door>,
}

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

impl Handler for Front {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        if request.uri().path() == "/-/health" {
            let allowed = matches!(*request.method(), Method::GET | Method::HEAD);
            let process = Arc::clone(&self.process);
            return Box::pin(async move {
                if allowed {
                    admin::health(&*process)
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
