//! Changes the documents of an existing object.
//!
//! Why:        a change depends on the current documents, which must still be current at the commit.
//! Invariants: D1 the path and the file's row are asserted; ETag, content and modification time stay.
//!             D2 an explicit directory gets a body of its own to hold its documents, as by a PUT of `x/`.
//! Not here:   what documents are (documents).

use margay_rows::event::EventKind;
use margay_rows::kinds::{Document, Documents};
use margay_rows::record::FileEntry;

use crate::api::{Error, ObjectName, VersionId};
use crate::cache::split;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::entry::{Walk, documents};
use crate::error::Refused;
use crate::event::Told;
use crate::object::get_object::explicit_object;
use crate::open::Volume;
use crate::upload::place;

impl Volume {
    /// `decide` computes the new documents from the old ones; it may run several times.
    pub async fn change_documents(
        &self,
        bucket: &str,
        key: &str,
        decide: impl FnMut(Documents) -> Result<Documents, Error>,
    ) -> Result<(), Error> {
        self.change_documents_of((bucket, key, None), decide).await
    }

    /// As `change_documents`, of a version.
    pub async fn change_documents_of(
        &self,
        (bucket, key, version): ObjectName<'_>,
        mut decide: impl FnMut(Documents) -> Result<Documents, Error>,
    ) -> Result<(), Error> {
        self.check_room()?;
        let done = self.change(bucket, split(key), |walk, seen| {
            self.try_change_documents(walk, (key, version), &mut decide, seen)
        });
        self.answer(done.await).await
    }

    fn try_change_documents(
        &self,
        walk: &Walk<'_>,
        (key, version): (&str, Option<VersionId>),
        decide: &mut impl FnMut(Documents) -> Result<Documents, Error>,
        seen: &mut Seen,
    ) -> Result<Decided<()>, Refused> {
        let current = self.current(walk, key, seen)?;
        let mut draft = Draft::default();
        if current.explicit(walk) && version.is_none_or(|version| version == VersionId::Null) {
            let directory = walk.path.steps.last().ok_or(Error::NoSuchKey)?;
            let modified = self.modified(directory.entry.ino, seen)?;
            let mut file = FileEntry { ino: self.new_ino()?, ..explicit_object(directory.entry.ino, modified) };
            documents::draft_new(&mut draft, &mut file, &decide(Documents::new())?)?;
            let row_key = self.replace(walk, &current, &mut file, &mut draft, seen)?;
            place::put_file(&mut draft, row_key, file)?;
            return self.finish(draft, ());
        }
        let object = current.object;
        let located = match (version, current.file) {
            (Some(version), file) => self.find_version(&object, file, version, seen)?,
            (None, Some(file)) => file,
            (None, None) => return Err(self.why_absent(&object, walk.path.directory(), seen).into()),
        };
        let old = self.documents_of(&located.file, seen)?;
        let new = decide(old.clone())?;
        if let Some(kind) = told_of_tags(&old, &new) {
            let version = object.keeps().then_some(located.file.version.id());
            let told = Told { kind, key, size: located.file.size, etag: located.file.etag, version };
            self.draft_event(&mut draft, &walk.path, &told)?;
        }
        walk.path.assert_in(&mut draft);
        located.assert_in(&mut draft);
        let mut file = located.file.clone();
        documents::draft_changed(&mut draft, &mut file, &new)?;
        file.changed = file.changed.max(self.now());
        place::put_file(&mut draft, located.row_key.clone(), file)?;
        self.finish(draft, ())
    }
}

/// The event of a change of tags; `None` when they stay the same.
fn told_of_tags(old: &Documents, new: &Documents) -> Option<EventKind> {
    match (old.get(&Document::Tags), new.get(&Document::Tags)) {
        (before, after) if before == after => None,
        (_, Some(_)) => Some(EventKind::TaggingPut),
        (_, None) => Some(EventKind::TaggingDelete),
    }
}
