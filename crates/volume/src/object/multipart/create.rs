//! Creating, reading and aborting a multipart upload.
//!
//! Invariants: A1 aborting removes the upload's row first; its parts are drained afterwards, even after a crash.

use margay_rows::Ino;
use margay_rows::key;
use margay_rows::kinds::Documents;
use margay_rows::record::{Orphan, UploadRecord};

use crate::api::{Error, Headers, UploadInfo};
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, RequestRows, View};
use crate::entry::{check_key, documents};
use crate::error::Refused;
use crate::open::Volume;

impl View<'_> {
    /// Headers and documents apply to the resulting object.
    pub async fn create_multipart(
        self,
        bucket: &str,
        key: &str,
        headers: Headers,
        documents: Documents,
    ) -> Result<UploadInfo, Error> {
        check_key(key)?;
        documents::check(&documents)?;
        self.volume.check_room()?;
        let tried = |seen: &mut Seen| self.volume.try_create_multipart(bucket, key, (&headers, &documents), seen);
        let done = self.volume.decide(self.take_for_change(bucket), tried).await;
        self.volume.answer(done).await
    }

    pub async fn head_multipart(self, bucket: &str, key: &str, upload: &str) -> Result<UploadInfo, Error> {
        let found = self.read(|volume, seen| volume.find_upload(bucket, key, upload, seen)).await?;
        Ok(found.info(key, upload))
    }

    pub async fn abort_multipart(self, bucket: &str, key: &str, upload: &str) -> Result<(), Error> {
        let (volume, rows) = (self.volume, self.take_for_change(bucket));
        let done = volume.decide(rows, |seen| volume.try_abort(bucket, key, upload, seen)).await;
        if let Ok((ino, _)) = &done {
            volume.drain_soon(*ino).await;
        }
        volume.answer(done).await.map(|_| ())
    }
}

impl Volume {
    /// Headers and documents apply to the resulting object.
    pub async fn create_multipart(
        &self,
        bucket: &str,
        key: &str,
        headers: Headers,
        documents: Documents,
    ) -> Result<UploadInfo, Error> {
        self.view(&RequestRows::default()).create_multipart(bucket, key, headers, documents).await
    }

    fn try_create_multipart(
        &self,
        bucket: &str,
        key: &str,
        (headers, documents): (&Headers, &Documents),
        seen: &mut Seen,
    ) -> Result<Decided<UploadInfo>, Refused> {
        let walk = self.walk(bucket, "", seen)?;
        let mut random = [0; 16];
        self.env.random.fill(&mut random);
        let upload = format!("{:032x}", u128::from_be_bytes(random));
        let (headers, documents) = (headers.clone(), documents.clone());
        let record = UploadRecord { ino: self.new_ino()?, initiated: self.now(), headers, documents };
        let row_key = key::upload(walk.path.bucket.root, key, &upload);
        let value = record.encode();
        if value.len() > margay_meta::VALUE_BYTES_MAX {
            return Err(Error::TooLarge.into());
        }
        let mut draft = Draft::default();
        walk.path.assert_in(&mut draft);
        draft.assert_absent(row_key.clone());
        self.entry_hints.note_upload(&row_key, record.ino);
        draft.put(row_key, value);
        let UploadRecord { initiated, headers, documents, .. } = record;
        self.finish(draft, UploadInfo { key: key.to_owned(), upload, initiated, headers, documents })
    }

    pub async fn head_multipart(&self, bucket: &str, key: &str, upload: &str) -> Result<UploadInfo, Error> {
        self.view(&RequestRows::default()).head_multipart(bucket, key, upload).await
    }

    pub async fn abort_multipart(&self, bucket: &str, key: &str, upload: &str) -> Result<(), Error> {
        self.view(&RequestRows::default()).abort_multipart(bucket, key, upload).await
    }

    fn try_abort(&self, bucket: &str, key: &str, upload: &str, seen: &mut Seen) -> Result<Decided<Ino>, Refused> {
        let found = self.find_upload(bucket, key, upload, seen)?;
        let ino = found.record.ino;
        let mut draft = Draft::default();
        draft.assert_version(found.key.clone(), found.version);
        self.entry_hints.forget_upload(&found.key);
        draft.delete(found.key);
        draft.put(key::orphan(ino), Orphan::Parts.encode());
        self.finish(draft, ino)
    }
}
