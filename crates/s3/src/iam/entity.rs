//! XML of users, groups, roles and policies.

use bytes::BytesMut;
use margay_env::Timestamp;
use margay_iam::registry::{Entity, Group, Role, StoredPolicy, Tags, User};

use super::Work;
use super::page::Page;
use crate::error::S3Error;
use crate::time::iso;
use crate::xml::write::{Writer, percent_encode};

/// Seconds since 1970 as a date.
pub(super) fn date(writer: &mut Writer<'_>, name: &str, seconds: i64) {
    writer.text(name, &iso(Timestamp(seconds.saturating_mul(1_000_000_000))));
}

/// A policy in the form that clients expect: percent-encoded.
pub(super) fn document(writer: &mut Writer<'_>, name: &str, json: &str) {
    let mut encoded = BytesMut::with_capacity(json.len() * 2);
    percent_encode(&mut encoded, json);
    writer.text(name, &String::from_utf8_lossy(&encoded));
}

pub(super) fn tags(writer: &mut Writer<'_>, tags: &Tags) {
    if tags.is_empty() {
        return;
    }
    writer.open("Tags");
    for (key, value) in tags {
        writer.open("member");
        writer.text("Key", key);
        writer.text("Value", value);
        writer.close("member");
    }
    writer.close("Tags");
}

/// Elements that users, groups and roles share; `kind` is `User`, `Group` or `Role`.
fn head<E: Entity>(work: &Work<'_>, writer: &mut Writer<'_>, kind: &str, entity: &E) {
    writer.text("Path", entity.path());
    writer.text(&format!("{kind}Name"), entity.name());
    writer.text(&format!("{kind}Id"), entity.id());
    writer.text("Arn", &work.shown(entity.arn()));
    date(writer, "CreateDate", entity.created());
}

pub(super) fn user(work: &Work<'_>, writer: &mut Writer<'_>, user: &User) {
    head(work, writer, "User", user);
    tags(writer, &user.tags);
}

pub(super) fn group(work: &Work<'_>, writer: &mut Writer<'_>, group: &Group) {
    head(work, writer, "Group", group);
}

pub(super) fn role(work: &Work<'_>, writer: &mut Writer<'_>, role: &Role) {
    head(work, writer, "Role", role);
    document(writer, "AssumeRolePolicyDocument", &role.trust);
    writer.optional("Description", Some(role.description.as_str()).filter(|text| !text.is_empty()));
    writer.number("MaxSessionDuration", u64::from(role.session_seconds_max));
    tags(writer, &role.tags);
}

/// The name of a managed policy's version for clients.
pub(super) fn version_name(number: u32) -> String {
    format!("v{number}")
}

/// A policy, and its number of attachments.
pub(super) fn policy(work: &Work<'_>, writer: &mut Writer<'_>, policy: &StoredPolicy, holders: usize) {
    writer.text("PolicyName", &policy.name);
    writer.text("PolicyId", &policy.id);
    writer.text("Arn", &work.shown(policy.arn()));
    writer.text("Path", &policy.path);
    writer.text("DefaultVersionId", &version_name(policy.version));
    writer.number("AttachmentCount", holders as u64);
    writer.flag("IsAttachable", true);
    writer.optional("Description", Some(policy.description.as_str()).filter(|text| !text.is_empty()));
    date(writer, "CreateDate", policy.created);
    date(writer, "UpdateDate", policy.updated.max(policy.created));
}

impl Work<'_> {
    /// A page of all entities of a kind in the caller's account below `PathPrefix`, sorted by name, ignoring case.
    pub(super) fn entities<E: Entity>(&self, wanted: impl Fn(&E) -> bool) -> Result<Page<&E>, S3Error> {
        let prefix = self.get("PathPrefix").unwrap_or_default();
        let own = E::all(&self.registry).filter(|entity| entity.account() == self.account());
        let below = own.filter(|entity| entity.path().starts_with(prefix) && wanted(entity));
        self.page(below.map(|entity| (entity.name().to_ascii_lowercase(), entity)))
    }
}
