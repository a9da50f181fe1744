//! Routes the requests of the console.
//!
//! Invariants: C1 below `api/` nothing is done without the page's header, and beyond signing in nothing without a session.
//!             C2 the pages of the server are for those who may `admin:Status`.
//! Not here:   requests beside the console's path, which the handler behind it answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_SECURITY_POLICY, LOCATION, RETRY_AFTER, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use margay_env::Env;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::bound::{Alive, bind};
use margay_listener::{AnswerFuture, Handler, answer};
use margay_s3::identities::Identities;
use serde_json::{Value, json};

use crate::dispatch::{Came, pass};
use crate::files;
use crate::guard::{self, cookie, own_request, own_resource, session_id};
use crate::headers::answer_headers;
use crate::keys::{Key, Keys, Service};
use crate::ports::{Pages, STATUS, Who};
use crate::raw;
use crate::sessions::{Session, Sessions};
use crate::share;
use crate::sign_in::{SignInError, sign_in};
use crate::target::of_query;
use crate::throttle::Throttle;
use crate::{PATH, is_below};

/// Maximum size of an order of the page to the console itself, in bytes.
const ORDER_BYTES_MAX: usize = 64 * 1024;

/// How a server shows its console.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    pub region: String,
    pub version: &'static str,
    /// Whether the address of the console has TLS.
    pub tls: bool,
    /// Scheme and port of the S3 door, for links.
    pub s3_scheme: &'static str,
    pub s3_port: Option<u16>,
    /// Whether the S3 door is at the same address, so that objects have the origin of the console.
    pub shares_origin: bool,
    /// Host names whose buckets are websites: other origins, whose pages may run.
    pub website_domains: Vec<String>,
}

/// The console in front of another handler.
pub struct Console {
    state: Arc<State>,
    behind: Arc<dyn Handler>,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Console").field("options", &self.state.options).finish_non_exhaustive()
    }
}

struct State {
    keys: Keys,
    sessions: Sessions,
    throttle: Throttle,
    door: Arc<dyn Handler>,
    pages: Arc<dyn Pages>,
    options: ConsoleOptions,
}

impl Console {
    /// `door` gets the requests of sessions, `behind` those that are not for the console.
    pub fn new(
        (door, behind): (Arc<dyn Handler>, Arc<dyn Handler>),
        identities: Arc<dyn Identities>,
        pages: Arc<dyn Pages>,
        env: &Env,
        options: ConsoleOptions,
    ) -> Console {
        let keys = Keys::new(identities, options.region.clone(), env.clone());
        let (sessions, throttle) = (Sessions::default(), Throttle::default());
        Console { state: Arc::new(State { keys, sessions, throttle, door, pages, options }), behind }
    }
}

impl Handler for Console {
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture {
        if is_below(request.uri().path()) {
            let state = Arc::clone(&self.state);
            return Box::pin(async move { state.answer(request, peer).await });
        }
        let sandboxed = self.state.options.shares_origin && !is_website(&request, &self.state.options.website_domains);
        let answer = self.behind.handle(request, peer);
        if !sandboxed {
            return answer;
        }
        Box::pin(async move {
            let mut response = answer.await;
            // W2: a page in a bucket that is opened at this address gets an origin of its own.
            response.headers_mut().append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
            response
        })
    }
}

/// Whether the request is for a website, whose host is another origin.
fn is_website(request: &Request<RequestBody>, domains: &[String]) -> bool {
    let host = guard::host(request.headers(), request.uri()).unwrap_or_default().to_ascii_lowercase();
    let name = host.split(':').next().unwrap_or_default();
    domains.iter().any(|domain| name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.ends_with('.')))
}

/// The session that asked for an answer.
struct Asking {
    state: Arc<State>,
    id: String,
}

impl Alive for Asking {
    fn now(&self) -> Duration {
        self.state.keys.env.clock.monotonic()
    }

    fn is_alive(&self) -> bool {
        let session = self.state.sessions.peek(&self.id, self.now());
        session.is_some_and(|session| self.state.keys.of(&session).is_some())
    }
}

fn who(key: &Key, peer: Option<SocketAddr>) -> Who<'_> {
    Who { identity: &key.identity, peer: peer.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |peer| peer.ip()) }
}

fn refuse(status: StatusCode, error: &str) -> Response<ResponseBody> {
    answer::json(status, &json!({ "error": error }))
}

