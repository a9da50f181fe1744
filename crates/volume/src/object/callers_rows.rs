//! Rows of the caller that are written in the batch of a change of an object.
//!
//! Why:        who keeps rows about objects beside this crate has them agree with the objects after a crash.
//! Not here:   what they mean (margay-upstream).

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;
use crate::open::Volume;

/// Keys and values; `None` removes a row.
pub(super) type CallersRows = [(Vec<u8>, Option<Vec<u8>>)];

impl Volume {
    /// Commits a draft with the caller's rows; false if something that it asserts has changed. Durable later.
    pub(super) fn commit_with(&self, mut draft: Draft, rows: &CallersRows) -> Result<bool, Error> {
        for (key, value) in rows {
            match value {
                Some(value) => drop(draft.put(key.clone(), value.clone())),
                None => draft.delete(key.clone()),
            }
        }
        match self.commit(draft) {
            Ok(_) => Ok(true),
            Err(Refused::Conflict) => Ok(false),
            Err(Refused::Error(error)) => Err(error),
        }
    }
}
