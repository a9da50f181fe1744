//! Documents of an object: small values stored with its inode beside its headers, such as its tags.
//!
//! Why:        unlike headers they can change without a new object, and no response shows them directly.
//! Layout:     rows `k` (docs/format/keys.md); the file's row lists which ones exist. A new kind is one more
//!             `Document`.
//! Invariants: D1 documents given with PUT, copy or an upload are written in the same commit as the object.
//!             D2 a change leaves content, ETag and modification time alone; asserting a file's row asserts its
//!                documents.
//!             D3 they belong to the inode: they are renamed, linked, versioned and removed with it. Writing through a
//!                mount keeps them; a PUT over the file starts without.

use std::ops::ControlFlow;

use bytes::Bytes;
use margay_rows::key;
use margay_rows::kinds::{DOCUMENT_BYTES_MAX, Documents};
use margay_rows::record::FileEntry;

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::open::Volume;

pub(crate) fn check(documents: &Documents) -> Result<(), Error> {
    let fits = documents.values().all(|document| document.len() <= DOCUMENT_BYTES_MAX);
    if fits { Ok(()) } else { Err(Error::TooLarge) }
}

/// Drafts the documents of a new file; the caller drafts its row.
pub(crate) fn draft_new(draft: &mut Draft, file: &mut FileEntry, documents: &Documents) -> Result<(), Error> {
    check(documents)?;
    file.documents = documents.keys().copied().collect();
    for (kind, document) in documents {
        draft.put(key::document(file.ino, *kind), document.to_vec());
    }
    Ok(())
}

/// Drafts a change of a file's documents; the caller asserts and writes its row.
pub(crate) fn draft_changed(draft: &mut Draft, file: &mut FileEntry, documents: &Documents) -> Result<(), Error> {
    draft_removed(draft, file);
    draft_new(draft, file, documents)
}

/// Drafts the removal of a file's documents.
pub(crate) fn draft_removed(draft: &mut Draft, file: &FileEntry) {
    file.documents.iter().for_each(|kind| draft.delete(key::document(file.ino, kind)));
}

impl Volume {
    /// The documents of a file. They match its row only if the row is unchanged afterwards.
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
