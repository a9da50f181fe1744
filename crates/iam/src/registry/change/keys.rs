//! Orders about access keys.

use super::{ChangeError, KEYS_MAX, Outcome};
use crate::registry::{AccessKey, Change, Kind, Named, Record, Registry, User};

impl Registry {
    fn key(&self, id: &str) -> Result<&AccessKey, ChangeError> {
        self.keys.get(id).ok_or_else(|| ChangeError::Absent("access key", id.to_owned()))
    }

    fn new_key(
        &self,
        id: String,
        user: &User,
        sealed: String,
        now: i64,
        most: usize,
    ) -> Result<AccessKey, ChangeError> {
        if self.keys.contains_key(&id) {
            return Err(ChangeError::Present("access key", id));
        }
        if self.keys.values().filter(|key| key.user == user.id).count() >= most {
            return Err(ChangeError::Limit(format!("{} has {KEYS_MAX} access keys; delete one first", user.name)));
        }
        Ok(AccessKey { id, user: user.id.clone(), sealed, disabled: false, created: now })
    }

    pub(super) fn create_key(&self, id: String, user: &Named, sealed: String, now: i64) -> Outcome {
        let user = self.find_named::<User>(user)?;
        Ok(vec![Change::Put(Record::Key(self.new_key(id, user, sealed, now, KEYS_MAX)?))])
    }

    pub(super) fn delete_key(&self, id: String) -> Outcome {
        self.key(&id)?;
        Ok(vec![Change::Remove(Kind::Key, id)])
    }

    pub(super) fn set_key_disabled(&self, id: &str, disabled: bool) -> Outcome {
        let key = AccessKey { disabled, ..self.key(id)?.clone() };
        Ok(vec![Change::Put(Record::Key(key))])
    }

    pub(super) fn rotate_key(&self, old: String, id: String, sealed: String, now: i64) -> Outcome {
        let owner = &self.key(&old)?.user;
        let user = self.users.get(owner).ok_or_else(|| ChangeError::Absent("user", owner.clone()))?;
        let new = self.new_key(id, user, sealed, now, KEYS_MAX + 1)?;
        Ok(vec![Change::Put(Record::Key(new)), Change::Remove(Kind::Key, old)])
    }
}
