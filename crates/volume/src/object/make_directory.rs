//! Creates an explicit directory, which stays when it is empty.
//!
//! Why:        POSIX directories exist until rmdir; S3 sees such a directory as an empty object `x/`.
//! Invariants: M1 the path is asserted as by PUT. An existing directory becomes explicit.

use margay_rows::key;
use margay_rows::record::DirectoryEntry;

use crate::api::Error;
use crate::draft::Draft;
use crate::driver::Decided;
use crate::entry::{Walk, check_key};
use crate::error::Refused;
use crate::open::Volume;

impl Volume {
    /// `path` ends in `/`. False when an explicit directory already existed.
    pub async fn make_directory(&self, bucket: &str, path: &str) -> Result<bool, Error> {
        check_key(path)?;
        self.check_room()?;
        if !path.ends_with('/') {
            return Err(Error::PreconditionFailed);
        }
        let done = self.change(bucket, (path, ""), |walk, _| self.try_make_directory(walk));
        self.answer(done.await).await
    }

    fn try_make_directory(&self, walk: &Walk<'_>) -> Result<Decided<bool>, Refused> {
        let mut draft = Draft::default();
        walk.path.assert_in(&mut draft);
        let directory = self.make_directories(walk, &mut draft)?;
        match walk.path.steps.last() {
            Some(step) if walk.complete() && step.entry.explicit => {
                return Ok(Decided::Nothing(false));
            }
            Some(step) if walk.complete() => {
                draft.put(step.key.clone(), DirectoryEntry { explicit: true, ..step.entry }.encode());
            }
            _ => {
                let record = draft.value(&key::directory(directory)).ok_or(Refused::Conflict)?;
                let record = margay_rows::record::DirectoryRecord::decode(record)?;
                let entry = DirectoryEntry { explicit: true, ..DirectoryEntry::implicit(directory) };
                draft.put(key::entry(record.parent, record.sort_name.as_bytes()), entry.encode());
            }
        }
        self.finish(draft, true)
    }
}
