//! Decides what concerns no bucket: actions of IAM and of administration.
//!
//! Why:        requests and the simulation of requests must come to the same decision, so both ask here.
//! Invariants: V1 nothing is allowed without an allow, except to an account in its own IAM.
//!             V2 temporary keys of a user's session have no rights here: they could make keys that outlive the session.
//!             V3 administration is for the account of root: who owns another account writes its policies, and would give
//!                himself the server.
//! Not here:   logging a refusal, which the client is not told the reason of (`iam`, the binary).

use http::HeaderMap;
use margay_iam::registry::{Identity, Part, ROOT_ACCOUNT};
use margay_iam::{Request, Sources};

use super::context::{Circumstances, RequestContext};
use super::{Read, Refusal, explained, with_policies};
use crate::route::query::Query;

/// Whose action it is, and from where.
#[derive(Clone, Copy)]
pub(crate) struct ServiceAsk<'a> {
    pub identity: &'a Identity,
    pub circumstances: &'a Circumstances<'a>,
    pub headers: &'a HeaderMap,
}

impl ServiceAsk<'_> {
    /// Whether an action of IAM (`iam:GetUser`) on something of the caller's account is allowed. Either side is one line.
    pub(crate) fn of_iam(&self, action: &str, resource: &str) -> Result<String, String> {
        let is_account = matches!(self.identity.role, Part::Account { .. } | Part::Root);
        let account = self.identity.account.id.as_str();
        self.decided((is_account, account), action, resource, explained)
    }

    /// Whether an action of administration (`admin:Status`) is allowed. Either side is one line.
    pub(crate) fn of_administration(&self, action: &str, resource: &str) -> Result<String, String> {
        if self.identity.is_root() && !self.identity.is_temporary {
            return Ok("the root keys may do everything".to_owned());
        }
        if !self.is_user_session() && self.identity.account.id != ROOT_ACCOUNT {
            return Err("the caller belongs to another account than that of root".to_owned());
        }
        // V1: an account that is a user has what its policies say.
        self.decided((false, ROOT_ACCOUNT), action, resource, explained)
    }

    fn is_user_session(&self) -> bool {
        self.identity.is_temporary && !matches!(self.identity.role, Part::Session { .. })
    }

    fn decided<R>(
        &self,
        (is_account, account): (bool, &str),
        action: &str,
        resource: &str,
        read: Read<R>,
    ) -> Result<R, String> {
        if self.is_user_session() {
            return Err("the keys of a user's session are not taken here".to_owned());
        }
        let context = RequestContext {
            circumstances: self.circumstances,
            headers: self.headers,
            query: &Query::default(),
            identity: Some(self.identity),
            resource_account: Some(account),
            bucket_tags: &[],
            existing_tags: &[],
            looked_for: None,
        };
        let caller = self.identity.caller();
        let request = Request { caller: &caller, action, resource, context: &context };
        let sources = Sources { is_account, is_own: true, ..Sources::default() };
        with_policies(self.identity, sources, &request, read).map_err(|Refusal { text, .. }| text)
    }
}
