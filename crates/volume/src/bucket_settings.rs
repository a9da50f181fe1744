//! Settings of a bucket: one document of bytes for each that is set.
//!
//! Why:        policies, CORS rules, lifecycle rules and their like are kept, found and removed in the same way. What
//!             is in one is a matter of those who use it; the volume stores bytes.
//! Layout:     rows `g` (docs/format/keys.md); a long document is cut into pieces.
//! Invariants: G1 the bucket's row says which settings there are, and is written with each change of one: whoever
//!                read that row knows what is set, and its generation tells when to read a setting again.
//!             G2 settings go with their bucket.
//! Not here:   what a setting means, its form in requests (the S3 door).

use bytes::Bytes;
use margay_meta::{Seq, VALUE_BYTES_MAX};
use margay_rows::kinds::{SETTING_BYTES_MAX, Setting};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;
use crate::open::Volume;
use crate::quota::Quota;
use crate::request::{RequestRows, View};
use crate::seen::Seen;

impl View<'_> {
    /// The document of a setting; `None` when it is not set.
    pub async fn bucket_setting(self, bucket: &str, setting: Setting) -> Result<Option<Bytes>, Error> {
        self.read(|volume, seen| volume.setting_now(bucket, setting, seen)).await
    }
}

impl Volume {
    /// The document of a setting; `None` when it is not set.
    pub async fn bucket_setting(&self, bucket: &str, setting: Setting) -> Result<Option<Bytes>, Error> {
        self.view(&RequestRows::default()).bucket_setting(bucket, setting).await
    }

    pub(crate) fn setting_now(&self, bucket: &str, setting: Setting, seen: &mut Seen) -> Result<Option<Bytes>, Error> {
        let mut read = None;
        let found = self.consistent(seen, |seen| {
            read = None;
            let (row, version) = self.bucket_row(bucket, seen)?;
            if !row.settings.contains(setting) {
                return Ok(None);
            }
            if let Some(document) = self.setting_documents.get(row.root, setting, version) {
                return Ok(Some(document));
            }
            let document = self.setting_document(row.root, setting, seen)?;
            read = Some((row.root, version, document.clone()));
            Ok(Some(document))
        })?;
        if let Some((root, version, document)) = read {
            self.setting_documents.keep(root, setting, version, document);
        }
        Ok(found)
    }

    /// Sets or replaces a setting.
    pub async fn set_bucket_setting(&self, bucket: &str, setting: Setting, document: &[u8]) -> Result<(), Error> {
        self.check_room()?;
        let done = self.retry(|seen| self.try_set(bucket, setting, Some(document), seen).map(|seq| ((), seq)));
        self.answer(done).await
    }

    /// Fine when it is not set.
    pub async fn remove_bucket_setting(&self, bucket: &str, setting: Setting) -> Result<(), Error> {
        let done = self.retry(|seen| self.try_set(bucket, setting, None, seen).map(|seq| ((), seq)));
        self.answer(done).await
    }

    fn try_set(
        &self,
        bucket: &str,
        setting: Setting,
        document: Option<&[u8]>,
        seen: &mut Seen,
    ) -> Result<Seq, Refused> {
        let (mut row, version) = self.bucket_row(bucket, seen)?;
        let mut draft = Draft::default();
        draft.assert_version(key::bucket(bucket), version);
        if row.settings.contains(setting) {
            self.delete_rows(&mut draft, &key::setting(row.root, setting))?;
        } else if document.is_none() {
            return Ok(seen.seq);
        }
        row.settings.remove(setting);
        if let Some(document) = document {
            draft_setting(&mut draft, row.root, setting, document)?;
            row.settings.insert(setting);
        }
        draft.put(key::bucket(bucket), row.encode());
        if setting != Setting::Quota {
            let seq = self.commit(draft)?;
            // The mount asks it when a file is opened, which commits nothing.
            self.bucket_states.forget(row.root);
            return Ok(seq);
        }
        let quota = document.map(Quota::decode).transpose()?.unwrap_or_default();
        // Held over both, so that what is kept in memory is what was committed last.
        let _turn = self.key_latch(bucket, "", "").lock();
        let seq = self.commit(draft)?;
        self.quotas.set(row.root, quota);
        Ok(seq)
    }
}

/// Drafts the rows of a setting; the bucket's row is the caller's.
pub(crate) fn draft_setting(draft: &mut Draft, root: Ino, setting: Setting, document: &[u8]) -> Result<(), Error> {
    if document.len() > SETTING_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let mut pieces = document.chunks(VALUE_BYTES_MAX);
    // An empty document is a piece too, so that a setting always has a row.
    let first = pieces.next().unwrap_or_default();
    for (index, piece) in std::iter::once(first).chain(pieces).enumerate() {
        draft.put(key::setting_piece(root, setting, index as u8), piece.to_vec());
    }
    Ok(())
}
