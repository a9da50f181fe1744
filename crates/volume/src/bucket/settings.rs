//! Settings of a bucket: one document of bytes per setting.
//!
//! Why:        policies, CORS rules, lifecycle rules and similar settings are stored and removed in the same way; the
//!             volume does not interpret them.
//! Layout:     rows `g` (docs/format/keys.md); a long document is split into several rows.
//! Invariants: G1 the bucket's row lists its settings and is rewritten with each change of one. So a reader of that row
//!                knows which settings exist, and its generation tells when to read them again.
//!             G2 settings are removed with their bucket.
//! Not here:   the meaning of a setting and its form in requests (the S3 door).

use std::sync::Arc;

use bytes::Bytes;
use margay_meta::VALUE_BYTES_MAX;
use margay_rows::kinds::{SETTING_BYTES_MAX, Setting};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::cache::BucketFact;
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, RequestRows, View};
use crate::error::Refused;
use crate::open::Volume;

impl View<'_> {
    /// The document of a setting; `None` when it is not set.
    pub async fn bucket_setting(self, bucket: &str, setting: Setting) -> Result<Option<Bytes>, Error> {
        let mut read = None;
        let found = self.read(|volume, seen| {
            read = None;
            let (row, version) = volume.bucket_row(bucket, seen)?;
            if !row.settings.contains(setting) {
                return Ok(None);
            }
            if let Some(document) = volume.bucket_facts.document(row.root, version, setting) {
                return Ok(Some(document));
            }
            let document = volume.setting_document(row.root, setting, seen)?;
            read = Some((row.root, version, document.clone()));
            Ok(Some(document))
        });
        let found = found.await?;
        if let Some((root, version, document)) = read {
            self.volume.bucket_facts.keep_document(root, version, setting, document);
        }
        Ok(found)
    }

    /// A fact of the bucket as its row is now; read and parsed once for each version of the row.
    pub async fn bucket_fact<T: BucketFact>(self, bucket: &str) -> Result<Arc<T>, Error> {
        let mut read = None;
        let found = self.read(|volume, seen| {
            read = None;
            let (row, version) = volume.bucket_row(bucket, seen)?;
            if let Some(fact) = volume.bucket_facts.fact::<T>(row.root, version) {
                return Ok(fact);
            }
            let mut documents = Vec::new();
            for setting in T::SETTINGS.iter().copied().filter(|setting| row.settings.contains(*setting)) {
                let known = volume.bucket_facts.document(row.root, version, setting);
                let document = known.map_or_else(|| volume.setting_document(row.root, setting, seen), Ok)?;
                documents.push((setting, document));
            }
            let fact = Arc::new(T::parse(&row.info(bucket, version), &documents));
            read = Some((
                row.root,
                version,
                Arc::clone(&fact),
                documents.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
            ));
            Ok(fact)
        });
        let found = found.await?;
        if let Some((root, version, fact, bytes)) = read {
            self.volume.bucket_facts.keep_fact(root, version, fact, bytes);
        }
        Ok(found)
    }
}

impl Volume {
    /// The document of a setting; `None` when it is not set.
    pub async fn bucket_setting(&self, bucket: &str, setting: Setting) -> Result<Option<Bytes>, Error> {
        self.view(&RequestRows::default()).bucket_setting(bucket, setting).await
    }

    /// Sets or replaces a setting.
    pub async fn set_bucket_setting(&self, bucket: &str, setting: Setting, document: &[u8]) -> Result<(), Error> {
        self.check_room()?;
        self.change_setting(bucket, setting, Some(document)).await
    }

    /// Succeeds if it is not set.
    pub async fn remove_bucket_setting(&self, bucket: &str, setting: Setting) -> Result<(), Error> {
        self.change_setting(bucket, setting, None).await
    }

    async fn change_setting(&self, bucket: &str, setting: Setting, document: Option<&[u8]>) -> Result<(), Error> {
        let done = self.decide(Seen::default(), |seen| self.try_set(bucket, setting, document, seen)).await;
        self.answer(self.with_new_state(done)).await
    }

    /// Returns the number of the bucket's root.
    fn try_set(
        &self,
        bucket: &str,
        setting: Setting,
        document: Option<&[u8]>,
        seen: &mut Seen,
    ) -> Result<Decided<Ino>, Refused> {
        let (mut row, version) = self.bucket_row(bucket, seen)?;
        let mut draft = Draft::default();
        draft.assert_version(key::bucket(bucket), version);
        if row.settings.contains(setting) {
            self.delete_rows(&mut draft, &key::setting(row.root, setting))?;
        } else if document.is_none() {
            return Ok(Decided::Nothing(row.root));
        }
        row.settings.remove(setting);
        if let Some(document) = document {
            draft_setting(&mut draft, row.root, setting, document)?;
            row.settings.insert(setting);
        }
        draft.put(key::bucket(bucket), row.encode());
        self.finish(draft, row.root)
    }
}

/// Drafts the rows of a setting; the caller drafts the bucket's row.
pub(crate) fn draft_setting(draft: &mut Draft, root: Ino, setting: Setting, document: &[u8]) -> Result<(), Error> {
    if document.len() > SETTING_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let mut pieces = document.chunks(VALUE_BYTES_MAX);
    // An empty document is stored as one empty row, so that a setting always has a row.
    let first = pieces.next().unwrap_or_default();
    for (index, piece) in std::iter::once(first).chain(pieces).enumerate() {
        draft.put(key::setting_piece(root, setting, index as u8), piece.to_vec());
    }
    Ok(())
}
