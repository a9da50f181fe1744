//! Administration by signed requests to `/-/admin/v1/` of the S3 address.
//!
//! Why:        `-` is no valid name of a bucket, so the path hides nothing of S3, and whoever reaches the S3 address needs no second
//!             port; rights are those of the key, by actions `admin:...` in its policies.
//! Invariants: O1 the order of checks is: host, signature, path, body, right. What a caller learns before the signature is verified
//!                says nothing about this server.
//!             O2 the body is read only for a caller who is known, and believed only when its SHA-256 is the signed one.
//!             O3 an answer without an end ends within a second or so after its key or its right was taken away.
//! Not here:   signatures and rights (margay-s3), the works (`works`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use margay_accounts::identities::Identities;
use margay_listener::body::{RequestBody, ResponseBody};
use margay_listener::bound::{Alive, bind};
use margay_s3::administration::{AdminGate, Admitted, NotAdmitted, SERVER};
use serde_json::{Value, json};

use super::table::{self, AdminWork, Reach};
use super::{Administered, Asker, read, refuse, run, wish};
use crate::audit::{AuditLine, AuditOutcome};
use crate::server::Server;
use crate::spans::WorkDone;

/// Below which path the works are.
pub const PREFIX: &str = "/-/admin/v1";

/// Answers signed requests.
#[derive(Debug)]
pub struct Remote {
    process: Arc<dyn Administered>,
    gate: Arc<AdminGate>,
}

/// Of an answer that is made while it is sent.
struct StillPermitted {
    process: Arc<dyn Administered>,
    gate: Arc<AdminGate>,
    admitted: Admitted,
    action: &'static str,
    resource: String,
}

impl Alive for StillPermitted {
    fn now(&self) -> Duration {
        self.process.env().clock.monotonic()
    }

    fn is_alive(&self) -> bool {
        self.gate.still_permits(&self.admitted, self.action, &self.resource)
    }
}

/// A request that is not done.
struct Refused {
    status: StatusCode,
    outcome: AuditOutcome,
    /// For the caller.
    error: String,
    /// For the audit log; empty if it is the same.
    reason: String,
}

impl Refused {
    fn new(status: StatusCode, outcome: AuditOutcome, error: impl Into<String>) -> Refused {
        Refused { status, outcome, error: error.into(), reason: String::new() }
    }
}

impl Remote {
    pub fn new(server: &Arc<Server>, region: &str, secure: bool) -> Remote {
        Remote::of(Arc::clone(server) as Arc<dyn Administered>, &server.identities, region, secure)
    }

    /// Of any process; `secure`: its address has TLS.
    pub fn of(process: Arc<dyn Administered>, identities: &Arc<Identities>, region: &str, secure: bool) -> Remote {
        let identities = Arc::clone(identities) as Arc<dyn margay_s3::identities::Identities>;
        let gate = Arc::new(AdminGate::new(process.env(), identities, region, secure));
        Remote { process, gate }
    }

    /// Answers a request below [`PREFIX`].
    pub async fn answer(&self, request: Request<RequestBody>, peer: SocketAddr) -> Response<ResponseBody> {
        let path = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
        self.answer_at(request, &path, peer, false).await
    }

