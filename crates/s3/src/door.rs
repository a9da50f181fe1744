//! Handles a request from head to response: authentication, routing, authorization, operation.
//!
//! Why:        every response, success or error, leaves through one function, so each has its ids, headers and log
//!             record.
//! Invariants: R1 the order is host, address, operation, signature, refusals, authorization, execution; only the last
//!                reads the body.
//!             R2 a response to HEAD has no body.
//! Not here:   listeners, connections and their limits (margay-listener).

mod form;
mod looked_for;
mod query;
mod website;

use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use margay_env::Env;
use margay_iam::registry::{Account, Identity};
use margay_volume::{RequestRows, Volume};

use crate::access::context::Circumstances;
use crate::access::{Access, Asker};
use crate::access_subject::AccessSubject;
use crate::auth::{
    self, CredentialSource, Credentials, Head, Host, Sender, Verified, Verifier, Version, hoisted, presigned,
};
use crate::cors;
use crate::door::looked_for::LookedFor;
use crate::error::{Code, S3Error, request_id};
use crate::identities::{self, Identities, RootOnly};
use crate::observer::{Observer, RequestDone, Silent, SpanPlace};
use crate::only_bucket;
use crate::op::{self, Call, RecentRenames};
use crate::options::Options;
use crate::payload::{Payload, Wire};
use crate::query_api;
use crate::reply::Reply;
use crate::route::operation::{self, Operation, Scope};
use crate::route::policy::Op;
use crate::route::query::Query;
use crate::route::refuse::refuse;
use crate::route::target::{Target, bucket_of_host, check_bucket_name};
use crate::route::{self, policy};
use crate::stream::S3Body;
use crate::sts;

/// Maximum size of an error document's resource element, in bytes.
const RESOURCE_BYTES_MAX: usize = 2048;
const UNKNOWN: &str = "Unknown";
/// Odd, so that all 2^64 numbers come before one comes again; of many digits, so that ids that follow one another look different.
const REQUEST_ID_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// A CORS preflight is not an operation of S3's model.
const PREFLIGHT: &str = "Preflight";
/// Neither is a website request.
const WEBSITE: &str = "Website";

/// The S3 door of one volume; cheap to share behind an `Arc`.
pub struct S3Door {
    volume: Arc<Volume>,
    access: Access,
    options: Options,
    env: Env,
    verifier: Verifier,
    /// Verifier for the Security Token Service.
    sts_verifier: Verifier,
    iam_verifier: Verifier,
    providers: Vec<sts::Provider>,
    renames: RecentRenames,
    observer: Arc<dyn Observer>,
    /// The object that GetObject returns without asking the volume (benchmarks).
    fixed_object: Option<Bytes>,
    /// Sent to clients as `x-amz-id-2`: identifies this process.
    host_id: String,
    /// The number of the next request's id.
    next_id: AtomicU64,
}

impl std::fmt::Debug for S3Door {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("S3Door").field("options", &self.options).finish_non_exhaustive()
    }
}

impl S3Door {
    pub fn new(volume: Arc<Volume>, credentials: Arc<dyn Credentials>, mut options: Options, env: Env) -> S3Door {
        for domain in options.domains.iter_mut().chain(&mut options.website_domains) {
            domain.make_ascii_lowercase();
        }
        // Website domains name buckets too, and may be below the other domains.
        options.domains.splice(0..0, options.website_domains.iter().cloned());
        let (host_id, next_id) = (request_id(env.random.next_u64()), AtomicU64::new(env.random.next_u64()));
        let verifier = Verifier::new(options.auth);
        let of_service = |service| Verifier::new(auth::Options { service, version_2: false, ..options.auth });
        let (sts_verifier, iam_verifier) = (of_service("sts"), of_service("iam"));
        let providers = Vec::new();
        let observer = Arc::new(Silent);
        let (renames, fixed_object) = (RecentRenames::default(), None);
        let root = Arc::new(Account {
            id: options.account_id.clone(),
            canonical_id: options.owner_id.clone(),
            display_name: options.owner_name.clone(),
            email: None,
            short_arns: false,
        });
        let identities = Arc::new(RootOnly { credentials, account: Arc::clone(&root) });
        let access = Access { identities, root };
        S3Door {
            volume,
            access,
            options,
            env,
            verifier,
            sts_verifier,
            iam_verifier,
            providers,
            renames,
            observer,
            fixed_object,
            host_id,
            next_id,
        }
    }

