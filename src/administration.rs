//! Administration of a running server: the works, the action of each, and who may do them.
//!
//! Why:        the control socket of this machine and signed requests from another one must do the same by the same code, and
//!             every right must be one line of one table.
//! Layout:     `table` has the works, their actions and their fields (`fields`), `works` does them for a server, `simulate` says what somebody may do, `top` and `watch` are the streams (`lines`), `remote` admits
//!             signed requests below `/-/admin/v1/`. Processes that are no whole server (`endpoint`, `far_mount`) do some of the works.
//! Invariants: D1 a signed request does nothing before its caller is known, may do it, and its whole body is the signed one.
//!             D2 what names files of the server's machine is done over the control socket only.
//!             D3 bodies have at most `BODY_BYTES_MAX` bytes.
//!             D4 every signed request, and every change over the control socket, is in the audit log when it is answered.
//!             D5 a work that a process does not have is refused by one line that says who has it; nothing was done then.
//! Not here:   the control socket itself (`control`), output (`cli`), the meaning of policies (margay-iam).

mod fields;
mod lines;
mod remote;
mod simulate;
mod table;
mod top;
mod watch;
mod works;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use margay_accounts::identities::NotOrdered;
use margay_env::Env;
use margay_listener::answer;
use margay_listener::body::{RequestBody, ResponseBody};
use serde_json::{Value, json};

pub use self::remote::{PREFIX, Remote};
pub use self::simulate::questions;
pub use self::table::{AdminWork, ORDERS, Reach, WORKS};
pub use self::top::TopView;
pub use self::watch::show_requests;
pub use self::works::{fsck_of, places_of};
use crate::audit::{Audit, AuditLine, AuditOutcome};
use crate::server::Server;
use crate::spans::{Spans, WorkDone};

/// Maximum size of a request's body, in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// What a work answers.
#[derive(Debug)]
pub enum WorkAnswer {
    Value(Value),
    /// Lines of JSON until one side ends it.
    Stream(Response<ResponseBody>),
}

/// Why a work was not done; one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// What is wished cannot be understood; nothing was done.
    BadWish(String),
    /// A name in it is of nothing.
    Absent(String),
    /// Something is in the way: the name is taken, or what is to go is in use.
    Clash(String),
    /// The metadata did not answer in time; the same wish may be done later.
    Unanswered(String),
    Failed(String),
    /// This process does not have it (D5).
    Elsewhere(String),
}

impl NotDone {
    fn text(&self) -> &str {
        let (NotDone::BadWish(text)
        | NotDone::Absent(text)
        | NotDone::Clash(text)
        | NotDone::Unanswered(text)
        | NotDone::Failed(text)
        | NotDone::Elsewhere(text)) = self;
        text
    }
}

impl From<NotOrdered> for NotDone {
    fn from(error: NotOrdered) -> NotDone {
        match error {
            NotOrdered::Absent(text) => NotDone::Absent(text),
            NotOrdered::Clash(text) => NotDone::Clash(text),
            NotOrdered::Wrong(text) => NotDone::BadWish(text),
            NotOrdered::Unanswered(text) => NotDone::Unanswered(text),
            NotOrdered::Failed(text) => NotDone::Failed(text),
        }
    }
}

/// Of a work on a bucket.
impl From<margay_volume::Error> for NotDone {
    fn from(error: margay_volume::Error) -> NotDone {
        let text = error.to_string();
        match error {
            margay_volume::Error::NoSuchBucket | margay_volume::Error::NoSuchKey => NotDone::Absent(text),
            error if error.is_unanswered() => NotDone::Unanswered(text),
            _ => NotDone::Failed(text),
        }
    }
}

impl From<String> for NotDone {
    fn from(error: String) -> NotDone {
        NotDone::Failed(error)
    }
}

/// For what reads a wish: the error is one line.
pub fn bad_wish(error: impl Into<String>) -> NotDone {
    NotDone::BadWish(error.into())
}

/// A work that is being done.
pub type Doing = Pin<Box<dyn Future<Output = Result<WorkAnswer, NotDone>> + Send>>;

/// A process that can be administered.
pub trait Administered: Send + Sync + std::fmt::Debug {
    fn env(&self) -> &Env;
    fn data(&self) -> &Path;
    /// `Err` says what does not work.
    fn health(&self) -> Result<(), String>;
    fn audit(&self) -> &Audit;
    fn spans(&self) -> &Spans;
    /// Does a work for a caller who may do it.
    fn run(self: Arc<Self>, work: &'static AdminWork, wish: Value) -> Doing;
}

impl Administered for Server {
    fn env(&self) -> &Env {
        &self.env
    }

