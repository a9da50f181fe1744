//! Managed policies: an account's own, and built-in ones.
//!
//! Not here: their versions (`policy_versions`).

use std::collections::BTreeMap;

use margay_iam::registry::{Entity as _, FIRST_VERSION, Kind, Named, Order, StoredPolicy, managed};

use super::{Work, entity, gone};
use crate::error::{Code, S3Error};
use crate::reply::Reply;

/// Prefix of policy ids.
const ID: &str = "ANPA";

/// The policy of the caller's account with this ARN, for which the caller was authorized.
pub(super) fn own<'w>(work: &'w Work<'_>, arn: &str) -> Result<&'w StoredPolicy, S3Error> {
    work.own_arn(arn, "policy")?;
    let arn = work.with_account(arn);
    let policy = work.registry.find_named::<StoredPolicy>(&Named::from(arn.as_str()))?;
    if policy.arn() == arn { Ok(policy) } else { Err(Code::NoSuchEntity.into()) }
}

/// The policy of the caller's account in `PolicyArn`, in the form of orders.
pub(super) fn own_named(work: &Work<'_>) -> Result<Named, S3Error> {
    let policy = own(work, work.required("PolicyArn")?)?;
    Ok(Named::in_account(&policy.account, &policy.name))
}

/// The policy in `PolicyArn`; for a built-in one a record is constructed.
pub(super) fn find(work: &Work<'_>) -> Result<StoredPolicy, S3Error> {
    let arn = work.required("PolicyArn")?;
    match with_the_program().find(|policy| policy.id == arn) {
        Some(policy) => Ok(policy),
        None => own(work, arn).cloned(),
    }
}

fn with_the_program() -> impl Iterator<Item = StoredPolicy> {
    managed::MANAGED.iter().map(|(name, document)| StoredPolicy {
        id: managed::arn(name),
        name: (*name).to_owned(),
        path: "/".to_owned(),
        account: managed::ACCOUNT.to_owned(),
        description: String::new(),
        document: (*document).to_owned(),
        created: 0,
        updated: 0,
        version: FIRST_VERSION,
        newest: FIRST_VERSION,
        others: BTreeMap::new(),
    })
}

fn holders(work: &Work<'_>, policy: &StoredPolicy) -> usize {
    work.holders(&policy.id).count()
}

impl Work<'_> {
    /// Entities of the caller's account that a policy is attached to.
    fn holders<'w>(&'w self, policy: &'w str) -> impl Iterator<Item = (Kind, &'w str)> {
        self.registry.holders_of(policy, self.account())
    }
}

pub(super) async fn create(work: &Work<'_>) -> Result<Reply, S3Error> {
    let id = work.call.identities.new_id(ID);
    let order = Order::PutPolicy {
        id: id.clone(),
        policy: work.named("PolicyName")?,
        path: work.path(),
        description: work.get("Description").unwrap_or_default().to_owned(),
        document: work.required("PolicyDocument")?.to_owned(),
        new: true,
    };
    work.order(order).await?;
    let registry = work.now();
    let policy = registry.policies.get(&id).ok_or_else(gone)?;
    Ok(work.answer(|writer| {
        writer.open("Policy");
        entity::policy(work, writer, policy, 0);
        writer.close("Policy");
    }))
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let policy = find(work)?;
    Ok(work.answer(|writer| {
        writer.open("Policy");
        entity::policy(work, writer, &policy, holders(work, &policy));
        writer.close("Policy");
    }))
}

/// `Scope` is `All`, `AWS` or `Local`; `OnlyAttached` omits policies without attachments.
pub(super) async fn list(work: &Work<'_>) -> Result<Reply, S3Error> {
    let scope = work.get("Scope").unwrap_or("All");
    let prefix = work.get("PathPrefix").unwrap_or_default();
    let only_attached = work.get("OnlyAttached") == Some("true");
    let own = work.registry.policies.values().filter(|policy| policy.account == work.account()).cloned();
    let own = own.filter(|_| scope != "AWS");
    let others = with_the_program().filter(|_| scope != "Local");
    let wanted = own.chain(others).map(|policy| (holders(work, &policy), policy));
    let wanted = wanted.filter(|(count, policy)| policy.path.starts_with(prefix) && (*count > 0 || !only_attached));
    let page = work.page(wanted.map(|(count, policy)| (policy.id.clone(), (count, policy))))?;
    Ok(work.answer(|writer| {
        page.write(writer, "Policies", |writer, (count, policy)| entity::policy(work, writer, policy, *count));
    }))
}

pub(super) async fn list_entities(work: &Work<'_>) -> Result<Reply, S3Error> {
    let policy = find(work)?;
    let holders: Vec<_> = work.holders(&policy.id).collect();
    Ok(work.answer(|writer| {
        for (kind, list, field) in [
            (Kind::Group, "PolicyGroups", "GroupName"),
            (Kind::User, "PolicyUsers", "UserName"),
            (Kind::Role, "PolicyRoles", "RoleName"),
        ] {
            writer.open(list);
            for (_, name) in holders.iter().filter(|(own, _)| *own == kind) {
                writer.open("member");
                writer.text(field, name);
                writer.close("member");
            }
            writer.close(list);
        }
        writer.flag("IsTruncated", false);
    }))
}

pub(super) async fn delete(work: &Work<'_>) -> Result<Reply, S3Error> {
    work.order(Order::DeletePolicy { policy: own_named(work)?, bare: true }).await?;
    Ok(work.answer(|_| ()))
}
