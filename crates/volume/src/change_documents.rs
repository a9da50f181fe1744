//! Changing the documents of an object that is there.
//!
//! Why:        what changes is decided on what is there, and must hold when it is committed.
//! Invariants: the path and the file's row are asserted; ETag, content and time modified stay. An explicit directory
//!             gets a body of its own, which holds its documents, as by a PUT of `x/`.
//! Not here:   what documents are (documents).

use crate::api::Error;
use crate::documents;
use crate::draft::Draft;
use crate::error::Refused;
use crate::get_object::explicit_object;
use crate::kinds::Documents;
use crate::open::Volume;
use crate::paths::{Done, Walk, split};
use crate::place;
use crate::record::FileEntry;
use crate::seen::Seen;

impl Volume {
    /// `decide` gives the documents that the object is to have instead of those that it has; it may run several times.
    pub async fn change_documents(
        &self,
        bucket: &str,
        key: &str,
        mut decide: impl FnMut(Documents) -> Result<Documents, Error>,
    ) -> Result<(), Error> {
        self.check_room()?;
        let (directories, name) = split(key);
        let done = self
            .change(bucket, (directories, name), |walk, seen| self.try_change_documents(walk, name, &mut decide, seen));
        self.answer(done).await
    }

    fn try_change_documents(
        &self,
        walk: &Walk<'_>,
        name: &str,
        decide: &mut impl FnMut(Documents) -> Result<Documents, Error>,
        seen: &mut Seen,
    ) -> Result<Done<()>, Refused> {
        let current = self.current(walk, name, seen)?;
        let mut draft = Draft::default();
        let Some(located) = &current.file else {
            let directory = walk.path.steps.last().filter(|_| current.explicit(walk, name)).ok_or(Error::NoSuchKey)?;
            let modified = self.modified(directory.entry.ino, seen)?;
            let mut file = FileEntry { ino: self.new_ino()?, ..explicit_object(directory.entry.ino, modified) };
            documents::draft_new(&mut draft, &mut file, &decide(Documents::new())?)?;
            let row_key = self.replace(walk, name, &current, &file, &mut draft)?;
            place::put_file(&mut draft, row_key, file, None)?;
            return Ok(Done::Changed((), self.commit(draft)?));
        };
        let old = self.documents_of(&located.file, seen)?;
        let new = decide(old.clone())?;
        walk.path.assert_in(&mut draft);
        located.assert_in(&mut draft);
        let mut file = located.file.clone();
        documents::draft_changed(&mut draft, &mut file, &new)?;
        file.changed = file.changed.max(self.now());
        place::put_file(&mut draft, located.row_key.clone(), file, None)?;
        Ok(Done::Changed((), self.commit(draft)?))
    }
}
