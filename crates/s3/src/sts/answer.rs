//! Answers of the Security Token Service.

use bytes::BytesMut;
use margay_env::Timestamp;
use margay_iam::registry::{Identity, Role};

use super::web_identity::Identified;
use crate::error::S3Error;
use crate::identities::SessionKeys;
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::write::Writer;

const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// Names of the elements around an answer.
pub(super) struct Names {
    response: &'static str,
    result: &'static str,
}

pub(super) const ASSUME_ROLE: Names = Names { response: "AssumeRoleResponse", result: "AssumeRoleResult" };
const WEB_IDENTITY: Names =
    Names { response: "AssumeRoleWithWebIdentityResponse", result: "AssumeRoleWithWebIdentityResult" };
const SESSION_TOKEN: Names = Names { response: "GetSessionTokenResponse", result: "GetSessionTokenResult" };
const CALLER: Names = Names { response: "GetCallerIdentityResponse", result: "GetCallerIdentityResult" };

fn answer(names: &Names, request_id: &str, inside: impl FnOnce(&mut Writer<'_>)) -> Reply {
    let mut out = BytesMut::with_capacity(2048);
    let mut writer = Writer::new(&mut out);
    writer.document();
    writer.raw(&format!("<{} xmlns=\"{NAMESPACE}\">", names.response));
    writer.open(names.result);
    inside(&mut writer);
    writer.close(names.result);
    writer.open("ResponseMetadata");
    writer.text("RequestId", request_id);
    writer.close("ResponseMetadata");
    writer.close(names.response);
    Reply::xml(out)
}

fn credentials(writer: &mut Writer<'_>, keys: &SessionKeys) {
    writer.open("Credentials");
    writer.text("AccessKeyId", &keys.access_key);
    writer.text("SecretAccessKey", &keys.secret);
    writer.text("SessionToken", &keys.token);
    writer.text("Expiration", &iso(Timestamp(keys.expires.saturating_mul(1_000_000_000))));
    writer.close("Credentials");
}

fn assumed(writer: &mut Writer<'_>, role: &Role, session: &str) {
    writer.open("AssumedRoleUser");
    writer.text("AssumedRoleId", &format!("{}:{session}", role.name));
    writer.text("Arn", &format!("arn:aws:sts::{}:assumed-role/{}/{session}", role.account, role.name));
    writer.close("AssumedRoleUser");
}

pub(super) fn role(names: &Names, role: &Role, session: &str, keys: &SessionKeys, request_id: &str) -> Reply {
    answer(names, request_id, |writer| {
        assumed(writer, role, session);
        credentials(writer, keys);
    })
}

pub(super) fn web_identity(
    role: &Role,
    session: &str,
    keys: &SessionKeys,
    identified: &Identified<'_>,
    request_id: &str,
) -> Reply {
    answer(&WEB_IDENTITY, request_id, |writer| {
        writer.text("SubjectFromWebIdentityToken", &identified.subject);
        writer.text("Audience", &identified.audience);
        assumed(writer, role, session);
        credentials(writer, keys);
        writer.text("Provider", identified.provider);
    })
}

pub(super) fn session_token(keys: &SessionKeys, request_id: &str) -> Reply {
    answer(&SESSION_TOKEN, request_id, |writer| credentials(writer, keys))
}

/// The answer that an error gives; its form is not that of S3.
pub(crate) fn refusal(error: &S3Error, request_id: &str) -> Reply {
    tracing::debug!(%error, request_id, "refused");
    let mut out = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut out);
    writer.document();
    writer.raw(&format!("<ErrorResponse xmlns=\"{NAMESPACE}\">"));
    writer.open("Error");
    writer.text("Type", "Sender");
    writer.text("Code", error.code.name());
    writer.text("Message", &error.message);
    writer.close("Error");
    writer.text("RequestId", request_id);
    writer.close("ErrorResponse");
    let mut reply = Reply::xml(out);
    reply.status = error.code.status();
    reply
}

pub(super) fn caller(identity: &Identity, request_id: &str) -> Reply {
    answer(&CALLER, request_id, |writer| {
        writer.text("Arn", &identity.caller().arn());
        writer.text("UserId", &identity.user_id());
        writer.text("Account", &identity.account.id);
    })
}
