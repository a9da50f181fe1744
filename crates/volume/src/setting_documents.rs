//! Cache of settings documents, keyed by the version of their bucket's row.
//!
//! Why:        a request needs several of them, and they rarely change.
//! Invariants: D1 a document is returned only for the version of the bucket's row under which it was read; the row
//!                changes with each setting, so no invalidation is needed.
//! Locking:    a leaf lock, for one operation.
//! Not here:   reading them (bucket_row, bucket_settings).

use std::collections::HashMap;

use bytes::Bytes;
use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::kinds::Setting;
use margay_rows::numbered::Numbered;
use parking_lot::RwLock;

/// Capacity; when exceeded, the cache is cleared.
const DOCUMENTS_MAX: usize = 4096;
/// Longer documents are not cached, in bytes.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct SettingDocuments {
    /// By the bucket's root and the setting's number.
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