    /// Answers a request for the work at `path`; `root_only`: nobody else may do it here.
    pub async fn answer_at(
        &self,
        request: Request<RequestBody>,
        path: &str,
        peer: SocketAddr,
        root_only: bool,
    ) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let peer = peer.ip().to_canonical();
        let admitted = match self.gate.admit(&parts, peer).await {
            Ok(admitted) => admitted,
            Err(error) => return self.not_admitted(&parts, path, peer, &error),
        };
        let done = self.checked(&admitted, &parts, body, path, root_only).await;
        let (arn, from) = (admitted.arn(), peer.to_string());
        let (access_key, full, headers) = (admitted.access_key(), parts.uri.path(), &parts.headers);
        let asker = Asker { who: &arn, access_key, from: &from, is_local: false, path: full, headers };
        match done {
            Ok((work, wish)) => {
                let (action, resource) = (work.action(&wish).unwrap_or_default(), work.resource(&wish));
                let answer = run(&self.process, work, wish, asker).await;
                let (process, gate) = (Arc::clone(&self.process), Arc::clone(&self.gate));
                bind(answer, StillPermitted { process, gate, admitted, action, resource })
            }
            Err((refused, work, wish)) => self.refused(&refused, asker, work, (path, &wish)),
        }
    }

    /// The work and what is wished, if the caller may have it.
    async fn checked(
        &self,
        admitted: &Admitted,
        parts: &Parts,
        body: RequestBody,
        path: &str,
        root_only: bool,
    ) -> Result<(&'static AdminWork, Value), (Refused, Option<&'static AdminWork>, Value)> {
        let nothing = Value::Null;
        let Some(work) = table::find(&parts.method, path) else {
            let what = format!("there is no {} {PREFIX}{path}; see docs/administration.md", parts.method);
            return Err((Refused::new(StatusCode::NOT_FOUND, AuditOutcome::Failed, what), None, nothing));
        };
        let refuse = |status, outcome, error: &str| Refused::new(status, outcome, error);
        if work.reach == Reach::Socket {
            let error = "this names files of the server's machine: run the command there, with --data";
            return Err((refuse(StatusCode::FORBIDDEN, AuditOutcome::Denied, error), Some(work), nothing));
        }
        if root_only && !admitted.is_root() {
            let error = "orders must be signed with the root keys (AWS Signature Version 4, service s3)";
            return Err((refuse(StatusCode::FORBIDDEN, AuditOutcome::Denied, error), Some(work), nothing));
        }
        let bad = |error: String| {
            (Refused::new(StatusCode::BAD_REQUEST, AuditOutcome::Failed, error), Some(work), Value::Null)
        };
        let body = read(body).await.map_err(bad)?;
        if ring::digest::digest(&ring::digest::SHA256, &body).as_ref() != admitted.body_sha256 {
            let error = "the body is not the one that was signed";
            return Err((refuse(StatusCode::FORBIDDEN, AuditOutcome::Denied, error), Some(work), nothing));
        }
        let wish = wish(&body).map_err(bad)?;
        let Some(action) = work.action(&wish) else { return Err(bad("that is no order that is known".to_owned())) };
        if let Err(reason) = admitted.may(action, &work.resource(&wish)) {
            let error = format!("the key {} may not do {action}: a policy must allow it", admitted.access_key());
            let refused = Refused::new(StatusCode::FORBIDDEN, AuditOutcome::Denied, error);
            return Err((Refused { reason, ..refused }, Some(work), wish));
        }
        Ok((work, wish))
    }

    fn refused(
        &self,
        refused: &Refused,
        asker: Asker<'_>,
        work: Option<&AdminWork>,
        (path, wish): (&str, &Value),
    ) -> Response<ResponseBody> {
        let path = json!({ "path": path });
        let resource = work.map_or_else(|| SERVER.to_owned(), |work| work.resource(wish));
        let action = work.and_then(|work| work.action(wish)).unwrap_or_default();
        let spans = self.process.spans();
        spans.note_work(
            spans.place(asker.headers),
            &WorkDone {
                action,
                resource: &resource,
                who: asker.who,
                from: asker.from,
                method: work.map_or("", |work| work.method),
                path: asker.path,
                status: refused.status.as_u16(),
                took: Duration::ZERO,
            },
        );
        self.process.audit().note(&AuditLine {
            who: asker.who,
            access_key: asker.access_key,
            from: asker.from,
            action,
            resource: &resource,
            // A request that was not read is known by its path.
            wish: if wish.is_null() { &path } else { wish },
            outcome: refused.outcome,
            error: if refused.reason.is_empty() { &refused.error } else { &refused.reason },
            took: Duration::ZERO,
        });
        refuse(refused.status, &refused.error)
    }

    fn not_admitted(&self, parts: &Parts, path: &str, peer: IpAddr, error: &NotAdmitted) -> Response<ResponseBody> {
        let status = match error {
            NotAdmitted::Malformed(_) => StatusCode::BAD_REQUEST,
            NotAdmitted::Unknown(_) => StatusCode::FORBIDDEN,
            NotAdmitted::Late(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let (from, wish) = (peer.to_string(), json!({ "operation": parts.method.as_str(), "path": path }));
        let (full, headers) = (parts.uri.path(), &parts.headers);
        let asker = Asker { who: "", access_key: "", from: &from, is_local: false, path: full, headers };
        let refused = Refused::new(status, AuditOutcome::Unknown, error.to_string());
        self.refused(&refused, asker, None, (path, &wish))
    }
}
