//! Attaching, detaching and listing managed policies of users, groups and roles.

use margay_iam::registry::{Group, Kind, Named, Order, PolicyId, Role, managed};

use super::{Work, policies};
use crate::error::S3Error;
use crate::reply::Reply;

/// The policy in `PolicyArn`, as orders name it.
fn named(work: &Work<'_>) -> Result<Named, S3Error> {
    let arn = work.required("PolicyArn")?;
    if managed::name_of(arn).is_some() { Ok(Named::from(arn)) } else { policies::own_named(work) }
}

pub(super) async fn attach(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let to = work.holder(kind)?;
    work.order(Order::Attach { policy: named(work)?, kind, to }).await?;
    Ok(work.answer(|_| ()))
}

pub(super) async fn detach(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let from = work.holder(kind)?;
    // A policy that the operator has attached may be detached too.
    let policy = Named::from(work.with_account(work.required("PolicyArn")?));
    work.order(Order::Detach { policy, kind, from }).await?;
    Ok(work.answer(|_| ()))
}

fn attached<'w>(work: &'w Work<'_>, kind: Kind) -> Result<&'w [PolicyId], S3Error> {
    match kind {
        Kind::User => work.user().map(|user| user.policies.as_slice()),
        Kind::Group => work.find::<Group>("GroupName").map(|group| group.policies.as_slice()),
        _ => work.find::<Role>("RoleName").map(|role| role.policies.as_slice()),
    }
}

pub(super) async fn list(work: &Work<'_>, kind: Kind) -> Result<Reply, S3Error> {
    let policies = attached(work, kind)?.iter().filter_map(|id| work.registry.attached_policy(id));
    let page = work.page(policies.map(|(name, arn)| (arn.clone(), (name, arn))))?;
    Ok(work.answer(|writer| {
        page.write(writer, "AttachedPolicies", |writer, (name, arn)| {
            writer.text("PolicyName", name);
            writer.text("PolicyArn", &work.shown(arn.clone()));
        });
    }))
}
