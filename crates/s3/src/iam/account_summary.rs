//! GetAccountSummary: an account's numbers of entities, and its limits.

use margay_iam::registry::{
    ATTACHED_MAX, Entity, Group, INLINE_BYTES_MAX, KEYS_MAX, RECORDS_OF_ACCOUNT_MAX, Role, StoredPolicy, User,
};

use super::Work;
use crate::error::S3Error;
use crate::reply::Reply;

fn count<E: Entity>(work: &Work<'_>, wanted: impl Fn(&E) -> bool) -> usize {
    E::all(&work.registry).filter(|entity| entity.account() == work.account() && wanted(entity)).count()
}

pub(super) async fn get(work: &Work<'_>) -> Result<Reply, S3Error> {
    let providers = work.registry.providers.values().filter(|provider| provider.account == work.account()).count();
    let keys_of_account = match work.registry.user_of_account(work.account()) {
        Some(user) => work.registry.keys.values().any(|key| key.user == user.id),
        // Root's keys, configured at the server's start.
        None => true,
    };
    let summary = [
        ("AccessKeysPerUserQuota", KEYS_MAX),
        ("AccountAccessKeysPresent", usize::from(keys_of_account)),
        ("AttachedPoliciesPerGroupQuota", ATTACHED_MAX),
        ("AttachedPoliciesPerRoleQuota", ATTACHED_MAX),
        ("AttachedPoliciesPerUserQuota", ATTACHED_MAX),
        ("GroupPolicySizeQuota", INLINE_BYTES_MAX),
        ("Groups", count::<Group>(work, |_| true)),
        ("GroupsQuota", RECORDS_OF_ACCOUNT_MAX),
        ("Policies", count::<StoredPolicy>(work, |_| true)),
        ("PoliciesQuota", RECORDS_OF_ACCOUNT_MAX),
        ("PolicySizeQuota", margay_iam::POLICY_BYTES_MAX),
        ("Providers", providers),
        ("RolePolicySizeQuota", INLINE_BYTES_MAX),
        ("Roles", count::<Role>(work, |_| true)),
        ("RolesQuota", RECORDS_OF_ACCOUNT_MAX),
        ("UserPolicySizeQuota", INLINE_BYTES_MAX),
        ("Users", count::<User>(work, |user| !user.is_account)),
        ("UsersQuota", RECORDS_OF_ACCOUNT_MAX),
        ("VersionsPerPolicyQuota", 1),
    ];
    Ok(work.answer(|writer| {
        writer.open("SummaryMap");
        for (key, value) in summary {
            writer.open("entry");
            writer.text("key", key);
            writer.number("value", value as u64);
            writer.close("entry");
        }
        writer.close("SummaryMap");
    }))
}
