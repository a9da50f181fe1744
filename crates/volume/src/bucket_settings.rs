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
use margay_meta::VALUE_BYTES_MAX;
use margay_rows::kinds::{SETTING_BYTES_MAX, Setting};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Draft;
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;
use crate::quota::Quota;
use crate::request::{RequestRows, View};
use crate::seen::Seen;

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
            if let Some(document) = volume.setting_documents.get(row.root, setting, version) {
                return Ok(Some(document));
            }
            let document = volume.setting_document(row.root, setting, seen)?;
            read = Some((row.root, version, document.clone()));
            Ok(Some(document))
        });
        let found = found.await?;
        if let Some((root, version, document)) = read {
            self.volume.setting_documents.keep(root, setting, version, document);
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

    /// Fine when it is not set.
    pub async fn remove_bucket_setting(&self, bucket: &str, setting: Setting) -> Result<(), Error> {
        self.change_setting(bucket, setting, None).await
    }

    async fn change_setting(&self, bucket: &str, setting: Setting, document: Option<&[u8]>) -> Result<(), Error> {
        let done = self.decide(Seen::default(), |seen| self.try_set(bucket, setting, document, seen)).await;
        if let (Ok((root, seq)), Setting::Quota) = (&done, setting) {
            let quota = document.map(Quota::decode).transpose()?.unwrap_or_default();
            self.quotas.set(*root, quota, *seq);
        }
        self.answer(self.with_new_state(done)).await
    }

    /// Gives the number of the bucket's root.
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
