//! Roles. Assuming one is an action of STS.

use margay_iam::registry::{NewRole, Order, Role};

use super::{Work, entity, gone, tags};
use crate::error::S3Error;
use crate::query_api;
use crate::reply::Reply;
use crate::xml::write::Writer;

/// Prefix of role ids.
const ID: &str = "AROA";
/// Default maximum session duration of a role, in seconds.
const SESSION_SECONDS_DEFAULT: u32 = 3600;

fn show(work: &Work<'_>, writer: &mut Writer<'_>, role: &Role) {
    writer.open("Role");
    entity::role(work, writer, role);
    writer.close("Role");
}

fn seconds(work: &Work<'_>) -> Result<Option<u32>, S3Error> {
    let wrong = |_| query_api::invalid("MaxSessionDuration is a number of seconds");
    work.get("MaxSessionDuration").map(|text| text.parse().map_err(wrong)).transpose()
}

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = work.call.identities.new_id(ID);
    let new = NewRole {
        id: id.clone(),
        name: work.required("RoleName")?.to_owned(),
        path: work.path(),
        account: work.account().to_owned(),
        description: work.get("Description").unwrap_or_default().to_owned(),
        trust: work.required("AssumeRolePolicyDocument")?.to_owned(),
        session_seconds_max: seconds(work)?.unwrap_or(SESSION_SECONDS_DEFAULT),
        tags: tags::read(work)?,
    };
    work.order(Order::CreateRole(new)).await?;
    let registry = work.now();
    let role = registry.roles.get(&id).ok_or_else(gone)?;
    Ok(work.answer(|writer| show(work, writer, role)))
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let role = work.find::<Role>("RoleName")?;
    Ok(work.answer(|writer| show(work, writer, role)))
}

pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    let page = work.entities::<Role>(|_| true)?;
    Ok(work.answer(|writer| page.write(writer, "Roles", |writer, role| entity::role(work, writer, role))))
}

pub(super) async fn update(work: &Work<'_>) -> Result<Reply, S3Error> {
    let description = work.get("Description").map(str::to_owned);
    let (role, session_seconds_max) = (work.named("RoleName")?, seconds(work)?);
    work.order(Order::UpdateRole { role, description, session_seconds_max, trust: None }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn update_trust(work: &Work<'_>) -> Result<Reply, S3Error> {
    let (role, trust) = (work.named("RoleName")?, Some(work.required("PolicyDocument")?.to_owned()));
    work.order(Order::UpdateRole { role, description: None, session_seconds_max: None, trust }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.order(Order::DeleteRole { role: work.named("RoleName")?, bare: true }).await?;
    Ok(work.answer(|_| ()))
}