    /// No secret, so no call of the operating system: from a random start on, in steps that reach each number once.
    fn new_request_id(&self) -> String {
        request_id(self.next_id.fetch_add(REQUEST_ID_STEP, Ordering::Relaxed))
    }

    /// Reports every request to `observer`.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> S3Door {
        self.observer = observer;
        self
    }

    /// The source of identities. Without one, every key known to the credentials is a root key.
    pub fn with_identities(mut self, identities: Arc<dyn Identities>) -> S3Door {
        self.access.identities = identities;
        self
    }

    /// Accepts tokens of these identity providers (AssumeRoleWithWebIdentity).
    pub fn with_providers(mut self, providers: Vec<sts::Provider>) -> S3Door {
        self.providers = providers;
        self
    }

    /// Makes GetObject return `object` for every key without asking the volume: the cost of the door alone, for
    /// benchmarks.
    pub fn with_fixed_object(mut self, object: Bytes) -> S3Door {
        self.fixed_object = Some(object);
        self
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<S3Body>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let began = self.env.clock.monotonic();
        let (parts, body) = request.into_parts();
        let received = Arc::new(AtomicU64::new(0));
        let wire = Wire::new(Box::new(body.map_err(Into::into)), &parts.headers, Arc::clone(&received));
        self.answer(Arrived { parts, wire, received, peer, began }).await
    }

    /// A box, so that the code of all operations is made here, once, and not by each crate that waits for an answer
    /// (docs/design/0044).
    fn answer(&self, arrived: Arrived) -> Pin<Box<dyn Future<Output = Response<S3Body>> + Send + '_>> {
        Box::pin(self.answer_now(arrived))
    }

    async fn answer_now(&self, arrived: Arrived) -> Response<S3Body> {
        let Arrived { parts, wire, received, peer, began } = arrived;
        let id = self.new_request_id();
        let host = Host::of(&parts, self.options.secure);
        let span = self.observer.span(&parts.headers);
        let subject = (span.is_some() || self.observer.wants_subject()).then(|| {
            let host = host.as_ref().map_or("", Host::as_written);
            let target = Target::parse(host, parts.uri.path(), &self.options.domains).ok();
            AccessSubject::of(&parts, host, target.as_ref(), self.options.secure)
        });
        let (mut name, rows) = (UNKNOWN, RequestRows::default());
        let outcome = match &host {
            Ok(host) => self.serve(Came { parts: &parts, host, peer, id: &id, rows: &rows }, wire, &mut name).await,
            Err(error) => Err(S3Error::invalid_request(error.to_string())),
        };
        let code = outcome.as_ref().err().map(|error| error.code.name());
        let mut reply = outcome.unwrap_or_else(|error| self.refusal(error, &parts, &id));
        if let Ok(host) = &host
            && parts.headers.contains_key(http::header::ORIGIN)
            && parts.method != Method::OPTIONS
        {
            let (host, read) = (host.as_written(), (&*self.volume, &rows));
            cors::decorate(read, &self.options.domains, host, &parts, &mut reply.headers).await;
        }
        // Answered without the body that the client waits to send: the connection must close, and the response says so.
        let unread = parts.headers.contains_key(http::header::EXPECT) && received.load(Ordering::Relaxed) == 0;
        let closes = unread && code.is_some() && parts.version <= http::Version::HTTP_11;
        let record = Record { name, code, id, peer, began, received, subject, span };
        let mut response = self.finish(reply, parts.method == Method::HEAD, record);
        if closes {
            response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
        }
        response
    }

    async fn serve(&self, came: Came<'_>, wire: Wire, name: &mut &'static str) -> Result<Reply, S3Error> {
        let (parts, host) = (came.parts, came.host.as_written());
        if parts.method == Method::OPTIONS {
            *name = PREFLIGHT;
            let target = Target::parse(host, parts.uri.path(), &self.options.domains)?;
            return cors::preflight(&self.volume, &target, &parts.headers).await;
        }
        if bucket_of_host(host, &self.options.website_domains).is_some() {
            *name = WEBSITE;
            return Ok(self.serve_website(came).await);
        }
        if query_api::is_form(parts) {
            return Ok(self.serve_query(came, wire, name).await);
        }
        let method = operation::Method::of(&parts.method).ok_or(Code::MethodNotAllowed)?;
        let target = Target::parse(host, parts.uri.path(), &self.options.domains)?;
        let raw_query = parts.uri.query().unwrap_or("");
        let mut query = Query::parse(raw_query)?;
        if route::is_form_upload(method, target.scope(), &query) {
            *name = "PostObject";
            return self.serve_form(came, wire, target).await;
        }
        let presigned = presigned::version(raw_query);
        let headers = hoisted::join(raw_query, presigned, &parts.headers)?;
        let token = token_of_header(&parts.headers).or_else(|| query.get("X-Amz-Security-Token"));
        // Version 2 URLs spell the parameter like the header.
        let token = token.or_else(|| query.get("x-amz-security-token")).map(str::to_owned);
        if let Some(presigned) = presigned {
            query.remove(|name| hoisted::is_header(name, presigned) || hoisted::means_nothing(name, presigned));
        }
        let operation = route::find(method, target.scope(), &query, &headers)?;
        *name = operation.name;
        let head = Head::of(parts, came.host).with_host_bucket(target.host_bucket());
        let now = self.env.clock.now();
        let identities = &*self.access.identities;
        let (verified, identity) =
            identities::identify(&self.verifier, &head, identities, token.as_deref(), now).await?;
        let Verified { sender, payload: form, chain } = verified;
        let payload = Payload { wire, form, chain, options: self.options.decoder, len_max: None };
        let signed = Signed { sender, identity, operation, target: &target, query: &query, headers: &headers, came };
        self.run(&signed, payload).await
    }

    /// Refuses a request whose sender is authenticated, or runs its operation.
    async fn run(&self, signed: &Signed<'_>, payload: Payload) -> Result<Reply, S3Error> {
        let Signed { sender, operation, target, query, headers, came, .. } = signed;
        let policy = policy::policy(operation)
            .ok_or_else(|| S3Error::not_implemented(&format!("operation {}", operation.name)))?;
        refuse(operation, policy, query, headers)?;
        if let Some(own) = &self.options.only_bucket {
            only_bucket::refuse(own, operation, policy.op, target, headers)?;
        }
        if target.scope() != Scope::Service {
            check_bucket_name(&target.bucket)?;
        }
        let circumstances = self.circumstances(came.peer, sender);
        self.look(policy.op, signed).await?;
        let call = Call {
            volume: &self.volume,
            rows: came.rows,
            access: &self.access,
            asker: Asker { identity: signed.identity.as_deref(), circumstances },
            options: &self.options,
            renames: &self.renames,
            op: policy.op,
            target,
            query,
            headers,
            host: came.host,
        };
        // A benchmark's fixed object has no owner.
        if let (Some(object), Op::GetObject) = (&self.fixed_object, policy.op) {
            return op::get_object::run_fixed(&call, object);
        }
        self.access.authorise(&call.ask()).await?;
        op::run(&call, payload).await
    }

    /// Reads in one call all rows that the operation and its authorization will need.
    async fn look(&self, op: Op, signed: &Signed<'_>) -> Result<(), S3Error> {
        let Signed { target, came, .. } = signed;
        // A benchmark of the door alone reads nothing.
        if target.scope() == Scope::Service || self.fixed_object.is_some() {
            return Ok(());
        }
        // A listing reads its own rows; for root nothing else is read, except for CORS.
        let is_root = signed.identity.as_deref().is_some_and(Identity::is_root);
        let lists = matches!(op, Op::ListObjects | Op::ListObjectsV2);
        if lists && is_root && !came.parts.headers.contains_key(http::header::ORIGIN) {
            return Ok(());
        }
        let looked_for = LookedFor::of(op, signed);
        Ok(self.volume.look_into(came.rows, &target.bucket, looked_for.purpose()).await?)
    }

    /// Whether the host of a request names a bucket, so that its whole path is a key.
    pub fn names_bucket<B>(&self, request: &http::Request<B>) -> bool {
        let of_line = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        let host = of_line.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
        let domains = [&self.options.domains, &self.options.website_domains];
        host.is_some_and(|host| domains.into_iter().any(|domains| bucket_of_host(host.trim(), domains).is_some()))
    }

    /// Condition keys of a request.
    fn circumstances(&self, peer: SocketAddr, sender: &Sender) -> Circumstances<'_> {
        Circumstances {
            peer: peer.ip(),
            secure: self.options.secure,
            now: self.env.clock.now(),
            region: &self.options.region,
            signature_version: signature_version(sender),
            auth_type: auth_type(sender),
        }
    }

    /// The response to an error.
    fn refusal(&self, error: S3Error, parts: &Parts, id: &str) -> Reply {
        tracing::debug!(%error, request_id = id, method = %parts.method, path = parts.uri.path(), "refused");
        let status = error.code.status();
        let mut headers = HeaderMap::new();
        for (name, value) in &error.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        if status == StatusCode::NOT_MODIFIED {
            return Reply { status, headers, body: S3Body::empty() };
        }
        if error.code == Code::SlowDown || error.code == Code::ServiceUnavailable {
            headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let resource = parts.uri.path();
        let resource = &resource[..resource.floor_char_boundary(RESOURCE_BYTES_MAX)];
        let body = S3Body::full(error.xml(resource, id, &self.host_id));
        Reply { status, headers, body }
    }

    fn finish(&self, reply: Reply, is_head: bool, record: Record) -> Response<S3Body> {
        let Reply { status, mut headers, mut body } = reply;
        if is_head {
            body = S3Body::empty();
        }
        let ids = [("x-amz-request-id", &record.id), ("x-amz-id-2", &self.host_id)];
        for (name, id) in ids {
            let value = HeaderValue::from_str(id).expect("ids are hexadecimal");
            headers.insert(HeaderName::from_static(name), value);
        }
        headers.insert(http::header::SERVER, HeaderValue::from_static("margay"));
        let observer = Arc::clone(&self.observer);
        let clock = Arc::clone(&self.env.clock);
        let object_bytes = object_bytes(record.name, &headers);
        let first_byte = clock.monotonic().saturating_sub(record.began);
        body.on_end(Box::new(move |bytes_out, complete| {
            let bytes_in = record.received.load(Ordering::Relaxed);
            observer.request_done(&RequestDone {
                operation: record.name,
                status,
                code: record.code,
                request_id: &record.id,
                peer: record.peer,
                bytes_in,
                bytes_out,
                object_bytes: object_bytes.unwrap_or(bytes_in),
                first_byte,
                total: clock.monotonic().saturating_sub(record.began),
                complete,
                subject: record.subject.as_ref(),
                span: record.span.as_ref(),
            });
        }));
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// A request as it arrived.
struct Arrived {
    parts: Parts,
    wire: Wire,
    /// Bytes of the body that were received.
    received: Arc<AtomicU64>,
    peer: SocketAddr,
    began: Duration,
}

/// A received request, without its body.
#[derive(Clone, Copy)]
struct Came<'r> {
    parts: &'r Parts,
    host: &'r Host,
    peer: SocketAddr,
    id: &'r str,
    /// The rows that the request has read.
    rows: &'r RequestRows,
}

/// A request with a valid signature: its operation and its caller.
struct Signed<'r> {
    sender: Sender,
    /// `None`: unsigned.
    identity: Option<Arc<Identity>>,
    operation: &'static Operation,
    target: &'r Target,
    query: &'r Query,
    /// The headers of the request, of its query, or of its form.
    headers: &'r HeaderMap,
    came: Came<'r>,
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// The session token of a temporary key.
fn token_of_header(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-amz-security-token").and_then(|token| token.to_str().ok())
}

/// The signature's version as a condition key.
fn signature_version(sender: &Sender) -> Option<&'static str> {
    match sender {
        Sender::Anonymous => None,
        Sender::Key { version: Version::V2, .. } => Some("AWS"),
        Sender::Key { version: Version::V4, .. } => Some("AWS4-HMAC-SHA256"),
    }
}

