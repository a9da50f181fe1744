//! Inline policies of a user, group or role.

use margay_iam::registry::{Group, Inline, Kind, Order, Role};

use super::{Work, entity};
use crate::error::{Code, S3Error};
use crate::reply::Reply;

/// The policies of the named entity, the field that names it, and its name.
fn policies<'w>(work: &'w Work<'_>, kind: Kind) -> Result<(&'w Inline, &'static str, &'w str), S3Error> {
    match kind {
        Kind::User => work.user().map(|user| (&user.inline, "UserName", user.name.as_str())),
        Kind::Group => work.find::<Group>("GroupName").map(|group| (&group.inline, "GroupName", group.name.as_str())),
        _ => work.find::<Role>("RoleName").map(|role| (&role.inline, "RoleName", role.name.as_str())),
    }
}

pub(super) async fn put(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let (name, document) = (work.required("PolicyName")?.to_owned(), work.required("PolicyDocument")?.to_owned());
    work.order(Order::PutInline { kind, to: work.holder(kind)?, name, document }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn get(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let (policies, field, holder) = policies(work, kind)?;
    let name = work.required("PolicyName")?;
    let absent = || S3Error::new(Code::NoSuchEntity, format!("{holder} has no policy {name}"));
    let json = policies.get(name).ok_or_else(absent)?;
    Ok(work.answer(|writer| {
        writer.text(field, holder);
        writer.text("PolicyName", name);
        entity::document(writer, "PolicyDocument", json);
    }))
}

pub(super) async fn list(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let (policies, ..) = policies(work, kind)?;
    let page = work.page(policies.keys().map(|name| (name.clone(), name)))?;
    Ok(work.answer(|writer| {
        page.write(writer, "PolicyNames", |writer, name| crate::xml::write::escape(writer.buffer(), name));
    }))
}

pub(super) async fn delete(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let name = work.required("PolicyName")?.to_owned();
    work.order(Order::DeleteInline { kind, from: work.holder(kind)?, name }).await?;
    Ok(work.answer(|_| ()))
}
