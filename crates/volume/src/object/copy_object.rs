//! CopyObject: a new object that shares the source's data.
//!
//! Why:        no data is moved; only small inline bodies are copied with the entry.
//! Invariants: C1 the source's entry is asserted, so the copy equals the source at the commit.
//!             C2 a copy keeps the source's ETag and part sizes, and the documents that the request names.
//!             C3 a copy onto itself only replaces headers, documents and time, unless the old version must be kept.
//!             C4 a copy of an encrypted object shares its bytes and its data key, which is encrypted again for the
//!                copy, if both are under keys of one kind.
//!             C5 bytes in another store are not shared where they must be local to be written (`Options::local_before_write`):
//!                they go with the object that they belong to.
//! Not here:   owners of runs (back_rows, release).

use std::ops::ControlFlow;

use margay_rows::event::EventKind;
use margay_rows::key;
use margay_rows::kinds::{Document, Documents};
use margay_rows::record::{Data, FileEntry};
use margay_segment::{Extent, SegmentId};

use crate::api::{CopyRequest, Error, Headers, PutOutcome, Versioning};
use crate::cache::split;
use crate::draft::{Draft, Owning, Seen, distinct_runs};
use crate::driver::{Decided, Purpose, View};
use crate::entry::{Current, Located, Walk, check_key, documents};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;
use crate::upload::place::{self, NewRuns};

/// Metadata stored with the copy.
struct Stored {
    headers: Headers,
    documents: Documents,
}

impl View<'_> {
    pub async fn copy_object(self, request: CopyRequest<'_>) -> Result<PutOutcome, Error> {
        let rows = self.take_for_change(request.bucket);
        self.volume.copy_from(rows, request).await
    }
}

impl Volume {
    pub async fn copy_object(&self, request: CopyRequest<'_>) -> Result<PutOutcome, Error> {
        let source = (request.source_bucket, request.source_key, request.source_version);
        let rows = self.look(request.bucket, Purpose::CopyObject { key: request.key, source }).await?;
        self.view(&rows).copy_object(request).await
    }

    /// The first attempt uses these rows.
    async fn copy_from(&self, rows: Seen, request: CopyRequest<'_>) -> Result<PutOutcome, Error> {
        check_key(request.key)?;
        self.check_room()?;
        let tried = |walk: &Walk<'_>, seen: &mut Seen| self.try_copy(walk, &request, seen);
        let done = self.change_from(rows, request.bucket, split(request.key), tried).await;
        self.answer(done).await
    }

    fn try_copy(
        &self,
        walk: &Walk<'_>,
        request: &CopyRequest<'_>,
        seen: &mut Seen,
    ) -> Result<Decided<PutOutcome>, Refused> {
        let source = self.find(request.source_bucket, request.source_key, request.source_version, seen)?;
        request.source_condition.check_source(source.file.etag, source.file.modified)?;
        let current = self.current(walk, request.key, seen)?;
        request.condition.check(current.etag(walk))?;
        let headers = match &request.headers {
            Some(headers) => headers.clone(),
            None => self.told_headers(&source, seen)?,
        };
        let mut documents = self.documents_of(&source.file, seen)?;
        let key = self.copied_key(documents.get(&Document::Encryption), &request.encryption)?;
        documents.retain(|kind, _| request.documents_kept.contains(*kind) && *kind != Document::Encryption);
        documents.extend(request.documents.clone());
        documents.extend(key.map(|document| (Document::Encryption, document)));
        let stored = Stored { headers, documents };
        let mut draft = Draft::default();
        let outcome = match &current.file {
            Some(old) if source.entry_key == current.entry_key && current.stays(old) => {
                if (old.entry_version, old.version) != (source.entry_version, source.version) {
                    return Err(Refused::Conflict);
                }
                self.draft_onto_itself(&mut draft, walk, &source, &current, stored, seen)?
            }
            _ => self.draft_copy(&mut draft, walk, &source, &current, stored, seen)?,
        };
        let PutOutcome { etag, version, .. } = outcome;
        let told = Told { kind: EventKind::Copy, key: request.key, size: source.file.size, etag, version };
        self.draft_event(&mut draft, &walk.path, &told)?;
        self.finish(draft, outcome)
    }

