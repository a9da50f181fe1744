//! CreateUser, GetUser, ListUsers, UpdateUser, DeleteUser.

use margay_iam::registry::{NewUser, Order, Part, User};

use super::{Work, entity, gone, tags};
use crate::error::S3Error;
use crate::reply::Reply;

/// Prefix of user ids.
const ID: &str = "AIDA";

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = work.call.identities.new_id(ID);
    let new = NewUser {
        id: id.clone(),
        name: work.required("UserName")?.to_owned(),
        path: work.path(),
        account: None,
        joins: work.account().to_owned(),
        tags: tags::read(work)?,
    };
    work.order(Order::CreateUser(new)).await?;
    let registry = work.now();
    let user = registry.users.get(&id).ok_or_else(gone)?;
    Ok(show(work, user))
}

fn show(work: &Work<'_>, user: &User) -> Reply {
    work.answer(|writer| {
        writer.open("User");
        entity::user(work, writer, user);
        writer.close("User");
    })
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let identity = work.call.identity;
    if work.get("UserName").is_some() || !matches!(identity.role, Part::Root | Part::Account { .. }) {
        return Ok(show(work, work.user_or_caller()?));
    }
    // The account itself.
    let created = work.registry.user_of_account(work.account()).map_or(0, |user| user.created);
    Ok(work.answer(|writer| {
        writer.open("User");
        writer.text("Path", "/");
        writer.text("UserId", &identity.user_id());
        writer.text("Arn", &work.shown(identity.caller().arn()));
        entity::date(writer, "CreateDate", created);
        writer.close("User");
    }))
}

pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    let page = work.entities::<User>(|user| !user.is_account)?;
    Ok(work.answer(|writer| page.write(writer, "Users", |writer, user| entity::user(work, writer, user))))
}

pub(super) async fn update(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.user()?;
    let text = |field| work.get(field).map(str::to_owned);
    let (name, path) = (text("NewUserName"), text("NewPath"));
    work.order(Order::UpdateUser { user: work.named("UserName")?, name, path }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.user()?;
    work.order(Order::DeleteUser { user: work.named("UserName")?, bare: true }).await?;
    Ok(work.answer(|_| ()))
}
