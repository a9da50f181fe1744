//! CreateAccessKey, ListAccessKeys, UpdateAccessKey, DeleteAccessKey.
//!
//! Invariants: K1 a key is changed only under the name of its own user.

use margay_iam::registry::{AccessKey, Named, Order, Part, User};

use super::{Work, entity, gone};
use crate::error::{Code, S3Error};
use crate::query_api;
use crate::reply::Reply;
use crate::xml::write::Writer;

fn show(writer: &mut Writer<'_>, user: &User, key: &AccessKey, secret: Option<&str>) {
    writer.text("UserName", &user.name);
    writer.text("AccessKeyId", &key.id);
    writer.text("Status", if key.disabled { "Inactive" } else { "Active" });
    writer.optional("SecretAccessKey", secret);
    entity::date(writer, "CreateDate", key.created);
}

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let user = work.user_or_caller()?;
    let key = work.call.identities.new_key().ok_or_else(|| S3Error::internal(&"no keys are kept here"))?;
    let named = Named::in_account(&user.account, &user.name);
    work.order(Order::CreateKey { id: key.id.clone(), user: named, sealed: key.sealed }).await?;
    let registry = work.now();
    let made = registry.keys.get(&key.id).ok_or_else(gone)?;
    Ok(work.answer(|writer| {
        writer.open("AccessKey");
        show(writer, user, made, Some(&key.secret));
        writer.close("AccessKey");
    }))
}

pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    if work.get("UserName").is_none() && work.call.identity.role == Part::Root {
        // Root's keys are configured at the server's start.
        let none = work.page(std::iter::empty::<(String, ())>())?;
        return Ok(work.answer(|writer| none.write(writer, "AccessKeyMetadata", |_, ()| ())));
    }
    let user = work.user_or_caller()?;
    let keys = work.registry.keys.values().filter(|key| key.user == user.id);
    let page = work.page(keys.map(|key| (key.id.clone(), key)))?;
    Ok(work.answer(|writer| page.write(writer, "AccessKeyMetadata", |writer, key| show(writer, user, key, None))))
}

/// The key in `AccessKeyId`, if it belongs to the user.
fn own_key(work: &Work<'_>) -> Result<String, S3Error> {
    let user = work.user_or_caller()?;
    let id = work.required("AccessKeyId")?;
    let absent = || S3Error::new(Code::NoSuchEntity, format!("{} has no access key {id}", user.name));
    let key = work.registry.keys.get(id).filter(|key| key.user == user.id).ok_or_else(absent)?;
    Ok(key.id.clone())
}

pub(super) async fn update(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = own_key(work)?;
    let disabled = match work.required("Status")? {
        "Active" => false,
        "Inactive" => true,
        _ => return Err(query_api::invalid("Status is Active or Inactive")),
    };
    work.order(Order::SetKeyDisabled { id, disabled }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = own_key(work)?;
    work.order(Order::DeleteKey { id }).await?;
    Ok(work.answer(|_| ()))
}