    /// Headers of the source as S3 shows them.
    fn told_headers(&self, source: &Located, seen: &mut Seen) -> Result<Headers, Error> {
        let mut headers = self.info(source, seen)?.headers;
        self.tell_headers(&source.file, &mut headers);
        Ok(headers)
    }

    /// Refuses to share bytes that are in another store (C5).
    pub(crate) fn check_shareable(&self, extents: Option<&[Extent]>) -> Result<(), Error> {
        let mut segments = extents.unwrap_or_default().iter().map(|extent| extent.run.segment);
        let is_here = |segment| segment == SegmentId(0) || self.stores.is_own(segment);
        if self.options.local_before_write && !segments.all(is_here) { Err(Error::NotShareable) } else { Ok(()) }
    }

    fn draft_onto_itself(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        source: &Located,
        current: &Current<'_>,
        stored: Stored,
        seen: &mut Seen,
    ) -> Result<PutOutcome, Error> {
        walk.path.assert_in(draft);
        source.assert_in(draft);
        if source.file.header_rows {
            self.delete_seen_rows(draft, &key::headers(source.file.ino), seen)?;
        }
        let now = self.now();
        let mut file = FileEntry { modified: now, changed: now, header_rows: false, ..source.file.clone() };
        file.headers = stored.headers;
        documents::draft_changed(draft, &mut file, &stored.documents)?;
        self.draft_locks(draft, &walk.path.bucket, &mut file)?;
        self.take_headers(&mut file);
        let outcome = current.outcome(&file);
        place::put_file(draft, source.row_key.clone(), file)?;
        Ok(outcome)
    }

    #[allow(clippy::too_many_arguments, reason = "what a copy is made from and where it goes")]
    fn draft_copy(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        source: &Located,
        current: &Current<'_>,
        stored: Stored,
        seen: &mut Seen,
    ) -> Result<PutOutcome, Error> {
        let ino = self.new_ino()?;
        let from = &source.file;
        let extents = self.extents_of(from, seen)?;
        self.check_shareable(extents.as_deref())?;
        let data = match &extents {
            None => from.data.clone(),
            Some(extents) => place::place_extents(draft, ino, extents.clone()),
        };
        assert_eq!(matches!(data, Data::Inline(_)), extents.is_none(), "a copy is stored as its source is");
        let mut file = FileEntry::new(ino, from.size, from.etag, self.now(), data, stored.headers);
        file.part_rows = from.part_rows;
        self.check_added(walk, current, &file, seen)?;
        self.bequeath(draft, current, &mut file, seen)?;
        documents::draft_new(draft, &mut file, &stored.documents)?;
        // The source refers to its runs while it has this version; and inline bytes are of one moment too.
        source.assert_in(draft);
        let key = self.replace(walk, current, &mut file, draft, seen)?;
        self.take_headers(&mut file);
        let outcome = current.outcome(&file);
        if from.part_rows {
            self.scan(&key::part_rows(from.ino), seen, |row| {
                draft.put(key::part_row(ino, key::parse_ino(row.key)?.1), row.value.to_vec());
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let runs = distinct_runs(extents.as_deref().unwrap_or_default());
        let entry_key = key.clone();
        let file = place::put_new_file(draft, key, file, NewRuns::stored(runs, Owning::OneMore))?;
        self.entry_hints.note(&entry_key, &file, false);
        Ok(outcome)
    }
}

impl Current<'_> {
    /// Whether a copy of the file onto itself changes it in place, because no version of it is kept.
    fn stays(&self, old: &Located) -> bool {
        match self.object.versioning {
            Versioning::Never => true,
            Versioning::Enabled => false,
            Versioning::Suspended => old.file.version.is_null,
        }
    }
}
