//! Documents of buckets' settings, kept in memory by the version of their bucket's row.
//!
//! Why:        a request asks for several of them, and they change hardly ever.
//! Invariants: a document is given only for the version of the bucket's row that it was read under; the row changes with
//!             each of its settings, so nothing has to be told when one changes.
//! Locking:    a leaf lock, for one step.
//! Not here:   reading them (bucket_row, bucket_settings).

use std::collections::HashMap;

use bytes::Bytes;
use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::kinds::Setting;
use margay_rows::numbered::Numbered;
use parking_lot::RwLock;

/// Documents kept; when there are more, all are forgotten.
const DOCUMENTS_MAX: usize = 4096;
/// Longer documents are not kept, in bytes.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct SettingDocuments {
    /// By the root of the bucket and the number of the setting.
    documents: RwLock<HashMap<(Ino, u8), (RowVersion, Bytes)>>,
}

impl SettingDocuments {
    pub(crate) fn get(&self, root: Ino, setting: Setting, row_version: RowVersion) -> Option<Bytes> {
        let documents = self.documents.read();
        let (version, document) = documents.get(&(root, setting.number()))?;
        (*version == row_version).then(|| document.clone())
    }

    pub(crate) fn keep(&self, root: Ino, setting: Setting, row_version: RowVersion, document: Bytes) {
        if document.len() > DOCUMENT_BYTES_MAX {
            return;
        }
        let mut documents = self.documents.write();
        if documents.len() >= DOCUMENTS_MAX {
            documents.clear();
        }
        documents.insert((root, setting.number()), (row_version, document));
    }
}
