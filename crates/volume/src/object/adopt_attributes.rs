//! Gives a directory the extended attributes of its object in another store.
//!
//! Why:        somebody may have made that object after the directory was entered here: what it says is kept, as what was listed is.
//! Invariants: A1 what the object says counts, as in a listing; other attributes that the directory has stay.
//! Not here:   which attributes an object has (margay-upstream).

use margay_rows::record::DirectoryEntry;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::entry::Walk;
use crate::error::Refused;
use crate::open::Volume;

/// Names and values, each as [`crate::posix::imported_xattr`] has it.
type Xattrs = [(Vec<u8>, Vec<u8>)];

impl Volume {
    /// `path` ends in `/`. Nothing changes if another directory, or none, is there.
    pub async fn adopt_attributes(&self, bucket: &str, path: &str, ino: Ino, xattrs: &Xattrs) -> Result<(), Error> {
        let done = self.change(bucket, (path, ""), |walk, seen| self.try_adopt(walk, ino, xattrs, seen));
        self.answer(done.await).await
    }

    fn try_adopt(&self, walk: &Walk<'_>, ino: Ino, xattrs: &Xattrs, seen: &mut Seen) -> Result<Decided<()>, Refused> {
        let step = walk.path.steps.last().filter(|step| walk.complete() && step.entry.ino == ino);
        let Some(step) = step else { return Ok(Decided::Nothing(())) };
        let mut draft = Draft::default();
        walk.path.assert_in(&mut draft);
        let mut is_new = false;
        for (name, value) in xattrs {
            let row = key::xattr(ino, name);
            // A change of a row changes the entry too, which is asserted.
            if self.get(&row, seen)?.is_none_or(|had| had.value.as_ref() != value.as_slice()) {
                draft.put(row, value.clone());
                is_new = true;
            }
        }
        if !is_new {
            return Ok(Decided::Nothing(()));
        }
        // Both tell of new rows.
        let entry = DirectoryEntry { xattrs: true, changed: Some(self.now()), ..step.entry };
        draft.put(step.key.clone(), entry.encode());
        self.finish(draft, ())
    }
}