impl State {
    async fn answer(
        self: &Arc<State>,
        request: Request<RequestBody>,
        peer: Option<SocketAddr>,
    ) -> Response<ResponseBody> {
        let path = request.uri().path().to_owned();
        let Some(below) = path.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/')) else {
            let mut response = answer::plain(StatusCode::PERMANENT_REDIRECT, "the console is one level below");
            response.headers_mut().extend(HeaderValue::from_str(&format!("{PATH}/")).ok().map(|path| (LOCATION, path)));
            answer_headers(response.headers_mut());
            return response;
        };
        let (parts, body) = request.into_parts();
        let came = Came { parts, body, peer };
        if let Some(call) = below.strip_prefix("api/") {
            let mut response = self.api(call, came).await;
            let cookies: Vec<HeaderValue> = response.headers().get_all(SET_COOKIE).iter().cloned().collect();
            let own_cookies = matches!(call, "sign-in" | "sign-out");
            answer_headers(response.headers_mut());
            for cookie in cookies.into_iter().filter(|_| own_cookies) {
                response.headers_mut().append(SET_COOKIE, cookie);
            }
            return response;
        }
        let is_read = matches!(came.parts.method, Method::GET | Method::HEAD);
        match (below, is_read) {
            (_, false) => refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"),
            ("raw", true) => self.raw(came).await,
            (name, true) => files::file(name, &came.parts.headers),
        }
    }

    /// The session of a request with its key.
    fn session(&self, parts: &Parts) -> Option<(Session, Key)> {
        let id = session_id(&parts.headers, &parts.uri)?;
        let session = self.sessions.find(id, self.keys.env.clock.monotonic())?;
        let key = self.keys.of(&session);
        if key.is_none() {
            self.sessions.end(id);
        }
        Some((session, key?))
    }

    /// A call of the page.
    async fn api(self: &Arc<State>, call: &str, came: Came) -> Response<ResponseBody> {
        if let Err(refusal) = own_request(&came.parts) {
            return refuse(StatusCode::FORBIDDEN, refusal.text());
        }
        let is_post = came.parts.method == Method::POST;
        if call == "sign-in" && is_post {
            return self.sign_in(came).await;
        }
        let Some((session, key)) = self.session(&came.parts) else {
            return refuse(StatusCode::UNAUTHORIZED, "nobody is signed in");
        };
        match (call, is_post) {
            ("sign-out", true) => {
                self.sessions.end(session_id(&came.parts.headers, &came.parts.uri).unwrap_or_default());
                self.with_cookie("", &came.parts, &json!({}))
            }
            ("session", false) => answer::json(StatusCode::OK, &self.described(&session, &key)),
            ("share", true) => self.share(&session, &key, came.body).await,
            ("may", true) => self.may(&key, came).await,
            ("metrics" | "status", false) if !self.may_see_server(&key, came.peer).await => {
                refuse(StatusCode::FORBIDDEN, "the state of the server is shown to those who may admin:Status")
            }
            ("metrics", false) => answer::text(StatusCode::OK, "text/plain; charset=utf-8", self.pages.metrics().await),
            ("status", false) => answer::json(StatusCode::OK, &self.pages.status()),
            ("s3" | "iam" | "admin", _) => self.passed(call, (&session, key), came).await,
            _ => refuse(StatusCode::NOT_FOUND, "there is no such call"),
        }
    }

    /// Passes a request to the S3 door. Each service has its paths, so that none is reached by the way of another.
    async fn passed(self: &Arc<State>, call: &str, signed: (&Session, Key), came: Came) -> Response<ResponseBody> {
        let target = match of_query(came.parts.uri.query().unwrap_or("")) {
            Ok((target, None)) => target,
            _ => return refuse(StatusCode::BAD_REQUEST, "the call names no target"),
        };
        let service = match call {
            "iam" if target.as_str() == "/" => Service::Iam,
            "s3" if !target.path().starts_with("/-/") => Service::S3,
            "admin" if target.path().starts_with("/-/admin/") => Service::S3,
            _ => return refuse(StatusCode::BAD_REQUEST, "the target is not one of this call"),
        };
        let asking = Asking {
            state: Arc::clone(self),
            id: session_id(&came.parts.headers, &came.parts.uri).unwrap_or_default().to_owned(),
        };
        let answer = pass(&*self.door, signed, (service, self.keys.env.clock.now()), target, came).await;
        // Contents have an end of their own; what administration shows may have none.
        if call == "admin" { bind(answer, asking) } else { answer }
    }

    /// Shows or saves an object.
    async fn raw(&self, came: Came) -> Response<ResponseBody> {
        let mut refusal = None;
        if let Err(other) = own_resource(&came.parts) {
            refusal = Some((StatusCode::FORBIDDEN, other.text()));
        }
        let target = of_query(came.parts.uri.query().unwrap_or(""));
        let (mut response, form, path) = match (refusal, self.session(&came.parts), target) {
            (Some((status, why)), ..) => (refuse(status, why), None, String::new()),
            (None, None, _) => (refuse(StatusCode::UNAUTHORIZED, "nobody is signed in"), None, String::new()),
            (None, Some((session, key)), Ok((target, form))) if !target.path().starts_with("/-/") => {
                let path = target.path().to_owned();
                let now = self.keys.env.clock.now();
                (pass(&*self.door, (&session, key), (Service::S3, now), target, came).await, form, path)
            }
            _ => (refuse(StatusCode::BAD_REQUEST, "the call names no object"), None, String::new()),
        };
        match response.status().is_success() {
            true => raw::give(response.headers_mut(), form.as_deref(), &path),
            false => answer_headers(response.headers_mut()),
        }
        response
    }

    async fn sign_in(&self, came: Came) -> Response<ResponseBody> {
        let ip = came.peer.map(|peer| peer.ip());
        match sign_in((&self.keys, &self.sessions, &self.throttle), ip, came.body).await {
            Ok(id) => {
                // The browser forgets the id that it had, so nobody but a thief would still use it.
                if let Some(before) = session_id(&came.parts.headers, &came.parts.uri) {
                    self.sessions.end(before);
                }
                self.with_cookie(&id, &came.parts, &json!({}))
            }
            Err(SignInError::Malformed) => refuse(StatusCode::BAD_REQUEST, "an access key and its secret are needed"),
            Err(SignInError::Wrong) => refuse(StatusCode::FORBIDDEN, "the access key or the secret is wrong"),
            Err(SignInError::Wait(rest)) => {
                let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, "too many failures; wait a minute");
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(rest.as_secs() + 1));
                response
            }
        }
    }

    fn with_cookie(&self, id: &str, parts: &Parts, value: &Value) -> Response<ResponseBody> {
        let mut response = answer::json(StatusCode::OK, value);
        let host = guard::host(&parts.headers, &parts.uri).unwrap_or_default();
        let line = cookie(host, id, guard::is_secure(parts, self.options.tls));
        response.headers_mut().extend(HeaderValue::from_str(&line).ok().map(|line| (SET_COOKIE, line)));
        response
    }

    /// What the page shows of its session.
    fn described(&self, session: &Session, key: &Key) -> Value {
        json!({
            "accessKey": session.access_key,
            "arn": key.identity.caller().arn(),
            "account": key.identity.account.id,
            "root": key.identity.is_root(),
            "region": self.options.region,
            "version": self.options.version,
            "s3Scheme": self.options.s3_scheme,
            "s3Port": self.options.s3_port,
        })
    }

    /// What of a list the key may do. Only yes and no: why not is told to those who may ask for others, too.
    async fn may(&self, key: &Key, came: Came) -> Response<ResponseBody> {
        let Ok(bytes) = Limited::new(came.body, ORDER_BYTES_MAX).collect().await else {
            return refuse(StatusCode::BAD_REQUEST, "the order cannot be read");
        };
        let questions: Value = serde_json::from_slice(&bytes.to_bytes()).unwrap_or_default();
        match self.pages.may(who(key, came.peer), &questions).await {
            Ok(allowed) => answer::json(StatusCode::OK, &json!({ "allowed": allowed })),
            Err(error) => refuse(StatusCode::BAD_REQUEST, &error),
        }
    }

    async fn may_see_server(&self, key: &Key, peer: Option<SocketAddr>) -> bool {
        let [action, resource] = STATUS;
        let questions = json!([{ "action": action, "resource": resource }]);
        self.pages.may(who(key, peer), &questions).await.is_ok_and(|allowed| allowed == [true])
    }

    async fn share(&self, session: &Session, key: &Key, body: RequestBody) -> Response<ResponseBody> {
        let bytes = match Limited::new(body, ORDER_BYTES_MAX).collect().await {
            Ok(bytes) => bytes.to_bytes(),
            Err(_) => return refuse(StatusCode::BAD_REQUEST, "the order cannot be read"),
        };
        let order: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match share::link(&order, session, key, self.keys.env.clock.now()) {
            Ok(url) => answer::json(StatusCode::OK, &json!({ "url": url })),
            Err(error) => refuse(StatusCode::BAD_REQUEST, &error),
        }
    }
}
