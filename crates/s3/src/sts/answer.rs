//! XML responses of the Security Token Service.

use margay_env::Timestamp;
use margay_iam::registry::{Identity, Role};

use super::web_identity::Identified;
use crate::identities::SessionKeys;
use crate::query_api::{self, Service};
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::write::Writer;

fn answer(action: &str, request_id: &str, inside: impl FnOnce(&mut Writer<'_>)) -> Reply {
    query_api::answer(Service::Sts, action, request_id, inside)
}

fn credentials(writer: &mut Writer<'_>, keys: &SessionKeys) {
    writer.open("Credentials");
    writer.text("AccessKeyId", &keys.access_key);
    writer.text("SecretAccessKey", &keys.secret);
    writer.text("SessionToken", &keys.token);
    writer.text("Expiration", &iso(Timestamp(keys.expires.saturating_mul(1_000_000_000))));
    writer.close("Credentials");
}

/// A new session.
pub(super) struct Begun<'a> {
    pub role: &'a Role,
    pub session: &'a str,
    /// ARN of the session, for its holder.
    pub arn: String,
    pub keys: SessionKeys,
}

fn assumed(writer: &mut Writer<'_>, begun: &Begun<'_>) {
    writer.open("AssumedRoleUser");
    writer.text("AssumedRoleId", &format!("{}:{}", begun.role.id, begun.session));
    writer.text("Arn", &begun.arn);
    writer.close("AssumedRoleUser");
}

pub(super) fn role(begun: &Begun<'_>, request_id: &str) -> Reply {
    answer("AssumeRole", request_id, |writer| {
        assumed(writer, begun);
        credentials(writer, &begun.keys);
    })
}

pub(super) fn web_identity(begun: &Begun<'_>, identified: &Identified<'_>, request_id: &str) -> Reply {
    answer("AssumeRoleWithWebIdentity", request_id, |writer| {
        writer.text("SubjectFromWebIdentityToken", &identified.subject);
        writer.text("Audience", &identified.audience);
        assumed(writer, begun);
        credentials(writer, &begun.keys);
        writer.text("Provider", identified.provider);
    })
}

pub(super) fn session_token(keys: &SessionKeys, request_id: &str) -> Reply {
    answer("GetSessionToken", request_id, |writer| credentials(writer, keys))
}

pub(super) fn caller(identity: &Identity, request_id: &str) -> Reply {
    answer("GetCallerIdentity", request_id, |writer| {
        writer.text("Arn", &identity.account.shown_arn(identity.caller().arn()));
        writer.text("UserId", &identity.user_id());
        writer.text("Account", &identity.account.id);
    })
}