/// The signature's location as a condition key.
fn auth_type(sender: &Sender) -> Option<&'static str> {
    match sender {
        Sender::Anonymous => None,
        Sender::Key { given: CredentialSource::Header, .. } => Some("REST-HEADER"),
        Sender::Key { given: CredentialSource::Query, .. } => Some("REST-QUERY-STRING"),
        Sender::Key { given: CredentialSource::Form, .. } => Some("POST"),
    }
}

/// A request's facts, kept until its response has been sent.
struct Record {
    name: &'static str,
    code: Option<&'static str>,
    id: String,
    peer: SocketAddr,
    began: Duration,
    received: Arc<AtomicU64>,
    subject: Option<AccessSubject>,
    span: Option<SpanPlace>,
}

/// The size of the object in a response; `None` when it equals the size of the received body.
fn object_bytes(operation: &str, headers: &HeaderMap) -> Option<u64> {
    let number = |name: HeaderName| {
        let text = headers.get(name)?.to_str().ok()?;
        text.rsplit('/').next()?.parse().ok()
    };
    match operation {
        "PutObject" | "PostObject" | "UploadPart" => None,
        "GetObject" | "HeadObject" | WEBSITE => {
            Some(number(http::header::CONTENT_RANGE).or_else(|| number(http::header::CONTENT_LENGTH)).unwrap_or(0))
        }
        _ => Some(0),
    }
}
