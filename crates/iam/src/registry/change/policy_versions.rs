//! Orders about the versions of a policy.
//!
//! Invariants: V1 one version is the default: only it is evaluated, and only it cannot be deleted.  V2 a version's
//!                number is never reused.

use super::{ChangeError, Outcome, POLICY_VERSIONS_MAX};
use crate::document::{Kind as PolicyKind, Policy};
use crate::registry::{Change, Named, PolicyVersion, Record, Registry, StoredPolicy};

impl StoredPolicy {
    /// Makes another version the default; `None` when no version has this number.
    fn with_default(mut self, version: u32) -> Option<StoredPolicy> {
        let PolicyVersion { document, created } = self.others.remove(&version)?;
        let created_before = self.updated.max(self.created);
        let before =
            PolicyVersion { document: std::mem::replace(&mut self.document, document), created: created_before };
        self.others.insert(self.version, before);
        (self.version, self.updated) = (version, created);
        Some(self)
    }

    fn absent_version(&self, version: u32) -> ChangeError {
        ChangeError::Absent("version", format!("v{version} of {}", self.name))
    }
}

fn put(policy: StoredPolicy) -> Outcome {
    Ok(vec![Change::Put(Record::Policy(policy))])
}

impl Registry {
    pub(super) fn create_policy_version(&self, policy: &Named, document: String, default: bool, now: i64) -> Outcome {
        Policy::parse(PolicyKind::Identity, document.as_bytes())?;
        let mut policy = self.find_named::<StoredPolicy>(policy)?.clone();
        let last = policy.newest == u32::MAX;
        if last || policy.others.len() + 1 >= POLICY_VERSIONS_MAX {
            let message = format!("{} has {POLICY_VERSIONS_MAX} versions; delete one first", policy.name);
            return Err(ChangeError::Limit(message));
        }
        policy.newest += 1;
        let number = policy.newest;
        policy.others.insert(number, PolicyVersion { document, created: now });
        put(if default { policy.with_default(number).expect("it was put there just now") } else { policy })
    }

    pub(super) fn set_default_policy_version(&self, policy: &Named, version: u32) -> Outcome {
        let policy = self.find_named::<StoredPolicy>(policy)?;
        if policy.version == version {
            return put(policy.clone());
        }
        put(policy.clone().with_default(version).ok_or_else(|| policy.absent_version(version))?)
    }

    pub(super) fn delete_policy_version(&self, policy: &Named, version: u32) -> Outcome {
        let mut policy = self.find_named::<StoredPolicy>(policy)?.clone();
        if policy.version == version {
            return Err(ChangeError::InUse(format!("v{version} is the default version of {}", policy.name)));
        }
        match policy.others.remove(&version) {
            Some(_) => put(policy),
            None => Err(policy.absent_version(version)),
        }
    }
}
