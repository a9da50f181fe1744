//! Versions of a managed policy; only the default one is evaluated.
//!
//! Not here: changing versions (margay-iam).

use margay_iam::registry::{Named, Order, StoredPolicy};

use super::policies::{find, own, own_named};
use super::{Work, entity, gone};
use crate::error::{Code, S3Error};
use crate::query_api::invalid;
use crate::reply::Reply;
use crate::xml::write::Writer;

/// A version in a response.
struct Shown<'p> {
    number: u32,
    is_default: bool,
    document: &'p str,
    created: i64,
}

/// The number in `VersionId`.
fn asked(work: &Work<'_>) -> Result<u32, S3Error> {
    let text = work.required("VersionId")?;
    let digits = text.strip_prefix('v').filter(|digits| digits.starts_with(|first| matches!(first, '1'..='9')));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| Code::NoSuchEntity.into())
}

fn versions(policy: &StoredPolicy) -> impl Iterator<Item = Shown<'_>> {
    let created = policy.updated.max(policy.created);
    let default = Shown { number: policy.version, is_default: true, document: &policy.document, created };
    let others = policy.others.iter().map(|(number, other)| Shown {
        number: *number,
        is_default: false,
        document: &other.document,
        created: other.created,
    });
    std::iter::once(default).chain(others)
}

fn write(writer: &mut Writer<'_>, version: &Shown<'_>) {
    writer.text("VersionId", &entity::version_name(version.number));
    writer.flag("IsDefaultVersion", version.is_default);
    entity::date(writer, "CreateDate", version.created);
}

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let arn = work.with_account(work.required("PolicyArn")?);
    let before = own(work, &arn)?.id.clone();
    let default = match work.get("SetAsDefault") {
        Some("true") => true,
        None | Some("false") => false,
        Some(_) => return Err(invalid("SetAsDefault is true or false")),
    };
    let document = work.required("PolicyDocument")?.to_owned();
    work.order(Order::CreatePolicyVersion { policy: Named::from(arn), document, default }).await?;
    let registry = work.now();
    let policy = registry.policies.get(&before).ok_or_else(gone)?;
    let made = versions(policy).max_by_key(|version| version.number).ok_or_else(gone)?;
    Ok(work.answer(|writer| {
        writer.open("PolicyVersion");
        write(writer, &made);
        writer.close("PolicyVersion");
    }))
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let policy = find(work)?;
    let number = asked(work)?;
    let version = versions(&policy).find(|version| version.number == number).ok_or(Code::NoSuchEntity)?;
    Ok(work.answer(|writer| {
        writer.open("PolicyVersion");
        entity::document(writer, "Document", version.document);
        write(writer, &version);
        writer.close("PolicyVersion");
    }))
}

pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    let policy = find(work)?;
    // The newest first, as at AWS.
    let page = work.page(versions(&policy).map(|version| (format!("{:010}", u32::MAX - version.number), version)))?;
    Ok(work.answer(|writer| page.write(writer, "Versions", write)))
}

pub(super) async fn set_default(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.order(Order::SetDefaultPolicyVersion { policy: own_named(work)?, version: asked(work)? }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.order(Order::DeletePolicyVersion { policy: own_named(work)?, version: asked(work)? }).await?;
    Ok(work.answer(|_| ()))
}
