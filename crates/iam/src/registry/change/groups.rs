//! Orders about groups and their members.

use super::{ChangeError, LIST_MAX, NewGroup, Outcome, check_without_policies};
use crate::registry::{Change, Group, Kind, Named, Record, Registry, User};

impl Registry {
    pub(super) fn create_group(&self, new: NewGroup, now: i64) -> Outcome {
        self.check_new::<Group>(&new.id, &new.name, &new.path, &new.account)?;
        self.check_account_is_there(&new.account)?;
        let NewGroup { id, name, path, account } = new;
        let group = Group { id, name, path, account, policies: Vec::new(), inline: Default::default(), created: now };
        Ok(vec![Change::Put(Record::Group(group))])
    }

    pub(super) fn update_group(&self, group: &Named, name: Option<String>, path: Option<String>) -> Outcome {
        let mut group = self.find_named::<Group>(group)?.clone();
        self.check_moved(&group, name.as_deref(), path.as_deref())?;
        group.name = name.unwrap_or(group.name);
        group.path = path.unwrap_or(group.path);
        Ok(vec![Change::Put(Record::Group(group))])
    }

    pub(super) fn delete_group(&self, group: &Named, bare: bool) -> Outcome {
        let group = self.find_named::<Group>(group)?;
        if bare {
            check_without_policies(Kind::Group, &group.name, &group.policies, &group.inline)?;
        }
        match self.users.values().find(|user| user.groups.contains(&group.id)) {
            Some(user) => {
                let message = format!("{} is in the group {}; let it leave first", user.name, group.name);
                Err(ChangeError::InUse(message))
            }
            None => Ok(vec![Change::Remove(Kind::Group, group.id.clone())]),
        }
    }

    pub(super) fn join_group(&self, user: &Named, group: &Named) -> Outcome {
        let group = self.find_named::<Group>(group)?;
        let mut user = self.find_named::<User>(user)?.clone();
        if user.account != group.account {
            let message = format!("{} and {} are of different accounts", user.name, group.name);
            return Err(ChangeError::InUse(message));
        }
        if !user.groups.contains(&group.id) {
            if user.groups.len() >= LIST_MAX {
                return Err(ChangeError::Limit(format!("{} is in {LIST_MAX} groups, more are not allowed", user.name)));
            }
            user.groups.push(group.id.clone());
        }
        Ok(vec![Change::Put(Record::User(user))])
    }

    pub(super) fn leave_group(&self, user: &Named, group: &Named) -> Outcome {
        let group = self.find_named::<Group>(group)?;
        let mut user = self.find_named::<User>(user)?.clone();
        user.groups.retain(|own| *own != group.id);
        Ok(vec![Change::Put(Record::User(user))])
    }
}
