//! The rows of one request: asked for once, used by everything that it asks of the volume.
//!
//! Why:        a request looks at its bucket and its object several times (may it, is it encrypted, what does it answer), and
//!             each look would be a call of the engine.
//! Invariants: E1 all that a request reads is as it was at one moment while it was under way; what was committed before it
//!                began is seen.  E2 a change uses the rows for its first try only, asserts them, and drops them.
//! How to use: `look` says what the request will do; calls through `view` use the rows that it brought, and read what it
//!             did not bring. Calls on the volume itself read for themselves.
//! Not here:   which rows are brought (ahead).

use bytes::Bytes;
use margay_rows::key;
use margay_rows::kinds::Setting;
use margay_rows::object_lock::DefaultRetention;
use margay_rows::values::{BucketInfo, Headers, Versioning};
use parking_lot::Mutex;

use crate::ahead::Purpose;
use crate::api::{
    DeleteRequest, Deleted, Error, ObjectInfo, ObjectName, PutOutcome, PutRequest, ReadCondition, VersionId,
};
use crate::encryption::DataKey;
use crate::open::Volume;
use crate::reader::Reader;
use crate::seen::Seen;
use crate::upload::{Staged, Upload};

/// Rows that a request has read.
#[derive(Debug, Default)]
pub struct RequestRows(Mutex<Seen>);

/// The volume as one request sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'r> {
    volume: &'r Volume,
    rows: &'r RequestRows,
}

impl Volume {
    /// Reads what a request will need, in one call.
    pub async fn look(&self, bucket: &str, purpose: Purpose<'_>) -> Result<RequestRows, Error> {
        let mut seen = Seen::default();
        self.look_ahead(bucket, purpose, &mut seen)?;
        Ok(RequestRows(Mutex::new(seen)))
    }

    pub fn view<'r>(&'r self, rows: &'r RequestRows) -> View<'r> {
        View { volume: self, rows }
    }
}

impl View<'_> {
    async fn read<T>(self, read: impl FnOnce(&Volume, &mut Seen) -> Result<T, Error>) -> Result<T, Error> {
        let mut seen = self.take();
        let found = read(self.volume, &mut seen);
        let newest = seen.seq;
        *self.rows.0.lock() = seen;
        self.volume.settle(newest).await?;
        found
    }

    fn take(self) -> Seen {
        std::mem::take(&mut *self.rows.0.lock())
    }

    /// The rows for a change (E2); those of the bucket stay for what is told of it.
    fn take_for_change(self, bucket: &str) -> Seen {
        let mut rows = self.rows.0.lock();
        let stays = rows.only(&key::bucket(bucket));
        std::mem::replace(&mut *rows, stays)
    }

    pub async fn head_bucket(self, bucket: &str) -> Result<BucketInfo, Error> {
        self.read(|volume, seen| volume.consistent(seen, |seen| volume.bucket_info(bucket, seen))).await
    }

    /// The document of a setting; `None` when it is not set.
    pub async fn bucket_setting(self, bucket: &str, setting: Setting) -> Result<Option<Bytes>, Error> {
        self.read(|volume, seen| volume.setting_now(bucket, setting, seen)).await
    }

    pub async fn versioning(self, bucket: &str) -> Result<Versioning, Error> {
        self.read(|volume, seen| volume.consistent(seen, |seen| Ok(volume.bucket_row(bucket, seen)?.0.versioning)))
            .await
    }

    /// `Err(NoObjectLock)` when the bucket has none; else its default.
    pub async fn object_lock(self, bucket: &str) -> Result<Option<DefaultRetention>, Error> {
        self.read(|volume, seen| volume.consistent(seen, |seen| volume.object_lock_now(bucket, seen))).await
    }

    pub async fn head_object(self, bucket: &str, key: &str, condition: &ReadCondition) -> Result<ObjectInfo, Error> {
        self.head_version(bucket, key, None, condition).await
    }

    /// Without a version, the current one.
    pub async fn head_version(
        self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        condition: &ReadCondition,
    ) -> Result<ObjectInfo, Error> {
        self.read(|volume, seen| volume.head_now((bucket, key, version), condition, seen)).await
    }

    /// Without a version, the current one.
    pub async fn get_version(
        self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        condition: &ReadCondition,
    ) -> Result<Reader, Error> {
        let check = |file: &margay_rows::record::FileEntry| condition.check(file.etag, file.modified);
        self.read(|volume, seen| volume.open_now((bucket, key, version), seen, check)).await
    }

    /// Checksums of the parts of a multipart object, in order, as the headers that they were stored with; nothing when no
    /// part has one.
    pub async fn part_checksums(self, name: ObjectName<'_>) -> Result<Vec<Headers>, Error> {
        self.read(|volume, seen| volume.part_checksums_now(name, seen)).await
    }

    /// Begins to receive exactly `len` bytes for a key of this bucket (checks that the bucket exists); they are encrypted
    /// with the key, if there is one, before they are stored, and the object or upload has the key's document then.
    pub async fn begin_upload(self, bucket: &str, len: u64, key: Option<&DataKey>) -> Result<Upload, Error> {
        let owner = self.read(|volume, seen| volume.owner_of_upload(bucket, len, seen)).await?;
        self.volume.stage(owner, len, key)
    }

    /// As `begin_upload`, of at most `len_max` bytes; how many shows when they have come.
    pub async fn begin_growing_upload(
        self,
        bucket: &str,
        len_max: u64,
        key: Option<&DataKey>,
    ) -> Result<Upload, Error> {
        let owner = self.read(|volume, seen| volume.owner_of_upload(bucket, 0, seen)).await?;
        Ok(self.volume.stage_growing(owner, len_max, key))
    }

    pub async fn put_object(self, request: PutRequest<'_>, staged: Staged) -> Result<PutOutcome, Error> {
        let rows = self.take_for_change(request.bucket);
        self.volume.put_from(rows, request, staged).await
    }

    /// Fine when there is nothing to delete, but `NoSuchKey` when the condition wants something to be there.
    pub async fn delete_object(self, bucket: &str, request: &DeleteRequest<'_>) -> Result<Deleted, Error> {
        let rows = self.take_for_change(bucket);
        self.volume.delete_from(rows, bucket, request).await
    }
}
