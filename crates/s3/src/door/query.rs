//! Requests for IAM and STS: a form with an action.
//!
//! Invariants: Q1 an action is executed only if the signature covers the whole form and names the action's service.
//!             Q2 the form is read before the signature is verified, and is bounded.
//! Not here:   actions (`iam`, `sts`).

use super::{Came, S3Door, sha256, token_of_header};
use crate::auth::{self, Head, PayloadForm};
use crate::error::{Code, S3Error};
use crate::iam;
use crate::identities;
use crate::payload::Wire;
use crate::query_api::{self, FORM_BYTES_MAX, Service};
use crate::reply::Reply;
use crate::sts;

impl S3Door {
    /// Answers in the service's own form, even on errors.
    pub(super) async fn serve_query(&self, came: Came<'_>, wire: Wire, name: &mut &'static str) -> Reply {
        let mut service = Service::Iam;
        let outcome = self.act(came, wire, &mut service).await;
        *name = match service {
            Service::Iam => "IdentityAndAccessManagement",
            Service::Sts => "SecurityTokenService",
        };
        outcome.unwrap_or_else(|error| query_api::refusal(service, &error, came.id))
    }

    async fn act(&self, came: Came<'_>, wire: Wire, service: &mut Service) -> Result<Reply, S3Error> {
        let Came { parts, host, peer, id, .. } = came;
        let now = self.env.clock.now();
        let body = wire.whole(FORM_BYTES_MAX).await?;
        let form = query_api::read(&body)?;
        let verifier = match form.get("Action").is_some_and(sts::is_action) {
            true => {
                *service = Service::Sts;
                &self.sts_verifier
            }
            false => &self.iam_verifier,
        };
        let digest = auth::hex::text(&sha256(&body));
        let head = Head { body_sha256: Some(&digest), ..Head::of(parts, host) };
        let token = token_of_header(&parts.headers);
        let identities = &*self.access.identities;
        let (verified, identity) = identities::identify(verifier, &head, identities, token, now).await?;
        // A body that the signature does not cover is refused.
        if identity.is_some() && verified.payload != PayloadForm::Sha256(sha256(&body)) {
            return Err(Code::XAmzContentSHA256Mismatch.into());
        }
        if *service == Service::Sts {
            let sts = sts::Service { identities, providers: &self.providers, now: now.seconds(), request_id: id };
            return sts.run(&form, identity.as_deref()).await;
        }
        let identity = identity.ok_or(Code::MissingAuthenticationToken)?;
        let circumstances = self.circumstances(peer, &verified.sender);
        let (headers, request_id) = (&parts.headers, id);
        let call = iam::Call {
            identities,
            identity: &identity,
            circumstances: &circumstances,
            headers,
            form: &form,
            request_id,
        };
        iam::run(&call).await
    }
}