    fn data(&self) -> &Path {
        &self.data
    }

    fn health(&self) -> Result<(), String> {
        Server::health(self)
    }

    fn audit(&self) -> &Audit {
        &self.audit
    }

    fn spans(&self) -> &Spans {
        &self.spans
    }

    fn run(self: Arc<Self>, work: &'static AdminWork, wish: Value) -> Doing {
        Box::pin(async move { (work.run)(&self, wish).await })
    }
}

/// Who asks, and by which request.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// An ARN, or `local`.
    pub who: &'a str,
    pub access_key: &'a str,
    pub from: &'a str,
    /// Over the control socket: reads are not audited.
    pub is_local: bool,
    pub path: &'a str,
    pub headers: &'a HeaderMap,
}

/// Answers a command of the control socket; gives the request back if no work has this path.
pub async fn answer_local(
    process: &Arc<dyn Administered>,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, Request<RequestBody>> {
    let Some(work) = table::find(request.method(), request.uri().path()) else { return Err(request) };
    let (parts, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err(error) => return Ok(refuse(StatusCode::BAD_REQUEST, &error)),
    };
    // File permissions have let him in.
    let (path, headers) = (parts.uri.path(), &parts.headers);
    let asker = Asker { who: "local", access_key: "", from: "socket", is_local: true, path, headers };
    Ok(match wish(&body) {
        Ok(wish) => run(process, work, wish, asker).await,
        Err(error) => refuse(StatusCode::BAD_REQUEST, &error),
    })
}

/// The body of a request (D3). The error is one line.
async fn read(body: RequestBody) -> Result<Bytes, String> {
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| format!("the request cannot be read: {error}"))?.to_bytes())
}

/// An empty body wishes nothing.
fn wish(body: &[u8]) -> Result<Value, String> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(body).map_err(|error| format!("the request is no JSON: {error}"))
}

/// Does a work that the caller may do, and notes it (D4).
async fn run(
    process: &Arc<dyn Administered>,
    work: &'static AdminWork,
    wish: Value,
    asker: Asker<'_>,
) -> Response<ResponseBody> {
    let clock = Arc::clone(&process.env().clock);
    let (begun, place) = (clock.monotonic(), process.spans().place(asker.headers));
    let noted = wish.clone();
    let done = match work.fields.map_or(Ok(()), |known| fields::check(known, &wish)) {
        Ok(()) => Arc::clone(process).run(work, wish).await,
        Err(error) => Err(error),
    };
    let (outcome, error) = match &done {
        Ok(_) => (AuditOutcome::Done, ""),
        Err(error) => (AuditOutcome::Failed, error.text()),
    };
    let (resource, took) = (work.resource(&noted), clock.monotonic().saturating_sub(begun));
    let action = work.action(&noted).unwrap_or_default();
    let Asker { who, access_key, from, .. } = asker;
    if work.changes || !asker.is_local {
        let (resource, wish) = (&resource, &noted);
        process.audit().note(&AuditLine { who, access_key, from, action, resource, wish, outcome, error, took });
    }
    let response = match done {
        Ok(WorkAnswer::Value(value)) => answer::json(StatusCode::OK, &value),
        Ok(WorkAnswer::Stream(stream)) => stream,
        Err(NotDone::BadWish(error)) => refuse(StatusCode::BAD_REQUEST, &error),
        // Other than a path that is not known.
        Err(NotDone::Absent(error)) => answer::json(StatusCode::NOT_FOUND, &json!({ "error": error, "absent": true })),
        Err(NotDone::Clash(error)) => refuse(StatusCode::CONFLICT, &error),
        Err(NotDone::Unanswered(error)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error),
        Err(NotDone::Failed(error)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error),
        Err(NotDone::Elsewhere(error)) => refuse(StatusCode::NOT_IMPLEMENTED, &error),
    };
    let (method, path, status) = (work.method, asker.path, response.status().as_u16());
    let resource = resource.as_str();
    process.spans().note_work(place, &WorkDone { action, resource, who, from, method, path, status, took });
    response
}

fn refuse(status: StatusCode, error: &str) -> Response<ResponseBody> {
    answer::json(status, &json!({ "error": error }))
}
