//! Documents of an object: small values kept with its inode beside its headers, such as its tags.
//!
//! Why:        unlike headers they change while the object stays as it is, and no answer shows them as they are.
//! Layout:     rows `k` (docs/format/keys.md); the file's row says which there are.
//! Invariants: D1 given with PUT, copy or an upload they are there in the same commit as the object.
//!             D2 a change leaves content, ETag and time modified alone; whoever asserts the file's row asserts them.
//!             D3 they belong to the inode: renamed, linked and kept as a version with it, removed with it. Writing
//!                through a mount keeps them; a PUT in the place of the file begins without.
//! How to use: a new kind is one more `Document` (kinds). Its bytes are those of its user, whose module has their layout;
//!             `PutRequest::documents` and its like set it, `ObjectInfo::documents` gives it, `change_documents`
//!             decides and changes in one step (retention that may only grow, say).
//! Not here:   what is in them (the S3 door).

use std::ops::ControlFlow;

use bytes::Bytes;
use margay_rows::key;
use margay_rows::kinds::{DOCUMENT_BYTES_MAX, Documents};
use margay_rows::record::FileEntry;

use crate::api::Error;
use crate::draft::Draft;
use crate::open::Volume;
use crate::seen::Seen;

pub(crate) fn check(documents: &Documents) -> Result<(), Error> {
    let fits = documents.values().all(|document| document.len() <= DOCUMENT_BYTES_MAX);
    if fits { Ok(()) } else { Err(Error::TooLarge) }
}

/// Drafts the documents of a new file, whose row the caller writes.
pub(crate) fn draft_new(draft: &mut Draft, file: &mut FileEntry, documents: &Documents) -> Result<(), Error> {
    check(documents)?;
    file.documents = documents.keys().copied().collect();
    for (kind, document) in documents {
        draft.put(key::document(file.ino, *kind), document.to_vec());
    }
    Ok(())
}

/// Drafts other documents of a file than it has; the caller asserts and writes its row.
pub(crate) fn draft_changed(draft: &mut Draft, file: &mut FileEntry, documents: &Documents) -> Result<(), Error> {
    draft_removed(draft, file);
    draft_new(draft, file, documents)
}

/// Drafts the end of a file's documents.
pub(crate) fn draft_removed(draft: &mut Draft, file: &FileEntry) {
    file.documents.iter().for_each(|kind| draft.delete(key::document(file.ino, kind)));
}

impl Volume {
    /// The documents of a file. They are of one moment with its row only if that is unchanged afterwards.
    pub(crate) fn documents_of(&self, file: &FileEntry, seen: &mut Seen) -> Result<Documents, Error> {
        let mut documents = Documents::new();
        if !file.documents.is_empty() {
            self.scan(&key::documents(file.ino), seen, |row| {
                documents.insert(key::parse_document(row.key)?.1, Bytes::copy_from_slice(row.value));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(documents)
    }
}
