//! Groups and their members.

use margay_iam::registry::{Group, NewGroup, Order, User};

use super::{Work, entity, gone};
use crate::error::S3Error;
use crate::reply::Reply;
use crate::xml::write::Writer;

/// Prefix of group ids.
const ID: &str = "AGPA";

fn show(work: &Work<'_>, writer: &mut Writer<'_>, group: &Group) {
    writer.open("Group");
    entity::group(work, writer, group);
    writer.close("Group");
}

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = work.call.identities.new_id(ID);
    let (name, account) = (work.required("GroupName")?.to_owned(), work.account().to_owned());
    work.order(Order::CreateGroup(NewGroup { id: id.clone(), name, path: work.path(), account })).await?;
    let registry = work.now();
    let group = registry.groups.get(&id).ok_or_else(gone)?;
    Ok(work.answer(|writer| show(work, writer, group)))
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let group = work.find::<Group>("GroupName")?;
    let members = work.registry.users.values().filter(|user| user.groups.contains(&group.id));
    let page = work.page(members.map(|user| (user.name.to_ascii_lowercase(), user)))?;
    Ok(work.answer(|writer| {
        show(work, writer, group);
        page.write(writer, "Users", |writer, user| entity::user(work, writer, user));
    }))
}

pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    let page = work.entities::<Group>(|_| true)?;
    Ok(work.answer(|writer| page.write(writer, "Groups", |writer, group| entity::group(work, writer, group))))
}

pub(super) async fn list_for_user(work: &Work<'_>) -> Result<Reply, S3Error> {
    let user: &User = work.user()?;
    let page = work.entities::<Group>(|group| user.groups.contains(&group.id))?;
    Ok(work.answer(|writer| page.write(writer, "Groups", |writer, group| entity::group(work, writer, group))))
}

pub(super) async fn update(work: &Work<'_>) -> Result<Reply, S3Error> {
    let text = |field| work.get(field).map(str::to_owned);
    let (name, path) = (text("NewGroupName"), text("NewPath"));
    work.order(Order::UpdateGroup { group: work.named("GroupName")?, name, path }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.order(Order::DeleteGroup { group: work.named("GroupName")?, bare: true }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn add_user(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.user()?;
    work.order(Order::JoinGroup { user: work.named("UserName")?, group: work.named("GroupName")? }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn remove_user(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.user()?;
    work.order(Order::LeaveGroup { user: work.named("UserName")?, group: work.named("GroupName")? }).await?;
    Ok(work.answer(|_| ()))
}
