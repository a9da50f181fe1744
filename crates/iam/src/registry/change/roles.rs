//! Orders about roles.

use super::{
    ChangeError, NewRole, Outcome, SESSION_SECONDS_MIN, check_description, check_tags, check_without_policies,
};
use crate::document::{Kind as PolicyKind, Policy};
use crate::registry::{Change, Kind, Named, Record, Registry, Role, SESSION_SECONDS_MAX};

fn check_seconds(seconds: u32) -> Result<(), ChangeError> {
    match (SESSION_SECONDS_MIN..=SESSION_SECONDS_MAX).contains(&seconds) {
        true => Ok(()),
        false => Err(ChangeError::Value(format!(
            "the longest session of a role lasts {SESSION_SECONDS_MIN} to {SESSION_SECONDS_MAX} seconds"
        ))),
    }
}

impl Registry {
    pub(super) fn create_role(&self, new: NewRole, now: i64) -> Outcome {
        self.check_new::<Role>(&new.id, &new.name, &new.path, &new.account)?;
        self.check_account_is_there(&new.account)?;
        check_description(&new.description)?;
        check_seconds(new.session_seconds_max)?;
        check_tags(&new.tags)?;
        Policy::parse(PolicyKind::Trust, new.trust.as_bytes())?;
        let NewRole { id, name, path, account, description, trust, session_seconds_max, tags } = new;
        let (policies, inline) = (Vec::new(), Default::default());
        let role = Role {
            id,
            name,
            path,
            account,
            description,
            trust,
            session_seconds_max,
            policies,
            inline,
            tags,
            created: now,
        };
        Ok(vec![Change::Put(Record::Role(role))])
    }

    pub(super) fn update_role(
        &self,
        role: &Named,
        description: Option<String>,
        session_seconds_max: Option<u32>,
        trust: Option<String>,
    ) -> Outcome {
        let mut role = self.find_named::<Role>(role)?.clone();
        if let Some(description) = description {
            check_description(&description)?;
            role.description = description;
        }
        if let Some(seconds) = session_seconds_max {
            check_seconds(seconds)?;
            role.session_seconds_max = seconds;
        }
        if let Some(trust) = trust {
            Policy::parse(PolicyKind::Trust, trust.as_bytes())?;
            role.trust = trust;
        }
        Ok(vec![Change::Put(Record::Role(role))])
    }

    pub(super) fn delete_role(&self, role: &Named, bare: bool) -> Outcome {
        let role = self.find_named::<Role>(role)?;
        if bare {
            check_without_policies(Kind::Role, &role.name, &role.policies, &role.inline)?;
        }
        Ok(vec![Change::Remove(Kind::Role, role.id.clone())])
    }
}
